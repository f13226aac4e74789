//! The methods of a backend for Markov chains beyond [`Evaluator`](crate::contract::evaluator::Evaluator).
use crate::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use crate::error::Result;
use crate::model::mixture::Mixture;

/// The methods of an evaluator for Markov chains: thousands of evaluations, each a function of its parameters alone.
///
/// [`Evaluator::sampling`](crate::contract::evaluator::Evaluator::sampling) returns it if an evaluator has any.
pub trait Sampling {
    /// Returns the number of [shares](crate::contract::evaluator::Evaluator::share), each in its own thread, that
    /// evaluate several chains fastest: more than one if a device evaluates while the host prepares the next batch.
    fn useful_shares(&mut self) -> usize {
        1
    }

    /// Makes the device `auto` choose between CPU and GPU before the first evaluation of each kind, for the many
    /// evaluations of a Markov chain, and keep that choice, so that equal mixtures get equal bits. Otherwise, `auto` may
    /// move evaluations to a GPU after some on the CPU. Other evaluators do nothing.
    fn settle(&mut self) {}

    /// Fixes the mixture that batches are compared with. A GPU evaluates similar mixtures faster by their differences
    /// from one of them: by default the first of the batch, on which the last digits of the other totals then depend.
    /// With `mixture` fixed, each total is a function of its parameter set alone, as a Markov chain needs. Batches are
    /// fast while their mixtures are near `mixture`. Evaluators that treat each mixture by itself do nothing.
    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        let _ = mixture;
    }

    /// Runs random-walk Metropolis on the device from `point`, with log density `log_density`, through all steps
    /// without waiting for the host in between. The log density of a proposal depends on the proposal alone: its bits
    /// do not depend on the chain's start or on the division of steps into calls.
    ///
    /// Returns false, without asking for `steps`, if the backend cannot; the caller then runs the chain. An evaluator
    /// that never can does not look at the target.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::error::Error::ShapeMismatch) if the parts of the target do not fit together or
    /// the data; errors of the backend.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        let _ = (target, point, log_density, steps);
        Ok(false)
    }
}
