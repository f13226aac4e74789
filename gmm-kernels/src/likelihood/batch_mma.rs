//! `batch_mma_s1`, …, `batch_mma_s4`: many similar parameter sets over one read
//! of the data, on the tensor cores, for any K and D up to [`MAX_FEATURES`].
//!
//! One of the sets is the *reference*. Its exponents are computed as everywhere, in float32. An
//! exponent of another set differs from that of the reference's same component by the sum over the
//! features x of a·x² + b·x, and a constant. These *differences* are what the tensor cores compute:
//! the samples are multiplied by the coefficients a and b of all sets at once. A step of the tensor cores
//! takes [`FEATURES`] features, each with its square, and as the eighth the number one, for the
//! constant: its two coefficients are the constant's first and last digits. Samples and
//! coefficients are split into two float16 numbers each (`simt::split_halves`); of the four partial
//! products the smallest is left out. What that costs, and what the tensor cores truncate of their sums,
//! is a share of the differences: this kernel serves sets only that are so near to the reference
//! that it does not show. [`batch_parameters`](super::batch_parameters) makes its parameters, and
//! finds which sets are near.
//!
//! A warp takes 32 samples. It holds them in registers, as tiles of 16 for the tensor cores, and goes
//! through the sets four at a time, eight components of each at a time: the tensor cores' column for each
//! component is chosen so that a thread gets all eight differences of four samples and one set. The
//! likelihoods are summed and multiplied as in [`small_k`](crate::likelihood::small_k).
//! Coefficients lie in shared memory, and so do the reference's exponents of the warp's samples,
//! and each thread's product of likelihoods for each four sets.
//!
//! * Launch: grid (blocks, groups of sets); block of whole warps; shared memory
//!   [`shared_bytes`]. [`reduce_sets`](crate::reduce::sets) then adds the blocks' sums:
//!   grid = number of sets, one warp.
//! * Necessary work for each sample and set, K in octets and S steps: 48·S·K multiply-adds in
//!   float16, K exponentials; for each sample and group of sets, a read and K·2·D float32
//!   multiply-adds. K = 8, D = 13, N = 10⁶ on an H200: exponentials 2.2 µs a set (16 a
//!   multiprocessor and clock), multiply-adds 2.5 µs (at 3.1·10¹⁴ a second by `mma.sync`).
use crate::data::Columns;

/// Features of a step.
pub const FEATURES: usize = 7;
/// Most steps that have an instance.
pub const MAX_STEPS: usize = 4;
/// Largest D.
pub const MAX_FEATURES: usize = MAX_STEPS * FEATURES;
/// Sets that a warp evaluates side by side.
pub const SETS: usize = 4;
/// Components of a set that a warp evaluates side by side.
pub const COMPONENTS: usize = 8;
/// Samples of a warp.
pub const SAMPLES: usize = 32;
/// Features are at most 8 in the frame. What they are multiplied by; 8 stands for the number one.
pub const FEATURE_SCALE: f32 = 2048.0;
/// What squares of features are multiplied by. Both come to at most 2^14.
pub const SQUARE_SCALE: f32 = 256.0;
/// The feature that stands for the number one. It and its square come to 2^14.
pub const ONE: f32 = 8.0;
/// Elements of the coefficients of four sets, eight components and a step: two tiles' columns, four
/// numbers for each lane.
pub const STEP_SIZE: usize = 4 * 32 * 4;

/// Steps for D features.
pub const fn steps(d: usize) -> usize {
    d.div_ceil(FEATURES)
}

/// Numbers of a component of the reference for D features: (s, m) of each place of each step, zeros
/// where no feature is; its seed, and padding to whole 16-byte reads.
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
    /// Sets, in bundles of [`SETS`]; what is missing in the last bundle must be there, and is
    /// evaluated.
    pub bundles: u32,
    /// Bundles of sets of a block (gridDim.y groups).
    pub group: u32,
    /// ⌈K / 8⌉.
    pub octets: u32,
    /// Coefficients (bundles, octets, steps, 4, 32, 4), times a power of two of each set, as two
    /// float16 numbers hold them: of a lane of tile i those of component 2i + lane / 4 % 2 of set
    /// lane / 8, of feature lane % 4 of the step and its square, and of feature 4 + lane % 4 and
    /// its square. For the square over [`SQUARE_SCALE`], else over [`FEATURE_SCALE`]; of the number
    /// one over 2^14.
    pub coefficients: *const f32,
    /// ([`weights_size`]) of each bundle: wₖ, and the number by which sums are multiplied.
    pub weights: *const f32,
    /// The components of the reference, (8·octets, [`reference_row`]`(D)`), zeros behind K.
    pub reference: *const f32,
    /// A number for each set and block, (4·bundles, gridDim.x).
    pub partials: *mut f64,
}

/// Dynamic shared memory of a launch: the reference, and its exponents of each warp's samples;
/// coefficients and weights of a group, and a product for each four sets and thread.
pub fn shared_bytes(d: usize, octets: usize, group: usize, block_dim: u32) -> usize {
    let of_reference = octets * COMPONENTS * (reference_row(d) + block_dim as usize);
    let numbers = octets * steps(d) * STEP_SIZE + weights_size(octets);
    let products = block_dim as usize * (size_of::<f64>() + size_of::<f32>());
    of_reference * size_of::<f32>() + group * (numbers * size_of::<f32>() + products)
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod kernel;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub use kernel::*;
