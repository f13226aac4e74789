//! Markov chains over the posterior of a mixture.
use crate::arrays::{self, Matrix, NumPy, NumbersD, view};
use crate::errors::{exception, sampler_exception};
use crate::mixture::Mixture;
use crate::noise;
use crate::threads::compute;
use gaussmix::data::{Element, Samples};
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::mcmc::{
    self, DataSummary, Outcome, Posterior, PosteriorModel, Prior, Progress, Sampler, Saved, Settings, Start, Variable,
    check_outputs,
};
use gaussmix::memory;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The chains start at the best of this many fits by EM, as in the command `gmm mcmc`.
const FITS: usize = 10;
/// The least time between two checks for Ctrl-C, and between two calls of the callback.
const LOOK: Duration = Duration::from_millis(50);

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ChainOptions {
    n_components: usize,
    covariance_type: String,
    /// JSON.
    prior: Option<String>,
    order: Option<usize>,
    sampler: String,
    by_component: bool,
    target_accept: f64,
    max_depth: u64,
    chains: Option<usize>,
    warmup: Option<usize>,
    draws: Option<usize>,
    thin: Option<usize>,
    seed: u64,
    device: String,
    float64: bool,
    threads: Option<usize>,
}

impl ChainOptions {
    fn settings(&self, model: &PosteriorModel) -> PyResult<Settings> {
        let sampler = match (self.sampler.as_str(), self.by_component) {
            ("nuts", _) => Sampler::nuts(self.target_accept, self.max_depth),
            ("metropolis", false) => Sampler::METROPOLIS,
            ("metropolis", true) => Sampler::METROPOLIS_BY_COMPONENT,
            ("ensemble", _) => Sampler::ENSEMBLE,
            (other, _) => {
                return Err(PyValueError::new_err(format!(
                    "there is no sampler '{other}'; use 'nuts', 'metropolis' or 'ensemble'"
                )));
            }
        };
        let usual = Settings::usual(sampler, model);
        let (chains, warmup) = (self.chains.unwrap_or(usual.chains), self.warmup.unwrap_or(usual.warmup));
        let (draws, thin) = (self.draws.unwrap_or(usual.draws), self.thin.unwrap_or(usual.thin));
        let settings = usual.chains(chains).warmup(warmup).draws(draws).thin(thin).seed(self.seed);
        settings.check(model.dim()).map_err(sampler_exception)?;
        check_draws(model, &settings, settings.draws)?;
        Ok(settings)
    }
}

/// Checks that memory is enough for the draws of each chain, both in the run and as arrays.
fn check_draws(model: &PosteriorModel, settings: &Settings, draws: usize) -> PyResult<()> {
    let numbers = settings.sampler.statistics().len() + model.variables().iter().map(Variable::size).sum::<usize>();
    let (shape, remedy) = ([settings.chains, draws, numbers], "make fewer draws, with a larger thin if necessary");
    memory::check("the draws", &shape, 2 * size_of::<f64>(), remedy).map_err(exception)
}

struct Inner {
    model: PosteriorModel,
    evaluator: Box<dyn Evaluator>,
    run: mcmc::Chains,
    /// Declared after the evaluator, which borrows them and is dropped first.
    _of_noise: Vec<Py<PyAny>>,
}

/// A run of Markov chains, with its data in a device.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Chains(Mutex<Inner>);

impl Chains {
    /// Calls `work` with the run, without the GIL: `advance`, which needs the GIL now and then, may have the lock.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Inner) -> T + Send) -> PyResult<T> {
        compute(py, || work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Chains {
    /// Returns a run without draws, or with `resume` the one saved under this prefix.
    #[new]
    #[pyo3(signature = (x, sample_weight, options, init=None, resume=None, missing=false, noise=None))]
    #[allow(clippy::too_many_arguments)] // Named in Python.
    fn new(
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        sample_weight: Option<&Bound<'_, PyAny>>,
        options: ChainOptions,
        init: Option<&Mixture>,
        resume: Option<PathBuf>,
        missing: bool,
        noise: Option<noise::Given<'_>>,
    ) -> PyResult<Self> {
        let weights = sample_weight.map(|w| arrays::vector("sample_weight", w)).transpose()?;
        let samples = match Matrix::new(x)? {
            Matrix::F32(x) => f32::shared_samples(view(&x).to_owned().into_shared(), missing),
            Matrix::F64(x) => f64::shared_samples(view(&x).to_owned().into_shared(), missing),
        };
        let mut samples = samples.map_err(exception)?;
        if let Some(weights) = weights {
            samples = samples.with_shared_weights(weights.into_shared()).map_err(exception)?;
        }
        // SAFETY: the run keeps the arrays as long as the samples.
        let noise = noise.map(|noise| unsafe { noise.borrow() }).transpose()?;
        let mut of_noise = Vec::new();
        if let Some(noise::Borrowed { noise, arrays }) = noise {
            samples = samples.with_noise(noise).map_err(exception)?;
            of_noise = arrays;
        }
        let init = init.map(|mixture| mixture.0.clone());
        let inner = compute(py, || begin(samples, &options, init, resume))??;
        Ok(Self(Mutex::new(Inner { _of_noise: of_noise, ..inner })))
    }

    /// Advances until all draws are made, the callback returns a true value, or Ctrl-C is pressed. Returns whether all
    /// draws are made, and the exception that ended the run.
    #[pyo3(signature = (callback=None))]
    fn advance(&self, py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<(bool, Option<PyErr>)> {
        self.with(py, |Inner { model, evaluator, run, .. }| {
            let mut posterior = Posterior::new(model, evaluator.as_mut()).map_err(sampler_exception)?;
            let (mut error, mut last_look) = (None, Instant::now());
            let outcome = run.advance(&mut posterior, |progress| {
                if last_look.elapsed() < LOOK {
                    return ControlFlow::Continue(());
                }
                last_look = Instant::now();
                match look(progress, callback.as_ref()) {
                    Ok(false) => ControlFlow::Continue(()),
                    Ok(true) => ControlFlow::Break(()),
                    Err(e) => {
                        error = Some(e);
                        ControlFlow::Break(())
                    }
                }
            });
            Ok((outcome.map_err(sampler_exception)? == Outcome::Finished, error))
        })?
    }

    /// Returns the draws so far of a variable (C, S, …) or of a statistic (C, S).
    fn draws(&self, py: Python<'_>, name: &str) -> PyResult<NumbersD> {
        let draws = self.with(py, |inner| inner.run.draws(name))?;
        let draws = draws.ok_or_else(|| PyValueError::new_err(format!("no variable has the name '{name}'")))?;
        Ok(NumPy(draws))
    }

    fn names(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<&'static str>)> {
        self.with(py, |inner| {
            let variables = inner.model.variables().into_iter().map(|v| v.name).collect();
            (variables, inner.run.settings().sampler.statistics().to_vec())
        })
    }

    /// Returns a table as text, the reasons to distrust the draws, and a row of numbers for each parameter.
    #[allow(clippy::type_complexity)] // A tuple in Python.
    fn summary(&self, py: Python<'_>) -> PyResult<(String, Vec<String>, Vec<(String, Vec<f64>)>)> {
        let summary = self.with(py, |inner| inner.run.summary())?;
        let row = |r: &gaussmix::mcmc::Row| {
            let numbers = vec![r.mean, r.mcse, r.std, r.q5, r.median, r.q95, r.ess_bulk, r.ess_tail, r.r_hat];
            (r.name.clone(), numbers)
        };
        Ok((summary.to_string(), summary.warnings(), summary.rows.iter().map(row).collect()))
    }

    fn set_draws(&self, py: Python<'_>, draws: usize) -> PyResult<()> {
        self.with(py, |inner| {
            check_draws(&inner.model, inner.run.settings(), draws)?;
            inner.run.set_draws(draws).map_err(sampler_exception)
        })?
    }

    /// Writes the files of the command `gmm mcmc`.
    #[pyo3(signature = (prefix, overwrite=false))]
    fn save(&self, py: Python<'_>, prefix: PathBuf, overwrite: bool) -> PyResult<Vec<PathBuf>> {
        self.with(py, |inner| {
            check_outputs(&prefix, inner.run.settings().chains, overwrite).map_err(sampler_exception)?;
            inner.run.save(&prefix).map_err(sampler_exception)
        })?
    }
}

fn begin(
    samples: Samples<'static>,
    options: &ChainOptions,
    init: Option<gaussmix::model::Mixture>,
    resume: Option<PathBuf>,
) -> PyResult<Inner> {
    let device: Device = options.device.parse().map_err(exception)?;
    let covariance_type: gaussmix::model::CovarianceType = options.covariance_type.parse().map_err(exception)?;
    let prior = options.prior.as_deref().map(Prior::from_json).transpose().map_err(sampler_exception)?;
    let summary = DataSummary::new(&samples);
    let model =
        PosteriorModel::new(options.n_components, covariance_type, &prior.unwrap_or_default(), options.order, &summary)
            .map_err(sampler_exception)?;
    let settings = options.settings(&model)?;
    let load = LoadOptions::new().float64(options.float64).threads(options.threads);
    let mut evaluator = gaussmix::device::load(device, samples, &load).map_err(exception)?;
    evaluator.sampling().into_iter().for_each(|sampling| sampling.settle());
    if let Some(prefix) = resume {
        let saved = Saved::load(&prefix).map_err(sampler_exception)?;
        let made = saved.run().settings().clone().draws(settings.draws);
        if made != settings {
            return Err(PyValueError::new_err(format!(
                "{}: belongs to a run with other settings; give the same settings (the number of draws may be larger)",
                prefix.display()
            )));
        }
        let mut posterior = Posterior::new(&model, evaluator.as_mut()).map_err(sampler_exception)?;
        let mut run = saved.resume(&mut posterior).map_err(sampler_exception)?;
        run.set_draws(settings.draws).map_err(sampler_exception)?;
        return Ok(Inner { model, evaluator, run, _of_noise: Vec::new() });
    }
    let start = match init {
        Some(mixture) => mixture,
        None => {
            let params = GaussianMixtureParams::new(options.n_components)
                .covariance_type(covariance_type)
                .reg_covar(summary.reg_covar())
                .n_init(FITS)
                .random_state(options.seed);
            params.fit(evaluator.as_mut()).map_err(exception)?.mixture
        }
    };
    let start = Start::around(&model, &start, &settings).map_err(sampler_exception)?;
    let mut posterior = Posterior::new(&model, evaluator.as_mut()).map_err(sampler_exception)?;
    let run = mcmc::Chains::new(settings, start, &mut posterior).map_err(sampler_exception)?;
    Ok(Inner { model, evaluator, run, _of_noise: Vec::new() })
}

/// Checks for signals, and calls the callback with the progress of the run. Returns whether to end the run.
fn look(progress: &Progress<'_>, callback: Option<&Py<PyAny>>) -> PyResult<bool> {
    Python::attach(|py| {
        py.check_signals()?;
        let Some(callback) = callback else { return Ok(false) };
        let p = progress;
        callback.call1(py, (p.warming_up, p.done, p.of, p.acceptance, p.divergences))?.bind(py).is_truthy()
    })
}
