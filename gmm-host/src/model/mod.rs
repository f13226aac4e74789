//! Mixtures: their parameters, checked once; densities; their parts, distances and products; drawing
//! samples.
pub(crate) mod conditional;
pub(crate) mod covariances;
pub(crate) mod density;
pub(crate) mod distances;
pub(crate) mod gaussian;
pub(crate) mod linalg;
pub(crate) mod marginal;
pub(crate) mod merging;
pub(crate) mod mixture;
pub(crate) mod one_dimension;
pub(crate) mod order;
mod products;
pub(crate) mod sampler;
mod transport;
