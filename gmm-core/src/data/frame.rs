//! The frame of a data set, in which the CPU and CUDA backends compute: a shift and a scale for each column.
//!
//! The data is centred once, in float64, and each column is scaled by a power of two, which is exact. Data far from the
//! origin, or in an extreme unit, thus loses nothing when rounded to the working precision. A narrow component far from
//! the centre still loses digits; `backends/enough_digits.rs` bounds that loss and reacts to it.
use super::ranges::finite_ranges;
use super::samples::{Samples, View};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::for_each_matrix;
use crate::reproducible::Functions;
use crate::statistics::CentredSums;
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};

// Re-exported for the CUDA backend.
pub use super::float::Float;

/// x′ = (x − shift) · scale per column, computed in float64; scale is a power of two.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The numbers subtracted from the features (D,).
    pub shift: Vec<f64>,
    /// The powers of two that then multiply the features (D,).
    pub scale: Vec<f64>,
    /// 1 / scale, exactly.
    pub inverse: Vec<f64>,
    /// Σⱼ log₂ scaleⱼ, exactly.
    pub log2_scale: f64,
}

impl Frame {
    /// Returns the frame of samples; for complete ones, from the ranges that their check found.
    pub fn of_samples(samples: &Samples<'_>) -> Self {
        match (samples.view(), samples.missing()) {
            (View::F32(x), None) => Self::of_complete(x, samples.ranges()),
            (View::F64(x), None) => Self::of_complete(x, samples.ranges()),
            (View::F32(x), Some(_)) => Self::of_observed(x),
            (View::F64(x), Some(_)) => Self::of_observed(x),
        }
    }

    /// Returns the frame of an array without missing values (N, D).
    pub fn of<T: Float>(x: ArrayView2<'_, T>) -> Self {
        Self::of_complete(x, None)
    }

    /// Returns the frame of an array without missing values (N, D); `ranges` are those of its columns (D,), if known.
    ///
    /// The shift is the median of up to [`LOOKED_AT`](Float::LOOKED_AT) samples, rounded to a quarter of their
    /// interquartile range. It is near most samples, whatever the outliers, and samples near the shift keep more of
    /// their digits. The scale is the power of two that brings the column's largest deviation from the shift to between
    /// 4 and 8.
    fn of_complete<T: Float>(x: ArrayView2<'_, T>, ranges: Option<&[(f64, f64)]>) -> Self {
        let (n, d) = x.dim();
        let found;
        let ranges = match ranges {
            Some(ranges) => ranges,
            None => {
                found = finite_ranges(x).unwrap_or_else(|| vec![(0.0, 0.0); d]);
                &found
            }
        };
        Self::from_ranges(d, |j| ranges[j], |j, some| some.extend(looked_at::<T>(n).map(|i| x[[i, j]].into())))
    }

    /// As `of_complete`, from the observed values only: NaN stands for a missing one.
    pub fn of_observed<T: Float>(x: ArrayView2<'_, T>) -> Self {
        let n = x.nrows();
        let ranges = |piece: ArrayView2<'_, T>| {
            let mut ranges = vec![(f64::INFINITY, f64::NEG_INFINITY); piece.ncols()];
            for row in piece.outer_iter() {
                // Comparisons with NaN are false.
                for ((min, max), &v) in ranges.iter_mut().zip(row) {
                    let v: f64 = v.into();
                    *min = if v < *min { v } else { *min };
                    *max = if v > *max { v } else { *max };
                }
            }
            ranges
        };
        let pieces: Vec<_> = x.axis_chunks_iter(Axis(0), 4096).into_par_iter().map(ranges).collect();
        let range = |j: usize| {
            let both = |a: (f64, f64), piece: &Vec<(f64, f64)>| (a.0.min(piece[j].0), a.1.max(piece[j].1));
            let found = pieces.iter().fold((f64::INFINITY, f64::NEG_INFINITY), both);
            if found.0 > found.1 { (0.0, 0.0) } else { found }
        };
        Self::from_ranges(x.ncols(), range, |j, some| {
            some.extend(looked_at::<T>(n).map(|i| x[[i, j]].into()).filter(|v: &f64| !v.is_nan()));
            if some.is_empty() {
                some.push(range(j).0);
            }
        })
    }

    /// Returns the frame of D features from the ranges of the columns, and from the numbers that `some` appends to a
    /// vector: those of a column in the rows that [`looked_at`] returns.
    pub fn from_ranges(d: usize, range: impl Fn(usize) -> (f64, f64), some: impl Fn(usize, &mut Vec<f64>)) -> Self {
        let (mut shift, mut scale) = (Vec::with_capacity(d), Vec::with_capacity(d));
        let mut log2_scale = 0.0;
        let mut values = Vec::new();
        for j in 0..d {
            let (min, max) = range(j);
            values.clear();
            some(j, &mut values);
            let centre = centre(&mut values).clamp(min, max);
            let spread = (max / 2.0 - centre / 2.0).max(centre / 2.0 - min / 2.0);
            let exponent = if spread > 0.0 { (1.0 - binary_exponent(spread)).clamp(-1020.0, 1020.0) } else { 0.0 };
            shift.push(centre);
            scale.push(exponent.exp_2());
            log2_scale += exponent;
        }
        let inverse = scale.iter().map(|v| 1.0 / v).collect();
        Self { shift, scale, inverse, log2_scale }
    }

    /// Returns the frame of D features that changes no number, so no sample is rounded.
    pub fn identity(d: usize) -> Self {
        Self { shift: vec![0.0; d], scale: vec![1.0; d], inverse: vec![1.0; d], log2_scale: 0.0 }
    }

    /// Converts sums in this frame, with second moments `diag`, `tied` or `full`, to the units of the data and the
    /// shape of `covariance_type` (diagonals become `spherical`, and for one feature `full` or `tied`).
    pub fn in_data_units(&self, mut sums: CentredSums, covariance_type: CovarianceType) -> CentredSums {
        let unscale = |mut m: ArrayViewMut2<'_, f64>| {
            for (mut row, a) in m.outer_iter_mut().zip(&self.inverse) {
                for (v, b) in row.iter_mut().zip(&self.inverse) {
                    *v *= a * b;
                }
            }
        };
        for (j, inverse) in self.inverse.iter().enumerate() {
            sums.centres.column_mut(j).mapv_inplace(|c| self.shift[j] + c * inverse);
            sums.first.column_mut(j).mapv_inplace(|v| v * inverse);
        }
        match &mut sums.second {
            Covariances::Full(v) => for_each_matrix(v, |_, matrix| unscale(matrix)),
            Covariances::Tied(v) => unscale(v.view_mut()),
            Covariances::Diag(v) => {
                for (mut column, inverse) in v.columns_mut().into_iter().zip(&self.inverse) {
                    column *= inverse * inverse;
                }
            }
            Covariances::Spherical(_) => {}
        }
        if let Covariances::Diag(v) = sums.second {
            sums.second = match covariance_type {
                CovarianceType::Diag => Covariances::Diag(v),
                CovarianceType::Spherical => Covariances::Spherical(v.sum_axis(Axis(1))),
                CovarianceType::Full => Covariances::Full(v.insert_axis(Axis(2))),
                CovarianceType::Tied => Covariances::Tied(v.sum_axis(Axis(0)).insert_axis(Axis(1))),
            };
        }
        sums
    }

    /// Converts one value of column `j` to the frame.
    #[inline]
    pub fn apply(&self, j: usize, x: f64) -> f64 {
        (x - self.shift[j]) * self.scale[j]
    }
}

/// Returns the rows, of N evaluated in the type `T`, that give the median and the quartiles.
pub fn looked_at<T: Float>(n: usize) -> impl Iterator<Item = usize> {
    let count = n.min(T::LOOKED_AT);
    // Division by a number unknown to the compiler is slow.
    (0..count).map(move |i| if count == n { i } else { i * n / count })
}

/// Returns the median of some values, at least one, rounded to a quarter of their interquartile range. Subtracting a
/// shift of few digits from float32 samples is exact, or rounds digits that differ between samples; subtracting the
/// full median would round all samples of one binade alike. If half of the values are equal, the result is the exact
/// median, so a constant column becomes zero.
fn centre(values: &mut [f64]) -> f64 {
    let [first, middle, third] = [1, 2, 3].map(|quarter| (values.len() - 1) * quarter / 4);
    // The quartiles lie beside the median, or equal it.
    let (below, &mut median, above) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let quartile = |part: &mut [f64], i: usize| *part.select_nth_unstable_by(i, f64::total_cmp).1;
    let low = if first < middle { quartile(below, first) } else { median };
    let high = if third > middle { quartile(above, third - middle - 1) } else { median };
    let half_range = high / 2.0 - low / 2.0;
    if half_range == 0.0 {
        return median;
    }
    let grid = (binary_exponent(half_range) - 1.0).max(-1070.0).exp_2();
    (median / grid).round() * grid
}

/// Returns ⌊log₂ v⌋ of a positive normal number; for a denormal one the least exponent of a normal number.
fn binary_exponent(v: f64) -> f64 {
    ((v.to_bits() >> 52) as i32 - 1023).max(-1022).into()
}
