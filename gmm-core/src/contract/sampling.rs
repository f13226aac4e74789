//! What Markov chains ask of a backend beyond [`Evaluator`](crate::contract::evaluator::Evaluator).
use crate::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use crate::error::Result;
use crate::model::mixture::Mixture;

/// What only the samplers of Markov chains ask of an evaluator: many thousands of evaluations, of
/// which each has to be a function of its parameters alone.
///
/// [`Evaluator::sampling`](crate::contract::evaluator::Evaluator::sampling) gives it where an evaluator has some of these methods.
pub trait Sampling {
    /// With how many [shares](crate::contract::evaluator::Evaluator::share), each in a thread of its own, the batches of
    /// several Markov chains are evaluated in the least time: more than one where a device
    /// evaluates, and the host can prepare the next batch meanwhile.
    fn useful_shares(&mut self) -> usize {
        1
    }

    /// Tells the device `auto` to choose, from now on, between CPU and GPU before the first
    /// evaluation of each kind, for the many thousands of evaluations of a Markov chain, and to
    /// keep to that choice, so that equal mixtures get equal bits. Otherwise `auto` may move
    /// evaluations to a GPU after some have been made on the CPU. Other evaluators never move them,
    /// and do nothing here.
    fn settle(&mut self) {}

    /// Fixes the mixture to which batches are compared. A GPU evaluates mixtures that are near to
    /// each other faster, by their differences from one of them: the first of each batch, on which
    /// the last digits of the others' totals then depend. After this call it is `mixture`, whatever
    /// its total, so that a total in a batch is a function of its parameter set alone, which a
    /// Markov chain needs. Batches are fast while their mixtures are near to it. Evaluators that
    /// treat each mixture by itself do nothing here.
    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        let _ = mixture;
    }

    /// Runs random-walk Metropolis on the device: from `point`, whose log density is `log_density`,
    /// through all of the steps, without waiting for the host between them. The log density of a
    /// proposal is a function of the proposal alone: it has the same bits wherever the chain began
    /// and however its steps are divided into calls.
    ///
    /// Returns false, without asking for any of the `steps`, if the backend cannot do that; the
    /// caller then runs the chain. An evaluator that never can does not look at the target.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::error::Error::ShapeMismatch) where the parts of the target do not
    /// fit together, or not to the data; what the backend itself reports.
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
