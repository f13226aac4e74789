//! `batch_parameters`: the parameters of [`batch_mma`](super::batch_mma) and [`batch_wgmma`](super::batch_wgmma), from
//! the mixtures; and the sets that are near enough to the reference for these kernels to keep the digits of their
//! totals. On the host, 64 sets would take as long as the kernels take for 10⁶ samples.
//!
//! A block takes a set, a warp a component, and a lane a feature in the kernels' place for it. With t = s·x + m in the
//! data's frame (s and m rounded to float32, as for every kernel), an exponent of the set differs from the reference's
//! by Σ a·x² + b·x + c over the features: a = s₀² − s², b = 2·(s₀·m₀ − s·m), c = m₀² − m², formed as products so that
//! close parameters lose no digits.
//!
//! The loss of a set's total on the tensor cores follows from these. They truncate their sums, always to the same side,
//! by a fraction of the largest product. Besides, splitting a feature and its square into two float16 numbers costs up
//! to 2⁻²² of each product, with random signs. For the samples that a component explains, y = s·x has the mean −m and
//! the variance log₂e / 2 = u, so that the mean of y² is u + m², and that of y⁴ 3·u² + 6·u·m² + m⁴. Each component
//! counts with the samples that it explains. The kernel replaces a set that would lose too much by the reference.
//!
//! * Launch: a block of [`BLOCK`] threads for each place of each four sets; shared memory [`shared_bytes`].
//! * Necessary work: read 8·K·(1 + 2·D) bytes for each set, write its coefficients (1 kB for K = 8, D = 13); some 200
//!   float64 operations for each set, component and feature. 64 sets, K = 8, D = 13: 0.2 MB and 1.3·10⁶ operations,
//!   below 1 µs on an H200; the chain of reads, roots, logarithms, sums over lanes and two barriers takes longer. A
//!   block of two warps, which fits beside the blocks of another thread's batch, makes the chains slower.
use super::batch_mma::COMPONENTS;

/// Threads of a block: a warp for each of eight components.
pub const BLOCK: u32 = 32 * COMPONENTS as u32;
/// Numbers of the data's frame for each feature: its shift, its scale, and the scale's reciprocal.
pub const FRAME: usize = 3;

/// Numbers of a mixture: weights (K,), means and variances (K, D).
pub const fn mixture_size(k: usize, d: usize) -> usize {
    k * (1 + 2 * d)
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchParametersArgs {
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// The number of sets. Places behind the last, in its bundle, get the reference.
    pub sets: u32,
    /// The frame ([`FRAME`], D), the reference and the sets (1 + sets, [`mixture_size`]`(K, D)`).
    pub mixtures: *const f64,
    /// The largest float32 deviation whose square, summed over the features, is finite.
    pub max_deviation: f64,
    /// A set's loss of its total for each component, over the root of the sum of its products' squares, in log₂ units.
    pub loss: f64,
    /// The largest loss allowed for a set's total, in units of log₂.
    pub most: f64,
    /// The kernels' coefficients, of whole bundles of sets. For these and the next two see
    /// [`BatchMmaArgs`](super::batch_mma::BatchMmaArgs).
    pub coefficients: *mut f32,
    /// The sets' weights and scales.
    pub weights: *mut f32,
    /// The reference's components.
    pub reference: *mut f32,
    /// log₂ of the constant of all components of each set (sets,), without the part that only depends on the frame and
    /// D; ∞ if the set is not near to the reference, or exceeds the range of float32. May be mapped host memory.
    pub offsets: *mut f64,
}

/// Dynamic shared memory of a launch: for each component four float64 numbers, and four float32 for it and each lane.
pub fn shared_bytes(k: usize) -> usize {
    (4 * size_of::<f64>() + 4 * size_of::<f32>() * (1 + 32)) * k.next_multiple_of(COMPONENTS)
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
