//! `chain_posteriors_k04_f32`, … `chain_posteriors_k32_f64`: γ = p(state | sequence) of each row, times the sequence's
//! weight, in the place of qₖ; the sums of γ over first rows and of p(i, j | sequence) / aᵢⱼ over pairs of rows; and
//! log₂ p(chunk | rows before).
//!
//! Forwards, a lane computes αₜ = (αₜ₋₁·a)∘bₜ, scaled so that the largest α is from 1 to below 2, and stores α and the
//! scale. Backwards, β is scaled by the same powers, so that Σ α·β is the sequence's weight in every row: γ is α·β, and
//! no β of a state that α reaches is lost unless its γ is negligible. Lanes exchange α, or b∘β, through shared memory.
//! The last α must be the next chunk's end, and the β of the row before the first that of the chunk before.
//!
//! A group takes a unit, some chunks one after the other, and adds up in their order, and then the groups of a warp:
//! the same bits every time.
//!
//! * Launch: one-dimensional grid with a group of C lanes for each unit; block of whole warps; shared memory
//!   [`shared_bytes`](super::shared_bytes). Then [`reduce_slices`](crate::reduce::slices) over the warps' [`sums`].
//! * Necessary work for each row: 3·K² multiply-adds in float64 and 2·K exponentials; read q twice and write γ once;
//!   write and read K float64 numbers.
use super::ChainArgs;

/// Sums of a warp: those of pairs (C, C), where j comes first, and of first rows (C,).
pub const fn sums(capacity: usize) -> usize {
    capacity * (capacity + 1)
}

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PosteriorsArgs<T> {
    /// The chunks and their parameters.
    pub chain: ChainArgs<T>,
    /// Number of units.
    pub n: u32,
    /// The first chunk of each unit, and the number of chunks (n + 1,).
    pub units: *const u32,
    /// Each chunk's weight (chunks,).
    pub weights: *const f64,
    /// Holds α (rows, C).
    pub alpha: *mut f64,
    /// Holds the exponent field of each row's scale (rows,).
    pub scales: *mut u32,
    /// Receives log₂ p of each chunk (chunks,); NaN if a probability was lost or an end is wrong.
    pub log2: *mut f64,
    /// Receives the [`sums`] of each warp with a unit (⌈n·C / 32⌉, [`sums`]).
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
