//! Result files.
mod disk_space;
mod table;
mod temporary;
mod whole_file;

pub use table::{Columns, IdColumn, Number, TableOutput};
pub use temporary::remove_temporaries_and_exit;
pub use whole_file::Output;
