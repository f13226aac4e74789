//! Expectation-maximisation over any evaluator.
use super::params::Start;
use super::{Callback, Fit, GaussianMixtureValidParams, Iteration};
use crate::{Error, Evaluator, Result};
use std::ops::ControlFlow;

impl GaussianMixtureValidParams {
    /// Fits to the evaluator's samples.
    ///
    /// # Errors
    /// [`Error::TooFewSamples`] (N < K); [`Error::ShapeMismatch`] where given initial parameters have another D; a
    /// component error where the data leave no usable covariance (a constant column with `reg_covar` zero); what the
    /// backend reports.
    pub fn fit(&self, evaluator: &mut dyn Evaluator) -> Result<Fit> {
        self.fit_with(evaluator, &mut |_| ControlFlow::Continue(()))
    }

    /// Fits, and calls `callback` after each iteration. Where that breaks, the fit ends with the best run so far,
    /// the present one included.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(&self, evaluator: &mut dyn Evaluator, callback: Callback<'_>) -> Result<Fit> {
        let params = &self.0;
        let (n_samples, n_components) = (evaluator.n_samples(), params.n_components);
        if n_samples < n_components {
            return Err(Error::TooFewSamples { n_samples, n_components });
        }
        self.check_features(evaluator.n_features())?;
        let (mut best, mut present, runs) = match &params.start {
            None => (None, None, 0..params.n_init),
            Some(Start::At(mixture, _)) => (None, Some(Fit::begin((**mixture).clone(), 0)), 0..1),
            Some(Start::Resume(fits)) => {
                let (present, best) = &**fits;
                (best.clone(), Some(present.clone()), present.run..params.n_init.max(present.run + 1))
            }
        };
        for run in runs {
            let fit = match present.take() {
                Some(fit) => fit,
                None => Fit::begin(self.initialise(evaluator, run)?, run),
            };
            let fit = self.run(evaluator, fit, best.as_ref(), callback)?;
            let stopped = fit.stopped;
            match &mut best {
                Some(best) if fit.lower_bound() <= best.lower_bound() => best.stopped |= stopped,
                _ => best = Some(fit),
            }
            if stopped {
                break;
            }
        }
        // `check` refused n_init = 0.
        best.ok_or(Error::BadParameter { name: "n_init", value: "0".into(), remedy: "at least one run is needed" })
    }

    /// One run of EM, from where it stands to its end.
    fn run(
        &self,
        evaluator: &mut dyn Evaluator,
        mut fit: Fit,
        best: Option<&Fit>,
        callback: Callback<'_>,
    ) -> Result<Fit> {
        let params = &self.0;
        fit.stopped = false;
        // A run that goes on may have another `tol` than before.
        fit.converged = matches!(fit.lower_bounds[..], [.., a, b] if (b - a).abs() < params.tol);
        while fit.n_iter() < params.max_iter && !fit.converged && !fit.stopped {
            let statistics = evaluator.statistics(&fit.mixture)?;
            let update = statistics.update(&fit.mixture, params.reg_covar, params.freeze)?;
            let before = match &params.start {
                Some(Start::At(_, lower_bound)) if fit.lower_bounds.is_empty() => *lower_bound,
                _ => fit.lower_bound(),
            };
            let lower_bound = statistics.lower_bound();
            let change = lower_bound - before;
            (fit.mixture, fit.retained) = (update.mixture, update.retained);
            fit.lower_bounds.push(lower_bound);
            fit.converged = change.abs() < params.tol;
            let iteration = Iteration { run: fit.run, iteration: fit.n_iter(), lower_bound, change, fit: &fit, best };
            fit.stopped = callback(&iteration).is_break();
        }
        Ok(fit)
    }

    /// Initial parameters against the data's D.
    fn check_features(&self, d: usize) -> Result<()> {
        let (params, k) = (&self.0, self.0.n_components);
        let mismatch =
            |what, got: &[usize]| Err(Error::ShapeMismatch { what, expected: vec![k, d], got: got.to_vec() });
        for start in params.start.iter().flat_map(Start::mixtures) {
            if start.n_features() != d {
                return mismatch("the start's means (against the data's columns)", start.means().shape());
            }
        }
        if let Some(means) = &params.means_init
            && means.ncols() != d
        {
            return mismatch("means_init (against the data's columns)", means.shape());
        }
        match &params.precisions_init {
            Some(precisions) => precisions.check_shape("precisions_init (against the data's columns)", k, d),
            None => Ok(()),
        }
    }
}
