//! The results of many fits.
use crate::arrays::{Matrix, NumPy};
use crate::data::{checked, dim, numbers};
use crate::errors::exception;
use crate::fit::{Fit, ToPython};
use crate::threads::interruptible_in;
use gaussmix::data::{Samples, View};
use gaussmix::device::Device;
use gaussmix::evaluator::{Evaluator, evaluate_each};
use gaussmix::fit::{FittedModel as _, Regularized};
use gaussmix::model::CovarianceType;
use gaussmix::{Error, Interrupt};
use ndarray::Array1;
use numpy::{IntoPyArray, PyArrayMethods};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

#[derive(Clone, Serialize, Deserialize)]
pub enum Model {
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

    /// Returns the constant that scikit-learn's log-densities add to those of the density.
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

pub type OneFit = gaussmix::fit::Fit<Model>;

/// The results of many fits, and the exception that stopped them, if any.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Fits {
    pub fits: Vec<Result<OneFit, Failure>>,
    pub shape: (usize, usize, CovarianceType),
    pub error: Option<PyErr>,
}

pub struct Failure {
    text: String,
    exception: PyErr,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { text: error.to_string(), exception: exception(error) }
    }
}

pub fn all(x: View<'_>, weights: Option<Array1<f64>>, missing: bool) -> gaussmix::Result<Samples<'_>> {
    let samples = checked(x, missing)?;
    match weights {
        Some(weights) => samples.with_shared_weights(weights.into_shared()),
        None => Ok(samples),
    }
}

/// Returns the sets of samples in these ranges of rows, which may overlap.
pub fn sets<'a>(samples: &Samples<'a>, ranges: &[(usize, usize)]) -> gaussmix::Result<Vec<Samples<'a>>> {
    let n_samples = samples.n_samples();
    let set = |&(begin, end): &(usize, usize)| match (begin < end, end <= n_samples) {
        // The ranges of the columns are known for all samples.
        (true, true) if end - begin == n_samples => Ok(samples.clone()),
        (true, true) => Ok(samples.rows(begin..end)),
        (false, _) => Err(Error::EmptyData { rows: 0, columns: samples.n_features() }),
        (true, false) => Err(Error::NoSuchRow { row: end - 1, n_samples }),
    };
    ranges.iter().map(set).collect()
}

/// Pickled fits: the fits and their shape as JSON, and number, text and exception of each failure.
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

    /// Returns one of the fits, or raises the exception of its failure.
    fn __getitem__(&self, py: Python<'_>, index: usize) -> PyResult<Fit> {
        match self.fits.get(index) {
            None => Err(PyIndexError::new_err("there is no such fit")),
            Some(Ok(fit)) => Fit::of(fit.clone(), |model| model.to_python(py)),
            Some(Err(failure)) => Err(failure.exception.clone_ref(py)),
        }
    }

    /// Returns the exception that ended the fits early: of `progress`, or KeyboardInterrupt.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.error.as_ref().map(|error| error.clone_ref(py))
    }

    /// Returns the reasons of failed fits, by their numbers.
    #[getter]
    fn errors(&self) -> Vec<(usize, String)> {
        let failed = self.fits.iter().enumerate();
        failed.filter_map(|(i, fit)| fit.as_ref().err().map(|failure| (i, failure.text.clone()))).collect()
    }

    #[getter]
    fn converged(&self) -> NumPy<Vec<bool>> {
        self.each(|fit| fit.converged, false)
    }

    #[getter]
    fn n_iter(&self) -> NumPy<Vec<i64>> {
        self.each(|fit| fit.n_iter() as i64, 0)
    }

    #[getter]
    fn lower_bound(&self) -> NumPy<Vec<f64>> {
        self.each(|fit| fit.lower_bound(), f64::NAN)
    }

    /// Finds a fit with a column whose variance is less than a thousand times `reg_covar`. Returns the fit, the column,
    /// and that variance.
    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, usize, f64)> {
        self.fits.iter().enumerate().find_map(|(number, fit)| {
            let (column, variance) = match &fit.as_ref().ok()?.mixture {
                Model::Mixture(mixture) => mixture.over_regularized(reg_covar),
                Model::Variational(mixture) => mixture.over_regularized(reg_covar),
            }?;
            Some((number, column, variance))
        })
    }

    /// Returns the weights (G, K), means (G, K, D) and covariances (G, …) of all fits, NaN for failed ones.
    #[allow(clippy::type_complexity)] // A tuple in Python.
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

    /// Returns the log-likelihood of each sample under the fit of its set, NaN if the fit failed.
    fn scores(&self, py: Python<'_>, x: &Bound<'_, PyAny>, sets: SetsOfFits) -> PyResult<NumPy<Vec<f64>>> {
        self.evaluate(py, x, sets, f64::NAN, |fit, evaluator| {
            let scores = evaluator.score_samples(fit.mixture.density())?;
            Ok((scores + fit.mixture.log_factor()).to_vec())
        })
    }

    /// Returns the most probable component of each sample under the fit of its set, −1 if the fit failed.
    fn labels(&self, py: Python<'_>, x: &Bound<'_, PyAny>, sets: SetsOfFits) -> PyResult<NumPy<Vec<i64>>> {
        self.evaluate(py, x, sets, -1, |fit, evaluator| {
            let labels = evaluator.predict(fit.mixture.density())?;
            Ok(labels.into_iter().map(|label| label as i64).collect())
        })
    }
}

/// The fits that evaluate the samples of an array, and the device.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct SetsOfFits {
    /// The consecutive rows of each set.
    ranges: Vec<(usize, usize)>,
    /// The number of each set's fit.
    fits: Vec<usize>,
    device: String,
    threads: Option<usize>,
    missing: bool,
}

impl Fits {
    fn each<T: numpy::Element + Clone>(&self, of: impl Fn(&OneFit) -> T, failed: T) -> NumPy<Vec<T>> {
        let values: Vec<T> = self.fits.iter().map(|fit| fit.as_ref().map_or_else(|_| failed.clone(), &of)).collect();
        NumPy(values)
    }

    fn evaluate<T: numpy::Element + Send + Sync + Copy>(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        of: SetsOfFits,
        failed: T,
        evaluate: impl Fn(&OneFit, &mut dyn Evaluator) -> gaussmix::Result<Vec<T>> + Sync,
    ) -> PyResult<NumPy<Vec<T>>> {
        let device: Device = of.device.parse().map_err(exception)?;
        let matrix = Matrix::new(x)?;
        let x = matrix.view();
        let (k, d, t) = self.shape;
        let work = || {
            let sets = sets(&all(x, None, of.missing)?, &of.ranges)?;
            let work = |set: usize| (sets[set].n_samples() * t.multiply_adds(k, d)) as f64;
            let interrupt = Interrupt::current();
            let values = evaluate_each(&sets, device, work, |set, open| {
                interrupt.check()?;
                match of.fits.get(set).and_then(|fit| self.fits.get(*fit)) {
                    Some(Ok(fit)) => evaluate(fit, open()?.as_mut()),
                    _ => Ok(vec![failed; sets[set].n_samples()]),
                }
            });
            let values: gaussmix::Result<Vec<Vec<T>>> = values.into_iter().collect();
            Ok(values?.concat())
        };
        interruptible_in(py, of.threads, numbers(dim(x)).saturating_mul(k), work)?.map_err(exception).map(NumPy)
    }
}
