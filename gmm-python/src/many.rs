//! Many fits in one call.
use crate::arrays::{self, Matrix};
use crate::errors::{exception, file_exception};
use crate::fit::{OfPython, ToPython, fitting, is_variational};
use crate::fits::{Failure, Fits, Model, all, sets};
use crate::start::clusters;
use crate::threads::compute_beside;
use gaussmix::Error;
use gaussmix::data::{Samples, View};
use gaussmix::fit::{Checked, Em, Fitting, ManyStarts, RunStart, Variational, Watch, fit_many as fit_to_each};
use gaussmix::io::{FitLog, Identity};
use gaussmix::mcmc::{Fingerprint, fingerprint};
use gaussmix::model::CovarianceType;
use ndarray::Array1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two checks for Ctrl-C, and between two calls of `progress`.
const LOOK: Duration = Duration::from_millis(50);

/// The runs of a fit, by Python's random numbers with which they begin.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Runs {
    /// The uniform numbers for scikit-learn's k-means in each run.
    uniforms: Vec<Vec<f64>>,
    /// The seed of the engine's start in each run.
    seeds: Vec<u64>,
    /// Sets with at most this many samples, or at most this many numbers, get scikit-learn's start, unless values are
    /// missing.
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

/// The runs shared by all fits, or those of each fit.
struct Starts<'a> {
    runs: &'a [Runs],
    /// K and the covariance type of all fits, or of each fit.
    shapes: Vec<(usize, CovarianceType)>,
}

impl Starts<'_> {
    fn of(&self, set: usize) -> &Runs {
        &self.runs[set.min(self.runs.len() - 1)]
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Checkpoint {
    path: PathBuf,
    names: Vec<String>,
}

/// Watches many fits, and writes finished runs to a checkpoint, if any.
struct Ended<M> {
    log: Option<(FitLog, Vec<String>)>,
    /// The runs in the checkpoint, by the name of their set and their number.
    known: HashMap<(String, usize), gaussmix::fit::Fit<M>>,
    /// The reason why the first unwritten run could not be written.
    error: Mutex<Option<PyErr>>,
    warning: Mutex<Option<String>>,
    n_runs: usize,
    /// Receives a message for each run.
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
            let rows: Array1<f64> = ranges.iter().flat_map(|(begin, end)| [*begin as f64, *end as f64]).collect();
            let options = Identity::of(options).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let data = Identity::default()
                .with("X", fingerprint(samples))
                .with("the rows of the groups", Fingerprint::of_numbers(rows.view()));
            let (file, ended) = FitLog::open(path, &data.and(options)).map_err(file_exception)?;
            known = ended.into_iter().map(|(set, fit): (_, gaussmix::fit::Fit<M>)| ((set, fit.run), fit)).collect();
            log = Some((file, names));
        }
        let (error, warning) = (Mutex::new(None), Mutex::new(None));
        Ok(Self { log, known, n_runs, error, warning, ended: Mutex::new(ended), stop: AtomicBool::new(false) })
    }

    /// A failure of the other thread leaves no receiver, which is harmless.
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

    fn slowed(&self, error: &gaussmix::Error) {
        let warning = format!("{error}; the GPU makes small fits one by one, which takes longer");
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Fits to sets of rows of an array. There is one of `options` and of `runs` for each set, or one for all. `progress`
/// is called from time to time with the number of finished runs. Runs in the file of `checkpoint` are taken from it,
/// the others added to it.
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
                return Err(PyValueError::new_err(
                    "expected options and runs for each set, or one of each for all sets",
                ));
            }
        }
        let shapes = fittings.iter().map(|of| (of.options.n_components, of.options.covariance_type.form())).collect();
        let starts = Starts { runs: &runs, shapes };
        let (k, covariance_type) = starts.shapes[0];
        let samples = all(x, weights, missing).map_err(exception)?;
        let sets = sets(&samples, &ranges).map_err(exception)?;
        let (ended, receiver) = channel();
        let fitting = |set: usize| &fittings[set.min(fittings.len() - 1)];
        let n_runs = (0..sets.len()).map(|set| fitting(set).n_runs()).sum();
        let watch = Ended::<M::Model>::new(checkpoint, &samples, &ranges, &*fittings[0], (n_runs, ended))?;
        // The closed channel tells the receiver that everything has ended.
        let work = || {
            let fits = fit_to_each(&sets, &fitting, &starts, &watch);
            let (closed, _) = channel();
            *watch.ended.lock().unwrap_or_else(PoisonError::into_inner) = closed;
            fits
        };
        let wait = || watch.wait(receiver, progress);
        let (fits, error) = compute_beside(py, threads, work, wait)?;
        if let Some(warning) = watch.warning.into_inner().unwrap_or_else(PoisonError::into_inner) {
            py.import("gaussmix._warnings")?.call_method1("warn", (warning,))?;
        }
        let of_checkpoint = watch.error.into_inner().unwrap_or_else(PoisonError::into_inner);
        let fits = fits.into_iter().map(|fit| fit.map(|fit| fit.map(Model::from)).map_err(Failure::from)).collect();
        Ok(Fits { fits, shape: (k, d, covariance_type), error: error.or(of_checkpoint) })
    }
}

impl<M> Ended<M> {
    /// Waits for all runs, checks for Ctrl-C, and calls `progress` with the number of finished runs. Returns the
    /// exception that ended them early.
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
