//! The exit codes of the program.

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const FAILURE: u8 = 1;
