//! Files: data in (`.npy`, `.csv`), models in and out (`.json`, `.npz`), results out.
//!
//! Rows, columns and components are counted from 0; lines of a text file from 1, as editors do.
mod checkpoint;
mod csv;
mod data;
mod error;
mod header;
mod identity;
mod json;
mod model;
mod npy;
mod npz;
mod output;
mod space;
mod stamp;
mod table;
mod temporary;

pub use checkpoint::{Checkpoint, CheckpointOutput, read_checkpoint};
pub use data::{Data, DataFile, read_data, read_data_within, read_vector};
pub use error::{Error, Problem, Result};
pub use identity::Identity;
pub use model::{Found, ModelOutput, model_to_json, parse_model, read_found_model, read_model};
pub use npy::write_npy;
pub use npz::check_npz;
pub use output::Output;
pub use table::{Columns, TableOutput};
pub use temporary::exit_without_temporaries;

/// The extension of a file's name in lower case; empty without one.
fn extension(path: &std::path::Path) -> String {
    path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase()
}
