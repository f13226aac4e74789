//! Home 2: index through rust-cuda's `cuda_std`.
use cuda_std::thread;

/// Index of the thread in its block.
#[inline(always)]
pub fn thread_idx() -> u32 {
    thread::thread_idx_x()
}
/// Index of the block along x.
#[inline(always)]
pub fn block_idx() -> u32 {
    thread::block_idx_x()
}
/// Index of the block along y.
#[inline(always)]
pub fn block_idx_y() -> u32 {
    thread::block_idx_y()
}
/// Number of threads of a block.
#[inline(always)]
pub fn block_dim() -> u32 {
    thread::block_dim_x()
}
/// Number of blocks along x.
#[inline(always)]
pub fn grid_dim() -> u32 {
    thread::grid_dim_x()
}
/// Number of blocks along y.
#[inline(always)]
pub fn grid_dim_y() -> u32 {
    thread::grid_dim_y()
}
