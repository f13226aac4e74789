//! A run of EM or of variational inference, with signals and callbacks of Python.
use crate::arrays;
use crate::errors::exception;
use crate::mixture::Mixture;
use crate::statistics::{Statistics, freeze};
use crate::variational::VariationalMixture;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::{BayesianGaussianMixtureParams, GaussianMixtureParams, Iteration, MapPrior};
use gaussmix::model::{CovarianceType, Covariances};
use numpy::{PyArray1, ToPyArray};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The least time between two looks at whether Ctrl-C was pressed: to look needs the GIL, which
/// other threads may hold.
const LOOK: Duration = Duration::from_millis(20);

/// The parameters of a run.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct FitOptions {
    n_components: usize,
    covariance_type: String,
    tol: f64,
    pub reg_covar: f64,
    max_iter: usize,
    /// Runs from starts of the engine; of one whose start is given there is one.
    n_init: usize,
    halving: bool,
    init_params: String,
    seed: u64,
    weights_init: Option<Py<PyAny>>,
    means_init: Option<Py<PyAny>>,
    precisions_init: Option<Py<PyAny>>,
    freeze: Vec<String>,
    prior: Option<PriorOptions>,
    /// Added to the first lower bound: the logarithm of the sum that the weights of scikit-learn's
    /// start have.
    shift: f64,
    /// The lower bound of the last iteration of an earlier fit that this one goes on with.
    last_lower_bound: Option<f64>,
}

/// A prior of EM, of which the defaults stand where nothing is given.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PriorOptions {
    weight_concentration: Option<f64>,
    mean_precision: Option<f64>,
    mean: Option<Py<PyAny>>,
    degrees_of_freedom: Option<f64>,
    /// In the shape that the covariances of one component have.
    covariance: Option<Py<PyAny>>,
}

impl PriorOptions {
    fn prior(&self, py: Python<'_>, covariance_type: CovarianceType, n_features: usize) -> PyResult<MapPrior> {
        let mut prior = MapPrior { degrees_of_freedom: self.degrees_of_freedom, ..MapPrior::default() };
        if let Some(value) = self.weight_concentration {
            prior.weight_concentration = value;
        }
        if let Some(value) = self.mean_precision {
            prior.mean_precision = value;
        }
        if let Some(mean) = &self.mean {
            prior.mean = Some(arrays::matrix("the prior's mean", mean.bind(py))?);
        }
        if let Some(covariance) = &self.covariance {
            let covariance = arrays::numbers(covariance.bind(py))?;
            prior.covariance = Some(arrays::covariances(covariance_type, 1, n_features, covariance)?);
        }
        Ok(prior)
    }
}

/// The parameters of a run of variational inference.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct VariationalOptions {
    n_components: usize,
    covariance_type: String,
    tol: f64,
    reg_covar: f64,
    max_iter: usize,
    n_init: usize,
    halving: bool,
    init_params: String,
    seed: u64,
    weight_concentration_prior_type: String,
    weight_concentration_prior: Option<f64>,
    mean_precision_prior: Option<f64>,
    mean_prior: Option<Py<PyAny>>,
    degrees_of_freedom_prior: Option<f64>,
    /// In the shape that the covariances of one component have.
    covariance_prior: Option<Py<PyAny>>,
    freeze: Vec<String>,
    last_lower_bound: Option<f64>,
}

/// Where a run of variational inference begins.
pub enum VariationalStart {
    Mixture(Box<gaussmix::model::VariationalMixture>),
    Statistics(Box<gaussmix::statistics::Statistics>),
}

impl VariationalStart {
    pub fn new(start: &Bound<'_, PyAny>) -> PyResult<Self> {
        match start.cast::<VariationalMixture>() {
            Ok(mixture) => Ok(Self::Mixture(Box::new(mixture.get().0.clone()))),
            Err(_) => Ok(Self::Statistics(Box::new(start.cast::<Statistics>()?.get().0.clone()))),
        }
    }
}

/// What a run gives.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Fit {
    mixture: Py<PyAny>,
    lower_bounds: Vec<f64>,
    converged: bool,
    stopped: bool,
    retained: Vec<usize>,
    error: Option<PyErr>,
}

/// What the mixtures of a fit are in Python.
pub trait ToPython {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl ToPython for gaussmix::model::Mixture {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Mixture::from(self.clone()))?.into_any())
    }
}

impl ToPython for gaussmix::model::VariationalMixture {
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, VariationalMixture(self.clone()))?.into_any())
    }
}

impl Fit {
    pub fn new<M: ToPython>(fit: gaussmix::fit::Fit<M>, error: Option<PyErr>) -> PyResult<Self> {
        let mixture = Python::attach(|py| fit.mixture.to_python(py))?;
        let gaussmix::fit::Fit { lower_bounds, converged, stopped, retained, .. } = fit;
        Ok(Self { mixture, lower_bounds, converged, stopped, retained, error })
    }
}

#[pymethods]
impl Fit {
    #[getter]
    fn mixture(&self, py: Python<'_>) -> Py<PyAny> {
        self.mixture.clone_ref(py)
    }

    #[getter]
    fn lower_bounds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.lower_bounds.to_pyarray(py)
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

    /// The exception that ended the fit: of the callback, or KeyboardInterrupt.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.error.as_ref().map(|error| error.clone_ref(py))
    }
}

/// Fits to the evaluator's samples. To be called without the GIL.
pub fn run(
    evaluator: &mut dyn Evaluator,
    options: FitOptions,
    start: Option<gaussmix::model::Mixture>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Fit> {
    let shift = options.shift;
    let params = Python::attach(|py| parameters(py, &options, evaluator.n_features(), start))?;
    let mut watch = Watch { callback, error: None, last_look: Instant::now() };
    let fit = |params: GaussianMixtureParams, evaluator: &mut dyn Evaluator, shift: f64, watch: &mut Watch| {
        let params = params.check().map_err(exception)?;
        params.fit_with(evaluator, &mut |iteration| watch.after(iteration, shift)).map_err(exception)
    };
    if shift == 0.0 || options.max_iter == 0 {
        let fit = fit(params, evaluator, 0.0, &mut watch)?;
        return Fit::new(fit, watch.error);
    }
    let mut first = fit(params.clone().max_iter(1), evaluator, shift, &mut watch)?;
    if let Some(bound) = first.lower_bounds.first_mut() {
        *bound += shift;
    }
    let fit = if first.stopped { first } else { fit(params.resume(first, None), evaluator, 0.0, &mut watch)? };
    Fit::new(fit, watch.error)
}

/// Fits to the evaluator's samples by variational inference. To be called without the GIL.
pub fn run_variational(
    evaluator: &mut dyn Evaluator,
    options: VariationalOptions,
    start: Option<VariationalStart>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Fit> {
    let params = Python::attach(|py| variational_parameters(py, &options, start))?;
    let params = params.check().map_err(exception)?;
    let mut watch = Watch { callback, error: None, last_look: Instant::now() };
    let fit = params.fit_with(evaluator, &mut |iteration| watch.after(iteration, 0.0)).map_err(exception)?;
    Fit::new(fit, watch.error)
}

/// The parameters that all kinds of fits have.
macro_rules! common_parameters {
    ($params:ident, $options:expr, $covariance_type:expr) => {
        $params::new($options.n_components)
            .covariance_type($covariance_type)
            .tol($options.tol)
            .reg_covar($options.reg_covar)
            .max_iter($options.max_iter)
            .n_init($options.n_init)
            .halving($options.halving)
            .init_params($options.init_params.parse().map_err(exception)?)
            .random_state($options.seed)
            .freeze(freeze(&$options.freeze)?)
    };
}

pub fn variational_parameters(
    py: Python<'_>,
    options: &VariationalOptions,
    start: Option<VariationalStart>,
) -> PyResult<BayesianGaussianMixtureParams> {
    let covariance_type = arrays::covariance_type(&options.covariance_type)?;
    let mut params = common_parameters!(BayesianGaussianMixtureParams, options, covariance_type)
        .weight_concentration_prior_type(options.weight_concentration_prior_type.parse().map_err(exception)?);
    if let Some(value) = options.weight_concentration_prior {
        params = params.weight_concentration_prior(value);
    }
    if let Some(value) = options.mean_precision_prior {
        params = params.mean_precision_prior(value);
    }
    if let Some(mean) = &options.mean_prior {
        params = params.mean_prior(arrays::vector("mean_prior", mean.bind(py))?);
    }
    if let Some(value) = options.degrees_of_freedom_prior {
        params = params.degrees_of_freedom_prior(value);
    }
    if let Some(covariance) = &options.covariance_prior {
        let covariance = arrays::numbers(covariance.bind(py))?;
        let d = covariance.shape().last().copied().unwrap_or(1);
        let shaped: PyResult<Covariances> = arrays::covariances(covariance_type, 1, d, covariance);
        params = params.covariance_prior(shaped?);
    }
    Ok(match start {
        None => params,
        Some(VariationalStart::Statistics(statistics)) => params.start_statistics(*statistics),
        Some(VariationalStart::Mixture(mixture)) => {
            let mut before = gaussmix::fit::Fit::new(*mixture);
            before.lower_bounds.extend(options.last_lower_bound);
            params.warm_start(&before)
        }
    })
}

pub fn parameters(
    py: Python<'_>,
    options: &FitOptions,
    n_features: usize,
    start: Option<gaussmix::model::Mixture>,
) -> PyResult<GaussianMixtureParams> {
    let covariance_type = arrays::covariance_type(&options.covariance_type)?;
    let mut params = common_parameters!(GaussianMixtureParams, options, covariance_type);
    if let Some(prior) = &options.prior {
        params = params.prior(prior.prior(py, covariance_type, n_features)?);
    }
    if let Some(start) = start {
        let mut before = gaussmix::fit::Fit::new(start);
        before.lower_bounds.extend(options.last_lower_bound);
        return Ok(params.warm_start(&before));
    }
    if let Some(weights) = &options.weights_init {
        params = params.weights_init(arrays::vector("weights_init", weights.bind(py))?);
    }
    if let Some(means) = &options.means_init {
        params = params.means_init(arrays::matrix("means_init", means.bind(py))?);
    }
    if let Some(precisions) = &options.precisions_init {
        let precisions = arrays::numbers(precisions.bind(py))?;
        let precisions = arrays::covariances(covariance_type, options.n_components, n_features, precisions)?;
        params = params.precisions_init(precisions);
    }
    Ok(params)
}

/// Looks after each iteration whether the fit is to end.
struct Watch {
    callback: Option<Py<PyAny>>,
    error: Option<PyErr>,
    last_look: Instant,
}

impl Watch {
    fn after<M: ToPython>(&mut self, iteration: &Iteration<'_, M>, shift: f64) -> ControlFlow<()> {
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
            let mixture = iteration.fit.mixture.to_python(py)?;
            let (bound, change) = (iteration.lower_bound + shift, iteration.change + shift);
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
