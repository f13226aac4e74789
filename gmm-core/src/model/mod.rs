//! Mixtures: checked parameters, densities, parts, distances, products, and drawn samples.
pub mod conditional;
pub mod covariances;
pub mod density;
pub mod distances;
pub mod gaussian;
pub mod linalg;
pub mod marginal;
pub mod merging;
pub mod mixture;
pub mod one_dimension;
pub mod order;
pub mod products;
pub mod sampler;
pub mod transport;
