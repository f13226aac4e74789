//! Parameters and results of the `moments` kernels. No call of CUDA in here: all of it runs and is tested on any machine.
use super::scattered::NEAR;
use crate::backends::device_parameters::{DeviceParameters, Matrices, triangle};
use crate::data::frame::Frame;
use crate::{CentredSums, CovarianceType, Covariances, Mixture, Result, Statistics};
use gmm_kernels::estep::fused as moments;
use ndarray::{Array1, Array2, Array3};

/// A mixture as z = A·x′ + b for each component, in the frame of a data set: log₂ of a component's density is a
/// constant minus |z|². A is diagonal for `diag` and `spherical`, else lower triangular.
#[derive(Debug, Clone)]
pub(crate) struct Whitened {
    covariance_type: CovarianceType,
    packed: DeviceParameters<f32>,
}

impl Whitened {
    /// Errors: [`Error::OutOfRange`](crate::Error::OutOfRange), as [`DeviceParameters::with_matrices`].
    pub fn new(mixture: &Mixture, frame: &Frame) -> Result<Self> {
        let packed = DeviceParameters::with_matrices(mixture, frame)?;
        Ok(Self { covariance_type: mixture.covariance_type(), packed })
    }

    /// A of a component, row by row ([`moments::matrix`]).
    fn a(&self, c: usize) -> &[f32] {
        let d = self.packed.n_features;
        match &self.packed.matrices {
            Matrices::Diagonal => &self.packed.scale[c * d..][..d],
            Matrices::Each(a) => &a[c * triangle(d)..][..triangle(d)],
            Matrices::Shared(a) => a,
        }
    }

    /// b of a component (D,).
    fn b(&self, c: usize) -> &[f32] {
        let d = self.packed.n_features;
        &self.packed.shift[c * d..][..d]
    }

    /// Whether A is a triangle.
    pub fn full(&self) -> bool {
        matches!(self.covariance_type, CovarianceType::Full | CovarianceType::Tied)
    }

    /// Whether moments may be taken of x itself: A is diagonal and no component is far from the data's centre.
    pub fn plain(&self) -> bool {
        !self.full() && self.packed.shift.iter().all(|m| f64::from(m.abs()) <= NEAR)
    }

    /// (K, D).
    pub fn dim(&self) -> (usize, usize) {
        (self.packed.n_components, self.packed.n_features)
    }

    /// Writes the parameters as the kernel reads them, ([`moments::numbers`], lanes).
    pub fn write(&self, lanes: usize, out: &mut [f32]) {
        let DeviceParameters { n_components: k, n_features: d, weight, seed, .. } = &self.packed;
        debug_assert!(*k <= lanes && out.len() == moments::numbers(*d, self.full()) * lanes);
        out.fill(0.0);
        for c in 0..*k {
            let own = self.a(c).iter().chain(self.b(c));
            // A component without weight has a seed far below all others; with weight zero any number does.
            let constants = if weight[c] > 0.0 { [weight[c], seed[c]] } else { [0.0, 0.0] };
            for (row, v) in out.chunks_exact_mut(lanes).zip(own.chain(&constants)) {
                row[c] = *v;
            }
        }
    }

    /// From the sums that the kernel gives, ([`moments::sums`], lanes) and the log₂-likelihood, over samples of total
    /// weight `weight`: the kernel's moments of z are brought back to x.
    pub fn statistics(
        &self,
        values: &[f64],
        lanes: usize,
        weight: f64,
        bias: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        let (k, d) = self.dim();
        let value = |row: usize, c: usize| values[row * lanes + c];
        let log2 = values[moments::sums(d, self.full()) * lanes] + weight * (self.packed.offset + bias);
        let mut centres = Array2::zeros((k, d));
        let mut first = Array2::zeros((k, d));
        let mut second = Array3::zeros((k, d, d));
        for c in 0..k {
            if self.plain() {
                for j in 0..d {
                    centres[[c, j]] = frame.shift[j];
                    first[[c, j]] = value(1 + j, c) * frame.inverse[j];
                    second[[c, j, j]] = value(1 + d + j, c) * frame.inverse[j] * frame.inverse[j];
                }
                continue;
            }
            let (a, b) = (self.a(c), self.b(c));
            // Element (i, j) of A, in the data's own units.
            let a = |i: usize, j: usize| match self.full() {
                true => f64::from(a[triangle(i) + j]) * frame.scale[j],
                false if i == j => f64::from(a[i]) * frame.scale[j],
                false => 0.0,
            };
            // Solves A·y = v by forward substitution, in place.
            let solve = |v: &mut dyn FnMut(usize) -> f64, y: &mut [f64]| {
                for i in 0..d {
                    let known: f64 = (0..i).map(|j| a(i, j) * y[j]).sum();
                    let pivot = a(i, i);
                    // A component without weight may have no scale; its sums are zero.
                    y[i] = if pivot == 0.0 { 0.0 } else { (v(i) - known) / pivot };
                }
            };
            let mut y = vec![0.0; d];
            // z = 0 at the centre, which is the mean up to rounding.
            solve(&mut |i| -f64::from(b[i]), &mut y);
            (0..d).for_each(|j| centres[[c, j]] = frame.shift[j] + y[j]);
            solve(&mut |i| value(1 + i, c), &mut y);
            (0..d).for_each(|j| first[[c, j]] = y[j]);
            if self.full() {
                // A⁻¹·S·A⁻ᵀ: solve for the columns of S, then for the rows of what that gives.
                let s = |i: usize, j: usize| value(1 + d + triangle(i.max(j)) + i.min(j), c);
                let mut half = Array2::zeros((d, d));
                for j in 0..d {
                    solve(&mut |i| s(i, j), &mut y);
                    (0..d).for_each(|i| half[[i, j]] = y[i]);
                }
                for i in 0..d {
                    solve(&mut |j| half[[i, j]], &mut y);
                    (0..d).for_each(|j| second[[c, i, j]] = y[j]);
                }
            } else {
                for i in 0..d {
                    let pivot = a(i, i);
                    second[[c, i, i]] = if pivot == 0.0 { 0.0 } else { value(1 + d + i, c) / (pivot * pivot) };
                }
            }
        }
        let variances = || Array2::from_shape_fn((k, d), |(c, j)| second[[c, j, j]]);
        let second = match self.covariance_type {
            CovarianceType::Diag => Covariances::Diag(variances()),
            CovarianceType::Spherical => Covariances::Spherical(variances().sum_axis(ndarray::Axis(1))),
            CovarianceType::Tied => Covariances::Tied(second.sum_axis(ndarray::Axis(0))),
            CovarianceType::Full => Covariances::Full(second),
        };
        Statistics::from_centred_sums(CentredSums {
            weight,
            log_likelihood: std::f64::consts::LN_2 * log2,
            centres,
            counts: Array1::from_shape_fn(k, |c| value(0, c)),
            first,
            second,
        })
    }
}
