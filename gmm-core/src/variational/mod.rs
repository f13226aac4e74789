//! The posterior distribution of a mixture's parameters, for variational inference.
pub mod bound;
pub mod expectations;
pub mod gamma;
pub mod m_step;
pub mod mixture;
pub mod prior;
