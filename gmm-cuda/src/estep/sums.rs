//! The sums of an E-step's kernels, for all families.
use gmm_core::data::frame::Frame;
use std::f64::consts::LN_2;

/// The sums of an E-step over all samples, as its kernels give them.
#[derive(Debug, Clone, Copy)]
pub struct Sums<'a> {
    pub values: &'a [f64],
    /// The sum of the samples' log₂-likelihoods, if it is not among the values.
    pub log2: f64,
    /// The divisor of the samples' weights for the kernels.
    pub weight_scale: f64,
    pub total_weight: f64,
    pub exp2_bias: f64,
    pub frame: &'a Frame,
}

impl Sums<'_> {
    /// Returns the log-likelihood, from the kernels' part, to base 2, and each sample's `offset`.
    pub fn log_likelihood(&self, log2: f64, offset: f64) -> f64 {
        LN_2 * (log2 + self.total_weight * offset)
    }

    /// Returns the values for the samples' own weights.
    pub fn weighted_values(&self) -> Vec<f64> {
        self.values.iter().map(|value| value * self.weight_scale).collect()
    }
}
