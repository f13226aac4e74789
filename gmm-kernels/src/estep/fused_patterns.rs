//! `fused_patterns_kKK_dDD`: the E-step of samples with missing values under full covariances, for K up to 8 or 32 and
//! D up to [`MAX_FEATURES`]. [`fused`] is its counterpart for complete samples.
//!
//! The rows of a pattern of missing values are neighbours. Missing values are 0, and so are their places in the
//! pattern's parameters ([`marginals`](crate::patterns::marginals)). A warp takes a slice of a pattern's rows: it reads
//! the pattern's parameters to shared memory, and goes through the rows like a warp of `fused`. Then it adds up its
//! float32 sums over its lanes in float64, and writes them. Blocks of one warp start as others end, so that slices may
//! have different lengths.
//!
//! * Launch: a block of one warp for each slice, shared memory [`shared_bytes`]; then
//!   [`complete`](crate::patterns::complete).
//! * Necessary work for each sample: as `fused` for complete samples: read 4·D bytes, K·(D² + 4·D) multiply-adds. For
//!   each slice, read the parameters and write the sums, K·(D + 1)·(D + 2)/2 numbers of 4 and of 8 bytes. K = 8, D =
//!   13, N = 10⁶ in 1,000 patterns and 2,000 slices on an H200: 53 µs of arithmetic; 52 MB, 13 µs, and 20 MB to and
//!   from the second-level cache.
use crate::data::Columns;
use crate::estep::fused::{self, TILE};
use crate::patterns::ParametersOfQuads;

/// The most features. The kernels of [`general`](crate::general) take 0.8 to 1.1 times as long for 16 features, and
/// 1.05 to 1.3 times as long for 12 (N = 10⁶).
pub const MAX_FEATURES: usize = 13;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FusedPatternsArgs {
    /// The data. N counts the rows of whole quads.
    pub columns: Columns,
    /// Weight of each sample (stride); null: all weights are one.
    pub sample_weights: *const f32,
    /// The slices (gridDim.x, [`SLICE`](crate::patterns::SLICE)).
    pub slices: *const u32,
    /// The first pattern, and the distance from one pattern's parameters to the next.
    pub of_patterns: ParametersOfQuads,
    /// Each pattern's parameters, as in [`FusedArgs`](crate::estep::fused::FusedArgs).
    pub parameters: *const f32,
    /// The slices' sums, (gridDim.x, [`values`]).
    pub sums: *mut f64,
    /// Σ (weight·)log₂ Σₖ wₖ·2^qₖ of each slice, (gridDim.x,).
    pub totals: *mut f64,
}

/// Numbers that a slice computes: each of [`fused::sums`] for all components.
pub const fn values(d: usize, capacity: usize) -> usize {
    fused::sums(d, true) * capacity
}

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, capacity: usize) -> usize {
    (fused::numbers(d, true) * capacity + 2 * d * TILE) * size_of::<f32>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
