//! The E-step: log-likelihood and sufficient statistics.
pub mod fused;
pub mod fused64;
pub mod fused_mma;
pub mod fused_patterns;
pub mod products_mma;
pub mod products_wgmma;
pub mod weighted_sums;
pub mod whitened_mma;
pub mod whitened_wgmma;
