//! `chain_ends_k04_f32`, … `chain_ends_k32_f64`: the probabilities at the ends of each chunk.
//!
//! The recursion of [`posteriors`](super::posteriors) forgets where it began. From [`FEWEST`] rows on the other side of
//! an end it goes to the end, and then from twice as many, until the end is the same, or the recursion has begun at
//! the end of the sequence. Forwards, its vector is v = (v·a)∘b. Backwards it is v = (a·v)∘b, of which a·v is the end.
//!
//! * Launch: one-dimensional grid with a group of C lanes for each chunk's first row and then one for each chunk's
//!   last; block of whole warps; shared memory [`shared_bytes`](super::shared_bytes).
//! * Necessary work for each row on the way: K² multiply-adds in float64 and K exponentials; read q once.
use super::ChainArgs;

/// The rows of the first attempt.
pub const FEWEST: u32 = 16;
/// Most rows. An end that more would change is wrong, which [`posteriors`](super::posteriors) finds.
pub const MOST: u32 = 4096;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EndsArgs<T> {
    /// The chunks and their parameters.
    pub chain: ChainArgs<T>,
    /// Number of chunks.
    pub n: u32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
