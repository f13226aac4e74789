//! `complete_patterns`: the sums of all columns around the means, from the sums of the observed columns of each
//! pattern.
//!
//! With a component's Σ r, s = Σ r·v and S = Σ r·v·vᵀ over the rows of a pattern, and M, e and C from
//! [`marginals`](super::marginals) (M has the observed columns; C is zero except in missing rows and columns), the sums
//! of the deviations δ = M·v + e from the mean, the missing columns given the observed ones, are
//!
//! * Σ r·δ = f + Σr·e with f = M·s,
//! * Σ r·δ·δᵀ = M·S·Mᵀ + f·eᵀ + e·fᵀ + Σr·(e·eᵀ + C)
//!
//! (Little and Rubin, Statistical Analysis with Missing Data, chapter 11; Ghahramani and Jordan 1994 for mixtures). A
//! pattern without any value has Σ r·δ·δᵀ = Σr·Σ. All of it is float64; the sums of a pattern's slices are added in
//! order, and each number has one place, so that the results have the same bits every time.
//!
//! * Launch: a block of [`BLOCK`](super::BLOCK) threads for each pattern; no shared memory. Then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`](super::values) sets.
//! * Necessary work for each pattern and component: 3/2·D³ multiply-adds in float64, read 8·(D + 1)·(D + 2)/2 bytes for
//!   each slice, and write as many; 1,000 patterns in 2,000 slices, 8 components of 13 features: 26·10⁶ multiply-adds
//!   and 20 MB, 5 µs on an H200.
use super::{Layout, Masks};

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CompleteArgs {
    /// Shape, and the layout of the sums.
    pub layout: Layout,
    /// The patterns.
    pub masks: Masks,
    /// Each pattern's first slice, then the number of slices (patterns + 1,), counted from `first_slice` on.
    pub slices: *const u32,
    /// The number of the first slice.
    pub first_slice: u32,
    /// Whether there are sums to complete: 0 or 1. If 0, only the samples' log-likelihoods are added up.
    pub statistics: u32,
    /// The sums of each slice: number v of slice s at `v · value_stride + s · slice_stride`.
    pub sums: *const f64,
    /// Elements from one number of a slice to the next.
    pub value_stride: u64,
    /// Elements from one slice to the next.
    pub slice_stride: u64,
    /// Σ weight·log₂ of the samples of each slice, or null.
    pub totals: *const f64,
    /// The output of `marginals`; the second and the third matrix, and the second and the third vector, are scratch.
    pub matrices: *mut f64,
    /// As `matrices`.
    pub vectors: *mut f64,
    /// The sums of all columns, ([`values`](super::values), patterns).
    pub values: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
