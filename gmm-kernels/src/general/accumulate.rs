//! `accumulate_diag_f32`, `accumulate_full_f32`, `accumulate_diag_f64`, `accumulate_full_f64`: the
//! sufficient statistics from the responsibilities of [`posterior`](crate::general::posterior): Σ
//! r, Σ r·(x − c), and Σ r·(x − c)² or Σ r·(x − c)(x − c)ᵀ with the component's centre c, for any K
//! and D.
//!
//! `accumulate_observed_f32`, `accumulate_observed_f64`: the diagonal sums of samples with missing
//! values, which are NaN: Σ r, and for each feature Σ r, Σ r·(x − c) and Σ r·(x − c)² over the
//! samples that have it.
//!
//! With u = (x − c, 1), the sums of a component with a full matrix are the entries of the lower
//! triangle of Σ r·u·uᵀ. A warp takes a tile of [`FEATURES`]² of them (diagonal: the sums of
//! [`FEATURES`] features) and a slice of the samples; a lane takes every 32nd sample. After
//! [`FLUSH`] samples a lane, the lanes' sums are added up and go on in float64. Neighbouring warps
//! share samples, so that these come from the first-level cache.
//!
//! * Launch: any one-dimensional grid, block of whole warps; no shared memory. Then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`] sets.
//! * Necessary work for each sample and component: (D + 1)·(D + 2)/2 multiply-adds (rounded up to
//!   tiles), or 2·D and as many additions.
use crate::simt::WARP;

/// Features of a tile's side.
pub const FEATURES: usize = 8;
/// Samples of a lane after which the sums go on in float64.
pub const FLUSH: u32 = 64;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccumulateArgs<T> {
    /// Samples (D, stride); all elements are finite, but for NaN in `observed`.
    pub x: *const T,
    /// Elements from one column to the next: at least N rounded up to a multiple of 32.
    pub stride: u64,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Number of slices of the samples.
    pub slices: u32,
    /// Samples of a slice, a multiple of 32; slices times this is at least N.
    pub slice: u32,
    /// The slices of patterns of missing values (slices, [`SLICE`](crate::patterns::SLICE)), whose
    /// rows count from `first` on; or null: slices of equal length.
    pub table: *const u32,
    /// Rows before these.
    pub first: u32,
    /// Whether `partials` are added to: 0 or 1.
    pub add: u32,
    /// Responsibilities (K, r_stride).
    pub r: *const T,
    /// Elements from one component to the next.
    pub r_stride: u64,
    /// Centres (K, D).
    pub centres: *const T,
    /// ([`values`], `partials_stride`), of which so many slices are written.
    pub partials: *mut f64,
    /// Elements from one value to the next: at least the number of slices.
    pub partials_stride: u64,
}

/// Tiles of the lower triangle for D features and the one; or groups of features.
pub const fn tiles(d: usize, full: bool) -> usize {
    if full {
        let side = (d + 1).div_ceil(FEATURES);
        side * (side + 1) / 2
    } else {
        d.div_ceil(FEATURES)
    }
}

/// Numbers of a tile: its entries row by row; or Σ r·(x − c) and Σ r·(x − c)² of the features, Σ r,
/// and zeros.
pub const fn numbers(full: bool) -> usize {
    if full { FEATURES * FEATURES } else { WARP as usize }
}

/// Where Σ r is in the numbers of a group of features.
pub const COUNT: usize = 2 * FEATURES;

/// Where Σ r over the samples that have a feature begins, in the numbers of a group of features of
/// `observed`.
pub const OBSERVED: usize = 3 * FEATURES;

/// Numbers that a launch gives, (K, [`tiles`], [`numbers`]).
pub const fn values(k: usize, d: usize, full: bool) -> usize {
    k * tiles(d, full) * numbers(full)
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
