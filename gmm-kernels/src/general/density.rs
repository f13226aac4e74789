//! `density_diag_f32`, `density_full_f32`, `density_diag_f64`, `density_full_f64`: qₖ = seedₖ − |Aₖ·x + bₖ|² of every
//! sample and component, for any K and D; A is a diagonal or a lower triangle.
//!
//! A lane takes four samples. A warp takes 128 samples and either one component with a triangle, [`ROWS`]
//! rows of A at a time, or [`GROUPS`] groups of [`COMPONENTS`] with diagonals. A block goes through neighbouring tasks, which
//! share samples, so that these come from the first-level cache.
//!
//! `density_observed_f32`, `density_observed_f64`: the same with diagonals for samples with missing values (NaN). Only
//! the observed features of a sample count: qₖ = seedₖ − Σⱼ ((aₖⱼ·xⱼ + bₖⱼ)² + cₖⱼ), where j runs over the observed
//! features, and c is a feature's constant.
//!
//! `density_diag_around_means_f64`, `density_full_around_means_f64`, `density_observed_around_means_f64`: the same with
//! Aₖ·(x − bₖ) instead of Aₖ·x + bₖ, where b are the components' means, so that no digit is lost however far from the
//! samples' zero a component is. An exponent may be −∞.
//!
//! `density_wide_f64`: as `density_full_f64`, by products of the tensor cores, for samples that all have the same
//! parameters. `density_tall_f64` and, for up to 16 features, `density_tall_d16_f64`: the same by larger products, which
//! compute capability 9.0 has, where they are faster (33·10¹² multiply-adds a second; the float64 units make 15·10¹²).
//!
//! * Launch: any one-dimensional grid, block of whole warps; no shared memory.
//! * Necessary work for each sample and component: D·(D + 3)/2 multiply-adds (a triangle, rounded up to whole panels of
//!   rows), or 2·D, 3·D with missing values.
use crate::patterns::ParametersOfQuads;
use crate::simt::WARP;

/// Samples of a lane.
pub const QUAD: usize = 4;
/// Samples of a warp.
pub const TILE: usize = QUAD * WARP as usize;
/// Rows of a panel of A.
pub const ROWS: usize = 8;
/// Diagonals of a group.
pub const COMPONENTS: usize = 4;
/// Groups that a warp takes side by side.
pub const GROUPS: usize = 2;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DensityArgs<T> {
    /// Samples (D, stride), both aligned to 16 bytes; all elements are finite, except NaN in `observed`.
    pub x: *const T,
    /// Elements from one column to the next: at least N rounded up to a multiple of [`TILE`].
    pub stride: u64,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Triangles: panels of [`ROWS`] rows, each with the columns up to its last row, [`ROWS`] numbers per column
    /// ([`triangle`]). Diagonals: (groups, D, [`numbers`], [`COMPONENTS`]): a, b and, in `observed`, c in turn.
    pub matrices: *const T,
    /// Elements from one component's triangle to the next; 0: all share one. Diagonals: from one group to the next.
    pub matrix_stride: u64,
    /// b (K, D rounded up to a multiple of [`ROWS`]), in `around_means` the means; not read for diagonals.
    pub shifts: *const T,
    /// Seeds (K, rounded up to a multiple of [`COMPONENTS`]).
    pub seeds: *const T,
    /// The place of a quad's parameters, counted from the first pattern of missing values.
    pub of_quads: ParametersOfQuads,
    /// Receives the exponents, (K, `q_stride`), aligned like the samples.
    pub q: *mut T,
    /// Elements from one component to the next: as for `stride`.
    pub q_stride: u64,
}

/// Numbers of a feature of a component with a diagonal: a, b and, with missing values, c.
pub const fn numbers(gaps: bool) -> usize {
    if gaps { 3 } else { 2 }
}

/// Numbers of a triangle of D rows in panels, the last of which is padded to a multiple of [`ROWS`] columns.
pub const fn triangle(d: usize) -> usize {
    let panels = d.div_ceil(ROWS);
    ROWS * ROWS * (panels * (panels + 1) / 2)
}

/// Columns of the panel that begins at `row`.
pub const fn columns(row: usize, d: usize) -> usize {
    if row + ROWS < d { row + ROWS } else { d }
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
