//! The E-step: log-likelihood and sufficient statistics.
pub mod fused;
pub mod fused64;
pub mod fused_patterns;
pub mod fused_tensor_cores;
pub mod tensor_cores;
pub mod warpgroup;
pub mod warpgroup_whitened;
pub mod weighted_sums;
pub mod whitened;
