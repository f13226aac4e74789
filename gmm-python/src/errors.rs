//! The engine's errors as Python's exceptions.
use gaussmix::{Error, hmm, io, mcmc};
use pyo3::create_exception;
use pyo3::exceptions::{
    PyFileNotFoundError, PyMemoryError, PyOSError, PyPermissionError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use std::io::ErrorKind;

create_exception!(gaussmix._core, NonFiniteError, PyValueError, "The data holds NaN or an infinite number.");
create_exception!(gaussmix._core, IllDefinedError, PyValueError, "A covariance is not positive definite.");
create_exception!(
    gaussmix._core,
    OutOfRangeError,
    PyValueError,
    "A mixture cannot be evaluated over the data in its number type."
);
create_exception!(
    gaussmix._core,
    TooFewSamplesError,
    PyValueError,
    "There are fewer samples that count than components."
);

/// Returns the exception for an error of the engine: `RuntimeError` for a lack of the machine, except `MemoryError` for
/// memory, and `ValueError` for bad arguments.
pub fn exception(error: Error) -> PyErr {
    let error = match error {
        // The exception that an object of Python raised when an evaluator called it.
        Error::Load(source) => match source.downcast::<PyErr>() {
            Ok(exception) => return *exception,
            Err(source) => Error::Load(source),
        },
        error => error,
    };
    let text = error.to_string();
    match error {
        Error::OutOfRange { .. } | Error::NonFiniteStatistic { .. } => OutOfRangeError::new_err(text),
        Error::NonFiniteSample { .. } => NonFiniteError::new_err(text),
        error if error.is_of_component() => IllDefinedError::new_err(text),
        Error::TooFewSamples { .. } | Error::TooFewWeightedSamples { .. } => TooFewSamplesError::new_err(text),
        Error::Memory { .. } => PyMemoryError::new_err(text),
        Error::NoCudaDevice { .. } | Error::Cuda { .. } | Error::Threads { .. } => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

/// Returns the exception for an error of a file: that of `open`, or `ValueError` for its content.
pub fn file_exception(error: io::Error) -> PyErr {
    let text = error.to_string();
    let io::Problem::Io { error, .. } = error.problem else { return PyValueError::new_err(text) };
    match error.kind() {
        ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
        ErrorKind::PermissionDenied => PyPermissionError::new_err(text),
        _ => PyOSError::new_err(text),
    }
}

pub fn hmm_exception(error: hmm::Error) -> PyErr {
    match error {
        hmm::Error::Host(error) => exception(error),
        error => PyValueError::new_err(error.to_string()),
    }
}

pub fn sampler_exception(error: mcmc::Error) -> PyErr {
    match error {
        mcmc::Error::Host(error) => exception(error),
        error => PyValueError::new_err(error.to_string()),
    }
}
