//! The noise over all samples of a fit.
use super::moments::moments;
use super::noise::NoiseComponent;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::interrupt::Interrupt;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::decomposition::eigen;
use gmm_core::model::mixture::Mixture;
use gmm_core::model::uniform::UniformDensity;
use ndarray::{Array1, Array2, ArrayView1, Axis, concatenate};

/// The samples read at once.
const ROWS_AT_ONCE: usize = 1 << 13;

impl NoiseComponent {
    /// Returns the noise of samples, and its weight at the start.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`]; [`Error::BadParameter`] if the samples have labels, or all are noise.
    pub(super) fn of_samples(&self, evaluator: &mut dyn Evaluator) -> Result<(UniformDensity, f64)> {
        let bad = |value: &str, remedy| Error::BadParameter { name: "noise", value: value.into(), remedy };
        if evaluator.labels().is_some() {
            return Err(bad("a component beside labels", "fit without labels, or without noise"));
        }
        let n_samples = evaluator.n_samples();
        let share = match &self.rows {
            None => self.share,
            Some(rows) => {
                if let Some(&row) = rows.iter().find(|row| **row >= n_samples) {
                    return Err(Error::NoSuchRow { row, n_samples });
                }
                if rows.is_empty() || rows.len() >= n_samples {
                    let value = format!("{} of {n_samples} rows", rows.len());
                    return Err(bad(&value, "give some rows, fewer than all"));
                }
                rows.len() as f64 / n_samples as f64
            }
        };
        let noise = noise_of(evaluator)?;
        Ok((UniformDensity { volume: self.volume.unwrap_or(noise.volume), ..noise }, share))
    }
}

/// Returns noise over all samples: its volume is the smaller of the products of the ranges of the columns and of the
/// principal components (mclust's `hypvol`).
///
/// # Errors
/// As [`Evaluator::statistics`] and [`Evaluator::rows`]; [`Error::BadParameter`] for a missing value.
pub fn noise_of(evaluator: &mut dyn Evaluator) -> Result<UniformDensity> {
    let (n, d) = (evaluator.n_samples(), evaluator.n_features());
    let moments = moments(evaluator, CovarianceType::Full)?;
    let centre = moments.means().row(0).to_owned();
    let axes = match moments.scatter() {
        Covariances::Full(v) => eigen(v.index_axis(Axis(0), 0)).1,
        _ => Array2::eye(d),
    };
    // Of the columns, and of the principal components.
    let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); 2 * d];
    let extend = |ranges: &mut [(f64, f64)], row: ArrayView1<'_, f64>| {
        ranges.iter_mut().zip(row).for_each(|(range, v)| *range = (range.0.min(*v), range.1.max(*v)));
    };
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        Interrupt::current().check()?;
        let rows = evaluator.rows(&(start..n.min(start + ROWS_AT_ONCE)).collect::<Vec<_>>())?;
        if let Some(((row, column), _)) = rows.x.indexed_iter().find(|(_, v)| v.is_nan()) {
            let value = format!("a component beside the missing value in row {}, column {column}", start + row);
            let remedy = "fill in missing values, leave out their rows, or fit without noise";
            return Err(Error::BadParameter { name: "noise", value, remedy });
        }
        let scores = (&rows.x - &centre).dot(&axes);
        for ((row, scores), weight) in rows.x.outer_iter().zip(scores.outer_iter()).zip(&rows.weights) {
            if *weight > 0.0 {
                extend(&mut ranges[..d], row);
                extend(&mut ranges[d..], scores);
            }
        }
    }
    let log_volume = |ranges: &[(f64, f64)]| ranges.iter().map(|(a, b)| (b - a).ln()).sum::<f64>();
    let volume = log_volume(&ranges[..d]).min(log_volume(&ranges[d..])).exp();
    let (lower, upper) = ranges.into_iter().take(d).unzip();
    Ok(UniformDensity { volume, lower, upper })
}

/// Adds noise of this weight to the Gaussians of a start.
///
/// # Errors
/// As [`Mixture::with_noise`].
pub fn with_noise(gaussians: &Mixture, (noise, share): &(UniformDensity, f64)) -> Result<Mixture> {
    let of_gaussians = &gaussians.weights() * (1.0 - share);
    let weights = concatenate![Axis(0), of_gaussians, Array1::from_elem(1, *share)];
    gaussians.with_noise(weights, noise.clone())
}
