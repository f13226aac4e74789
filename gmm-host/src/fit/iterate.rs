//! The course of a fit, which EM and variational inference have in common: runs from several starts,
//! each of iterations until the lower bound hardly changes.
use super::init::check_columns;
use super::outcome::{Callback, Fit, Iteration};
use super::params::{GaussianMixtureValidParams, Start};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::memory;

/// How many arrays of the covariances' shape a fit has at a time, at least: covariances and their
/// factors before and after an M-step, their statistics, and what the device has of them.
const OF_A_FIT: usize = 6;

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
    method.check(evaluator)?;
    let shape = settings.covariance_type.shape(n_components, evaluator.n_features());
    let remedy = "use fewer components, or a covariance type with fewer numbers";
    memory::check("the parameters and statistics of the components", &shape, OF_A_FIT * size_of::<f64>(), remedy)?;
    let (mut best, mut present, runs) = match method.start() {
        None => (None, None, 0..settings.n_init),
        Some(Start::At(mixture, _)) => (None, Some(Fit::new((**mixture).clone())), 0..1),
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
        let fit = run(method, evaluator, fit, best.as_ref(), callback)?;
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

/// Iterates a run, new or resumed, to its end.
fn run<M: Method>(
    method: &M,
    evaluator: &mut dyn Evaluator,
    mut fit: Fit<M::Model>,
    best: Option<&Fit<M::Model>>,
    callback: Callback<'_, M::Model>,
) -> Result<Fit<M::Model>> {
    let settings = method.settings();
    fit.stopped = false;
    // A resumed run may have another `tol` than before.
    fit.converged = matches!(fit.lower_bounds[..], [.., a, b] if (b - a).abs() < settings.tol);
    while fit.n_iter() < settings.max_iter && !fit.converged && !fit.stopped {
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
