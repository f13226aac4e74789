//! Data sets: the samples, checked once, and the frame in which the fast backends see them.
pub(crate) mod frame;
pub(crate) mod patterns;
pub(crate) mod samples;
