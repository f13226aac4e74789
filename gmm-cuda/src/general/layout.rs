//! Parameters and results of the kernels `density`, `posterior` and `accumulate`. Nothing here calls CUDA.
use crate::device::memory::sections;
use gmm_core::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_core::data::frame::{Float, Frame};
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::linalg::triangle;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::CentredSums;
use gmm_kernels::general::accumulate::{self, COMPONENT, COUNT, FEATURES, NUMBERS, OBSERVED, SIDE};
use gmm_kernels::general::density::{self, COMPONENTS, ROWS};
use ndarray::{Array1, Array2, Array3};
use std::ops::Range;

/// The places of a mixture's parameters in one array, section by section, each at a multiple of four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GeneralLayout {
    pub k: usize,
    pub d: usize,
    /// Whether A is a triangle.
    pub full: bool,
    /// Whether values are missing: then A is a diagonal, and its features have constants.
    pub gaps: bool,
    /// Whether deviations are differences from the means, which then replace b.
    pub around_means: bool,
    /// Numbers from one component's triangle to the next (0: all share one), or between groups of diagonals.
    pub matrix_stride: usize,
    /// Numbers of all matrices.
    matrices: usize,
}

impl GeneralLayout {
    pub fn new<T>(parameters: &DeviceParameters<T>) -> Self {
        let (k, d) = (parameters.n_components, parameters.n_features);
        let gaps = parameters.gaps.is_some();
        let layout = match parameters.matrices {
            Matrices::Diagonal => {
                let groups = k.div_ceil(COMPONENTS);
                Self { gaps, ..Self::of((k, d), false, density::numbers(gaps) * d * COMPONENTS, groups) }
            }
            Matrices::Each(_) => Self::of_triangles(k, d),
            Matrices::Shared(_) => Self::of((k, d), true, 0, 1),
        };
        Self { around_means: parameters.around_means, ..layout }
    }

    /// Returns the layout of K components of D features, each with a triangle.
    pub fn of_triangles(k: usize, d: usize) -> Self {
        Self::of((k, d), true, density::triangle(d), k)
    }

    /// Returns the layout of this many matrices, or groups of diagonals.
    fn of((k, d): (usize, usize), full: bool, matrix_stride: usize, matrices: usize) -> Self {
        let matrices = matrices * if full { density::triangle(d) } else { matrix_stride };
        Self { k, d, full, gaps: false, around_means: false, matrix_stride, matrices }
    }

    /// Returns the ranges of matrices, shifts, seeds, weights and centres.
    pub fn sections(&self) -> [Range<usize>; 5] {
        let Self { k, d, full, matrices, .. } = *self;
        let padded = k.next_multiple_of(COMPONENTS);
        sections([matrices, if full { k * d.next_multiple_of(ROWS) } else { 0 }, padded, padded, k * d])
    }

    pub fn len(&self) -> usize {
        let [.., centres] = self.sections();
        centres.end
    }

    /// Writes the parameters, with the centres (K, D) of the second moments: see [`means`].
    pub fn write<T: Float>(&self, parameters: &DeviceParameters<T>, centres: &[T], out: &mut [T]) {
        debug_assert_eq!(out.len(), self.len());
        let Self { k, d, .. } = *self;
        let [matrices, shifts, seeds, weights, of_centres] = self.sections();
        out.fill(T::from_f64(0.0));
        match &parameters.matrices {
            Matrices::Diagonal => {
                for (group, out) in out[matrices].chunks_exact_mut(self.matrix_stride).enumerate() {
                    for l in 0..COMPONENTS.min(k - group * COMPONENTS) {
                        let c = group * COMPONENTS + l;
                        for (j, numbers) in out.chunks_exact_mut(density::numbers(self.gaps) * COMPONENTS).enumerate() {
                            numbers[l] = parameters.scale[c * d + j];
                            numbers[COMPONENTS + l] = parameters.shift[c * d + j];
                            if let Some(gaps) = &parameters.gaps {
                                numbers[2 * COMPONENTS + l] = T::from_f64(-gaps.constants[c * d + j].into());
                            }
                        }
                    }
                }
            }
            Matrices::Each(a) | Matrices::Shared(a) => {
                let bands = out[matrices].chunks_exact_mut(density::triangle(d));
                for (a, out) in a.chunks_exact(triangle(d)).zip(bands) {
                    write_bands(a, d, out);
                }
                let padded = out[shifts].chunks_exact_mut(d.next_multiple_of(ROWS));
                for (to, b) in padded.zip(parameters.shift.chunks_exact(d)) {
                    to[..d].copy_from_slice(b);
                }
            }
        }
        out[seeds][..k].copy_from_slice(&parameters.seed);
        out[weights][..k].copy_from_slice(&parameters.weight);
        out[of_centres].copy_from_slice(centres);
    }

    /// Returns the sums in the data's units, from `factor` times [`accumulate::values`]; weight and log-likelihood are
    /// zero.
    pub fn centred_sums<T: Float>(
        &self,
        values: &[f64],
        factor: f64,
        mixture: &Mixture,
        centres: &[T],
        frame: &Frame,
    ) -> CentredSums {
        let Self { k, d, full, .. } = *self;
        let tiles = accumulate::tiles(d, full);
        debug_assert_eq!(values.len(), accumulate::values(k, d, full));
        let value = |unit: usize, at: usize| factor * values[unit * NUMBERS + at];
        // Σ r·uᵢ·uⱼ, i ≥ j, where u_D is one.
        let product = |c: usize, i: usize, j: usize| {
            let (row, column) = (i / FEATURES, j / FEATURES);
            value(c * tiles + triangle(row) + column, i % FEATURES * FEATURES + j % FEATURES)
        };
        // A number of a component in the tile of a feature.
        let diagonal =
            |c: usize, j: usize, number: usize| value(c / SIDE * tiles + j / SIDE, c % SIDE * COMPONENT + number);
        let count = |c| if full { product(c, d, d) } else { diagonal(c, 0, COUNT) };
        let first = |(c, j)| if full { product(c, d, j) } else { diagonal(c, j, j % SIDE) };
        let lower = |c, i: usize, j: usize| product(c, i.max(j), i.min(j));
        let second = match mixture.covariance_type() {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| lower(c, i, j))),
            CovarianceType::Tied => {
                Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| (0..k).map(|c| lower(c, i, j)).sum::<f64>()))
            }
            _ => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| diagonal(c, j, SIDE + j % SIDE))),
        };
        let centres = centres.iter().map(|&v| v.into()).collect();
        let sums = CentredSums {
            weight: 0.0,
            log_likelihood: 0.0,
            // The shape is the means'.
            centres: Array2::from_shape_vec((k, d), centres).unwrap_or_default(),
            counts: Array1::from_shape_fn(k, count),
            first: Array2::from_shape_fn((k, d), first),
            second,
        };
        let mut sums = frame.in_data_units(sums, mixture.covariance_type());
        if self.gaps {
            sums.add_missing(mixture, |c, j| diagonal(c, j, OBSERVED + j % SIDE));
        }
        sums
    }
}

/// Copies a lower triangle, stored row by row, to bands of rows.
fn write_bands<T: Float>(a: &[T], d: usize, out: &mut [T]) {
    let mut at = 0;
    for row in (0..d).step_by(ROWS) {
        for j in 0..density::columns(row, d) {
            for i in (row.max(j)..d).take_while(|i| *i < row + ROWS) {
                out[at + i - row] = a[triangle(i) + j];
            }
            at += ROWS;
        }
    }
}

/// Returns the rounded means in the frame (K, D), on which `accumulate` centres the samples. The mean of a component
/// without weight may be anywhere, so it gets the centre of the data.
pub(crate) fn means<T: Float>(mixture: &Mixture, parameters: &DeviceParameters<T>, frame: &Frame) -> Vec<T> {
    let means = mixture.means();
    let weight = |c: usize| -> f64 { parameters.weight[c].into() };
    let centre = |((c, j), mean): ((usize, usize), &f64)| if weight(c) > 0.0 { frame.apply(j, *mean) } else { 0.0 };
    means.indexed_iter().map(centre).map(T::from_f64).collect()
}
