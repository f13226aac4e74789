//! Fitting to a stream of chunks.
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::model::mixture::Mixture;
use crate::statistics::{Freeze, Statistics};

/// Stepwise EM (Cappé and Moulines 2009): the statistics per sample are a moving average over the
/// chunks seen, s ← (1 − ηₜ)·s + ηₜ·sₜ with ηₜ = (t + 1)^−α for chunk t = 0, 1, …, and each chunk
/// is followed by an M-step.
///
/// Chunks may be of any size, but should be random samples of the same data (shuffle it first).
#[derive(Debug, Clone)]
pub struct StepwiseEm {
    mixture: Mixture,
    average: Option<Statistics>,
    steps: u64,
    decay: f64,
    reg_covar: f64,
    freeze: Freeze,
}

impl StepwiseEm {
    /// The default of α.
    pub const DEFAULT_DECAY: f64 = 0.7;

    /// Begins at a mixture, for example one that was fitted to the first chunk. `decay` is α, with
    /// ½ < α ≤ 1: at ½ the average would never converge; at 1 all chunks count alike, so that early
    /// ones, seen with poor parameters, are never forgotten.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(start: Mixture, decay: f64, reg_covar: f64, freeze: Freeze) -> Result<Self> {
        let bad = |name, value: f64, remedy| Err(Error::BadParameter { name, value: value.to_string(), remedy });
        if !(decay > 0.5 && decay <= 1.0) {
            return bad("decay", decay, "it must be above 0.5 and at most 1");
        }
        if !(reg_covar >= 0.0 && reg_covar.is_finite()) {
            return bad("reg_covar", reg_covar, "it must be zero or positive, and finite");
        }
        Ok(Self { mixture: start, average: None, steps: 0, decay, reg_covar, freeze })
    }

    /// Learns from a chunk, and gives the chunk's mean log-likelihood under the parameters before
    /// that. An error leaves everything unchanged.
    ///
    /// # Errors
    /// What the backend reports; see also [`Statistics::update`].
    pub fn partial_fit(&mut self, chunk: &mut dyn Evaluator) -> Result<f64> {
        let statistics = chunk.statistics(&self.mixture)?;
        let lower_bound = statistics.lower_bound();
        let eta = ((self.steps + 1) as f64).powf(-self.decay);
        let per_sample = 1.0 / statistics.weight();
        let mut average = statistics.scaled(eta * per_sample);
        if let Some(previous) = &self.average {
            average.merge(&previous.clone().scaled(1.0 - eta))?;
        }
        self.mixture = average.update(&self.mixture, self.reg_covar, self.freeze)?.mixture;
        self.average = Some(average);
        self.steps += 1;
        Ok(lower_bound)
    }

    /// The parameters after the chunks so far.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Number of chunks so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}
