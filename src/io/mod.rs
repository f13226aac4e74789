//! Files: data in (`.npy`, `.csv`), models in and out (JSON), results out.
//!
//! Rows, columns and components are counted from 0; lines of a text file from 1, as editors do.
mod csv;
mod data;
mod error;
mod json;
mod model;
mod npy;
mod output;

pub use data::{Data, read_data};
pub use error::{Error, Problem, Result};
pub use model::{model_to_json, parse_model, read_model};
pub use npy::write_npy;
pub use output::Output;
