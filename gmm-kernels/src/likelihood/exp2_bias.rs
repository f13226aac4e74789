//! `exp2_bias`: the mean relative error of the device's approximate 2^x, with which log-likelihoods are corrected.
//!
//! The error of one `exp2` depends on the fraction of its argument. Over many samples these fractions are evenly
//! distributed, so that Σ log₂ Σₖ wₖ·2^qₖ is wrong by the mean error of each sample's largest term. The kernel compares
//! with `math::float64::exp2` at xᵢ = −(1 + (i·φ mod 1)) − (i mod [`EXPONENTS`]) for i = 0, 1, 2, …: multiples of the
//! golden ratio's φ = 0.618… distribute the fractions evenly.
//!
//! * Launch: any one-dimensional grid, block of whole warps, together at most 2³² arguments; shared memory
//!   [`FINISH_SHARED_BYTES`](crate::reduce::FINISH_SHARED_BYTES). Then [`reduce_sets`](crate::reduce::sets) over one
//!   set; the mean is the sum over gridDim.x · blockDim.x · `per_thread`.
//! * Necessary work for each argument: one approximate exponential, and some thirty float64 operations.

/// The integer parts of the arguments are −1 down to −`EXPONENTS`.
pub const EXPONENTS: u32 = 20;

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exp2BiasArgs {
    /// Σ (approximate 2^x / 2^x − 1) over the arguments of each block, (gridDim.x,).
    pub partials: *mut f64,
    /// Arguments of a thread.
    pub per_thread: u32,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
