#![doc = include_str!("../README.md")]
mod data;
pub mod diagnostics;
mod error;
mod files;
mod model;
mod posterior;
mod rng;
mod rows;
mod run;
mod samplers;
mod summary;
mod target;

pub use data::{DataSummary, Fingerprint, fingerprint};
pub use error::{Error, Result};
pub use files::temporary;
pub use files::{Journal, Saved, check_outputs, results};
pub use model::{CorrelationsPrior, MeansPrior, PosteriorModel, Prior, ScalesPrior, Values, WeightsPrior};
pub use posterior::Posterior;
pub use run::{Chains, Outcome, Progress};
pub use samplers::{PosteriorDraw, Sampler, Settings, Start};
pub use summary::{Row, Summary};
pub use target::{RunIdentity, Target, Variable};
