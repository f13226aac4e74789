//! Fitting by expectation-maximisation over any backend.
mod em;
mod init;
mod kmeans;
mod merge;
mod outcome;
mod params;
pub mod scikit_learn;
mod select;
mod standard;
mod stepwise;

pub use merge::merge_down;
pub use outcome::{Callback, Fit, Iteration};
pub use params::{GaussianMixtureParams, GaussianMixtureValidParams, InitParams};
pub use select::{Candidate, Criterion, Selection, select};
pub use standard::{Standardization, StandardizationBuilder};
pub use stepwise::StepwiseEm;
