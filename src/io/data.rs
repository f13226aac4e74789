//! A data set as it comes from a file.
use super::npy::{Dtype, Npy};
use super::{Error, Problem, Result, csv};
use gmm_host::Samples;
use ndarray::{Array1, Array2};
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

    /// The data as checked samples. Errors: [`gmm_host::Error::EmptyData`], [`gmm_host::Error::NonFiniteSample`].
    pub fn samples(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::from_f32(x.view()),
            Self::F64(x) => Samples::from_f64(x.view()),
        }
    }
}

/// A data set (N, D) that stays in its file, a `.npy` as [`read_data`] takes it, of which parts are read at a time: the way
/// of data larger than memory.
///
/// A file that changes meanwhile is an error of the call that notices: its size and the time of its last change are looked at
/// after every read.
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
    /// As [`read_data`]; a `.csv`, whose rows have no fixed places.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let open = || match kind(path)? {
            Kind::Csv => Err(Problem::format("a .csv is read as a whole only; convert it to .npy")),
            Kind::Npy => {
                let npy = Npy::open(path)?;
                let dim = matrix(npy.shape())?;
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

    /// Reads some of the samples; the values are not looked at.
    ///
    /// # Errors
    /// [`Problem::Changed`]; what the system reports.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn rows(&self, rows: Range<usize>) -> Result<Data> {
        let data = match self.npy.dtype() {
            Dtype::F32 => self.npy.rows(rows).map(Data::F32),
            Dtype::F64 => self.npy.rows(rows).map(Data::F64),
        };
        data.map_err(|problem| problem.at(&self.path))
    }

    /// The error for values that were good when they were read before: [`Problem::Changed`].
    pub fn changed(&self) -> Error {
        Problem::Changed.at(&self.path)
    }
}

/// Reads a data set (N, D) into memory.
///
/// * `.npy`: float32 or float64, either byte order, C or Fortran order. [`DataFile`] reads parts of it.
/// * `.csv`: numbers separated by commas, read as float64. The first line is a header if none of its fields is a
///   number. Empty lines are skipped.
///
/// The values are not looked at: [`Data::samples`] checks them.
///
/// # Errors
/// A file that cannot be read, is in neither form, is cut short or changes while it is read: the error names the file and the
/// place. Nothing larger than the file's own content is allocated, whatever its header claims.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    read_data_within(path, u64::MAX)
}

/// As [`read_data`], of a `.csv` whose numbers take at most `memory` bytes.
///
/// # Errors
/// As [`read_data`]; a `.csv` whose numbers take more.
pub fn read_data_within(path: impl AsRef<Path>, memory: u64) -> Result<Data> {
    let path = path.as_ref();
    match kind(path).map_err(|problem| problem.at(path))? {
        Kind::Csv => csv::read(path, memory).map(Data::F64).map_err(|problem| problem.at(path)),
        Kind::Npy => DataFile::open(path)?.read(),
    }
}

/// Reads a number for each sample (N,), sample weights for example, from a `.npy` of shape (N,) or (N, 1) or from a `.csv` with
/// one column. Errors: as [`read_data`]; the values are not looked at.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array1<f64>> {
    let path = path.as_ref();
    let array = || {
        let array = match kind(path)? {
            Kind::Csv => csv::read(path, u64::MAX)?.into_dyn(),
            Kind::Npy => {
                let npy = Npy::open(path)?;
                vector(npy.shape())?;
                match npy.dtype() {
                    Dtype::F32 => npy.read::<f32>()?.mapv(f64::from),
                    Dtype::F64 => npy.read::<f64>()?,
                }
            }
        };
        vector(array.shape())?;
        Ok(array.flatten().into_owned())
    };
    array().map_err(|problem: Problem| problem.at(path))
}

enum Kind {
    Npy,
    Csv,
}

fn kind(path: &Path) -> std::result::Result<Kind, Problem> {
    match super::extension(path).as_str() {
        "npy" => Ok(Kind::Npy),
        "csv" => Ok(Kind::Csv),
        _ => Err(Problem::Format("the name of a data file must end in .npy or .csv".into())),
    }
}

fn matrix(shape: &[usize]) -> std::result::Result<(usize, usize), Problem> {
    match *shape {
        [n, d] => Ok((n, d)),
        _ => Err(Problem::format(format!(
            "the array has shape {shape:?} where (samples, features) is needed{}",
            if shape.len() == 1 { "; one feature? save x.reshape(-1, 1)" } else { "" }
        ))),
    }
}

fn vector(shape: &[usize]) -> std::result::Result<(), Problem> {
    match *shape {
        [_] | [_, 1] => Ok(()),
        _ => Err(Problem::format(format!("the array has shape {shape:?} where (samples,) is needed"))),
    }
}
