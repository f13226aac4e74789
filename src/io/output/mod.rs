//! Result files.
mod disk_space;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
mod table;
mod whole_file;

pub use gmm_mcmc::temporary::remove_temporaries_and_exit;
pub use table::{Columns, IdColumn, Number, TableOutput};
pub use whole_file::Output;
