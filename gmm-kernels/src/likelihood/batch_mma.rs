//! `batch_mma_s1`, …, `batch_mma_s4`: many similar parameter sets over one read of the data, on the tensor cores, for
//! any K and D up to [`MAX_FEATURES`].
//!
//! One of the sets is the *reference*. Its exponents are computed in float32, as in other kernels. An exponent of
//! another set differs from that of the reference's same component by the sum over the features x of a·x² + b·x, and a
//! constant. The tensor cores compute these *differences*: samples times the coefficients a and b of all sets. A step
//! of the tensor cores takes [`FEATURES`] features, each with its square, and as the eighth the number one for the
//! constant, whose first and last digits are two coefficients. Samples and coefficients are split into two float16
//! numbers each (`simt::split_halves`); the smallest of the four partial products is left out. This loss, and the
//! truncation of the tensor cores' sums, is a fraction of the differences: the kernel is only for sets so near to the
//! reference that it does not matter. [`batch_parameters`](super::batch_parameters) computes its parameters, and finds
//! out which sets are near.
//!
//! A warp takes 32 samples. It holds them in registers, as tiles of 16 for the tensor cores, and goes through the sets
//! four at a time, eight components of each at a time. The order of the tensor cores' columns gives a thread all eight
//! differences of four samples and one set. The likelihoods are summed and multiplied as in
//! [`small_k`](crate::likelihood::small_k). Shared memory holds the coefficients, the reference's exponents of the
//! warp's samples, and each thread's product of likelihoods for each four sets.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warps; shared memory [`shared_bytes`].
//!   [`reduce_sets`](crate::reduce::sets) then adds the blocks' sums: grid = number of sets, one warp.
//! * Necessary work for each sample and set, K in octets and S steps: 48·S·K multiply-adds in float16, K exponentials;
//!   for each sample and group of sets, a read and K·2·D float32 multiply-adds. K = 8, D = 13, N = 10⁶ on an H200:
//!   exponentials 2.2 µs per set (16 per multiprocessor and clock), multiply-adds 2.5 µs (at 3.1·10¹⁴ a second by
//!   `mma.sync`).
use crate::data::Columns;

/// Features of a step.
pub const FEATURES: usize = 7;
/// Most steps of an instance.
pub const MAX_STEPS: usize = 4;
/// Largest D.
pub const MAX_FEATURES: usize = MAX_STEPS * FEATURES;
/// Sets that a warp evaluates side by side.
pub const SETS: usize = 4;
/// Components of a set that a warp evaluates side by side.
pub const COMPONENTS: usize = 8;
/// Samples of a warp.
pub const SAMPLES: usize = 32;
/// The factor of features, which are at most 8 in the frame.
pub const FEATURE_SCALE: f32 = 2048.0;
/// The factor of squares of features. Both products are at most 2^14.
pub const SQUARE_SCALE: f32 = 256.0;
/// The feature that represents the number one. It and its square, scaled, are 2^14.
pub const ONE: f32 = 8.0;
/// Elements of the coefficients of four sets, eight components and a step: two tiles, four numbers for each lane.
pub const STEP_SIZE: usize = 4 * 32 * 4;

/// Steps for D features.
pub const fn steps(d: usize) -> usize {
    d.div_ceil(FEATURES)
}

/// Numbers of a component of the reference for D features: (s, m) for each place of each step, zeros in places without
/// a feature; its seed, and padding to whole 16-byte reads.
pub const fn reference_row(d: usize) -> usize {
    steps(d) * 16 + 4
}

/// Numbers of four sets' weights, (`octets`, [`SETS`], [`COMPONENTS`]), and scales, ([`SETS`]).
pub const fn weights_size(octets: usize) -> usize {
    octets * SETS * COMPONENTS + SETS
}

/// Arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BatchMmaArgs {
    /// The data.
    pub columns: Columns,
    /// D.
    pub d: u32,
    /// Sets, in bundles of [`SETS`]. Padding of the last bundle must exist, and is evaluated.
    pub bundles: u32,
    /// Bundles of sets of a block (gridDim.y groups).
    pub group: u32,
    /// ⌈K / 8⌉.
    pub octets: u32,
    /// Coefficients (bundles, octets, steps, 4, 32, 4), times a power of two for each set, rounded to two float16
    /// numbers. Lane l of tile i has component 2i + l / 4 % 2 of set l / 8: the coefficients of the step's feature l %
    /// 4 and its square, then of feature 4 + l % 4 and its square. They are divided by [`SQUARE_SCALE`] for squares,
    /// [`FEATURE_SCALE`] for features, and 2^14 for the number one.
    pub coefficients: *const f32,
    /// [`weights_size`] of each bundle: wₖ, and the factor of the sums.
    pub weights: *const f32,
    /// The components of the reference, (8·octets, [`reference_row`]`(D)`), zeros behind K.
    pub reference: *const f32,
    /// A sum for each set and block, (4·bundles, gridDim.x).
    pub partials: *mut f64,
}

/// Dynamic shared memory of a launch: the reference, and its exponents for each warp's samples; coefficients and
/// weights of a group, and a product for each four sets and thread.
pub fn shared_bytes(d: usize, octets: usize, group: usize, block_dim: u32) -> usize {
    let of_reference = octets * COMPONENTS * (reference_row(d) + block_dim as usize);
    let numbers = octets * steps(d) * STEP_SIZE + weights_size(octets);
    let products = block_dim as usize * (size_of::<f64>() + size_of::<f32>());
    of_reference * size_of::<f32>() + group * (numbers * size_of::<f32>() + products)
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
