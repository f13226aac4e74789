//! Inner products with a resident matrix, and the Gaussian kernel.
use crate::arrays::{Matrix, view};
use crate::errors::exception;
use crate::threads::{compute, interruptible};
use gaussmix::device::Device;
use gaussmix::pairwise::{self, Centres, GaussianKernel, Number, RowPairs};
use ndarray::{Array, ArrayView2, Dimension};
use numpy::{Element, IntoPyArray};
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
        let (resident, n_rows) = match &Matrix::new(matrix)? {
            Matrix::F32(x) => (Resident::F32(load(py, device, view(x))?), view(x).nrows()),
            Matrix::F64(x) => (Resident::F64(load(py, device, view(x))?), view(x).nrows()),
        };
        Ok(Self { resident, n_rows })
    }

    /// Returns rows (N, D) times the transposed matrix.
    fn products<'py>(&self, py: Python<'py>, rows: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match (&self.resident, &Matrix::new(rows)?) {
            (Resident::F32(matrix), Matrix::F32(rows)) => products(py, matrix, view(rows), self.n_rows),
            (Resident::F64(matrix), Matrix::F64(rows)) => products(py, matrix, view(rows), self.n_rows),
            _ => Err(mixed()),
        }
    }
}

type Loaded<T> = Mutex<pairwise::InnerProducts<T>>;

fn load<T: Number + Element>(py: Python<'_>, device: Device, x: ArrayView2<'_, T>) -> PyResult<Loaded<T>> {
    compute(py, || pairwise::InnerProducts::load(device, x))?.map(Mutex::new).map_err(exception)
}

fn products<'py, T: Number + Element>(
    py: Python<'py>,
    matrix: &Loaded<T>,
    rows: ArrayView2<'_, T>,
    n: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let work = || matrix.lock().unwrap_or_else(PoisonError::into_inner).products(rows);
    array(py, rows.len().saturating_mul(n), work)
}

/// Returns the array that `work` makes of `n` numbers.
fn array<'py, T: Number + Element, D: Dimension>(
    py: Python<'py>,
    n: usize,
    work: impl FnOnce() -> gaussmix::Result<Array<T, D>> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(interruptible(py, n, work)?.map_err(exception)?.into_pyarray(py).into_any())
}

/// Returns exp(−γ‖a − b‖²) of each row of `a` with each row of `b` (N, M); with `pairs`, of each pair of rows (N,).
#[pyfunction]
pub fn gaussian_kernel<'py>(
    py: Python<'py>,
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
    gamma: f64,
    pairs: bool,
    device: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let (device, kernel) = (device.parse().map_err(exception)?, GaussianKernel::new(gamma).map_err(exception)?);
    match (&Matrix::new(a)?, &Matrix::new(b)?) {
        (Matrix::F32(a), Matrix::F32(b)) => of_rows(py, device, &kernel, view(a), view(b), pairs),
        (Matrix::F64(a), Matrix::F64(b)) => of_rows(py, device, &kernel, view(a), view(b), pairs),
        _ => Err(mixed()),
    }
}

fn of_rows<'py, T: Number + Element>(
    py: Python<'py>,
    device: Device,
    kernel: &GaussianKernel,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    pairs: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if pairs {
        return array(py, a.len(), || RowPairs::load(device, a, b)?.gaussian(kernel));
    }
    array(py, a.len().saturating_mul(b.nrows()), || Centres::load(device, b)?.gaussian(kernel, a))
}
