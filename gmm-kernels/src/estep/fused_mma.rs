//! `fused_mma_d16_k08`, …, `fused_mma_full_d13_k08`, …: log-likelihood and sufficient statistics on the tensor cores in
//! one read of the data, without an array of size N·K, for K up to 64 and D up to 32 with diagonal covariances, for K
//! up to 8 and D up to 15 with matrices.
//!
//! As in [`products_mma`](super::products_mma), both halves of the E-step are products of matrices, each number of
//! which is split into two of float16: exponents are coefficients times *products* (here each feature and its square),
//! and the statistics are responsibilities times products. There, two kernels leave the exponents in memory; here a
//! warp keeps those of 16 samples in registers. The first product leaves its results, components by samples, where the
//! second expects an operand. Between the two are the exponential, a sum over the components, which are in eight lanes,
//! and the rounding of the responsibilities to float16.
//!
//! A lane reads quads of samples of the features `lane / 4`, `lane / 4 + 8`, …, and forms their products as the second
//! product needs them. The first one needs them transposed, which happens on their way through shared memory.
//!
//! Up to 8 components are half of the rows of a product of the tensor cores. The other half is then the low parts of
//! their coefficients: [high; low]·products has all partial products in two instead of three.
//!
//! A warp's registers hold the sums of the features and components in the kernel's name. For more, a [`Team`] of warps
//! evaluates the same samples. Its warps take different features, and add up their parts of the exponents through
//! shared memory; or different components, and add up the likelihoods of their samples; or both. Each keeps the sums of
//! its own features and components. The warps of a team wait for each other once for each of the two.
//!
//! `fused_mma_observed_d16_k08`, … are for samples with missing values (NaN), with diagonal covariances. A missing
//! value is a feature of zero, and each feature has a third product, [`OBSERVED`] or 0: its coefficient is the
//! feature's constant less the square of the shift, and its sum is of the responsibilities for samples that have the
//! feature. It is one float16 number, so that it takes half as many multiplications as the others.
//!
//! `fused_mma_expanded_p016_k64`, … expand the exponents of matrices into products of two features, as `products_mma`
//! does, for so few features that the warps of a block keep the sums of all products. Each is the product of two
//! [rows](FusedMmaArgs::pairs), of which the last is the number one, so that they also serve few features with diagonal
//! covariances. The warps of a team take different products instead of different features.
//!
//! With at most 8 components the likelihood Σₖ wₖ·2^qₖ is computed directly, and the maximum subtracted only if a
//! sample's sum is below [`THRESHOLD`](crate::likelihood::small_k::THRESHOLD). With more, the maximum is always
//! subtracted.
//!
//! The tensor cores truncate their sums, so these are short: at most 16 products or 32 samples. They are added up in
//! float32 by rounded additions, and sums of [`FLUSH`] rounds of a block's warps in float64. Blocks add theirs as
//! integers ([`unit()`]), which gives the same bits in any order, so that the last block has little left to do.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory [`FusedShape::shared_bytes`].
//! * Necessary work for each sample: read 4·D bytes; with diagonal covariances 5·2·D·K multiply-adds in float16 (K ≤ 8:
//!   4·2·D·16, because the low parts are rows), with matrices 2·16·16·D and 2·8·D·(D + 3); with expanded exponents 5·K
//!   for each of D·(D + 3)/2 products.
use crate::data::{Columns, QUAD};
use crate::estep::products_mma::PRODUCT_SCALE;
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Features or components of a tile.
pub const TILE: usize = 8;
/// Samples that a warp multiplies at once.
pub const SAMPLES: usize = 16;
/// Rounds of a block between additions of the float32 sums in float64.
pub const FLUSH: u32 = 256;
/// Most features of a warp with diagonal covariances.
pub const FEATURES_OF_WARP: usize = 32;
/// Most components of a warp with diagonal covariances.
pub const COMPONENTS_OF_WARP: usize = 64;
/// Most features with matrices; the number one follows them.
pub const MAX_FEATURES_FULL: usize = 15;
/// Most warps of a team with diagonal covariances: as many as the registers of a block allow.
pub const MAX_TEAM: usize = 8;
/// Most warps of a team with matrices.
pub const MAX_TEAM_FULL: usize = 12;
/// Most features.
pub const MAX_FEATURES: usize = MAX_TEAM * FEATURES_OF_WARP;
/// Most components, of at most [`STEP`] features without missing values.
pub const MAX_COMPONENTS: usize = MAX_TEAM * COMPONENTS_OF_WARP;
/// Most components of at most [`FEATURES_OF_WARP`] features otherwise.
pub const MAX_COMPONENTS_WIDE: usize = MAX_TEAM * COMPONENTS_OF_WARP_GAPS;
/// Most components with matrices.
pub const MAX_COMPONENTS_FULL: usize = MAX_TEAM_FULL * TILE;
/// Most components of a warp with missing values: registers do not hold sums of more.
pub const COMPONENTS_OF_WARP_GAPS: usize = 32;
/// Most features whose exponents are expanded into products.
pub const MAX_FEATURES_EXPANDED: usize = 2 * STEP;
/// The product of an observed value: the scaled number one times itself.
pub const OBSERVED: f32 = PRODUCT_SCALE;

/// Warps of a block that evaluate the same samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    /// Parts of the features.
    pub features: u32,
    /// Parts of the components. The team's warps are ordered by part of the components, then of the features.
    pub components: u32,
}

impl Team {
    /// A warp on its own.
    pub const ONE: Self = Self { features: 1, components: 1 };

    /// The number of warps.
    pub const fn warps(self) -> u32 {
        self.features * self.components
    }
}

/// An instance of the kernel, and the way that warps share its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FusedShape {
    /// Pairs of tiles of features of a warp: 1 or 2.
    pub pairs: usize,
    /// Tiles of components of a warp: 1, 2, 4 or 8.
    pub components: usize,
    /// Matrices: the features by which each is multiplied: itself, the next, … (cyclic). Diagonal covariances: 0.
    pub rotations: usize,
    /// Steps of products of a warp if exponents are expanded into products of two features; otherwise 0.
    pub expanded: usize,
    /// Whether values are missing (diagonal covariances only).
    pub gaps: bool,
    /// The warps that share samples.
    pub team: Team,
}

impl FusedShape {
    /// A shape of diagonal covariances for single warps.
    pub const fn diagonal(pairs: usize, components: usize, gaps: bool) -> Self {
        Self { pairs, components, rotations: 0, expanded: 0, gaps, team: Team::ONE }
    }

    /// A shape of matrices for single warps.
    pub const fn matrices(rotations: usize) -> Self {
        Self { rotations, ..Self::diagonal(1, 1, false) }
    }

    /// A shape of exponents expanded into `steps` steps of products, for single warps.
    pub const fn products_of_two(steps: usize, components: usize) -> Self {
        let pairs = if steps <= 3 { 1 } else { 2 };
        Self { expanded: steps, ..Self::diagonal(pairs, components, false) }
    }

    /// The instance for K components of D features whose exponents are expanded into `products`, if there is one.
    pub const fn expanded(k: usize, d: usize, products: usize) -> Option<Self> {
        if k == 0 || d == 0 || d > MAX_FEATURES_EXPANDED {
            return None;
        }
        let steps = products.div_ceil(STEP);
        // The least work. Exponentials, which all warps with different products compute for themselves, and all else
        // that is independent of the products take as long as about two steps.
        let tiles = k.div_ceil(TILE);
        let (mut best, mut least) = (Self::products_of_two(0, 0), usize::MAX);
        let mut i = 0;
        while i < INSTANCES_EXPANDED.len() {
            let [of_warp, few, many] = INSTANCES_EXPANDED[i];
            let work = steps.div_ceil(of_warp) * (of_warp + 2);
            let shape = Self::products_of_two(of_warp, if tiles <= few { few } else { many });
            if work < least && shape.features() >= d && (of_warp > 1 || steps == 1) {
                (best, least) = (shape, work);
            }
            i += 1;
        }
        best.of_team(steps.div_ceil(best.expanded), k.div_ceil(best.capacity()), best.most_warps())
    }

    /// Warps of a block whose sums fit into the registers of a multiprocessor, with expanded exponents.
    pub const fn most_warps(self) -> usize {
        match (self.expanded, self.components) {
            (1, _) | (_, 2) => 16,
            (3 | 5, _) => 12,
            _ => 8,
        }
    }

    /// The instance for K components of D features, if there is one; `gaps`: for samples with missing values.
    pub const fn new(k: usize, d: usize, full: bool, gaps: bool) -> Option<Self> {
        if k == 0 || d == 0 {
            return None;
        }
        if full {
            let rotations = match d {
                ..=9 if !gaps => 5,
                10..=13 if !gaps => 7,
                14..=MAX_FEATURES_FULL if !gaps => 8,
                _ => return None,
            };
            return Self::matrices(rotations).of_team(1, k.div_ceil(TILE), MAX_TEAM_FULL);
        }
        let pairs = if d <= STEP { 1 } else { 2 };
        let tiles = k.div_ceil(TILE);
        // Sums of more would not fit into the registers, or those of all warps not into shared memory.
        let most = match d {
            _ if gaps => COMPONENTS_OF_WARP_GAPS,
            ..=STEP => COMPONENTS_OF_WARP,
            ..=FEATURES_OF_WARP if k <= 3 * COMPONENTS_OF_WARP => COMPONENTS_OF_WARP,
            _ => COMPONENTS_OF_WARP / 2,
        } / TILE;
        let components = if tiles < most { tiles.next_power_of_two() } else { most };
        Self::diagonal(pairs, components, gaps).of_team(
            d.div_ceil(FEATURES_OF_WARP),
            tiles.div_ceil(components),
            MAX_TEAM,
        )
    }

    /// The shape of teams with these parts of the features and of the components; `None` for more than `most`.
    const fn of_team(self, features: usize, components: usize, most: usize) -> Option<Self> {
        if features > most || components > most || features * components > most {
            return None;
        }
        Some(Self { team: Team { features: features as u32, components: components as u32 }, ..self })
    }

    /// The shape of a single warp of the team.
    pub const fn of_warp(self) -> Self {
        Self { team: Team::ONE, ..self }
    }

    /// Components of the instance.
    pub const fn capacity(self) -> usize {
        self.components * TILE * self.team.components as usize
    }

    /// Features of the instance.
    pub const fn features(self) -> usize {
        match self.rotations {
            _ if self.expanded > 0 => self.pairs * STEP,
            0 => self.pairs * STEP * self.team.features as usize,
            5 => 9,
            7 => 13,
            _ => MAX_FEATURES_FULL,
        }
    }

    /// Steps of [`STEP`] products.
    pub const fn steps(self) -> usize {
        match self.expanded {
            0 if self.rotations > 0 => 1 + self.rotations,
            0 => self.kinds() * self.pairs * self.team.features as usize,
            of_warp => of_warp * self.team.features as usize,
        }
    }

    /// Steps of a pair of tiles of features with diagonal covariances: features, squares and any observations.
    pub const fn kinds(self) -> usize {
        if self.gaps { 3 } else { 2 }
    }

    /// Products of a sample. Diagonal covariances: for each pair of tiles the features, then their squares, then, with
    /// missing values, [`OBSERVED`] or 0. Matrices: the features, then their products with the feature 0, 1, … places
    /// behind them. Expanded: see [`FusedMmaArgs::pairs`].
    pub const fn products(self) -> usize {
        self.steps() * STEP
    }

    /// Groups of [`SAMPLES`] samples that a warp takes in a round: as many as the registers hold, so that enough data
    /// is being read. One in a kernel for teams, so that no barrier is in an unrolled loop.
    pub const fn groups(self) -> usize {
        if self.is_of_team() || self.expanded > 0 { 1 } else { 2 / self.pairs }
    }

    /// Groups of a round that a warp evaluates side by side.
    pub const fn side_by_side(self) -> usize {
        if self.components == 1 { self.groups() } else { 1 }
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

    /// Sums that a launch computes: Σ r·product (products, capacity), Σ r (capacity), Σ of the rounded r (capacity),
    /// all times [`RESPONSIBILITY_SCALE`](super::products_mma::RESPONSIBILITY_SCALE).
    pub const fn sums(self) -> usize {
        (self.products() + 2) * self.capacity()
    }

    /// Samples of a round of a team.
    pub const fn round(self) -> usize {
        self.groups() * SAMPLES
    }

    /// Elements of the features by which a warp multiplies others.
    const fn rotated(self) -> usize {
        if self.rotations == 0 { 0 } else { 2 * ROTATED }
    }

    /// Whether its kernel is for teams.
    pub const fn is_of_team(self) -> bool {
        self.rotations == 0 && self.expanded == 0 && self.team.warps() > 1
    }

    /// Whether the warps of a team add up parts of exponents. The kernels of 32 features and at most 32 components per
    /// warp do so even if one part has all features.
    const fn shares_features(self) -> bool {
        if self.expanded > 0 {
            return self.team.features > 1;
        }
        self.is_of_team() && self.pairs == 2 && self.components <= COMPONENTS_OF_WARP / 2 / TILE
    }

    /// Rows of a warp with expanded exponents: features, and the number one behind the last.
    const fn rows(self) -> usize {
        if self.expanded > 0 { self.pairs * STEP + 1 } else { 0 }
    }

    /// Elements in which a warp transposes: two places for all features; or, behind the rows, one for each step.
    const fn transposed(self) -> usize {
        let places = if self.expanded > 0 { self.expanded } else { 2 * self.pairs };
        self.rows() * SAMPLES + places * TRANSPOSED
    }

    /// Numbers of the place for a warp's parts of a group's exponents, which its team reads.
    const fn exchanged_exponents(self) -> usize {
        if self.shares_features() { self.components * QUAD * WARP as usize } else { 0 }
    }

    /// Numbers of the place for the likelihoods of a warp's components, which its team reads.
    const fn exchanged_likelihoods(self) -> usize {
        if self.team.components > 1 { self.side_by_side() * 2 * SAMPLES } else { 0 }
    }

    /// Numbers of a warp's part of the shared memory: first for transposition and exchange, finally for its sums.
    const fn part(self) -> usize {
        let of_rounds = self.transposed() + 2 * (self.exchanged_exponents() + self.exchanged_likelihoods());
        let sums = self.of_warp().sums();
        if of_rounds > sums { of_rounds } else { sums }
    }

    /// Dynamic shared memory of a launch.
    pub const fn shared_bytes(self, block: u32) -> usize {
        let warps = (block / WARP) as usize;
        let of_pairs = if self.expanded > 0 { self.products() } else { 0 };
        FINISH_SHARED_BYTES + (self.numbers() + of_pairs + warps * (self.part() + self.rotated())) * size_of::<f32>()
    }
}

/// The kernels with expanded exponents: steps of products of a warp, and its tiles of components, few or many.
const INSTANCES_EXPANDED: [[usize; 3]; 4] = [[1, 4, 8], [3, 2, 4], [5, 2, 4], [7, 2, 4]];
/// Elements from one row of a warp's features to the next: both parts of [`SAMPLES`] samples.
pub const ROW: usize = SAMPLES;
/// Products of a step.
pub const STEP: usize = 2 * TILE;
/// Numbers of a component besides its coefficients: the factor of its sum of products, the constant that is added, wₖ.
pub const CONSTANTS: usize = 3;
/// Elements of shared memory in which a warp transposes a pair of tiles of features of [`SAMPLES`] samples, both parts.
const TRANSPOSED: usize = 2 * STEP * SAMPLES / 2;
/// Elements of the features of a group of samples, both parts, in rows; the first rows are repeated behind the last.
const ROTATED: usize = ROTATED_ROWS * SAMPLES;
/// The rows, with the repeated ones.
const ROTATED_ROWS: usize = STEP + TILE;
/// Most parameters that an instance takes by value: 8 components of 16 features.
pub const BY_VALUE: usize = (2 * STEP + CONSTANTS) * TILE;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FusedMmaArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// The warps that share samples; [`Team::ONE`] in an instance that is not for teams.
    pub team: Team,
    /// Weight of each sample; null: all weights are one.
    pub sample_weights: *const f32,
    /// The parameters (products + [`CONSTANTS`], capacity). First the coefficients of the products, for features times
    /// [`FEATURE_SCALE`](super::products_mma::FEATURE_SCALE) and for the squares of such features; zeros behind D and
    /// K. Then the factor of each sum, the constant that is added, and wₖ; behind K: zero, a constant below all others,
    /// zero. Not read if [`FusedShape::by_value`].
    pub parameters: *const f32,
    /// The same parameters by value.
    pub by_value: [f32; BY_VALUE],
    /// The sums as integers ([`FusedShape::sums`]): zeros before and after each launch.
    pub integers: *mut u64,
    /// For each product of expanded exponents, the rows of its two factors, times [`ROW`], the second also times 2^16.
    /// A row is a feature, or D for the number one. Null in other instances.
    pub pairs: *const u32,
    /// The factor that turns sums into integers: [`unit()`].
    pub unit: f64,
    /// Receives the sums ([`FusedShape::sums`]); may be mapped host memory that the host polls.
    pub sums: *mut f64,
    /// Receives Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
    pub output: Output,
}

/// The largest power of two that keeps sums over `n` samples, times it, below 2^62, so that they are integers. A
/// product is at most 2^14, by the choice of the frame, and so is a responsibility.
pub fn unit(n: u64) -> f64 {
    let bits = 62 - 28 - 1 - n.next_power_of_two().trailing_zeros().min(33);
    (1u64 << bits) as f64
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
