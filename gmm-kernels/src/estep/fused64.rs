//! `fused64_kKK_dDD`: the E-step in float64 in one read of the data, for diagonal covariances, K up to 32 and D up to
//! 16.
//!
//! A lane of a warp takes one component, and holds its parameters and sums in registers. The lanes of all components
//! read the same two samples from shared memory, to which each warp copies the next samples meanwhile. An exchange
//! between the lanes gives a sample's largest exponent and then Σₖ wₖ·2^(qₖ − largest), the denominator of the
//! responsibilities r.
//!
//! The sums are of r, r·z and r·z² with zⱼ = sⱼ·xⱼ + mⱼ, which is zero at the component's centre, so that nothing
//! cancels. If the data has fewer features than the instance, the rest are zero.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory [`shared_bytes`]; then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`] numbers.
//! * Necessary work for each sample: read 8·D bytes; K·(5·D + 15) multiply-adds and the like, 15 of them for 2^x. K =
//!   8, D = 13, N = 10⁶ on an H200: 24.5 µs for the data, 38 µs for the arithmetic of 13 features (46 µs for the
//!   instance's 16) at 16.7·10¹² a second.
use crate::simt::WARP;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Fused64Args {
    /// Samples (D, stride): column j of sample i at `j * stride + i`; aligned to 16 bytes.
    pub x: *const f64,
    /// Elements from one column to the next: even, and at least N rounded up to an even number; all are finite.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// D, at most the instance's.
    pub d: u32,
    /// Weight of each sample (N,); null: all weights are one.
    pub sample_weights: *const f64,
    /// Parameters ([`numbers`], capacity): each number for all components, with zeros behind the K-th component and the
    /// D-th feature. The numbers: s, m (each of the instance's features), w, seed.
    pub parameters: *const f64,
    /// The blocks' sums, ([`values`], gridDim.x).
    pub partials: *mut f64,
}

/// Most components that an instance takes.
pub const MAX_COMPONENTS: usize = 32;
/// Most features that an instance takes.
pub const MAX_FEATURES: usize = 16;

/// The capacity of the instance for K components.
pub const fn capacity(k: usize) -> usize {
    if k <= 8 { 8 } else { MAX_COMPONENTS }
}

/// The features of the instance for D features.
pub const fn features(d: usize) -> usize {
    d.next_multiple_of(4)
}

/// Numbers that describe a component over `features`.
pub const fn numbers(features: usize) -> usize {
    2 * features + 2
}

/// Sums of a component: Σ r, Σ r·z, Σ r·z².
pub const fn sums(features: usize) -> usize {
    1 + 2 * features
}

/// Numbers that a launch computes: `sums` of each component, (sums, capacity), and Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
pub const fn values(features: usize, capacity: usize) -> usize {
    sums(features) * capacity + 1
}

/// Samples that are read together: 16 bytes of a column.
pub const PAIR: usize = 2;
/// Samples of a warp's stage in shared memory: a pair for each lane.
pub const TILE: usize = PAIR * WARP as usize;

/// Dynamic shared memory of a launch: each warp's sums and two stages, and the components' shifts.
pub const fn shared_bytes(features: usize, capacity: usize, block_dim: u32) -> usize {
    let warp = values(features, capacity).next_multiple_of(2) + 2 * features * TILE;
    ((block_dim / WARP) as usize * warp + features * capacity) * size_of::<f64>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
