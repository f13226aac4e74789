//! A data set as it comes from a file.
use super::npy::{self, Array, Dtype, Mapped};
use super::{Problem, Result, csv};
use gmm_host::Samples;
use ndarray::{Array1, Array2, ArrayD, Ix2};
use std::path::Path;

/// From which size on, in bytes, an array is mapped instead of read.
const MAP_FROM: u64 = 1 << 26;

/// N samples of D features, in the element type of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Data {
    /// float32 (N, D), in the file's memory order.
    F32(Array2<f32>),
    /// float64 (N, D), in the file's memory order.
    F64(Array2<f64>),
    /// Either, in a file that is mapped into memory.
    Mapped(Mapped),
}

impl Data {
    /// (N, D).
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::F32(x) => x.dim(),
            Self::F64(x) => x.dim(),
            Self::Mapped(x) => x.dim(),
        }
    }

    /// Name of the element type.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => "float32",
            Self::F64(_) => "float64",
            Self::Mapped(x) if x.dtype() == Dtype::F32 => "float32",
            Self::Mapped(_) => "float64",
        }
    }

    /// Whether it lies in a mapped file instead of in memory.
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }

    /// Size of the values in bytes.
    pub fn n_bytes(&self) -> u64 {
        let (n, d) = self.dim();
        let size = if self.dtype() == "float32" { 4 } else { 8 };
        n as u64 * d as u64 * size
    }

    /// The same in memory, where it can be changed; a mapped file is read.
    #[must_use]
    pub fn into_memory(self) -> Self {
        match self {
            Self::Mapped(x) if x.dtype() == Dtype::F32 => Self::F32(x.view().to_owned()),
            Self::Mapped(x) => Self::F64(x.view().to_owned()),
            other => other,
        }
    }

    /// The data as checked samples. Errors: [`gmm_host::Error::EmptyData`], [`gmm_host::Error::NonFiniteSample`].
    pub fn samples(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::from_f32(x.view()),
            Self::F64(x) => Samples::from_f64(x.view()),
            Self::Mapped(x) if x.dtype() == Dtype::F32 => Samples::from_f32(x.view()),
            Self::Mapped(x) => Samples::from_f64(x.view()),
        }
    }
}

/// Reads a data set (N, D).
///
/// * `.npy`: float32 or float64, either byte order, C or Fortran order. A large file (64 MiB or more) is mapped into memory
///   instead: it must not be changed, and above all not cut short, while it is in use.
/// * `.csv`: numbers separated by commas, read as float64. The first line is a header if none of its fields is a
///   number. Empty lines are skipped.
///
/// The values are not looked at: [`Data::samples`] checks them.
///
/// # Errors
/// A file that cannot be read, is in neither form or is cut short: the error names the file and the place. Nothing larger
/// than the file's own content is allocated, whatever its header claims.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    read_data_within(path, u64::MAX)
}

/// Reads a data set as [`read_data`] does, into no more than `memory` bytes; where that would leave no place for a copy of it, a
/// `.npy` is mapped, however small it is.
///
/// # Errors
/// As [`read_data`]; a `.csv`, or a `.npy` that cannot be mapped (in another byte order, for example), whose numbers take more.
pub fn read_data_within(path: impl AsRef<Path>, memory: u64) -> Result<Data> {
    let path = path.as_ref();
    read(path, memory).map_err(|problem| problem.at(path))
}

fn read(path: &Path, memory: u64) -> std::result::Result<Data, Problem> {
    match kind(path)? {
        Kind::Csv => csv::read(path, memory).map(Data::F64),
        Kind::Npy => match npy::read(path, MAP_FROM.min(memory / 2 + 1), memory)? {
            Array::F32(x) => matrix(x).map(Data::F32),
            Array::F64(x) => matrix(x).map(Data::F64),
            Array::Mapped(x) => Ok(Data::Mapped(x)),
        },
    }
}

/// Reads a number for each sample (N,), sample weights for example, from a `.npy` of shape (N,) or (N, 1) or from a `.csv` with
/// one column. Errors: as [`read_data`]; the values are not looked at.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array1<f64>> {
    let path = path.as_ref();
    let array = || {
        let array = match kind(path)? {
            Kind::Csv => csv::read(path, u64::MAX)?.into_dyn(),
            Kind::Npy => match npy::read(path, u64::MAX, u64::MAX)? {
                Array::F32(x) => x.mapv(f64::from),
                Array::F64(x) => x,
                // Nothing is as large as that.
                Array::Mapped(x) => x.view::<f64>().to_owned().into_dyn(),
            },
        };
        match *array.shape() {
            [_] | [_, 1] => Ok(array.flatten().into_owned()),
            ref shape => Err(Problem::Format(format!("the array has shape {shape:?} where (samples,) is needed"))),
        }
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

fn matrix<T>(array: ArrayD<T>) -> std::result::Result<Array2<T>, Problem> {
    let shape = array.shape().to_vec();
    array.into_dimensionality::<Ix2>().map_err(|_| {
        Problem::Format(format!(
            "the array has shape {shape:?} where (samples, features) is needed{}",
            if shape.len() == 1 { "; one feature? save x.reshape(-1, 1)" } else { "" }
        ))
    })
}
