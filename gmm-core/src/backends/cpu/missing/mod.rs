//! Samples with missing values under covariances with matrices.
mod by_pattern;
mod completion;
mod few;

pub(super) use by_pattern::ByPattern;
