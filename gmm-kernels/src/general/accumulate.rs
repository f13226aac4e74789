//! `accumulate_diag_f32`, `accumulate_full_f32`, `accumulate_diag_f64`, `accumulate_full_f64`: the sufficient
//! statistics from the responsibilities of [`posterior`](crate::general::posterior): Σ r, Σ r·(x − c), and Σ r·(x − c)²
//! or Σ r·(x − c)(x − c)ᵀ with the component's centre c, for any K and D.
//!
//! `accumulate_observed_f32`, `accumulate_observed_f64`: the diagonal sums of samples with missing values (NaN): Σ r,
//! and for each feature Σ r, Σ r·(x − c) and Σ r·(x − c)² over the samples that have it.
//!
//! With u = (x − c, 1), the sums of a component with a full matrix are the lower triangle of Σ r·u·uᵀ. A warp takes a
//! tile of [`FEATURES`]² sums (diagonal: the sums of [`SIDE`] features of [`SIDE`] components) and a slice of the
//! samples; a lane takes every 32nd sample. After [`FLUSH`] samples per lane, the lanes' sums are added up and continue
//! in float64. Neighbouring warps share samples, so that these come from the first-level cache.
//!
//! `accumulate_wide_f64`, `accumulate_tall_f64`, `accumulate_tall_d16_f64`: the same for triangles by products of the
//! tensor cores, as in [`density`](crate::general::density). A warp takes [`BLOCK`]² tiles, or those of [`NEIGHBOURS`]
//! components, and all of a slice's samples. The sums with the number one are made on the float64 units.
//!
//! * Launch: any one-dimensional grid, block of whole warps; no shared memory. Then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`] sets.
//! * Necessary work for each sample and component: (D + 1)·(D + 2)/2 multiply-adds (rounded up to tiles; an H100 does
//!   33·10¹² a second in float32 and, by the tensor cores, in float64), or 2·D of them and as many other operations.

/// Features of a tile's side.
pub const FEATURES: usize = 8;
/// Components, and features of each, of a tile of diagonal sums.
pub const SIDE: usize = 4;
/// Samples of a lane between additions of the sums in float64.
pub const FLUSH: u32 = 64;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AccumulateArgs<T> {
    /// Samples (D, stride); all elements are finite, except NaN in `observed`.
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
    /// The slices of patterns ([`SLICE`](crate::patterns::SLICE)), with rows counted from `first`; null: equal slices.
    pub table: *const u32,
    /// Rows before these samples.
    pub first: u32,
    /// Whether to add to `partials`: 0 or 1.
    pub add: u32,
    /// Responsibilities (K, r_stride).
    pub r: *const T,
    /// Elements from one component to the next.
    pub r_stride: u64,
    /// Centres (K, D).
    pub centres: *const T,
    /// The sums of each slice, ([`values`], `partials_stride`).
    pub partials: *mut f64,
    /// Elements from one value to the next: at least the number of slices.
    pub partials_stride: u64,
}

/// Tiles of the lower triangle for D features and the number one; or groups of features.
pub const fn tiles(d: usize, full: bool) -> usize {
    if full {
        let side = (d + 1).div_ceil(FEATURES);
        side * (side + 1) / 2
    } else {
        d.div_ceil(SIDE)
    }
}

/// Tiles along a side of the square that a warp of `accumulate_wide_f64` and `accumulate_tall_f64` takes.
pub const BLOCK: usize = 4;

/// Most features of `accumulate_tall_d16_f64`.
pub const NARROW: usize = 16;

/// Components of a warp of `accumulate_tall_d16_f64`.
pub const NEIGHBOURS: usize = 4;

/// From this number of features on, `accumulate_wide_f64` is faster than `accumulate_full_f64`.
pub const WIDE: usize = 24;

/// As [`WIDE`], of `accumulate_tall_f64`.
pub const TALL: usize = 5;

/// Squares of `side`² tiles that hold a triangle of D features.
pub const fn squares(d: usize, side: usize) -> usize {
    let squares = d.div_ceil(FEATURES).div_ceil(side);
    squares * (squares + 1) / 2
}

/// Tiles of all components: (K, [`tiles`]), or (groups of [`SIDE`] components, [`tiles`]).
pub const fn units(k: usize, d: usize, full: bool) -> usize {
    tiles(d, full) * if full { k } else { k.div_ceil(SIDE) }
}

/// Numbers of a tile: its entries row by row; or [`COMPONENT`] of each component.
pub const NUMBERS: usize = FEATURES * FEATURES;

/// Numbers of a component in a tile of diagonal sums: Σ r·(x − c) of the features, then their Σ r·(x − c)², from
/// [`OBSERVED`] on Σ r over the samples that have the feature, and at [`COUNT`] Σ r.
pub const COMPONENT: usize = NUMBERS / SIDE;

/// The place of `observed`'s numbers in a component's.
pub const OBSERVED: usize = 2 * SIDE;

/// The place of Σ r.
pub const COUNT: usize = 3 * SIDE;

/// Numbers that a launch computes, ([`units`], [`NUMBERS`]).
pub const fn values(k: usize, d: usize, full: bool) -> usize {
    units(k, d, full) * NUMBERS
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
