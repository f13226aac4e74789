//! Parameters and results of the kernels `fused64`. Nothing here calls CUDA, so that it is tested
//! on any machine.
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::statistics::CentredSums;
use gmm_kernels::estep::fused64::{capacity, features, numbers, sums, values};
use ndarray::{Array1, Array2};

/// A mixture of diagonal covariances as zⱼ = sⱼ·x′ⱼ + mⱼ for each component, in the frame of a data
/// set.
#[derive(Debug, Clone)]
pub(crate) struct Fused64Layout {
    covariance_type: CovarianceType,
    parameters: DeviceParameters<f64>,
}

impl Fused64Layout {
    pub fn new(covariance_type: CovarianceType, parameters: DeviceParameters<f64>) -> Self {
        Self { covariance_type, parameters }
    }

    /// Components and features of the instance.
    pub fn instance(&self) -> (usize, usize) {
        (capacity(self.parameters.n_components), features(self.parameters.n_features))
    }

    /// Numbers of the parameters.
    pub fn len(&self) -> usize {
        let (capacity, features) = self.instance();
        numbers(features) * capacity
    }

    /// Writes the parameters as the kernel reads them, ([`numbers`], capacity).
    pub fn write(&self, out: &mut [f64]) {
        let DeviceParameters { n_components: k, n_features: d, scale, shift, weight, seed, .. } = &self.parameters;
        let (capacity, features) = self.instance();
        debug_assert_eq!(out.len(), self.len());
        out.fill(0.0);
        for c in 0..*k {
            for j in 0..*d {
                out[j * capacity + c] = scale[c * d + j];
                out[(features + j) * capacity + c] = shift[c * d + j];
            }
            out[2 * features * capacity + c] = weight[c];
            // The seed of a component without weight is far below all others; with weight zero its
            // value does not matter.
            out[(2 * features + 1) * capacity + c] = if weight[c] > 0.0 { seed[c] } else { 0.0 };
        }
    }

    /// The sums in the units of the data, from those that the kernel gives ([`values`]), over
    /// samples of total weight `weight`.
    pub fn centred_sums(&self, sums_of_all: &[f64], weight: f64, frame: &Frame) -> CentredSums {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let (capacity, features) = self.instance();
        debug_assert_eq!(sums_of_all.len(), values(features, capacity));
        let sum = |row: usize, c: usize| sums_of_all[row * capacity + c];
        let log2 = sums_of_all[sums(features) * capacity] + weight * self.parameters.offset;
        // In the units of the data. A component without weight may have no scale; its sums are
        // zero.
        let over = |v: f64, c: usize, j: usize, power: i32| {
            let scale = self.parameters.scale[c * d + j] * frame.scale[j];
            if scale == 0.0 { 0.0 } else { v / scale.powi(power) }
        };
        let of_each = |f: &dyn Fn(usize, usize) -> f64| Array2::from_shape_fn((k, d), |(c, j)| f(c, j));
        let second = of_each(&|c, j| over(sum(1 + features + j, c), c, j, 2));
        CentredSums {
            weight,
            log_likelihood: std::f64::consts::LN_2 * log2,
            // Where z = 0: the mean up to rounding.
            centres: of_each(&|c, j| frame.shift[j] + over(-self.parameters.shift[c * d + j], c, j, 1)),
            counts: Array1::from_shape_fn(k, |c| sum(0, c)),
            first: of_each(&|c, j| over(sum(1 + j, c), c, j, 1)),
            second: Covariances::of_diagonals(self.covariance_type, second),
        }
    }
}
