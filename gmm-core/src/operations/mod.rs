//! A mixture's statements about samples, and mixtures adapted to them.
pub mod adapt;
pub mod gradient;
pub mod impute;
pub mod regression;
pub mod score_function;
