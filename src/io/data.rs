//! A data set as it comes from a file.
use super::{Problem, Result, csv, npy};
use gmm_host::Samples;
use ndarray::Array2;
use std::path::Path;

/// N samples of D features, in the element type of the file.
#[derive(Debug, Clone, PartialEq)]
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
            Self::F32(_) => "float32",
            Self::F64(_) => "float64",
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

/// Reads a data set (N, D).
///
/// * `.npy`: float32 or float64, either byte order, C or Fortran order.
/// * `.csv`: numbers separated by commas, read as float64. The first line is a header if none of its fields is a
///   number. Empty lines are skipped.
///
/// The values are not looked at: [`Data::samples`] checks them.
///
/// # Errors
/// A file that cannot be read, is in neither form or is cut short: the error names the file and the place. Nothing larger
/// than the file's own content is allocated, whatever its header claims.
pub fn read_data(path: impl AsRef<Path>) -> Result<Data> {
    let path = path.as_ref();
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    let data = match extension.as_str() {
        "npy" => npy::read(path),
        "csv" => csv::read(path).map(Data::F64),
        _ => Err(Problem::Format("the name of a data file must end in .npy or .csv".into())),
    };
    data.map_err(|problem| problem.at(path))
}
