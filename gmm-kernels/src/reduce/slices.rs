//! `reduce_slices`: sums many numbers over the slices of the samples.
//!
//! * Launch: a block of whole warps for each [`REDUCE_NUMBERS`] of `count` numbers; shared memory [`shared_bytes`].
//! * Necessary work: read slices·count float64 numbers.
use crate::simt::WARP;

/// Numbers of a block.
pub const REDUCE_NUMBERS: u32 = WARP;

/// Dynamic shared memory of a launch.
pub fn shared_bytes(block_dim: u32) -> usize {
    block_dim as usize * size_of::<f64>()
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReduceSlicesArgs {
    /// Each slice's numbers, (slices, count).
    pub sums: *const f64,
    /// Number of slices.
    pub slices: u32,
    /// Numbers of a slice.
    pub count: u32,
    /// Their sums over the slices, (count,).
    pub totals: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
