//! Gaussian mixture models on the CPU and on CUDA GPUs.
//!
//! This crate puts together the engine [`gmm_host`] (mixtures, data, devices, fitting; all its
//! items are here as well), Markov chain Monte Carlo (`gmm_mcmc`, here [`mcmc`]), comparisons of rows
//! with rows (`gmm_pairwise`, here [`pairwise`]) and the files of data and models ([`io`]). The
//! program `gmm` is built on it ([`program`]).
// The modules of the program use the library by the name that others know it by.
extern crate self as gaussmix;

mod commands;
mod exit_code;
mod input;
pub mod io;
mod plot;
pub mod program;
#[cfg(feature = "rust-cuda")]
mod rust_cuda;
mod terminal;

pub use gmm_host::*;
pub use gmm_mcmc as mcmc;
pub use gmm_pairwise as pairwise;
pub use plot::plane::Plane;
#[cfg(feature = "rust-cuda")]
pub use rust_cuda::use_rust_cuda_kernels;

/// The Rust snippets of the README and of the guide run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/fit.md")]
#[doc = include_str!("../docs/likelihood.md")]
#[doc = include_str!("../docs/rust.md")]
struct Guide;
