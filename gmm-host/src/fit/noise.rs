//! The component for noise of a fit by EM, as the caller gives it.
use super::subset::Subset;
use gmm_core::error::{Error, Result};
use ndarray::{ArrayView1, ArrayView2, Axis};
use rayon::prelude::*;
use std::collections::HashSet;

/// The neighbour whose distance tells how dense a place is.
const NEIGHBOUR: usize = 10;
/// The turns of the estimate of two densities.
const TURNS: usize = 50;

/// A component of uniform density that takes in outliers ([`Em::noise`](field@super::Em::noise); Banfield and Raftery
/// 1993). It is one more component, after the K Gaussians.
///
/// ```
/// use gmm_host::{GaussianMixtureParams, NoiseComponent};
/// use ndarray::Array2;
///
/// // A row of 40 lies far from all others.
/// let x = Array2::from_shape_fn((40, 2), |(i, j)| if i == 7 { 50.0 } else { ((i * (j + 2)) as f64).sin() });
/// let fit = GaussianMixtureParams::new(1).noise(NoiseComponent::default()).fit(&x)?;
/// assert_eq!(fit.mixture.n_components(), 2);
/// assert!(fit.mixture.covariances().iter().next() < Some(1.0));
/// let share: NoiseComponent = "share=0.2,volume=30".parse()?;
/// assert_eq!((share.share, share.volume), (0.2, Some(30.0)));
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct NoiseComponent {
    /// The weight of the noise at the start, between 0 and 1, if no rows are given. Default 0.1.
    pub share: f64,
    /// The volume that noise fills, whose inverse is its density. Default: the smaller of the products of the ranges of
    /// the columns and of the principal components, as mclust's.
    pub volume: Option<f64>,
    /// The rows that are noise at the start, counted from 0, which the start of the Gaussians does not look at. Default:
    /// rows far from their neighbours (Byers and Raftery 1998).
    pub rows: Option<Vec<usize>>,
}

impl Default for NoiseComponent {
    fn default() -> Self {
        Self { share: 0.1, volume: None, rows: None }
    }
}

impl NoiseComponent {
    pub(super) fn check(&self) -> Result<()> {
        let bad = |value: f64, remedy| Err(Error::BadParameter { name: "noise", value: value.to_string(), remedy });
        match self.volume {
            _ if !(self.share > 0.0 && self.share < 1.0) => {
                bad(self.share, "its share at the start must lie between 0 and 1")
            }
            Some(volume) if !(volume > 0.0 && volume.is_finite()) => {
                bad(volume, "its volume must be positive and finite")
            }
            _ => Ok(()),
        }
    }

    /// Leaves the noise out of the samples among which a start is sought.
    ///
    /// # Errors
    /// [`Error::TooFewWeightedSamples`] if fewer than K are left.
    pub(super) fn leave_out(&self, subset: Subset, k: usize) -> Result<Subset> {
        let all = 0..subset.indices.len();
        let kept: Vec<usize> = match &self.rows {
            Some(rows) => {
                let rows: HashSet<usize> = rows.iter().copied().collect();
                all.filter(|&i| !rows.contains(&subset.indices[i])).collect()
            }
            None => {
                let sparse = in_sparse_places(subset.rows.x.view());
                all.filter(|&i| !sparse[i]).collect()
            }
        };
        if kept.len() < k {
            return Err(Error::TooFewWeightedSamples { n_samples: kept.len(), n_components: k });
        }
        Ok(subset.of(&kept))
    }
}

/// Returns the rows that lie in the sparser of two densities: the volume up to a row's k-th neighbour has a gamma
/// distribution of the shape k in each (Byers and Raftery 1998). Columns are taken in units of their deviations.
fn in_sparse_places(x: ArrayView2<'_, f64>) -> Vec<bool> {
    let (n, d) = x.dim();
    if n <= 2 * NEIGHBOUR {
        return vec![false; n];
    }
    let unit = |v: f64| if v > 0.0 { v } else { 1.0 };
    let z = &x / &x.std_axis(Axis(0), 0.0).mapv(unit);
    let distance = |i: usize| {
        let row = z.row(i);
        let square = |other: ArrayView1<'_, f64>| row.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum();
        let mut squares: Vec<f64> = z.outer_iter().map(square).collect();
        squares.select_nth_unstable_by(NEIGHBOUR, f64::total_cmp).1.max(f64::MIN_POSITIVE).ln()
    };
    let logs: Vec<f64> = (0..n).into_par_iter().map(distance).collect();
    let mut sorted = logs.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    // In units of the median, within float64's range.
    let volumes: Vec<f64> =
        logs.iter().map(|v| (0.5 * d as f64 * (v - sorted[n / 2])).clamp(-300.0, 300.0).exp()).collect();
    let shape = NEIGHBOUR as f64;
    let mut sparse: Vec<f64> = logs.iter().map(|v| f64::from(u8::from(*v > sorted[n - n / 10 - 1]))).collect();
    for _ in 0..TURNS {
        let rate = |of: fn(f64) -> f64| {
            let sums = sparse.iter().zip(&volumes).fold((0.0, 0.0), |(n, v), (p, u)| (n + of(*p), v + of(*p) * u));
            (sums.0 / n as f64, shape * sums.0 / sums.1)
        };
        let ((a, dense_rate), (b, sparse_rate)) = (rate(|p| 1.0 - p), rate(|p| p));
        let log_odds =
            |u: &f64| (b / a).ln() + shape * (sparse_rate / dense_rate).ln() - (sparse_rate - dense_rate) * u;
        sparse = volumes.iter().map(|u| 1.0 / (1.0 + (-log_odds(u)).exp())).collect();
    }
    sparse.into_iter().map(|p| p > 0.5).collect()
}

impl std::str::FromStr for NoiseComponent {
    type Err = Error;

    /// Parses `default`, a share, or a share and a volume, such as `share=0.1,volume=30`.
    fn from_str(text: &str) -> Result<Self> {
        let mut noise = Self::default();
        let parts = text.split(',').map(str::trim).filter(|part| *part != "default");
        for part in parts {
            let bad = || Error::BadParameter {
                name: "noise",
                value: format!("`{part}`"),
                remedy: "use default, or share or volume with a number, as in share=0.1,volume=30",
            };
            let (name, value) = part.split_once('=').unwrap_or(("share", part));
            let value: f64 = value.trim().parse().map_err(|_| bad())?;
            match name.trim() {
                "share" => noise.share = value,
                "volume" => noise.volume = Some(value),
                _ => return Err(bad()),
            }
        }
        noise.check()?;
        Ok(noise)
    }
}
