//! Gaussian-mixture log-likelihoods over data that stays resident in a backend.
//!
//! The path of a data set: [`Samples`] checks it once; a backend takes it in as an [`Evaluator`]
//! ([`ReferenceEvaluator`] in plain float64, [`CpuEvaluator`] with SIMD and threads); a [`Mixture`], checked on
//! construction, is then evaluated over it as often as one likes, or asked for the [`Statistics`] of an EM step, from
//! which [`GaussianMixtureParams`] fit.
mod auto;
mod chunked;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod density;
mod device;
mod error;
mod evaluator;
mod fit;
mod linalg;
mod metropolis;
mod mixture;
mod packed;
mod precision;
mod reference;
mod sample;
mod samples;
mod statistics;

pub use chunked::{ChunkedEvaluator, Load};
pub use cpu::CpuEvaluator;
#[cfg(feature = "cuda")]
pub use cuda::{CudaEvaluator, CudaOptions, GpuInfo, cuda_devices, cuda_kernel_names};
pub use device::{Device, LoadOptions, devices, kernel_names, load};
pub use error::{Error, Result};
pub use evaluator::{Description, Evaluator, Rows};
pub use fit::{
    Callback, Candidate, Criterion, Fit, GaussianMixture, GaussianMixtureParams, InitParams, Iteration, Selection,
    Standardization, StandardizationBuilder, StepwiseEm, merge_down, select,
};
pub use metropolis::{MetropolisPrior, MetropolisSteps, MetropolisTarget};
pub use mixture::{CovarianceType, Covariances, Mixture, SYMMETRY_TOLERANCE, WEIGHT_SUM_TOLERANCE};
pub use precision::{Operation, Precision};
pub use reference::ReferenceEvaluator;
pub use sample::Sampler;
pub use samples::{Samples, View};
pub use statistics::{COUNT_FLOOR, CentredSums, Freeze, Statistics, Update};

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
