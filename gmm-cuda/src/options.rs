//! Options of the CUDA backend, and the requested kernel.
use super::families;
use super::metropolis::shape::{self, Shape};
use super::plan::family::{Family, Variant};
use super::plan::task::Multiplies;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::CovarianceType;
use std::fmt;
use std::path::PathBuf;

/// Returns the names of the kernels that [`CudaOptions::kernel`] takes.
pub fn cuda_kernel_names() -> Vec<String> {
    families::ALL.iter().map(|family| family.name()).chain([shape::NAME]).map(String::from).collect()
}

/// A kernel, or several that work together, that [`CudaOptions::kernel`] takes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CudaKernel {
    /// The name by which it is requested.
    pub name: &'static str,
    /// The unit that multiplies: `cores` (ordinary instructions), `mma` (tensor cores), `wgmma` (tensor cores of
    /// compute capability 9.0).
    pub unit: String,
    /// A short description.
    pub about: &'static str,
    /// The numbers of components K and features D that it takes, in words.
    pub sizes: String,
    /// Its operations: `total`, `totals` (of many parameter sets), `scores`, `estep`.
    pub operations: Vec<String>,
    /// The covariance types that it takes.
    pub covariance_types: Vec<CovarianceType>,
    /// Whether it takes samples with weights.
    pub weights: bool,
    /// Whether it takes samples with missing values, under diagonal covariances.
    pub missing_values: bool,
}

/// Returns the CUDA backend's kernels and their abilities, without the kernel of
/// [`Sampling::metropolis`](gmm_core::contract::sampling::Sampling::metropolis), which has no other operation.
pub fn cuda_kernels() -> Vec<CudaKernel> {
    let of = |family: &dyn Family| {
        let facts = family.facts();
        // Kernels that multiply products of diagonals on the tensor cores also compute `tied` ones, from linear terms.
        let linear = family.on_tensor_cores(false) == Some(Multiplies::Products);
        let types = CovarianceType::ALL
            .into_iter()
            .filter(|of| facts.covariances.contain(of.has_matrices()) || linear && *of == CovarianceType::Tied);
        CudaKernel {
            name: facts.name,
            unit: facts.unit.to_string(),
            about: facts.about,
            sizes: family.sizes(),
            operations: facts.operations.iter().map(ToString::to_string).collect(),
            covariance_types: types.collect(),
            weights: facts.weights,
            missing_values: facts.gaps,
        }
    };
    families::ALL.iter().copied().map(of).collect()
}

/// Options for evaluating a data set on a CUDA device.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CudaOptions {
    /// The kernel, one of [`cuda_kernel_names`], in the shape that is fastest by measured time; or a kernel and its
    /// shape, as [`Evaluator::describe`](gmm_core::contract::evaluator::Evaluator::describe) prints them, which gives
    /// the same bits in every run on the same device. By default measured time chooses both. Operations that the kernel
    /// lacks use another one. All but `general` compute in float32, even from float64 samples.
    pub kernel: Option<String>,
    /// The most bytes of device memory for samples; by default nearly all that is free. Samples that need more stay on
    /// the host and are sent in chunks in each evaluation.
    pub memory_limit: Option<usize>,
    /// The JSON file that keeps choices by measured time between processes. Without it they last as long as the
    /// process. A file that cannot be read or written counts as empty.
    pub tuning_file: Option<PathBuf>,
}

impl CudaOptions {
    /// Requests a kernel: see [`kernel`](Self::kernel).
    #[must_use]
    pub fn with_kernel(self, kernel: impl Into<Option<String>>) -> Self {
        Self { kernel: kernel.into(), ..self }
    }

    /// Limits the memory: see [`memory_limit`](Self::memory_limit).
    #[must_use]
    pub fn with_memory_limit(self, bytes: impl Into<Option<usize>>) -> Self {
        Self { memory_limit: bytes.into(), ..self }
    }

    /// Remembers choices in a file: see [`tuning_file`](Self::tuning_file).
    #[must_use]
    pub fn with_tuning_file(self, file: impl Into<Option<PathBuf>>) -> Self {
        Self { tuning_file: file.into(), ..self }
    }
}

/// The kernel that the user requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requested {
    Family(&'static dyn Family),
    Variant(Variant),
    /// The kernel of [`Sampling::metropolis`](gmm_core::contract::sampling::Sampling::metropolis).
    Metropolis(Option<Shape>),
}

impl Requested {
    pub fn new(name: &str) -> Result<Self> {
        let family = families::find(name).map(Self::Family).ok_or(()).or_else(|()| name.parse().map(Self::Variant));
        let metropolis = || match name {
            shape::NAME => Ok(Self::Metropolis(None)),
            _ => name.parse().map(|shape| Self::Metropolis(Some(shape))),
        };
        family.or_else(|()| metropolis()).map_err(|()| Error::Kernel {
            name: name.into(),
            problem: "is not a kernel of the CUDA backend".into(),
            available: cuda_kernel_names().join(", "),
        })
    }

    pub fn family(self) -> Option<&'static dyn Family> {
        match self {
            Self::Family(family) => Some(family),
            Self::Variant(variant) => Some(variant.family),
            Self::Metropolis(_) => None,
        }
    }
}

impl fmt::Display for Requested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Family(family) => f.write_str(family.name()),
            Self::Variant(variant) => variant.fmt(f),
            Self::Metropolis(None) => f.write_str(shape::NAME),
            Self::Metropolis(Some(shape)) => shape.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_understood_and_others_are_refused() {
        for name in cuda_kernel_names() {
            assert_eq!(Requested::new(&name).unwrap().to_string(), name);
        }
        for text in ["small_k:128x4:28", "metropolis:512x132/1:28"] {
            assert_eq!(Requested::new(text).unwrap().to_string(), text);
        }
        let error = Requested::new("warp9").unwrap_err().to_string();
        assert!(error.contains("`warp9`") && error.contains("small_k, batch"), "{error}");
    }
}
