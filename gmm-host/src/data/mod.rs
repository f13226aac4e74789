//! Data sets: the samples, checked once, and the frame in which the fast backends see them.
mod array;
pub(crate) mod float;
pub(crate) mod frame;
pub(crate) mod patterns;
mod ranges;
pub(crate) mod samples;
pub(crate) mod weights;
