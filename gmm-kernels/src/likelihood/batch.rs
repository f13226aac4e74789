//! `batch_dDD`: many parameter sets over one read of the data, for any K and D up to 16.
//!
//! As in [`small_k`](crate::likelihood::small_k), a thread holds its samples in registers (here two quads). The
//! parameters of a group of sets, and each thread's product of likelihoods for each set, are in shared memory.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warps; shared memory [`shared_bytes`].
//!   [`reduce_sets`](crate::reduce::sets) then adds the blocks' sums: grid = number of sets, one warp.
//! * Necessary work for each sample and set: K·(2·D + 1) fused multiply-adds and K exponentials; the data is read once
//!   per group. K = 8, D = 13, N = 10⁶ on an H200: 6.5 µs per set at 33.4·10¹² fused multiply-adds a second.
use super::small_k::row;
use crate::data::Columns;

/// Quads of a thread.
pub const QUADS: usize = 2;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchArgs {
    /// The data.
    pub columns: Columns,
    /// Parameters (sets, K, [`row`]`(D)`), K as below.
    pub parameters: *const f32,
    /// Number of sets.
    pub sets: u32,
    /// Sets of a group (gridDim.y groups).
    pub group: u32,
    /// K, padded with zeros to a multiple of [`SIDE_BY_SIDE`](crate::likelihood::small_k::SIDE_BY_SIDE).
    pub k: u32,
    /// A sum for each set and block, (sets, gridDim.x).
    pub partials: *mut f64,
}

/// Dynamic shared memory of a launch: a group's parameters (`k` as in [`BatchArgs`]), a product per set and thread.
pub fn shared_bytes(d: usize, k: usize, group: usize, block_dim: u32) -> usize {
    group * (k * row(d, false) * size_of::<f32>() + block_dim as usize * (size_of::<f64>() + size_of::<f32>()))
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
