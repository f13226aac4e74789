//! The launch of the kernels that split numbers into float16 numbers.
use crate::device::kernel::Grid;

/// Threads of a block.
const BLOCK: u32 = 256;

/// Returns a grid that splits this many numbers, two at a time.
pub(super) fn split_grid(numbers: usize) -> Grid {
    Grid::new((numbers / 2).div_ceil(BLOCK as usize).min(1024) as u32, BLOCK, 0)
}
