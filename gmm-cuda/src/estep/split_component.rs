//! A component of a mixture in pairs of float16 numbers.
use super::centres::{NEAR, larger};
use super::products_shapes::products;
use crate::likelihood::layout::DEAD_SEED;
use gmm_core::backends::device_parameters::{
    ColumnConstants, DeviceParameters, first_row, for_each_column, log2_near_one, padded,
};
use gmm_core::data::frame::Frame;
use gmm_core::model::linalg::{LANES, map_rows, row_major, sum_of, triangle, vectorised};
use gmm_core::model::mixture::Mixture;
use gmm_kernels::estep::products_mma::ONE;
use rayon::prelude::*;
use std::convert::identity;
use std::f64::consts::LOG2_E;
use std::mem::take;
use std::ops::Range;

/// The largest expected error of an exponent (root mean square, in units of log₂) for these kernels. Rounding errors
/// differ between samples, so sums over samples are far nearer to the truth.
const EXPONENT_ERROR: f64 = 2e-4;

/// The largest error of an exponent (root mean square, in units of log₂) for a log-likelihood alone, whose differences
/// a sampler needs: the expected sum of the roundings of 10⁶ samples is then at most 0.02.
pub(super) const TOTAL_ERROR: f64 = 3e-5;

/// A component of a mixture for these kernels.
///
/// They hold its numbers in pairs of float16 numbers, coarser than float32. So its other numbers make the density of
/// the held pairs normalised, with the component's mean. Rounding is the same for all samples, but then costs the total
/// of samples from the component nothing in the first order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component {
    /// The number added to its exponents, and the factor of 2 to their power.
    pub(super) seed: f32,
    pub(super) weight: f32,
    /// log₂ of the factor by which `weight` is too small.
    pub(super) missing: f64,
    /// The largest of its coefficients, or of its triangle's numbers.
    pub(super) largest: f32,
    /// The expected error of its exponent; see [`TensorCoresLayout::error`].
    pub(super) error: f64,
}

impl Component {
    /// A component without weight.
    pub(super) const DEAD: Self = Self { seed: DEAD_SEED, weight: 0.0, missing: 0.0, largest: 0.0, error: 0.0 };

    /// Makes a component whose weight is to be multiplied by 2^`more`, which is nearly one.
    pub(super) fn new(seed: f32, weight: f32, more: f64, largest: f32, error: f64) -> Self {
        let exact = f64::from(weight) * more.exp2();
        let weight = exact as f32;
        Self { seed, weight, missing: log2_near_one(exact / f64::from(weight)), largest, error }
    }

    /// Makes a component with `constant`, the log₂ of a factor of its likelihood beside `weight`.
    pub(super) fn with_constant(constant: f64, weight: f32, largest: f32, error: f64) -> Self {
        let seed = constant as f32;
        Self::new(seed, weight, constant - f64::from(seed), largest, error)
    }

    /// Returns its expected error at this distance from the data's centre; infinite if these kernels must not be used.
    pub(super) fn error_at(&self, distance: f64) -> f64 {
        if distance <= NEAR && self.error <= EXPONENT_ERROR { self.error } else { f64::INFINITY }
    }

    /// Returns the expected error of an exponent, from its terms' sum of squares and its largest coefficient.
    pub(super) fn error(of_terms: f64, largest: f32, products: usize) -> f64 {
        2f64.powi(-22) * of_terms.sqrt() + 2f64.powi(-31) * f64::from(largest) * (products as f64).sqrt()
    }

    /// Writes the coefficients of a component with a diagonal covariance.
    pub(super) fn diagonal(parameters: &DeviceParameters<f32>, c: usize, row: &mut [f32]) -> Self {
        let d = parameters.n_features;
        let (scale, shift) = (&parameters.scale[c * d..][..d], &parameters.shift[c * d..][..d]);
        // In units of t the variance is log₂e / 2, and the mean −m.
        let unit = LOG2_E / 2.0;
        let (mut largest, constants, mut of_terms) = vectorised(
            #[inline(always)]
            || {
                let mut constants = [0.0; LANES];
                let mut next = identity(
                    #[inline(always)]
                    |s: &[f32; LANES], m: &[f32; LANES], to: &mut [f32]| {
                        let Features { first, square, constant } = Features::new(s, m);
                        let coefficients = first.into_iter().zip(square);
                        to.chunks_exact_mut(2).zip(coefficients).for_each(|(to, (first, square))| {
                            (to[0], to[1]) = (first, square);
                        });
                        constants.iter_mut().zip(constant).for_each(|(sum, constant)| *sum += constant);
                    },
                );
                let ((scales, last_scales), (shifts, last_shifts)) = (scale.as_chunks(), shift.as_chunks());
                let (whole, rest) = row.split_at_mut(2 * LANES * scales.len());
                for ((s, m), to) in scales.iter().zip(shifts).zip(whole.chunks_exact_mut(2 * LANES)) {
                    next(s, m, to);
                }
                // Nothing comes from scales of zero.
                let padded = |last: &[f32]| std::array::from_fn(|lane| last.get(lane).copied().unwrap_or(0.0));
                if !rest.is_empty() {
                    next(&padded(last_scales), &padded(last_shifts), rest);
                }
                let square = |m: f32| f64::from(m) * f64::from(m);
                let of_terms = sum_of([shift], |[m]| (unit + square(m)) * (unit + 5.0 * square(m)));
                (largest(row), constants.iter().sum::<f64>(), of_terms)
            },
        );
        let mut constant = f64::from(parameters.seed[c]) + constants;
        if let Some(gaps) = &parameters.gaps {
            // The features' constants are coefficients of their own.
            constant = parameters.seed[c].into();
            for v in of_observed(parameters, gaps, c) {
                largest = larger(largest, v.abs());
                of_terms += f64::from(v) * f64::from(v);
            }
        }
        Self::with_constant(constant, parameters.weight[c], largest, Self::error(of_terms, largest, 2 * d))
    }

    /// Writes the coefficients of a component with a triangle.
    pub(super) fn products(
        mixture: &Mixture,
        parameters: &DeviceParameters<f32>,
        frame: &Frame,
        c: usize,
        coefficients: &Coefficients,
        row: &mut [f32],
    ) -> Self {
        let d = parameters.n_features;
        let sizes: Vec<f64> = (0..d).map(|j| mean_and_size(mixture, frame, c, j).1).collect();
        let (of_terms, largest) = vectorised(
            #[inline(always)]
            || {
                let (mut of_terms, mut from, mut to) = (0.0, &coefficients.second[..], &mut row[..]);
                for (i, first) in coefficients.first.iter().enumerate() {
                    // In the order of `products_shapes::features`.
                    let ([of_feature, of_pairs @ ..], rest) = take(&mut to).split_at_mut(i + 2) else { break };
                    let (pairs, others) = from.split_at(i + 1);
                    *of_feature = *first as f32 / ONE;
                    of_pairs.iter_mut().zip(pairs).for_each(|(to, v)| *to = *v as f32);
                    let of_row = sum_of([pairs, &sizes[..=i]], |[v, size]| v * v * size);
                    of_terms += sizes[i] * (of_row + first * first);
                    (from, to) = (others, rest);
                }
                (of_terms, largest(row))
            },
        );
        let error = Self::error(of_terms, largest, products(d, true));
        Self::with_constant(coefficients.constant, parameters.weight[c], largest, error)
    }

    /// Writes the shifts of a component's triangle, b of A·x + b with the held A. Also returns the component's distance
    /// from the data's centre, as [`distance`] does.
    pub(super) fn triangle(
        mixture: &Mixture,
        parameters: &DeviceParameters<f32>,
        frame: &Frame,
        c: usize,
        shift: &mut [f32],
    ) -> (Self, f64) {
        if mixture.is_noise(c) {
            shift.fill(0.0);
            return (Self::new(parameters.seed[c], parameters.weight[c], 0.0, 0.0, 0.0), 0.0);
        }
        let u = mixture.factor_of(c).map(row_major).unwrap_or_default();
        // Sums for each row, so that none waits for another.
        let rows = padded(parameters.n_features);
        let mut of_rows = vec![0.0; 3 * rows];
        let (shifts, rest) = of_rows.split_at_mut(rows);
        let (terms, distances) = rest.split_at_mut(rows);
        let mut largest_of_rows = vec![0.0f32; rows];
        let mut determinant = 0.0;
        vectorised(
            #[inline(always)]
            || {
                for_each_column(
                    &u,
                    frame,
                    #[inline(always)]
                    |j, column: &[f32]| {
                        let first = first_row(j);
                        let (mean, size) = mean_and_size(mixture, frame, c, j);
                        let rows = shifts[first..].iter_mut().zip(&mut terms[first..]).zip(&mut distances[first..]);
                        for ((((shift, terms), distance), largest), &a) in
                            rows.zip(&mut largest_of_rows[first..]).zip(column)
                        {
                            let held = f64::from(pair_of_halves(a));
                            *shift -= held * mean;
                            *terms += held * held * size;
                            *distance += (f64::from(a) * mean).abs();
                            *largest = larger(a.abs(), *largest);
                        }
                        let pivot = column[j - first];
                        determinant += log2_near_one(f64::from(pair_of_halves(pivot)) / f64::from(pivot));
                    },
                );
            },
        );
        shift.iter_mut().zip(shifts).for_each(|(to, b)| *to = *b as f32);
        let error = 2f64.powi(-19) * terms.iter().sum::<f64>().sqrt();
        let largest = largest_of_rows.into_iter().fold(0.0, larger);
        let distance = distances.iter().copied().fold(0.0, larger);
        (Self::new(parameters.seed[c], parameters.weight[c], determinant, largest, error), distance)
    }
}

/// N features of a component with a diagonal covariance, as the kernels hold them.
struct Features<const N: usize> {
    /// The coefficients of the features divided by [`ONE`].
    first: [f32; N],
    /// The coefficients of the features' squares.
    square: [f32; N],
    /// The rests of −(s·x + m)², and of log₂ of the scales.
    constant: [f64; N],
}

impl<const N: usize> Features<N> {
    #[inline(always)]
    fn new(scale: &[f32; N], shift: &[f32; N]) -> Self {
        let (mut first, mut squares, mut constant) = ([0.0; N], [0.0; N], [0.0; N]);
        for i in 0..N {
            let (s, m) = (f64::from(scale[i]), f64::from(shift[i]));
            let square = s * s;
            let held = f64::from(pair_of_halves(square as f32));
            // Noise has the scale zero. So small a scale has no square in float32.
            let reciprocal = if square > 0.0 { 1.0 / square } else { 0.0 };
            let more = if held > 0.0 { held * reciprocal - 1.0 } else { 0.0 };
            let of_first = pair_of_halves((-2.0 * s * m * (1.0 + more)) as f32 / ONE);
            let of_mean = f64::from(of_first) * f64::from(ONE);
            // 1 / (1 + more), without a division.
            let inverse = reciprocal * (1.0 - more + more * more);
            constant[i] = log2_near_one(1.0 + more) / 2.0 - of_mean * of_mean * inverse / 4.0;
            (first[i], squares[i]) = (of_first, -held as f32);
        }
        Self { first, square: squares, constant }
    }
}

/// Returns a component's coefficients for observed values (D,).
pub(super) fn of_observed<'a>(
    parameters: &'a DeviceParameters<f32>,
    gaps: &'a ColumnConstants<f32>,
    c: usize,
) -> impl Iterator<Item = f32> + 'a {
    let d = parameters.n_features;
    let (scale, shift) = (&parameters.scale[c * d..][..d], &parameters.shift[c * d..][..d]);
    let columns = gaps.constants[c * d..][..d].iter().zip(scale.iter().zip(shift));
    columns.map(|(constant, (s, m))| (f64::from(*constant) + Features::new(&[*s], &[*m]).constant[0]) as f32)
}

/// Returns the power of two that scales the largest coefficient to between 2^14 and 2^15; some power if all are zero.
pub(super) fn power(largest: f32) -> f32 {
    const LEAST: f32 = 1.0 / (1u128 << 100) as f32;
    (14.0 - larger(largest, LEAST).log2().floor()).exp2()
}

#[inline(always)]
pub(super) fn largest(numbers: &[f32]) -> f32 {
    largest_sizes(numbers).into_iter().fold(0.0, larger)
}

/// Returns the largest sizes of every sixteenth number, side by side, because a single maximum waits for comparisons.
#[inline(always)]
pub(super) fn largest_sizes(numbers: &[f32]) -> [f32; 16] {
    let (sixteens, rest) = numbers.as_chunks::<16>();
    let mut sizes = [0.0f32; 16];
    for numbers in sixteens {
        sizes.iter_mut().zip(numbers).for_each(|(size, v)| *size = larger(v.abs(), *size));
    }
    sizes.iter_mut().zip(rest).for_each(|(size, v)| *size = larger(v.abs(), *size));
    sizes
}

/// Returns v as two float16 numbers hold it, eleven digits in each, if it is at least 2^-17 of the largest beside it.
#[inline(always)]
pub(super) fn pair_of_halves(v: f32) -> f32 {
    // The product pushes the other digits out (Veltkamp's splitting); in float64 it does not overflow.
    let eleven_digits = |v: f64| {
        let product = v * ((1u64 << 42) + 1) as f64;
        product - (product - v)
    };
    let high = eleven_digits(v.into());
    (high + eleven_digits(f64::from(v) - high)) as f32
}

/// Returns the mean of feature `j`, and of its square, in the frame, over the samples that a component explains.
pub(super) fn mean_and_size(mixture: &Mixture, frame: &Frame, c: usize, j: usize) -> (f64, f64) {
    let mean = frame.apply(j, mixture.means()[[c, j]]);
    (mean, mixture.variance(c, j) * frame.scale[j] * frame.scale[j] + mean * mean)
}

/// The coefficients of a component with a triangle: its exponent is their sum times products, and a constant.
pub(super) struct Coefficients {
    /// The products of two features, in a triangle row by row.
    pub(super) second: Vec<f64>,
    pub(super) first: Vec<f64>,
    pub(super) constant: f64,
}

impl Coefficients {
    /// Returns the result of `f` for each component, its coefficients, and its row of `rows` (K, M), in order.
    pub(super) fn map<R: Send>(
        parameters: &DeviceParameters<f32>,
        rows: &mut [f32],
        at_once: usize,
        f: impl Fn(usize, Self, &mut [f32]) -> R + Send + Sync,
    ) -> Vec<R> {
        let m = rows.len() / parameters.n_components;
        let groups = rows.par_chunks_mut(LANES * m).enumerate();
        let of_groups = map_rows(groups, at_once.div_ceil(LANES), |(group, rows)| {
            let components = group * LANES..group * LANES + rows.len() / m;
            let coefficients = Self::side_by_side(parameters, components.clone());
            let of_each = components.zip(coefficients).zip(rows.chunks_exact_mut(m));
            of_each.map(|((c, coefficients), row)| f(c, coefficients, row)).collect::<Vec<_>>()
        });
        of_groups.into_iter().flatten().collect()
    }

    /// Returns those of up to [`LANES`] components, from t = A·x + b and the exponent's seed − |t|².
    fn side_by_side(parameters: &DeviceParameters<f32>, components: Range<usize>) -> Vec<Self> {
        let d = parameters.n_features;
        // A and b of each component in its lane.
        let mut matrices = vec![[0.0; LANES]; triangle(d)];
        let mut shifts = vec![[0.0; LANES]; d];
        for (lane, c) in components.clone().enumerate() {
            matrices.iter_mut().zip(parameters.triangle(c)).for_each(|(to, a)| to[lane] = f64::from(*a));
            shifts.iter_mut().zip(&parameters.shift[c * d..][..d]).for_each(|(to, b)| to[lane] = f64::from(*b));
        }
        let (mut second, mut first) = (vec![[0.0; LANES]; triangle(d)], vec![[0.0; LANES]; d]);
        vectorised(
            #[inline(always)]
            || {
                for i in 0..d {
                    let rows = || (i..d).map(|row| &matrices[triangle(row)..][..=row]);
                    for j in 0..=i {
                        second[triangle(i) + j] = twice_products(rows().map(|row| (&row[i], &row[j])));
                    }
                    first[i] = twice_products(rows().zip(&shifts[i..]).map(|(row, b)| (&row[i], b)));
                }
            },
        );
        let of_component = |(lane, c): (usize, usize)| {
            let of_lane = |numbers: &[[f64; LANES]]| numbers.iter().map(|v| v[lane]).collect::<Vec<_>>();
            let mut second = of_lane(&second);
            (0..d).for_each(|i| second[triangle(i) + i] /= 2.0);
            let constant = shifts.iter().fold(f64::from(parameters.seed[c]), |rest, b| rest - b[lane] * b[lane]);
            Self { second, first: of_lane(&first), constant }
        };
        components.enumerate().map(of_component).collect()
    }
}

/// Returns −2·Σ a·b in each lane.
#[inline(always)]
fn twice_products<'a>(pairs: impl Iterator<Item = (&'a [f64; LANES], &'a [f64; LANES])>) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for (a, b) in pairs {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum -= a * b);
    }
    sums.map(|sum| 2.0 * sum)
}
