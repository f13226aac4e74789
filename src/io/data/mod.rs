//! Data sets from files.
mod array;
#[cfg(feature = "parquet")]
pub(super) mod arrow;
#[cfg(feature = "parquet")]
mod arrow_ipc;
#[cfg(feature = "parquet")]
mod arrow_stream;
mod block;
mod columns;
mod csv;
pub(super) mod damaged;
mod decimal;
mod file_stamp;
mod files;
mod header;
pub(super) mod npy;
mod npy_element;
pub(super) mod npy_header;
pub(super) mod npy_text;
#[cfg(feature = "parquet")]
pub(super) mod parquet;
mod part;
mod stream;
mod table;

pub use array::Data;
pub use block::Ids;
pub(super) use columns::short;
pub use columns::{ColumnSelection, names_in_words};
#[cfg(feature = "clap")]
pub(crate) use damaged::panics_are_caught;
pub use decimal::Decimal;
pub use npy::write_npy;
pub use table::{Contents, DataFile, Table};

use super::error::Result;
use ndarray::Array1;
use std::path::Path;

/// Reads a data set (N, D) into memory.
///
/// * `.npy`: float16, float32 and float64, integers and booleans, either byte order, C or Fortran order. float16 and
///   float32 are read as float32, other types as float64.
/// * `.csv`, `.tsv`, `.txt`, `.data`, `.dat`, `.tab`, `.asc`: numbers separated by commas, tabs, semicolons, vertical
///   bars or spaces, read as float64. The text is in UTF-8, or in UTF-16 with its mark; names and texts that are not
///   UTF-8 are read as Windows-1252. The first line is a header if none of its fields is a number, or if its numbers
///   look like names (years, equal steps; [`Table::remarks`] then says so); [`ColumnSelection::header`] overrides this.
///   Empty lines are skipped, and so are lines at the beginning that begin with `#`; the last of these is the header if
///   it has as many names as there are columns. Separators at the end of all lines are ignored. If only the first
///   column has no name, or the header has one name fewer than there are columns, the first column is an index of the
///   rows, which is a feature only if [`ColumnSelection::columns`] names it `column 0`; pandas' `__index_level_0__`
///   likewise.
/// * With the feature `parquet`: `.parquet`; `.arrow`, `.feather` or `.arrows` (Arrow IPC, files and streams): float16
///   and float32 as float32, other numbers as float64.
/// * `.npy`, text and `.arrows` may be compressed by gzip, bzip2 or Zstandard (`.csv.gz`, `.csv.bz2`, `.csv.zst`). The
///   path `-` stands for standard input.
///
/// A missing value (an empty field, `NA`, `N/A`, `#N/A`, `<NA>`, `NaN`, `NaT`, `None`, `null`, `?`, a null of Arrow,
/// and the texts of [`ColumnSelection::na_values`]) is NaN. The values are not checked: [`Data::samples`] does that.
/// [`Table`] reads some of the columns, and several files as one data set; [`DataFile`] reads parts.
///
/// # Errors
/// If the file cannot be read, has none of these formats, is cut short or changes while it is read; the error names the
/// file and the place. Memory is taken in proportion to the size of the file, whatever its header claims; the content
/// of a compressed file may be a thousand times larger, and is refused beyond half of the machine's memory.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    Ok(Table::open(&[path], &ColumnSelection::default())?.read()?.data)
}

/// Reads one number for each sample (N,), such as sample weights, from an array of shape (N,) or (N, 1) or from a table
/// with one column. The values are not checked. [`Table::open_vector`] has remarks on the file.
///
/// # Errors
/// As [`read_data`].
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array1<f64>> {
    Table::open_vector(path)?.read_vector()
}
