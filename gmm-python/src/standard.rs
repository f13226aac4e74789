//! Standardised units.
use crate::arrays::{self, Matrix, NumPy, Numbers1, view};
use crate::errors::exception;
use crate::threads::compute;
use gaussmix::data::{Samples, View};
use gaussmix::fit;
use ndarray::ArrayView2;
use numpy::IntoPyArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Columns of mean 0 and standard deviation 1. ``a + b`` is the standardisation of the samples of both.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct Standardization(pub fit::Standardization);

#[pymethods]
impl Standardization {
    /// Returns the standardisation of samples, in which NaN stands for a missing value; `isotropic`: with one scale for
    /// all columns.
    #[staticmethod]
    #[pyo3(signature = (x, sample_weight=None, isotropic=false))]
    fn of(x: &Bound<'_, PyAny>, sample_weight: Option<&Bound<'_, PyAny>>, isotropic: bool) -> PyResult<Self> {
        let weights = sample_weight.map(|weights| arrays::vector("sample_weight", weights)).transpose()?;
        let matrix = Matrix::new(x)?;
        let view = matrix.view();
        let find = || {
            let samples = match view {
                View::F32(x) => Samples::with_missing(x),
                View::F64(x) => Samples::with_missing(x),
            }?;
            fit::Standardization::of(&match weights {
                Some(weights) => samples.with_shared_weights(weights.into_shared())?,
                None => samples,
            })
        };
        let found = compute(x.py(), find)?;
        found.map(|found| Self(if isotropic { found.isotropic() } else { found })).map_err(exception)
    }

    #[staticmethod]
    fn from_json(json: &str) -> PyResult<Self> {
        serde_json::from_str(json).map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let json = serde_json::to_string(&self.0).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((PyType::new::<Self>(py).getattr("from_json")?, (json,)))
    }

    fn __add__(&self, other: &Self) -> PyResult<Self> {
        self.0.merged(&other.0).map(Self).map_err(exception)
    }

    /// Returns the divisor of each column.
    #[getter]
    fn scale(&self) -> Numbers1 {
        NumPy(self.0.scale().to_owned())
    }

    /// Returns samples in these units, in their own type.
    fn apply<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        match Matrix::new(x)? {
            Matrix::F32(x) => {
                let mut z = self.copy(view(&x))?;
                self.0.apply(z.view_mut(), |v| v as f32);
                Ok(z.into_pyarray(py).into_any())
            }
            Matrix::F64(x) => {
                let mut z = self.copy(view(&x))?;
                self.0.apply(z.view_mut(), |v| v);
                Ok(z.into_pyarray(py).into_any())
            }
        }
    }
}

impl Standardization {
    fn copy<T: Clone>(&self, x: ArrayView2<'_, T>) -> PyResult<ndarray::Array2<T>> {
        let remedy = "set standardize=False, and scale the columns before";
        gaussmix::memory::check("the standardised samples", x.shape(), size_of::<T>(), remedy).map_err(exception)?;
        if x.ncols() != self.0.mean().len() {
            let (d, expected) = (x.ncols(), self.0.mean().len());
            return Err(PyValueError::new_err(format!("the samples have {d} features; {expected} were standardised")));
        }
        // An empty array may have strides that ndarray does not copy.
        let values = x.iter().cloned().collect();
        ndarray::Array2::from_shape_vec(x.raw_dim(), values).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}
