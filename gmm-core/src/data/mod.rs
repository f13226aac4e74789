//! Data sets: samples, checked once, and the frame for the fast backends.
pub mod array;
pub mod float;
pub mod frame;
pub mod noise;
pub mod patterns;
pub mod ranges;
pub mod samples;
pub mod true_values;
pub mod weights;
