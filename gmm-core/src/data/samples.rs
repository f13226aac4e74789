//! Samples, checked once.
use super::array::Array;
use super::float::Float;
use super::noise::Noise;
use super::ranges::finite_ranges;
use super::weights::{Weights, check_number};
use crate::compensated::neumaier_sum;
use crate::error::{Error, Result};
use ndarray::parallel::prelude::*;
use ndarray::{ArcArray1, ArcArray2, Array1, Array2, ArrayView1, ArrayView2, Axis, Ix2};
use std::sync::Arc;

// Re-exported for the CUDA backend.
pub use super::weights::{check_weights, total_weight, weight_scale};

/// Some samples, copied to the host in float64.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The samples (R, D).
    pub x: Array2<f64>,
    /// The weights (R,); ones for unweighted samples.
    pub weights: Array1<f64>,
}

impl Rows {
    /// Combines samples (R, D) and their weights (R,).
    pub fn new(x: Array2<f64>, weights: Array1<f64>) -> Self {
        Self { x, weights }
    }
}

/// The element type of an array of samples: `f32` or `f64`.
pub trait Element: Copy + sealed::Sealed {
    /// Checks an array as [`Samples::from_f32`] does, or with `missing` as [`Samples::with_missing`].
    #[doc(hidden)]
    fn samples(x: ArrayView2<'_, Self>, missing: bool) -> Result<Samples<'_>>;

    /// As [`samples`](Self::samples), for a shared array.
    #[doc(hidden)]
    fn shared_samples<'a>(x: ArcArray2<Self>, missing: bool) -> Result<Samples<'a>>;
}

mod sealed {
    /// Only this module implements [`Element`](super::Element).
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

impl Element for f32 {
    fn samples(x: ArrayView2<'_, Self>, missing: bool) -> Result<Samples<'_>> {
        Samples::checked(Elements::F32(Array::Borrowed(x)), missing)
    }

    fn shared_samples<'a>(x: ArcArray2<Self>, missing: bool) -> Result<Samples<'a>> {
        Samples::checked(Elements::F32(Array::Shared(x)), missing)
    }
}

impl Element for f64 {
    fn samples(x: ArrayView2<'_, Self>, missing: bool) -> Result<Samples<'_>> {
        Samples::checked(Elements::F64(Array::Borrowed(x)), missing)
    }

    fn shared_samples<'a>(x: ArcArray2<Self>, missing: bool) -> Result<Samples<'a>> {
        Samples::checked(Elements::F64(Array::Shared(x)), missing)
    }
}

/// Samples of either element type.
#[derive(Debug, Clone, Copy)]
pub enum View<'a> {
    /// float32 samples (N, D).
    F32(ArrayView2<'a, f32>),
    /// float64 samples (N, D).
    F64(ArrayView2<'a, f64>),
}

/// Counts of missing values; see [`Samples::with_missing`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The number of observed values of each column (D,).
    pub observed: Vec<usize>,
    /// The number of missing values in all columns; at least one.
    pub values: usize,
    /// The number of rows without any observed value.
    pub empty_rows: usize,
    /// The first of these rows.
    pub first_empty_row: Option<usize>,
}

/// N samples of D features (rows × columns, any memory order), checked to be non-empty and finite, or with NaN for
/// [missing values](Self::with_missing). Each sample has weight one unless given another.
///
/// The arrays are borrowed from the caller or shared with it ([`from_shared_f32`](Self::from_shared_f32)); a clone
/// copies no sample. Besides its own layout of the samples, an evaluator keeps these for needs beyond it: more digits,
/// or another device.
#[derive(Debug, Clone)]
pub struct Samples<'a> {
    x: Elements<'a>,
    weights: Option<Weights<'a>>,
    missing: Option<Arc<Missing>>,
    noise: Option<Noise<'a>>,
    /// The range of each column (D,), found by the check of complete samples; `None` for a part of the rows.
    ranges: Option<Arc<[(f64, f64)]>>,
}

#[derive(Debug, Clone)]
enum Elements<'a> {
    F32(Array<'a, f32, Ix2>),
    F64(Array<'a, f64, Ix2>),
}

impl<'a> Samples<'a> {
    /// Checks a float32 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f32(x: ArrayView2<'a, f32>) -> Result<Self> {
        Self::checked(Elements::F32(Array::Borrowed(x)), false)
    }

    /// Checks a float64 array (N, D). Errors: [`Error::EmptyData`], [`Error::NonFiniteSample`].
    pub fn from_f64(x: ArrayView2<'a, f64>) -> Result<Self> {
        Self::checked(Elements::F64(Array::Borrowed(x)), false)
    }

    /// As [`from_f32`](Self::from_f32), but shares the array, which `array.into_shared()` makes without a copy.
    pub fn from_shared_f32(x: ArcArray2<f32>) -> Result<Self> {
        Self::checked(Elements::F32(Array::Shared(x)), false)
    }

    /// As [`from_f64`](Self::from_f64), but shares the array, which `array.into_shared()` makes without a copy.
    pub fn from_shared_f64(x: ArcArray2<f64>) -> Result<Self> {
        Self::checked(Elements::F64(Array::Shared(x)), false)
    }

    /// Checks an array (N, D) in which NaN stands for a value missing at random. The likelihood of a sample is that of
    /// its observed values, and all results from it are exact: scores, responsibilities, statistics. A sample without
    /// observed values has the log-likelihood 0. Without NaN, results have the same bits as with
    /// [`from_f32`](Self::from_f32) and [`from_f64`](Self::from_f64).
    ///
    /// ```
    /// use gmm_host::{GaussianMixtureParams, Samples};
    /// use ndarray::array;
    ///
    /// let x = array![[1.0, 2.0], [1.1, f64::NAN], [0.9, 0.0], [10.0, 2.0], [f64::NAN, 4.0], [9.9, 0.0]];
    /// assert!(Samples::from_f64(x.view()).is_err());
    /// let samples = Samples::with_missing(x.view())?;
    /// assert_eq!(samples.missing().unwrap().observed, [5, 5]);
    /// let fit = GaussianMixtureParams::new(2).fit(&samples)?;
    /// let filled = fit.mixture.impute(&samples)?;
    /// assert!(filled.iter().all(|v| v.is_finite()) && filled[[0, 1]] == 2.0);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::EmptyData`]; [`Error::NonFiniteSample`] for an infinite value.
    pub fn with_missing<T: Element>(x: ArrayView2<'a, T>) -> Result<Self> {
        T::samples(x, true)
    }

    /// As [`with_missing`](Self::with_missing), but shares the array, which `array.into_shared()` makes without a copy.
    pub fn with_shared_missing<T: Element>(x: ArcArray2<T>) -> Result<Self> {
        T::shared_samples(x, true)
    }

    fn checked(x: Elements<'a>, missing: bool) -> Result<Self> {
        let ranges = match (&x, missing) {
            (Elements::F32(x), false) => Some(check_complete(x.view())?),
            (Elements::F64(x), false) => Some(check_complete(x.view())?),
            (Elements::F32(x), true) => check(&x.view(), |v| !v.is_infinite()).map(|()| None)?,
            (Elements::F64(x), true) => check(&x.view(), |v| !v.is_infinite()).map(|()| None)?,
        };
        let mut samples = Self { x, weights: None, missing: None, noise: None, ranges: ranges.map(Into::into) };
        if missing {
            samples.find_missing();
        }
        Ok(samples)
    }

    /// Returns the counts of missing values; `None` if every value is observed.
    pub fn missing(&self) -> Option<&Missing> {
        self.missing.as_deref()
    }

    /// Returns the weight of the samples with a value in each column (D,).
    pub fn observed_weights(&self) -> Vec<f64> {
        fn of_columns<T: Copy + Sync + Send + Into<f64>>(
            x: ArrayView2<'_, T>,
            weights: ArrayView1<'_, f64>,
        ) -> Vec<f64> {
            let of_column = |column: ArrayView1<'_, T>| {
                let rows = column.into_iter().zip(&weights).filter(|(v, _)| !Into::<f64>::into(**v).is_nan());
                neumaier_sum(rows.map(|(_, weight)| *weight))
            };
            x.axis_iter(Axis(1)).into_par_iter().map(of_column).collect()
        }
        match (self.weights(), self.view(), &self.missing) {
            (Some(weights), View::F32(x), _) => of_columns(x, weights),
            (Some(weights), View::F64(x), _) => of_columns(x, weights),
            (None, _, Some(missing)) => missing.observed.iter().map(|n| *n as f64).collect(),
            (None, _, None) => vec![self.n_samples() as f64; self.n_features()],
        }
    }

    fn find_missing(&mut self) {
        self.missing = match self.view() {
            View::F32(x) => find_missing(&x, |v| v.is_nan()),
            View::F64(x) => find_missing(&x, |v| v.is_nan()),
        }
        .map(Arc::new);
    }

    /// Copies some rows and columns, without missing values, with the rows' weights, which may all be zero.
    pub fn observed(&self, rows: &[usize], columns: &[usize]) -> Samples<'static> {
        fn part<T: Copy>(x: ArrayView2<'_, T>, rows: &[usize], columns: &[usize]) -> Array<'static, T, Ix2> {
            let at = |(i, j): (usize, usize)| x[[rows[i], columns[j]]];
            Array::Shared(Array2::from_shape_fn((rows.len(), columns.len()), at).into_shared())
        }
        let x = match self.view() {
            View::F32(x) => Elements::F32(part(x, rows, columns)),
            View::F64(x) => Elements::F64(part(x, rows, columns)),
        };
        let weights = self.weights.as_ref().map(|weights| weights.select(rows));
        Samples { x, weights, missing: None, noise: None, ranges: None }
    }

    /// Gives each sample a weight (N,): a sample of weight w counts as w equal samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::BadSampleWeight`] (negative or not finite), [`Error::ZeroSampleWeights`].
    pub fn with_weights(self, weights: ArrayView1<'a, f64>) -> Result<Self> {
        let weights = Weights::new(weights, self.n_samples())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// As [`with_weights`](Self::with_weights), but shares the array.
    pub fn with_shared_weights(self, weights: ArcArray1<f64>) -> Result<Self> {
        let weights = Weights::from_shared(weights, self.n_samples())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// As [`with_weights`](Self::with_weights), for checked weights, perhaps a part of those of more samples.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`].
    pub fn weighted(self, weights: Weights<'a>) -> Result<Self> {
        check_number(weights.n_samples(), self.n_samples())?;
        Ok(Self { weights: Some(weights), ..self })
    }

    /// Makes the samples measurements with this noise.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for noise of other samples.
    pub fn with_noise(self, noise: Noise<'a>) -> Result<Self> {
        noise.check(self.n_samples(), self.n_features())?;
        Ok(Self { noise: Some(noise), ..self })
    }

    /// Returns the noise of the samples, if they are measurements.
    pub fn noise(&self) -> Option<&Noise<'a>> {
        self.noise.as_ref()
    }

    /// Returns the same samples without their noise.
    #[must_use]
    pub fn without_noise(self) -> Self {
        Self { noise: None, ..self }
    }

    /// Returns D of a mixture of the samples: of projected samples the number of true values, of others that of columns.
    pub fn n_true_values(&self) -> usize {
        self.noise.as_ref().map_or(self.n_features(), Noise::n_features)
    }

    /// Borrows the same samples, for a use shorter than the arrays' own lifetime.
    pub fn reborrow(&self) -> Samples<'_> {
        let x = match &self.x {
            Elements::F32(x) => Elements::F32(x.reborrow()),
            Elements::F64(x) => Elements::F64(x.reborrow()),
        };
        let (missing, ranges) = (self.missing.clone(), self.ranges.clone());
        let noise = self.noise.as_ref().map(Noise::reborrow);
        Samples { x, weights: self.weights.as_ref().map(Weights::reborrow), missing, noise, ranges }
    }

    /// Returns the checked array.
    pub fn view(&self) -> View<'_> {
        match &self.x {
            Elements::F32(x) => View::F32(x.view()),
            Elements::F64(x) => View::F64(x.view()),
        }
    }

    /// Returns the range of each column (D,), if known.
    pub fn ranges(&self) -> Option<&[(f64, f64)]> {
        self.ranges.as_deref()
    }

    /// Returns the weights (N,), if any.
    pub fn weights(&self) -> Option<ArrayView1<'_, f64>> {
        self.weights.as_ref().map(Weights::view)
    }

    /// Returns the sum of the weights; N without weights.
    pub fn total_weight(&self) -> f64 {
        self.weights.as_ref().map_or(self.n_samples() as f64, Weights::total)
    }

    /// Returns N.
    pub fn n_samples(&self) -> usize {
        match self.view() {
            View::F32(x) => x.nrows(),
            View::F64(x) => x.nrows(),
        }
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        match self.view() {
            View::F32(x) => x.ncols(),
            View::F64(x) => x.ncols(),
        }
    }

    /// Returns rows `start..end` as samples of their own (a chunk of the data).
    ///
    /// # Panics
    /// If the range is empty or ends past the last row.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Samples<'a> {
        assert!(!rows.is_empty() && rows.end <= self.n_samples(), "rows {rows:?} of {}", self.n_samples());
        let weights = self.weights.as_ref().map(|weights| weights.rows(rows.clone()));
        let noise = self.noise.as_ref().map(|noise| noise.rows(rows.clone()));
        let mut part = Self { weights, noise, ranges: None, ..self.clone() };
        match &mut part.x {
            Elements::F32(x) => x.select_rows(rows),
            Elements::F64(x) => x.select_rows(rows),
        }
        if part.missing.is_some() {
            part.find_missing();
        }
        part
    }

    /// Returns the samples of each of G = `n_groups` groups, in row order. `of_sample` (N,) holds their group numbers.
    /// Nothing is copied if the samples are sorted by group.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for a wrong number of group numbers, [`Error::NoSuchRow`] for a group number not below
    /// G, [`Error::EmptyData`] for a group without samples.
    pub fn groups(&self, of_sample: &[usize], n_groups: usize) -> Result<Vec<Samples<'a>>> {
        let n_samples = self.n_samples();
        if of_sample.len() != n_samples {
            let (expected, got) = (vec![n_samples], vec![of_sample.len()]);
            return Err(Error::ShapeMismatch { what: "the groups of the samples", expected, got });
        }
        if let Some(&row) = of_sample.iter().find(|&&group| group >= n_groups) {
            return Err(Error::NoSuchRow { row, n_samples: n_groups });
        }
        let mut starts = vec![0; n_groups + 1];
        of_sample.iter().for_each(|&group| starts[group + 1] += 1);
        if starts[1..].contains(&0) {
            return Err(Error::EmptyData { rows: 0, columns: self.n_features() });
        }
        (0..n_groups).for_each(|group| starts[group + 1] += starts[group]);
        let ordered = match of_sample.is_sorted() {
            true => self.clone(),
            false => {
                let (mut rows, mut next) = (vec![0; of_sample.len()], starts.clone());
                for (row, &group) in of_sample.iter().enumerate() {
                    rows[next[group]] = row;
                    next[group] += 1;
                }
                self.in_order(&rows)
            }
        };
        Ok(starts.windows(2).map(|ends| ordered.rows(ends[0]..ends[1])).collect())
    }

    fn in_order(&self, rows: &[usize]) -> Samples<'a> {
        let x = match self.view() {
            View::F32(x) => Elements::F32(Array::Shared(x.select(Axis(0), rows).into_shared())),
            View::F64(x) => Elements::F64(Array::Shared(x.select(Axis(0), rows).into_shared())),
        };
        let weights = self.weights.as_ref().map(|weights| weights.select(rows));
        let noise = self.noise.as_ref().map(|noise| noise.select(rows));
        Samples { x, weights, missing: self.missing.clone(), noise, ranges: self.ranges.clone() }
    }

    /// Copies some rows, without their noise.
    pub(crate) fn taken(&self, rows: &[usize]) -> Samples<'a> {
        let mut part = Self { ranges: None, ..self.in_order(rows).without_noise() };
        part.missing.is_some().then(|| part.find_missing());
        part
    }

    /// Converts the samples to float64; float32 samples are copied.
    pub fn into_float64(self) -> Self {
        match &self.x {
            Elements::F64(_) => self,
            Elements::F32(x) => {
                let x = Array::Shared(x.view().mapv(f64::from).into_shared());
                Self { x: Elements::F64(x), ..self }
            }
        }
    }

    /// Copies some samples to float64, with their weights; missing values are NaN.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`].
    pub fn select(&self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n_samples())?;
        let d = self.n_features();
        let x = match self.view() {
            View::F32(x) => Array2::from_shape_fn((rows.len(), d), |(i, j)| f64::from(x[[rows[i], j]])),
            View::F64(x) => Array2::from_shape_fn((rows.len(), d), |(i, j)| x[[rows[i], j]]),
        };
        let weights = self.weights().map_or_else(|| Array1::ones(rows.len()), |w| w.select(Axis(0), rows));
        Ok(Rows { x, weights })
    }
}

/// Checks that all rows exist, for `Evaluator::rows`.
pub fn check_rows(rows: &[usize], n_samples: usize) -> Result<()> {
    match rows.iter().find(|&&row| row >= n_samples) {
        Some(&row) => Err(Error::NoSuchRow { row, n_samples }),
        None => Ok(()),
    }
}

/// Counts the missing values; `None` if there are none.
fn find_missing<T: Copy + Sync + Send>(x: &ArrayView2<T>, missing: impl Fn(T) -> bool + Sync) -> Option<Missing> {
    let d = x.ncols();
    let count = |(piece, rows): (usize, ArrayView2<'_, T>)| {
        let mut found = Missing { observed: vec![0; d], values: 0, empty_rows: 0, first_empty_row: None };
        for (i, row) in rows.outer_iter().enumerate() {
            let mut n = 0;
            for (observed, &v) in found.observed.iter_mut().zip(row) {
                let missing = missing(v);
                *observed += usize::from(!missing);
                n += usize::from(missing);
            }
            found.values += n;
            if n == d {
                found.empty_rows += 1;
                found.first_empty_row.get_or_insert(piece * PIECE + i);
            }
        }
        found
    };
    let both = |mut a: Missing, b: Missing| {
        a.observed.iter_mut().zip(&b.observed).for_each(|(a, b)| *a += b);
        a.values += b.values;
        a.empty_rows += b.empty_rows;
        a.first_empty_row = a.first_empty_row.or(b.first_empty_row);
        a
    };
    let pieces: Vec<_> = x.axis_chunks_iter(Axis(0), PIECE).into_par_iter().enumerate().map(count).collect();
    pieces.into_iter().reduce(both).filter(|found| found.values > 0)
}

const PIECE: usize = 4096;

/// Checks that there are samples and that all values are finite; returns the range of each column from the same pass.
fn check_complete<T: Float>(x: ArrayView2<'_, T>) -> Result<Vec<(f64, f64)>> {
    let (rows, columns) = x.dim();
    if rows == 0 || columns == 0 {
        return Err(Error::EmptyData { rows, columns });
    }
    match finite_ranges(x) {
        Some(ranges) => Ok(ranges),
        // Locate the value that is not finite.
        None => check(&x, Float::is_finite).map(|()| Vec::new()),
    }
}

fn check<T: Float>(x: &ArrayView2<T>, good: impl Fn(T) -> bool + Sync) -> Result<()> {
    let (rows, columns) = x.dim();
    if rows == 0 || columns == 0 {
        return Err(Error::EmptyData { rows, columns });
    }
    let find = |(piece, rows): (usize, ArrayView2<'_, T>)| {
        // Check all elements of a piece side by side; locate a bad one only if there is one.
        if rows.to_slice().is_some_and(|rows| rows.iter().fold(true, |all, &v| all & good(v))) {
            return None;
        }
        let ((row, column), &value) = rows.indexed_iter().find(|(_, v)| !good(**v))?;
        Some((piece * PIECE + row, column, value.into()))
    };
    // Waking other threads takes longer than one piece.
    let bad = match rows <= PIECE {
        true => find((0, x.view())),
        false => x.axis_chunks_iter(Axis(0), PIECE).into_par_iter().enumerate().find_map_first(find),
    };
    match bad {
        Some((row, column, value)) => Err(Error::NonFiniteSample { row, column, value }),
        None => Ok(()),
    }
}
