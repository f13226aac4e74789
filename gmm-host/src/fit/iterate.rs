//! The course of a fit by any method: runs from several starts, each iterated until the lower bound hardly changes.
use super::fitting::steps::Iterated;
use super::fitting::{
    Checked, FitOptions, FittedModel, Fitting, Method, Start, no_runs, shape_of, shape_of_statistics,
};
use super::outcome::{Callback, Fit, Iteration, best_of};
use super::subset::check_columns;
use crate::source::DataSource;
use gmm_core::contract::evaluator::{Description, Evaluator};
use gmm_core::error::{Error, Result};
use gmm_core::memory;
use gmm_core::simd::isa::Isa;
use gmm_core::statistics::Statistics;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// The least number of arrays of the covariances' shape that a fit holds at a time: covariances and factors before and
/// after an M-step, their statistics, and the device's copies.
const OF_A_FIT: usize = 6;
/// The arrays of a run that waits for its next round: covariances and their factors.
const OF_A_WAITING_RUN: usize = 2;
/// The iterations in the first round of runs that take turns.
const FIRST_ROUND: usize = 5;

/// Where a run begins.
#[derive(Debug, Clone)]
pub enum RunStart<M> {
    /// A start that the engine finds, from random numbers of this seed and stream of the generator ChaCha8.
    Seed(u64, u64),
    /// A model. The number is added to the first lower bound, for example because foreign weights do not sum to 1.
    At(M, f64),
    /// The M-step of these statistics.
    Statistics(Statistics),
}

/// Chooses the starts of a fit's runs, and sees them begin and end.
pub trait Starts<M> {
    /// Called before a run (from 0) begins. Runs that take turns begin and end as one.
    fn begin(&mut self, run: usize) {
        let _ = run;
    }

    /// Returns the start of a run.
    ///
    /// # Errors
    /// An error ends the fit.
    fn start(&mut self, run: usize) -> Result<RunStart<M>>;

    /// Called before each pass over all samples of a start that the engine finds for a run.
    ///
    /// # Errors
    /// An error ends the fit.
    fn check(&mut self, run: usize) -> Result<()> {
        let _ = run;
        Ok(())
    }

    /// Called when a run has ended, or with the best of all runs that take turns.
    fn end(&mut self, fit: &Fit<M>) {
        let _ = fit;
    }
}

/// Starts that the engine finds for a seed: run r has stream r.
impl<M> Starts<M> for u64 {
    fn start(&mut self, run: usize) -> Result<RunStart<M>> {
        Ok(RunStart::Seed(*self, run as u64))
    }
}

impl<M: Method> Fitting<M> {
    /// Checks the options and fits to an array (N, D), to [`Samples`](crate::Samples), or to the
    /// samples of an [`Evaluator`].
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`Checked::fit`].
    pub fn fit(&self, data: impl DataSource) -> Result<Fit<M::Model>> {
        self.checked()?.fit(data)
    }

    /// Fits as [`fit`](Self::fit); also returns the most probable component of each sample (N,).
    ///
    /// ```
    /// use gmm_host::{GaussianMixtureParams, Predict};
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
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit<M::Model>, Vec<usize>)> {
        self.checked()?.fit_predict(data)
    }
}

impl<M: Method> Checked<Fitting<M>> {
    /// Fits to an array (N, D), to [`Samples`](crate::Samples), or to the samples of an [`Evaluator`].
    ///
    /// # Errors
    /// Errors of the data source; [`Error::TooFewSamples`] (N < K); [`Error::ShapeMismatch`] and
    /// [`Error::BadParameter`] if initial parameters, priors or the start do not fit the data's D;
    /// [`Error::UnobservedColumn`] if all values of a column are missing; a component error if the data leave no usable
    /// covariance (a constant column with `reg_covar` zero, or one whose variance makes a covariance prior singular);
    /// errors of the backend.
    pub fn fit(&self, data: impl DataSource) -> Result<Fit<M::Model>> {
        let _same = self.options.begin();
        data.evaluate(self.options.device, |evaluator| self.fit_with(evaluator, &mut |_| ControlFlow::Continue(())))
    }

    /// Fits as [`fit`](Self::fit); also returns the most probable component of each sample (N,).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit<M::Model>, Vec<usize>)> {
        let _same = self.options.begin();
        data.evaluate(self.options.device, |evaluator| {
            let fit = self.fit_with(evaluator, &mut |_| ControlFlow::Continue(()))?;
            let labels = evaluator.predict(fit.mixture.density())?;
            Ok((fit, labels))
        })
    }

    /// Fits to the evaluator's samples, and calls `callback` after each iteration. If the callback breaks, the fit ends
    /// with the best of the runs so far, including the interrupted one.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(&self, evaluator: &mut dyn Evaluator, callback: Callback<'_, M::Model>) -> Result<Fit<M::Model>> {
        self.fit_from(evaluator, &mut { self.options.random_state }, callback)
    }

    /// Fits as [`fit_with`](Self::fit_with); `starts` chooses the runs' starts, unless the options give one.
    ///
    /// # Errors
    /// As [`fit`](Self::fit), and errors of `starts`.
    pub fn fit_from(
        &self,
        evaluator: &mut dyn Evaluator,
        starts: &mut dyn Starts<M::Model>,
        callback: Callback<'_, M::Model>,
    ) -> Result<Fit<M::Model>> {
        let _same = self.options.begin();
        Course::new(self, evaluator)?.fit(evaluator, starts, callback)
    }
}

/// Refuses an evaluator that was made without [`Reproducible`](gmm_core::reproducible::Reproducible): it chose the code of
/// this machine.
fn check_loaded(evaluator: &dyn Evaluator) -> Result<()> {
    let Description { device, kernel, .. } = evaluator.describe();
    let own = Isa::available();
    if device.contains("cuda:") || kernel.split(" + ").any(|kernel| own.iter().any(|isa| isa.name() == kernel)) {
        return Err(Error::BadParameter {
            name: "reproducible",
            value: format!("true, but the samples were loaded for {device}"),
            remedy: "begin `Reproducible` before you load them, or give the samples as an array",
        });
    }
    Ok(())
}

/// A fit whose options have been checked against its samples.
pub(super) struct Course<'a, M: Method> {
    fitting: &'a Fitting<M>,
    prior: M::Prior,
}

impl<'a, M: Method> Course<'a, M> {
    /// Checks the options against the samples.
    pub fn new(fitting: &'a Fitting<M>, evaluator: &mut dyn Evaluator) -> Result<Self> {
        let options = &fitting.options;
        if options.reproducible {
            check_loaded(evaluator)?;
        }
        let (n_samples, n_components) = (evaluator.n_samples(), options.n_components);
        if n_samples < n_components {
            return Err(Error::TooFewSamples { n_samples, n_components });
        }
        let prior = fitting.method.prior(options, evaluator)?;
        if let Some(labels) = evaluator.labels()
            && labels.n_components() != n_components
        {
            let what = "n_components (against those of the labels)";
            return Err(Error::ShapeMismatch { what, expected: vec![labels.n_components()], got: vec![n_components] });
        }
        fitting.check_features(evaluator.n_features())?;
        let shape = options.covariance_type.form().shape(n_components, evaluator.n_features());
        let remedy = "use fewer components, or a covariance type with fewer numbers";
        let waiting = if fitting.is_halved() { OF_A_WAITING_RUN.saturating_mul(options.n_init - 1) } else { 0 };
        let bytes = (OF_A_FIT + waiting).saturating_mul(size_of::<f64>());
        memory::check("the parameters and statistics of the components", &shape, bytes, remedy)?;
        Ok(Self { fitting, prior })
    }

    /// Makes all runs, each from its start, and returns the best.
    pub fn fit(
        &self,
        evaluator: &mut dyn Evaluator,
        starts: &mut dyn Starts<M::Model>,
        callback: Callback<'_, M::Model>,
    ) -> Result<Fit<M::Model>> {
        if self.fitting.is_halved() {
            starts.begin(0);
            let fit = self.halve(evaluator, starts, callback)?;
            starts.end(&fit);
            return Ok(fit);
        }
        let (mut best, mut present, runs) = match &self.fitting.start {
            None => (None, None, 0..self.fitting.options.n_init),
            Some(Start::At(model, _)) => {
                let start = RunStart::At((**model).clone(), 0.0);
                (None, Some(self.begin_from(evaluator, 0, start, &mut || Ok(()))?.0), 0..1)
            }
            Some(Start::Statistics(statistics)) => {
                let start = RunStart::Statistics((**statistics).clone());
                (None, Some(self.begin_from(evaluator, 0, start, &mut || Ok(()))?.0), 0..1)
            }
            Some(Start::Resume(fits)) => {
                check_columns(evaluator)?;
                let (present, best) = &**fits;
                (best.clone(), Some(present.clone()), present.run..self.fitting.options.n_init.max(present.run + 1))
            }
        };
        let max_iter = self.fitting.options.max_iter;
        for number in runs {
            starts.begin(number);
            let (fit, shift) = match present.take() {
                Some(fit) => (fit, 0.0),
                None => self.begin(evaluator, number, starts)?,
            };
            let fit = self.run(evaluator, fit, shift, max_iter, best.as_ref(), callback)?;
            starts.end(&fit);
            let stopped = fit.stopped;
            best = best_of(best.into_iter().chain([fit])).map(|best| Fit { stopped: best.stopped | stopped, ..best });
            if stopped {
                break;
            }
        }
        best.ok_or_else(no_runs)
    }

    /// Makes one run from start to end.
    pub fn one_run(
        &self,
        evaluator: &mut dyn Evaluator,
        run: usize,
        start: RunStart<M::Model>,
        callback: Callback<'_, M::Model>,
    ) -> Result<Fit<M::Model>> {
        let (fit, shift) = self.begin_from(evaluator, run, start, &mut || Ok(()))?;
        self.run(evaluator, fit, shift, self.fitting.options.max_iter, None, callback)
    }

    /// Returns a run at its start, and the number added to its first lower bound.
    fn begin(
        &self,
        evaluator: &mut dyn Evaluator,
        run: usize,
        starts: &mut dyn Starts<M::Model>,
    ) -> Result<(Fit<M::Model>, f64)> {
        let start = starts.start(run)?;
        self.begin_from(evaluator, run, start, &mut || starts.check(run))
    }

    fn begin_from(
        &self,
        evaluator: &mut dyn Evaluator,
        run: usize,
        start: RunStart<M::Model>,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<(Fit<M::Model>, f64)> {
        let Fitting { options, method, .. } = self.fitting;
        let given = match &start {
            RunStart::Seed(..) => None,
            RunStart::At(model, _) => Some(shape_of(model)),
            RunStart::Statistics(statistics) => Some(shape_of_statistics(statistics)),
        };
        if let Some(shape) = given {
            self.fitting.check_shape(shape)?;
            self.fitting.check_n_features(shape, evaluator.n_features())?;
            check_columns(evaluator)?;
        }
        let (model, shift) = match start {
            RunStart::Seed(seed, stream) => (method.find(options, &self.prior, evaluator, (seed, stream), check)?, 0.0),
            RunStart::At(model, shift) => (model, shift),
            RunStart::Statistics(statistics) => (method.of_statistics(options, &self.prior, &statistics)?, 0.0),
        };
        Ok((Fit { run, ..Fit::new(method.begin_at(options, &self.prior, model)?) }, shift))
    }

    /// Fits by runs that take turns: in each round all go on, then the half with the lower bounds is dropped.
    fn halve(
        &self,
        evaluator: &mut dyn Evaluator,
        starts: &mut dyn Starts<M::Model>,
        callback: Callback<'_, M::Model>,
    ) -> Result<Fit<M::Model>> {
        let FitOptions { n_init, max_iter, .. } = self.fitting.options;
        let mut left: VecDeque<Fit<M::Model>> = VecDeque::new();
        let (mut n_runs, mut until) = (n_init, FIRST_ROUND);
        for round in 0.. {
            let until_now = if n_runs == 1 { max_iter } else { until.min(max_iter) };
            for number in 0..n_runs {
                let waiting = if round > 0 { left.pop_front() } else { None };
                let (fit, shift) = match waiting {
                    Some(fit) => (fit, 0.0),
                    None => self.begin(evaluator, number, starts)?,
                };
                let fit = self.run(evaluator, fit, shift, until_now, best_of(&left), callback)?;
                let stopped = fit.stopped;
                left.push_back(fit);
                if stopped {
                    return best_of(left).map(|fit| Fit { stopped, ..fit }).ok_or_else(no_runs);
                }
            }
            if left.iter().all(|fit| fit.converged || fit.n_iter() >= max_iter) {
                break;
            }
            // Equal runs keep their order, so the first ones stay.
            left.make_contiguous().sort_by(|a, b| b.lower_bound().total_cmp(&a.lower_bound()));
            n_runs = n_runs.div_ceil(2);
            left.truncate(n_runs);
            left.make_contiguous().sort_by_key(|fit| fit.run);
            until = until.saturating_mul(2);
        }
        best_of(left).ok_or_else(no_runs)
    }

    /// Iterates a run, new or resumed, up to `until` iterations or its end. `shift` is added to its first lower bound.
    fn run(
        &self,
        evaluator: &mut dyn Evaluator,
        mut fit: Fit<M::Model>,
        shift: f64,
        until: usize,
        best: Option<&Fit<M::Model>>,
        callback: Callback<'_, M::Model>,
    ) -> Result<Fit<M::Model>> {
        let Fitting { options, method, start } = self.fitting;
        fit.stopped = false;
        // A resumed run may have another `tol` than before.
        fit.converged = matches!(fit.lower_bounds[..], [.., a, b] if (b - a).abs() < options.tol);
        while fit.n_iter() < until && !fit.converged && !fit.stopped {
            let Iterated { mixture, mut lower_bound, retained } =
                method.iterate(options, &self.prior, evaluator, &fit.mixture)?;
            let before = match start {
                Some(Start::At(_, before)) if fit.lower_bounds.is_empty() => before.unwrap_or(f64::NEG_INFINITY),
                _ => fit.lower_bound(),
            };
            if fit.lower_bounds.is_empty() {
                lower_bound += shift;
            }
            let change = lower_bound - before;
            (fit.mixture, fit.retained) = (mixture, retained);
            fit.lower_bounds.push(lower_bound);
            fit.converged = change.abs() < options.tol;
            let iteration = Iteration { run: fit.run, iteration: fit.n_iter(), lower_bound, change, fit: &fit, best };
            fit.stopped = callback(&iteration).is_break();
        }
        Ok(fit)
    }
}

impl<M: Method> Fitting<M> {
    /// Returns whether runs take turns and poor ones are dropped.
    pub(super) fn is_halved(&self) -> bool {
        self.options.halving && self.options.n_init > 1 && self.start.is_none()
    }
}
