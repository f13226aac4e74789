//! Log-likelihoods: totals, totals of many parameter sets, and one value for each sample.
pub mod batch;
pub mod batch_mma;
pub mod batch_parameters;
pub mod batch_wgmma;
pub mod exp2_bias;
pub mod pair;
pub mod small_k;
pub mod tiled;
