//! Arrays of other libraries in a GPU's memory, imported by DLPack.
use crate::errors::exception;
use crate::loaded::Loaded;
use dlpark::ffi::{DLDataType, DLDeviceType, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
use dlpark::python::{ImportedDlpack, from_dlpack};
use gaussmix::cuda::{DeviceArray, HostArray, load_device_array};
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::Precision;
use ndarray::Array1;
use numpy::{IntoPyArray, PyArrayDescr, PyArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use std::ffi::c_void;
use std::sync::Arc;

/// CUDA's legacy default stream, before which producers order their work. The engine waits for it.
const LEGACY_DEFAULT_STREAM: i32 = 1;

/// A float32 or float64 array in a GPU's memory. It holds the producer's array until it is dropped.
#[pyclass(frozen, module = "gaussmix._core")]
pub struct GpuArray {
    address: usize,
    element: Precision,
    shape: Vec<usize>,
    strides: Vec<isize>,
    ordinal: usize,
    owner: Arc<Owner>,
}

/// The place of computations with a [`GpuArray`].
pub enum Place {
    Gpu,
    /// A device to which the array is copied through the host.
    Host(Device),
}

/// The producer's array. When it is dropped, the producer's deleter runs, attached to the interpreter, because it may
/// be Python code. It does not run after the interpreter has ended.
struct Owner(Option<ImportedDlpack>);

impl Drop for Owner {
    fn drop(&mut self) {
        if Python::try_attach(|_| self.0 = None).is_none() {
            std::mem::forget(self.0.take());
        }
    }
}

#[pymethods]
impl GpuArray {
    /// Takes an array of a library that supports DLPack. The producer orders its work before the legacy default stream.
    #[new]
    fn new(x: &Bound<'_, PyAny>) -> PyResult<Self> {
        let tensor = import(x)?;
        let invalid = |error: dlpark::tensor::Error| PyValueError::new_err(error.to_string());
        let described = tensor.validate().map_err(invalid)?;
        let device = described.device();
        if !matches!(device.device_type, DLDeviceType::CUDA | DLDeviceType::CUDAMANAGED) {
            return Err(PyTypeError::new_err("the array is not in the memory of a CUDA GPU"));
        }
        let element = match described.dtype() {
            DLDataType::F32 => Precision::Float32,
            DLDataType::F64 => Precision::Float64,
            _ => {
                return Err(PyValueError::new_err(
                    "an array in a GPU's memory must be of float32 or float64; convert it there first",
                ));
            }
        };
        let overflow = |_| PyValueError::new_err("the array's shape, strides or device are out of range");
        let size = |&v: &i64| usize::try_from(v).map_err(overflow);
        let stride = |&v: &i64| isize::try_from(v).map_err(overflow);
        let shape = described.shape().iter().map(size).collect::<PyResult<Vec<_>>>()?;
        let strides = described.strides_or_compact().map_err(invalid)?;
        let strides = strides.iter().map(stride).collect::<PyResult<Vec<_>>>()?;
        // SAFETY: the producer guarantees its description (the contract of DLPack); nothing is read here.
        let address = unsafe { described.offset_bytes_ptr() }.map_err(invalid)?.expose_provenance();
        let ordinal = usize::try_from(device.device_id).map_err(overflow)?;
        Ok(Self { address, element, shape, strides, ordinal, owner: Arc::new(Owner(Some(tensor))) })
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    #[getter]
    pub fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        match self.element {
            Precision::Float32 => numpy::dtype::<f32>(py),
            Precision::Float64 => numpy::dtype::<f64>(py),
        }
    }

    /// Copies an array of one or two dimensions to the host.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shape = self.shape.clone();
        if shape.contains(&0) {
            let numpy = py.import("numpy")?;
            return numpy.call_method1("empty", (self.shape(py)?, self.dtype(py)));
        }
        let host = crate::threads::compute(py, || self.array()?.to_host())?.map_err(exception)?;
        match host {
            HostArray::F32(x) => Ok(x.into_pyarray(py).reshape(shape)?.into_any()),
            HostArray::F64(x) => Ok(x.into_pyarray(py).reshape(shape)?.into_any()),
        }
    }
}

impl GpuArray {
    /// Returns the place that `device` denotes: 'auto' and 'cuda' mean the array's GPU.
    pub fn place(&self, device: &str) -> PyResult<Place> {
        if matches!(device, "auto" | "cuda") {
            return Ok(Place::Gpu);
        }
        match device.parse().map_err(exception)? {
            Device::Cuda(ordinal) if ordinal == self.ordinal => Ok(Place::Gpu),
            Device::Cuda(_) => Err(PyValueError::new_err(format!(
                "the array is on cuda:{}, and device='{device}' asks for another GPU; move the array there, or use device='cuda'",
                self.ordinal
            ))),
            device => Ok(Place::Host(device)),
        }
    }

    /// Returns an evaluator on the array's GPU. With `copy` it does not read the array again.
    pub fn load(&self, weights: Option<Array1<f64>>, options: &LoadOptions, copy: bool) -> gaussmix::Result<Loaded> {
        let mut array = self.array()?;
        if copy {
            array = array.copied()?;
        }
        if let Some(weights) = weights {
            array = array.with_weights(weights.into_shared())?;
        }
        let shape = (array.n_samples(), array.n_features());
        Ok((load_device_array(array, options)?, shape))
    }

    pub fn samples(&self) -> gaussmix::Result<Samples<'static>> {
        match self.array()?.to_host()? {
            HostArray::F32(x) => Samples::from_shared_f32(x.into_shared()),
            HostArray::F64(x) => Samples::from_shared_f64(x.into_shared()),
        }
    }

    /// Returns the array for the engine. One of a single dimension becomes a column; more than two are refused.
    fn array(&self) -> gaussmix::Result<DeviceArray> {
        let (shape, strides) = match (&self.shape[..], &self.strides[..]) {
            (&[n], &[row]) => ([n, 1], [row, 1]),
            (&[n, d], &[row, column]) => ([n, d], [row, column]),
            (got, _) => {
                let (what, expected) = ("an array in a GPU's memory", vec![0, 0]);
                return Err(gaussmix::Error::ShapeMismatch { what, expected, got: got.to_vec() });
            }
        };
        let pointer: *const c_void = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: the producer guarantees shape, strides and address, and its memory until the deleter is called, which
        // `owner` does. The producer was asked to order its work before the legacy default stream. The documentation of
        // the Python package asks that nobody writes to the array during a call.
        unsafe { DeviceArray::new(pointer, self.element, shape, strides, self.ordinal, self.owner.clone()) }
    }
}

/// Asks the producer for its array, without a version if it does not support DLPack's versions.
fn import(x: &Bound<'_, PyAny>) -> PyResult<ImportedDlpack> {
    let py = x.py();
    let options = PyDict::new(py);
    options.set_item("stream", LEGACY_DEFAULT_STREAM)?;
    options.set_item("max_version", (DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION))?;
    let capsule = match x.call_method("__dlpack__", (), Some(&options)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            options.del_item("max_version")?;
            x.call_method("__dlpack__", (), Some(&options))?
        }
        capsule => capsule?,
    };
    from_dlpack(capsule.cast::<PyCapsule>()?.as_any().as_borrowed(), None, None)
}
