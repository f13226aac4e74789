//! `products_large`, `products_medium` and `products_small`: inner products of vectors with the rows of a matrix, by
//! the tensor cores, to the accuracy of float32.
//!
//! Both are split ([`split`](super::split)): v = 2^e·2^-12·(h + l). Of the four partial products, l·l is left out,
//! 2^-24 of the whole. The tensor cores add 16 numbers' products l·h, h·l and h·h, the small ones first, beginning from
//! zero; they truncate. These sums are added up in float32 by ordinary instructions, which round.
//!
//! A block computes a tile of vectors × rows ([`Tiling`]): large tiles read least, small ones occupy the device if
//! there are few products. A warp computes 64 × 64 of a large tile, 32 × 32 of a medium one and 16 × 16 of a small one.
//! Segments of 32 numbers of all vectors and rows of the tile arrive in shared memory by asynchronous copies, in
//! several stages. There a row's segment has [`PITCH`] elements, so that eight rows that are read together are in
//! different banks. A product has the same bits in all tilings.
//!
//! If there are few tiles, the segments of each are divided among several blocks, its shares. Each leaves its sums in
//! memory, and the last one adds them up, in the order of the shares, so that the bits are the same every time (but not
//! those of undivided tiles).
//!
//! * Launch: [`Tiling::tiles`] times the shares in one dimension, of [`Tiling::threads`] each; shared memory
//!   [`Tiling::shared_bytes`].
//! * Necessary work: 3·N·M·D multiply-adds of float16. An H200's tensor cores do 495·10¹² a second by their own
//!   instructions (`wgmma`), about 300·10¹² by `mma`. N = 50,000, M = D = 1000: 150·10⁹ (with the tiles' edges
//!   165·10⁹), 0.55 ms: at most 182·10¹² operations of float32 a second. Besides the products a warp needs, for 96
//!   `mma`, 16 reads of shared memory and 128 additions.
use super::split::SEGMENT_ELEMENTS;

/// Elements from one row's segment to the next in shared memory: 16 bytes more than a segment has.
pub const PITCH: usize = SEGMENT_ELEMENTS + 4;

/// The division of the products among blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Vectors of a block's tile.
    pub vectors: usize,
    /// Rows of the matrix of a block's tile.
    pub rows: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Segments of a tile in shared memory: one in use, the others being copied.
    pub stages: usize,
    /// Most blocks among which a tile's segments are divided.
    pub most_shares: usize,
}

/// For many products: the most products for each number read.
pub const LARGE: Tiling = Tiling { vectors: 256, rows: 128, threads: 256, stages: 3, most_shares: 1 };
/// For fewer products: an eighth of the large tile.
pub const MEDIUM: Tiling = Tiling { vectors: 64, rows: 64, threads: 128, stages: 4, most_shares: 32 };
/// For few products: a quarter of the medium tile.
pub const SMALL: Tiling = Tiling { vectors: 32, rows: 32, threads: 128, stages: 4, most_shares: 32 };
/// All tilings.
pub const TILINGS: [Tiling; 3] = [LARGE, MEDIUM, SMALL];

impl Tiling {
    /// The tiles of the products of N vectors with M rows.
    pub const fn tiles(self, n: usize, m: usize) -> usize {
        n.div_ceil(self.vectors) * m.div_ceil(self.rows)
    }

    /// Products of a tile.
    pub const fn products(self) -> usize {
        self.vectors * self.rows
    }

    /// Bytes of a segment of all vectors and rows of a tile in shared memory.
    pub const fn stage_bytes(self) -> usize {
        (self.vectors + self.rows) * PITCH * size_of::<u32>()
    }

    /// Dynamic shared memory of a launch: the stages, and the scales of the tile's vectors and rows.
    pub const fn shared_bytes(self) -> usize {
        self.stages * self.stage_bytes() + (self.vectors + self.rows) * size_of::<f32>()
    }
}

/// Rows in the layout of [`split`](super::split).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SplitRows {
    /// The rows, segment by segment; aligned to 16 bytes.
    pub halves: *const u32,
    /// 2^e of each row.
    pub scales: *const f32,
    /// Their number, at least one.
    pub rows: u32,
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProductsArgs {
    /// N vectors.
    pub vectors: SplitRows,
    /// M rows of the matrix.
    pub matrix: SplitRows,
    /// Segments of a row.
    pub segments: u32,
    /// Blocks that divide the segments of a tile, at least one and at most [`Tiling::most_shares`].
    pub shares: u32,
    /// With several shares: the sums of each, (tiles, shares, [`Tiling::products`]); aligned to 16 bytes.
    pub sums: *mut f32,
    /// With several shares: each tile's number of shares with written sums; zero before and after each launch.
    pub ready: *mut u32,
    /// The products (N, M); aligned to 8 bytes.
    pub products: *mut f32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
