//! Replaces `gpu.rs` in a build without the CUDA backend: there are no arrays in a GPU's memory.
use crate::loaded::Loaded;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use ndarray::Array1;
use numpy::PyArrayDescr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::convert::Infallible;

/// An array in a GPU's memory, which cannot exist in this build.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct GpuArray(Infallible);

/// The place of computations with a [`GpuArray`].
pub enum Place {
    #[allow(dead_code)] // The build with the CUDA backend makes it.
    Gpu,
    #[allow(dead_code)]
    Host(Device),
}

#[pymethods]
impl GpuArray {
    #[new]
    fn new(_x: &Bound<'_, PyAny>) -> PyResult<Self> {
        Err(PyRuntimeError::new_err("this build has no CUDA backend; bring the array to the host first"))
    }
}

impl GpuArray {
    pub fn dtype<'py>(&self, _: Python<'py>) -> Bound<'py, PyArrayDescr> {
        match self.0 {}
    }

    pub fn place(&self, _: &str) -> PyResult<Place> {
        match self.0 {}
    }

    pub fn load(&self, _: Option<Array1<f64>>, _: &LoadOptions, _: bool) -> gaussmix::Result<Loaded> {
        match self.0 {}
    }

    pub fn samples(&self) -> gaussmix::Result<Samples<'static>> {
        match self.0 {}
    }
}
