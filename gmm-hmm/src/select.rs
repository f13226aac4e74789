//! The choice of the number of states.
use crate::error::{Error, Result};
use crate::fit::{Fitted, Options};
use crate::model::HiddenMarkov;
use crate::sequences::Sequences;
use gmm_core::reproducible::Functions;
use gmm_host::CovarianceModel;
use rayon::prelude::*;

/// Fits with several numbers of states.
#[derive(Debug, Clone)]
pub struct Selection {
    /// The numbers of states.
    pub n_states: Vec<usize>,
    /// The number of components of each state.
    pub n_mix: usize,
    /// The covariances.
    pub model: CovarianceModel,
    /// The options of each fit.
    pub options: Options,
    /// The number of starts, of which the fit with the largest log-likelihood is taken.
    pub n_init: usize,
    /// The number of parts of the sequences that are held out in turn, or 0: sequence i belongs to part i modulo it.
    pub folds: usize,
    /// The seed of the first start; the others have the next numbers.
    pub seed: u64,
}

/// A fit with one number of states.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The fit.
    pub fit: Fitted,
    /// The total log-likelihood of the model.
    pub log_likelihood: f64,
    /// The Bayesian information criterion, −2·log-likelihood + parameters·log N (Schwarz 1978).
    pub bic: f64,
    /// The log-likelihood of each part under the fit without it, summed, if parts were held out. Starts have seen all
    /// rows.
    pub held_out: Option<f64>,
}

impl Candidate {
    /// Scores a fit.
    ///
    /// # Errors
    /// As [`HiddenMarkov::score`].
    pub fn new(fit: Fitted, sequences: &Sequences<'_>) -> Result<Self> {
        let log_likelihood = total(&fit.model, sequences, |_| true)?;
        let rows: f64 = (0..sequences.len()).map(|s| sequences.weight(s) * sequences.rows(s).len() as f64).sum();
        let bic = -2.0 * log_likelihood + fit.model.n_parameters() as f64 * rows.log_e();
        Ok(Self { fit, log_likelihood, bic, held_out: None })
    }
}

fn total(model: &HiddenMarkov, sequences: &Sequences<'_>, counts: impl Fn(usize) -> bool) -> Result<f64> {
    let scores = model.score(sequences)?;
    let of_sequences = scores.iter().enumerate().filter(|(s, _)| counts(*s) && sequences.weight(*s) > 0.0);
    Ok(of_sequences.map(|(s, score)| sequences.weight(s) * score).sum())
}

impl Selection {
    /// Fits a model for each number of states, side by side on all threads, and returns them in order. The least BIC,
    /// or the largest held-out log-likelihood, is best. `ended` is called after each fit with the number of all fits.
    ///
    /// # Errors
    /// As [`HiddenMarkov::start_mixtures`] and [`Options::fit`]; [`Error::Parameter`] for one part, more parts than
    /// sequences, or no starts.
    pub fn candidates(&self, sequences: &Sequences<'_>, ended: impl Fn(usize) + Sync) -> Result<Vec<Candidate>> {
        if self.folds == 1 || self.folds > sequences.len() {
            let remedy = "take 0, or at least 2 and at most the number of sequences";
            return Err(Error::Parameter { what: "folds", value: self.folds.to_string(), remedy });
        }
        if self.n_init == 0 {
            return Err(Error::Parameter { what: "n_init", value: "0".into(), remedy: "take at least one start" });
        }
        let of_k = self.n_init * (self.folds + 1);
        let n = self.n_states.len() * of_k;
        let fit = |i: usize| {
            let (k, part, init) = (self.n_states[i / of_k], i % of_k / self.n_init, i % self.n_init);
            let start = HiddenMarkov::start_mixtures(
                k,
                self.n_mix,
                self.model,
                sequences,
                self.seed.wrapping_add(init as u64),
            )?;
            let fit = match part {
                0 => self.options.fit(start, sequences),
                part => self.options.fit(start, &self.without(part - 1, sequences)?),
            };
            ended(n);
            fit
        };
        let fits: Vec<Fitted> = (0..n).into_par_iter().map(fit).collect::<Result<_>>()?;
        let last = |fit: &Fitted| fit.history.last().copied().unwrap_or(f64::NEG_INFINITY);
        let best = |fits: &[Fitted]| fits.iter().max_by(|a, b| last(a).total_cmp(&last(b))).cloned();
        let candidate = |fits: &[Fitted]| {
            let mut parts = fits.chunks(self.n_init).filter_map(best);
            let Some(whole) = parts.next() else { unreachable!("there is a start") };
            let mut candidate = Candidate::new(whole, sequences)?;
            for (part, fit) in parts.enumerate() {
                let held_out = total(&fit.model, sequences, |s| s % self.folds == part)?;
                *candidate.held_out.get_or_insert(0.0) += held_out;
            }
            Ok(candidate)
        };
        fits.par_chunks(of_k).map(candidate).collect()
    }

    /// Returns the sequences without the weights of a part.
    fn without<'a>(&self, part: usize, sequences: &Sequences<'a>) -> Result<Sequences<'a>> {
        let weight = |s: usize| if s % self.folds == part { 0.0 } else { sequences.weight(s) };
        sequences.clone().with_weights((0..sequences.len()).map(weight).collect())
    }
}
