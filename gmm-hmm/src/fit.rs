//! Fits by the algorithm of Baum and Welch, an expectation-maximisation.
use crate::error::{Error, Result};
use crate::expectations::Expectations;
use crate::model::HiddenMarkov;
use crate::priors::{Frozen, Priors, m_step};
use crate::sequences::Sequences;
use gmm_core::reproducible::Functions;

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
        Ok((self.m_step(model, &expectations)?, expectations.log_likelihood))
    }

    /// Returns the model of the M-step from the sums of an E-step under `model`, perhaps of sequences elsewhere.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Shape`] for sums of another model.
    pub fn m_step(&self, model: &HiddenMarkov, expectations: &Expectations) -> Result<HiddenMarkov> {
        if !(self.reg_covar >= 0.0 && self.reg_covar.is_finite()) {
            let (value, remedy) = (self.reg_covar.to_string(), "it must be zero or positive, and finite");
            return Err(Error::Parameter { what: "reg_covar", value, remedy });
        }
        let Expectations { start, transitions, statistics, .. } = expectations;
        let (k, means) = (model.n_states(), model.emissions().means().dim());
        let form = model.emissions().covariance_type();
        let fits = statistics.means().dim() == means && statistics.covariance_type() == form;
        if start.len() != k || transitions.dim() != (k, k) || !fits {
            let got = vec![start.len(), statistics.means().nrows(), statistics.means().ncols()];
            return Err(Error::Shape { what: "the sums of an E-step", expected: vec![k, means.0, means.1], got });
        }
        let none = Priors::none(model);
        m_step(model, expectations, self.priors.as_ref().unwrap_or(&none), self.frozen, self.reg_covar)
    }

    /// Fits a model, from one to start with.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Parameter`] for no iterations, a `tol` that is not a number, or an unusable
    /// `reg_covar`.
    pub fn fit(&self, start: HiddenMarkov, sequences: &Sequences<'_>) -> Result<Fitted> {
        self.fit_watched(start, Vec::new(), sequences, |_, _| {})
    }

    /// As [`fit`](Self::fit), and calls `watch` in each iteration with its model and the history up to that model's
    /// log-likelihood. With both, `start` and `history`, an interrupted fit goes on to the result of an uninterrupted
    /// one, and a longer fit than this one ends as it did.
    ///
    /// # Errors
    /// As [`fit`](Self::fit); [`Error::Parameter`] if the start has another log-likelihood than the last of `history`.
    pub fn fit_watched(
        &self,
        start: HiddenMarkov,
        mut history: Vec<f64>,
        sequences: &Sequences<'_>,
        mut watch: impl FnMut(&HiddenMarkov, &[f64]),
    ) -> Result<Fitted> {
        let bad = |what, value, remedy| Err(Error::Parameter { what, value, remedy });
        if self.n_iter == 0 {
            return bad("n_iter", "0".into(), "take at least one iteration");
        }
        if self.tol.is_nan() {
            return bad("tol", "NaN".into(), "it must be a number");
        }
        // The result of a longer fit stays.
        let n_iter = self.n_iter.max(history.len());
        let mut known = history.pop();
        let mut fitted = Fitted { model: start, history, converged: false };
        while fitted.history.len() < n_iter && !fitted.converged {
            let (model, log_likelihood) = self.step(&fitted.model, sequences)?;
            // The same computation, perhaps on another machine.
            if let Some(known) = known.take().filter(|known| (known - log_likelihood).abs() > 1e-9 * known.abs()) {
                let what = "the log-likelihood of the checkpoint's model";
                let value = format!("{known} in the checkpoint, and {log_likelihood} for these sequences");
                let remedy = "give the data of the checkpoint, or name another checkpoint";
                return Err(Error::Parameter { what, value, remedy });
            }
            fitted.converged = fitted.history.last().is_some_and(|last| log_likelihood - last < self.tol);
            fitted.history.push(log_likelihood);
            watch(&fitted.model, &fitted.history);
            fitted.model = model;
        }
        Ok(fitted)
    }

    /// Learns from some more sequences: stepwise EM (Cappé and Moulines 2009), as
    /// [`StepwiseEm`](gmm_host::fit::StepwiseEm) has it for mixtures. The sums per row are a moving average over the
    /// chunks of sequences, and the M-step takes them times the number of rows so far. Returns the new model, and the
    /// total log-likelihood of the chunk under the one given.
    ///
    /// # Errors
    /// As [`step`](Self::step). An error leaves `stream` as it is.
    pub fn learn(
        &self,
        model: &HiddenMarkov,
        sequences: &Sequences<'_>,
        stream: &mut Stream,
    ) -> Result<(HiddenMarkov, f64)> {
        let expectations = model.expectations(sequences)?;
        let log_likelihood = expectations.log_likelihood;
        let (rows, eta) = (expectations.statistics.weight(), ((stream.steps + 1) as f64).power(-stream.decay));
        let mut average = expectations.scaled(eta / rows);
        if let Some(before) = &stream.average {
            average.merge(&before.clone().scaled(1.0 - eta))?;
        }
        let rows = stream.rows + rows;
        let model = self.m_step(model, &average.clone().scaled(rows))?;
        *stream = Stream { average: Some(average), steps: stream.steps + 1, rows, decay: stream.decay };
        Ok((model, log_likelihood))
    }
}

/// The chunks of sequences that a model has [learned](Options::learn) from.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// The sums per row.
    average: Option<Expectations>,
    steps: u64,
    rows: f64,
    decay: f64,
}

impl Stream {
    /// Begins. `decay` is α of [`StepwiseEm`](gmm_host::fit::StepwiseEm::new).
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn new(decay: f64) -> Result<Self> {
        match decay > 0.5 && decay <= 1.0 {
            true => Ok(Self { average: None, steps: 0, rows: 0.0, decay }),
            false => {
                let remedy = "it must be above 0.5 and at most 1";
                Err(Error::Parameter { what: "decay", value: decay.to_string(), remedy })
            }
        }
    }
}
