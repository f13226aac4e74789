//! `fused_mma_d16_k08`, …, `fused_mma_full_d13_k08`, …: the E-step on the matrix
//! units (tensor cores) in one read of the data, for K up to 64 and D up to 32 with diagonal
//! covariances, for K up to 8 and D up to 15 with matrices: log-likelihood and sufficient
//! statistics, without an array of size N·K.
//!
//! As in [`products_mma`](super::products_mma), both halves of the E-step are products of matrices
//! of float16 numbers, two for each number: exponents are coefficients times *products* (here each
//! feature and its square), and the statistics are responsibilities times products. The two kernels
//! there leave the exponents in memory. Here a warp keeps those of 16 samples in registers: where
//! the first product puts its results, with components as rows and samples as columns, the second
//! one expects an operand. Between the two are the exponential, a sum over the components, which
//! are in eight lanes, and the rounding of the responsibilities to float16.
//!
//! A lane reads quads of samples of the features `lane / 4`, `lane / 4 + 8`, …, so that it forms
//! products as the second product wants them. The first one wants them transposed, which they
//! become on their way through shared memory.
//!
//! Up to 8 components are half of the rows of a product of the units. The rows of the other half
//! are then the low parts of their coefficients: [high; low]·products has all partial products in
//! two instead of three.
//!
//! `fused_mma_observed_d16_k08`, … are for samples with missing values, which are NaN,
//! with diagonal covariances and K up to 32. A missing value is a feature of zero, and each feature
//! has a third product, [`OBSERVED`] or 0: its coefficient is the constant of the feature less the
//! square of the shift, and its sum is that of the responsibilities for the samples that have the
//! feature. It is one float16 number, so that it takes half of the multiplications of the others.
//!
//! With at most 8 components the likelihood Σₖ wₖ·2^qₖ is formed as it is, and with the maximum
//! taken out only if a sample's sum is below [`THRESHOLD`](crate::likelihood::small_k::THRESHOLD).
//! With more, the maximum is always taken out.
//!
//! Sums of the units are truncated, so that they are short: 16 products, or 32 samples at most.
//! They are added up in float32 by ordinary additions, and those of [`FLUSH`] rounds of a block's
//! warps in float64. Blocks add theirs up as integers ([`unit()`]), which gives the same bits in
//! any order, so that the last block has next to nothing left to do.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory
//!   [`FusedShape::shared_bytes`].
//! * Necessary work for each sample: read 4·D bytes; with diagonal covariances 5·2·D·K
//!   multiply-adds in float16 (K ≤ 8: 4·2·D·16, because the low parts are rows), with matrices
//!   2·16·16·D and 2·8·D·(D + 3).
use crate::data::Columns;
use crate::estep::products_mma::PRODUCT_SCALE;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Features or components of a tile.
pub const TILE: usize = 8;
/// Samples that a warp multiplies at once.
pub const SAMPLES: usize = 16;
/// Rounds of a block after which the float32 sums are added up in float64.
pub const FLUSH: u32 = 256;
/// Most features, and most components.
pub const MAX_FEATURES: usize = 32;
/// Most features with matrices: behind them comes the number one.
pub const MAX_FEATURES_FULL: usize = 15;
/// Most components.
pub const MAX_COMPONENTS: usize = 64;
/// Most components with missing values: sums of more would not fit into registers.
pub const MAX_COMPONENTS_GAPS: usize = 32;
/// The product that stands for an observed value: as much as the number one times itself where
/// features are scaled.
pub const OBSERVED: f32 = PRODUCT_SCALE;

/// An instance of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FusedShape {
    /// Pairs of tiles of features: 1 or 2.
    pub pairs: usize,
    /// Tiles of components: 1, 2, 4 or 8.
    pub components: usize,
    /// Matrices: with how many features each one is multiplied: itself, the next one, …; after the
    /// last comes the first. Diagonal covariances: 0.
    pub rotations: usize,
    /// Whether values are missing (diagonal covariances only).
    pub gaps: bool,
}

impl FusedShape {
    /// The instance for K components of D features, if there is one; `gaps`: for samples with
    /// missing values.
    pub const fn new(k: usize, d: usize, full: bool, gaps: bool) -> Option<Self> {
        if k == 0 || d == 0 {
            return None;
        }
        let components = k.div_ceil(TILE).next_power_of_two();
        if full {
            let rotations = match d {
                ..=9 => 5,
                10..=13 => 7,
                14..=MAX_FEATURES_FULL => 8,
                _ => return None,
            };
            return if k <= TILE && !gaps { Some(Self { pairs: 1, components, rotations, gaps }) } else { None };
        }
        let most = if gaps { MAX_COMPONENTS_GAPS } else { MAX_COMPONENTS };
        if k > most || d > MAX_FEATURES {
            return None;
        }
        Some(Self { pairs: d.div_ceil(STEP), components, rotations: 0, gaps })
    }

    /// Components that it takes.
    pub const fn capacity(self) -> usize {
        self.components * TILE
    }

    /// Features that it takes.
    pub const fn features(self) -> usize {
        match self.rotations {
            0 => self.pairs * STEP,
            5 => 9,
            7 => 13,
            _ => MAX_FEATURES_FULL,
        }
    }

    /// Steps of [`STEP`] products.
    pub const fn steps(self) -> usize {
        if self.rotations == 0 { self.kinds() * self.pairs } else { 1 + self.rotations }
    }

    /// Steps of a pair of tiles of features with diagonal covariances: features, squares and, with
    /// missing values, what is observed.
    pub const fn kinds(self) -> usize {
        if self.gaps { 3 } else { 2 }
    }

    /// Products of a sample: of each pair of tiles the features, then their squares, then, with
    /// missing values, [`OBSERVED`] or 0. Matrices: the features, then these times the first one,
    /// the second one, … behind them, from themselves on.
    pub const fn products(self) -> usize {
        self.steps() * STEP
    }

    /// Groups of [`SAMPLES`] samples that a warp takes in a round: as many as the registers hold,
    /// so that enough data is on its way.
    pub const fn groups(self) -> usize {
        2 / self.pairs
    }

    /// Numbers of the coefficients, (products, capacity); matrices: (features, [`STEP`], capacity).
    pub const fn coefficients(self) -> usize {
        let rows = if self.rotations == 0 { self.products() } else { self.features() * STEP };
        rows * self.capacity()
    }

    /// Numbers that describe a mixture.
    pub const fn numbers(self) -> usize {
        self.coefficients() + CONSTANTS * self.capacity()
    }

    /// Whether the parameters are passed by value.
    pub const fn by_value(self) -> bool {
        self.numbers() <= BY_VALUE
    }

    /// Sums that a launch gives: Σ r·product (products, capacity), Σ r (capacity), Σ of the rounded
    /// r (capacity), all times [`RESPONSIBILITY_SCALE`](super::products_mma::RESPONSIBILITY_SCALE).
    pub const fn sums(self) -> usize {
        (self.products() + 2) * self.capacity()
    }

    /// Samples of a round of a warp.
    pub const fn round(self) -> usize {
        self.groups() * SAMPLES
    }

    /// Elements in which a warp has the features that it multiplies others with.
    const fn rotated(self) -> usize {
        if self.rotations == 0 { 0 } else { 2 * ROTATED }
    }

    /// Dynamic shared memory of a launch.
    pub const fn shared_bytes(self, block: u32) -> usize {
        let warps = (block / WARP) as usize;
        let of_warp = 2 * self.pairs * TRANSPOSED + self.rotated() + self.sums();
        FINISH_SHARED_BYTES + (self.numbers() + warps * of_warp) * size_of::<f32>()
    }
}

/// Products of a step.
pub const STEP: usize = 2 * TILE;
/// Numbers of a component besides its coefficients: what its sum of products is multiplied by, the
/// constant that is added, wₖ.
pub const CONSTANTS: usize = 3;
/// Elements of shared memory in which a warp transposes a pair of tiles of features of [`SAMPLES`]
/// samples, both parts.
const TRANSPOSED: usize = 2 * STEP * SAMPLES / 2;
/// Elements of the features of a group of samples, both parts, in rows: all of them, and behind
/// them the first ones again.
const ROTATED: usize = ROTATED_ROWS * SAMPLES;
/// Rows of these.
const ROTATED_ROWS: usize = STEP + TILE;
/// Most numbers that an instance takes by value: those of 8 components of 16 features.
pub const BY_VALUE: usize = (2 * STEP + CONSTANTS) * TILE;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FusedMmaArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// Weight of each sample, or null: every weight is one.
    pub sample_weights: *const f32,
    /// The parameters (products + [`CONSTANTS`], capacity): coefficients of the products, those of
    /// features for features times [`FEATURE_SCALE`](super::products_mma::FEATURE_SCALE), those of
    /// squares for squares of that; zeros behind D and K. Then what each sum is multiplied by, the
    /// constant that is added, and wₖ; behind K: zero, a constant below all others, zero. Not read
    /// where [`FusedShape::by_value`] says so.
    pub parameters: *const f32,
    /// The same by value.
    pub by_value: [f32; BY_VALUE],
    /// The sums as integers ([`FusedShape::sums`]): zeros before and after each launch.
    pub integers: *mut u64,
    /// What sums are multiplied by to be integers: [`unit()`].
    pub unit: f64,
    /// Where to write the sums ([`FusedShape::sums`]); may be mapped host memory that the host
    /// polls.
    pub sums: *mut f64,
    /// Where to write Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
    pub output: Output,
}

/// The power of two that sums over `n` samples are multiplied by to be integers: the largest with
/// which they stay below 2^62. A product is at most 2^14, by the choice of the frame, and so is a
/// responsibility.
pub fn unit(n: u64) -> f64 {
    let bits = 62 - 28 - 1 - n.next_power_of_two().trailing_zeros().min(33);
    (1u64 << bits) as f64
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
