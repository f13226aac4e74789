//! `chain_posteriors_k04_f32`, … `chain_posteriors_k32_f64`: γ = p(state | sequence) of each row, times the sequence's
//! weight, in the place of qₖ; the sums of γ over first rows and of p(i, j | sequence) / aᵢⱼ over pairs of rows; and
//! log₂ p(chunk | rows before).
//!
//! Forwards, a lane computes αₜ = (αₜ₋₁·a)∘bₜ, scaled so that Σ α is from 1 to below 2, and stores α and the scale.
//! Backwards, β is scaled by the same powers, so that Σ α·β is the sequence's weight in every row: γ is α·β, and no β
//! of a state that α reaches is lost unless its γ is negligible. Lanes exchange α, or b∘β, through shared memory.
//!
//! A group takes a unit, some chunks one after the other, and adds up in their order: the same bits every time.
//!
//! * Launch: one-dimensional grid with a group of C lanes for each unit; block of whole warps; shared memory
//!   [`shared_bytes`]. Then [`reduce_slices`](crate::reduce::slices) over the units' [`sums`].
//! * Necessary work for each row: 3·K² multiply-adds in float64 and 2·K exponentials; read q twice and write γ once;
//!   write and read K float64 numbers.
use super::ChainArgs;

/// Whether the transitions are in shared memory: registers have no room for them beside the sums of pairs.
pub const fn in_shared_memory(capacity: usize) -> bool {
    capacity > 16
}

/// Bytes of the transitions and their transpose in shared memory.
const fn matrix_bytes(capacity: usize) -> usize {
    if in_shared_memory(capacity) { 2 * capacity * capacity * size_of::<f64>() } else { 0 }
}

/// Dynamic shared memory of a launch.
pub const fn shared_bytes(capacity: usize, block_dim: u32) -> usize {
    matrix_bytes(capacity) + 2 * block_dim as usize * size_of::<f64>()
}

/// Sums of a unit: those of pairs (C, C), where j comes first, and of first rows (C,).
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
    /// The ends of chunks (ends, 2, C): p(state | rows before) of the row before the first, unless the chunk begins a
    /// sequence, and p(later rows | state) of the last row, up to a factor.
    pub ends: *const f64,
    /// Holds α (rows, C).
    pub alpha: *mut f64,
    /// Holds the exponent field of each row's scale (rows,).
    pub scales: *mut u32,
    /// Receives log₂ p of each chunk (chunks,); NaN if a probability was lost.
    pub log2: *mut f64,
    /// Receives the [`sums`] of each unit, (n, [`sums`]).
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
