//! Errors of the driver.
use crate::error::{Error, Result};
use cust::error::CudaError;
use cust::sys;
use std::fmt::Write as _;

/// Turns a failure of the driver into an error that names the call.
pub fn failed(op: &'static str) -> impl Fn(CudaError) -> Error {
    move |error| Error::Cuda { op, message: message(error) }
}

/// Turns the result of a function that `cust` does not wrap into an error that names the call.
pub fn check(op: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: a place for the pointer to a text that lives as long as the driver.
    let known = unsafe { sys::cuGetErrorString(result, &mut text) } == sys::CUresult::CUDA_SUCCESS && !text.is_null();
    let message = if known {
        // SAFETY: the driver gave a text that ends with a zero.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        format!("{} (code {})", text.to_string_lossy(), result as i32)
    } else {
        format!("{result:?} (code {})", result as i32)
    };
    Err(Error::Cuda { op, message })
}

/// The driver's text for an error, and its code.
pub fn message(error: CudaError) -> String {
    let mut text = String::new();
    // `cust` fails to format a code that the driver does not know.
    if write!(text, "{error}").is_err() {
        text = format!("{error:?}");
    }
    format!("{} (code {})", text.trim_matches('"'), error as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_call_and_the_reason() {
        let text = failed("cuMemAlloc")(CudaError::OutOfMemory).to_string();
        assert!(text.contains("cuMemAlloc") && text.contains("(code 2)"), "{text}");
        let text = check("cuStreamQuery", sys::CUresult::CUDA_ERROR_LAUNCH_FAILED).unwrap_err().to_string();
        assert!(text.contains("cuStreamQuery") && text.contains("(code 719)"), "{text}");
        assert!(check("cuStreamQuery", sys::CUresult::CUDA_SUCCESS).is_ok());
    }
}
