//! The CUDA driver, found at run time, in three layers: its functions as they are
//! (`functions.rs`), their answers as [`Result`]s, and owners of what it makes.
//!
//! Every owner keeps the [`Context`] in which it was made, so that a context is released last, and
//! enters that context where it releases anything.
//!
//! What a device does with memory while the host goes on, Rust cannot see: launches and
//! asynchronous copies are `unsafe`, and their caller keeps the memory until the work is done.
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

pub use context::Context;
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
