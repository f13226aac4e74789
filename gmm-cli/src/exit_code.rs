//! The exit codes of the program.

/// The exit code of a command that succeeded.
pub(crate) const SUCCESS: u8 = 0;
/// The exit code of a command that failed.
pub(crate) const FAILURE: u8 = 1;
