//! Data sets from files.
mod arrow;
mod arrow_ipc;
mod arrow_stream;
mod block;
mod columns;
mod csv;
mod decimal;
mod file_stamp;
pub(super) mod npy;
pub(super) mod npy_header;
mod parquet;
mod stream;
mod table;

pub use arrow::panics_are_caught;
pub use block::Ids;
pub use columns::Selection;
pub(super) use columns::short;
pub use decimal::Decimal;
pub use npy::write_npy;
pub use table::{Contents, DataFile, Table};

use super::{Problem, Result};
use gmm_host::Samples;
use ndarray::{Array1, Array2, s};
use npy::Dtype;
use std::path::Path;

/// N samples of D features, in the element type of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Data {
    /// float32 (N, D), in the file's memory order.
    F32(Array2<f32>),
    /// float64 (N, D), in the file's memory order.
    F64(Array2<f64>),
}

impl Data {
    /// (N, D).
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::F32(x) => x.dim(),
            Self::F64(x) => x.dim(),
        }
    }

    /// Name of the element type.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => Dtype::F32.name(),
            Self::F64(_) => Dtype::F64.name(),
        }
    }

    /// Bytes of the values.
    pub fn n_bytes(&self) -> u64 {
        match self {
            Self::F32(x) => size_of::<f32>() as u64 * x.len() as u64,
            Self::F64(x) => size_of::<f64>() as u64 * x.len() as u64,
        }
    }

    /// Some of the rows.
    fn rows(&self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::F32(x) => Self::F32(x.slice(s![rows, ..]).into_owned()),
            Self::F64(x) => Self::F64(x.slice(s![rows, ..]).into_owned()),
        }
    }

    /// The data as checked samples that own it. Errors: as [`samples`](Self::samples).
    pub fn into_samples<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::from_shared_f32(x.into_shared()),
            Self::F64(x) => Samples::from_shared_f64(x.into_shared()),
        }
    }

    /// As [`into_samples`](Self::into_samples), with NaN for values that are missing:
    /// [`Samples::with_missing`].
    pub fn into_samples_with_missing<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::with_shared_missing(x.into_shared()),
            Self::F64(x) => Samples::with_shared_missing(x.into_shared()),
        }
    }

    /// As [`samples`](Self::samples), with NaN for values that are missing:
    /// [`Samples::with_missing`].
    pub fn samples_with_missing(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::with_missing(x.view()),
            Self::F64(x) => Samples::with_missing(x.view()),
        }
    }

    /// The data as checked samples. Errors: [`gmm_host::Error::EmptyData`],
    /// [`gmm_host::Error::NonFiniteSample`].
    pub fn samples(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::from_f32(x.view()),
            Self::F64(x) => Samples::from_f64(x.view()),
        }
    }
}

/// Reads a data set (N, D) into memory.
///
/// * `.npy`: float16, float32 and float64, integers and booleans, either byte order, C or Fortran
///   order. float16 and float32 are read as float32, other types as float64.
/// * `.csv`, `.tsv`, `.txt`: numbers separated by commas, tabs, semicolons, vertical bars or
///   spaces, read as float64. The text is in UTF-8, or in UTF-16 with its mark. The first line is a
///   header if none of its fields is a number. Empty lines are skipped, and so are lines at the
///   beginning that begin with `#`; the last of these is the header if it has as many names as
///   there are columns. A separator at the end of all lines separates nothing. A first column
///   without a name, where the others have names, is an index of the rows, and no feature unless
///   [`Selection::columns`] names it `column 0`; pandas' `__index_level_0__` likewise.
/// * `.parquet`; `.arrow`, `.feather` or `.arrows` (Arrow IPC, files and streams): float16 and
///   float32 as float32, other numbers as float64.
/// * `.npy`, text and `.arrows` may be compressed by gzip or Zstandard (`.csv.gz`, `.csv.zst`). The
///   path `-` stands for standard input.
///
/// A missing value (an empty field, `NA`, `NaN`, `null`, a null of Arrow) is NaN. The values are
/// not checked: [`Data::samples`] does. [`Table`] reads some of the columns, and several files as
/// one data set; [`DataFile`] reads parts.
///
/// # Errors
/// If the file cannot be read, has none of these formats, is cut short or changes while it is read;
/// the error names the file and the place. Memory is taken in proportion to the size of the file,
/// whatever its header claims; a compressed file may hold a thousand times its size, but is refused
/// where that is more than half of the machine's memory.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    Ok(Table::open(&[path], &Selection::default())?.read()?.data)
}

/// Reads one number for each sample (N,), such as sample weights, from a `.npy` of shape (N,) or
/// (N, 1) or from a table with one column. The values are not checked. Errors: as [`read_data`].
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array1<f64>> {
    let path = path.as_ref();
    let array = || {
        let array = match table::vector_from_npy(path).map_err(|problem| problem.at(path))? {
            Some(array) => array,
            None => match Table::open(&[path], &Selection::default())?.read()?.data {
                Data::F32(x) => x.mapv(f64::from).into_dyn(),
                Data::F64(x) => x.into_dyn(),
            },
        };
        check_vector_shape(array.shape()).map_err(|problem| problem.at(path))?;
        Ok(array.flatten().into_owned())
    };
    array()
}

fn matrix_shape(shape: &[usize]) -> std::result::Result<(usize, usize), Problem> {
    match *shape {
        [n, d] => Ok((n, d)),
        _ => Err(Problem::format(format!(
            "the array has shape {shape:?} where (samples, features) is needed{}",
            if shape.len() == 1 { "; for data of one feature save x.reshape(-1, 1)" } else { "" }
        ))),
    }
}

fn check_vector_shape(shape: &[usize]) -> std::result::Result<(), Problem> {
    match *shape {
        [_] | [_, 1] => Ok(()),
        _ => Err(Problem::format(format!("the array has shape {shape:?} where (samples,) is needed"))),
    }
}
