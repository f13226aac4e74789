//! Gaussian-mixture log-likelihoods over data that stays resident in a backend.
//!
//! The path of a data set: [`Samples`] checks it once; a backend takes it in as an [`Evaluator`]
//! ([`ReferenceEvaluator`] in plain float64); a [`Mixture`], checked on construction, is then evaluated over it
//! as often as one likes, or asked for the [`Statistics`] of an EM step.
#[cfg(feature = "cuda")]
mod cuda;
mod density;
mod device;
mod error;
mod evaluator;
mod linalg;
mod mixture;
mod packed;
mod reference;
mod samples;
mod statistics;

#[cfg(feature = "cuda")]
pub use cuda::cuda_device_count;
pub use device::{Device, LoadOptions, devices, kernel_names, load};
pub use error::{Error, Result};
pub use evaluator::{Description, Evaluator, Rows};
pub use mixture::{CovarianceType, Covariances, Mixture, SYMMETRY_TOLERANCE, WEIGHT_SUM_TOLERANCE};
pub use reference::ReferenceEvaluator;
pub use samples::{Samples, View};
pub use statistics::{COUNT_FLOOR, CentredSums, Freeze, Statistics, Update};
