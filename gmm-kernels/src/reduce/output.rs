//! Adds up the sums of warps and blocks to the one number that leaves the GPU.

/// The places of a launch's total.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Output {
    /// A number per block, [`UNWRITTEN`] before and after each launch.
    pub partials: *mut f64,
    /// The total in log₂ units; may be mapped host memory that the host polls.
    pub total: *mut f64,
}

/// The bits of a number that has not been written: a signalling NaN, which arithmetic never produces.
pub const UNWRITTEN: u64 = 0x7ff4_dead_beef_0001;

/// Bytes that `Output::finish` uses at the start of the dynamic shared memory.
pub const FINISH_SHARED_BYTES: usize = 32 * size_of::<f64>();

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
