//! The choice of the number of states.
use crate::error::Result;
use crate::fit::{Fitted, Options};
use crate::model::HiddenMarkov;
use crate::sequences::Sequences;
use gmm_core::reproducible::Functions;
use gmm_host::CovarianceModel;

/// A fit with one number of states.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The fit.
    pub fit: Fitted,
    /// The total log-likelihood of the model.
    pub log_likelihood: f64,
    /// The Bayesian information criterion, −2·log-likelihood + parameters·log N (Schwarz 1978).
    pub bic: f64,
}

/// Fits a model for each number of states, of M components each, and returns them in order. The least BIC is best.
///
/// # Errors
/// As [`HiddenMarkov::start_mixtures`] and [`Options::fit`].
pub fn select(
    n_states: &[usize],
    n_mix: usize,
    model: CovarianceModel,
    options: &Options,
    sequences: &Sequences<'_>,
    seed: u64,
) -> Result<Vec<Candidate>> {
    let candidate = |k: &usize| {
        let start = HiddenMarkov::start_mixtures(*k, n_mix, model, sequences, seed)?;
        let fit = options.fit(start, sequences)?;
        let scores = fit.model.score(sequences)?;
        let weighted = |(s, score): (usize, &f64)| sequences.weight(s) * score;
        let log_likelihood = scores.iter().enumerate().map(weighted).sum();
        let rows: f64 = (0..sequences.len()).map(|s| sequences.weight(s) * sequences.rows(s).len() as f64).sum();
        let bic = -2.0 * log_likelihood + fit.model.n_parameters() as f64 * rows.log_e();
        Ok(Candidate { fit, log_likelihood, bic })
    };
    n_states.iter().map(candidate).collect()
}
