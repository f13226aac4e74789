use crate::arrays::{Matrix, NumPy, Numbers1, Numbers2, Numbers3, NumbersD, any_shape, matrix};
use crate::data::{checked, dim, numbers};
use crate::errors::exception;
use crate::mixture::Mixture;
use crate::threads::interruptible_in;
use gaussmix::data::Samples;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Features of a mixture given others, for many samples.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Regression(pub gaussmix::model::Regression);

impl Regression {
    fn evaluate<T: Send>(
        &self,
        x: &Bound<'_, PyAny>,
        threads: Option<usize>,
        missing: bool,
        work: impl FnOnce(&gaussmix::model::Regression, &Samples<'_>) -> gaussmix::Result<T> + Send,
    ) -> PyResult<T> {
        let samples = Matrix::new(x)?;
        let view = samples.view();
        let work = || work(&self.0, &checked(view, missing)?);
        interruptible_in(x.py(), threads, numbers(dim(view)), work)?.map_err(exception)
    }
}

#[pymethods]
impl Regression {
    #[new]
    fn new(mixture: &Mixture, given: Vec<usize>, wanted: Vec<usize>) -> PyResult<Self> {
        mixture.0.regression(&given, &wanted).map(Self).map_err(exception)
    }

    /// Returns the means (N, wanted) and, as `spread` asks, nothing more, standard deviations ("std") or covariances
    /// ("cov").
    #[pyo3(signature = (x, spread=None, *, threads=None, missing=false))]
    fn predict(
        &self,
        x: &Bound<'_, PyAny>,
        spread: Option<&str>,
        threads: Option<usize>,
        missing: bool,
    ) -> PyResult<(Numbers2, Option<NumbersD>)> {
        let (mean, spread) = match spread {
            None => (self.evaluate(x, threads, missing, |regression, x| regression.predict(x))?, None),
            Some("std") => {
                let (mean, std) = self.evaluate(x, threads, missing, |regression, x| regression.predict_with_std(x))?;
                (mean, Some(std.into_dyn()))
            }
            Some("cov") => {
                let both = self.evaluate(x, threads, missing, |regression, x| regression.predict_with_covariances(x));
                let (mean, covariances) = both?;
                (mean, Some(covariances.into_dyn()))
            }
            Some(other) => return Err(PyValueError::new_err(format!("the spread is '{other}'; give 'std' or 'cov'"))),
        };
        Ok((NumPy(mean), spread.map(NumPy)))
    }

    /// Returns the weights of the components (N, K).
    #[pyo3(signature = (x, *, threads=None, missing=false))]
    fn weights(&self, x: &Bound<'_, PyAny>, threads: Option<usize>, missing: bool) -> PyResult<Numbers2> {
        self.evaluate(x, threads, missing, |regression, x| regression.weights(x)).map(NumPy)
    }

    /// Returns the means of the components (N, K, wanted).
    #[pyo3(signature = (x, *, threads=None, missing=false))]
    fn means(&self, x: &Bound<'_, PyAny>, threads: Option<usize>, missing: bool) -> PyResult<Numbers3> {
        self.evaluate(x, threads, missing, |regression, x| regression.means(x)).map(NumPy)
    }

    /// Returns the log-density of y (N, wanted) given x.
    #[pyo3(signature = (x, y, *, threads=None, missing=false))]
    fn log_density(
        &self,
        x: &Bound<'_, PyAny>,
        y: &Bound<'_, PyAny>,
        threads: Option<usize>,
        missing: bool,
    ) -> PyResult<Numbers1> {
        let y = matrix("y", y)?;
        self.evaluate(x, threads, missing, |regression, x| regression.log_density(x, y.view())).map(NumPy)
    }

    /// Returns draws (N, `n_draws`, wanted).
    #[pyo3(signature = (x, n_draws, seed, *, threads=None, missing=false))]
    fn sample(
        &self,
        x: &Bound<'_, PyAny>,
        n_draws: usize,
        seed: u64,
        threads: Option<usize>,
        missing: bool,
    ) -> PyResult<Numbers3> {
        self.evaluate(x, threads, missing, |regression, x| regression.sample(x, n_draws, seed)).map(NumPy)
    }

    /// Returns the mixture of the given features; `None` if nothing is given.
    #[getter]
    fn marginal(&self) -> Option<Mixture> {
        self.0.marginal().cloned().map(Mixture::from)
    }

    /// Returns the matrices that multiply deviations of the given features, (K, wanted, given).
    #[getter]
    fn slopes(&self) -> Numbers3 {
        NumPy(self.0.slopes())
    }

    /// Returns the covariances of the wanted features given the rest, in the shape of the mixture's type.
    #[getter]
    fn covariances(&self) -> NumbersD {
        any_shape(self.0.covariances())
    }

    /// Returns the variances of the wanted features given the rest, (K, wanted).
    #[getter]
    fn variances(&self) -> Numbers2 {
        NumPy(self.0.variances())
    }
}
