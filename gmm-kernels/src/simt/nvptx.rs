//! Home 1: index through rustc's NVPTX target.
use core::arch::nvptx::*;

/// Index of the thread in its block.
#[inline(always)]
pub fn thread_idx() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _thread_idx_x() as u32 }
}
/// Index of the block along x.
#[inline(always)]
pub fn block_idx() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _block_idx_x() as u32 }
}
/// Index of the block along y.
#[inline(always)]
pub fn block_idx_y() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _block_idx_y() as u32 }
}
/// Number of threads of a block.
#[inline(always)]
pub fn block_dim() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _block_dim_x() as u32 }
}
/// Number of blocks along x.
#[inline(always)]
pub fn grid_dim() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _grid_dim_x() as u32 }
}
/// Number of blocks along y.
#[inline(always)]
pub fn grid_dim_y() -> u32 {
    // SAFETY: reads a special register.
    unsafe { _grid_dim_y() as u32 }
}
