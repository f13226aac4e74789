//! Gaussian mixtures at the speed of the hardware: the facade over [`gmm_host`] and what the command line is made of.
pub use gmm_host::*;
