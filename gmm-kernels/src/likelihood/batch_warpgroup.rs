//! `batch_warpgroup_k08_s1`, …, `batch_warpgroup_s4`: what
//! [`batch_tensor_cores`](super::batch_tensor_cores) computes, with the products of warpgroups that
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
//! * Necessary work as for `batch_tensor_cores`. K = 8, D = 13, N = 10⁶ on an H200: exponentials
//!   2.2 µs a set (16 a multiprocessor and clock), multiply-adds 1.6 µs (4.8·10¹⁴ a second),
//!   instructions 1.3 µs (4.4 for each exponential, and 370 for 16 samples).
use super::batch_tensor_cores::{COMPONENTS, SETS, STEP_SIZE, reference_row, steps, weights_size};
use crate::simt::WARP;

/// Samples of a warp.
pub const SAMPLES: usize = 16;
/// Bundles of sets that a warpgroup has under way at once; what is missing in the last two is
/// computed, and not used.
const BUNDLES_AT_ONCE: usize = 2;
/// Most bundles of sets of a block.
pub const MOST_BUNDLES: usize = 16;

/// Dynamic shared memory of a launch: coefficients and weights of a group of sets; the
/// reference, and its exponents of each warp's samples; a product for each four sets and thread,
/// and what each warp has of far samples.
pub fn shared_bytes(d: usize, octets: usize, group: usize, block_dim: u32) -> usize {
    let (threads, room) = (block_dim as usize, group.next_multiple_of(BUNDLES_AT_ONCE));
    let of_reference = octets * COMPONENTS * (reference_row(d) + threads / 2);
    let of_bundle = octets * steps(d) * STEP_SIZE + weights_size(octets) + 2 * threads;
    let far = room * threads / WARP as usize * SETS;
    (of_reference + room * of_bundle) * size_of::<f32>() + far * size_of::<f64>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
