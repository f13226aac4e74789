//! `array_rows_f32`, `array_rows_f64`: copies chosen rows of an array, one behind the other.
//!
//! * Launch: any one-dimensional grid; no shared memory.
//! * Necessary work for each element of the rows: read it once, write it once.
use super::Array;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RowsArgs<T> {
    /// The array.
    pub array: Array<T>,
    /// The rows, each below N, (R,).
    pub rows: *const u64,
    /// R.
    pub count: u64,
    /// Receives the rows, (R, D).
    pub out: *mut T,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
