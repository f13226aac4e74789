//! Mixtures whose parameters have a distribution: the posterior of variational inference.
pub mod bound;
pub mod expectations;
pub mod gamma;
pub mod m_step;
pub mod mixture;
pub mod prior;
