//! `pair`: one thread for each (sample, component) pair; the readable baseline, for any N, K and D.
//!
//! In one block, `threads_per_sample` neighbouring threads share a sample, and thread t of them takes the components k with
//! k ≡ t (mod `threads_per_sample`). A log-sum-exp in shared memory goes over the threads of a sample; then the samples of the
//! block are summed.
//!
//! * Launch: blockDim.x = `threads_per_sample` · samples of a block, at most 1024; any grid (samples in a grid-stride loop);
//!   shared memory [`shared_bytes`].
//! * Necessary work: N·K·D·2 fused multiply-adds; reads x once from memory (N·D·4 bytes), the parameters from the cache.
use crate::reduce::{FINISH_SHARED_BYTES, Output};

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PairArgs {
    /// Samples (D, stride): column j of sample i at `j * stride + i`.
    pub x: *const f32,
    /// Elements from one column to the next.
    pub stride: u64,
    /// N.
    pub n: u64,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Threads that share a sample; divides blockDim.x.
    pub threads_per_sample: u32,
    /// Parameters (K, 2·D + 2): for each component s₀, m₀, s₁, m₁, …, w, seed.
    pub parameters: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Where to write the total.
    pub output: Output,
}

/// Dynamic shared memory of a launch: a log-sum-exp for each thread.
pub fn shared_bytes(block_dim: u32) -> usize {
    FINISH_SHARED_BYTES.max(block_dim as usize * 2 * size_of::<f32>())
}

device_code! {
    mod kernel;
    pub use kernel::*;
}
