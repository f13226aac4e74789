//! Gaussian mixtures over data that stays resident in a device: the CPU with its SIMD instructions, or a CUDA GPU.
//!
//! In one call, on arrays of ndarray:
//!
//! ```
//! use gmm_host::{GaussianMixtureParams, Predict};
//! use ndarray::array;
//!
//! let x = array![[1.0, 2.0], [1.1, 4.0], [0.9, 0.0], [10.0, 2.0], [10.2, 4.0], [9.9, 0.0]];
//! let fit = GaussianMixtureParams::new(2).fit(&x)?;
//! let labels = fit.mixture.predict(&x)?;
//! assert!(labels[0] == labels[1] && labels[0] != labels[3]);
//! # Ok::<(), gmm_host::Error>(())
//! ```
//!
//! For many calls over the same data, [`Samples`] checks the data once, and [`load`] lays it out in a [`Device`] and
//! returns an [`Evaluator`], which computes log-likelihoods of a [`Mixture`] and [`Statistics`] of E-steps.
//! [`GaussianMixtureParams`] fit to it too.
//!
//! The modules sort all names; each name is also at the root of the crate. The features `serde` and `linfa` add the
//! traits of these crates.
//!
//! # For maintainers
//!
//! A module uses only modules before it in this order, which `.ci/modules` checks. A line with a colon lists the
//! modules of a folder.
//!
//! ```text
//! count
//! device: memory_plan, gpus, names, auto, load
//! source
//! fit: points, scikit_learn, outcome, regularization, standard, options, fitting, kmeans, subset, noise, pooled,
//!     hierarchical, init, moments, map_prior, extent, iterate, em, variational, many, grow, select, merge, mclust,
//!     stepwise
//! predict, linfa
//! ```
#[cfg(feature = "clap")]
pub mod count;
pub mod device;
pub mod fit;
#[cfg(feature = "linfa")]
mod linfa;
mod predict;
mod source;

#[cfg(feature = "cuda")]
#[doc(no_inline)]
pub use cuda::*;
pub use gmm_core::error::{Error, Result};
pub use gmm_core::interrupt::Interrupt;
pub use gmm_core::reproducible::Reproducible;
#[doc(inline)]
pub use gmm_core::{memory, simd};
#[doc(no_inline)]
pub use {data::*, device::*, evaluator::*, fit::*, model::*, statistics::*};

/// Mixtures: their covariances, densities and new samples.
pub mod model {
    #[doc(inline)]
    pub use crate::predict::{MixtureOn, Predict};
    #[doc(inline)]
    pub use gmm_core::model::covariance_model::CovarianceModel;
    #[doc(inline)]
    pub use gmm_core::model::covariances::{CovarianceType, Covariances};
    #[doc(inline)]
    pub use gmm_core::model::decomposition::Decomposition;
    #[doc(inline)]
    pub use gmm_core::model::distances::{Estimate, Transport};
    #[doc(inline)]
    pub use gmm_core::model::mixture::{Mixture, SYMMETRY_TOLERANCE, WEIGHT_SUM_TOLERANCE};
    #[doc(inline)]
    pub use gmm_core::model::one_dimension::{OnAxis, Region};
    #[doc(inline)]
    pub use gmm_core::model::order::Order;
    #[doc(inline)]
    pub use gmm_core::model::sampler::MixtureSampler;
    #[doc(inline)]
    pub use gmm_core::model::uniform::UniformDensity;
    #[doc(inline)]
    pub use gmm_core::operations::regression::Regression;
    #[doc(inline)]
    pub use gmm_core::variational::mixture::VariationalMixture;
    #[doc(inline)]
    pub use gmm_core::variational::prior::{VariationalPrior, WeightConcentrationPriorType};
}

/// Samples: their numbers, weights and missing values.
pub mod data {
    #[doc(inline)]
    pub use crate::source::DataSource;
    #[doc(inline)]
    pub use gmm_core::data::noise::Noise;
    #[doc(inline)]
    pub use gmm_core::data::samples::{Element, Missing, Rows, Samples, View};
    #[doc(inline)]
    pub use gmm_core::data::weights::Weights;
}

/// Evaluators: samples in a device, over which mixtures are evaluated.
pub mod evaluator {
    #[doc(inline)]
    pub use crate::fit::evaluate_each;
    #[doc(inline)]
    pub use gmm_core::backends::chunked::{ChunkedEvaluator, Load};
    #[doc(inline)]
    pub use gmm_core::backends::cpu::CpuEvaluator;
    #[doc(inline)]
    pub use gmm_core::backends::labelled::LabelledEvaluator;
    #[doc(inline)]
    pub use gmm_core::backends::reference::ReferenceEvaluator;
    #[doc(inline)]
    pub use gmm_core::backends::sharded::ShardedEvaluator;
    #[doc(inline)]
    pub use gmm_core::contract::draw::{Draw, Drawn};
    #[doc(inline)]
    pub use gmm_core::contract::evaluator::{DataFacts, Description, Evaluator};
    #[doc(inline)]
    pub use gmm_core::contract::labels::Labels;
    #[doc(inline)]
    pub use gmm_core::contract::markov::{Markov, MarkovChain, MarkovSums};
    #[doc(inline)]
    pub use gmm_core::contract::metropolis::{MetropolisPrior, MetropolisSteps, MetropolisTarget};
    #[doc(inline)]
    pub use gmm_core::contract::sampling::Sampling;
    #[doc(inline)]
    pub use gmm_core::precision::{Operation, Precision};
}

/// The sufficient statistics of an E-step, and the mixtures that follow from them.
pub mod statistics {
    #[doc(inline)]
    pub use gmm_core::operations::adapt::Adaptation;
    #[doc(inline)]
    pub use gmm_core::operations::gradient::Gradient;
    #[doc(inline)]
    pub use gmm_core::statistics::freeze::{Freeze, Frozen};
    #[doc(inline)]
    pub use gmm_core::statistics::prior::ConjugatePrior;
    #[doc(inline)]
    pub use gmm_core::statistics::{COUNT_FLOOR, CentredSums, Statistics, Update};
}

/// CUDA GPUs: kernels, arrays already in GPU memory, and a [`Queue`] of copies and launches for other computations.
#[cfg(feature = "cuda")]
pub mod cuda {
    #[doc(inline)]
    pub use crate::device::load::load_device_array;
    #[doc(inline)]
    pub use gmm_cuda::*;
}

/// Vectorised loops over slices, with the same bits on every machine, and sums without rounding errors.
pub mod linalg {
    pub use gmm_core::compensated::neumaier_sum;
    pub use gmm_core::model::linalg::{sum_of, vectorised};
}

/// Tests the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
