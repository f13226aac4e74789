//! `split_matrices`, `whiten`, `outer`: the E-step of mixtures with matrices on the tensor cores, for any K.
//!
//! [`products_mma`](super::products_mma) multiplies by all products of two features, about D²/2, which it has to form
//! first. Here only features are multiplied. `whiten` computes t = A·x + b for each component, a triangle A times the
//! features, and from it the exponent seed − |t|². `outer` computes Σᵢ (rᵢ·xᵢ)·xᵢᵀ for each component: its first
//! operand is a tile of features times responsibilities, formed in registers from the tile as it was read, the second
//! is features. Only tiles on and below the diagonal are computed.
//!
//! As in `products_mma`, numbers are split into two of float16, responsibilities are rounded, and the sums of the
//! tensor cores are short: 16 products or samples, and [`FLUSH`]·[`STAGE`] samples before they are added in float64.
//!
//! * Launch of `whiten`: one-dimensional grid; [`WhitenShape::block`] threads, [`WhitenShape::shared_bytes`]. Launch of
//!   `outer`: grid ([`OuterShape::blocks`], slices of the samples), [`OuterShape::block`],
//!   [`OuterShape::shared_bytes`].
//! * Necessary work: each 3·N·K·T·16² multiply-adds in float16 for T tiles of 16 by 16 features on and below the
//!   diagonal, `outer` a fortieth more for the first moments; with `mma.sync` an H200 does about 3.1·10¹⁴ a second.
//!   Read 4·N·D bytes in each, write and read 4·N·K bytes of exponents.
use crate::data::{Columns, QUAD};
use crate::likelihood::tiled::Exponents;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Features of a tile of the tensor cores.
pub const TILE: usize = 16;
/// Rows of a band of a triangle.
pub const BAND: usize = 2 * TILE;
/// Samples of a warp of `whiten`.
pub const COLUMNS: usize = 64;
/// Samples of a stage of `outer`.
pub const STAGE: usize = 64;
/// Stages between additions of the float32 sums in float64.
pub const FLUSH: u32 = 128;
/// The factor of responsibilities. With features times [`FEATURE_SCALE`](super::products_mma::FEATURE_SCALE), their
/// products are below 2^15, where float16 has its largest numbers.
pub const RESPONSIBILITY_SCALE: f32 = 256.0;

/// Elements (two numbers each) of both parts of a pair of tiles of a triangle.
const FRAGMENTS: usize = 2 * 2 * WARP as usize * 4;
/// Elements from one row of features of a stage to the next; rows begin in different banks.
const STAGE_PITCH: usize = STAGE / 2 + 4;
/// Quads of samples of a stage.
const QUADS: usize = STAGE / QUAD;
/// Pairs of tiles of eight columns of a task of `outer`.
const PAIRS: usize = 4;
/// A lane's sums for two components: products with features, and the features alone.
const LANE_SUMS: usize = 2 * (PAIRS * 2 * 4 + 2);

/// The division of `whiten`'s work.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhitenShape {
    /// D.
    pub d: u32,
    /// K.
    pub k: u32,
    /// Warps of a block along the components.
    pub component_warps: u32,
    /// Warps of a block along the samples, a power of two.
    pub sample_warps: u32,
}

impl WhitenShape {
    /// Threads of a block.
    pub fn block(&self) -> u32 {
        self.component_warps * self.sample_warps * WARP
    }

    /// Samples of a block at a time.
    #[inline(always)]
    pub fn samples(&self) -> usize {
        self.sample_warps as usize * COLUMNS
    }

    /// Tiles along the features.
    #[inline(always)]
    fn tiles(&self) -> usize {
        (self.d as usize).div_ceil(TILE)
    }

    /// Bands of a triangle.
    #[inline(always)]
    fn bands(&self) -> usize {
        self.tiles().div_ceil(2)
    }

    /// Numbers of a component's shifts: D, rounded up to whole bands.
    #[inline(always)]
    pub fn shifts(&self) -> usize {
        self.bands() * BAND
    }

    /// Elements of a component's triangle in float16.
    #[inline(always)]
    pub fn fragments(&self) -> usize {
        // Band b has 2·(b + 1) pairs of tiles; the last band of an odd number of tiles has one less.
        FRAGMENTS * (self.bands() * (self.bands() + 1) - self.tiles() % 2)
    }

    /// Elements of a row of features.
    #[inline(always)]
    fn pitch(&self) -> usize {
        self.samples() / 2 + 4
    }

    /// Elements of one part of the features.
    #[inline(always)]
    fn features(&self) -> usize {
        self.tiles() * TILE * self.pitch()
    }

    /// Float32 numbers in shared memory: maxima and sums of each warp along the components.
    #[inline(always)]
    fn numbers(&self) -> usize {
        2 * self.component_warps as usize * self.samples()
    }

    /// Dynamic shared memory of a launch.
    pub fn shared_bytes(&self) -> usize {
        FINISH_SHARED_BYTES + (self.numbers() + 2 * self.features()) * size_of::<f32>()
    }
}

/// Arguments of `split_matrices`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SplitMatricesArgs {
    /// The shape of `whiten`.
    pub shape: WhitenShape,
    /// Lower triangles row by row, (K, D·(D + 1)/2).
    pub matrices: *const f32,
    /// Both parts of each triangle as operands of the tensor cores: (K, [`WhitenShape::fragments`]).
    pub fragments: *mut u32,
}

/// Arguments of `whiten`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WhitenArgs {
    /// The division of the work.
    pub shape: WhitenShape,
    /// The samples.
    pub columns: Columns,
    /// The output of `split_matrices`.
    pub fragments: *const u32,
    /// b, (K, [`WhitenShape::shifts`]), zeros behind D.
    pub shifts: *const f32,
    /// For each component the factor of sums of products, the seed, and wₖ: (3, K).
    pub constants: *const f32,
    /// Weight of each sample; null: all weights are one.
    pub sample_weights: *const f32,
    /// Receives the exponents.
    pub exponents: Exponents,
    /// Receives both parts of the features: see [`OuterArgs::halves`].
    pub halves: *mut u32,
    /// Receives the total.
    pub output: Output,
}

/// The division of `outer`'s work. A *task* of a warp is 16 rows by up to 64 columns of the sums of two components.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterShape {
    /// D.
    pub d: u32,
    /// K.
    pub k: u32,
    /// Warps of a block.
    pub warps: u32,
}

impl OuterShape {
    /// Takes as many warps as there are tasks, up to `most`.
    pub fn new(d: usize, k: usize, most: u32) -> Self {
        let shape = Self { d: d as u32, k: k as u32, warps: most };
        Self { warps: shape.tasks().min(most as usize) as u32, ..shape }
    }

    /// Threads of a block.
    pub fn block(&self) -> u32 {
        self.warps * WARP
    }

    /// Tiles along the features.
    #[inline(always)]
    fn tiles(&self) -> usize {
        (self.d as usize).div_ceil(TILE)
    }

    /// Pairs of components.
    #[inline(always)]
    fn pairs(&self) -> usize {
        (self.k as usize).div_ceil(2)
    }

    /// Components, a whole number of pairs.
    #[inline(always)]
    pub fn components(&self) -> usize {
        2 * self.pairs()
    }

    /// Number of the first task of a pair in row `i` of the tiles, which has `i / 4 + 1` tasks.
    #[inline(always)]
    fn group(i: usize) -> usize {
        let (q, r) = (i / PAIRS, i % PAIRS);
        (q + 1) * (2 * q + r)
    }

    /// Tasks of a pair.
    #[inline(always)]
    fn groups(&self) -> usize {
        Self::group(self.tiles())
    }

    /// Tasks of a slice.
    #[inline(always)]
    fn tasks(&self) -> usize {
        self.pairs() * self.groups()
    }

    /// Blocks of a slice.
    pub fn blocks(&self) -> u32 {
        self.tasks().div_ceil(self.warps as usize) as u32
    }

    /// Most components of the tasks of a block.
    #[inline(always)]
    fn block_components(&self) -> usize {
        2 * ((self.warps as usize + self.groups() - 2) / self.groups() + 1)
    }

    /// Numbers that a slice computes: for each task (numbers of a lane, lanes); then for each component the sum of the
    /// responsibilities and of the rounded ones; all times [`RESPONSIBILITY_SCALE`].
    #[inline(always)]
    pub fn sums(&self) -> usize {
        self.tasks() * LANE_SUMS * WARP as usize + 2 * self.components()
    }

    /// The place of a component's sum over the products of features `i` and `j` ≤ `i`, or of `i` alone if `j` is D.
    pub fn place(&self, c: usize, i: usize, j: usize) -> usize {
        let tile = i / TILE;
        let first = c / 2 * self.groups() + Self::group(tile);
        let (row, component) = (i % TILE, c % 2);
        let lane = 4 * (row % 8);
        if j == self.d as usize {
            let number = LANE_SUMS - 4 + 2 * component + row / 8;
            return (first * LANE_SUMS + number) * WARP as usize + lane;
        }
        let (part, column) = (j / (PAIRS * TILE), j % (PAIRS * TILE));
        let number = (component * 2 * PAIRS + column / 8) * 4 + 2 * (row / 8) + column % 2;
        ((first + part) * LANE_SUMS + number) * WARP as usize + lane + column % 8 / 2
    }

    /// The place of the components' counts.
    pub fn counts(&self) -> usize {
        self.tasks() * LANE_SUMS * WARP as usize
    }

    /// Elements of one part of a stage's features.
    #[inline(always)]
    fn features(&self) -> usize {
        self.tiles() * TILE * STAGE_PITCH
    }

    /// Elements of a stage: both parts of the features, and the responsibilities.
    #[inline(always)]
    fn stage(&self) -> usize {
        2 * self.features() + self.block_components() * STAGE_PITCH
    }

    /// Numbers of a stage's exponents, maxima and factors, for each component and quad.
    #[inline(always)]
    fn raw_stage(&self) -> usize {
        3 * self.block_components() * QUADS * QUAD
    }

    /// Dynamic shared memory of a launch.
    pub fn shared_bytes(&self) -> usize {
        (self.raw_stage() + 2 * self.stage()) * size_of::<f32>()
    }
}

/// Arguments of `outer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OuterArgs {
    /// The division of the work.
    pub shape: OuterShape,
    /// N.
    pub n: u64,
    /// Both parts of these samples' features from `whiten`: (2, D, [`Exponents::stride`] / 2) pairs, zeros behind N.
    pub halves: *const u32,
    /// The exponents of these samples from `whiten`, for [`OuterShape::components`] rows.
    pub exponents: Exponents,
    /// wₖ ([`OuterShape::components`],), zeros behind K.
    pub weights: *const f32,
    /// The number of slices, gridDim.y; stage s is in slice s modulo this. At most the number of stages if `add` is 0.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`OuterShape::sums`] of each slice.
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
