//! Files: reads data (arrays and tables), reads and writes models (`.json`, `.npz`), and writes results.
//!
//! Rows, columns and components are counted from 0; lines of a text file from 1, as in editors.
mod data;
mod error;
mod identity;
mod model;
mod output;

#[cfg(feature = "clap")]
pub(crate) use data::panics_are_caught;
pub use data::{
    ColumnSelection, Contents, Data, DataFile, Decimal, Ids, Table, names_in_words, read_data, read_vector, write_npy,
};
pub use error::{Error, Problem, Result};
pub use identity::Identity;
pub use model::{
    Checkpoint, CheckpointOutput, FitLog, FitSummary, GroupFit, GroupModels, GroupOutput, HiddenMarkovFile, Model,
    ModelInFile, ModelOutput, model_to_c, model_to_json, parse_model, read_checkpoint, read_model,
    read_model_with_summary, read_text,
};
pub use output::{Columns, IdColumn, Output, TableNumber, TableOutput};

/// Returns the extension of a file's name in lower case; empty if it has none.
fn extension(path: &std::path::Path) -> String {
    path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase()
}
