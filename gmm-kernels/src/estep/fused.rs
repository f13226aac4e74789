//! `fused_raw_kKK_dDD`, `fused_diag_kKK_dDD`, `fused_full_kKK_dDD`: the fused E-step: log-likelihood and
//! sufficient statistics in one read of the data, for K up to 8 or 32 and D up to 16; no array of size N·K.
//!
//! A lane of a warp belongs to one component (`plain`: two) and keeps its sums in registers; neighbouring lanes see the
//! same samples, and a butterfly over them gives the denominator of the responsibilities. Moments are taken of the
//! whitened deviation z = A·x + b (diagonal A: z = s·x + m), which is centred on the component: nothing cancels. The
//! `plain` kernels take them of x, which is centred on the data, for less arithmetic: the host uses them for diagonal A
//! where no component is many of its own standard deviations away from there. The sums of a few hundred samples are
//! kept in float32 and then added in float64 to shared memory, warp by warp, in a fixed order.
//!
//! * Launch: one-dimensional grid, block of whole warps, shared memory [`shared_bytes`]; then
//!   [`reduce_sets`](crate::reduce::sets) over [`values`] numbers.
//! * Must do, a sample: read 4·D bytes; plain K·4·D multiply-adds, diagonal K·5·D (z, its square, and three for the
//!   moments), full K·(D² + 4·D). K = 8, D = 13, N = 10⁶ on an H200: 12.5, 15.6 and 53 µs at 33.4·10¹² a second.
use crate::data::{Columns, QUAD};
use crate::simt::WARP;

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FusedArgs {
    /// The data.
    pub columns: Columns,
    /// Weight of each sample (stride), zeros behind N; or null: every weight is one.
    pub sample_weights: *const f32,
    /// Parameters ([`numbers`]`(D, full)`, lanes): for each number of a component, its value for each lane; zeros for the
    /// lanes behind K. The numbers: A row by row (diagonal: sⱼ; full: the lower triangle), b (D), w, seed.
    pub parameters: *const f32,
    /// ([`values`], gridDim.x).
    pub partials: *mut f64,
}

/// The kernels of the family: which moments they sum up, and with which matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moments {
    /// Diagonal A; moments of x, whose origin is the centre of the data.
    Raw,
    /// Diagonal A; moments of z = A·x + b, whose origin is the component's own centre.
    Diag,
    /// A is a lower triangle; moments of z.
    Full,
}

impl Moments {
    /// Whether A is a lower triangle.
    pub const fn full(self) -> bool {
        matches!(self, Self::Full)
    }

    /// As the names of the kernels have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Diag => "diag",
            Self::Full => "full",
        }
    }
}

/// Most components that an instance takes.
pub const MAX_COMPONENTS: usize = 32;

/// The lanes that share a sample in the instance for K components: one, or in `raw` half a one, for each component.
pub const fn lanes(k: usize) -> usize {
    if k <= 8 { 8 } else { MAX_COMPONENTS }
}

/// Numbers of A: its diagonal or its lower triangle.
pub const fn matrix(d: usize, full: bool) -> usize {
    if full { d * (d + 1) / 2 } else { d }
}

/// Numbers that describe a component.
pub const fn numbers(d: usize, full: bool) -> usize {
    matrix(d, full) + d + 2
}

/// Sums of a component: Σ r, Σ r·z (D), Σ r·z·zᵀ in the shape of A.
pub const fn sums(d: usize, full: bool) -> usize {
    1 + d + matrix(d, full)
}

/// Numbers that a launch gives: `sums` for each lane, (sums, lanes), and Σᵢ (weight·)log₂ Σₖ wₖ·2^qₖ.
pub const fn values(d: usize, full: bool, lanes: usize) -> usize {
    sums(d, full) * lanes + 1
}

/// Samples of a warp's stage, one quad a lane.
pub const TILE: usize = QUAD * WARP as usize;

/// Dynamic shared memory of a launch.
pub fn shared_bytes(d: usize, full: bool, lanes: usize, block_dim: u32) -> usize {
    let warps = (block_dim / WARP) as usize;
    let parameters = if full { (numbers(d, full) * lanes).next_multiple_of(4) } else { 0 };
    warps * values(d, full, lanes).next_multiple_of(2) * size_of::<f64>()
        + (parameters + warps * 2 * d * TILE) * size_of::<f32>()
}

device_code! {
    mod kernel;
    pub use kernel::*;
}
