//! The one interface of all backends.
use crate::{Error, Mixture, Result};
use ndarray::Array1;

/// Where and with what an evaluator computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The device, for example `cpu (2 threads, avx512)` or `cuda:0 NVIDIA H200`.
    pub device: String,
    /// The kernel (code variant) that the last evaluation used.
    pub kernel: String,
}

/// A data set of N samples and D features that is resident in a backend and is evaluated for many parameter sets.
///
/// All log-likelihoods are natural logarithms. The same evaluator gives the same bits for the same mixture.
/// Every method fails with [`Error::ShapeMismatch`] when the mixture's D is not the data's.
pub trait Evaluator: Send {
    /// N, the number of samples.
    fn n_samples(&self) -> usize;

    /// D, the number of features.
    fn n_features(&self) -> usize;

    /// The device and the kernel in use.
    fn describe(&self) -> Description;

    /// The total log-likelihood Σᵢ log Σₖ πₖ N(xᵢ; μₖ, Σₖ).
    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64>;

    /// The total log-likelihood of each of several parameter sets; they may share each read of the data.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        mixtures.iter().map(|m| self.log_likelihood(m)).collect()
    }

    /// The log-likelihood of each sample (N,).
    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>>;
}

/// The check that every backend makes first.
pub(crate) fn check_features(mixture: &Mixture, n_features: usize) -> Result<()> {
    if mixture.n_features() == n_features {
        return Ok(());
    }
    let k = mixture.n_components();
    Err(Error::ShapeMismatch {
        what: "the mixture's means (against the data's columns)",
        expected: vec![k, n_features],
        got: vec![k, mixture.n_features()],
    })
}
