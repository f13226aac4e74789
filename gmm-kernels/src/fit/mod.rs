//! `fit_full_dDD`, `fit_diag_dDD`: whole fits of small mixtures in float64, each by one block, from k-means++ to
//! convergence in one launch, for D up to 16.
//!
//! A block does one fit, with its own samples, weights and K. It seeds centres by greedy k-means++ (Arthur and
//! Vassilvitskii 2007) with uniform numbers drawn by the host, improves them by Lloyd's iterations, and continues with
//! EM until the mean log-likelihood changes by less than `tol`. A pass over the samples brings them to shared memory in
//! tiles of one sample per thread. Each thread first computes the responsibilities of its sample and leaves them in
//! shared memory; then it adds all samples of the tile to its own sums. All differences are from the current means, so
//! that nothing cancels. In the M-step each component has a warp, and each row of its matrix a lane.
//!
//! The host takes the last M-step: it gets the sums of the last E-step and the means around which they are. A block
//! gives up a fit that needs the host's care (a component that loses its samples, a covariance that is not safely
//! positive definite, sums that cancel), and the host does it.
//!
//! No fit depends on other fits of the launch.
//!
//! * Launch: one-dimensional grid, a block for each fit; block of whole warps, at most [`MAX_THREADS`]; shared memory
//!   [`Layout::bytes`] for the largest K.
//! * Necessary work for each sample and iteration, in float64 operations: K·(D² / 2 + 1.5·D + 16) for densities and
//!   K·(D² / 2 + 2·D + 1) for sums under full covariances; K·(5·D + 20) under diagonal ones. 1,000 fits of 500 samples,
//!   D = 5, K = 3, full, 41 iterations: 4·10⁹ operations, 0.24 ms at 16.7·10¹² a second, and the copy of 20 MB.
//!   Measured on an H100: 2.3 ms, in which the seven fits on a multiprocessor wait for their M-steps and barriers;
//!   40,000 fits of 2,000 samples, D = 1, K = 2, 101 iterations: 154 ms, where a quarter of the instructions are
//!   float64.
use crate::simt::WARP;

/// Most features that an instance takes.
pub const MAX_FEATURES: usize = 16;
/// Most threads of a block: the registers of a multiprocessor at 128 per thread.
pub const MAX_THREADS: u32 = 512;
/// From this number of features on, `fit_full` needs more registers, which suffice for half as many threads.
pub const MANY_FEATURES: usize = 13;
/// Most components of a fit.
pub const MAX_COMPONENTS: usize = 32;

/// The features of the instance for D features.
pub const fn features(d: usize) -> usize {
    match d {
        0..=2 => d,
        3..=4 => 4,
        _ => d.next_multiple_of(4),
    }
}

/// Draws for each centre but the first; the best is taken.
pub fn trials(k: usize) -> usize {
    match k {
        0..=2 => 2,
        3..=7 => 3,
        8..=20 => 4,
        _ => MAX_TRIALS,
    }
}

/// The most draws: 2 + ⌊ln K⌋ for [`MAX_COMPONENTS`].
pub const MAX_TRIALS: usize = 5;

/// Uniform numbers of a fit.
pub fn uniforms(k: usize) -> usize {
    1 + (k - 1) * trials(k)
}

/// A block's fit.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    /// The start of its samples (D, stride): column j of sample i at `x + j * stride + i`.
    pub x: u64,
    /// Elements from one column to the next, at least N.
    pub stride: u64,
    /// N, at least K.
    pub n: u64,
    /// K, at most [`MAX_COMPONENTS`].
    pub k: u64,
    /// The start of its samples' weights (N,), if any.
    pub weights: u64,
    /// The sum of the weights (N without weights), from 10⁻²⁵ to 10²⁵.
    pub total_weight: f64,
    /// Lloyd's iterations end when the centres move by less than this, squared and summed.
    pub lloyd_tol: f64,
    /// The start of its [`uniforms`].
    pub uniforms: u64,
    /// The start of its scratch (N,).
    pub nearest: u64,
    /// The start of its [`results`].
    pub results: u64,
}

/// Words of a [`Fit`].
pub const FIT_WORDS: usize = size_of::<Fit>() / size_of::<u64>();

/// The places of a [`Fit`]'s words.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod word {
    use super::Fit;
    use core::mem::offset_of;

    pub const X: usize = offset_of!(Fit, x) / 8;
    pub const STRIDE: usize = offset_of!(Fit, stride) / 8;
    pub const N: usize = offset_of!(Fit, n) / 8;
    pub const K: usize = offset_of!(Fit, k) / 8;
    pub const WEIGHTS: usize = offset_of!(Fit, weights) / 8;
    pub const TOTAL_WEIGHT: usize = offset_of!(Fit, total_weight) / 8;
    pub const LLOYD_TOL: usize = offset_of!(Fit, lloyd_tol) / 8;
    pub const UNIFORMS: usize = offset_of!(Fit, uniforms) / 8;
    pub const NEAREST: usize = offset_of!(Fit, nearest) / 8;
    pub const RESULTS: usize = offset_of!(Fit, results) / 8;
}

impl Fit {
    /// The fit as the kernels read it.
    pub fn words(self) -> [u64; FIT_WORDS] {
        let Self { x, stride, n, k, weights, total_weight, lloyd_tol, uniforms, nearest, results } = self;
        [x, stride, n, k, weights, total_weight.to_bits(), lloyd_tol.to_bits(), uniforms, nearest, results]
    }
}

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FitArgs {
    /// The fits (gridDim.x,).
    pub fits: *const Fit,
    /// The samples of all fits, around the origin; √(variance + `reg_covar`) is from 10⁻²⁵ to 10²⁵.
    pub x: *const f64,
    /// The weights of all samples; null: all weights are one.
    pub sample_weights: *const f64,
    /// Uniform numbers in [0, 1).
    pub uniforms: *const f64,
    /// Scratch of all fits: the squared distance of a sample to its nearest centre.
    pub nearest: *mut f64,
    /// The [`results`] of all fits.
    pub results: *mut f64,
    /// Σᵢ (weight·)log₂ Σₖ 2^qₖ at the start of each iteration (`max_iter`, gridDim.x).
    pub totals: *mut f64,
    /// D, at most the instance's.
    pub d: u32,
    /// Whether covariances are shared: one matrix for all in `fit_full`; one number for a component's features in
    /// `fit_diag`.
    pub pooled: bool,
    /// A fit has converged when an iteration changes the mean log-likelihood by less than this.
    pub tol: f64,
    /// Added to every variance.
    pub reg_covar: f64,
    /// Most iterations, at least 1.
    pub max_iter: u32,
    /// Most of Lloyd's iterations.
    pub lloyd: u32,
}

/// The way a fit ended, as the first of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The host has to do the fit.
    GivenUp = 0,
    /// `tol` ended it.
    Converged = 1,
    /// `max_iter` ended it.
    MaxIter = 2,
}

/// Sums of a component: Σ r, Σ r·(x − μ) (D,), and Σ r·(x − μ)(x − μ)ᵀ as a triangle, row by row, or its diagonal (D,).
pub const fn sums(full: bool, d: usize) -> usize {
    1 + d + if full { d * (d + 1) / 2 } else { d }
}

/// Numbers of a fit's results: [`End`], iterations, and each component's last mean μ (D,) with the [`sums`] around it.
pub const fn results(full: bool, k: usize, d: usize) -> usize {
    2 + k * (d + sums(full, d))
}

/// Sums that a thread adds up together in `fit_full`: neighbours of a row.
pub(crate) const CHUNK: usize = 4;

/// The place of row `i` of a triangle whose rows are padded to even lengths.
pub(crate) const fn row_start(i: usize) -> usize {
    let half = i / 2;
    if i.is_multiple_of(2) { 2 * half * (half + 1) } else { 2 * (half + 1) * (half + 1) }
}

/// The parts of a block's shared memory, by their first number.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Means (K, [`Self::mean_stride`]).
    pub means: usize,
    /// Factors (K, [`Self::factor_stride`]): triangles in rows of even lengths, or diagonals.
    pub factors: usize,
    /// log₂ of weight and determinant (K,), and of the determinants alone (K,).
    pub seeds: usize,
    /// Numbers that the warps exchange.
    pub exchange: usize,
    /// Sums (parts of the samples, K, [`Self::items`], [`Self::of_item`]); each thread has at least one item.
    pub sums: usize,
    /// A tile of samples (threads, [`Self::sample_stride`]).
    pub samples: usize,
    /// Responsibilities of a tile (threads, [`Self::share_stride`]).
    pub shares: usize,
    /// All numbers.
    pub numbers: usize,
    /// See `means`.
    pub mean_stride: usize,
    /// See `factors`.
    pub factor_stride: usize,
    /// See `samples`.
    pub sample_stride: usize,
    /// See `shares`.
    pub share_stride: usize,
    /// Items of a component that threads add up, each a chunk of a row, or a feature.
    pub items: usize,
    /// Sums of an item.
    pub of_item: usize,
}

impl Layout {
    /// The layout for an instance of `features`, D, K, and the threads of a block.
    #[inline(always)]
    pub const fn new(full: bool, features: usize, d: usize, k: usize, threads: usize) -> Self {
        let mean_stride = features.next_multiple_of(2);
        let factor_stride = if full { row_start(features) } else { mean_stride };
        // The number one follows the features of a sample: its sums are counts and first moments. The strides lead
        // threads with neighbouring samples to different banks.
        let sample_stride = if full { features / CHUNK * CHUNK + CHUNK + 2 } else { (features + 1) | 1 };
        let share_stride = k | 1;
        let items = if full { row_items(d) + d / CHUNK + 1 } else { d + 1 };
        let of_item = if full { CHUNK } else { 2 };
        let means = 0;
        let factors = means + k * mean_stride;
        let seeds = factors + k * factor_stride;
        let exchange = (seeds + 2 * k).next_multiple_of(2);
        let sums = exchange + EXCHANGE;
        let samples = sums + if k * items > threads { k * items } else { threads } * of_item;
        let shares = samples + threads * sample_stride;
        let numbers = shares + threads * share_stride;
        Self {
            means,
            factors,
            seeds,
            exchange,
            sums,
            samples,
            shares,
            numbers,
            mean_stride,
            factor_stride,
            sample_stride,
            share_stride,
            items,
            of_item,
        }
    }

    /// Dynamic shared memory of a launch.
    pub const fn bytes(&self) -> usize {
        self.numbers * size_of::<f64>()
    }
}

/// Items of the rows before row `i`; a row has one for each chunk up to its diagonal.
pub(crate) const fn row_items(i: usize) -> usize {
    let group = i / CHUNK;
    2 * group * (group + 1) + (i - CHUNK * group) * (group + 1)
}

/// Warps of the largest block.
pub(crate) const WARPS: usize = (MAX_THREADS / WARP) as usize;
/// Numbers that the warps exchange: sums for each warp, and each warp and trial; the candidates; the M-step's failures.
pub(crate) const EXCHANGE: usize = WARPS + MAX_TRIALS * WARPS + MAX_TRIALS + 1 + MAX_COMPONENTS;

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
