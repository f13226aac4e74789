//! Bayesian Gaussian mixtures by Markov chain Monte Carlo.
//!
//! A [`Model`] is a mixture's shape with a [`Prior`]; with an evaluator of `gmm-host`, on whatever device, it is
//! a [`Posterior`]; a [`Run`] samples from it by random-walk Metropolis, an affine-invariant ensemble or NUTS
//! ([`Sampler`]), and can be stopped, saved and resumed to the bit. Draws are written as CmdStan writes them.
mod archive;
mod data;
pub mod diagnostics;
mod ensemble;
mod error;
mod journal;
mod linalg;
mod metropolis;
mod model;
mod nuts;
mod output;
mod posterior;
mod prior;
mod rng;
mod run;
mod sampler;
mod saved;
mod summary;
mod target;
mod transform;
mod walk;

pub use data::{DataSummary, Fingerprint, fingerprint};
pub use error::{Error, Result};
pub use journal::Journal;
pub use model::Model;
pub use posterior::Posterior;
pub use prior::{CorrelationsPrior, MeansPrior, Prior, ScalesPrior, Values, WeightsPrior};
pub use run::{Outcome, Progress, Run};
pub use sampler::{Draw, Sampler, Settings, Start};
pub use saved::{Saved, check_outputs};
pub use summary::{Row, Summary};
pub use target::{Identity, Target, Variable};
pub use walk::Walk;
