//! Fits by EM or by variational inference, with starts, signals and callbacks of Python.
use crate::arrays::{self, NumPy};
use crate::errors::exception;
use crate::mixture::Mixture;
use crate::standard::Standardization;
use crate::statistics::Statistics;
use crate::variational::VariationalMixture;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::{Em, FitOptions, FittedModel, Fitting, Iteration, MapPrior, Method, RunStart, Starts, Variational};
use gaussmix::model::{CovarianceType, Covariances};
use gaussmix::{Error, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

type Units = gaussmix::fit::Standardization;

/// The least time between two checks for Ctrl-C: a check needs the GIL, which other threads may hold.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the names of the options of a fit: those of all fits, and those of each method.
#[pyfunction]
pub fn option_names() -> (Vec<&'static str>, Vec<&'static str>, Vec<&'static str>) {
    (FitOptions::NAMES.to_vec(), Em::NAMES.to_vec(), Variational::NAMES.to_vec())
}

pub trait OfPython: Method<Model: ToPython + Serialize + DeserializeOwned> + Serialize + DeserializeOwned {
    const NAMES: &[&str];

    fn with_arrays(fitting: Fitting<Self>, arrays: &Arrays<'_>) -> PyResult<Fitting<Self>>;
}

pub struct Arrays<'py> {
    given: Bound<'py, PyDict>,
    covariance_type: CovarianceType,
}

impl<'py> Arrays<'py> {
    fn get(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.given.get_item(name)?.filter(|value| !value.is_none()))
    }

    /// Returns covariances of K components in the covariance type's shape.
    fn covariances(&self, name: &str, k: usize) -> PyResult<Option<Covariances>> {
        let Some(given) = self.get(name)? else { return Ok(None) };
        let numbers = arrays::numbers(&given)?;
        let d = numbers.shape().last().copied().unwrap_or(1);
        arrays::covariances(self.covariance_type, k, d, numbers).map(Some)
    }
}

impl OfPython for Em {
    const NAMES: &[&str] = Em::NAMES;

    fn with_arrays(fitting: Fitting<Self>, arrays: &Arrays<'_>) -> PyResult<Fitting<Self>> {
        let k = fitting.options.n_components;
        let prior = fitting.method.prior.clone().map(|prior| -> PyResult<MapPrior> {
            let mean = arrays.get("prior_mean")?.map(|mean| arrays::matrix("the prior's mean", &mean)).transpose()?;
            Ok(MapPrior { mean, covariance: arrays.covariances("prior_covariance", 1)?, ..prior })
        });
        let vector = |name| arrays.get(name)?.map(|given| arrays::vector(name, &given)).transpose();
        let means = arrays.get("means_init")?.map(|given| arrays::matrix("means_init", &given)).transpose()?;
        let fitting = fitting.prior(prior.transpose()?).weights_init(vector("weights_init")?).means_init(means);
        Ok(fitting.precisions_init(arrays.covariances("precisions_init", k)?))
    }
}

impl OfPython for Variational {
    const NAMES: &[&str] = Variational::NAMES;

    fn with_arrays(fitting: Fitting<Self>, arrays: &Arrays<'_>) -> PyResult<Fitting<Self>> {
        let mean = arrays.get("mean_prior")?.map(|mean| arrays::vector("mean_prior", &mean)).transpose()?;
        Ok(fitting.mean_prior(mean).covariance_prior(arrays.covariances("covariance_prior", 1)?))
    }
}

pub fn is_variational(options: &Bound<'_, PyDict>) -> PyResult<bool> {
    options.contains("weight_concentration_prior_type")
}

/// Returns the fit that options describe: numbers and texts by their names, and a dict `arrays`.
pub fn fitting<M: OfPython>(options: &Bound<'_, PyDict>) -> PyResult<Fitting<M>> {
    let options = options.copy()?;
    let arrays = options.get_item("arrays")?.map(|arrays| arrays.cast_into::<PyDict>()).transpose()?;
    options.del_item("arrays")?;
    for name in options.keys() {
        let name: String = name.extract()?;
        if !FitOptions::NAMES.iter().chain(<M as OfPython>::NAMES).any(|known| *known == name) {
            return Err(PyTypeError::new_err(format!("a fit has no option {name}")));
        }
    }
    let fitting: Fitting<M> =
        pythonize::depythonize(&options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let covariance_type = fitting.options.covariance_type.form();
    let given = arrays.unwrap_or_else(|| PyDict::new(options.py()));
    M::with_arrays(fitting, &Arrays { given, covariance_type })
}

pub trait ToPython: FittedModel {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    fn of_python(given: &Bound<'_, PyAny>) -> PyResult<Self>;
}

impl ToPython for gaussmix::model::Mixture {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Mixture::from(self.clone()))?.into_any())
    }

    fn of_python(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(given.cast::<Mixture>()?.get().0.clone())
    }
}

impl ToPython for gaussmix::model::VariationalMixture {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, VariationalMixture(self.clone()))?.into_any())
    }

    fn of_python(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(given.cast::<VariationalMixture>()?.get().0.clone())
    }
}

#[pyclass(frozen, module = "gaussmix._core")]
pub struct Fit {
    mixture: Py<PyAny>,
    lower_bounds: Vec<f64>,
    converged: bool,
    stopped: bool,
    retained: Vec<usize>,
    error: Option<PyErr>,
}

impl Fit {
    pub fn of<M>(fit: gaussmix::fit::Fit<M>, to_python: impl FnOnce(&M) -> PyResult<Py<PyAny>>) -> PyResult<Self> {
        let mixture = to_python(&fit.mixture)?;
        let gaussmix::fit::Fit { lower_bounds, converged, stopped, retained, .. } = fit;
        Ok(Self { mixture, lower_bounds, converged, stopped, retained, error: None })
    }
}

#[pymethods]
impl Fit {
    #[getter]
    fn mixture(&self, py: Python<'_>) -> Py<PyAny> {
        self.mixture.clone_ref(py)
    }

    #[getter]
    fn lower_bounds(&self) -> NumPy<Vec<f64>> {
        NumPy(self.lower_bounds.to_owned())
    }

    #[getter]
    fn converged(&self) -> bool {
        self.converged
    }

    #[getter]
    fn stopped(&self) -> bool {
        self.stopped
    }

    #[getter]
    fn retained(&self) -> Vec<usize> {
        self.retained.clone()
    }

    /// Returns the exception that ended the fit: of the callback, or KeyboardInterrupt.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.error.as_ref().map(|error| error.clone_ref(py))
    }

    /// Converts a fit by EM from standardised samples to the samples themselves.
    fn restored(&self, py: Python<'_>, units: &Standardization) -> PyResult<Self> {
        let mixture = gaussmix::model::Mixture::of_python(self.mixture.bind(py))?;
        let mixture = units.0.restore(&mixture).map_err(exception)?.to_python(py)?;
        let lower_bounds = self.lower_bounds.iter().map(|bound| bound - units.0.log_scale()).collect();
        let Self { converged, stopped, .. } = *self;
        Ok(Self { mixture, lower_bounds, converged, stopped, retained: self.retained.clone(), error: self.error(py) })
    }
}

/// Fits to the evaluator's samples. Call it without the GIL.
///
/// `course`, if any, has the methods `begin(run)`, `start(run)` (returns a seed, a mixture or posterior with the
/// addition to its first lower bound, or statistics), `end(lower_bound, converged)`, and `callback()`, which returns
/// None or a function to call after each iteration. A fit continues at `before`, with its last lower bound. If the
/// samples are in standardised `units`, the fit and its reports are in the units of the data, and so are given
/// parameters and `before`; starts are not.
pub fn run<M: OfPython>(
    evaluator: &mut dyn Evaluator,
    fitting: Fitting<M>,
    course: Option<&Py<PyAny>>,
    before: Option<(M::Model, Option<f64>)>,
    units: Option<&Units>,
) -> PyResult<Fit> {
    let fitting = match before {
        None => fitting,
        Some((model, lower_bound)) => {
            let mut before = gaussmix::fit::Fit::new(model);
            before.lower_bounds.extend(lower_bound);
            let standardized = units.map(|units| units.standardize_fit(&before, fitting.options.covariance_type));
            fitting.warm_start(&standardized.transpose().map_err(exception)?.unwrap_or(before))
        }
    };
    let fitting = in_units(fitting, units)?.check().map_err(exception)?;
    let mut watch = Watch { callback: None, error: None, last_look: Instant::now(), units };
    let fit = match course {
        None => fitting.fit_with(evaluator, &mut |iteration| watch.after(iteration)),
        Some(course) => {
            let (course, callback) = Python::attach(|py| {
                let callback = course.call_method0(py, "callback")?;
                Ok::<_, PyErr>((course.clone_ref(py), (!callback.is_none(py)).then_some(callback)))
            })?;
            watch.callback = callback;
            let mut starts = PythonStarts { course, seed_of_turns: fitting.options.halving.then_some(None), units };
            fitting.fit_from(evaluator, &mut starts, &mut |iteration| watch.after(iteration))
        }
    };
    let fit = fit.and_then(|fit| units.map_or(Ok(fit.clone()), |units| units.restore_fit(&fit)));
    let fit = Fit::of(fit.map_err(exception)?, |mixture| Python::attach(|py| mixture.to_python(py)))?;
    Ok(Fit { error: watch.error, ..fit })
}

/// Returns the fit with given parameters converted from the units of the data.
pub fn in_units<M: OfPython>(fitting: Fitting<M>, units: Option<&Units>) -> PyResult<Fitting<M>> {
    units.map_or(Ok(fitting.clone()), |units| fitting.standardized(units)).map_err(exception)
}

/// Returns the decrease of a lower bound in the units of the data.
fn shift<M: ToPython>(model: &M, units: Option<&Units>) -> f64 {
    units.map_or(0.0, |units| model.lower_bound_shift(units))
}

struct PythonStarts<'a> {
    course: Py<PyAny>,
    units: Option<&'a Units>,
    /// For runs that take turns: the seed of which each has a stream.
    seed_of_turns: Option<Option<u64>>,
}

impl PythonStarts<'_> {
    fn ask<M: ToPython>(&self, run: usize) -> PyResult<RunStart<M>> {
        Python::attach(|py| {
            let given = self.course.call_method1(py, "start", (run,))?.into_bound(py);
            if let Ok(seed) = given.extract::<u64>() {
                return Ok(RunStart::Seed(seed, 0));
            }
            if let Ok(statistics) = given.cast::<Statistics>() {
                return Ok(RunStart::Statistics(statistics.get().0.clone()));
            }
            let (model, shift): (Bound<'_, PyAny>, f64) = given.extract()?;
            Ok(RunStart::At(M::of_python(&model)?, shift))
        })
    }

    fn tell(&self, method: &str, arguments: impl for<'py> pyo3::call::PyCallArgs<'py>) {
        // Only printing can fail here, as in a closed notebook.
        let _ = Python::attach(|py| self.course.call_method1(py, method, arguments).map(drop));
    }
}

impl<M: ToPython> Starts<M> for PythonStarts<'_> {
    fn begin(&mut self, run: usize) {
        self.tell("begin", (run,));
    }

    fn start(&mut self, run: usize) -> Result<RunStart<M>> {
        if let Some(Some(seed)) = self.seed_of_turns {
            return Ok(RunStart::Seed(seed, run as u64));
        }
        let start = self.ask(run).map_err(|exception| Error::Load(Box::new(exception)))?;
        if let (Some(seed_of_turns), RunStart::Seed(seed, _)) = (&mut self.seed_of_turns, &start) {
            *seed_of_turns = Some(*seed);
        }
        Ok(start)
    }

    fn check(&mut self, run: usize) -> Result<()> {
        // A later run leaves the mixture of those before it, so its start ends first.
        let look = if run == 0 { Python::attach(|py| py.check_signals()) } else { Ok(()) };
        look.map_err(|exception| Error::Load(Box::new(exception)))
    }

    fn end(&mut self, fit: &gaussmix::fit::Fit<M>) {
        self.tell("end", (fit.lower_bound() - shift(&fit.mixture, self.units), fit.converged));
    }
}

struct Watch<'a> {
    callback: Option<Py<PyAny>>,
    units: Option<&'a Units>,
    error: Option<PyErr>,
    last_look: Instant,
}

impl Watch<'_> {
    fn after<M: ToPython>(&mut self, iteration: &Iteration<'_, M>) -> ControlFlow<()> {
        let due = self.last_look.elapsed() >= LOOK;
        if !due && self.callback.is_none() {
            return ControlFlow::Continue(());
        }
        let stop = Python::attach(|py| {
            if due {
                py.check_signals()?;
                self.last_look = Instant::now();
            }
            let Some(callback) = &self.callback else { return Ok(false) };
            let model = &iteration.fit.mixture;
            let (bound, change) = (iteration.lower_bound - shift(model, self.units), iteration.change);
            let mixture = match self.units {
                Some(units) => units.restore(model).map_err(exception)?.to_python(py)?,
                None => model.to_python(py)?,
            };
            let stop = callback.call1(py, (iteration.run, iteration.iteration, bound, change, mixture))?;
            stop.bind(py).is_truthy()
        });
        match stop {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => ControlFlow::Break(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}
