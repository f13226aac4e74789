#![doc = include_str!("../README.md")]
mod chunks;
mod device;
mod emissions;
mod error;
mod expectations;
mod fit;
mod gradient;
mod lattice;
mod logs;
mod model;
mod moments;
mod priors;
mod select;
mod sequences;
mod start;
mod tile;
mod variational;
mod viterbi;

pub use error::{Error, Result};
pub use expectations::Expectations;
pub use fit::{Fitted, Options, Stream};
pub use gradient::Gradient;
pub use model::HiddenMarkov;
pub use priors::{Frozen, Priors};
pub use select::{Candidate, Selection};
pub use sequences::Sequences;
pub use variational::{Hyperparameters, VariationalHiddenMarkov};
