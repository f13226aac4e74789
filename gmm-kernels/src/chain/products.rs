//! `chain_products_k04_f32`, … `chain_products_k32_f64`: p(rows, last state | state before) of each chunk, a matrix
//! (K, K). In a chunk that begins a sequence every row of it is p(rows, last state).
//!
//! A lane holds a row of the product of a · diag(b) over the chunk's rows, in registers, and scales it by its own power
//! of two. The transitions and the densities come from shared memory.
//!
//! * Launch: one-dimensional grid with a group of C lanes for each chunk; block of whole warps; shared memory
//!   [`shared_bytes`].
//! * Necessary work for each row: K³ multiply-adds in float64 (an H100 does 17·10¹² a second) and K exponentials.
use super::{AHEAD, ChainArgs};

/// Dynamic shared memory of a launch.
pub const fn shared_bytes(capacity: usize, block_dim: u32) -> usize {
    (capacity * (1 + capacity) + AHEAD * block_dim as usize) * size_of::<f64>()
}

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProductsArgs<T> {
    /// The chunks and their parameters.
    pub chain: ChainArgs<T>,
    /// Number of chunks.
    pub n: u32,
    /// Receives the matrices (chunks, C, C), each row over its power of two.
    pub matrices: *mut f64,
    /// Receives log₂ of each row's power (chunks, C); NaN if a probability was lost.
    pub powers: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
