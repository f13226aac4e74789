//! `metropolis_dDD`: many steps of random-walk Metropolis in one launch, for at most [`COMPONENTS`] components and D up
//! to 16.
//!
//! A proposal is θ + z, accepted if log u < log p(θ + z) − log p(θ). The increments z and the logarithms of the uniform
//! numbers u do not depend on the chain: the host sends them ahead, and the device does the rest without it: parameters
//! from coordinates, likelihood, prior, decision.
//!
//! Each block has the same share of the samples in all steps: the first `resident` rounds in shared memory, the others
//! as far as possible in the L2 cache. (A round is a quad of each thread.) In each step, every block leaves its part of
//! the log-likelihood in `exchange` and adds up those of all blocks in the same order, so that all blocks come to the
//! same decision on their own. While the first warp waits for the other blocks, the second and the third compute the
//! parameters of the next proposal, one for each outcome of the decision.
//!
//! θ are the coordinates of a mixture with a diagonal or spherical covariance (the host's `MetropolisTarget`): K − 1
//! for the weights (by stick breaking), K·D means, and the logarithms of K·D (spherical: K) standard deviations.
//!
//! * Launch: cooperative, at most one block on each multiprocessor; block of at least four whole warps; shared memory
//!   [`shared_bytes`].
//! * Necessary work for each step: as for [`small_k`](crate::likelihood::small_k), except that samples in shared memory
//!   are not read again. K = 8, D = 13, N = 10⁶ on an H200: arithmetic 6.6 µs; 27 % of the samples stay in shared
//!   memory, and the L2 cache holds the other 38 MB. Then a number from each block to every other through the L2 cache,
//!   some 0.7 µs, and two barriers of the block.
use crate::data::{Columns, QUAD};
use crate::likelihood::small_k::{COMPONENTS, row};
use crate::reduce::FINISH_SHARED_BYTES;
use crate::simt::WARP;

/// Fewest threads of a block: a warp that waits and two that compute, and as many warps as schedulers.
pub const MIN_BLOCK: u32 = 4 * WARP;

/// Numbers of [`MetropolisArgs::terms`] for each component and feature: location, precision and scaled precision of the
/// mean; the factors of log σ, −σ² and −1/σ² in the log prior.
pub const FEATURE_TERMS: usize = 6;
/// Numbers for each column: √(log₂e / 2) over the frame's scale, its logarithm to base 2, the frame's shift and scale.
pub const COLUMN_TERMS: usize = 4;
/// Numbers for each component: concentration α of its weight, and log(K − 1 − k) of its stick (0 for the last).
pub const COMPONENT_TERMS: usize = 2;

/// Coordinates of θ.
pub const fn dim(k: usize, d: usize, spherical: bool) -> usize {
    k - 1 + k * d + if spherical { k } else { k * d }
}

/// Numbers of a step: the increments of the coordinates, log u, and padding to whole 16-byte reads.
pub const fn step_width(dim: usize) -> usize {
    (dim + 1).next_multiple_of(2)
}

/// Steps in shared memory at a time: the one decided on, the next, and the one being copied.
const STEPS: usize = 3;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetropolisArgs {
    /// The data; `cached_quads` counts quads of each block's share.
    pub columns: Columns,
    /// K.
    pub k: u32,
    /// Whether a component has one σ for all features.
    pub spherical: bool,
    /// Rounds of a block's share (a quad of each thread) that stay in shared memory.
    pub resident: u32,
    /// Prior and frame: K·D times [`FEATURE_TERMS`], D times [`COLUMN_TERMS`], K times [`COMPONENT_TERMS`] numbers.
    pub terms: *const f64,
    /// N ln 2.
    pub n_ln_2: f64,
    /// Added to each log density: the constants of likelihood and prior.
    pub constant: f64,
    /// The steps (count, [`step_width`]), aligned to 16 bytes.
    pub steps: *const f64,
    /// Number of steps, at least 1.
    pub count: u32,
    /// Steps of former launches with the same `exchange`.
    pub before: u32,
    /// θ and behind it its log density; the launch replaces them by the chain's last.
    pub state: *mut f64,
    /// The log density of each proposal (count,), −∞ for one without density.
    pub densities: *mut f64,
    /// The blocks' parts of the log-likelihood, for even and odd steps (2, gridDim.x); zeros before the first launch.
    pub exchange: *mut f64,
}

/// Dynamic shared memory of a launch that holds `rounds` quads of each thread: the resident ones, and one being copied.
pub fn shared_bytes(d: usize, dim: usize, block_dim: u32, rounds: u32) -> usize {
    SharedLayout::new(d, dim).samples + rounds as usize * d * QUAD * block_dim as usize * size_of::<f32>()
}

/// The parts of a block's shared memory, by their first byte.
#[derive(Clone, Copy)]
pub struct SharedLayout {
    /// The parameters of the next proposal: if the current one is rejected, and if it is accepted.
    pub components: usize,
    /// The record: numbers of a step that the threads of a block exchange.
    pub record: usize,
    /// θ.
    pub point: usize,
    /// The steps.
    pub steps: usize,
    /// The samples.
    pub samples: usize,
}

impl SharedLayout {
    /// The layout for D features and `dim` coordinates.
    #[inline(always)]
    pub const fn new(d: usize, dim: usize) -> Self {
        let components = FINISH_SHARED_BYTES;
        let record = components + 2 * COMPONENTS * row(d, false) * size_of::<f32>();
        let point = record + 4 * size_of::<f64>();
        let steps = point + dim.next_multiple_of(2) * size_of::<f64>();
        let samples = steps + STEPS * step_width(dim) * size_of::<f64>();
        Self { components, record, point, steps, samples }
    }
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
