//! Home 1: index and shared memory through rustc's NVPTX target.
use core::arch::{asm, global_asm, nvptx::*};

global_asm!(".extern .shared .align 16 .b8 gmm_shared[];");

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
/// Address of the block's dynamic shared memory in the shared state space.
#[inline(always)]
pub(super) fn shared_base() -> u32 {
    let address: u32;
    // SAFETY: takes the address of the module's dynamic shared array.
    unsafe { asm!("mov.u32 {}, gmm_shared;", out(reg32) address, options(pure, nomem, nostack)) };
    address
}
