//! Fits by the algorithm of Baum and Welch, an expectation-maximisation.
use crate::error::{Error, Result};
use crate::model::HiddenMarkov;
use crate::priors::{Frozen, Priors, m_step};
use crate::sequences::Sequences;

/// The options of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The largest number of iterations, by default 100.
    pub n_iter: usize,
    /// The fit has converged when the total log-likelihood gains less than this, by default 0.01.
    pub tol: f64,
    /// Added to the variances in each M-step, by default 10⁻⁶.
    pub reg_covar: f64,
    /// The parameters that stay as they are.
    pub frozen: Frozen,
    /// The priors, by default none.
    pub priors: Option<Priors>,
}

impl Default for Options {
    fn default() -> Self {
        Self { n_iter: 100, tol: 1e-2, reg_covar: 1e-6, frozen: Frozen::default(), priors: None }
    }
}

/// The result of a fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The model after the last iteration.
    pub model: HiddenMarkov,
    /// The total log-likelihood before each M-step.
    pub history: Vec<f64>,
    /// Whether the last gain was below the tolerance.
    pub converged: bool,
}

impl Options {
    /// Computes an iteration. Returns the new model, and the total log-likelihood Σ w·log p(sequence) of the one given.
    ///
    /// # Errors
    /// [`Error::Shape`] for priors of another shape; as [`HiddenMarkov::expectations`]; [`Error::Host`] if no component
    /// has a usable covariance.
    pub fn step(&self, model: &HiddenMarkov, sequences: &Sequences<'_>) -> Result<(HiddenMarkov, f64)> {
        let expectations = model.expectations(sequences)?;
        let none;
        let priors = match &self.priors {
            Some(priors) => priors,
            None => {
                none = Priors::none(model);
                &none
            }
        };
        Ok((m_step(model, &expectations, priors, self.frozen, self.reg_covar)?, expectations.log_likelihood))
    }

    /// Fits a model, from one to start with.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Parameter`] for no iterations.
    pub fn fit(&self, start: HiddenMarkov, sequences: &Sequences<'_>) -> Result<Fitted> {
        self.fit_watched(start, sequences, |_, _| {})
    }

    /// As [`fit`](Self::fit), and calls `watch` with the number of each iteration and the log-likelihood before it.
    pub fn fit_watched(
        &self,
        start: HiddenMarkov,
        sequences: &Sequences<'_>,
        mut watch: impl FnMut(usize, f64),
    ) -> Result<Fitted> {
        if self.n_iter == 0 {
            return Err(Error::Parameter { what: "n_iter", value: "0".into(), remedy: "take at least one iteration" });
        }
        let mut fitted = Fitted { model: start, history: Vec::new(), converged: false };
        while fitted.history.len() < self.n_iter && !fitted.converged {
            let (model, log_likelihood) = self.step(&fitted.model, sequences)?;
            watch(fitted.history.len() + 1, log_likelihood);
            fitted.converged = fitted.history.last().is_some_and(|last| log_likelihood - last < self.tol);
            fitted.model = model;
            fitted.history.push(log_likelihood);
        }
        Ok(fitted)
    }
}
