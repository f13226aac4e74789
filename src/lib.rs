//! Gaussian mixture models on the CPU and on CUDA GPUs.
//!
//! - [`model`]: mixtures and their covariances; [`data`]: samples.
//! - [`fit`]: mixtures fitted to samples by expectation-maximisation, and the choice of the number of components.
//! - [`device`]: loads samples on a device as an [`evaluator`], which computes the log-likelihood of one mixture after
//!   another, or the [`statistics`] of an E-step.
//! - [`hmm`]: hidden Markov models, whose states emit from mixtures.
//! - [`mcmc`]: Markov chain Monte Carlo over the parameters.
//! - [`pairwise`]: rows compared with rows, by inner products and the Gaussian kernel.
//! - [`io`]: files of data and models.
//!
//! ```
//! use gaussmix::fit::GaussianMixtureParams;
//! use gaussmix::model::Predict;
//! use ndarray::array;
//!
//! let x = array![[1.0, 2.0], [1.1, 4.0], [0.9, 0.0], [10.0, 2.0], [10.2, 4.0], [9.9, 0.0]];
//! let fit = GaussianMixtureParams::new(2).fit(&x)?;
//! let labels = fit.mixture.predict(&x)?;
//! assert!(labels[0] == labels[1] && labels[0] != labels[3]);
//! # Ok::<(), gaussmix::Error>(())
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! - `cuda`: NVIDIA GPUs of compute capability 8.0 and later. It builds without CUDA; the driver is found at run time.
//! - `clap`: the options of a fit as arguments of clap, and `program`.
//! - `machine-code`: the kernels also as machine code for common GPUs (7 MB), so that the driver need not compile them
//!   at first use.
//! - `parquet`: tables in Parquet and Arrow files, besides `.npy` and text.
//!
//! The crate joins [`gmm_host`], [`gmm_hmm`], [`gmm_mcmc`] and [`gmm_pairwise`]; the program `gmm` is the crate `gaussmix-cli`.
// Lets the modules call the library by its public name.
extern crate self as gaussmix;

pub mod io;
#[cfg(feature = "rust-cuda")]
mod rust_cuda;

#[doc(inline)]
pub use gmm_hmm as hmm;
#[cfg(feature = "cuda")]
#[doc(inline)]
pub use gmm_host::cuda;
pub use gmm_host::{Error, Interrupt, Reproducible, Result};
#[doc(inline)]
pub use gmm_host::{data, device, evaluator, fit, linalg, memory, model, statistics};
#[doc(inline)]
pub use gmm_mcmc as mcmc;
pub use gmm_pairwise as pairwise;
#[cfg(feature = "rust-cuda")]
pub use rust_cuda::use_rust_cuda_kernels;

/// For programs: parsers of counts, and an exit that leaves no unfinished file.
#[cfg(feature = "clap")]
pub mod program {
    #[doc(inline)]
    pub use gmm_host::count::{whole_number, whole_number_or_0};
    #[doc(inline)]
    pub use gmm_mcmc::temporary::remove_temporaries_and_exit;

    /// Whether this thread reads a file with a library whose panics are caught and become errors. A panic hook need not
    /// report them.
    pub fn panics_are_caught() -> bool {
        crate::io::panics_are_caught()
    }
}

/// The Rust snippets of the README and of the guide run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/between.md")]
#[doc = include_str!("../docs/fit.md")]
#[doc = include_str!("../docs/gradients.md")]
#[doc = include_str!("../docs/inside.md")]
#[doc = include_str!("../docs/likelihood.md")]
#[doc = include_str!("../docs/many.md")]
#[doc = include_str!("../docs/moves.md")]
#[doc = include_str!("../docs/rust.md")]
struct Guide;
