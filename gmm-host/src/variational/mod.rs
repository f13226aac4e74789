//! Mixtures whose parameters have a distribution: the posterior of variational inference.
mod bound;
mod expectations;
mod gamma;
mod m_step;
pub(crate) mod mixture;
pub(crate) mod prior;
