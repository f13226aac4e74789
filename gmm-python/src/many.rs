//! Many fits in one call.
use crate::arrays::{self, Matrix};
use crate::data::checked;
use crate::errors::{exception, file_exception};
use crate::fit::{Fit, OfPython, ToPython, fitting, is_variational};
use crate::start::clusters;
use crate::threads::compute_beside;
use gaussmix::Error;
use gaussmix::data::{Samples, View};
use gaussmix::device::Device;
use gaussmix::evaluator::{Evaluator, evaluate_each};
use gaussmix::fit::{
    Checked, Em, FittedModel as _, Fitting, ManyStarts, Regularized, RunStart, Variational, Watch,
    fit_many as fit_to_each,
};
use gaussmix::io::{FitLog, Identity};
use gaussmix::mcmc::fingerprint;
use gaussmix::model::CovarianceType;
use ndarray::{Array1, ArrayView1, Axis};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
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
            Self::Mixture(mixture) => mixture.log_factor(),
            Self::Variational(mixture) => mixture.log_factor(),
        }
    }

    fn weights(&self) -> Array1<f64> {
        match self {
            Self::Mixture(mixture) => mixture.weights().to_owned(),
            Self::Variational(mixture) => mixture.weights(),
        }
    }

    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Mixture(mixture) => mixture.to_python(py),
            Self::Variational(mixture) => mixture.to_python(py),
        }
    }
}

impl From<gaussmix::model::Mixture> for Model {
    fn from(mixture: gaussmix::model::Mixture) -> Self {
        Self::Mixture(Box::new(mixture))
    }
}

impl From<gaussmix::model::VariationalMixture> for Model {
    fn from(mixture: gaussmix::model::VariationalMixture) -> Self {
        Self::Variational(Box::new(mixture))
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

impl<M> ManyStarts<M> for Starts<'_> {
    fn seed(&self, set: usize, run: usize) -> Option<(u64, u64)> {
        Some((self.of(set).seeds[run], 0))
    }

    fn start(&self, set: usize, run: usize, samples: &Samples<'_>) -> gaussmix::Result<Option<RunStart<M>>> {
        let (n, runs) = (samples.n_samples(), self.of(set));
        let (most_samples, most_numbers) = runs.own_start;
        if samples.missing().is_some() || n > most_samples && n * samples.n_features() > most_numbers {
            return Ok(None);
        }
        let (k, covariance_type) = self.shapes[set.min(self.shapes.len() - 1)];
        let weighted = samples.weights().map_or(n, |weights| weights.iter().filter(|w| **w > 0.0).count());
        if weighted < k && n >= k {
            return Err(Error::TooFewWeightedSamples { n_samples: weighted, n_components: k });
        }
        let (clusters, _) = clusters(samples.view(), samples.weights(), k, covariance_type, &runs.uniforms[run])?;
        Ok(Some(RunStart::Statistics(clusters)))
    }
}

/// The runs of all fits, or those that each of them has.
struct Starts<'a> {
    runs: &'a [Runs],
    /// K and the covariance type of all fits, or of each.
    shapes: Vec<(usize, CovarianceType)>,
}

impl Starts<'_> {
    fn of(&self, set: usize) -> &Runs {
        &self.runs[set.min(self.runs.len() - 1)]
    }
}

/// A file to which the runs go that have ended.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Checkpoint {
    path: PathBuf,
    /// The name of each set.
    names: Vec<String>,
}

/// Watches many fits, and writes the runs that have ended to a checkpoint, if there is one.
struct Ended<M> {
    log: Option<(FitLog, Vec<String>)>,
    /// The runs that the checkpoint had, by the name of their set and their number there.
    known: HashMap<(String, usize), gaussmix::fit::Fit<M>>,
    /// Why the first run that could not be written was not.
    error: Mutex<Option<PyErr>>,
    /// How many there are.
    n_runs: usize,
    /// Is told of each run.
    ended: Mutex<Sender<()>>,
    stop: AtomicBool,
}

impl<M: ToPython + Clone + Serialize + for<'de> Deserialize<'de>> Ended<M> {
    fn new(
        checkpoint: Option<Checkpoint>,
        samples: &Samples<'_>,
        ranges: &[(usize, usize)],
        options: &impl Serialize,
        (n_runs, ended): (usize, Sender<()>),
    ) -> PyResult<Self> {
        let (mut log, mut known) = (None, HashMap::new());
        if let Some(Checkpoint { path, names }) = checkpoint {
            let rows: Vec<f64> = ranges.iter().flat_map(|(begin, end)| [*begin as f64, *end as f64]).collect();
            let rows = Samples::from_f64(ArrayView1::from(&rows).insert_axis(Axis(1))).map_err(exception)?;
            let options = Identity::of(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let data =
                Identity::default().with("X", fingerprint(samples)).with("the rows of the groups", fingerprint(&rows));
            let (file, ended) = FitLog::open(path, &data.and(options)).map_err(file_exception)?;
            known = ended.into_iter().map(|(set, fit): (_, gaussmix::fit::Fit<M>)| ((set, fit.run), fit)).collect();
            log = Some((file, names));
        }
        Ok(Self { log, known, n_runs, error: Mutex::new(None), ended: Mutex::new(ended), stop: AtomicBool::new(false) })
    }

    /// Nobody waits any more where the other thread has failed.
    fn count(&self) {
        drop(self.ended.lock().map(|ended| ended.send(())));
    }
}

impl<M: ToPython + Clone + Serialize + for<'de> Deserialize<'de>> Watch<M> for Ended<M> {
    fn known(&self, set: usize, run: usize) -> Option<gaussmix::fit::Fit<M>> {
        let (_, names) = self.log.as_ref()?;
        let known = self.known.get(&(names.get(set)?.clone(), run)).cloned();
        known.iter().for_each(|_| self.count());
        known
    }

    fn ended(&self, set: usize, fit: &gaussmix::Result<gaussmix::fit::Fit<M>>) {
        self.count();
        let (Some((log, names)), Ok(fit)) = (&self.log, fit) else { return };
        if let Err(error) = names.get(set).map_or(Ok(()), |name| log.add(name, fit)) {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(file_exception(error));
        }
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Fits to each of some sets of rows of an array. There is one of `options` and of `runs` for each set,
/// or one for all. `progress` is called with the number of runs that have ended, now and then. Runs
/// that are in the file of `checkpoint` are taken from it, the others added to it.
#[pyfunction]
#[pyo3(signature = (x, ranges, sample_weight, options, runs, threads=None, missing=false, progress=None, checkpoint=None))]
#[allow(clippy::too_many_arguments)] // They are named in Python.
pub fn fit_many(
    x: &Bound<'_, PyAny>,
    ranges: Vec<(usize, usize)>,
    sample_weight: Option<&Bound<'_, PyAny>>,
    options: Vec<Bound<'_, PyDict>>,
    runs: Vec<Runs>,
    threads: Option<usize>,
    missing: bool,
    progress: Option<Py<PyAny>>,
    checkpoint: Option<Checkpoint>,
) -> PyResult<Fits> {
    let Some(first) = options.first() else { return Err(PyValueError::new_err("there is nothing to fit")) };
    let many = Many { x, ranges, sample_weight, options: &options, runs, threads, missing, progress, checkpoint };
    if is_variational(first)? { many.fit::<Variational>() } else { many.fit::<Em>() }
}

/// What many fits are made of.
struct Many<'a, 'py> {
    x: &'a Bound<'py, PyAny>,
    ranges: Vec<(usize, usize)>,
    sample_weight: Option<&'a Bound<'py, PyAny>>,
    options: &'a [Bound<'py, PyDict>],
    runs: Vec<Runs>,
    threads: Option<usize>,
    missing: bool,
    progress: Option<Py<PyAny>>,
    checkpoint: Option<Checkpoint>,
}

impl Many<'_, '_> {
    fn fit<M: OfPython>(self) -> PyResult<Fits>
    where
        Model: From<M::Model>,
    {
        let Self { x, ranges, sample_weight, options, runs, threads, missing, progress, checkpoint } = self;
        let py = x.py();
        let weights = sample_weight.map(|w| arrays::vector("sample_weight", w)).transpose()?;
        let matrix = Matrix::new(x)?;
        let x = matrix.view();
        let d = match x {
            View::F32(x) => x.ncols(),
            View::F64(x) => x.ncols(),
        };
        let check = |options: &Bound<'_, PyDict>| fitting::<M>(options)?.check().map_err(exception);
        let fittings: Vec<Checked<Fitting<M>>> = options.iter().map(check).collect::<PyResult<_>>()?;
        for given in [fittings.len(), runs.len()] {
            if given != 1 && given != ranges.len() {
                return Err(PyValueError::new_err("there must be options and runs for each set, or one for all"));
            }
        }
        let shapes = fittings.iter().map(|of| (of.options.n_components, of.options.covariance_type)).collect();
        let starts = Starts { runs: &runs, shapes };
        let (k, covariance_type) = starts.shapes[0];
        let samples = all(x, weights, missing).map_err(exception)?;
        let sets = sets(&samples, &ranges).map_err(exception)?;
        let (ended, receiver) = channel();
        let fitting = |set: usize| &fittings[set.min(fittings.len() - 1)];
        let n_runs = (0..sets.len()).map(|set| fitting(set).n_runs()).sum();
        let watch = Ended::<M::Model>::new(checkpoint, &samples, &ranges, &*fittings[0], (n_runs, ended))?;
        // The receiver learns from this that all has ended.
        let work = || {
            let fits = fit_to_each(&sets, &fitting, &starts, &watch);
            let (closed, _) = channel();
            *watch.ended.lock().unwrap_or_else(PoisonError::into_inner) = closed;
            fits
        };
        let wait = || watch.wait(receiver, progress);
        let (fits, error) = compute_beside(py, threads, work, wait)?;
        let of_checkpoint = watch.error.into_inner().unwrap_or_else(PoisonError::into_inner);
        let fits = fits.into_iter().map(|fit| fit.map(|fit| fit.map(Model::from)).map_err(Failure::from)).collect();
        Ok(Fits { fits, shape: (k, d, covariance_type), error: error.or(of_checkpoint) })
    }
}

impl<M> Ended<M> {
    /// Waits for all runs, with looks at whether Ctrl-C was pressed, and calls of `progress` with the
    /// number of runs that have ended. Gives what ended them early.
    fn wait(&self, receiver: Receiver<()>, progress: Option<Py<PyAny>>) -> Option<PyErr> {
        let (mut done, mut error, mut last_look) = (0, None, Instant::now());
        loop {
            let ended = receiver.recv_timeout(LOOK);
            done += usize::from(ended.is_ok());
            let over = ended == Err(RecvTimeoutError::Disconnected);
            if error.is_none() && (over || last_look.elapsed() >= LOOK) {
                let look = Python::attach(|py| {
                    py.check_signals()?;
                    progress.as_ref().map_or(Ok(()), |progress| progress.call1(py, (done, self.n_runs)).map(drop))
                });
                if let Err(raised) = look {
                    error = Some(raised);
                    self.stop.store(true, Ordering::Relaxed);
                }
                last_look = Instant::now();
            }
            if over {
                return error;
            }
        }
    }
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
            Some(Ok(fit)) => Fit::of(fit.clone(), |model| model.to_python(py)),
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
            let found = fit.as_ref().ok().map(|fit| (fit.mixture.weights(), fit.mixture.density()));
            let found = found.as_ref();
            fill(&mut weights, found.map(|f| f.0.iter().copied()).as_mut().map(|v| v as _), k);
            fill(&mut means, found.map(|f| f.1.means().into_iter().copied()).as_mut().map(|v| v as _), k * d);
            let size = shape.iter().product();
            fill(&mut covariances, found.map(|f| f.1.covariances().iter()).as_mut().map(|v| v as _), size);
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
