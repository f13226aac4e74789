//! `warpgroup_triangles`, `warpgroup_features`, `warpgroup_whiten_d…`, `warpgroup_normalise`, `warpgroup_respond_d…`,
//! `warpgroup_outer_d…`: the E-step of mixtures with matrices on the tensor cores of compute capability 9.0, where four
//! warps multiply together.
//!
//! The arithmetic is as in [`whitened_mma`](super::whitened_mma). But features are split once, by `warpgroup_features`,
//! and samples are the rows of the first product: there a triangle is the second operand, each *band* of whose rows is
//! multiplied by the features that it needs.
//!
//! * `warpgroup_whiten_d…` keeps some triangles in shared memory throughout, and a warpgroup's features in registers.
//!   It leaves exponents.
//! * `warpgroup_normalise` computes each sample's log-sum-exp from them.
//! * `warpgroup_respond_d…` computes rounded responsibilities, and sums them, alone and times features. While it
//!   multiplies, it copies the numbers for the next responsibilities.
//! * `warpgroup_outer_d…` sums products of two features. The 64 rows of a warpgroup's first operand are a band of
//!   features of both components of a *pair*; it is multiplied by the features up to the band's last. A warp starts
//!   bulk copies ahead.
//!
//! The tensor cores truncate their sums, so these are short: a row of a triangle, or [`FLUSH`]·[`STAGE`] samples. The
//! latter are added up in float32 in shared memory and in float64 in memory.
//!
//! An operand in memory consists of *matrices* of (8, 8) float16 numbers, 128 bytes each. Features: (stages, 2 parts,
//! [`STAGE`] / 8, [`Shape::octets`]) matrices, one row per sample. Triangles: (units, 2 parts, bands, steps of 16
//! features, [`UNIT_BAND`] / 8, 2) matrices, one row per row; a *unit* is two components, or four of at most 32
//! features, and a band has the same rows of each component. A part is the high or the low halves of the numbers.
//! Exponents: (stages, [`Shape::rows`], [`STAGE`]). Responsibilities: (stages, rows, [`STAGE`]) float16 numbers.
//!
//! * Launches: `warpgroup_whiten_d…`: grid (any, [`Shape::groups`]), [`WHITEN_BLOCKS`] threads, [`Shape::whiten_bytes`]
//!   of shared memory. `warpgroup_respond_d…`: grid ([`Shape::respond_groups`], slices), [`RESPOND_BLOCK`],
//!   [`Shape::respond_bytes`]. `warpgroup_outer_d…`: grid ([`Shape::outer_blocks`], slices of the samples),
//!   [`OUTER_BLOCK`], [`Shape::outer_bytes`]. The other kernels: any number of threads.
//! * Necessary work: for D a multiple of 32, `warpgroup_whiten` 3·N·K·D·(D + 32)/2 multiply-adds in float16,
//!   `warpgroup_outer` as many; an H200 does 4.8·10¹⁴ a second. Read 4·N·D bytes for each group of `warpgroup_whiten`,
//!   in `warpgroup_respond` and for each block of `warpgroup_outer`; write 4·N·K bytes of exponents and read them
//!   twice, write 2·N·K of responsibilities and read them. N = 10⁶, D = 64, K = 32: 0.61 ms each for the products; 128
//!   MB of exponents and 64 MB of responsibilities, 0.15 ms altogether.
use crate::data::Columns;
use crate::likelihood::tiled::Exponents;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::{WARP, WARPGROUP};

/// Features of a band of `warpgroup_outer`.
pub const BAND: usize = 32;
/// Rows of a band of a unit's triangles.
pub const UNIT_BAND: usize = 64;
/// Most features of a sample.
pub const MAX_FEATURES: usize = 4 * BAND;
/// Samples of a stage.
pub const STAGE: usize = 32;
/// Samples of a warpgroup of `warpgroup_whiten` at a time.
pub const SAMPLES: usize = 64;
/// Samples of a tile of `warpgroup_respond`. All arrays have places for whole tiles.
pub const TILE: usize = 128;
/// Components of a block of `warpgroup_respond`.
pub const RESPOND_GROUP: usize = 64;
/// Components of a tile of the tensor cores of `warpgroup_respond`.
const RESPOND_ROWS: usize = 16;
/// Stages between additions of the tensor cores' sums in shared memory.
pub const FLUSH: u32 = 16;
/// Tiles between additions of the sums of `warpgroup_respond` in memory.
pub const FLUSH_TILES: u32 = 64;

/// Threads that a block of `warpgroup_whiten` may have: enough warpgroups that the tensor cores work while others
/// finish their exponents. The registers suffice for four with up to 64 features.
pub const WHITEN_BLOCKS: [u32; 2] = [3 * WARPGROUP, 4 * WARPGROUP];
/// Threads of a block of `warpgroup_respond`.
pub const RESPOND_BLOCK: u32 = 512;
/// Threads of a block of `warpgroup_outer` that multiply.
const MULTIPLYING: u32 = 2 * WARPGROUP;
/// Threads of such a block: one warp of the last warpgroup starts the copies, its other warps do nothing.
pub const OUTER_BLOCK: u32 = MULTIPLYING + WARPGROUP;
/// Registers of a thread of such a block at the start. The last warpgroup then leaves most of its own to the others.
pub const OUTER_REGISTERS: u32 = 168;
/// Registers of a thread that multiplies, and of one that does not.
const REGISTERS_OF_KINDS: (u32, u32) = (232, 40);
const _: () = assert!(2 * REGISTERS_OF_KINDS.0 + REGISTERS_OF_KINDS.1 == 3 * OUTER_REGISTERS);

/// Bytes of a matrix of (8, 8) numbers.
const MATRIX: usize = 128;
/// Features of a step of the tensor cores.
const STEP: usize = 16;
/// Bytes of the rows of a unit's band of a step.
const STEP_OF_BAND: usize = UNIT_BAND * STEP * 2;
/// Most bytes of triangles in shared memory.
const MOST_TRIANGLES: usize = 226 << 10;
/// Bytes at the start of the shared memory for the total and for barriers.
const HEAD: usize = 2 * FINISH_SHARED_BYTES;
/// Stages that are being copied to `warpgroup_outer`, or used.
const STAGES_AHEAD: usize = 3;
/// Elements from one component's responsibilities of a tile to the next one's; rows begin in different banks.
const RESPOND_PITCH: usize = TILE / 2 + 4;

const _: () = assert!(FINISH_SHARED_BYTES + 2 * 8 * STAGES_AHEAD <= HEAD);

/// The size of the problem.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// D, at most [`MAX_FEATURES`].
    pub d: u32,
    /// K.
    pub k: u32,
}

impl Shape {
    /// Bands of the features. (Written so that the compiler sees that there is at least one, and no division by zero.)
    #[inline(always)]
    fn bands(&self) -> usize {
        (self.d.wrapping_sub(1) / BAND as u32 + 1) as usize
    }

    /// D, rounded up to whole bands.
    #[inline(always)]
    pub fn width(&self) -> usize {
        self.bands() * BAND
    }

    /// Octets of a sample's features.
    #[inline(always)]
    pub fn octets(&self) -> usize {
        self.width() / 8
    }

    /// Components of a unit.
    #[inline(always)]
    pub fn of_unit(&self) -> usize {
        if self.width() == BAND { 4 } else { 2 }
    }

    /// The number of units.
    #[inline(always)]
    pub fn units(&self) -> usize {
        (self.k as usize).div_ceil(self.of_unit())
    }

    /// Rows of a unit's triangles.
    #[inline(always)]
    fn unit_rows(&self) -> usize {
        self.of_unit() * self.width()
    }

    /// Rows of a band for one component of a unit.
    #[inline(always)]
    fn band_rows(&self) -> usize {
        UNIT_BAND / self.of_unit()
    }

    /// Steps of features for the rows of a unit's band.
    #[inline(always)]
    fn steps(&self, band: usize) -> usize {
        (band + 1) * (self.band_rows() / STEP)
    }

    /// The component of a unit and the feature of a row of its triangles.
    #[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
    #[inline(always)]
    fn of_row(&self, row: usize) -> (usize, usize) {
        let (band, of_band) = (row / UNIT_BAND, row % UNIT_BAND);
        (of_band / self.band_rows(), band * self.band_rows() + of_band % self.band_rows())
    }

    /// Bytes of one part of a unit's triangles.
    #[inline(always)]
    fn unit_part(&self) -> usize {
        let bands = self.unit_rows() / UNIT_BAND;
        // Each band has as many more steps than the previous one as the first has.
        self.steps(bands - 1) * (bands + 1) / 2 * STEP_OF_BAND
    }

    /// Elements (two numbers each) of the triangles.
    pub fn triangles_len(&self) -> usize {
        self.units() * 2 * self.unit_part() / size_of::<u32>()
    }

    /// Bytes of a unit in the shared memory of `warpgroup_whiten`: both parts of its triangles, shifts, constants.
    fn unit_bytes(&self) -> usize {
        2 * self.unit_part() + (self.unit_rows() + 2 * self.of_unit()) * size_of::<f32>()
    }

    /// Groups of units, one for each block of `warpgroup_whiten`.
    pub fn groups(&self) -> usize {
        self.units().div_ceil(MOST_TRIANGLES / self.unit_bytes())
    }

    /// Most units of a group.
    pub fn group_units(&self) -> usize {
        self.units().div_ceil(self.groups())
    }

    /// Pairs of components of a warpgroup of `warpgroup_outer`.
    #[inline(always)]
    fn pairs(&self) -> usize {
        match self.bands() {
            1 => 8,
            2 => 2,
            _ => 1,
        }
    }

    /// Components of a block of `warpgroup_outer`.
    #[inline(always)]
    fn block_rows(&self) -> usize {
        4 * self.pairs()
    }

    /// Components, a whole number of blocks of `warpgroup_outer`.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        (self.k as usize).next_multiple_of(self.block_rows())
    }

    /// Blocks of a slice of `warpgroup_outer`.
    pub fn outer_blocks(&self) -> u32 {
        (self.rows() / self.block_rows()) as u32
    }

    /// Components of a block of `warpgroup_respond`, in whole tiles of the tensor cores.
    #[inline(always)]
    fn respond_group_rows(&self) -> usize {
        let rows = self.rows();
        (if rows < RESPOND_GROUP { rows } else { RESPOND_GROUP }).next_multiple_of(RESPOND_ROWS)
    }

    /// Blocks of a slice of `warpgroup_respond`.
    pub fn respond_groups(&self) -> u32 {
        self.rows().div_ceil(RESPOND_GROUP) as u32
    }

    /// Bytes from one octet of a stage's samples to the next.
    #[inline(always)]
    fn pitch(&self) -> usize {
        self.octets() * MATRIX
    }

    /// Bytes of one part of a stage's features.
    #[inline(always)]
    fn stage_part(&self) -> usize {
        STAGE / 8 * self.pitch()
    }

    /// Elements (two numbers each) of the features of `n` samples.
    pub fn features_len(&self, n: usize) -> usize {
        n.div_ceil(TILE) * (TILE / STAGE) * 2 * self.stage_part() / size_of::<u32>()
    }

    /// Elements (two numbers each) of the responsibilities of `n` samples.
    pub fn responsibilities_len(&self, n: usize) -> usize {
        n.next_multiple_of(TILE) * self.rows() / 2
    }

    /// Bytes of a stage of `warpgroup_outer`: both parts of its features, and the block's responsibilities.
    #[inline(always)]
    fn stage(&self) -> usize {
        2 * self.stage_part() + self.block_rows() * STAGE * 2
    }

    /// Numbers that a thread of `warpgroup_outer` adds up for a pair: a sixteenth of each band's columns by 16 rows.
    #[inline(always)]
    fn pair_sums(&self) -> usize {
        let bands = self.bands();
        BAND / 4 * bands * (bands + 1)
    }

    /// Sums over products of two features that a slice of `warpgroup_outer` computes, times
    /// [`RESPONSIBILITY_SCALE`](super::whitened_mma::RESPONSIBILITY_SCALE).
    #[inline(always)]
    pub fn outer_sums(&self) -> usize {
        self.rows() / 2 * self.pair_sums() * WARPGROUP as usize
    }

    /// The place of a component's sum over the products of features `i` and `j` ≤ `i`.
    pub fn place(&self, c: usize, i: usize, j: usize) -> usize {
        let (band, row) = (i / BAND, i % BAND);
        let number = BAND / 4 * band * (band + 1) + j / 8 * 4 + row / 8 % 2 * 2 + j % 2;
        let thread = (c % 2 * 2 + row / STEP) * WARP as usize + row % 8 * 4 + j % 8 / 2;
        (c / 2 * self.pair_sums() + number) * WARPGROUP as usize + thread
    }

    /// Sums that a slice of `warpgroup_respond` computes. First each component's sums of the features; then, for the
    /// even and for the odd pairs of 32 samples, each component's sums of the responsibilities, and behind them of the
    /// rounded ones. All times [`RESPONSIBILITY_SCALE`](super::whitened_mma::RESPONSIBILITY_SCALE).
    #[inline(always)]
    pub fn respond_sums(&self) -> usize {
        self.rows() * (self.width() + 4)
    }

    /// Dynamic shared memory of a launch of `warpgroup_whiten`.
    pub fn whiten_bytes(&self) -> usize {
        HEAD + self.group_units() * self.unit_bytes()
    }

    /// Dynamic shared memory of a launch of `warpgroup_respond`.
    pub fn respond_bytes(&self) -> usize {
        let rows = self.respond_group_rows();
        // Exponents with maxima and factors, responsibilities, features.
        HEAD + (TILE * (rows + 2) + rows * RESPOND_PITCH) * size_of::<f32>() + TILE / STAGE * 2 * self.stage_part()
    }

    /// Dynamic shared memory of a launch of `warpgroup_outer`.
    pub fn outer_bytes(&self) -> usize {
        HEAD + self.pairs() * self.pair_sums() * MULTIPLYING as usize * size_of::<f32>() + STAGES_AHEAD * self.stage()
    }
}

/// Arguments of `warpgroup_triangles`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TrianglesArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// Lower triangles row by row, (K, D·(D + 1)/2).
    pub matrices: *const f32,
    /// Receives the operand ([`Shape::triangles_len`]).
    pub triangles: *mut u32,
}

/// Arguments of `warpgroup_features`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FeaturesArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// The samples.
    pub columns: Columns,
    /// Receives the features as an operand ([`Shape::features_len`]); zeros behind N and behind D.
    pub features: *mut u32,
}

/// Arguments of `warpgroup_whiten`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WhitenArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// N.
    pub n: u64,
    /// [`Shape::group_units`].
    pub group_units: u32,
    /// The output of `warpgroup_features`.
    pub features: *const u32,
    /// The output of `warpgroup_triangles`.
    pub triangles: *const u32,
    /// b, (K, [`Shape::width`]), zeros behind D.
    pub shifts: *const f32,
    /// For each component the factor of sums of products, and the seed: (2, K).
    pub constants: *const f32,
    /// Receives the exponents; has places for whole tiles.
    pub q: *mut f32,
}

/// Arguments of `warpgroup_normalise`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NormaliseArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// The samples.
    pub columns: Columns,
    /// wₖ (K,).
    pub weights: *const f32,
    /// Weight of each sample; null: all weights are one.
    pub sample_weights: *const f32,
    /// The exponents from `warpgroup_whiten`; receives the maxima and factors.
    pub exponents: Exponents,
    /// Receives the total.
    pub output: Output,
}

/// Arguments of `warpgroup_respond`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RespondArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// N.
    pub n: u64,
    /// The output of `warpgroup_features`.
    pub features: *const u32,
    /// The output of `warpgroup_whiten` and `warpgroup_normalise`; the stride is a multiple of [`TILE`].
    pub exponents: Exponents,
    /// wₖ ([`Shape::rows`],), zeros behind K.
    pub weights: *const f32,
    /// Receives the responsibilities ([`Shape::responsibilities_len`]); pairs of 16 samples in the order 0, 4, 1, 5, 2,
    /// 6, 3, 7.
    pub responsibilities: *mut u32,
    /// The number of slices, gridDim.y: tile t belongs to slice t modulo this.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`Shape::respond_sums`] of each slice.
    pub sums: *mut f64,
}

/// Arguments of `warpgroup_outer`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OuterArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// N.
    pub n: u64,
    /// The output of `warpgroup_features`.
    pub features: *const u32,
    /// The output of `warpgroup_respond`.
    pub responsibilities: *const u32,
    /// The number of slices, gridDim.y: stage s belongs to slice s modulo this.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`Shape::outer_sums`] of each slice.
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
