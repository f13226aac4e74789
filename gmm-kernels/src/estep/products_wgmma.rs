//! `warpgroup_coefficients`, `warpgroup_products`, `warpgroup_exponents`, `warpgroup_weigh`: the E-step of many
//! components with diagonal covariances on the tensor cores of compute capability 9.0, where four warps multiply
//! together.
//!
//! The arithmetic is as in [`products_mma`](super::products_mma). But products are formed once, by
//! `warpgroup_products`, which leaves them in memory as operands of both other kernels. A block's last warp starts bulk
//! copies of them into shared memory while the tensor cores work.
//!
//! The tensor cores truncate their sums, so these are short: exponents of [`STEP`] products, added up in float32 by
//! rounded additions; statistics of [`FLUSH`]·[`STAGE`] samples, added up in shared memory in float32, and in memory in
//! float64. A sum of that many products of one sign loses less than 64·2⁻²⁴ of itself.
//!
//! If values are missing (NaN), a third product of each feature says whether it is observed; these products follow all
//! features and squares. Then more features than a thread's registers have sums for are divided into parts, each with its
//! products and its launch of every kernel: `warpgroup_exponents` adds to the exponents of the parts before.
//!
//! An operand in memory consists of *matrices* of (8, 8) float16 numbers, 128 bytes each. Products: (tiles, 2 parts,
//! [`SAMPLES`] / 8, [`Shape::octets`]) matrices, one row per sample. Coefficients: (groups, steps, 2 parts, [`GROUP`] /
//! 8, [`STEP`] / 8) matrices, one row per component. A part is the high or the low halves of the numbers.
//!
//! * Launch of `warpgroup_exponents`: one-dimensional grid; of `warpgroup_weigh`: grid ([`Shape::groups`], slices of
//!   the samples). Both: [`BLOCK`] threads, [`Shape::exponents_bytes`] or [`Shape::weigh_bytes`] of shared memory. The
//!   other kernels: any number of threads.
//! * Necessary work: `warpgroup_exponents` 6·N·K·D multiply-adds in float16, `warpgroup_weigh` 4·N·K·D; an H200 does
//!   4.9·10¹⁴ a second. Write 8·N·D bytes of products, read them twice or more; write and read 4·N·K bytes of
//!   exponents.
use crate::data::Columns;
use crate::likelihood::tiled::Exponents;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Components of a block at a time.
pub const GROUP: usize = 128;
/// Samples of a tile.
pub const SAMPLES: usize = 128;
/// Products that `warpgroup_exponents` multiplies at a time.
pub const STEP: usize = 64;
/// Samples that `warpgroup_weigh` multiplies at a time.
pub const STAGE: usize = 32;
/// Stages between additions of the tensor cores' sums in shared memory.
pub const FLUSH: u32 = 16;
/// Threads of a block that multiply: two warpgroups.
const MULTIPLYING: u32 = 8 * WARP;
/// Threads of a block of the kernels that multiply. Of the last warpgroup, only one warp works: it starts the copies.
pub const BLOCK: u32 = MULTIPLYING + 4 * WARP;
/// Registers of a thread of such a block at the start. The last warpgroup then leaves most of its own to the others.
pub const REGISTERS: u32 = 168;
/// Registers of a thread that multiplies, and of one that does not.
const REGISTERS_OF_KINDS: (u32, u32) = (232, 40);
const _: () = assert!(2 * REGISTERS_OF_KINDS.0 + REGISTERS_OF_KINDS.1 == 3 * REGISTERS);
/// Most features of a sample.
pub const MAX_FEATURES: usize = 128;
/// Most features of a part of a sample with missing values.
pub const MAX_FEATURES_OBSERVED: usize = 2 * MAX_FEATURES / 3;
/// Most parts of a sample with missing values.
pub const MAX_PARTS: usize = 3;

/// Bytes of a matrix of (8, 8) numbers.
const MATRIX: usize = 128;
/// Elements of two numbers of a row of a matrix.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
const ROW: usize = 4;
/// Bytes of both parts of a group's coefficients of a step.
const COEFFICIENTS: usize = 2 * (GROUP / 8) * (STEP / 8) * MATRIX;
/// Steps of coefficients that are being copied or used.
const STEPS_AHEAD: usize = 3;
/// Stages of products that are being copied or used.
const STAGES_AHEAD: usize = 3;
/// Bytes at the start of the shared memory for the total and for barriers.
const HEAD: usize = 2 * FINISH_SHARED_BYTES;
/// Most steps of a sample's products.
const MOST_STEPS: usize = 2 * MAX_FEATURES / STEP;
/// Numbers that a thread of `warpgroup_weigh` adds up: a sixteenth of a warp's 16 components by 256 products.
const THREAD_SUMS: usize = 128;

const _: () = assert!(FINISH_SHARED_BYTES + 2 * 8 * (MOST_STEPS + STEPS_AHEAD) <= HEAD);

/// The size of the problem, or of one part of its features.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The features, at most [`MAX_FEATURES`].
    pub d: u32,
    /// K.
    pub k: u32,
    /// Whether values are missing; the features are then at most [`MAX_FEATURES_OBSERVED`].
    pub gaps: bool,
}

impl Shape {
    /// Products of a sample: each feature and its square, whether each is observed, and zeros.
    #[inline(always)]
    pub fn products(&self) -> usize {
        2 * MAX_FEATURES
    }

    /// Octets of a sample's products.
    #[inline(always)]
    pub fn octets(&self) -> usize {
        self.products() / 8
    }

    /// Steps that are not all zeros.
    #[inline(always)]
    pub fn steps(&self) -> usize {
        (if self.gaps { 3 } else { 2 } * self.d as usize).div_ceil(STEP)
    }

    /// Groups of components.
    #[inline(always)]
    pub fn groups(&self) -> usize {
        (self.k as usize).div_ceil(GROUP)
    }

    /// Components, a whole number of groups.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        self.groups() * GROUP
    }

    /// Bytes from one octet of a tile's samples to the next.
    #[inline(always)]
    fn pitch(&self) -> usize {
        self.octets() * MATRIX
    }

    /// Bytes of one part of a tile's products.
    #[inline(always)]
    fn part(&self) -> usize {
        SAMPLES / 8 * self.pitch()
    }

    /// Elements (two numbers each) of the products of `n` samples.
    pub fn products_len(&self, n: usize) -> usize {
        n.div_ceil(SAMPLES) * 2 * self.part() / size_of::<u32>()
    }

    /// Elements (two numbers each) of the coefficients.
    pub fn coefficients_len(&self) -> usize {
        self.groups() * self.steps() * COEFFICIENTS / size_of::<u32>()
    }

    /// Bytes of one part of a stage's products.
    #[inline(always)]
    fn stage_part(&self) -> usize {
        STAGE / 8 * self.pitch()
    }

    /// Bytes of a stage: both parts of its products, then its samples' maxima and factors.
    #[inline(always)]
    fn stage(&self) -> usize {
        2 * self.stage_part() + 2 * STAGE * size_of::<f32>()
    }

    /// The place of the exponent of an even component and a sample. The next component is beside it, followed by both
    /// for the sample eight further on, as a thread of either kernel takes them. Sixteen samples of two components are
    /// contiguous, then the next sixteen, then the next two components; each tile of samples has all of its exponents.
    #[inline(always)]
    pub fn exponent(&self, component: usize, sample: usize) -> usize {
        let (tile, of_tile) = (sample / SAMPLES, sample % SAMPLES);
        let of_pair = of_tile / 16 * 32 + of_tile % 8 * 4 + of_tile % 16 / 8 * 2;
        (tile * self.rows() + component) * SAMPLES + of_pair
    }

    /// Numbers that a slice computes: the sums (rows, products), then for each row the sum of the responsibilities and
    /// of the rounded ones; all times [`RESPONSIBILITY_SCALE`](super::products_mma::RESPONSIBILITY_SCALE).
    #[inline(always)]
    pub fn sums(&self) -> usize {
        self.rows() * (self.products() + 2)
    }

    /// Dynamic shared memory of a launch of `warpgroup_exponents`.
    pub fn exponents_bytes(&self) -> usize {
        HEAD + 2 * self.part() + STEPS_AHEAD * COEFFICIENTS
    }

    /// Dynamic shared memory of a launch of `warpgroup_weigh`.
    pub fn weigh_bytes(&self) -> usize {
        HEAD + THREAD_SUMS * MULTIPLYING as usize * size_of::<f32>() + STAGES_AHEAD * self.stage()
    }
}

/// Arguments of `warpgroup_coefficients`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CoefficientsArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// The coefficients ([`Shape::rows`], [`Shape::products`]), zeros behind K and behind the products.
    pub coefficients: *const f32,
    /// Receives the operand ([`Shape::coefficients_len`]).
    pub halves: *mut u32,
}

/// Arguments of `warpgroup_products`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProductsArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// The samples' features.
    pub columns: Columns,
    /// Receives the products as an operand ([`Shape::products_len`]); zeros behind N.
    pub products: *mut u32,
}

/// Arguments of `warpgroup_exponents`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExponentsArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// The samples.
    pub columns: Columns,
    /// The output of `warpgroup_products`.
    pub products: *const u32,
    /// The output of `warpgroup_coefficients`.
    pub coefficients: *const u32,
    /// Each row's factor of the sum, added constant, and wₖ: (3, rows). Behind K: zero, the lowest constant, zero.
    pub constants: *const f32,
    /// Whether to add to the exponents of the parts before, instead of the constants.
    pub later: u32,
    /// Whether parts follow, which complete the exponents: then no normalisers and no total are computed.
    pub partial: u32,
    /// Weight of each sample; null: all weights are one.
    pub sample_weights: *const f32,
    /// Receives the exponents, at [`Shape::exponent`]; has places for whole tiles.
    pub exponents: Exponents,
    /// Receives the total.
    pub output: Output,
}

/// Arguments of `warpgroup_weigh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeighArgs {
    /// The size of the problem.
    pub shape: Shape,
    /// N.
    pub n: u64,
    /// The output of `warpgroup_products`.
    pub products: *const u32,
    /// The output of `warpgroup_exponents`.
    pub exponents: Exponents,
    /// wₖ (rows,), zeros behind K.
    pub weights: *const f32,
    /// The number of slices, gridDim.y; tile t is in slice t modulo this. At most the number of tiles if `add` is 0.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`Shape::sums`] of each slice, `stride` numbers from one slice to the next.
    pub sums: *mut f64,
    /// The sums of a slice, of all parts.
    pub stride: u32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
