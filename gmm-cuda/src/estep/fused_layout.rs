//! Parameters and results of the kernels `fused` and `fused64`. Nothing here calls CUDA.
use super::sums::Sums;
use gmm_core::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_core::model::linalg::triangle;

use gmm_core::data::frame::{Float, Frame};
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::statistics::CentredSums;
use gmm_kernels::estep::fused::{self, matrix, numbers, sums};
use gmm_kernels::estep::fused64;
use ndarray::{Array1, Array2, Array3, Axis};
use std::sync::Arc;

/// A mixture as z = A·x′ + b for each component, in the frame of a data set: log₂ of a component's density is a
/// constant minus |z|². A is diagonal for `diag` and `spherical`, else lower triangular.
#[derive(Debug)]
pub(crate) struct FusedLayout<T> {
    covariance_type: CovarianceType,
    parameters: Arc<DeviceParameters<T>>,
    /// The features of the kernel's instance: D or more.
    features: usize,
}

/// A component's moments in the data's units: Σ r·(x − centre) and Σ r·(x − centre)(x − centre)ᵀ.
struct ComponentMoments {
    centre: Array1<f64>,
    first: Array1<f64>,
    second: Array2<f64>,
}

impl FusedLayout<f32> {
    pub fn new(covariance_type: CovarianceType, parameters: Arc<DeviceParameters<f32>>) -> Self {
        let features = parameters.n_features;
        Self { covariance_type, parameters, features }
    }

    /// Returns the parameters by value, if the kernel takes them so.
    pub fn by_value(&self) -> Option<[f32; fused::BY_VALUE]> {
        fused::by_value(self.features, self.full(), self.capacity()).then(|| {
            let mut values = [0.0; fused::BY_VALUE];
            self.write(&mut values[..self.len()]);
            values
        })
    }
}

impl FusedLayout<f64> {
    pub fn new(covariance_type: CovarianceType, parameters: DeviceParameters<f64>) -> Self {
        let features = fused64::features(parameters.n_features);
        Self { covariance_type, parameters: parameters.into(), features }
    }
}

impl<T: Float> FusedLayout<T> {
    /// Returns whether A is a triangle.
    fn full(&self) -> bool {
        self.parameters.has_triangles()
    }

    /// Returns the number of components that the kernel has room for.
    pub fn capacity(&self) -> usize {
        fused::capacity(self.parameters.n_components)
    }

    pub fn features(&self) -> usize {
        self.features
    }

    /// Returns A of a component, row by row ([`fused::matrix`]).
    fn a(&self, c: usize) -> &[T] {
        let d = self.parameters.n_features;
        match &self.parameters.matrices {
            Matrices::Diagonal => &self.parameters.scale[c * d..][..d],
            _ => self.parameters.triangle(c),
        }
    }

    /// Returns b of a component (D,).
    fn b(&self, c: usize) -> &[T] {
        let d = self.parameters.n_features;
        &self.parameters.shift[c * d..][..d]
    }

    pub fn len(&self) -> usize {
        numbers(self.features, self.full()) * self.capacity()
    }

    /// Writes the parameters for the kernel, ([`numbers`], capacity).
    pub fn write(&self, out: &mut [T]) {
        let DeviceParameters { n_components: k, weight, seed, .. } = &*self.parameters;
        let (capacity, zero) = (self.capacity(), T::from_f64(0.0));
        debug_assert!(*k <= capacity && out.len() == self.len());
        out.fill(zero);
        let of_b = matrix(self.features, self.full());
        for c in 0..*k {
            // The seed of a component without weight is far below all others, and its value does not matter.
            let constants = if weight[c] > zero { [weight[c], seed[c]] } else { [zero; 2] };
            for (row, numbers) in [(0, self.a(c)), (of_b, self.b(c)), (of_b + self.features, &constants)] {
                let rows = out[row * capacity..].chunks_exact_mut(capacity);
                rows.zip(numbers).for_each(|(row, v)| row[c] = *v);
            }
        }
    }

    /// Returns the sums in the data's units, from the kernel's, ([`sums`], capacity) and the log₂-likelihood.
    pub fn centred_sums(&self, sums_of: &Sums<'_>) -> CentredSums {
        let Sums { total_weight, exp2_bias, frame, .. } = *sums_of;
        let values = sums_of.weighted_values();
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let (capacity, features) = (self.capacity(), self.features);
        let log2 = values[sums(features, self.full()) * capacity];
        let (mut centres, mut first) = (Array2::zeros((k, d)), Array2::zeros((k, d)));
        let values = &values[..];
        let sum = |c: usize| move |row: usize| values[(1 + row) * capacity + c];
        let second = if self.full() {
            let mut second = Array3::zeros((k, d, d));
            for c in 0..k {
                let moments = self.of_triangle(c, sum(c), frame);
                centres.row_mut(c).assign(&moments.centre);
                first.row_mut(c).assign(&moments.first);
                second.index_axis_mut(Axis(0), c).assign(&moments.second);
            }
            Covariances::of_matrices(self.covariance_type, second)
        } else {
            let mut second = Array2::zeros((k, d));
            for c in 0..k {
                let sum = sum(c);
                for j in 0..d {
                    // The origin is where z = 0, the mean up to rounding.
                    let (a, b): (f64, f64) = (self.a(c)[j].into(), self.b(c)[j].into());
                    // In the data's units. A component without weight may have no scale; its sums are zero.
                    let scale = a * frame.scale[j];
                    let over = |v: f64, divisor: f64| if divisor == 0.0 { 0.0 } else { v / divisor };
                    centres[[c, j]] = frame.shift[j] + over(-b, scale);
                    first[[c, j]] = over(sum(j), scale);
                    second[[c, j]] = over(sum(features + j), scale * scale);
                }
            }
            Covariances::of_diagonals(self.covariance_type, second)
        };
        CentredSums {
            weight: total_weight,
            log_likelihood: sums_of.log_likelihood(log2, self.parameters.offset + exp2_bias),
            centres,
            counts: Array1::from_shape_fn(k, |c| values[c]),
            first,
            second,
        }
    }

    /// Returns moments in the data's units from those of z = A·x′ + b with a lower triangle A: with S = Σ r·z·zᵀ the
    /// second moments of x are A⁻¹·S·A⁻ᵀ.
    fn of_triangle(&self, c: usize, sum: impl Fn(usize) -> f64, frame: &Frame) -> ComponentMoments {
        let d = self.parameters.n_features;
        let (a, b) = (self.a(c), self.b(c));
        // A in the data's units, row by row.
        let a: Vec<f64> = (0..d)
            .flat_map(|i| {
                a[triangle(i)..=triangle(i) + i].iter().zip(&frame.scale).map(|(a, scale)| (*a).into() * scale)
            })
            .collect();
        let centre = solve(&a, d, b.iter().map(|b| -(*b).into()).collect());
        let first = solve(&a, d, (0..d).map(&sum).collect());
        let pairs = || (0..d).flat_map(|i| (0..d).map(move |j| (i, j)));
        let half = solve(&a, d, pairs().map(|(i, j)| sum(d + triangle(i.max(j)) + i.min(j))).collect());
        let second = solve(&a, d, pairs().map(|(i, j)| half[j * d + i]).collect());
        ComponentMoments {
            centre: Array1::from_shape_fn(d, |j| frame.shift[j] + centre[j]),
            first: Array1::from_vec(first),
            second: Array2::from_shape_fn((d, d), |(i, j)| second[i * d + j]),
        }
    }
}

/// Returns A⁻¹·V by forward substitution. `a`: the lower triangle of A row by row; `v`: V (D, any), row-major.
fn solve(a: &[f64], d: usize, mut v: Vec<f64>) -> Vec<f64> {
    let width = v.len() / d;
    for i in 0..d {
        let a = &a[triangle(i)..=triangle(i) + i];
        let (known, rest) = v.split_at_mut(i * width);
        let row = &mut rest[..width];
        for (a, known) in a.iter().zip(known.chunks_exact(width)) {
            row.iter_mut().zip(known).for_each(|(v, known)| *v -= a * known);
        }
        // A component without weight may have no scale; its sums are zero.
        row.iter_mut().for_each(|v| *v = if a[i] == 0.0 { 0.0 } else { *v / a[i] });
    }
    v
}
