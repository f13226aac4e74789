//! Mixtures whose parameters have a distribution: the posterior of variational inference.
pub(crate) mod mixture;
pub(crate) mod prior;
