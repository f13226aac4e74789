//! Gaussian mixtures at the speed of the hardware: the facade over [`gmm_host`] and [`gmm_mcmc`] (as
//! [`mcmc`]), and the files that models and data
//! come from ([`io`]).
pub mod io;
#[cfg(feature = "rust-cuda")]
mod rust_cuda;

pub use gmm_host::*;
pub use gmm_mcmc as mcmc;
#[cfg(feature = "rust-cuda")]
pub use rust_cuda::use_rust_cuda_kernels;

/// The examples in the README are tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
