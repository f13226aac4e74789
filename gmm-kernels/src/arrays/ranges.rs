//! `array_ranges_f32`, `array_ranges_f64`: the least and the greatest number of each column of an array, and its first
//! element that is not finite.
//!
//! A thread goes through rows and holds the ranges of [`COLUMNS`](super::COLUMNS) columns. The host combines the
//! results of all warps.
//!
//! * Launch: any number of blocks along x, one for each [`COLUMNS`](super::COLUMNS) columns along y; block of whole
//!   warps; no shared memory.
//! * Necessary work for each element: read it once.
use super::Array;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RangesArgs<T> {
    /// The array.
    pub array: Array<T>,
    /// The least number of each column, (warps along x, D); `T`'s greatest number where a warp has no rows.
    pub least: *mut T,
    /// The greatest number of each column, (warps along x, D); `T`'s lowest number where a warp has no rows.
    pub greatest: *mut T,
    /// i·D + j of the first element (i, j) that is not finite, (gridDim.y, warps along x); 2⁶⁴ − 1 if all are finite.
    pub not_finite: *mut u64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
