//! The E-step of a hidden Markov model, whose states emit from the components of a mixture.
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

/// A hidden Markov model of K states, and the sequences into which the samples are divided, one after another.
#[derive(Debug, Clone, Copy)]
pub struct MarkovChain<'a> {
    /// The emissions, M neighbouring components for each state (K·M). Only the ratios of weights within a state count.
    pub emissions: &'a Mixture,
    /// Added to the log densities of the states (K,); none: (0,).
    pub offsets: &'a [f64],
    /// π, the probabilities of the states in a sequence's first row (K,). They, and those of each row of transitions, may
    /// sum to less than one.
    pub start: ArrayView1<'a, f64>,
    /// aᵢⱼ, the probability that state j follows state i (K, K).
    pub transitions: ArrayView2<'a, f64>,
    /// The rows of each sequence (S,), each at least one; their sum is N.
    pub lengths: &'a [usize],
    /// The weight of each sequence (S,); `None`: all weights are one.
    pub weights: Option<&'a [f64]>,
}

/// The sums of an E-step.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkovSums {
    /// log p of each sequence (S,).
    pub log_likelihoods: Vec<f64>,
    /// The expected number of sequences that start in each state (K,).
    pub start: Array1<f64>,
    /// The expected number of transitions between states (K, K).
    pub transitions: Array2<f64>,
    /// The statistics of the emissions. Their log-likelihood is Σ w·log p(sequence).
    pub statistics: Statistics,
}

/// The operation of an evaluator for hidden Markov models.
///
/// [`Evaluator::markov`](crate::contract::evaluator::Evaluator::markov) returns it if an evaluator has it.
pub trait Markov {
    /// Computes an E-step. The samples' own weights do not count.
    ///
    /// Returns `None` where the caller must compute: for shapes that the backend does not take, and if a probability
    /// underflows in a way that could matter, as in a sequence of probability zero.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`](crate::error::Error::ShapeMismatch) if the parts do not fit together or the data;
    /// errors of the backend.
    fn expectations(&mut self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>>;
}
