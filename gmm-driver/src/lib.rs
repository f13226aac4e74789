//! The CUDA driver, found at run time, in three layers: its functions (`functions.rs`), their codes as [`Result`]s, and
//! owners of the driver's objects.
//!
//! Every owner keeps the [`Context`] it was made in, so that a context is released last, and enters that context to
//! release its object.
//!
//! Every fallible method returns [`Error::Call`] if a call of the driver fails.
//!
//! Rust cannot see a device's memory accesses while the host goes on: launches and asynchronous copies are `unsafe`,
//! and the caller keeps the memory until the work is done.
mod context;
mod device;
mod error;
mod event;
mod functions;
mod memory;
mod module;
mod stream;
#[cfg(test)]
mod tests;

pub use context::{Context, Entered};
pub use device::{Attribute, Device, Driver};
pub use error::{Error, Result};
pub use event::Event;
pub use functions::Find;
pub use memory::{DeviceBuffer, LockedBuffer, Plain};
pub use module::{Function, Module};
pub use stream::Stream;

/// The README's example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
