//! Operations of a mixture on samples, and adaptation to samples.
pub mod adapt;
pub mod denoise;
pub mod gradient;
pub mod impute;
pub mod regression;
pub mod score_function;
