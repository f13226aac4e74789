//! Options of the CUDA backend, and the kernel that a user asks for.
use super::families;
use super::metropolis::shape::{self, Shape};
use super::plan::family::{Family, Variant};
use super::plan::task::Multiplies;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::CovarianceType;
use std::fmt;
use std::path::PathBuf;

/// The names of the kernels that [`CudaOptions::kernel`] facts.
pub fn cuda_kernel_names() -> Vec<String> {
    families::ALL.iter().map(|family| family.name()).chain([shape::NAME]).map(String::from).collect()
}

/// A kernel that [`CudaOptions::kernel`] takes: one, or several that work together.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CudaKernel {
    /// The name to ask for it by.
    pub name: &'static str,
    /// What it multiplies with: `cores` (ordinary instructions), `mma` (tensor cores), `wgmma`
    /// (tensor cores of compute capability 9.0).
    pub unit: String,
    /// What it computes and how, in a few words.
    pub about: &'static str,
    /// The numbers of components K and features D that it takes, in words.
    pub sizes: String,
    /// Its operations: `total`, `totals` (of many parameter sets), `scores`, `estep`.
    pub operations: Vec<String>,
    /// The covariance types that it facts.
    pub covariance_types: Vec<CovarianceType>,
    /// Whether it takes samples with weights.
    pub weights: bool,
    /// Whether it takes samples with missing values, under diagonal covariances.
    pub missing_values: bool,
}

/// The register of the CUDA backend's kernels: what each of them can do. (The kernel of
/// [`Sampling::metropolis`](gmm_core::contract::sampling::Sampling::metropolis) is not among them: it has no other
/// operation.)
pub fn cuda_kernels() -> Vec<CudaKernel> {
    let of = |family: &dyn Family| {
        let facts = family.facts();
        // Those of diagonals that the tensor cores multiply products with compute `tied` ones from
        // what is linear in the features.
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
    /// The kernel to use, one of [`cuda_kernel_names`], in the shape that is fastest by measured
    /// time; or a kernel and its shape, as [`Evaluator::describe`](gmm_core::contract::evaluator::Evaluator::describe)
    /// prints them, which gives the same bits in every run on the same device. By default both are
    /// chosen by measured time. An operation that the kernel does not have uses another one. All
    /// but `general` compute in float32, also from float64 samples.
    pub kernel: Option<String>,
    /// Most bytes of the device's memory to be used for samples; by default nearly all that is
    /// free. Samples that need more stay on the host and are sent in chunks, for each evaluation
    /// anew.
    pub memory_limit: Option<usize>,
    /// The file in which choices by measured time are remembered from process to process (JSON).
    /// Without one they last as long as the process. A file that cannot be read or written counts
    /// as empty.
    pub tuning_file: Option<PathBuf>,
}

impl CudaOptions {
    /// Asks for a kernel: see [`kernel`](Self::kernel).
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

/// The kernel that the user asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Requested {
    Family(&'static dyn Family),
    Variant(Variant),
    /// The kernel of [`Sampling::metropolis`](gmm_core::contract::sampling::Sampling::metropolis), which has no other
    /// operation.
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
            problem: "is not one of the CUDA backend".into(),
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
