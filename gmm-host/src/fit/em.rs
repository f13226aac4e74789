//! Expectation-maximisation over any evaluator.
use super::init::check_columns;
use super::outcome::{Callback, Fit, Iteration};
use super::params::{GaussianMixtureParams, GaussianMixtureValidParams, Start};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::memory;
use crate::source::DataSource;
use std::ops::ControlFlow;

/// How many arrays of the covariances' shape a fit has at a time, at least: covariances and their
/// factors before and after an M-step, their statistics, and what the device has of them.
const OF_A_FIT: usize = 6;

impl GaussianMixtureParams {
    /// Checks the parameters and fits to an array (N, D), to [`Samples`](crate::Samples), or to the
    /// samples of an [`Evaluator`].
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`GaussianMixtureValidParams::fit`].
    pub fn fit(&self, data: impl DataSource) -> Result<Fit> {
        self.checked()?.fit(data)
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// ```
    /// use gmm_host::GaussianMixtureParams;
    /// use ndarray::array;
    ///
    /// let x = array![[1.0f32, 2.0], [1.0, 4.0], [10.0, 2.0], [10.0, 4.0]];
    /// let (fit, labels) = GaussianMixtureParams::new(2).fit_predict(&x)?;
    /// assert!(labels[0] == labels[1] && labels[1] != labels[2] && labels[2] == labels[3]);
    /// assert_eq!(labels, fit.mixture.predict(&x)?);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit, Vec<usize>)> {
        self.checked()?.fit_predict(data)
    }
}

impl GaussianMixtureValidParams {
    /// Fits to an array (N, D), to [`Samples`](crate::Samples), or to the samples of an
    /// [`Evaluator`].
    ///
    /// # Errors
    /// What the data source reports; [`Error::TooFewSamples`] (N < K); [`Error::ShapeMismatch`]
    /// where given initial parameters have another D; [`Error::UnobservedColumn`] where all values
    /// of a column are missing; a component error where the data leave no usable covariance (a
    /// constant column with `reg_covar` zero); what the backend reports.
    pub fn fit(&self, data: impl DataSource) -> Result<Fit> {
        data.evaluate(self.device, |evaluator| self.fit_with(evaluator, &mut |_| ControlFlow::Continue(())))
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit, Vec<usize>)> {
        data.evaluate(self.device, |evaluator| {
            let fit = self.fit_with(evaluator, &mut |_| ControlFlow::Continue(()))?;
            let labels = evaluator.predict(&fit.mixture)?;
            Ok((fit, labels))
        })
    }

    /// Fits to the evaluator's samples, and calls `callback` after each iteration. When the
    /// callback breaks, the fit ends with the best of the runs so far, including the one that was
    /// broken off.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(&self, evaluator: &mut dyn Evaluator, callback: Callback<'_>) -> Result<Fit> {
        let (n_samples, n_components) = (evaluator.n_samples(), self.n_components);
        if n_samples < n_components {
            return Err(Error::TooFewSamples { n_samples, n_components });
        }
        self.check_features(evaluator.n_features())?;
        let shape = self.covariance_type.shape(n_components, evaluator.n_features());
        let remedy = "use fewer components, or a covariance type with fewer numbers";
        memory::check("the parameters and statistics of the components", &shape, OF_A_FIT * size_of::<f64>(), remedy)?;
        let (mut best, mut present, runs) = match &self.start {
            None => (None, None, 0..self.n_init),
            Some(Start::At(mixture, _)) => (None, Some(Fit::new((**mixture).clone())), 0..1),
            Some(Start::Resume(fits)) => {
                let (present, best) = &**fits;
                (best.clone(), Some(present.clone()), present.run..self.n_init.max(present.run + 1))
            }
        };
        if present.is_some() {
            check_columns(evaluator)?;
        }
        for run in runs {
            let fit = match present.take() {
                Some(fit) => fit,
                None => Fit { run, ..Fit::new(self.initialise(evaluator, run)?) },
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
        // There is always a run, because `check` refused n_init = 0.
        best.ok_or(Error::BadParameter { name: "n_init", value: "0".into(), remedy: "at least one run is needed" })
    }

    /// Iterates a run of EM, new or resumed, to its end.
    fn run(
        &self,
        evaluator: &mut dyn Evaluator,
        mut fit: Fit,
        best: Option<&Fit>,
        callback: Callback<'_>,
    ) -> Result<Fit> {
        fit.stopped = false;
        // A resumed run may have another `tol` than before.
        fit.converged = matches!(fit.lower_bounds[..], [.., a, b] if (b - a).abs() < self.tol);
        while fit.n_iter() < self.max_iter && !fit.converged && !fit.stopped {
            let statistics = evaluator.statistics(&fit.mixture)?;
            let lower_bound = statistics.lower_bound();
            let update = statistics.into_update(&fit.mixture, self.reg_covar, self.freeze)?;
            let before = match &self.start {
                Some(Start::At(_, lower_bound)) if fit.lower_bounds.is_empty() => {
                    lower_bound.unwrap_or(f64::NEG_INFINITY)
                }
                _ => fit.lower_bound(),
            };
            let change = lower_bound - before;
            (fit.mixture, fit.retained) = (update.mixture, update.retained);
            fit.lower_bounds.push(lower_bound);
            fit.converged = change.abs() < self.tol;
            let iteration = Iteration { run: fit.run, iteration: fit.n_iter(), lower_bound, change, fit: &fit, best };
            fit.stopped = callback(&iteration).is_break();
        }
        Ok(fit)
    }

    /// Checks the initial parameters against the data's D.
    fn check_features(&self, d: usize) -> Result<()> {
        let k = self.n_components;
        let mismatch =
            |what, got: &[usize]| Err(Error::ShapeMismatch { what, expected: vec![k, d], got: got.to_vec() });
        for start in self.start.iter().flat_map(Start::mixtures) {
            if start.n_features() != d {
                return mismatch("the start's means (against the data's columns)", start.means().shape());
            }
        }
        if let Some(means) = &self.means_init
            && means.ncols() != d
        {
            return mismatch("means_init (against the data's columns)", means.shape());
        }
        match &self.precisions_init {
            Some(precisions) => precisions.check_shape("precisions_init (against the data's columns)", k, d),
            None => Ok(()),
        }
    }
}
