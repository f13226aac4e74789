//! Inner products with a resident matrix, and the Gaussian kernel.
use crate::arrays::{Matrix, view};
use crate::errors::exception;
use crate::threads::{compute, interruptible};
use gaussmix::device::Device;
use gaussmix::pairwise::{self, Centres, GaussianKernel, RowPairs};
use numpy::IntoPyArray;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

enum Resident {
    F32(Mutex<pairwise::InnerProducts<f32>>),
    F64(Mutex<pairwise::InnerProducts<f64>>),
}

/// A matrix in a device, to be multiplied with rows.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct InnerProducts {
    resident: Resident,
    n_rows: usize,
}

fn mixed() -> PyErr {
    PyTypeError::new_err("both arrays must be of the same type, float32 or float64")
}

#[pymethods]
impl InnerProducts {
    #[new]
    fn new(py: Python<'_>, matrix: &Bound<'_, PyAny>, device: &str) -> PyResult<Self> {
        let device: Device = device.parse().map_err(exception)?;
        let matrix = Matrix::new(matrix)?;
        let (resident, n_rows) = match &matrix {
            Matrix::F32(x) => {
                let x = view(x);
                let loaded = compute(py, || pairwise::InnerProducts::load(device, x))?.map_err(exception)?;
                (Resident::F32(Mutex::new(loaded)), x.nrows())
            }
            Matrix::F64(x) => {
                let x = view(x);
                let loaded = compute(py, || pairwise::InnerProducts::load(device, x))?.map_err(exception)?;
                (Resident::F64(Mutex::new(loaded)), x.nrows())
            }
        };
        Ok(Self { resident, n_rows })
    }

    /// Returns rows (N, D) times the transposed matrix.
    fn products<'py>(&self, py: Python<'py>, rows: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match (&self.resident, &Matrix::new(rows)?) {
            (Resident::F32(matrix), Matrix::F32(rows)) => {
                let rows = view(rows);
                let work = || matrix.lock().unwrap_or_else(PoisonError::into_inner).products(rows);
                Ok(interruptible(py, rows.len().saturating_mul(self.n_rows), work)?
                    .map_err(exception)?
                    .into_pyarray(py)
                    .into_any())
            }
            (Resident::F64(matrix), Matrix::F64(rows)) => {
                let rows = view(rows);
                let work = || matrix.lock().unwrap_or_else(PoisonError::into_inner).products(rows);
                Ok(interruptible(py, rows.len().saturating_mul(self.n_rows), work)?
                    .map_err(exception)?
                    .into_pyarray(py)
                    .into_any())
            }
            _ => Err(mixed()),
        }
    }
}

/// Returns exp(−γ‖a − b‖²) of each pair of rows (N,).
#[pyfunction]
pub fn gaussian_kernel_pairs<'py>(
    py: Python<'py>,
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    gamma: f64,
    device: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (device, kernel) = parse(gamma, device)?;
    match (&Matrix::new(a)?, &Matrix::new(b)?) {
        (Matrix::F32(a), Matrix::F32(b)) => {
            let (a, b) = (view(a), view(b));
            let work = || RowPairs::load(device, a, b)?.gaussian(&kernel);
            Ok(interruptible(py, a.len(), work)?.map_err(exception)?.into_pyarray(py).into_any())
        }
        (Matrix::F64(a), Matrix::F64(b)) => {
            let (a, b) = (view(a), view(b));
            let work = || RowPairs::load(device, a, b)?.gaussian(&kernel);
            Ok(interruptible(py, a.len(), work)?.map_err(exception)?.into_pyarray(py).into_any())
        }
        _ => Err(mixed()),
    }
}

/// Returns exp(−γ‖a − b‖²) of each row of `a` with each row of `b` (N, M).
#[pyfunction]
pub fn gaussian_kernel<'py>(
    py: Python<'py>,
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    gamma: f64,
    device: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (device, kernel) = parse(gamma, device)?;
    match (&Matrix::new(a)?, &Matrix::new(b)?) {
        (Matrix::F32(a), Matrix::F32(b)) => {
            let (a, b) = (view(a), view(b));
            let work = || Centres::load(device, b)?.gaussian(&kernel, a);
            Ok(interruptible(py, a.len().saturating_mul(b.nrows()), work)?
                .map_err(exception)?
                .into_pyarray(py)
                .into_any())
        }
        (Matrix::F64(a), Matrix::F64(b)) => {
            let (a, b) = (view(a), view(b));
            let work = || Centres::load(device, b)?.gaussian(&kernel, a);
            Ok(interruptible(py, a.len().saturating_mul(b.nrows()), work)?
                .map_err(exception)?
                .into_pyarray(py)
                .into_any())
        }
        _ => Err(mixed()),
    }
}

fn parse(gamma: f64, device: &str) -> PyResult<(Device, GaussianKernel)> {
    Ok((device.parse().map_err(exception)?, GaussianKernel::new(gamma).map_err(exception)?))
}
