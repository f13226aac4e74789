//! Result files.
mod disk_space;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
mod table;
mod whole_file;

pub use table::{Columns, IdColumn, TableNumber, TableOutput};
pub use whole_file::Output;
