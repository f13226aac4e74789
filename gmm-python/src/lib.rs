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

/// Runs the command `gmm` with its arguments, the first of which is its name, and returns its exit code.
#[pyfunction]
fn run_program(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| gaussmix_cli::run(arguments))
}

/// Returns the arguments of `python -m gaussmix.mpi` by their names, or a text to print and the exit code.
#[pyfunction]
fn mpi_arguments(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> PyResult<Bound<'_, PyAny>> {
    Ok(pythonize::pythonize(py, &gaussmix_cli::mpi_arguments(arguments))?)
}

#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // Names of models besides scikit-learn's.
    let models = CovarianceModel::ALL.map(CovarianceModel::mclust_name);
    module.add(
        "MODELS",
        PyTuple::new(py, models.into_iter().chain(["tied-diagonal", "tied-spherical"]).collect::<Vec<_>>())?,
    )?;
    module.add("NonFiniteError", py.get_type::<errors::NonFiniteError>())?;
    module.add("IllDefinedError", py.get_type::<errors::IllDefinedError>())?;
    module.add("OutOfRangeError", py.get_type::<errors::OutOfRangeError>())?;
    module.add("TooFewSamplesError", py.get_type::<errors::TooFewSamplesError>())?;
    module.add_class::<chains::Chains>()?;
    module.add_class::<data::Data>()?;
    module.add_class::<fit::Fit>()?;
    module.add_class::<fits::Fits>()?;
    module.add_class::<gpu::GpuArray>()?;
    module.add_class::<hmm::HiddenMarkov>()?;
    module.add_class::<hmm::Sequences>()?;
    module.add_class::<hmm::SequenceStream>()?;
    module.add_class::<hmm::VariationalHiddenMarkov>()?;
    module.add_class::<mixture::Mixture>()?;
    module.add_class::<mixture::Mixtures>()?;
    module.add_class::<pairwise::InnerProducts>()?;
    module.add_class::<regression::Regression>()?;
    module.add_class::<standard::Standardization>()?;
    module.add_class::<statistics::Statistics>()?;
    module.add_class::<variational::VariationalMixture>()?;
    module.add_function(wrap_pyfunction!(data::mean_score, module)?)?;
    module.add_function(wrap_pyfunction!(data::impute, module)?)?;
    module.add_function(wrap_pyfunction!(data::denoise, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::covariance_form, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::covariance_models, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::has_prior, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::needs_one_unit, module)?)?;
    module.add_function(wrap_pyfunction!(statistics::check_freeze, module)?)?;
    module.add_function(wrap_pyfunction!(check_memory, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(free_gpu_memory, module)?)?;
    module.add_function(wrap_pyfunction!(many::fit_many, module)?)?;
    module.add_function(wrap_pyfunction!(half_of_the_memory, module)?)?;
    module.add_function(wrap_pyfunction!(pairwise::gaussian_kernel, module)?)?;
    module.add_function(wrap_pyfunction!(pairwise::gaussian_kernel_pairs, module)?)?;
    module.add_function(wrap_pyfunction!(run_program, module)?)?;
    module.add_function(wrap_pyfunction!(mpi_arguments, module)?)?;
    module.add_function(wrap_pyfunction!(start::kmeans, module)?)?;
    module.add_function(wrap_pyfunction!(start::kmeans_plusplus, module)?)?;
    module.add_function(wrap_pyfunction!(fit::option_names, module)?)?;
    module.add_function(wrap_pyfunction!(start::kmeans_statistics, module)?)?;
    module.add_function(wrap_pyfunction!(start::hierarchy, module)?)?;
    module.add_function(wrap_pyfunction!(start::hierarchy_classes, module)?)?;
    module.add_function(wrap_pyfunction!(start::mixture_of_clusters, module)?)?;
    module.add_function(wrap_pyfunction!(start::n_uniforms, module)?)?;
    module.add_function(wrap_pyfunction!(start::quantile_classes, module)?)?;
    module.add_function(wrap_pyfunction!(threads::after_fork, module)?)?;
    Ok(())
}
