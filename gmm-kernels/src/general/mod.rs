//! Every operation for any shape, in float32 and in float64, by three successive kernels.
//!
//! [`density`] computes the exponents of a few thousand samples and all components, [`posterior`] scores and
//! responsibilities from them, [`accumulate`] the sufficient statistics. The numbers pass through a buffer of fixed
//! size, so that no array of size N·K is needed. The other kernels are faster, each for some shapes.
pub mod accumulate;
pub mod density;
pub mod posterior;
