//! `split_coefficients`, `exponents_diag_m1`, `exponents_diag_m2`, `exponents_full_m1`, …, `weigh_diag_m1`, …: the
//! E-step on the tensor cores, for any K and D.
//!
//! A mixture is an exponential family: a component's exponent is a constant plus the sum of its *coefficients* times a
//! sample's *products*. The products are the features, and products of two features: squares for diagonal covariances,
//! all pairs for matrices. With the number one as the last feature, each is a product of two features, given by a list
//! of pairs. So both halves of the E-step are matrix products: exponents are coefficients times products (summed over
//! the products), and statistics are responsibilities times products (summed over the samples). Products are formed in
//! shared memory where they are needed.
//!
//! The tensor cores multiply float16 numbers. Coefficients and products are each split into two (`simt::split_halves`),
//! which keeps 22 bits; the smallest of the four partial products is left out. Responsibilities are rounded to float16,
//! products are not: means and covariances are ratios of sums of the same rounded responsibilities, and counts are
//! summed before the rounding. The tensor cores truncate their sums, so these are short: [`STEP`] products or [`STAGE`]
//! samples. They are added up in float32 by rounded additions, and sums of at most [`FLUSH`]·[`STAGE`] samples in
//! float64.
//!
//! [`whitened_mma`](super::whitened_mma) is for wide matrices, and [`products_wgmma`](super::products_wgmma) for
//! diagonal covariances on newer devices.
//!
//! Expanding the square loses digits if a component is narrow and far from the centre of the data. The host bounds the
//! loss from the parameters, and uses other kernels if it is too large.
//!
//! * Launch of `exponents`: one-dimensional grid; [`ExponentsShape::block`] threads, [`ExponentsShape::shared_bytes`].
//!   Launch of `weigh`: grid ([`WeighShape::blocks`], slices of the samples), [`WeighShape::block`],
//!   [`WeighShape::shared_bytes`].
//! * Necessary work: `exponents` 3·N·K·M multiply-adds in float16 for M products (2·D, or D·(D + 3)/2), `weigh`
//!   2·N·K·M; with `mma.sync` an H200 does about 3.1·10¹⁴ a second. Read 4·N·D bytes twice, write and read 4·N·K bytes
//!   of exponents.
use crate::data::{Columns, QUAD};
use crate::likelihood::tiled::Exponents;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Components of a tile of the tensor cores.
pub const TILE: usize = 16;
/// Samples (`exponents`) or products (`weigh`) of a warp.
pub const COLUMNS: usize = 64;
/// Products that a step of `exponents` adds up.
pub const STEP: usize = 32;
/// Samples of a stage of `weigh`.
pub const STAGE: usize = 32;
/// Stages after which the float32 sums are added up in float64.
pub const FLUSH: u32 = 256;
/// The factor of features, which are at most 8 in the frame. It brings products of two to at most 2^14, where float16
/// has its largest numbers, so that small products keep their digits.
pub const FEATURE_SCALE: f32 = 16.0;
/// The factor of products, therefore.
pub const PRODUCT_SCALE: f32 = FEATURE_SCALE * FEATURE_SCALE;
/// The feature that represents the number one.
pub const ONE: f32 = 8.0;
/// The factor of responsibilities.
pub const RESPONSIBILITY_SCALE: f32 = 16384.0;

/// Elements (two numbers each) of a component's coefficients of a step.
const COEFFICIENT_ROW: usize = STEP / 2;
/// Elements from one row of float16 numbers of a stage of `weigh` to the next; rows begin in different banks.
const STAGE_PITCH: usize = STAGE / 2 + 4;
/// Numbers from one row of float32 samples of a stage to the next.
pub const RAW_PITCH: usize = STAGE + 4;
/// Quads of samples of a stage.
const QUADS: usize = STAGE / QUAD;

/// The place of a quarter of a row of a step's coefficients, rotated from row to row: eight rows use different banks.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
#[inline(always)]
fn coefficient_place(row: usize, quarter: usize) -> usize {
    row * COEFFICIENT_ROW + (quarter ^ (row / 2 % 4)) * (COEFFICIENT_ROW / 4)
}

/// The division of `exponents`'s work. A warp has `tiles` tiles of components by [`COLUMNS`] samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExponentsShape {
    /// D.
    pub d: u32,
    /// Whether products are of all pairs of features; otherwise each feature and its square.
    pub full: bool,
    /// Tiles of a warp: 1 or 2.
    pub tiles: u32,
    /// Warps of a block along the components.
    pub component_warps: u32,
    /// Warps of a block along the samples, a power of two.
    pub sample_warps: u32,
    /// Steps: ⌈M / [`STEP`]⌉.
    pub steps: u32,
    /// Groups of [`Self::components`] components.
    pub groups: u32,
}

impl ExponentsShape {
    /// Threads of a block.
    pub fn block(&self) -> u32 {
        self.component_warps * self.sample_warps * WARP
    }

    /// Samples of a block at a time.
    #[inline(always)]
    pub fn samples(&self) -> usize {
        self.sample_warps as usize * COLUMNS
    }

    /// Components of a block at a time.
    #[inline(always)]
    pub fn components(&self) -> usize {
        (self.component_warps * self.tiles) as usize * TILE
    }

    /// Rows of the coefficients.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        self.groups as usize * self.components()
    }

    /// M, rounded up to whole steps.
    #[inline(always)]
    pub fn products(&self) -> usize {
        self.steps as usize * STEP
    }

    /// Elements of a row of a step's products.
    #[inline(always)]
    fn pitch(&self) -> usize {
        self.samples() / 2 + 4
    }

    /// Elements of a step's products, both parts.
    #[inline(always)]
    fn products_stage(&self) -> usize {
        2 * STEP * self.pitch()
    }

    /// Elements of a step's coefficients, both parts.
    #[inline(always)]
    fn coefficients_stage(&self) -> usize {
        2 * self.components() * COEFFICIENT_ROW
    }

    /// Float32 numbers in shared memory: the maxima and sums of each warp along the components, and the features.
    #[inline(always)]
    fn numbers(&self) -> usize {
        (2 * self.component_warps as usize + self.feature_rows()) * self.samples()
    }

    /// Rows of features, with the number one or with zeros up to whole steps behind them.
    #[inline(always)]
    fn feature_rows(&self) -> usize {
        if self.full { self.d as usize + 1 } else { self.products() / 2 }
    }

    /// Dynamic shared memory of a launch.
    pub fn shared_bytes(&self) -> usize {
        let elements = self.numbers() + 2 * (self.products_stage() + self.coefficients_stage() + STEP);
        FINISH_SHARED_BYTES + elements * size_of::<f32>()
    }
}

/// Arguments of `split_coefficients`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SplitArgs {
    /// The shape of `exponents`.
    pub shape: ExponentsShape,
    /// The coefficients (rows, products).
    pub coefficients: *const f32,
    /// Both parts of each coefficient as float16 numbers: (groups, steps, 2, components, [`STEP`] / 2 as in shared
    /// memory).
    pub halves: *mut u32,
}

/// Arguments of `exponents`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExponentsArgs {
    /// The division of the work.
    pub shape: ExponentsShape,
    /// The samples.
    pub columns: Columns,
    /// `full`: the two features of each product, (products,), each times the samples of a block, the first in the lower
    /// 16 bits. D represents the number one; behind M both are D.
    pub factors: *const u32,
    /// The output of `split_coefficients`; zeros behind K and behind M.
    pub coefficients: *const u32,
    /// Each row's factor of the sum, added constant, and wₖ: (3, rows). Behind K: zero, the lowest constant, zero.
    pub constants: *const f32,
    /// Weight of each sample; null: all weights are one.
    pub sample_weights: *const f32,
    /// Log₂-likelihood of each sample (N,), or null.
    pub samples: *mut f32,
    /// Receives the exponents; null pointers if none are wanted.
    pub exponents: Exponents,
    /// Receives the total.
    pub output: Output,
}

/// The division of `weigh`'s work. A warp has `tiles` tiles of components by [`COLUMNS`] products.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeighShape {
    /// D.
    pub d: u32,
    /// Whether products are of all pairs of features; otherwise each feature and its square.
    pub full: bool,
    /// Tiles of a warp: 1 or 2.
    pub tiles: u32,
    /// Warps of a block along the components.
    pub component_warps: u32,
    /// Warps of a block along the products.
    pub product_warps: u32,
    /// Groups of [`Self::components`] components.
    pub groups: u32,
    /// Parts of [`Self::part`] products.
    pub parts: u32,
}

impl WeighShape {
    /// Threads of a block.
    pub fn block(&self) -> u32 {
        self.component_warps * self.product_warps * WARP
    }

    /// Components of a block.
    #[inline(always)]
    pub fn components(&self) -> usize {
        (self.component_warps * self.tiles) as usize * TILE
    }

    /// Products of a block.
    #[inline(always)]
    pub fn part(&self) -> usize {
        self.product_warps as usize * COLUMNS
    }

    /// Rows of the sums.
    #[inline(always)]
    pub fn rows(&self) -> usize {
        self.groups as usize * self.components()
    }

    /// M, rounded up to whole parts.
    #[inline(always)]
    pub fn products(&self) -> usize {
        self.parts as usize * self.part()
    }

    /// Blocks of a slice of the samples.
    pub fn blocks(&self) -> u32 {
        self.groups * self.parts
    }

    /// Numbers that a slice computes: the sums (rows, products), then for each row the sum of the responsibilities and
    /// of the rounded ones; all times [`RESPONSIBILITY_SCALE`].
    #[inline(always)]
    pub fn sums(&self) -> usize {
        self.rows() * (self.products() + 2)
    }

    /// Numbers of a stage as it arrives: exponents, maxima, factors, features.
    #[inline(always)]
    fn raw_stage(&self) -> usize {
        (self.components() + 2 + self.feature_rows()) * RAW_PITCH
    }

    /// Rows of features of a stage: all, with the number one behind them, or only the block's products'.
    #[inline(always)]
    fn feature_rows(&self) -> usize {
        if self.full { self.d as usize + 1 } else { self.part() / 2 }
    }

    /// Elements of a stage's responsibilities.
    #[inline(always)]
    fn responsibilities_stage(&self) -> usize {
        self.components() * STAGE_PITCH
    }

    /// Elements of a stage's products, both parts.
    #[inline(always)]
    fn products_stage(&self) -> usize {
        2 * self.part() * STAGE_PITCH
    }

    /// Dynamic shared memory of a launch.
    pub fn shared_bytes(&self) -> usize {
        let components = self.components();
        // Counts of each component and quad before and after the rounding; weights; pairs.
        let other = 2 * components * QUADS + components + self.part();
        let stages = self.raw_stage() + self.responsibilities_stage() + self.products_stage();
        (2 * stages + other) * size_of::<f32>()
    }
}

/// Arguments of `weigh`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeighArgs {
    /// The division of the work.
    pub shape: WeighShape,
    /// The samples.
    pub columns: Columns,
    /// The exponents of these samples, for all rows, from `exponents`.
    pub exponents: Exponents,
    /// wₖ (rows,), zeros behind K.
    pub weights: *const f32,
    /// As in [`ExponentsArgs::factors`], for whole parts, times [`RAW_PITCH`].
    pub factors: *const u32,
    /// The number of slices, gridDim.y; stage s is in slice s modulo this. At most the number of stages if `add` is 0.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`WeighShape::sums`] of each slice.
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
