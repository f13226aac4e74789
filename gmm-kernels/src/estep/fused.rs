//! `fused_diag_kKK_dDD`, `fused_full_kKK_dDD`: log-likelihood and sufficient statistics in one read of the data, without
//! an array of size N·K, for K up to 8 or 32 and D up to [`most_features`].
//!
//! A lane of a warp takes one component, and holds its sums in registers. The lanes of all components read the same
//! samples; an exchange between them gives Σₖ wₖ·2^qₖ, the denominator of the responsibilities r.
//!
//! The kernels sum r, r·z and r·z·zᵀ of z = A·x + b (diagonal A: zⱼ = sⱼ·xⱼ + mⱼ), which is zero at the component's
//! centre, so that nothing cancels.
//!
//! If the parameters are few enough, they are part of the launch's arguments, which saves an upload.
//!
//! Sums of a few hundred samples are float32. They are added in float64, warp by warp, in a fixed order, to sums in
//! shared memory.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory [`shared_bytes`]; then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`] numbers.
//! * Necessary work for each sample: read 4·D bytes; `diag` K·5·D multiply-adds (z, its square, and three for the
//!   moments), `full` K·(D² + 4·D). K = 8, D = 13, N = 10⁶ on an H200: 15.6 and 53 µs at 33.4·10¹² a second.
use crate::data::{Columns, QUAD};
use crate::likelihood::small_k::MAX_FEATURES;
use crate::simt::WARP;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FusedArgs {
    /// The data.
    pub columns: Columns,
    /// Weight of each sample (stride), zeros behind N; null: all weights are one.
    pub sample_weights: *const f32,
    /// Parameters ([`numbers`]`(D, full)`, capacity): each number for all components, with zeros behind the K-th. The
    /// numbers: A row by row (diagonal: sⱼ; full: the lower triangle), b (D), w, seed. Not read if [`by_value`].
    pub parameters: *const f32,
    /// The same parameters by value.
    pub by_value: [f32; BY_VALUE],
    /// The blocks' sums, ([`values`], gridDim.x).
    pub partials: *mut f64,
}

/// Most parameters that an instance takes by value: 8 diagonal components of 16 features.
pub const BY_VALUE: usize = numbers(16, false) * 8;

/// Whether an instance takes its parameters by value.
pub const fn by_value(d: usize, full: bool, capacity: usize) -> bool {
    numbers(d, full) * capacity <= BY_VALUE
}

/// Most components that an instance takes.
pub const MAX_COMPONENTS: usize = 32;

/// Most features that an instance takes. With larger triangles `weighted_sums` is faster (measured on an H200, an
/// iteration of N = 10⁴ samples, K = 32, D = 5, 8, 16: 99, 254 and 603 µs, `weighted_sums` 92, 155 and 267; K = 8, D = 13
/// and 16: 121 and 137, 96 and 89).
pub const fn most_features(full: bool, capacity: usize) -> usize {
    match (full, capacity) {
        (false, _) => MAX_FEATURES,
        (true, 8) => 13,
        (true, _) => 4,
    }
}

/// The capacity of the instance for K components.
pub const fn capacity(k: usize) -> usize {
    if k <= 8 { 8 } else { MAX_COMPONENTS }
}

/// Numbers of A: its diagonal or its lower triangle.
pub const fn matrix(d: usize, full: bool) -> usize {
    if full { d * (d + 1) / 2 } else { d }
}

/// Numbers that describe a component.
pub const fn numbers(d: usize, full: bool) -> usize {
    matrix(d, full) + d + 2
}

/// Sums of a component: Σ r, Σ r·z (D), Σ r·z·zᵀ in the shape of A.
pub const fn sums(d: usize, full: bool) -> usize {
    1 + d + matrix(d, full)
}

/// Numbers that a launch computes: (`sums`, `capacity` of 8 or 32) and Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
pub const fn values(d: usize, full: bool, capacity: usize) -> usize {
    sums(d, full) * capacity + 1
}

/// Samples of a warp's stage in shared memory: one quad for each lane.
pub const TILE: usize = QUAD * WARP as usize;

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, full: bool, capacity: usize, block_dim: u32) -> usize {
    let warps = (block_dim / WARP) as usize;
    let parameters = numbers(d, full) * capacity;
    warps * values(d, full, capacity).next_multiple_of(2) * size_of::<f64>()
        + (parameters + warps * 2 * d * TILE) * size_of::<f32>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
