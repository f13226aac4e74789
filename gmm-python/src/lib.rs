//! The extension module of the Python package `gaussmix`: the engine behind `gaussmix._core`, which is private to that
//! package. Python checks and completes the arguments of callers; arguments of a wrong form still raise an exception
//! here.
mod arrays;
mod bytes;
mod chains;
mod data;
mod errors;
mod fit;
mod fits;
#[cfg_attr(not(feature = "cuda"), path = "no_gpu.rs")]
mod gpu;
mod hmm;
mod loaded;
mod many;
mod mixture;
mod noise;
mod pairwise;
mod regression;
mod remote;
mod standard;
mod start;
mod statistics;
mod threads;
mod variational;

use gaussmix::model::CovarianceModel;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::OsString;
use std::path::PathBuf;

/// A device: its name, its description, and the reason why it cannot be used.
type Found = (String, Option<String>, Option<String>);

#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<Found>> {
    let found = threads::compute(py, gaussmix::device::devices)?;
    let row = |(device, found): (gaussmix::device::Device, gaussmix::Result<String>)| match found {
        Ok(description) => (device.to_string(), Some(description), None),
        Err(error) => (device.to_string(), None, Some(error.to_string())),
    };
    Ok(found.into_iter().map(row).collect())
}

/// Returns the bytes that samples can take now in the memory of a GPU, or of several that share them; `None` for other
/// devices.
#[pyfunction]
fn free_gpu_memory(py: Python<'_>, device: &str) -> PyResult<Option<u64>> {
    let device: gaussmix::device::Device = device.parse().map_err(errors::exception)?;
    threads::compute(py, || device.free_gpu_memory())
}

/// Returns half of the memory that this process may use, in bytes.
#[pyfunction]
fn half_of_the_memory() -> u64 {
    gaussmix::memory::half()
}

/// Raises `MemoryError` if an array of this shape, with `element` bytes for each element, does not fit into the free
/// memory.
#[pyfunction]
fn check_memory(what: &str, shape: Vec<u128>, element: usize, remedy: &str) -> PyResult<()> {
    // A length beyond usize is refused like the longest one.
    let shape: Vec<usize> = shape.into_iter().map(|length| usize::try_from(length).unwrap_or(usize::MAX)).collect();
    gaussmix::memory::check(what, &shape, element, remedy).map_err(errors::exception)
}

/// Raises the exception for a file of a model that cannot be written, and changes nothing there.
#[pyfunction]
fn check_output(path: PathBuf) -> PyResult<()> {
    gaussmix::io::ModelOutput::create(path).map(drop).map_err(errors::file_exception)
}

/// Runs the command `gmm` with its arguments, by default those of the process, and returns its exit code.
#[pyfunction]
#[pyo3(signature = (arguments=None))]
fn run_program(py: Python<'_>, arguments: Option<Vec<OsString>>) -> PyResult<u8> {
    let given = || py.import("sys")?.getattr("argv")?.extract::<Vec<OsString>>();
    let arguments = arguments.map_or_else(given, Ok)?;
    Ok(py.detach(|| gaussmix_cli::run([OsString::from("gmm")].into_iter().chain(arguments.into_iter().skip(1)))))
}

/// Returns the arguments of `python -m gaussmix.mpi` by their names, or a text to print and the exit code.
#[pyfunction]
fn mpi_arguments(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<Bound<'_, PyAny>> {
    Ok(pythonize::pythonize(py, &gaussmix_cli::mpi_arguments(arguments))?)
}

#[pymodule(gil_used = false)]
mod _core {
    use super::*;

    #[pymodule_export]
    use super::{
        arrays::{covariance_form, covariance_models, has_prior, needs_one_unit},
        chains::Chains,
        check_memory, check_output,
        data::{Data, denoise, impute, mean_score},
        devices,
        errors::{IllDefinedError, NonFiniteError, OutOfRangeError, TooFewSamplesError},
        fit::{Fit, option_names},
        fits::Fits,
        free_gpu_memory,
        gpu::GpuArray,
        half_of_the_memory,
        hmm::{HiddenMarkov, SequenceStream, Sequences, VariationalHiddenMarkov},
        many::fit_many,
        mixture::{Mixture, Mixtures},
        mpi_arguments,
        pairwise::{InnerProducts, gaussian_kernel},
        regression::Regression,
        run_program,
        standard::Standardization,
        start::{
            hierarchy, hierarchy_classes, kmeans, kmeans_plusplus, kmeans_statistics, mixture_of_clusters, n_uniforms,
            quantile_classes,
        },
        statistics::{Statistics, check_freeze},
        threads::after_fork,
        variational::VariationalMixture,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // Names of models besides scikit-learn's.
        let models = CovarianceModel::ALL.map(CovarianceModel::mclust_name);
        let models = models.into_iter().chain(["tied-diagonal", "tied-spherical"]).collect::<Vec<_>>();
        module.add("MODELS", PyTuple::new(module.py(), models)?)
    }
}
