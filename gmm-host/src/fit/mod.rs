//! Fitting by expectation-maximisation, or by variational inference, over any backend.
mod bayesian;
mod em;
mod grow;
mod init;
mod iterate;
mod kmeans;
mod many;
mod map_prior;
mod merge;
mod moments;
mod outcome;
mod params;
mod regularization;
pub mod scikit_learn;
mod select;
mod standard;
mod stepwise;

pub use bayesian::{BayesianGaussianMixtureParams, BayesianGaussianMixtureValidParams};
pub use many::{Run, Watch, evaluate_each, evaluate_rest, fit_on_gpu};
pub use map_prior::MapPrior;
pub use merge::merge_down;
pub use outcome::{Callback, Fit, Iteration};
pub use params::{GaussianMixtureParams, GaussianMixtureValidParams, InitParams};
pub use regularization::Regularized;
pub use select::{Candidate, Criterion, Selection, grow, select};
pub use standard::{Standardizable, Standardization, StandardizationBuilder};
pub use stepwise::{StepwiseEm, StochasticVariational};
