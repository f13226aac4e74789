//! Mixtures whose parameters have a distribution: the posterior of variational inference.
mod gamma;
pub(crate) mod mixture;
pub(crate) mod prior;
