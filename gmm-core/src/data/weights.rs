//! The weights of samples.
use super::array::Array;
use crate::compensated::neumaier_sum;
use crate::error::{Error, Result};
use crate::reproducible::Functions;
use ndarray::{ArcArray1, ArrayView1, Axis, Ix1};
use std::ops::Range;

/// The weights of samples, checked once: a sample of weight w counts as w equal samples.
///
/// Not all weights are zero, but those of [some samples](Self::rows) may be.
///
/// ```
/// use gmm_host::{Samples, Weights};
/// use ndarray::array;
///
/// let (x, w) = (array![[1.0], [2.0], [3.0]], array![0.0, 0.0, 2.5]);
/// let weights = Weights::new(w.view(), 3)?;
/// assert_eq!((weights.total(), weights.rows(0..2).total()), (2.5, 0.0));
/// let samples = Samples::from_f64(x.view())?.rows(0..2).weighted(weights.rows(0..2))?;
/// assert_eq!(samples.total_weight(), 0.0);
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Weights<'a> {
    values: Array<'a, f64, Ix1>,
    total: f64,
}

impl<'a> Weights<'a> {
    /// Checks the weights (N,) of `n_samples` samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another number of weights, [`Error::BadSampleWeight`] (negative or not finite),
    /// [`Error::ZeroSampleWeights`].
    pub fn new(weights: ArrayView1<'a, f64>, n_samples: usize) -> Result<Self> {
        check_weights(weights, n_samples)?;
        Ok(Self::of(Array::Borrowed(weights)))
    }

    /// As [`new`](Self::new), but shares the array.
    pub fn from_shared(weights: ArcArray1<f64>, n_samples: usize) -> Result<Self> {
        check_weights(weights.view(), n_samples)?;
        Ok(Self::of(Array::Shared(weights)))
    }

    fn of(values: Array<'a, f64, Ix1>) -> Self {
        let total = total_weight(Some(values.view()), values.view().len());
        Self { values, total }
    }

    /// Returns the weights (N,).
    pub fn view(&self) -> ArrayView1<'_, f64> {
        self.values.view()
    }

    /// Returns N.
    pub fn n_samples(&self) -> usize {
        self.view().len()
    }

    /// Returns the sum of the weights.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Returns the weights of a range of the samples.
    ///
    /// # Panics
    /// If the range ends past the last sample.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let mut part = self.values.clone();
        part.select_rows(rows);
        Self::of(part)
    }

    /// Copies the weights of some samples.
    pub fn select<'b>(&self, rows: &[usize]) -> Weights<'b> {
        Weights::of(Array::Shared(self.view().select(Axis(0), rows).into_shared()))
    }

    /// Returns the same weights, borrowed from these or shared with them.
    pub fn reborrow(&self) -> Weights<'_> {
        Weights { values: self.values.reborrow(), total: self.total }
    }
}

/// Checks the weights of `n` samples.
pub fn check_weights(weights: ArrayView1<'_, f64>, n: usize) -> Result<()> {
    check_number(weights.len(), n)?;
    if let Some((row, &value)) = weights.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
        return Err(Error::BadSampleWeight { row, value });
    }
    if weights.iter().all(|&w| w == 0.0) { Err(Error::ZeroSampleWeights) } else { Ok(()) }
}

pub(super) fn check_number(n_weights: usize, n_samples: usize) -> Result<()> {
    match n_weights == n_samples {
        true => Ok(()),
        false => Err(Error::ShapeMismatch { what: "sample weights", expected: vec![n_samples], got: vec![n_weights] }),
    }
}

/// Returns the sum of the weights of `n` samples; N without weights.
pub fn total_weight(weights: Option<ArrayView1<'_, f64>>, n: usize) -> f64 {
    weights.map_or(n as f64, |w| neumaier_sum(w.iter().copied()))
}

/// Returns a power of two near the largest weight, to divide weights by.
pub fn weight_scale(weights: ArrayView1<'_, f64>) -> f64 {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    largest.log_2().ceil().clamp(-1000.0, 1000.0).exp_2()
}
