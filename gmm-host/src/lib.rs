//! Gaussian mixtures over data that stays resident in a device: the CPU with its SIMD instructions,
//! or a CUDA GPU.
//!
//! In one call, on arrays of ndarray:
//!
//! ```
//! use gmm_host::GaussianMixtureParams;
//! use ndarray::array;
//!
//! let x = array![[1.0, 2.0], [1.1, 4.0], [0.9, 0.0], [10.0, 2.0], [10.2, 4.0], [9.9, 0.0]];
//! let fit = GaussianMixtureParams::new(2).fit(&x)?;
//! let labels = fit.mixture.predict(&x)?;
//! assert!(labels[0] == labels[1] && labels[0] != labels[3]);
//! # Ok::<(), gmm_host::Error>(())
//! ```
//!
//! For many calls over the same data: [`Samples`] checks the data once, and [`load`] lays it out in
//! a [`Device`] and gives an [`Evaluator`]. That computes the log-likelihood of one [`Mixture`]
//! after another, or the [`Statistics`] of an E-step, and [`GaussianMixtureParams`] fit to it.
//!
//! The features `serde` and `linfa` add the traits of these crates.
//!
//! # For those who work on this crate
//!
//! A module uses only modules that stand before it in this order, and `.ci/modules` holds it to
//! that. A line with a colon lists the modules of a folder.
//!
//! ```text
//! error, interrupt, count, memory, compensated, simd, precision
//! model: linalg, covariances, mixture, marginal, density, conditional, one_dimension, order,
//!     sampler, gaussian, transport, distances, products, merging
//! freeze, prior, statistics, adapt, metropolis, sampling
//! variational: prior, gamma, expectations, mixture, m_step, bound
//! data: array, float, ranges, weights, samples, patterns, frame
//! draw, labels, evaluator
//! backends: parts, lazy, chunked, sharded, labelled, missing, enough_digits, device_parameters, reference, cpu, cuda, auto
//! memory_plan, gpus, device, load
//! source
//! fit: points, scikit_learn, outcome, regularization, map_prior, standard, options, fitting, kmeans, subset, init, moments,
//!     iterate, em, variational, many, grow, select, merge, stepwise
//! score_function, gradient, predict, regression, impute, linfa
//! ```
//!
//! So `evaluator` knows no backend, and `load` knows them all. A module takes a name from the
//! module that defines it, never from this one.
mod adapt;
mod backends;
mod compensated;

/// A GPU for what is computed there besides mixtures, with kernels of `gmm_kernels`: a [`Queue`] of
/// copies and launches, and the [`Memory`] that they use. Whatever a caller does, no work reads or
/// writes memory that has been freed; what a kernel asks of its arguments is vouched for by an
/// `unsafe` [`Launch`].
///
/// [`Queue`]: cuda::Queue
/// [`Memory`]: cuda::Memory
/// [`Launch`]: cuda::Launch
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::backends::cuda::device::driver::use_driver;
    pub use crate::backends::cuda::device::gpu::Limits;
    pub use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
    pub use crate::backends::cuda::device::layout::{stride, transposed};
    pub use crate::backends::cuda::device::memory::Numbers;
    pub use crate::backends::cuda::device::queue::{Memory, Queue, Work};
    pub use crate::backends::cuda::device::require;
}

#[cfg(feature = "clap")]
pub mod count;
mod data;
mod device;
mod draw;
mod error;
mod evaluator;
mod fit;
mod freeze;
mod gpus;
mod gradient;
mod impute;
mod interrupt;
mod labels;
#[cfg(feature = "linfa")]
mod linfa;
mod load;

/// Loops over slices of numbers in vector instructions of whatever the machine has, with the same
/// bits on every machine, and sums without rounding errors. The engines of this crate are written
/// with them, and what is computed beside them may be.
pub mod linalg {
    pub use crate::compensated::neumaier_sum;
    pub use crate::model::linalg::{sum_of, vectorised};
}
pub mod memory;
mod memory_plan;
mod metropolis;
mod model;
mod precision;
mod predict;
mod prior;
mod regression;
mod sampling;
mod score_function;
pub mod simd;
mod source;
mod statistics;
mod variational;

pub use adapt::Adaptation;
pub use backends::chunked::{ChunkedEvaluator, Load};
pub use backends::cpu::CpuEvaluator;
#[cfg(feature = "cuda")]
pub use backends::cuda::{
    CudaEvaluator, CudaKernel, CudaOptions, DeviceArray, GpuInfo, HostArray, cuda_devices, cuda_kernel_names,
    cuda_kernels,
};
pub use backends::labelled::LabelledEvaluator;
pub use backends::reference::ReferenceEvaluator;
pub use backends::sharded::ShardedEvaluator;
pub use data::samples::{Element, Missing, Rows, Samples, View};
pub use data::weights::Weights;
pub use device::{Device, DeviceSet};
pub use draw::{Draw, Drawn};
pub use error::{Error, Result};
pub use evaluator::{DataFacts, Description, Evaluator};
pub use fit::scikit_learn;
pub use fit::{
    BayesianGaussianMixtureParams, Callback, Candidate, Checked, Criterion, Em, Fit, FitOptions, FittedModel, Fitting,
    GaussianMixtureParams, InitParams, Iteration, ManyStarts, MapPrior, Method, Rank, Ranked, Regularized, RunStart,
    Selection, Standardizable, Standardization, Starts, StepwiseEm, StochasticVariational, Variational, Watch,
    evaluate_each, fit_many, grow, merge_down, moving_average, select, select_by,
};
pub use freeze::{Freeze, Frozen};
pub use gradient::Gradient;
pub use interrupt::Interrupt;
pub use labels::Labels;
#[cfg(feature = "cuda")]
pub use load::load_device_array;
pub use load::{LoadOptions, devices, kernel_names, load, load_chunks};
pub use memory_plan::{Footprint, MemoryPlan};
pub use metropolis::{MetropolisPrior, MetropolisSteps, MetropolisTarget};
pub use model::covariances::{CovarianceType, Covariances};
pub use model::distances::{Estimate, Transport};
pub use model::mixture::{Mixture, SYMMETRY_TOLERANCE, WEIGHT_SUM_TOLERANCE};
pub use model::one_dimension::{OnAxis, Region};
pub use model::order::Order;
pub use model::sampler::MixtureSampler;
pub use precision::{Operation, Precision};
pub use predict::MixtureOn;
pub use prior::ConjugatePrior;
pub use regression::Regression;
pub use sampling::Sampling;
pub use source::DataSource;
pub use statistics::{COUNT_FLOOR, CentredSums, Statistics, Update};
pub use variational::mixture::VariationalMixture;
pub use variational::prior::{VariationalPrior, WeightConcentrationPriorType};

/// The example of the README is tested.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
