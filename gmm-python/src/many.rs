//! Many fits in one call.
use crate::arrays::{self, Matrix};
use crate::data::checked;
use crate::errors::{exception, file_exception};
use crate::fit::{Fit, FitOptions, ToPython, VariationalOptions, parameters, variational_parameters};
use crate::mixture::Mixture;
use crate::start::{clusters, mixture_of};
use crate::threads::compute_beside;
use crate::variational::VariationalMixture;
use gaussmix::Error;
use gaussmix::data::{Samples, View};
use gaussmix::device::Device;
use gaussmix::evaluator::{Evaluator, evaluate_each, evaluate_rest};
use gaussmix::fit::{BayesianGaussianMixtureValidParams, GaussianMixtureValidParams, Regularized, Run, fit_on_gpu};
use gaussmix::io::{FitLog, Identity};
use gaussmix::mcmc::fingerprint;
use gaussmix::model::{CovarianceType, Covariances};
use gaussmix::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1, Axis};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two looks at whether Ctrl-C was pressed, and between two calls of `progress`.
const LOOK: Duration = Duration::from_millis(50);

/// What a fit finds.
#[derive(Clone, Serialize, Deserialize)]
enum Model {
    Mixture(Box<gaussmix::model::Mixture>),
    Variational(Box<gaussmix::model::VariationalMixture>),
}

impl Model {
    fn density(&self) -> &gaussmix::model::Mixture {
        match self {
            Self::Mixture(mixture) => mixture,
            Self::Variational(mixture) => mixture.density(),
        }
    }

    /// What the log-densities of samples have beside those of the density, as scikit-learn counts.
    fn log_factor(&self) -> f64 {
        match self {
            Self::Mixture(_) => 0.0,
            Self::Variational(mixture) => mixture.log_total(),
        }
    }

    fn parameters(&self) -> (Array1<f64>, Array2<f64>, Covariances) {
        match self {
            Self::Mixture(mixture) => {
                (mixture.weights().to_owned(), mixture.means().to_owned(), mixture.covariances().clone())
            }
            Self::Variational(mixture) => {
                (mixture.weights(), mixture.means().to_owned(), mixture.covariances().clone())
            }
        }
    }
}

impl ToPython for Model {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Mixture(mixture) => Ok(Py::new(py, Mixture::from((**mixture).clone()))?.into_any()),
            Self::Variational(mixture) => Ok(Py::new(py, VariationalMixture((**mixture).clone()))?.into_any()),
        }
    }
}

type OneFit = gaussmix::fit::Fit<Model>;

/// What many fits have found, and what ended them early.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Fits {
    fits: Vec<Result<OneFit, Failure>>,
    shape: (usize, usize, CovarianceType),
    error: Option<PyErr>,
}

/// Why a fit failed.
struct Failure {
    text: String,
    exception: PyErr,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { text: error.to_string(), exception: exception(error) }
    }
}

/// The samples of an array.
fn all(x: View<'_>, weights: Option<Array1<f64>>, missing: bool) -> gaussmix::Result<Samples<'_>> {
    let samples = checked(x, missing)?;
    match weights {
        Some(weights) => samples.with_shared_weights(weights.into_shared()),
        None => Ok(samples),
    }
}

/// The sets of samples that lie in these rows, each from one row up to another. They may overlap.
fn sets<'a>(samples: &Samples<'a>, ranges: &[(usize, usize)]) -> gaussmix::Result<Vec<Samples<'a>>> {
    let n_samples = samples.n_samples();
    let set = |&(begin, end): &(usize, usize)| match (begin < end, end <= n_samples) {
        // The ranges of the columns are known of all samples.
        (true, true) if end - begin == n_samples => Ok(samples.clone()),
        (true, true) => Ok(samples.rows(begin..end)),
        (false, _) => Err(Error::EmptyData { rows: 0, columns: samples.n_features() }),
        (true, false) => Err(Error::NoSuchRow { row: end - 1, n_samples }),
    };
    ranges.iter().map(set).collect()
}

/// The runs that a fit has, by what they begin with: Python's random numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Runs {
    /// The uniform numbers of scikit-learn's k-means of each run.
    uniforms: Vec<Vec<f64>>,
    /// The seed of the engine's start of each run.
    seeds: Vec<u64>,
    /// A set of at most so many samples, or of at most so many numbers, has scikit-learn's start,
    /// unless values are missing.
    own_start: (usize, usize),
}

/// What a run begins with.
enum Start {
    /// The statistics of scikit-learn's clusters.
    Clusters(Box<Statistics>),
    /// The seed of the engine's start.
    Seed(u64),
}

impl Runs {
    fn start(
        &self,
        run: usize,
        set: &Samples<'_>,
        k: usize,
        covariance_type: CovarianceType,
    ) -> gaussmix::Result<Start> {
        let (n, (samples, numbers)) = (set.n_samples(), self.own_start);
        if set.missing().is_some() || n > samples && n * set.n_features() > numbers {
            return Ok(Start::Seed(self.seeds[run]));
        }
        let weighted = set.weights().map_or(n, |weights| weights.iter().filter(|w| **w > 0.0).count());
        if weighted < k && n >= k {
            return Err(Error::TooFewWeightedSamples { n_samples: weighted, n_components: k });
        }
        let (clusters, _) = clusters(set.view(), set.weights(), k, covariance_type, &self.uniforms[run])?;
        Ok(Start::Clusters(Box::new(clusters)))
    }
}

/// The parameters of a fit, by the keys that they have.
#[derive(FromPyObject)]
pub enum Options {
    Variational(VariationalOptions),
    Mixture(FitOptions),
}

/// The parameters of a fit, checked.
enum Params {
    Mixture(Box<GaussianMixtureValidParams>, f64),
    Variational(Box<BayesianGaussianMixtureValidParams>),
}

impl Params {
    fn new(py: Python<'_>, options: &Options, n_features: usize) -> PyResult<Self> {
        match options {
            Options::Mixture(options) => {
                let params = parameters(py, options, n_features, None)?.check().map_err(exception)?;
                Ok(Self::Mixture(Box::new(params), options.reg_covar))
            }
            Options::Variational(options) => {
                let params = variational_parameters(py, options, None)?.check().map_err(exception)?;
                Ok(Self::Variational(Box::new(params)))
            }
        }
    }

    fn n_components(&self) -> usize {
        match self {
            Self::Mixture(params, _) => params.n_components(),
            Self::Variational(params) => params.n_components(),
        }
    }

    fn covariance_type(&self) -> CovarianceType {
        match self {
            Self::Mixture(params, _) => params.covariance_type(),
            Self::Variational(params) => params.covariance_type(),
        }
    }

    fn work(&self, set: &Samples<'_>) -> f64 {
        match self {
            Self::Mixture(params, _) => params.work(set),
            Self::Variational(params) => params.work(set),
        }
    }

    /// The parameters of a fit by EM with this seed.
    fn seeded(&self, seed: u64) -> Option<GaussianMixtureValidParams> {
        match self {
            Self::Mixture(params, _) => (**params).clone().into_params().random_state(seed).check().ok(),
            Self::Variational(_) => None,
        }
    }

    /// A run, which is given up where `stop` says so.
    fn fit(&self, start: Start, evaluator: &mut dyn Evaluator, stop: &AtomicBool) -> gaussmix::Result<OneFit> {
        let next = || match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        match self {
            Self::Mixture(params, reg_covar) => {
                let params = (**params).clone().into_params();
                let params = match start {
                    Start::Seed(seed) => params.random_state(seed),
                    Start::Clusters(clusters) => params.start(mixture_of(&clusters, *reg_covar)?),
                };
                let fit = params.check()?.fit_with(evaluator, &mut |_| next())?;
                Ok(fit.map(|mixture| Model::Mixture(Box::new(mixture))))
            }
            Self::Variational(params) => {
                let params = (**params).clone().into_params();
                let params = match start {
                    Start::Seed(seed) => params.random_state(seed),
                    Start::Clusters(clusters) => params.start_statistics(*clusters),
                };
                let fit = params.check()?.fit_with(evaluator, &mut |_| next())?;
                Ok(fit.map(|mixture| Model::Variational(Box::new(mixture))))
            }
        }
    }
}

/// The runs that a GPU makes whole, from starts of its own; `None` stands for the others. Each run is
/// given by its set and its number there, and `of` gives what a set is fitted with.
fn on_gpu<'p>(
    device: Device,
    sets: &[Samples<'_>],
    of_run: &[(usize, usize)],
    of: impl Fn(usize) -> (&'p Params, &'p Runs),
    proceed: &dyn Fn() -> bool,
) -> Vec<Option<gaussmix::Result<OneFit>>> {
    if !matches!(device, Device::Cuda(_)) {
        return of_run.iter().map(|_| None).collect();
    }
    let seeded = of_run.iter().map(|&(set, run)| of(set).0.seeded(of(set).1.seeds[run])).collect::<Vec<_>>();
    let of_seeded = seeded.iter().zip(of_run);
    let runs: Vec<Run<'_>> =
        of_seeded.filter_map(|(params, (set, _))| Some(Run { params: params.as_ref()?, set: *set, run: 0 })).collect();
    let mut made = fit_on_gpu(device, sets, &runs, proceed).into_iter();
    let model = |fit: gaussmix::fit::Fit| Ok(fit.map(|mixture| Model::Mixture(Box::new(mixture))));
    seeded.iter().map(|params| params.as_ref().and_then(|_| made.next()?).map(model)).collect()
}

/// A file to which the runs go that have ended.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Checkpoint {
    path: PathBuf,
    /// The name of each set.
    names: Vec<String>,
    /// What the runs are made with, besides the samples.
    made_with: BTreeMap<String, String>,
}

/// The checkpoint of many fits, if there is one.
struct Checkpoints {
    log: Option<(FitLog, Vec<String>)>,
    /// The runs that it had, by the name of their set and their number there.
    known: HashMap<(String, usize), OneFit>,
    /// Why the first run that could not be written was not.
    error: Mutex<Option<PyErr>>,
}

impl Checkpoints {
    fn open(checkpoint: Option<Checkpoint>, samples: &Samples<'_>, ranges: &[(usize, usize)]) -> PyResult<Self> {
        let (mut log, mut known) = (None, HashMap::new());
        if let Some(Checkpoint { path, names, made_with }) = checkpoint {
            let rows: Vec<f64> = ranges.iter().flat_map(|(begin, end)| [*begin as f64, *end as f64]).collect();
            let rows = Samples::from_f64(ArrayView1::from(&rows).insert_axis(Axis(1))).map_err(exception)?;
            let data =
                Identity::default().with("X", fingerprint(samples)).with("the rows of the groups", fingerprint(&rows));
            let made_with = made_with.into_iter().fold(data, |all, (name, value)| all.with(&name, value));
            let (file, ended) = FitLog::open(path, &made_with).map_err(file_exception)?;
            known = ended.into_iter().map(|(set, fit): (_, OneFit)| ((set, fit.run), fit)).collect();
            log = Some((file, names));
        }
        Ok(Self { log, known, error: Mutex::new(None) })
    }

    fn known(&self, set: usize, run: usize) -> Option<OneFit> {
        let (_, names) = self.log.as_ref()?;
        self.known.get(&(names.get(set)?.clone(), run)).cloned()
    }

    /// Writes a run that has ended.
    fn add(&self, set: usize, run: usize, fit: &gaussmix::Result<OneFit>) {
        let (Some((log, names)), Ok(fit)) = (&self.log, fit) else { return };
        let mut fit = fit.clone();
        fit.run = run;
        if let Err(error) = names.get(set).map_or(Ok(()), |name| log.add(name, &fit)) {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(file_exception(error));
        }
    }
}

/// Of the runs of a fit the best, the first of equals; the error of the first that failed.
fn best(runs: Vec<gaussmix::Result<OneFit>>) -> gaussmix::Result<OneFit> {
    let mut best: Option<OneFit> = None;
    for (number, run) in runs.into_iter().enumerate() {
        let mut run = run?;
        run.run = number;
        if best.as_ref().is_none_or(|best| run.lower_bound() > best.lower_bound()) {
            best = Some(run);
        }
    }
    best.ok_or_else(|| Error::BadParameter { name: "n_init", value: "0".into(), remedy: "at least one run is needed" })
}

/// Fits to each of some sets of rows of an array. There is one of `options` and of `runs` for each set,
/// or one for all. `progress` is called with the number of runs that have ended, now and then. Runs
/// that are in the file of `checkpoint` are taken from it, the others added to it.
#[pyfunction]
#[pyo3(signature = (x, ranges, sample_weight, options, runs, device, threads=None, missing=false, progress=None, checkpoint=None))]
#[allow(clippy::too_many_arguments)] // They are named in Python.
pub fn fit_many(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    ranges: Vec<(usize, usize)>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    options: Vec<Options>,
    runs: Vec<Runs>,
    device: &str,
    threads: Option<usize>,
    missing: bool,
    progress: Option<Py<PyAny>>,
    checkpoint: Option<Checkpoint>,
) -> PyResult<Fits> {
    let device: Device = device.parse().map_err(exception)?;
    let weights = sample_weight.map(|w| arrays::vector("sample_weight", w)).transpose()?;
    let matrix = Matrix::new(x)?;
    let x = matrix.view();
    let d = match x {
        View::F32(x) => x.ncols(),
        View::F64(x) => x.ncols(),
    };
    let params: Vec<Params> = options.iter().map(|options| Params::new(py, options, d)).collect::<PyResult<_>>()?;
    for given in [params.len(), runs.len()] {
        if given != 1 && given != ranges.len() {
            return Err(PyValueError::new_err("there must be options and runs for each set, or one for all"));
        }
    }
    let of = |set: usize| (&params[set.min(params.len() - 1)], &runs[set.min(runs.len() - 1)]);
    let Some(shape) = params.first().map(|params| (params.n_components(), d, params.covariance_type())) else {
        return Err(PyValueError::new_err("there is nothing to fit"));
    };
    // Each run by itself.
    let of_run: Vec<(usize, usize)> =
        (0..ranges.len()).flat_map(|set| (0..of(set).1.uniforms.len()).map(move |run| (set, run))).collect();
    let stop = AtomicBool::new(false);
    let (ended, receiver) = channel();
    let ended = Mutex::new(ended);
    let (of_run, stop) = (&of_run, &stop);
    let work = move || {
        let all = all(x, weights, missing).map_err(exception)?;
        let sets = sets(&all, &ranges).map_err(exception)?;
        let checkpoints = Checkpoints::open(checkpoint, &all, &ranges)?;
        let mut made: Vec<_> = of_run.iter().map(|&(set, run)| checkpoints.known(set, run).map(Ok)).collect();
        let unknown: Vec<usize> = (0..made.len()).filter(|number| made[*number].is_none()).collect();
        let of_unknown: Vec<(usize, usize)> = unknown.iter().map(|number| of_run[*number]).collect();
        let of_gpu = on_gpu(device, &sets, &of_unknown, of, &|| !stop.load(Ordering::Relaxed));
        for (number, fit) in unknown.into_iter().zip(of_gpu) {
            let (set, run) = of_run[number];
            fit.iter().for_each(|fit| checkpoints.add(set, run, fit));
            made[number] = fit;
        }
        // Nobody waits any more where the other thread has failed.
        let count = || drop(ended.lock().map(|ended| ended.send(())));
        made.iter().flatten().for_each(|_| count());
        let samples: Vec<Samples<'_>> = of_run.iter().map(|(set, _)| sets[*set].clone()).collect();
        let work = |number: usize| of(of_run[number].0).0.work(&samples[number]);
        let mut fits = evaluate_rest(&samples, device, made, work, |number, open| {
            let (set, run) = of_run[number];
            let (params, runs) = of(set);
            let fit = || {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                let start = runs.start(run, &samples[number], params.n_components(), params.covariance_type())?;
                match params.fit(start, open()?.as_mut(), stop)? {
                    fit if fit.stopped => Err(Error::Stopped),
                    fit => Ok(fit),
                }
            };
            let fit = fit();
            checkpoints.add(set, run, &fit);
            count();
            fit
        })
        .into_iter();
        // All runs of a set are taken, also where one of them has failed.
        let mut runs = |set: usize| fits.by_ref().take(of(set).1.uniforms.len()).collect::<Vec<_>>();
        let fits: Vec<_> = (0..sets.len()).map(|set| best(runs(set))).collect();
        drop(ended);
        Ok((fits, checkpoints.error.into_inner().unwrap_or_else(PoisonError::into_inner)))
    };
    let wait = move || {
        let (mut done, mut error, mut last_look) = (0, None, Instant::now());
        loop {
            let ended = receiver.recv_timeout(LOOK);
            done += usize::from(ended.is_ok());
            let over = ended == Err(RecvTimeoutError::Disconnected);
            if error.is_none() && (over || last_look.elapsed() >= LOOK) {
                let look = Python::attach(|py| {
                    py.check_signals()?;
                    progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done,)).map(drop))
                });
                if let Err(raised) = look {
                    error = Some(raised);
                    stop.store(true, Ordering::Relaxed);
                }
                last_look = Instant::now();
            }
            if over {
                return error;
            }
        }
    };
    let (done, error): (PyResult<(Vec<gaussmix::Result<OneFit>>, _)>, _) = compute_beside(py, threads, work, wait)?;
    let (fits, of_checkpoint) = done?;
    let fits = fits.into_iter().map(|fit| fit.map_err(Failure::from)).collect();
    Ok(Fits { fits, shape, error: error.or(of_checkpoint) })
}

/// How many fits are pickled: they and what shape they have as JSON, and number, text and exception
/// of each that failed.
type Pickled<'py> = (String, Vec<(usize, String, Bound<'py, PyAny>)>);

#[pymethods]
impl Fits {
    #[new]
    fn new(json: &str, failures: Vec<(usize, String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let damaged = |problem: String| PyValueError::new_err(format!("the pickle of many fits is damaged: {problem}"));
        let (fits, shape): (Vec<Option<OneFit>>, _) =
            serde_json::from_str(json).map_err(|error| damaged(error.to_string()))?;
        let mut failed: HashMap<usize, Failure> = failures
            .into_iter()
            .map(|(number, text, exception)| (number, Failure { text, exception: PyErr::from_value(exception) }))
            .collect();
        let each = fits.into_iter().enumerate().map(|(number, fit)| match (fit, failed.remove(&number)) {
            (Some(fit), _) => Ok(Ok(fit)),
            (None, Some(failure)) => Ok(Err(failure)),
            (None, None) => Err(damaged(format!("fit {number} is missing"))),
        });
        Ok(Self { fits: each.collect::<PyResult<_>>()?, shape, error: None })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyType>, Pickled<'py>)> {
        let (py, this) = (slf.py(), slf.get());
        let made: Vec<Option<&OneFit>> = this.fits.iter().map(|fit| fit.as_ref().ok()).collect();
        let json =
            serde_json::to_string(&(made, this.shape)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let failed = this.fits.iter().enumerate().filter_map(|(number, fit)| Some((number, fit.as_ref().err()?)));
        let exception = |failure: &Failure| failure.exception.clone_ref(py).into_value(py).into_bound(py).into_any();
        let failures = failed.map(|(number, failure)| (number, failure.text.clone(), exception(failure))).collect();
        Ok((slf.get_type(), (json, failures)))
    }

    fn __len__(&self) -> usize {
        self.fits.len()
    }

    /// One of the fits; the exception that a fit of its set alone raises, if it failed.
    fn __getitem__(&self, py: Python<'_>, index: usize) -> PyResult<Fit> {
        match self.fits.get(index) {
            None => Err(PyIndexError::new_err("there is no such fit")),
            Some(Ok(fit)) => Fit::new(fit.clone(), None),
            Some(Err(failure)) => Err(failure.exception.clone_ref(py)),
        }
    }

    /// The exception that ended the fits early: of `progress`, or KeyboardInterrupt.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.error.as_ref().map(|error| error.clone_ref(py))
    }

    /// Why fits failed, by their numbers.
    #[getter]
    fn errors(&self) -> Vec<(usize, String)> {
        let failed = self.fits.iter().enumerate();
        failed.filter_map(|(i, fit)| fit.as_ref().err().map(|failure| (i, failure.text.clone()))).collect()
    }

    #[getter]
    fn converged<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<bool>> {
        self.each(py, |fit| fit.converged, false)
    }

    #[getter]
    fn n_iter<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.each(py, |fit| fit.n_iter() as i64, 0)
    }

    #[getter]
    fn lower_bound<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.each(py, |fit| fit.lower_bound(), f64::NAN)
    }

    /// A fit that found a column of which `reg_covar` is more than a thousandth of the variance; the
    /// column, and that variance.
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, usize, f64)> {
        self.fits.iter().enumerate().find_map(|(number, fit)| {
            let (column, variance) = match &fit.as_ref().ok()?.mixture {
                Model::Mixture(mixture) => mixture.over_regularized(reg_covar),
                Model::Variational(mixture) => mixture.over_regularized(reg_covar),
            }?;
            Some((number, column, variance))
        })
    }

    /// The weights (G, K), means (G, K, D) and covariances (G, …) of all fits, NaN for those that
    /// failed.
    #[allow(clippy::type_complexity)] // What Python gets as a tuple.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (k, d, t) = self.shape;
        let shape = t.shape(k, d);
        let (mut weights, mut means, mut covariances) = (Vec::new(), Vec::new(), Vec::new());
        let fill = |to: &mut Vec<f64>, values: Option<&mut dyn Iterator<Item = f64>>, n: usize| match values {
            Some(values) => to.extend(values),
            None => to.resize(to.len() + n, f64::NAN),
        };
        for fit in &self.fits {
            let found = fit.as_ref().ok().map(|fit| fit.mixture.parameters());
            let found = found.as_ref();
            fill(&mut weights, found.map(|f| f.0.iter().copied()).as_mut().map(|v| v as _), k);
            fill(&mut means, found.map(|f| f.1.iter().copied()).as_mut().map(|v| v as _), k * d);
            let size = shape.iter().product();
            fill(&mut covariances, found.map(|f| f.2.iter()).as_mut().map(|v| v as _), size);
        }
        let g = self.fits.len();
        let shaped =
            |numbers: Vec<f64>, shape: Vec<usize>| numbers.into_pyarray(py).reshape(shape).map(Bound::into_any);
        let of_covariances = [&[g][..], &shape].concat();
        Ok((shaped(weights, vec![g, k])?, shaped(means, vec![g, k, d])?, shaped(covariances, of_covariances)?))
    }

    /// The log-likelihood of each sample under the fit of its set, NaN where that failed.
    fn scores<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        sets: SetsOfFits,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        self.evaluate(py, x, sets, f64::NAN, |fit, evaluator| {
            let scores = evaluator.score_samples(fit.mixture.density())?;
            Ok((scores + fit.mixture.log_factor()).to_vec())
        })
    }

    /// The most probable component of each sample under the fit of its set, −1 where that failed.
    fn labels<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        sets: SetsOfFits,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        self.evaluate(py, x, sets, -1, |fit, evaluator| {
            let labels = evaluator.predict(fit.mixture.density())?;
            Ok(labels.into_iter().map(|label| label as i64).collect())
        })
    }
}

/// Which fits the samples of an array are evaluated with, and where.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SetsOfFits {
    /// The rows of each set, which follow each other.
    ranges: Vec<(usize, usize)>,
    /// The number of its fit.
    fits: Vec<usize>,
    device: String,
    threads: Option<usize>,
    missing: bool,
}

impl Fits {
    fn each<'py, T: numpy::Element + Clone>(
        &self,
        py: Python<'py>,
        of: impl Fn(&OneFit) -> T,
        failed: T,
    ) -> Bound<'py, PyArray1<T>> {
        let values: Vec<T> = self.fits.iter().map(|fit| fit.as_ref().map_or_else(|_| failed.clone(), &of)).collect();
        values.into_pyarray(py)
    }

    fn evaluate<'py, T: numpy::Element + Send + Sync + Copy>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        of: SetsOfFits,
        failed: T,
        evaluate: impl Fn(&OneFit, &mut dyn Evaluator) -> gaussmix::Result<Vec<T>> + Sync,
    ) -> PyResult<Bound<'py, PyArray1<T>>> {
        let device: Device = of.device.parse().map_err(exception)?;
        let matrix = Matrix::new(x)?;
        let x = matrix.view();
        let (k, d, t) = self.shape;
        let work = || {
            let sets = sets(&all(x, None, of.missing)?, &of.ranges)?;
            let work = |set: usize| (sets[set].n_samples() * t.multiply_adds(k, d)) as f64;
            let values = evaluate_each(&sets, device, work, |set, open| {
                match of.fits.get(set).and_then(|fit| self.fits.get(*fit)) {
                    Some(Ok(fit)) => evaluate(fit, open()?.as_mut()),
                    _ => Ok(vec![failed; sets[set].n_samples()]),
                }
            });
            let values: gaussmix::Result<Vec<Vec<T>>> = values.into_iter().collect();
            Ok(values?.concat())
        };
        let (values, ()): (gaussmix::Result<Vec<T>>, _) = compute_beside(py, of.threads, work, || ())?;
        Ok(values.map_err(exception)?.into_pyarray(py))
    }
}
