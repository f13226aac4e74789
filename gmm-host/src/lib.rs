//! Gaussian-mixture log-likelihoods over data that stays resident in a backend.
//!
//! The path of a data set: [`Samples`] checks it once; a backend takes it in as an [`Evaluator`]
//! ([`ReferenceEvaluator`] in plain float64, [`CpuEvaluator`] with SIMD and threads); a [`Mixture`], checked on
//! construction, is then evaluated over it as often as one likes, or asked for the [`Statistics`] of an EM step, from
//! which [`GaussianMixtureParams`] fit.
mod backends;
mod compensated;
mod data;
mod device;
mod error;
mod evaluator;
mod fit;
#[cfg(feature = "linfa")]
mod linfa;
mod metropolis;
mod model;
mod precision;
mod predict;
mod source;
mod statistics;

pub use backends::chunked::{ChunkedEvaluator, Load};
pub use backends::cpu::CpuEvaluator;
#[cfg(feature = "cuda")]
pub use backends::cuda::{CudaEvaluator, CudaOptions, GpuInfo, cuda_devices, cuda_kernel_names};
pub use backends::reference::ReferenceEvaluator;
pub use data::samples::{Element, Rows, Samples, View};
pub use device::{Device, LoadOptions, devices, kernel_names, load};
pub use error::{Error, Result};
pub use evaluator::{Description, Evaluator};
pub use fit::{
    Callback, Candidate, Criterion, Fit, GaussianMixtureParams, GaussianMixtureValidParams, InitParams, Iteration,
    Selection, Standardization, StandardizationBuilder, StepwiseEm, merge_down, select,
};
pub use metropolis::{MetropolisPrior, MetropolisSteps, MetropolisTarget};
pub use model::covariances::{CovarianceType, Covariances};
pub use model::mixture::{Mixture, SYMMETRY_TOLERANCE, WEIGHT_SUM_TOLERANCE};
pub use model::sampler::Sampler;
pub use precision::{Operation, Precision};
pub use predict::MixtureOn;
pub use source::DataSource;
pub use statistics::{COUNT_FLOOR, CentredSums, Freeze, Statistics, Update};
