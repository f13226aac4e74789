//! `batch_wgmma_k08_s1`, …, `batch_wgmma_s4`: as [`batch_mma`](super::batch_mma), with the warpgroup products of
//! compute capability 9.0. Parameters, arithmetic and accuracy are the same. `k08`: for K ≤ 8.
//!
//! A warp takes 16 samples, a warpgroup 64, in registers as the products' first operand. The second operand is the
//! coefficients of eight components of four sets in shared memory: matrices of (8, 8) numbers, each with a pair of
//! components of the four sets, so that a thread again gets all eight differences of a set, for two samples. Two
//! bundles are computed at once: the exponentials of the first beside the products of the second. The loop only marks
//! far samples; they are computed behind it, by `mma`, from the same operands. All loops have bounds that are uniform
//! in the block: only then are the operands' addresses in uniform registers, without which each product waits for the
//! previous one.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warpgroups; at most [`MOST_BUNDLES`] bundles per group;
//!   shared memory [`shared_bytes`]. [`reduce_sets`](crate::reduce::sets) then adds the blocks' sums: grid = number of
//!   sets, one warp.
//! * Necessary work as for `batch_mma`. K = 8, D = 13, N = 10⁶ on an H200: exponentials 2.2 µs per set (16 per
//!   multiprocessor and clock), multiply-adds 1.6 µs (4.8·10¹⁴ a second), instructions 1.3 µs (4.4 for each
//!   exponential, and 370 for 16 samples).
use super::batch_mma::{COMPONENTS, FEATURES, SETS, STEP_SIZE, reference_row, steps, weights_size};
use crate::simt::WARP;

/// Samples of a warp.
pub const SAMPLES: usize = 16;
/// Bundles of sets that a warpgroup computes at once; padding in the last two is computed, and not used.
const BUNDLES_AT_ONCE: usize = 2;
/// Most bundles of sets of a block.
pub const MOST_BUNDLES: usize = 16;

/// The parts of a block's shared memory, by their first byte.
pub struct Layout {
    /// Bundles that fit.
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
    /// Each warp's sums for far samples, for each set.
    pub far: usize,
    /// The end of the last part.
    pub end: usize,
}

impl Layout {
    /// The layout for `group` bundles of sets with `octets` octets of components, and these steps and threads.
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

/// Dynamic shared memory of a launch: the size of [`Layout`].
pub fn shared_bytes(d: usize, octets: usize, group: usize, block_dim: u32) -> usize {
    Layout::new(steps(d), octets, group, block_dim as usize).end
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
