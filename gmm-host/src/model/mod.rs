//! Mixtures: their parameters, checked once; densities; drawing samples.
pub(crate) mod conditional;
pub(crate) mod covariances;
pub(crate) mod density;
pub(crate) mod linalg;
pub(crate) mod marginal;
pub(crate) mod mixture;
pub(crate) mod sampler;
