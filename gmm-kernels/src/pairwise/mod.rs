//! Comparisons of vectors with vectors: inner products by the tensor cores, and the Gaussian kernel.
pub mod centres;
pub mod pairs;
pub mod products;
pub mod products_few;
pub mod split;
