//! `tiled8`, `tiled16` and the same with `_linear`, `_observed`, `_full` or `_expanded` in their names: the general
//! fast kernels, for any K and D.
//!
//! They are matrix products whose inner operation is the squared distance. Each thread holds a register tile of T rows
//! by [`SAMPLES`] samples. A row is a component with a diagonal covariance (q −= (s·x + m)² feature by feature), or, in
//! the `full` kernels, a row of a component's triangle (z = A·x + b, then q −= |z|²; columns that a tile's rows do not
//! reach are skipped). `component_warps` warps of a block take tiles side by side, and their groups take different
//! samples, so that each sample that comes from memory meets `component_warps`·T rows. Samples and parameters pass
//! through shared memory, [`STEP`] features at a time; the next step is copied while one is computed. The sum over the
//! components is a log-sum-exp with the running maximum.
//!
//! `tiled_observed8` is for samples with missing values (NaN), with diagonal covariances: only a sample's observed
//! features count, q −= (s·x + m)² + c for each, with the feature's constant c.
//!
//! The `linear` kernels are for `tied` covariances, q += a·x: the quadratic terms of a sample are the same for all
//! components. A sample's log₂-likelihood is added to them where they are in memory.
//!
//! The `expanded` kernels are for `full` covariances of few features: q is linear in the features and their products of
//! two, which a thread forms for all components of a tile. Unlike triangles they waste no rows of tiles.
//!
//! Besides the total they compute, if wanted, each sample's log₂-likelihood, or the input of the E-step: the exponents
//! of all components, their maximum, and the factor that turns them into responsibilities.
//!
//! * Launch: one-dimensional grid; block of a multiple of `component_warps` warps; shared memory [`shared_bytes`].
//! * Necessary work: N·K·D·2 fused multiply-adds (K rounded up to tiles), `linear` N·K·D, `observed` N·K·D·3, `full`
//!   N·K·D·(D + 3)/2 (the triangle rounded up to tiles; `expanded` not), on an H200 at most 33.4·10¹² a second; and
//!   N·K exponentials.
use crate::data::{Columns, QUAD};
use crate::reduce::{FINISH_SHARED_BYTES, Output};
use crate::simt::WARP;

/// Samples of a thread: two quads, 32 quads apart, so that the lanes of a warp read neighbouring quads.
pub const SAMPLES: usize = 2 * QUAD;
/// Samples of a warp.
pub const WARP_SAMPLES: usize = SAMPLES * WARP as usize;
/// Features, or products of two, of a step.
pub const STEP: usize = 8;
/// Most features whose products are formed.
pub const MAX_EXPANDED: usize = 32;

/// The form of the exponents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Diagonal covariances.
    Diagonal,
    /// Diagonal covariances, and samples with missing values.
    Observed,
    /// The linear terms under one covariance of all components.
    Linear,
    /// A triangle for each component.
    Full,
    /// A coefficient for each feature and product of two features of each component.
    Expanded,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 5] = [Self::Diagonal, Self::Observed, Self::Linear, Self::Full, Self::Expanded];

    /// Numbers of a feature of a component: s and m, with missing values c, or a; `full`: of a column of a row.
    pub const fn numbers(self) -> usize {
        match self {
            Self::Diagonal => 2,
            Self::Observed => 3,
            Self::Linear | Self::Full | Self::Expanded => 1,
        }
    }

    /// The features whose numbers a component has: D, or the products of two of D features and the number one.
    pub const fn features(self, d: usize) -> usize {
        match self {
            Self::Expanded => d * (d + 3) / 2,
            _ => d,
        }
    }
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TiledArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// [`Form::features`]`(D)`.
    pub features: u32,
    /// Tiles of components: ⌈K / T⌉, the last padded with weights of zero and seeds below all others. `full`: K.
    pub tiles: u32,
    /// Warps of a block along the components; a power of two.
    pub component_warps: u32,
    /// The numbers of each feature, (tiles, features, [`Form::numbers`], T). `full`: A and below it b, in tiles of rows,
    /// (K, ⌈D / T⌉, D + 1, T), padded with zeros.
    pub scales_and_shifts: *const f32,
    /// w and seed, (tiles, 2, T). `full`: (K, 2).
    pub weights_and_seeds: *const f32,
    /// Weight of each sample, zeros behind N up to a multiple of the block's samples; null: all weights are one.
    pub sample_weights: *const f32,
    /// Log₂-likelihood of each sample (N,), or null; `linear`: first the quadratic terms, to which the rest is added.
    pub samples: *mut f32,
    /// Receives the exponents for the E-step; null pointers if none are wanted.
    pub exponents: Exponents,
    /// Receives the total.
    pub output: Output,
}

/// The input of the E-step: the responsibility of component k is wₖ·2^(qₖ − maximum)·factor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exponents {
    /// qₖ of each sample, (components, stride); null if not wanted.
    pub q: *mut f32,
    /// Each sample's maximum over k, and its factor: weight / Σₖ wₖ·2^(qₖ − maximum), zero behind N; (2, stride).
    pub normalisers: *mut f32,
    /// Samples from one component to the next: N or more, a multiple of the samples of a block.
    pub stride: u32,
}

/// Numbers of a stage: the step's features of so many `samples`, then its parameters, `width` for a feature of a tile.
const fn stage(width: usize, samples: usize, across: usize) -> usize {
    STEP * (samples + across * width)
}

/// Dynamic shared memory of a launch with tiles of `t` components or rows.
pub fn shared_bytes(t: usize, form: Form, d: usize, block_dim: u32, across: u32) -> usize {
    let (warps, across) = ((block_dim / WARP) as usize, across as usize);
    let samples = warps / across * WARP_SAMPLES;
    // Each warp's maximum and sum for each of its samples, two stages, and the features whose products are formed.
    let (of_stage, of_features) = if form == Form::Expanded { (0, (d + 1) * samples) } else { (samples, 0) };
    let numbers = 2 * warps * WARP_SAMPLES + 2 * stage(form.numbers() * t, of_stage, across) + of_features;
    FINISH_SHARED_BYTES + numbers * size_of::<f32>()
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
