//! `products_few`: inner products of few vectors with the rows of a matrix, by the tensor cores, in one launch.
//!
//! The matrix is split ([`split`](super::split)); the vectors are float32, and every warp splits the parts that it
//! reads: a segment of a vector gets a power of two 2^e not above its largest magnitude, like a row of the matrix.
//! Products are as in [`products`](super::products): l·h, h·l and h·h of 16 numbers, beginning from zero. They are
//! multiplied by the two powers and added up in float32.
//!
//! A block computes a tile of [`VECTORS`] × [`ROWS`]. Its warps take the segments of the tile in turn, so that many
//! wait for memory at a time, and need shared memory only to add up their sums at the end, in order. A lane reads the
//! numbers that `mma` needs in its registers straight from global memory, 16 bytes at a time: the order of the numbers
//! of a segment does not matter, if it is the same in both.
//!
//! * Launch: [`blocks`] in one dimension, of [`threads`] or any other number of whole warps up to [`MOST_WARPS`];
//!   shared memory [`shared_bytes`].
//! * Necessary work: read 4·M·D bytes of the matrix for each eight vectors. M = D = 1000 on an H100: N ≤ 8: 4 MB, 0.7
//!   µs from the second-level cache (5.5 TB/s); N = 64: 32 MB, 6 µs. M = 2000, D = 40,000: 320 MB from memory, 95 µs.
//! * Tiles of 16, 24, 32 and 64 vectors read less, but were slower: fewer of their warps wait at a time.
use super::products::SplitRows;

/// Vectors of a block's tile.
pub const VECTORS: usize = 8;
/// Rows of the matrix of a block's tile.
pub const ROWS: usize = 16;
/// Floats from one vector's sums to the next in shared memory: 16 bytes more than the rows, for different banks.
pub const PITCH: usize = ROWS + 4;

/// Most warps of a block.
pub const MOST_WARPS: usize = 16;

/// The tiles of the products of N vectors with M rows.
pub const fn blocks(n: usize, m: usize) -> usize {
    n.div_ceil(VECTORS) * m.div_ceil(ROWS)
}

/// Threads of a block for rows of D numbers: enough to keep the memory busy if the matrix does not fit the cache;
/// otherwise several blocks on a multiprocessor.
pub const fn threads(d: usize) -> u32 {
    if d < 8192 { 256 } else { 512 }
}

/// Dynamic shared memory of a launch: the sums of each warp.
pub const fn shared_bytes(threads: u32) -> usize {
    threads as usize / 32 * VECTORS * PITCH * size_of::<f32>()
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProductsFewArgs {
    /// (N, D); aligned to 16 bytes.
    pub vectors: *const f32,
    /// N, at least one.
    pub n: u32,
    /// D.
    pub d: u32,
    /// M rows of the matrix.
    pub matrix: SplitRows,
    /// The products (N, M).
    pub products: *mut f32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
