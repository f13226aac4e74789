//! Errors of the driver.
use crate::functions::{Code, Functions, NOT_SUPPORTED, SUCCESS};
use std::ffi::{CStr, c_char};

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the driver, or its absence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver's library cannot be loaded.
    #[error("the CUDA driver library {library} cannot be loaded: {reason}")]
    Absent {
        /// The name of the library.
        library: &'static str,
        /// The loader's explanation.
        reason: String,
    },
    /// A call failed.
    #[error("{call}: {message}")]
    Call {
        /// The function, without its version suffix: `cuMemAlloc`.
        call: &'static str,
        /// The driver's code: 2 for `CUDA_ERROR_OUT_OF_MEMORY`.
        code: u32,
        /// The driver's text for the code, with its name and number.
        message: String,
    },
}

impl Functions {
    pub fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    pub fn error(&self, call: &'static str, code: Code) -> Error {
        let text = |ask: unsafe extern "system" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: a place for a pointer to a text, which lives as long as the driver.
            let known = unsafe { ask(code, &mut text) } == SUCCESS && !text.is_null();
            // SAFETY: the driver gave a text that ends with a zero.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.cuGetErrorName).unwrap_or_else(|| "a code without a name".into());
        let what = text(self.cuGetErrorString).unwrap_or_else(|| match code {
            NOT_SUPPORTED => "the driver does not have this function".into(),
            _ => "the driver has no text for this error".into(),
        });
        Error::Call { call, code, message: format!("{what} ({name}, code {code})") }
    }
}
