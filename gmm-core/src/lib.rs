//! Code shared by [`gmm-host`](https://docs.rs/gmm-host) and its backends: mixtures, samples, sufficient statistics,
//! and the [`Evaluator`](contract::evaluator::Evaluator) that a backend implements.
//!
//! Programs use `gmm-host`, which re-exports what they need. All else in this crate is for backends and changes with
//! them.
//!
//! # The order of the modules
//!
//! A module uses only modules that stand before it in this order; `.ci/modules` checks this. A line with a colon lists
//! the modules of a folder.
//!
//! ```text
//! error, interrupt, memory, reproducible, compensated, simd, precision
//! model: linalg, covariances, covariance_model, uniform, mixture, with_noise, decomposition, marginal, density, conditional,
//!     one_dimension, order, sampler, gaussian, transport, distances, products, merging
//! statistics: constrained, freeze, prior
//! variational: prior, gamma, expectations, mixture, m_step, bound
//! data: array, float, ranges, weights, noise, samples, patterns, true_values, frame
//! contract: metropolis, sampling, markov, draw, labels, evaluator
//! backends: parts, lazy, chunked, sharded, labelled, missing, noisy, enough_digits, device_parameters, reference, noisy_reference, cpu
//! operations: adapt, score_function, gradient, regression, impute, denoise
//! ```
pub mod backends;
pub mod compensated;
pub mod contract;
pub mod data;
pub mod error;
pub mod interrupt;
pub mod memory;
pub mod model;
pub mod operations;
pub mod precision;
pub mod reproducible;
pub mod simd;
pub mod statistics;
pub mod variational;
