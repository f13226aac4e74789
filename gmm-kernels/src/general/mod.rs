//! Everything for any shape, in float32 and in float64: three kernels, one after the other.
pub mod accumulate;
pub mod density;
pub mod posterior;
