//! `posterior_f32`, `posterior_f64`: each sample's log₂ Σₖ wₖ·2^qₖ from the qₖ of [`density`](crate::general::density),
//! their sum over the samples, the most probable component, and the responsibilities.
//!
//! A lane takes a sample and goes through components, first for the largest qₖ, then for the sum with the largest
//! subtracted. With many components, [`parts`] warps share 32 samples: each goes through a part of the components, of
//! which the first stay in registers, and they exchange results through shared memory. The logarithm is computed in float64: the error of a float32 logarithm
//! is about the same for each sample, and adds up.
//!
//! * Launch: any one-dimensional grid; block of a power of two of warps, [`MOST_PARTS`] or more; shared memory
//!   [`shared_bytes`]. Then [`reduce_sets`](crate::reduce::sets) over one set.
//! * Necessary work for each sample and component: an exponential; read q, and write it for responsibilities. From the
//!   65th component on q is read twice, and written and read once more.
use crate::patterns::ParametersOfQuads;
use crate::reduce::FINISH_SHARED_BYTES;

/// Components of a warp from which another warp helps.
const FEW: usize = 8;
/// Most warps that share samples.
pub const MOST_PARTS: u32 = 8;

/// Warps that share samples of K components, a power of two.
pub const fn parts(k: usize) -> u32 {
    let parts = k.div_ceil(FEW).next_power_of_two();
    if parts < MOST_PARTS as usize { parts as u32 } else { MOST_PARTS }
}

/// Dynamic shared memory of a launch: each thread's largest q, sum, largest term, and its component.
pub const fn shared_bytes(block_dim: u32) -> usize {
    FINISH_SHARED_BYTES + block_dim as usize * (3 * size_of::<f64>() + size_of::<u32>())
}

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PosteriorArgs<T> {
    /// qₖ (K, stride).
    pub q: *mut T,
    /// Elements from one component to the next.
    pub stride: u64,
    /// N.
    pub n: u32,
    /// K.
    pub k: u32,
    /// [`parts`] of K.
    pub parts: u32,
    /// wₖ (K,); at least one is positive.
    pub weights: *const T,
    /// The place of a quad's weights wₖ, counted from the first pattern of missing values.
    pub of_quads: ParametersOfQuads,
    /// Weight of each sample (N,); null: all weights are one.
    pub sample_weights: *const T,
    /// Whether the responsibilities, each times its sample's weight, replace qₖ: 0 or 1.
    pub responsibilities: u32,
    /// Whether to add to `partials`: 0 or 1.
    pub add: u32,
    /// log₂ of each sample's likelihood (N,), or null.
    pub scores: *mut f64,
    /// The component of each sample's largest wₖ·2^qₖ (N,), the first of equals; or null.
    pub labels: *mut u32,
    /// Σ weight·log₂ of each block's samples, (gridDim.x,).
    pub partials: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
