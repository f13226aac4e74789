//! Data sets: the samples, checked once, and the frame in which the fast backends see them.
pub mod array;
pub mod float;
pub mod frame;
pub mod patterns;
pub mod ranges;
pub mod samples;
pub mod weights;
