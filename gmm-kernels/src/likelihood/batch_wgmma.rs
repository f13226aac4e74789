//! `batch_wgmma_k08_s1`, …, `batch_wgmma_s4`: what
//! [`batch_mma`](super::batch_mma) computes, with the products of warpgroups that
//! compute capability 9.0 has. Parameters, arithmetic and accuracy are the same. `k08`: for K ≤ 8.
//!
//! A warp takes 16 samples, a warpgroup 64, in registers as the products' first operand; the second
//! are the coefficients of four sets, eight components of each, in shared memory: matrices of (8,
//! 8) numbers, each with a pair of components of the four sets, so that again a thread gets all
//! eight differences of a set, of two samples. Two bundles are under way at once: the exponentials
//! of the first are computed beside the products of the second. Far samples are only marked in this
//! loop, and computed behind it, by `mma`, from the same operands. All loops have bounds that the
//! whole block has in common: only so are the operands' places in registers that a warp has in
//! common, without which each product waits for the one before.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warpgroups; at most [`MOST_BUNDLES`]
//!   bundles a group; shared memory [`shared_bytes`]. [`reduce_sets`](crate::reduce::sets) then
//!   adds the blocks' sums: grid = number of sets, one warp.
//! * Necessary work as for `batch_mma`. K = 8, D = 13, N = 10⁶ on an H200: exponentials
//!   2.2 µs a set (16 a multiprocessor and clock), multiply-adds 1.6 µs (4.8·10¹⁴ a second),
//!   instructions 1.3 µs (4.4 for each exponential, and 370 for 16 samples).
use super::batch_mma::{COMPONENTS, FEATURES, SETS, STEP_SIZE, reference_row, steps, weights_size};
use crate::simt::WARP;

/// Samples of a warp.
pub const SAMPLES: usize = 16;
/// Bundles of sets that a warpgroup has under way at once; what is missing in the last two is
/// computed, and not used.
const BUNDLES_AT_ONCE: usize = 2;
/// Most bundles of sets of a block.
pub const MOST_BUNDLES: usize = 16;

/// What a block has in shared memory, by the first byte of each: one after the other.
pub struct Layout {
    /// Bundles that there is room for.
    pub room: usize,
    /// The coefficients of the group's sets, split.
    pub coefficients: usize,
    /// The weights and scales of each bundle.
    pub weights: usize,
    /// The reference's parameters.
    pub reference: usize,
    /// The reference's exponents of each warp's samples.
    pub exponents: usize,
    /// A product of likelihoods for each bundle and thread.
    pub products: usize,
    /// What each warp has of far samples, for each set.
    pub far: usize,
    /// Behind the last.
    pub end: usize,
}

impl Layout {
    /// That of `group` bundles of sets of `octets` times eight components, for so many steps and
    /// threads.
    #[inline(always)]
    pub const fn new(steps: usize, octets: usize, group: usize, threads: usize) -> Self {
        let (room, number) = (group.next_multiple_of(BUNDLES_AT_ONCE), size_of::<f32>());
        let components = octets * COMPONENTS;
        let weights = room * octets * steps * STEP_SIZE * number;
        let reference = weights + room * weights_size(octets) * number;
        let exponents = reference + components * reference_row(steps * FEATURES) * number;
        let products = exponents + components * threads / 2 * number;
        let far = products + room * threads * 2 * number;
        let end = far + room * threads / WARP as usize * SETS * size_of::<f64>();
        Self { room, coefficients: 0, weights, reference, exponents, products, far, end }
    }
}

/// Dynamic shared memory of a launch: that of [`Layout`].
pub fn shared_bytes(d: usize, octets: usize, group: usize, block_dim: u32) -> usize {
    Layout::new(steps(d), octets, group, block_dim as usize).end
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
