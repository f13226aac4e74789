//! The data, checked once.
use crate::{Error, Result};
use ndarray::parallel::prelude::*;
use ndarray::{
    ArcArray, ArcArray1, ArcArray2, Array1, Array2, ArrayView, ArrayView1, ArrayView2, Axis, Dimension, Ix1, Ix2,
};

/// Some samples, copied to the host in float64.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rows {
    /// The samples (R, D).
    pub x: Array2<f64>,
    /// Their weights (R,); ones where the samples have none.
    pub weights: Array1<f64>,
}

impl Rows {
    /// Puts together samples (R, D) and their weights (R,).
    pub fn new(x: Array2<f64>, weights: Array1<f64>) -> Self {
        Self { x, weights }
    }
}

/// The element type of an array of samples: `f32` or `f64`.
pub trait Element: Copy + sealed::Sealed {
    /// Checks an array, as [`Samples::from_f32`] and [`Samples::from_f64`] do.
    #[doc(hidden)]
    fn samples(x: ArrayView2<'_, Self>) -> Result<Samples<'_>>;
}

mod sealed {
    /// Only this module implements [`Element`](super::Element).
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Element for f32 {
    fn samples(x: ArrayView2<'_, Self>) -> Result<Samples<'_>> {
        Samples::from_f32(x)
    }
}

impl Element for f64 {
    fn samples(x: ArrayView2<'_, Self>) -> Result<Samples<'_>> {
        Samples::from_f64(x)
    }
}

/// The two element types of data.
#[derive(Debug, Clone, Copy)]
pub enum View<'a> {
    /// float32 samples (N, D).
    F32(ArrayView2<'a, f32>),
    /// float64 samples (N, D).
    F64(ArrayView2<'a, f64>),
}

/// N samples of D features (rows × columns, any memory order), checked to be non-empty and finite. Each has the weight one,
/// or a weight of its own.
///
/// The arrays are borrowed from the caller, or shared with it ([`from_shared_f32`](Self::from_shared_f32)); a clone copies no
/// sample. An evaluator holds its samples beside the copy in its device's layout, for what needs them as they were given:
/// more digits, or another device.
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    x: Elements<'a>,
    weights: Option<Array<'a, f64, Ix1>>,
}

#[derive(Debug, Clone)]
enum Elements<'a> {
    F32(Array<'a, f32, Ix2>),
    F64(Array<'a, f64, Ix2>),
}

/// The caller's array, borrowed or shared.
#[derive(Debug, Clone)]
enum Array<'a, T, D: Dimension> {
    Borrowed(ArrayView<'a, T, D>),
    Shared(ArcArray<T, D>),
}

impl<T: Clone, D: Dimension> Array<'_, T, D> {
    fn view(&self) -> ArrayView<'_, T, D> {
        match self {
            Self::Borrowed(x) => x.view(),
            Self::Shared(x) => x.view(),
        }
    }

    fn reborrow(&self) -> Array<'_, T, D> {
        match self {
            Self::Borrowed(x) => Array::Borrowed(x.view()),
            Self::Shared(x) => Array::Shared(x.clone()),
        }
    }

    /// Drops all rows but these; no element is copied.
    fn select_rows(&mut self, rows: ndarray::Slice) {
        match self {
            Self::Borrowed(x) => x.slice_axis_inplace(Axis(0), rows),
            Self::Shared(x) => x.slice_axis_inplace(Axis(0), rows),
        }
    }
}

impl<'a> Samples<'a> {
    /// Checks a float32 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f32(x: ArrayView2<'a, f32>) -> Result<Self> {
        Self::checked(Elements::F32(Array::Borrowed(x)))
    }

    /// Checks a float64 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f64(x: ArrayView2<'a, f64>) -> Result<Self> {
        Self::checked(Elements::F64(Array::Borrowed(x)))
    }

    /// As [`from_f32`](Self::from_f32), but the samples own a share of the array, which `array.into_shared()` makes without
    /// a copy.
    ///
    /// # Errors
    /// As [`from_f32`](Self::from_f32).
    pub fn from_shared_f32(x: ArcArray2<f32>) -> Result<Self> {
        Self::checked(Elements::F32(Array::Shared(x)))
    }

    /// As [`from_f64`](Self::from_f64), but the samples own a share of the array, which `array.into_shared()` makes without
    /// a copy.
    ///
    /// # Errors
    /// As [`from_f64`](Self::from_f64).
    pub fn from_shared_f64(x: ArcArray2<f64>) -> Result<Self> {
        Self::checked(Elements::F64(Array::Shared(x)))
    }

    fn checked(x: Elements<'a>) -> Result<Self> {
        match &x {
            Elements::F32(x) => check(&x.view(), |v| v.is_finite(), f64::from)?,
            Elements::F64(x) => check(&x.view(), |v| v.is_finite(), |v| v)?,
        }
        Ok(Self { x, weights: None })
    }

    /// Gives each sample a weight (N,): a sample of weight w counts as w equal samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::BadSampleWeight`] (negative or not finite), [`Error::ZeroSampleWeights`].
    pub fn with_weights(self, weights: ArrayView1<'a, f64>) -> Result<Self> {
        self.weighted(Array::Borrowed(weights))
    }

    /// As [`with_weights`](Self::with_weights), but the samples own a share of the array.
    ///
    /// # Errors
    /// As [`with_weights`](Self::with_weights).
    pub fn with_shared_weights(self, weights: ArcArray1<f64>) -> Result<Self> {
        self.weighted(Array::Shared(weights))
    }

    fn weighted(self, weights: Array<'a, f64, Ix1>) -> Result<Self> {
        check_weights(weights.view(), self.n_samples())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// The same samples, borrowed from these: for a use that ends before the arrays' own lifetime does.
    pub(crate) fn reborrow(&self) -> Samples<'_> {
        let x = match &self.x {
            Elements::F32(x) => Elements::F32(x.reborrow()),
            Elements::F64(x) => Elements::F64(x.reborrow()),
        };
        Samples { x, weights: self.weights.as_ref().map(Array::reborrow) }
    }

    /// The checked array.
    pub fn view(&self) -> View<'_> {
        match &self.x {
            Elements::F32(x) => View::F32(x.view()),
            Elements::F64(x) => View::F64(x.view()),
        }
    }

    /// The weights (N,), if the samples were given any.
    pub fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        self.weights.as_ref().map(Array::view)
    }

    /// Sum of the weights; N if there are none.
    pub fn total_weight(&self) -> f64 {
        total_weight(self.weights(), self.n_samples())
    }

    /// N.
    pub fn n_samples(&self) -> usize {
        match self.view() {
            View::F32(x) => x.nrows(),
            View::F64(x) => x.nrows(),
        }
    }

    /// D.
    pub fn n_features(&self) -> usize {
        match self.view() {
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
        let mut part = self.clone();
        match &mut part.x {
            Elements::F32(x) => x.select_rows(slice),
            Elements::F64(x) => x.select_rows(slice),
        }
        if let Some(weights) = &mut part.weights {
            weights.select_rows(slice);
        }
        part
    }

    /// The same samples in float64; float32 samples are copied.
    pub fn into_float64(self) -> Self {
        match &self.x {
            Elements::F64(_) => self,
            Elements::F32(x) => {
                let x = Array::Shared(x.view().mapv(f64::from).into_shared());
                Self { x: Elements::F64(x), weights: self.weights }
            }
        }
    }

    /// A copy of some samples in float64, with their weights.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`].
    pub fn select(&self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let x = match self.view() {
            View::F32(x) => x.select(Axis(0), rows).mapv(f64::from),
            View::F64(x) => x.select(Axis(0), rows),
        };
        let weights = self.weights().map_or_else(|| Array1::ones(rows.len()), |w| w.select(Axis(0), rows));
        Ok(Rows { x, weights })
    }
}

/// The check of the weights of so many samples.
pub(crate) fn check_weights(weights: ArrayView1<'_, f64>, n: usize) -> Result<()> {
    if weights.len() != n {
        return Err(Error::ShapeMismatch { what: "sample weights", expected: vec![n], got: vec![weights.len()] });
    }
    if let Some((row, &value)) = weights.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
        return Err(Error::BadSampleWeight { row, value });
    }
    if weights.iter().all(|&w| w == 0.0) { Err(Error::ZeroSampleWeights) } else { Ok(()) }
}

/// Sum of the weights of `n` samples; N if there are none.
pub(crate) fn total_weight(weights: Option<ArrayView1<'_, f64>>, n: usize) -> f64 {
    weights.map_or(n as f64, |w| crate::compensated::neumaier_sum(w.iter().copied()))
}

/// A power of two that brings the largest weight to about one.
pub(crate) fn weight_scale(weights: ArrayView1<'_, f64>) -> f64 {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    largest.log2().ceil().clamp(-1000.0, 1000.0).exp2()
}

/// The check of [`Evaluator::rows`].
pub(crate) fn check_rows(rows: &[usize], n_samples: usize) -> Result<()> {
    match rows.iter().find(|&&row| row >= n_samples) {
        Some(&row) => Err(Error::NoSuchRow { row, n_samples }),
        None => Ok(()),
    }
}

fn check<T: Copy + Sync + Send>(
    x: &ArrayView2<T>,
    finite: impl Fn(T) -> bool + Sync,
    wide: impl Fn(T) -> f64 + Sync,
) -> Result<()> {
    /// Rows that a thread takes at a time.
    const PIECE: usize = 4096;
    let (rows, columns) = x.dim();
    if rows == 0 || columns == 0 {
        return Err(Error::EmptyData { rows, columns });
    }
    let find = |(piece, rows): (usize, ArrayView2<'_, T>)| {
        // All elements of a piece are looked at side by side; where the bad one is, is looked up if there is one.
        if rows.to_slice().is_some_and(|rows| rows.iter().fold(true, |good, &v| good & finite(v))) {
            return None;
        }
        let ((row, column), &value) = rows.indexed_iter().find(|(_, v)| !finite(**v))?;
        Some((piece * PIECE + row, column, wide(value)))
    };
    // Waking the other threads takes longer than looking through one piece.
    let bad = match rows <= PIECE {
        true => find((0, x.view())),
        false => x.axis_chunks_iter(Axis(0), PIECE).into_par_iter().enumerate().find_map_first(find),
    };
    match bad {
        Some((row, column, value)) => Err(Error::NonFiniteSample { row, column, value }),
        None => Ok(()),
    }
}
