//! The files of a run: results, and the state for resuming it.
mod csv;
mod journal;
mod npz;
mod paths;
mod saved;
mod snapshot;
pub mod temporary;

pub use journal::Journal;
pub use saved::{Saved, check_outputs, results};
