//! Fitting by expectation-maximisation over any backend.
mod init;
mod kmeans;
mod merge;
mod params;
mod select;
mod standard;
mod stepwise;

pub use merge::merge_down;
pub use params::{GaussianMixture, GaussianMixtureParams, InitParams};
pub use select::{Candidate, Criterion, Selection, select};
pub use standard::{Standardization, StandardizationBuilder};
pub use stepwise::StepwiseEm;

use crate::{Error, Evaluator, Mixture, Result};
use params::Start;
use std::ops::ControlFlow;

/// The result of a fit. That it did not converge is a result too.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The parameters after the last iteration.
    pub mixture: Mixture,
    /// The mean log-likelihood of a sample at the beginning of each iteration: scikit-learn's `lower_bounds_`.
    pub lower_bounds: Vec<f64>,
    /// Whether the last iteration changed it by less than `tol`.
    pub converged: bool,
    /// Whether the callback stopped the fit.
    pub stopped: bool,
    /// Which of the runs (from 0) this is, the best of them.
    pub run: usize,
    /// Components (ascending) that in the last iteration had no samples, or no covariance that `reg_covar` could hold, and
    /// kept what they had: see [`Statistics::update`](crate::Statistics::update).
    pub kept: Vec<usize>,
}

impl Fit {
    /// A run that has not begun.
    fn begin(mixture: Mixture, run: usize) -> Self {
        Self { mixture, lower_bounds: Vec::new(), converged: false, stopped: false, run, kept: Vec::new() }
    }

    /// Number of iterations.
    pub fn n_iter(&self) -> usize {
        self.lower_bounds.len()
    }

    /// scikit-learn's `lower_bound_`: the mean log-likelihood under the parameters before the last M-step; −∞ without
    /// iterations.
    pub fn lower_bound(&self) -> f64 {
        self.lower_bounds.last().copied().unwrap_or(f64::NEG_INFINITY)
    }
}

/// What a callback sees after each iteration.
#[derive(Debug, Clone, Copy)]
pub struct Iteration<'a> {
    /// Which run (from 0).
    pub run: usize,
    /// Which iteration of it (from 1).
    pub iteration: usize,
    /// Mean log-likelihood of a sample before this iteration's M-step.
    pub lower_bound: f64,
    /// Its change since the iteration before; infinite in the first.
    pub change: f64,
    /// The run so far, with the new parameters.
    pub fit: &'a Fit,
    /// The best of the runs before it.
    pub best: Option<&'a Fit>,
}

/// A callback: progress, a checkpoint, or an early end by [`ControlFlow::Break`].
pub type Callback<'a> = &'a mut dyn FnMut(&Iteration<'_>) -> ControlFlow<()>;

impl GaussianMixture {
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
            (fit.mixture, fit.kept) = (update.mixture, update.kept);
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
