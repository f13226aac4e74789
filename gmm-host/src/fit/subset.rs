//! The samples among which a start is sought.
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Rows;
use gmm_core::error::{Error, Result};
use ndarray::Axis;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;

/// The number of samples up to which k-means looks at all, or 4 for each component if that is more. Of more samples,
/// half of this number are random ones, and a quarter are drawn by their distance.
pub(super) const SUBSET: usize = 4096;
/// The number of rows in which a given start first looks for values of each column, and the most read at once.
const OBSERVED: (usize, usize) = (16, 8192);

/// Random samples with weight.
pub(super) struct Subset {
    pub rows: Rows,
    /// Their indices among all samples, ascending.
    pub indices: Vec<usize>,
    /// The share of all samples that was looked at: each sample's probability of being among them.
    pub share: f64,
}

impl Subset {
    /// Keeps the rows of these positions.
    pub fn of(self, kept: &[usize]) -> Self {
        let Rows { x, weights } = &self.rows;
        let rows = Rows { x: x.select(Axis(0), kept), weights: weights.select(Axis(0), kept) };
        Self { rows, indices: kept.iter().map(|&i| self.indices[i]).collect(), share: self.share }
    }
}

/// Returns `size` random samples with weight; more if too few have weight, or if a column has no value in them.
///
/// # Errors
/// [`Error::TooFewWeightedSamples`], [`Error::UnobservedColumn`].
pub(super) fn subset(evaluator: &mut dyn Evaluator, k: usize, mut size: usize, rng: &mut ChaCha8Rng) -> Result<Subset> {
    let n = evaluator.n_samples();
    loop {
        let mut indices = index::sample(rng, n, size).into_vec();
        indices.sort_unstable();
        let rows = evaluator.rows(&indices)?;
        let counted: Vec<usize> = (0..size).filter(|&i| rows.weights[i] > 0.0).collect();
        let unobserved = |j: &usize| counted.iter().all(|&i| rows.x[[i, *j]].is_nan());
        let unobserved = (0..evaluator.n_features()).find(unobserved);
        let share = size as f64 / n as f64;
        if counted.len() == size && unobserved.is_none() {
            return Ok(Subset { rows, indices, share });
        }
        if size == n && counted.len() < k {
            return Err(Error::TooFewWeightedSamples { n_samples: counted.len(), n_components: k });
        }
        if let (true, Some(column)) = (size == n, unobserved) {
            return Err(Error::UnobservedColumn { column });
        }
        if size == n || counted.len() >= 4 * k && unobserved.is_none() {
            return Ok(Subset { rows, indices, share }.of(&counted));
        }
        size = size.saturating_mul(4).min(n);
    }
}

/// Checks, for a start that is not from the samples, that each column has a value with weight, mostly in a few rows.
///
/// # Errors
/// [`Error::UnobservedColumn`].
pub(super) fn check_columns(evaluator: &mut dyn Evaluator) -> Result<()> {
    let mut unobserved: Vec<usize> = (0..evaluator.n_features()).collect();
    let (mut start, mut size, n) = (0, OBSERVED.0, evaluator.n_samples());
    while start < n && !unobserved.is_empty() {
        let indices: Vec<usize> = (start..n.min(start + size)).collect();
        let Rows { x, weights } = evaluator.rows(&indices)?;
        unobserved.retain(|&j| x.column(j).iter().zip(&weights).all(|(v, w)| v.is_nan() || *w <= 0.0));
        (start, size) = (start + size, (2 * size).min(OBSERVED.1));
    }
    match unobserved.first() {
        Some(&column) => Err(Error::UnobservedColumn { column }),
        None => Ok(()),
    }
}
