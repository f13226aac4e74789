//! `products_few`: inner products of at most [`MOST_VECTORS`] vectors with the rows of a matrix, by the float32 units.
//!
//! What there is to do is to read the matrix once: [`split`](super::split) has it as pairs of float16 numbers, whose sum is
//! right to 22 bits and is a float32 number. The vectors are not split. A warp computes the products of all vectors with one
//! row.
//!
//! * Launch: any one-dimensional grid of whole warps. No shared memory.
//! * Necessary work: read 4·M·D bytes. M = D = 1000 on an H200: 4 MB, 1 µs from the second-level cache; M = 2000, D =
//!   40,000: 320 MB, 75 µs at 4.24 TB/s. Measured for one vector: 5.7 and 183 µs; for eight, with M = D = 1000: 15 µs.
use super::products::SplitRows;

/// Vectors of a launch, at most.
pub const MOST_VECTORS: usize = 8;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProductsFewArgs {
    /// (N, D).
    pub vectors: *const f32,
    /// N, 1 to [`MOST_VECTORS`].
    pub n: u32,
    /// D.
    pub d: u32,
    /// M rows of the matrix.
    pub matrix: SplitRows,
    /// The products (N, M).
    pub products: *mut f32,
}

device_code! {
    mod kernel;
    pub use kernel::*;
}
