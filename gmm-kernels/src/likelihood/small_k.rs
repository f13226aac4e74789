//! `small_k_dDD`, `small_k_tied_dDD`, `small_k_full_dDD`, `small_k_observed_dDD`: the fast path for at most
//! [`COMPONENTS`] components and D up to [`MAX_FEATURES`].
//!
//! A thread takes a quad of samples, holds their D features in registers, and goes through the components. The mixture
//! is part of the launch's arguments, which saves an upload; each block copies it to shared memory, from where 16-byte
//! broadcasts feed the arithmetic. The next quad is copied to shared memory while the current one is computed; every
//! thread copies and reads only its own part, so that no barrier is needed.
//!
//! The likelihood is summed as Σₖ wₖ·2^qₖ without subtracting the maximum: wₖ ≤ 1 and qₖ ≤ 0 (except for the seed's
//! rounding), so nothing overflows. Samples whose sum falls below [`THRESHOLD`] are computed again with the maximum
//! subtracted, and so are the next samples of the warp, until none is far.
//!
//! The `tied` kernels first multiply each sample by the components' common triangle A. The rest is the same with t =
//! A·x + m: the scales are one.
//!
//! The `full` kernels take one component after the other, each with its own triangle: q = seed − Σᵢ tᵢ² with tᵢ = bᵢ +
//! Σⱼ aᵢⱼ·xⱼ (j ≤ i). The triangles do not fit into the arguments; each block reads them from memory once.
//!
//! The `small_k_observed_dDD` are for samples with missing values (NaN). Only a sample's observed features count, each
//! of which adds its constant c: q = seed − Σⱼ ((sⱼ·xⱼ + mⱼ)² + cⱼ), where j runs over the observed features.
//!
//! If samples have weights, each adds its weight times its log₂-likelihood.
//!
//! * Launch: any one-dimensional grid and block of whole warps; shared memory [`Kind::shared_bytes`].
//! * Necessary work for each sample: read 4·D bytes; K·(2·D + 1) fused multiply-adds, K exponentials. K = 8, D = 13, N
//!   = 10⁶ on an H200: 52 MB, 12.3 µs at the measured 4.24 TB/s; arithmetic 6.6 µs, `tied` 9.3 µs (D·(D + 1) / 2
//!   multiply-adds more), `full` 25 µs (K·(D·(D + 1) / 2 + D + 1)), with missing values 9.9 µs.
use crate::data::{Columns, QUAD};
use crate::reduce::{FINISH_SHARED_BYTES, Output};

/// Components of a launch.
pub const COMPONENTS: usize = 8;
/// Largest D of an instance.
pub const MAX_FEATURES: usize = 16;
/// The least likelihood, 2^-60, that is computed without subtracting the maximum: the product of two is still a normal
/// number, and components that underflowed (below 2^-126) are negligible beside it.
pub const THRESHOLD: f32 = 8.673_617e-19;
/// log₂ of [`THRESHOLD`].
pub const LOG2_THRESHOLD: f32 = -60.0;
/// Quads of a thread in shared memory: the current one, and the next one being copied.
pub const STAGES: usize = 2;

/// The covariances and samples that an instance is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Diagonal covariances.
    Diagonal,
    /// Diagonal covariances, and samples with missing values.
    Observed,
    /// One triangle for all components.
    Tied,
    /// A triangle for each component.
    Full,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Diagonal, Self::Observed, Self::Tied, Self::Full];

    /// Numbers of a component in the arguments: its features' ([`numbers`]; `full`: bⱼ), w, seed, padding to 16 bytes.
    pub const fn row(self, d: usize) -> usize {
        match self {
            Self::Diagonal | Self::Tied => row(d, false),
            Self::Observed => row(d, true),
            Self::Full => (d + 2).next_multiple_of(4),
        }
    }

    /// Numbers of the triangles of `k` components, each padded to whole 16-byte reads.
    pub const fn triangles(self, d: usize, k: usize) -> usize {
        match self {
            Self::Diagonal | Self::Observed => 0,
            Self::Tied => padded_triangle(d),
            Self::Full => k * padded_triangle(d),
        }
    }

    /// `k` components rounded up for the kernel: to a multiple of [`SIDE_BY_SIDE`], or not at all.
    pub const fn count(self, k: usize) -> usize {
        match self {
            Self::Full => k,
            _ => k.next_multiple_of(SIDE_BY_SIDE),
        }
    }

    /// Dynamic shared memory of a launch for `k` components.
    pub const fn shared_bytes(self, d: usize, k: usize, block_dim: u32) -> usize {
        let samples = STAGES * d * block_dim as usize * QUAD;
        FINISH_SHARED_BYTES + (COMPONENTS * self.row(d) + self.triangles(d, k) + samples) * size_of::<f32>()
    }
}

/// Numbers of a feature of a component: sⱼ, mⱼ and, with missing values, cⱼ.
pub const fn numbers(gaps: bool) -> usize {
    if gaps { 3 } else { 2 }
}

/// Numbers of a component with a diagonal covariance: its features' ([`numbers`]), w, seed, padding to 16 bytes.
pub const fn row(d: usize, gaps: bool) -> usize {
    (numbers(gaps) * d + 2).next_multiple_of(4)
}

/// Arguments of the kernel: the mixture is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SmallKArgs<const ROW: usize> {
    /// The components, [`Kind::row`] numbers each; those behind K are zeros.
    pub components: [[f32; ROW]; COMPONENTS],
    /// [`Kind::count`] of the components.
    pub k: u32,
    /// `tied`: A row by row, [`padded_triangle`]`(D)` numbers; `full`: one A per component; otherwise not read.
    pub triangles: *const f32,
    /// The data.
    pub columns: Columns,
    /// A weight for each sample of whole quads, aligned to 16 bytes; or null.
    pub sample_weights: *const f32,
    /// Receives the total.
    pub output: Output,
}

/// Numbers of a lower triangle.
pub const fn triangle(d: usize) -> usize {
    d * (d + 1) / 2
}

/// Numbers of a lower triangle with padding to whole 16-byte reads.
pub const fn padded_triangle(d: usize) -> usize {
    triangle(d).next_multiple_of(4)
}

/// Components that are computed side by side: the reads of one hide behind the arithmetic of another. K is rounded up
/// to a multiple ([`Kind::count`]); a component of weight zero adds nothing.
pub const SIDE_BY_SIDE: usize = 2;

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
