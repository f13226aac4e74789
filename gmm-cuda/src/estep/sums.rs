//! What an E-step's kernels give, for all families.
use gmm_core::data::frame::Frame;
use std::f64::consts::LN_2;

/// The sums of an E-step over all samples, as its kernels give them.
#[derive(Debug, Clone, Copy)]
pub struct Sums<'a> {
    pub values: &'a [f64],
    /// The sum of the samples' log₂-likelihoods, where it is not among the values.
    pub log2: f64,
    /// What the samples' weights were divided by for the kernels.
    pub weight_scale: f64,
    pub total_weight: f64,
    /// The bias of the device's 2^x.
    pub exp2_bias: f64,
    pub frame: &'a Frame,
}

impl Sums<'_> {
    /// The log-likelihood, from its part that the kernels give, to base 2, and what each sample's
    /// has beside that.
    pub fn log_likelihood(&self, log2: f64, offset: f64) -> f64 {
        LN_2 * (log2 + self.total_weight * offset)
    }

    /// The values for the samples' own weights.
    pub fn weighted_values(&self) -> Vec<f64> {
        self.values.iter().map(|value| value * self.weight_scale).collect()
    }
}
