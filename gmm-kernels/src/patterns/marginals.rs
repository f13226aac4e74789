//! `marginals_f32`, `marginals_f64`: the parameters of each pattern of missing values and component, from those of the
//! mixture of all features; and the numbers from which [`complete`](super::complete) derives the sums of all columns
//! from those of the observed ones.
//!
//! With the observed columns o and the missing ones m, Cholesky elimination of all rows with only the pivots o leaves L
//! with Σ_oo = L·Lᵀ, W = Σ_mo·L⁻ᵀ in the rows m, and the covariance C = Σ_mm − W·Wᵀ of the missing columns given the
//! observed ones. Then A = √(log₂e / 2)·L⁻¹, and B = W·L⁻¹ is the regression of the missing columns on the observed
//! ones. A is rounded to the element type, and the rest is computed in float64 from the rounded numbers: b = −A·μ_o,
//! the weights wₖ and seeds, and the map of the sums' vectors v to deviations from μ,
//!
//! * if the sums are of v = A·x + b (`fused_patterns`): x_o − μ_o = A⁻¹·v + e_o with e_o = −A⁻¹·b − μ_o;
//! * if they are of v = x_o − c with the rounded means c (`general`): x_o − μ_o = v + e_o with e_o = c − μ_o;
//!
//! and x̂_m − μ_m = B·(x_o − μ_o) in both. Without any pivot (a row without any value) all this holds with empty
//! matrices.
//!
//! A warp takes a component, and a block a pattern. The work matrices are in global memory, which for a thousand
//! patterns means the second-level cache.
//!
//! * Launch: a block of [`BLOCK`](super::BLOCK) threads for each pattern; no shared memory.
//! * Necessary work for each pattern and component: about D³ multiply-adds in float64 (D³/3 each for L, L⁻¹ and A⁻¹),
//!   and write 8·D² bytes; 1,000 patterns of 8 components of 13 features: 18·10⁶ multiply-adds and 11 MB, 3 µs on an
//!   H200. The chain of D pivots, each some hundreds of cycles, takes longer than either.
use super::{Layout, Masks};

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MarginalsArgs<T> {
    /// Shape, and the layout of the parameters.
    pub layout: Layout,
    /// The patterns.
    pub masks: Masks,
    /// The weight of all rows of each pattern (patterns,).
    pub weights: *const f64,
    /// log₂ of the components' weights (K,); −∞ for zero.
    pub log2_weights: *const f64,
    /// μ in the frame (K, D).
    pub means: *const f64,
    /// Σ in the frame (K, D, D), symmetric.
    pub covariances: *const f64,
    /// The largest deviation of the element type whose square, summed over the features, is finite.
    pub max_deviation: f64,
    /// The smallest positive normal number of the element type.
    pub min_positive: f64,
    /// Receives the parameters, (patterns, `stride`).
    pub parameters: *mut T,
    /// Numbers from one pattern's parameters to the next.
    pub stride: u64,
    /// The places of b, the seeds, the weights and the centres in the layout of `general`; the triangles are first.
    pub places: [u32; 4],
    /// Work, (patterns, K, [`MATRICES`](super::MATRICES), D, D): first the map of v in the columns o, and C elsewhere.
    pub matrices: *mut f64,
    /// Vectors (patterns, K, [`VECTORS`](super::VECTORS), D): the first is e.
    pub vectors: *mut f64,
    /// log₂ of wₖ and of A's determinant (patterns, K).
    pub constants: *mut f64,
    /// (patterns, K): 0; or j + 1 for a matrix that is not positive definite at column j, or −(j + 1) if the parameters
    /// of row j are outside the range of the element type.
    pub problems: *mut i32,
    /// log₂ of the constant of all samples of a pattern (patterns,).
    pub offsets: *mut f64,
    /// ([`values`](super::values), patterns), of which the kernel writes two rows.
    pub values: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
