//! `array_columns_f32_f32`, `array_columns_f32_f64`, `array_columns_f64_f32`,
//! `array_columns_f64_f64`: an array's samples as the columns that all other kernels read, (x −
//! shift)·scale in float64, then rounded.
//!
//! A thread takes a row and [`COLUMNS`](super::COLUMNS) of its columns, so that what a warp writes
//! lies side by side.
//!
//! * Launch: any number of blocks along x, one for each [`COLUMNS`](super::COLUMNS) columns along
//!   y; no shared memory.
//! * Necessary work for each element: read it once, write it once.
use super::Array;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ColumnsArgs<S, T> {
    /// The array.
    pub array: Array<S>,
    /// What is subtracted from each column, (D,).
    pub shift: *const f64,
    /// What each column is multiplied with then, (D,).
    pub scale: *const f64,
    /// Where the columns go, (D, stride); zeros behind the last sample.
    pub columns: *mut T,
    /// Elements from one column to the next: at least N.
    pub stride: u64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
