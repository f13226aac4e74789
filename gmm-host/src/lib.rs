//! Gaussian-mixture log-likelihoods over data that stays resident in a backend.
//!
//! The path of a data set: [`Samples`] checks it once; a backend takes it in as an [`Evaluator`]
//! ([`ReferenceEvaluator`] in plain float64); a [`Mixture`], checked on construction, is then evaluated over it
//! as often as one likes.
mod error;
mod evaluator;
mod mixture;
mod packed;
mod reference;
mod samples;

pub use error::{Error, Result};
pub use evaluator::{Description, Evaluator};
pub use mixture::{CovarianceType, Covariances, Mixture, WEIGHT_SUM_TOLERANCE};
pub use reference::ReferenceEvaluator;
pub use samples::{Samples, View};
