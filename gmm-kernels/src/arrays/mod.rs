//! Arrays of any layout that another library has put into the device's memory.

/// An array (N, D) in global memory, which nobody writes during a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array<T> {
    /// Element (0, 0).
    pub x: *const T,
    /// Elements from one row to the next.
    pub row_stride: i64,
    /// Elements from one column to the next.
    pub column_stride: i64,
    /// N.
    pub n: u64,
    /// D.
    pub d: u64,
}

impl<T> Array<T> {
    /// The address of element (i, j).
    #[inline(always)]
    pub fn at(&self, i: u64, j: u64) -> *const T {
        self.x.wrapping_offset((i as i64 * self.row_stride + j as i64 * self.column_stride) as isize)
    }
}

/// Columns that a thread of `array_ranges` and `array_columns` takes: half a cache line of float32, so that the rows of
/// a warp stay in the first-level cache meanwhile.
pub const COLUMNS: usize = 16;

pub mod columns;
pub mod ranges;
pub mod rows;
