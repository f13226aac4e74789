//! `array_columns_{f32,f64}_{f32,f64}`: copies an array's samples into the columns that all other kernels read: (x −
//! shift)·scale in float64, then rounded.
//!
//! A thread takes [`COLUMNS`](super::COLUMNS) columns of a row, so that a warp writes neighbouring elements.
//!
//! * Launch: any number of blocks along x, one for each [`COLUMNS`](super::COLUMNS) columns along y; no shared memory.
//! * Necessary work for each element: read it once, write it once.
use super::Array;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ColumnsArgs<S, T> {
    /// The array.
    pub array: Array<S>,
    /// Subtracted from each column, (D,).
    pub shift: *const f64,
    /// The factor of each column after that, (D,).
    pub scale: *const f64,
    /// Receives the columns, (D, stride); zeros behind the last sample.
    pub columns: *mut T,
    /// Elements from one column to the next: at least N.
    pub stride: u64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
