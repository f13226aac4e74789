//! Samples with missing values under covariances with matrices. Rows with the same observed columns, a pattern, are
//! complete samples of fewer columns, for which a mixture has the marginal distribution.
//!
//! [`marginals`] computes the parameters of each pattern in the layout of all D features, with zeros for missing ones,
//! so that the kernels of complete samples can evaluate it: a feature whose numbers are replaced by 0 adds nothing to
//! A·x + b. The kernels take the parameters of each quad's pattern ([`ParametersOfQuads`]) and leave sums for each
//! slice of a pattern's rows ([`SLICE`]). From these, [`complete`] computes the sums of all columns.
pub mod complete;
pub mod marginals;

use crate::simt::WARP;

/// Threads of a block of these kernels.
pub const BLOCK: u32 = 8 * WARP;

/// A slice's numbers in the table: first row, row behind the last, and pattern. A slice begins with a quad.
pub const SLICE: usize = 3;

/// The parameters of each quad of samples.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ParametersOfQuads {
    /// The pattern of each quad; null: all have one set of parameters.
    pub patterns: *const u32,
    /// The pattern with the first parameters.
    pub first: u32,
    /// Numbers from one pattern's parameters to the next.
    pub stride: u64,
}

impl ParametersOfQuads {
    /// One set of parameters for all samples.
    pub const ONE: Self = Self { patterns: core::ptr::null(), first: 0, stride: 0 };

    /// The place of a quad's parameters.
    ///
    /// # Safety
    /// The quad exists.
    #[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
    #[inline(always)]
    pub unsafe fn offset(self, quad: usize) -> usize {
        if self.patterns.is_null() {
            return 0;
        }
        (crate::simt::load_u32(self.patterns.add(quad)) - self.first) as usize * self.stride as usize
    }
}

/// The layouts of parameters and sums in the kernels that follow `marginals`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// K.
    pub k: u32,
    /// D.
    pub d: u32,
    /// Components that fit [`fused_patterns`](crate::estep::fused_patterns); 0: as in [`general`](crate::general).
    pub capacity: u32,
}

/// The patterns of a launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Masks {
    /// Bit j % 32 of word j / 32 says whether column j is observed, (patterns, words).
    pub words: *const u32,
    /// Words of a pattern.
    pub width: u32,
    /// Number of patterns.
    pub count: u32,
}

/// Numbers of a component's results: Σ r, Σ r·v (D), and the lower triangle of Σ r·v·vᵀ row by row.
pub const fn sums(d: usize) -> usize {
    1 + d + d * (d + 1) / 2
}

/// Numbers that a batch of patterns computes: the sums of all components; log₂ of the constant of the samples'
/// likelihoods times their weight; the components without valid parameters; Σ weight·log₂ if [`complete`] gets it.
pub const fn values(k: usize, d: usize) -> usize {
    k * sums(d) + 3
}

/// D×D work matrices for each pattern and component.
pub const MATRICES: usize = 3;
/// Work vectors of D numbers for each pattern and component.
pub const VECTORS: usize = 3;

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
mod cells;
#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) use cells::*;
