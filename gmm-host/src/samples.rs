//! The data, checked once.
use crate::{Error, Result};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView1, ArrayView2, Axis};

/// The two element types of data.
#[derive(Debug, Clone, Copy)]
pub enum View<'a> {
    /// float32 samples (N, D).
    F32(ArrayView2<'a, f32>),
    /// float64 samples (N, D).
    F64(ArrayView2<'a, f64>),
}

/// A view of N samples of D features (rows × columns, any memory order), known to be non-empty and finite, each of
/// weight one or of a weight of its own.
#[derive(Debug, Clone, Copy)]
pub struct Samples<'a> {
    x: View<'a>,
    weights: Option<ArrayView1<'a, f64>>,
}

impl<'a> Samples<'a> {
    /// Checks a float32 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f32(x: ArrayView2<'a, f32>) -> Result<Self> {
        check(&x, |v| v.is_finite(), f64::from)?;
        Ok(Self { x: View::F32(x), weights: None })
    }

    /// Checks a float64 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f64(x: ArrayView2<'a, f64>) -> Result<Self> {
        check(&x, |v| v.is_finite(), |v| v)?;
        Ok(Self { x: View::F64(x), weights: None })
    }

    /// Gives each sample a weight (N,): a sample of weight w counts as w equal samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::BadSampleWeight`] (negative or not finite), [`Error::ZeroSampleWeights`].
    pub fn with_weights(self, weights: ArrayView1<'a, f64>) -> Result<Self> {
        let n = self.n_samples();
        if weights.len() != n {
            return Err(Error::ShapeMismatch { what: "sample weights", expected: vec![n], got: vec![weights.len()] });
        }
        if let Some((row, &value)) = weights.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
            return Err(Error::BadSampleWeight { row, value });
        }
        if weights.iter().all(|&w| w == 0.0) {
            return Err(Error::ZeroSampleWeights);
        }
        Ok(Self { weights: Some(weights), ..self })
    }

    /// The checked array.
    pub fn view(&self) -> View<'a> {
        self.x
    }

    /// The weights (N,), if the samples were given any.
    pub fn weights(&self) -> Option<ArrayView1<'a, f64>> {
        self.weights
    }

    /// Sum of the weights; N if there are none.
    pub fn total_weight(&self) -> f64 {
        self.weights.map_or(self.n_samples() as f64, |w| crate::reference::neumaier_sum(w.iter().copied()))
    }

    /// N.
    pub fn n_samples(&self) -> usize {
        match self.x {
            View::F32(x) => x.nrows(),
            View::F64(x) => x.nrows(),
        }
    }

    /// D.
    pub fn n_features(&self) -> usize {
        match self.x {
            View::F32(x) => x.ncols(),
            View::F64(x) => x.ncols(),
        }
    }

    /// Rows `start..end` as samples of their own (a chunk of the data).
    ///
    /// # Panics
    /// If the range is empty or ends past the last row.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Samples<'a> {
        assert!(!rows.is_empty() && rows.end <= self.n_samples(), "rows {rows:?} of {}", self.n_samples());
        let slice = ndarray::Slice::from(rows);
        let weights = self.weights.map(|mut w| {
            w.slice_axis_inplace(Axis(0), slice);
            w
        });
        let x = match self.x {
            View::F32(mut x) => {
                x.slice_axis_inplace(Axis(0), slice);
                View::F32(x)
            }
            View::F64(mut x) => {
                x.slice_axis_inplace(Axis(0), slice);
                View::F64(x)
            }
        };
        Samples { x, weights }
    }
}

fn check<T: Copy + Sync + Send>(x: &ArrayView2<T>, finite: fn(T) -> bool, wide: fn(T) -> f64) -> Result<()> {
    let (rows, columns) = x.dim();
    if rows == 0 || columns == 0 {
        return Err(Error::EmptyData { rows, columns });
    }
    let bad = x
        .axis_iter(Axis(0))
        .into_par_iter()
        .enumerate()
        .with_min_len(4096)
        .find_map_first(|(row, r)| r.iter().position(|&v| !finite(v)).map(|column| (row, column, wide(r[column]))));
    match bad {
        Some((row, column, value)) => Err(Error::NonFiniteSample { row, column, value }),
        None => Ok(()),
    }
}
