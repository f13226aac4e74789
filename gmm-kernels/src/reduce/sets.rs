//! `reduce_sets`: sums several numbers over the blocks that left parts of them.
//!
//! * Launch: a block of one warp for each number; no shared memory.
//! * Necessary work: read `count` float64 numbers for each.

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReduceSetsArgs {
    /// A part for each set and block, (gridDim.x, count).
    pub partials: *const f64,
    /// Blocks that left a part.
    pub count: u32,
    /// The sums, (gridDim.x,); may be mapped host memory.
    pub totals: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
