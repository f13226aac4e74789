//! Home 2: index and shared memory through rust-cuda's `cuda_std`.
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
/// Address of the block's dynamic shared memory in the shared state space.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(super) fn shared_base() -> u32 {
    // 16-byte elements give the array the alignment that wide accesses need.
    let generic = cuda_std::shared::dynamic_shared_mem::<u128>();
    let address: u64;
    // SAFETY: converts an address between state spaces.
    unsafe {
        core::arch::asm!("cvta.to.shared.u64 {}, {};", out(reg64) address, in(reg64) generic, options(pure, nomem, nostack))
    };
    address as u32
}
