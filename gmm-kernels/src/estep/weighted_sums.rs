//! `weighted_sums_diag_raw`, `weighted_sums_full_raw`, `weighted_sums_diag_central`, `weighted_sums_full_central`: the
//! second half of the E-step for any K and D: sums weighted by the responsibilities, over samples whose exponents a
//! [`tiled`](crate::likelihood::tiled) kernel left.
//!
//! They are a matrix product over the samples: responsibilities, (K, N), by values of a sample, (N, values). The values
//! are each feature and its square (diagonal covariances), or the products of all pairs of features, including the
//! number one (matrices). A thread takes a *tile* of [`COMPONENTS`] components and a *patch* of [`VALUES`] values: 4
//! features y and their squares, or the products of 2 features with 4. Exponents become responsibilities when they have
//! arrived in shared memory.
//!
//! In the `raw` kernels, features are x itself, which is zero at the centre of the data: right if no component is many
//! of its standard deviations away from it. In the `central` kernels they are x − cₖ with each component's centre, for
//! twice the arithmetic: nothing cancels, wherever components are. The host chooses. Sums of at most
//! [`FLUSH`]·[`STAGE`] samples are float32; these are added in float64.
//!
//! * Launch: grid ([`PatchShape::blocks`], slices of the samples), block [`PatchShape::block`], shared memory
//!   [`PatchShape::shared_bytes`].
//! * Necessary work for each sample: read 4·K bytes of exponents and 4·D bytes; 2·K·D multiply-adds, `full` K·(D +
//!   1)·(D + 2)/2 and more (pairs come in patches); `central` twice that. An H200 does 33.4·10¹² a second.
use crate::data::{Columns, QUAD};
use crate::likelihood::tiled::Exponents;
use crate::simt::WARP;

/// Components of a thread.
pub const COMPONENTS: usize = 8;
/// Values of a patch.
pub const VALUES: usize = 8;
/// Samples of a stage.
pub const STAGE: usize = 16;
/// Most stages in shared memory: one in use, the others being copied.
pub const MOST_STAGES: u32 = 4;
/// Stages between additions of the float32 sums in float64.
pub const FLUSH: u32 = 128;
/// Numbers from one row of a stage to the next; consecutive rows begin in different banks.
const PITCH: usize = STAGE + 4;
const QUADS: usize = STAGE / QUAD;

/// The division of a launch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchShape {
    /// D.
    pub d: u32,
    /// Tiles of [`COMPONENTS`] components.
    pub tiles: u32,
    /// Patches of values.
    pub patches: u32,
    /// Tiles of a block.
    pub block_tiles: u32,
    /// Patches of a block.
    pub block_patches: u32,
    /// Stages in shared memory, 2 to [`MOST_STAGES`].
    pub stages: u32,
    /// Whether patches are pairs of features.
    pub full: bool,
    /// Whether moments are around each component's centre.
    pub central: bool,
}

impl PatchShape {
    /// Blocks along the patches.
    #[inline(always)]
    pub fn across(&self) -> u32 {
        self.patches.div_ceil(self.block_patches)
    }

    /// Blocks of a slice of the samples.
    pub fn blocks(&self) -> u32 {
        self.across() * self.tiles.div_ceil(self.block_tiles)
    }

    /// Threads of a block.
    pub fn block(&self) -> u32 {
        (self.block_tiles * self.block_patches).next_multiple_of(WARP)
    }

    /// Quads of features in a stage.
    #[inline(always)]
    fn quads(&self) -> u32 {
        // All features and the number one, or only the features of the block's patches.
        if self.full { (self.d + 1).div_ceil(QUAD as u32) } else { self.block_patches }
    }

    /// Numbers of a stage: features, responsibilities, maxima and factors.
    #[inline(always)]
    fn stage(&self) -> usize {
        (self.quads() as usize * QUAD + self.block_tiles as usize * COMPONENTS + 2) * PITCH
    }

    /// Places of a block's components for counts and largest responsibilities: one for each component and quad.
    #[inline(always)]
    fn places(&self) -> usize {
        self.block_tiles as usize * COMPONENTS * QUADS
    }

    /// Dynamic shared memory of a launch.
    pub fn shared_bytes(&self) -> usize {
        let centres =
            if self.central { self.block_tiles as usize * COMPONENTS * self.quads() as usize * QUAD } else { 0 };
        let weights = self.block_tiles as usize * COMPONENTS;
        (self.stages as usize * self.stage() + 3 * self.places() + weights + centres) * size_of::<f32>()
    }

    /// Numbers that a slice computes: (components, values) for each tile and patch; then the components' counts.
    #[inline(always)]
    pub fn sums(&self) -> usize {
        COMPONENTS * (VALUES * self.patches as usize + 1) * self.tiles as usize
    }
}

/// Arguments of the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeightedSumsArgs {
    /// The division of the work.
    pub shape: PatchShape,
    /// The samples.
    pub columns: Columns,
    /// The exponents of these samples from `tiled`, for the components of all tiles.
    pub exponents: Exponents,
    /// wₖ, (tiles, [`COMPONENTS`]), zeros behind K.
    pub weights: *const f32,
    /// `central`: cₖ, (tiles, [`COMPONENTS`], D).
    pub centres: *const f32,
    /// `full`: the pair of features and the quad of features of each patch, (patches, 2).
    pub pairs: *const u32,
    /// The number of slices, gridDim.y; stage s is in slice s modulo this. At most the number of stages if `add` is 0.
    pub slices: u32,
    /// Whether to add to `sums` instead of replacing them.
    pub add: u32,
    /// [`PatchShape::sums`] of each slice.
    pub sums: *mut f64,
}

#[cfg(any(target_arch = "nvptx64", feature = "emulator", test))]
pub(crate) mod kernel;
