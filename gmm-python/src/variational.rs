//! The posterior of variational inference, checked once.
use crate::arrays::{self, NumPy, Numbers1, Numbers2, NumbersD, numbers};
use crate::errors::{exception, file_exception};
use crate::mixture::{self, Mixture};
use crate::statistics::{Statistics, freeze};
use gaussmix::fit::Regularized;
use gaussmix::io::Model;
use gaussmix::model::{VariationalPrior, WeightConcentrationPriorType};
use numpy::ToPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

#[pyclass(frozen, module = "gaussmix._core")]
pub struct VariationalMixture(pub gaussmix::model::VariationalMixture);

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Prior {
    weight_concentration_prior_type: String,
    weight_concentration: f64,
    mean_precision: f64,
    mean: Py<PyAny>,
    degrees_of_freedom: f64,
    /// In the shape of one component's covariance.
    covariance: Py<PyAny>,
}

#[pymethods]
impl VariationalMixture {
    /// Returns the posterior whose means and covariances are those of a mixture.
    #[new]
    fn new(
        py: Python<'_>,
        prior: Prior,
        mixture: &Mixture,
        weight_concentration: &Bound<'_, PyAny>,
        mean_precision: &Bound<'_, PyAny>,
        degrees_of_freedom: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let kind: WeightConcentrationPriorType = prior.weight_concentration_prior_type.parse().map_err(exception)?;
        let mean = arrays::vector("mean_prior", prior.mean.bind(py))?;
        let covariance = numbers(prior.covariance.bind(py))?;
        let covariance = arrays::covariances(mixture.0.covariance_type(), 1, mean.len(), covariance)?;
        let (gamma, beta, nu) = (prior.weight_concentration, prior.mean_precision, prior.degrees_of_freedom);
        let prior = VariationalPrior::new(kind, gamma, beta, mean, nu, covariance).map_err(exception)?;
        gaussmix::model::VariationalMixture::new(
            prior,
            arrays::matrix("weight_concentration_", weight_concentration)?,
            arrays::vector("mean_precision_", mean_precision)?,
            arrays::vector("degrees_of_freedom_", degrees_of_freedom)?,
            mixture.0.means().to_owned(),
            mixture.0.covariances().clone(),
        )
        .map(Self)
        .map_err(exception)
    }

    /// Whether a model file has a posterior.
    #[staticmethod]
    fn is_in(path: PathBuf) -> PyResult<bool> {
        Ok(Model::read(path).map_err(file_exception)?.posterior.is_some())
    }

    /// Reads a model and the record of its fit.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<(Self, Bound<'_, PyAny>)> {
        mixture::read(py, path).map(|(mixture, found)| (Self(mixture), found))
    }

    /// Writes a model and the record of its fit.
    #[pyo3(signature = (path, **found))]
    fn write(&self, path: PathBuf, found: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        mixture::write(&self.0, path, found)
    }

    fn over_regularized(&self, reg_covar: f64) -> Option<(usize, f64)> {
        self.0.over_regularized(reg_covar)
    }

    #[getter]
    fn covariance_type(&self) -> &'static str {
        self.0.covariance_type().name()
    }

    #[getter]
    fn weights(&self) -> Numbers1 {
        NumPy(self.0.weights())
    }

    #[getter]
    fn means(&self) -> Numbers2 {
        NumPy(self.0.means().to_owned())
    }

    #[getter]
    fn covariances(&self) -> NumbersD {
        arrays::any_shape(self.0.covariances())
    }

    #[getter]
    fn precisions(&self) -> NumbersD {
        arrays::any_shape(&self.0.precisions())
    }

    #[getter]
    fn precisions_cholesky(&self) -> NumbersD {
        arrays::any_shape(&self.0.precisions_cholesky())
    }

    #[getter]
    fn weight_concentration(&self) -> Numbers2 {
        NumPy(self.0.weight_concentration().to_owned())
    }

    #[getter]
    fn alive(&self) -> Vec<bool> {
        self.0.alive()
    }

    #[getter]
    fn mean_precision(&self) -> Numbers1 {
        NumPy(self.0.mean_precision().to_owned())
    }

    #[getter]
    fn degrees_of_freedom(&self) -> Numbers1 {
        NumPy(self.0.degrees_of_freedom().to_owned())
    }

    /// Returns the prior, by the constructor's names.
    #[getter]
    fn prior<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (prior, dict) = (self.0.prior(), PyDict::new(py));
        dict.set_item("weight_concentration_prior_type", prior.weight_concentration_type.name())?;
        dict.set_item("weight_concentration", prior.weight_concentration)?;
        dict.set_item("mean_precision", prior.mean_precision)?;
        dict.set_item("mean", prior.mean.to_pyarray(py))?;
        dict.set_item("degrees_of_freedom", prior.degrees_of_freedom)?;
        dict.set_item("covariance", arrays::any_shape(&prior.covariance))?;
        Ok(dict)
    }

    /// Returns the mixture whose density, up to a factor, is that of samples under the posterior.
    #[getter]
    fn density(&self) -> Mixture {
        Mixture::from(self.0.density().clone())
    }

    /// Returns the logarithm of that factor.
    #[getter]
    fn log_total(&self) -> f64 {
        self.0.log_total()
    }

    /// Returns the terms that scikit-learn's lower bound leaves out.
    #[getter]
    fn constant_terms(&self) -> f64 {
        self.0.constant_terms()
    }

    /// Makes the M-step, which keeps the parts of this posterior that `freeze` names.
    fn update(&self, statistics: &Statistics, reg_covar: f64, freeze: Vec<String>) -> PyResult<Self> {
        let freeze = self::freeze(&freeze)?;
        self.0.update(&statistics.0, reg_covar, &freeze).map(Self).map_err(exception)
    }

    /// Returns the lower bound of the samples of these statistics, made under `before`.
    fn lower_bound_of(&self, before: &Self, statistics: &Statistics, reg_covar: f64) -> PyResult<f64> {
        self.0.lower_bound_of(&before.0, &statistics.0, reg_covar).map_err(exception)
    }
}
