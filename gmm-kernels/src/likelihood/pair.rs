//! `pair`: one thread for each (sample, component) pair, for any N, K and D; the kernel to read first.
//!
//! For each sample it computes log₂ Σₖ wₖ·2^qₖ, with qₖ = seedₖ − Σⱼ (sₖⱼ·xⱼ + mₖⱼ)². A block has one warp for each of
//! several components and takes 32 samples at a time, one per lane: it copies them to shared memory while it computes
//! with the previous ones. Each thread computes the log density q of its pair and leaves it in shared memory, where the
//! first warp forms each sample's log-sum-exp. With more components than warps, the next ones follow and the
//! log-sum-exp continues. At the end each block has one partial sum.
//!
//! It is never chosen automatically: other kernels compute the same in less time.
//!
//! * Launch: blockDim.x = 32 · components of a block; any grid (samples in a grid-stride loop); shared memory
//!   [`shared_bytes`].
//! * Necessary work: N·K·D·2 fused multiply-adds; reads x once from memory (N·D·4 bytes). But each pair reads its 3·D
//!   numbers in 2·D accesses of a warp to the first-level cache.
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PairArgs {
    /// Samples (D, stride): column j of sample i at `j * stride + i`; aligned to 16 bytes.
    pub x: *const f32,
    /// Elements from one column to the next: at least N, a multiple of 4.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Parameters (K, 2·D + 2): for each component s₀, m₀, s₁, m₁, …, w, seed; aligned to 8 bytes.
    pub parameters: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Receives the total.
    pub output: Output,
}

/// Dynamic shared memory of a launch: twice the features of 32 samples and a log density of each thread.
pub fn shared_bytes(d: usize, block_dim: u32) -> usize {
    FINISH_SHARED_BYTES + 2 * (d * WARP as usize + block_dim as usize) * size_of::<f32>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
