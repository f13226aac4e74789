//! A run of EM, with signals and callbacks of Python.
use crate::arrays;
use crate::errors::exception;
use crate::mixture::Mixture;
use crate::statistics::freeze;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::{GaussianMixtureParams, InitParams, Iteration};
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
    reg_covar: f64,
    max_iter: usize,
    init_params: String,
    seed: u64,
    weights_init: Option<Py<PyAny>>,
    means_init: Option<Py<PyAny>>,
    precisions_init: Option<Py<PyAny>>,
    freeze: Vec<String>,
    /// Added to the first lower bound: the logarithm of the sum that the weights of scikit-learn's
    /// start have.
    shift: f64,
    /// The lower bound of the last iteration of an earlier fit that this one goes on with.
    last_lower_bound: Option<f64>,
}

/// What a run gives.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Fit {
    fit: gaussmix::fit::Fit,
    error: Option<PyErr>,
}

#[pymethods]
impl Fit {
    #[getter]
    fn mixture(&self) -> Mixture {
        Mixture::from(self.fit.mixture.clone())
    }

    #[getter]
    fn lower_bounds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.fit.lower_bounds.to_pyarray(py)
    }

    #[getter]
    fn converged(&self) -> bool {
        self.fit.converged
    }

    #[getter]
    fn stopped(&self) -> bool {
        self.fit.stopped
    }

    #[getter]
    fn retained(&self) -> Vec<usize> {
        self.fit.retained.clone()
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
        return Ok(Fit { fit, error: watch.error });
    }
    let mut first = fit(params.clone().max_iter(1), evaluator, shift, &mut watch)?;
    if let Some(bound) = first.lower_bounds.first_mut() {
        *bound += shift;
    }
    let fit = if first.stopped { first } else { fit(params.resume(first, None), evaluator, 0.0, &mut watch)? };
    Ok(Fit { fit, error: watch.error })
}

fn parameters(
    py: Python<'_>,
    options: &FitOptions,
    n_features: usize,
    start: Option<gaussmix::model::Mixture>,
) -> PyResult<GaussianMixtureParams> {
    let covariance_type = arrays::covariance_type(&options.covariance_type)?;
    let init_params: InitParams = options.init_params.parse().map_err(exception)?;
    let mut params = GaussianMixtureParams::new(options.n_components)
        .covariance_type(covariance_type)
        .tol(options.tol)
        .reg_covar(options.reg_covar)
        .max_iter(options.max_iter)
        .init_params(init_params)
        .random_state(options.seed)
        .freeze(freeze(&options.freeze)?);
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
    fn after(&mut self, iteration: &Iteration<'_>, shift: f64) -> ControlFlow<()> {
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
            let mixture = Mixture::from(iteration.fit.mixture.clone());
            let stop = callback
                .call1(py, (iteration.iteration, iteration.lower_bound + shift, iteration.change + shift, mixture))?;
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
