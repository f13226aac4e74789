//! Samples read from a file as an array, and checks of the shapes of arrays.
use crate::io::error::Problem;
use gmm_host::Samples;
use ndarray::{Array2, s};

/// The element types of data: float16 and float32 are read as float32, all other numbers as float64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::io) enum Dtype {
    F32,
    F64,
}

impl Dtype {
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    pub fn size(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Whether a value of this type is one of the numbers, rounded to this type.
    pub fn is_any_of(self, value: f64, numbers: &[f64]) -> bool {
        numbers.iter().any(|&number| match self {
            Self::F32 => value == f64::from(number as f32),
            Self::F64 => value == number,
        })
    }
}

/// N samples of D features, in the element type of the file.
#[derive(Debug)]
pub enum Data {
    /// float32 (N, D), in the file's memory order.
    F32(Array2<f32>),
    /// float64 (N, D), in the file's memory order.
    F64(Array2<f64>),
}

impl Data {
    /// Returns (N, D).
    pub fn dim(&self) -> (usize, usize) {
        match self {
            Self::F32(x) => x.dim(),
            Self::F64(x) => x.dim(),
        }
    }

    /// Returns the name of the element type.
    pub fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => Dtype::F32.name(),
            Self::F64(_) => Dtype::F64.name(),
        }
    }

    /// Returns the size of the values in bytes.
    pub fn n_bytes(&self) -> u64 {
        match self {
            Self::F32(x) => size_of::<f32>() as u64 * x.len() as u64,
            Self::F64(x) => size_of::<f64>() as u64 * x.len() as u64,
        }
    }

    /// Returns the data as float64.
    pub fn into_f64(self) -> Array2<f64> {
        match self {
            Self::F32(x) => x.mapv(f64::from),
            Self::F64(x) => x,
        }
    }

    /// Returns some of the samples.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn rows(&self, rows: std::ops::Range<usize>) -> Self {
        match self {
            Self::F32(x) => Self::F32(x.slice(s![rows, ..]).into_owned()),
            Self::F64(x) => Self::F64(x.slice(s![rows, ..]).into_owned()),
        }
    }

    /// Replaces these numbers by NaN.
    pub(super) fn with_missing(mut self, numbers: &[f64]) -> Self {
        if !numbers.is_empty() {
            match &mut self {
                Self::F32(x) => {
                    x.mapv_inplace(|v| if Dtype::F32.is_any_of(v.into(), numbers) { f32::NAN } else { v });
                }
                Self::F64(x) => x.mapv_inplace(|v| if Dtype::F64.is_any_of(v, numbers) { f64::NAN } else { v }),
            }
        }
        self
    }

    /// Returns the data as checked samples that own it. Errors: as [`samples`](Self::samples).
    pub fn into_samples<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::from_shared_f32(x.into_shared()),
            Self::F64(x) => Samples::from_shared_f64(x.into_shared()),
        }
    }

    /// Like [`into_samples`](Self::into_samples), with NaN for missing values: [`Samples::with_missing`].
    pub fn into_samples_with_missing<'a>(self) -> gmm_host::Result<Samples<'a>> {
        match self {
            Self::F32(x) => Samples::with_shared_missing(x.into_shared()),
            Self::F64(x) => Samples::with_shared_missing(x.into_shared()),
        }
    }

    /// Like [`samples`](Self::samples), with NaN for missing values: [`Samples::with_missing`].
    pub fn samples_with_missing(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::with_missing(x.view()),
            Self::F64(x) => Samples::with_missing(x.view()),
        }
    }

    /// Returns the data as checked samples. Errors: [`gmm_host::Error::EmptyData`],
    /// [`gmm_host::Error::NonFiniteSample`].
    pub fn samples(&self) -> gmm_host::Result<Samples<'_>> {
        match self {
            Self::F32(x) => Samples::from_f32(x.view()),
            Self::F64(x) => Samples::from_f64(x.view()),
        }
    }
}

/// Checks that the shape is that of samples. A vector (N,) becomes a column (N, 1) if `is_vector`.
pub(super) fn make_matrix(shape: &mut Vec<usize>, is_vector: bool) -> Result<(), Problem> {
    match shape[..] {
        [_] if is_vector => shape.push(1),
        [_, _] => {}
        _ => {
            return Err(Problem::format(format!(
                "the array has shape {shape:?}; expected {}{}",
                if is_vector { "(samples,)" } else { "(samples, features)" },
                if shape.len() == 1 { "; for data of one feature save x.reshape(-1, 1)" } else { "" }
            )));
        }
    }
    Ok(())
}
