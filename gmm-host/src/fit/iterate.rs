//! The course of a fit, which EM and variational inference have in common: runs from several starts,
//! each of iterations until the lower bound hardly changes.
use super::init::check_columns;
use super::outcome::{Callback, Fit, Iteration};
use super::params::{GaussianMixtureValidParams, Start};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::memory;
use std::collections::VecDeque;

/// How many arrays of the covariances' shape a fit has at a time, at least: covariances and their
/// factors before and after an M-step, their statistics, and what the device has of them.
const OF_A_FIT: usize = 6;
/// The parameters of a run that waits for its next round: covariances and their factors.
const OF_A_WAITING_RUN: usize = 2;
/// The iterations of the first round of successive halving.
const FIRST_ROUND: usize = 5;

/// What is fitted, and by which steps.
pub(super) trait Method {
    /// What an iteration improves.
    type Model: Clone;

    /// The parameters that every fit has; of `start` and initial parameters only
    /// [`start`](Self::start) counts.
    fn settings(&self) -> &GaussianMixtureValidParams;

    /// Where the fit begins, if that is given.
    fn start(&self) -> Option<&Start<Self::Model>>;

    /// Checks the start and the parameters against the data.
    fn check(&self, evaluator: &dyn Evaluator) -> Result<()>;

    /// The start of a run for which none is given.
    fn initialise(&self, evaluator: &mut dyn Evaluator, run: usize) -> Result<Self::Model>;

    /// What begins at a given start.
    fn begin_at(&self, given: Self::Model) -> Result<Self::Model> {
        Ok(given)
    }

    /// An E-step and an M-step.
    fn iterate(&self, evaluator: &mut dyn Evaluator, model: &Self::Model) -> Result<Iterated<Self::Model>>;
}

/// What an iteration gives.
pub(super) struct Iterated<M> {
    pub mixture: M,
    pub lower_bound: f64,
    pub retained: Vec<usize>,
}

/// Fits to the evaluator's samples, and calls `callback` after each iteration.
pub(super) fn fit<M: Method>(
    method: &M,
    evaluator: &mut dyn Evaluator,
    callback: Callback<'_, M::Model>,
) -> Result<Fit<M::Model>> {
    let settings = method.settings();
    let (n_samples, n_components) = (evaluator.n_samples(), settings.n_components);
    if n_samples < n_components {
        return Err(Error::TooFewSamples { n_samples, n_components });
    }
    if let Some(labels) = evaluator.labels()
        && labels.n_components() != n_components
    {
        let what = "n_components (against those of the labels)";
        return Err(Error::ShapeMismatch { what, expected: vec![labels.n_components()], got: vec![n_components] });
    }
    method.check(evaluator)?;
    let shape = settings.covariance_type.shape(n_components, evaluator.n_features());
    let remedy = "use fewer components, or a covariance type with fewer numbers";
    let halved = settings.halving && settings.n_init > 1 && method.start().is_none();
    let arrays = OF_A_FIT + if halved { OF_A_WAITING_RUN.saturating_mul(settings.n_init - 1) } else { 0 };
    let bytes = arrays.saturating_mul(size_of::<f64>());
    memory::check("the parameters and statistics of the components", &shape, bytes, remedy)?;
    if halved {
        return halve(method, evaluator, callback);
    }
    let (mut best, mut present, runs) = match method.start() {
        None => (None, None, 0..settings.n_init),
        Some(Start::At(mixture, _)) => (None, Some(Fit::new(method.begin_at((**mixture).clone())?)), 0..1),
        Some(Start::Resume(fits)) => {
            let (present, best) = &**fits;
            (best.clone(), Some(present.clone()), present.run..settings.n_init.max(present.run + 1))
        }
    };
    if present.is_some() {
        check_columns(evaluator)?;
    }
    for number in runs {
        let fit = match present.take() {
            Some(fit) => fit,
            None => Fit { run: number, ..Fit::new(method.initialise(evaluator, number)?) },
        };
        let fit = run(method, evaluator, fit, settings.max_iter, best.as_ref(), callback)?;
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
    best.ok_or_else(no_runs)
}

/// Fits by successive halving of the runs: in each round all that are left go on, then the half with
/// the lower bounds is dropped.
fn halve<M: Method>(
    method: &M,
    evaluator: &mut dyn Evaluator,
    callback: Callback<'_, M::Model>,
) -> Result<Fit<M::Model>> {
    let settings = method.settings();
    let mut left: VecDeque<Fit<M::Model>> = VecDeque::new();
    let (mut n_runs, mut until) = (settings.n_init, FIRST_ROUND);
    for round in 0.. {
        let until_now = if n_runs == 1 { settings.max_iter } else { until.min(settings.max_iter) };
        for number in 0..n_runs {
            let waiting = if round > 0 { left.pop_front() } else { None };
            let fit = match waiting {
                Some(fit) => fit,
                None => Fit { run: number, ..Fit::new(method.initialise(evaluator, number)?) },
            };
            let fit = run(method, evaluator, fit, until_now, best(&left), callback)?;
            let stopped = fit.stopped;
            left.push_back(fit);
            if stopped {
                return best_of(left).map(|fit| Fit { stopped, ..fit });
            }
        }
        if left.iter().all(|fit| fit.converged || fit.n_iter() >= settings.max_iter) {
            break;
        }
        // Of equals the first stay; those that stay keep their order.
        left.make_contiguous().sort_by(|a, b| b.lower_bound().total_cmp(&a.lower_bound()));
        n_runs = n_runs.div_ceil(2);
        left.truncate(n_runs);
        left.make_contiguous().sort_by_key(|fit| fit.run);
        until = until.saturating_mul(2);
    }
    best_of(left)
}

/// The fit with the greatest lower bound, of equals that of the first run.
fn best<M>(fits: &VecDeque<Fit<M>>) -> Option<&Fit<M>> {
    fits.iter().min_by(|a, b| b.lower_bound().total_cmp(&a.lower_bound()).then(a.run.cmp(&b.run)))
}

fn best_of<M>(mut fits: VecDeque<Fit<M>>) -> Result<Fit<M>> {
    let number = best(&fits).map(|fit| fit.run);
    let position = fits.iter().position(|fit| Some(fit.run) == number);
    // There is always a run, because `check` refused n_init = 0.
    position.and_then(|position| fits.remove(position)).ok_or_else(no_runs)
}

fn no_runs() -> Error {
    Error::BadParameter { name: "n_init", value: "0".into(), remedy: "at least one run is needed" }
}

/// Iterates a run, new or resumed, until it has so many iterations, or ends before.
fn run<M: Method>(
    method: &M,
    evaluator: &mut dyn Evaluator,
    mut fit: Fit<M::Model>,
    until: usize,
    best: Option<&Fit<M::Model>>,
    callback: Callback<'_, M::Model>,
) -> Result<Fit<M::Model>> {
    let settings = method.settings();
    fit.stopped = false;
    // A resumed run may have another `tol` than before.
    fit.converged = matches!(fit.lower_bounds[..], [.., a, b] if (b - a).abs() < settings.tol);
    while fit.n_iter() < until && !fit.converged && !fit.stopped {
        let Iterated { mixture, lower_bound, retained } = method.iterate(evaluator, &fit.mixture)?;
        let before = match method.start() {
            Some(Start::At(_, lower_bound)) if fit.lower_bounds.is_empty() => lower_bound.unwrap_or(f64::NEG_INFINITY),
            _ => fit.lower_bound(),
        };
        let change = lower_bound - before;
        (fit.mixture, fit.retained) = (mixture, retained);
        fit.lower_bounds.push(lower_bound);
        fit.converged = change.abs() < settings.tol;
        let iteration = Iteration { run: fit.run, iteration: fit.n_iter(), lower_bound, change, fit: &fit, best };
        fit.stopped = callback(&iteration).is_break();
    }
    Ok(fit)
}
