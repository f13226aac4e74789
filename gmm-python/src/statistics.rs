//! Sufficient statistics as a value.
use crate::arrays::{self, NumPy, Numbers1, Numbers2, NumbersD, matrix};
use crate::bytes::{self, Magic, Read};
use crate::errors::exception;
use crate::mixture::Mixture;
use gaussmix::fit::moving_average;
use gaussmix::statistics::Adaptation;
use gaussmix::statistics::{CentredSums, Freeze};
use ndarray::{Array1, Array2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

/// The beginning of the bytes of statistics; its last byte is the version.
const MAGIC: &Magic = b"gmmstat\x02";

/// Sufficient statistics of a mixture over some samples: a value that can be added, sent and saved.
///
/// `Likelihood.statistics` makes them. ``a + b`` are those of the samples of both, also of samples on different
/// computers: ``bytes(a)`` and `from_bytes` carry them. `to_mixture` and `update` are the M-step. Its attributes are
/// `weight` (the number of samples), `log_likelihood`, `counts` (K,), `means` (K, D) and `scatter` in the shape of the
/// covariance type.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Statistics(pub gaussmix::statistics::Statistics);

/// Parses the parameters to keep unchanged from their names, as the program does.
pub fn freeze(names: &[String]) -> PyResult<Freeze> {
    let each = names.iter().map(|name| name.parse::<Freeze>().map_err(exception));
    each.reduce(|a, b| Ok(a?.or(b?))).unwrap_or_else(|| Ok(Freeze::default()))
}

/// Raises `ValueError` for a text that the program could not parse as parameters to keep unchanged.
#[pyfunction]
pub fn check_freeze(text: &str) -> PyResult<()> {
    text.parse::<Freeze>().map(drop).map_err(exception)
}

#[pymethods]
impl Statistics {
    /// Form the statistics of responsibilities.
    ///
    /// Parameters
    /// ----------
    /// x : array-like of shape (n_samples, n_features)
    ///     The samples.
    /// responsibilities : array-like of shape (n_samples, n_components)
    ///     The share of each component in each sample, times the weight of the sample.
    /// covariance_type : {'full', 'tied', 'diag', 'spherical'}
    ///     The shape of the scatter.
    ///
    /// Returns
    /// -------
    /// Statistics
    ///     The statistics, with the log-likelihood 0.
    #[staticmethod]
    fn from_responsibilities(
        x: &Bound<'_, PyAny>,
        responsibilities: &Bound<'_, PyAny>,
        covariance_type: &str,
    ) -> PyResult<Self> {
        let (x, r) = (matrix("the data", x)?, matrix("the responsibilities", responsibilities)?);
        let covariance_type = arrays::covariance_type(covariance_type)?;
        gaussmix::statistics::Statistics::from_responsibilities(x.view(), r.view(), covariance_type)
            .map(Self)
            .map_err(exception)
    }

    /// Read statistics from their bytes.
    ///
    /// Parameters
    /// ----------
    /// bytes : bytes
    ///     The result of `bytes` of statistics.
    ///
    /// Returns
    /// -------
    /// Statistics
    ///     The statistics, to the bit.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        parse(bytes)
            .ok_or_else(|| PyValueError::new_err("these bytes are not those of statistics"))?
            .map_err(exception)
            .map(Self)
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let s = &self.0;
        let head = [s.weight(), s.log_likelihood()];
        let (counts, means) = (s.counts(), s.means());
        let numbers = head.into_iter().chain(counts.iter().copied()).chain(means.iter().copied());
        PyBytes::new(py, &bytes::write(MAGIC, s.covariance_type().into(), means.dim(), numbers, s.scatter()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((PyType::new::<Self>(py).getattr("from_bytes")?, (self.__bytes__(py),)))
    }

    fn __add__(&self, other: &Self) -> PyResult<Self> {
        let mut sum = self.0.clone();
        sum.merge(&other.0).map_err(exception)?;
        Ok(Self(sum))
    }

    /// Lets `sum` add statistics: it begins at 0.
    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        match other.extract::<i64>() {
            Ok(0) => Ok(Self(self.0.clone())),
            _ => Err(pyo3::exceptions::PyTypeError::new_err("only statistics can be added to statistics")),
        }
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Multiply the weights of all samples.
    ///
    /// Parameters
    /// ----------
    /// factor : float
    ///     The factor, not negative.
    ///
    /// Returns
    /// -------
    /// Statistics
    ///     The statistics as if each sample had its weight times the factor.
    fn scaled(&self, factor: f64) -> PyResult<Self> {
        if !(factor >= 0.0 && factor.is_finite()) {
            return Err(PyValueError::new_err(format!("the factor is {factor}; it must be finite and not negative")));
        }
        Ok(Self(self.0.clone().scaled(factor)))
    }

    /// Make the moving average of the statistics per sample of chunks.
    ///
    /// Parameters
    /// ----------
    /// before : Statistics or None
    ///     The average of the earlier chunks, if any.
    /// steps : int
    ///     The number of earlier chunks.
    /// decay : float
    ///     The rate at which early chunks are forgotten: chunk t, from 0, has the share (t + 1) ** -decay.
    ///
    /// Returns
    /// -------
    /// Statistics
    ///     The average with the chunk of these statistics.
    #[pyo3(signature = (before, steps, decay))]
    fn averaged(&self, before: Option<&Self>, steps: u64, decay: f64) -> PyResult<Self> {
        moving_average(before.map(|before| &before.0), self.0.clone(), steps, decay).map(Self).map_err(exception)
    }

    /// Make the M-step without a previous mixture.
    ///
    /// Parameters
    /// ----------
    /// reg_covar : float, default=0.0
    ///     Added to all variances.
    ///
    /// Returns
    /// -------
    /// Mixture
    ///     The parameters, as `weights`, `means` and `covariances`.
    #[pyo3(signature = (reg_covar=0.0))]
    fn to_mixture(&self, reg_covar: f64) -> PyResult<Mixture> {
        self.0.to_mixture(reg_covar).map(Mixture::from).map_err(exception)
    }

    /// Make the M-step of an iteration of EM.
    ///
    /// Parameters
    /// ----------
    /// previous : Mixture
    ///     The mixture before.
    /// reg_covar : float, default=0.0
    ///     Added to all variances.
    /// freeze : list of {'weights', 'means', 'covariances'}, default=[]
    ///     Parameters that keep their values in the previous mixture; those of single components as in 'means=0,2'.
    ///
    /// Returns
    /// -------
    /// mixture : Mixture
    ///     The parameters, as `weights`, `means` and `covariances`.
    /// retained : list of int
    ///     Components that lost their samples or collapsed, and kept the parameters of the previous mixture.
    #[pyo3(signature = (previous, reg_covar=0.0, freeze=vec![]))]
    fn update(&self, previous: &Mixture, reg_covar: f64, freeze: Vec<String>) -> PyResult<(Mixture, Vec<usize>)> {
        let update = self.0.update(&previous.0, reg_covar, &self::freeze(&freeze)?).map_err(exception)?;
        Ok((update.mixture.into(), update.retained))
    }

    /// Adapt a mixture to the samples of these statistics, which come from an E-step under it.
    ///
    /// Parameters
    /// ----------
    /// mixture : Mixture
    ///     The mixture before.
    /// relevance : float
    ///     A component with this many samples moves half of the way to them.
    /// parameters : str
    ///     The parameters to adapt: 'weights', 'means', 'covariances', separated by commas.
    ///
    /// Returns
    /// -------
    /// adapted : Mixture
    ///     The adapted mixture.
    fn adapt(&self, mixture: &Mixture, relevance: f64, parameters: &str) -> PyResult<Mixture> {
        let adapted = Adaptation::of(parameters, relevance).and_then(|how| how.apply(&mixture.0, &self.0));
        adapted.map(Mixture::from).map_err(exception)
    }

    #[getter]
    fn weight(&self) -> f64 {
        self.0.weight()
    }

    #[getter]
    fn log_likelihood(&self) -> f64 {
        self.0.log_likelihood()
    }

    #[getter]
    fn covariance_type(&self) -> &'static str {
        self.0.covariance_type().name()
    }

    #[getter]
    fn counts(&self) -> Numbers1 {
        NumPy(self.0.counts().to_owned())
    }

    #[getter]
    fn means(&self) -> Numbers2 {
        NumPy(self.0.means().to_owned())
    }

    #[getter]
    fn scatter(&self) -> NumbersD {
        arrays::any_shape(self.0.scatter())
    }
}

/// Reads the bytes of `__bytes__`; `None` if the bytes have another length or kind.
fn parse(bytes: &[u8]) -> Option<gaussmix::Result<gaussmix::statistics::Statistics>> {
    let sizes = |k: usize, d: usize| k.checked_mul(d)?.checked_add(k)?.checked_add(2);
    let Read { k, d, numbers, matrices: second, .. } = bytes::read(MAGIC, bytes, sizes)?;
    let mut numbers = numbers.into_iter();
    let (weight, log_likelihood) = (numbers.next()?, numbers.next()?);
    let counts: Array1<f64> = numbers.by_ref().take(k).collect();
    let centres = Array2::from_shape_vec((k, d), numbers.collect()).ok()?;
    let first = Array2::zeros((k, d));
    let sums = CentredSums { weight, log_likelihood, centres, counts, first, second };
    Some(gaussmix::statistics::Statistics::from_centred_sums(sums))
}
