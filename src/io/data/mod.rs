//! Data sets from files.
mod csv;
mod file_stamp;
pub(super) mod npy;
pub(super) mod npy_header;

pub use npy::write_npy;

use super::{Error, Problem, Result};
use gmm_host::Samples;
use ndarray::{Array1, Array2};
use npy::{Dtype, Npy};
use std::ops::Range;
use std::path::{Path, PathBuf};

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

    /// The data as checked samples that own it. Errors: as [`samples`](Self::samples).
    pub fn into_samples<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::from_shared_f32(x.into_shared()),
            Self::F64(x) => Samples::from_shared_f64(x.into_shared()),
        }
    }

    /// As [`into_samples`](Self::into_samples), with NaN for values that are missing: [`Samples::with_missing`].
    pub fn into_samples_with_missing<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::with_shared_missing(x.into_shared()),
            Self::F64(x) => Samples::with_shared_missing(x.into_shared()),
        }
    }

    /// As [`samples`](Self::samples), with NaN for values that are missing: [`Samples::with_missing`].
    pub fn samples_with_missing(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::with_missing(x.view()),
            Self::F64(x) => Samples::with_missing(x.view()),
        }
    }

    /// The data as checked samples. Errors: [`gmm_host::Error::EmptyData`], [`gmm_host::Error::NonFiniteSample`].
    pub fn samples(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::from_f32(x.view()),
            Self::F64(x) => Samples::from_f64(x.view()),
        }
    }
}

/// A data set (N, D) that stays in its `.npy` file and of which some rows at a time are read, so that it may be larger than
/// memory.
///
/// Every read compares the size of the file and the time of its last change with those when it was opened, and fails with
/// [`Problem::Changed`] if they differ.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    npy: Npy,
    dim: (usize, usize),
}

impl DataFile {
    /// Opens the file and reads its header.
    ///
    /// # Errors
    /// As [`read_data`]; also for a `.csv`, whose rows have no fixed places in the file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let open = || match format_of(path)? {
            Format::Csv => Err(Problem::format("a .csv can only be read as a whole; convert it to .npy")),
            Format::Npy => {
                let npy = Npy::open(path)?;
                let dim = matrix_shape(npy.shape())?;
                Ok(Self { path: path.into(), npy, dim })
            }
        };
        open().map_err(|problem| problem.at(path))
    }

    /// (N, D).
    pub fn dim(&self) -> (usize, usize) {
        self.dim
    }

    /// Name of the element type.
    pub fn dtype(&self) -> &'static str {
        self.npy.dtype().name()
    }

    /// Size of the values in bytes.
    pub fn n_bytes(&self) -> u64 {
        let (n, d) = self.dim;
        n as u64 * d as u64 * self.npy.dtype().size()
    }

    /// Reads all samples. Errors: as [`rows`](Self::rows).
    pub fn read(&self) -> Result<Data> {
        self.rows(0..self.dim.0)
    }

    /// Reads some of the samples. The values are not checked: [`Data::samples`] does.
    ///
    /// # Errors
    /// [`Problem::Changed`]; what the system reports.
    ///
    /// # Panics
    /// If the file has fewer rows.
    pub fn rows(&self, rows: Range<usize>) -> Result<Data> {
        let data = match self.npy.dtype() {
            Dtype::F32 => self.npy.rows(rows).map(Data::F32),
            Dtype::F64 => self.npy.rows(rows).map(Data::F64),
        };
        data.map_err(|problem| problem.at(&self.path))
    }

    /// The error to report when values that were usable at an earlier read are not any more: [`Problem::Changed`].
    pub fn changed(&self) -> Error {
        Problem::Changed.at(&self.path)
    }
}

/// Reads a data set (N, D) into memory.
///
/// * `.npy`: float32 or float64, either byte order, C or Fortran order. [`DataFile`] reads parts of it.
/// * `.csv`: numbers separated by commas, read as float64. A field that is empty, `NA`, `NaN` or `null` is NaN. The first line is
///   a header if none of its fields is a number. Empty lines are skipped.
///
/// The values are not checked: [`Data::samples`] does.
///
/// # Errors
/// If the file cannot be read, has neither format, is cut short or changes while it is read; the error names the file and the
/// place. Memory is taken in proportion to the size of the file, whatever its header claims.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    read_data_within(path, u64::MAX)
}

/// As [`read_data`], with a limit on the memory that the numbers of a `.csv` may take, in bytes.
///
/// # Errors
/// As [`read_data`]; also for a `.csv` whose numbers take more.
pub fn read_data_within(path: impl AsRef<Path>, memory: u64) -> Result<Data> {
    let path = path.as_ref();
    match format_of(path).map_err(|problem| problem.at(path))? {
        Format::Csv => csv::read(path, memory).map(Data::F64).map_err(|problem| problem.at(path)),
        Format::Npy => DataFile::open(path)?.read(),
    }
}

/// Reads one number for each sample (N,), such as sample weights, from a `.npy` of shape (N,) or (N, 1) or from a `.csv` with
/// one column. The values are not checked. Errors: as [`read_data`].
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array1<f64>> {
    let path = path.as_ref();
    let array = || {
        let array = match format_of(path)? {
            Format::Csv => csv::read(path, u64::MAX)?.into_dyn(),
            Format::Npy => {
                let npy = Npy::open(path)?;
                check_vector_shape(npy.shape())?;
                match npy.dtype() {
                    Dtype::F32 => npy.read::<f32>()?.mapv(f64::from),
                    Dtype::F64 => npy.read::<f64>()?,
                }
            }
        };
        check_vector_shape(array.shape())?;
        Ok(array.flatten().into_owned())
    };
    array().map_err(|problem: Problem| problem.at(path))
}

enum Format {
    Npy,
    Csv,
}

fn format_of(path: &Path) -> std::result::Result<Format, Problem> {
    match super::extension(path).as_str() {
        "npy" => Ok(Format::Npy),
        "csv" => Ok(Format::Csv),
        _ => Err(Problem::Format("the name of a data file must end in .npy or .csv".into())),
    }
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
