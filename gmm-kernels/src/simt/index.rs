//! The index of a thread, and the size of its launch.

/// Functions without arguments, from those of rustc's NVPTX target and of cuda_std, and from the emulator's state.
macro_rules! indices {
    ($($(#[$doc:meta])* $name:ident: $nvptx:ident, $cuda_std:ident, $emulated:expr;)+) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            #[cfg(feature = "rust-cuda")]
            return cuda_std::thread::$cuda_std();
            // SAFETY: reads a special register.
            #[cfg(all(target_arch = "nvptx64", not(feature = "rust-cuda")))]
            return unsafe { core::arch::nvptx::$nvptx() as u32 };
            #[cfg(not(any(target_arch = "nvptx64", feature = "rust-cuda")))]
            $emulated
        }
    )+ };
}

#[cfg(not(any(target_arch = "nvptx64", feature = "rust-cuda")))]
use super::emulator::{block, here};

indices! {
    /// Index of the thread in its block.
    thread_idx: _thread_idx_x, thread_idx_x, here().thread;
    /// Index of the block along x.
    block_idx: _block_idx_x, block_idx_x, here().index.0;
    /// Index of the block along y.
    block_idx_y: _block_idx_y, block_idx_y, here().index.1;
    /// Number of threads of a block.
    block_dim: _block_dim_x, block_dim_x, block().launch.block_dim;
    /// Number of blocks along x.
    grid_dim: _grid_dim_x, grid_dim_x, block().launch.grid.0;
    /// Number of blocks along y.
    grid_dim_y: _grid_dim_y, grid_dim_y, block().launch.grid.1;
}
