//! A device: its driver, memory and kernels, and the samples on it.
mod buffer;
pub(crate) mod driver;
pub(crate) mod gpu;
pub(crate) mod kernel;
pub(super) mod launch;
pub(crate) mod layout;
pub(crate) mod memory;
pub(super) mod place;
pub(super) mod ptx;
pub(crate) mod queue;
pub(super) mod samples;
pub(super) mod slots;
pub(super) mod staging;
pub(super) mod stream;
pub(super) mod workspace;

use gmm_core::error::{Error, Result};

pub(super) fn mismatch(what: &'static str, expected: Vec<usize>, got: Vec<usize>) -> Error {
    Error::ShapeMismatch { what, expected, got }
}

/// Checks the length or size that a launch needs: [`Error::ShapeMismatch`] if there is less.
fn require_len(what: &'static str, needed: usize, got: usize) -> Result<()> {
    if needed > got { Err(mismatch(what, vec![needed], vec![got])) } else { Ok(()) }
}

/// Checks a condition of a launch.
///
/// # Errors
/// [`Error::ShapeMismatch`] if it does not hold.
pub fn require(what: &'static str, holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(mismatch(what, vec![], vec![])) }
}
