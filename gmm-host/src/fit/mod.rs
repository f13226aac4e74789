//! Fitting by expectation-maximisation over any backend.
mod init;
mod kmeans;
mod merge;
mod params;
mod select;
mod stepwise;

pub use merge::merge_down;
pub use params::{GaussianMixture, GaussianMixtureParams, InitParams};
pub use select::{Candidate, Criterion, Selection, select};
pub use stepwise::StepwiseEm;

use crate::{Error, Evaluator, Mixture, Result};
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
    /// The new parameters.
    pub mixture: &'a Mixture,
    /// As [`Fit::kept`].
    pub kept: &'a [usize],
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
        if let Some((start, lower_bound)) = &params.start {
            return self.run(evaluator, start.clone(), *lower_bound, 0, callback);
        }
        let mut best: Option<Fit> = None;
        for run in 0..params.n_init {
            let start = self.initialise(evaluator, run)?;
            let fit = self.run(evaluator, start, f64::NEG_INFINITY, run, callback)?;
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

    /// One run of EM.
    fn run(
        &self,
        evaluator: &mut dyn Evaluator,
        start: Mixture,
        mut lower_bound: f64,
        run: usize,
        callback: Callback<'_>,
    ) -> Result<Fit> {
        let params = &self.0;
        let lower_bounds = Vec::new();
        let mut fit = Fit { mixture: start, lower_bounds, converged: false, stopped: false, run, kept: Vec::new() };
        for iteration in 1..=params.max_iter {
            let statistics = evaluator.statistics(&fit.mixture)?;
            let update = statistics.update(&fit.mixture, params.reg_covar, params.freeze)?;
            let change = statistics.lower_bound() - lower_bound;
            lower_bound = statistics.lower_bound();
            (fit.mixture, fit.kept) = (update.mixture, update.kept);
            fit.lower_bounds.push(lower_bound);
            fit.converged = change.abs() < params.tol;
            let (mixture, kept) = (&fit.mixture, &fit.kept[..]);
            fit.stopped = callback(&Iteration { run, iteration, lower_bound, change, mixture, kept }).is_break();
            if fit.converged || fit.stopped {
                break;
            }
        }
        Ok(fit)
    }

    /// Initial parameters against the data's D.
    fn check_features(&self, d: usize) -> Result<()> {
        let (params, k) = (&self.0, self.0.n_components);
        let mismatch =
            |what, got: &[usize]| Err(Error::ShapeMismatch { what, expected: vec![k, d], got: got.to_vec() });
        if let Some((start, _)) = &params.start
            && start.n_features() != d
        {
            return mismatch("the start's means (against the data's columns)", start.means().shape());
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
