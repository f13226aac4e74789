//! `pair`: one thread for each (sample, component) pair; the readable baseline, for any N, K and D.
//!
//! A block takes tiles of 64 neighbouring samples, and has a warp for each of some components:
//! neighbouring threads have neighbouring samples, of each tile two, so that a read of parameters
//! serves for both. Step by step it has [`STEP`] features of its samples, and the parameters of its
//! components, in shared memory, from where each thread adds them to the exponent of its pair;
//! meanwhile the samples of the next step are copied there. The step behind the last features has
//! the next components, the one behind the last components the next tile. Parameters that are the
//! same each time are copied once. The log-sum-exps of a tile's components are put together by one
//! warp, while all go on with the next tile; the warps take turns.
//!
//! * Launch: blockDim.x = 32 · components of a block; any grid (samples in a grid-stride loop);
//!   shared memory [`shared_bytes`].
//! * Necessary work: N·K·D·2 fused multiply-adds; reads x once from memory (N·D·4 bytes). Each pair
//!   reads 3·D numbers of shared memory in 2·D accesses of a warp at once: K = 8, D = 13, N = 10⁶
//!   on an H200 25 µs at one access a cycle, 6.6 µs for the multiply-adds, 12.3 µs for the data.
//!   Measured: 47.6 µs back to back.
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PairArgs {
    /// Samples (D, stride): column j of sample i at `j * stride + i`; aligned to 16 bytes.
    pub x: *const f32,
    /// Elements from one column to the next: a multiple of 4, and at least N.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Parameters (K, 2·D + 2): for each component s₀, m₀, s₁, m₁, …, w, seed.
    pub parameters: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Where to write the total.
    pub output: Output,
}

/// Features that are in shared memory at a time: as many as the lanes of a warp copy parameters of.
pub const STEP: usize = WARP as usize / 2;

/// Samples of a tile that a thread has.
pub const PAIR: usize = 2;
/// Samples of a tile.
pub const TILE: usize = PAIR * WARP as usize;

/// Dynamic shared memory of a launch: of two tiles a log-sum-exp for each sample and component, and
/// of two steps [`STEP`] features of the block's parameters and samples.
pub fn shared_bytes(block_dim: u32) -> usize {
    let numbers = 2 * PAIR * block_dim as usize + 2 * STEP * (block_dim / WARP) as usize + STEP * TILE;
    FINISH_SHARED_BYTES + 2 * numbers * size_of::<f32>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
