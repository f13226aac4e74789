//! Samples that each have their own noise, in float64: extreme deconvolution (Bovy, Hogg and Roweis 2011).
//!
//! With T = Σ + S = L·diag(p)·Lᵀ of a pair of a sample and a component, and u = T⁻¹·(x − μ):
//!
//! * `noisy_density_dDD` computes q = log₂ (π·N(x; μ, T)) of each pair.
//!   [`posterior`](crate::general::posterior) makes responsibilities r of them.
//! * `noisy_sums_dDD` factorises again, and sums n = Σr, h = Σr·u and E = Σr·(u·uᵀ − T⁻¹) over the samples, from which
//!   the host forms the statistics of the true values.
//!
//! Up to [`NARROW`] features, a thread takes a pair, with all of it in registers: a warp takes 32 samples and, in turn,
//! [`GROUP`] components, or one component and a slice of the samples. Then −T⁻¹ = −L⁻ᵀ·diag(1/p)·L⁻¹ goes into E row by
//! row of L⁻¹.
//!
//! Beyond, a warp takes a pair. Its lanes hold the lower triangle of T. In step k they exchange column k through shared
//! memory, and sweep it: after all steps the triangle is that of −T⁻¹, and x − μ has become u. For the density alone,
//! finished rows are left out. E is in shared memory.
//!
//! The sums of a component and a slice have one owner that adds them in order: the same bits every time.
//!
//! * Launch: any one-dimensional grid, blocks of [`BLOCK`] threads, shared memory [`shared_bytes`].
//! * Necessary work for each pair, in operations of float64: D³/6 + 3/2·D² + 9·D + 30 for q, D³/2 + 7/2·D² + 15·D for
//!   the sums. On an H200 (17·10¹² a second) N = 10⁶, K = 100, D = 6 take 2.9 ms; N = 10⁵, K = 20, D = 44 take 8 ms.
use crate::simt::WARP;

/// The most features of a pair in one thread's registers, and of a sample at all.
pub const NARROW: usize = 8;
/// See [`NARROW`].
pub const MAX_FEATURES: usize = 64;
/// Threads of a block.
pub const BLOCK: u32 = 128;
/// The components that a warp of `noisy_density` takes, if a thread takes a pair.
pub const GROUP: u32 = 8;

/// A singular T of a pair: its q, and so the score of its sample.
pub const SINGULAR: f64 = f64::INFINITY;

/// Responsibilities up to this add nothing.
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
const NEGLIGIBLE: f64 = 1.0 / (1u128 << 100) as f64;

/// Returns the most features of the instance for D features.
pub const fn features(d: usize) -> usize {
    if d <= NARROW { d } else { d.next_multiple_of(16) }
}

/// Returns the number of entries of a lower triangle.
pub const fn triangle(d: usize) -> usize {
    d * (d + 1) / 2
}

/// Returns the numbers of a component's sums: n, h, and the lower triangle of E.
pub const fn sums(d: usize) -> usize {
    1 + d + triangle(d)
}

/// Numbers beside a column in a warp's stage: the pivot, its limit, and the step's share of x − μ.
const BESIDE: usize = 3;

/// Returns the numbers of a triangle that a lane holds, for eight features in each of `rows`.
const fn places(rows: usize) -> usize {
    rows * (rows + 1)
}

/// Returns the dynamic shared memory of a launch: two stages for each warp and, for `noisy_sums`, E.
pub const fn shared_bytes(d: usize, has_sums: bool) -> usize {
    let stages = 2 * (features(d) + BESIDE);
    let sums = if has_sums { places(features(d) / 8) * WARP as usize } else { 0 };
    if d <= NARROW { 0 } else { (BLOCK / WARP) as usize * (stages + sums) * size_of::<f64>() }
}

/// Samples and components; the argument of `noisy_density`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PairsArgs {
    /// Samples (D, stride).
    pub x: *const f64,
    /// Elements from one column to the next.
    pub stride: u64,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Whether the noise has D variances, not a lower triangle, row by row: 0 or 1.
    pub diagonal: u32,
    /// The noise, or null for none.
    pub noise: *const f64,
    /// Elements from one sample's noise to the next.
    pub sample_stride: u64,
    /// Elements from one number of a sample's noise to the next.
    pub entry_stride: u64,
    /// Σ: lower triangles, row by row.
    pub covariances: *const f64,
    /// Elements from one component's Σ to the next.
    pub covariance_stride: u64,
    /// log₂ π − D/2·log₂ 2π (K,).
    pub seeds: *const f64,
    /// μ (K, D).
    pub means: *const f64,
    /// q (K, `q_stride`), for `noisy_sums` the responsibilities, each times its sample's weight.
    pub q: *mut f64,
    /// Elements from one component to the next.
    pub q_stride: u64,
}

/// The argument of `noisy_sums`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SumsArgs {
    /// Samples, components and responsibilities.
    pub pairs: PairsArgs,
    /// Number of slices.
    pub slices: u32,
    /// Samples of a slice.
    pub slice: u32,
    /// Whether to add to `partials`: 0 or 1.
    pub add: u32,
    /// The [`sums`] of each component and slice, (K, sums, slices).
    pub partials: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
