//! `tiled8`, `tiled16` and their kernels for triangles: any K and D, sample weights, scores,
//! exponents for the E-step.
use super::layout;
use crate::Result;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::{Numbers, Output};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::{check_suffices, mismatch, suffices};
use gmm_kernels::likelihood::tiled::{self, TiledArgs, WARP_SAMPLES, shared_bytes};
use gmm_kernels::simt::WARP;
use std::ptr;

/// Where a launch writes its exponents, from which the E-step forms responsibilities.
#[derive(Clone, Copy)]
pub struct Exponents<'a> {
    /// qₖ of each sample, (components, stride).
    pub exponents: Numbers<'a, f32>,
    /// Maximum and factor of each sample, (2, stride).
    pub normalisers: Numbers<'a, f32>,
    /// Samples from one component to the next.
    pub stride: usize,
}

impl Exponents<'_> {
    /// The exponents as an argument of the kernels, for so many components and samples.
    pub fn argument(&self, components: usize, samples: usize) -> Result<tiled::Exponents> {
        let needed = vec![components * self.stride, 2 * self.stride, samples];
        let got = vec![self.exponents.len(), self.normalisers.len(), self.stride];
        check_suffices("the exponents of an E-step", needed, got)?;
        Ok(tiled::Exponents {
            q: self.exponents.pointer_mut(),
            normalisers: self.normalisers.pointer_mut(),
            stride: self.stride as u32,
        })
    }
}

/// A launch over K components.
#[derive(Clone, Copy)]
pub struct Tiled<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    pub k: usize,
    /// Components of a tile, or rows of a triangle's tile.
    pub rows: usize,
    /// Whether components have triangles.
    pub full: bool,
    /// Whether values are missing.
    pub gaps: bool,
    /// Warps of a block along the components.
    pub across: u32,
    /// As [`layout::write_tiles`] writes them: scales or triangles, then constants.
    pub parameters: Numbers<'a, f32>,
    /// Whether the total counts samples by their weights.
    pub weighted: bool,
    /// Where to write each sample's log₂-likelihood, if it is asked for.
    pub scores: Option<Numbers<'a, f32>>,
    pub exponents: Option<Exponents<'a>>,
    pub output: Output<'a>,
}

impl Tiled<'_> {
    /// Samples that a block of so many threads takes at a time.
    pub fn block_samples(threads: u32, across: u32) -> usize {
        (threads / WARP / across) as usize * WARP_SAMPLES
    }
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` and `Exponents` check
// their own; parameters, scores and shared memory are checked here.
unsafe impl Launch for Tiled<'_> {
    type Argument = TiledArgs;

    fn argument(&self, grid: &Grid) -> Result<TiledArgs> {
        let (n, d) = (self.columns.n(), self.columns.d());
        let (scales, constants) = layout::tiled_lengths(self.k, d, self.rows, self.full, self.gaps);
        let needed = vec![scales + constants, n, shared_bytes(self.rows, self.gaps, grid.threads, self.across)];
        let got = vec![self.parameters.len(), self.scores.map_or(n, |scores| scores.len()), grid.shared];
        let warps = grid.threads / WARP;
        let whole = self.across.is_power_of_two() && warps.is_multiple_of(self.across);
        if !whole || !suffices(&got, &needed) {
            return Err(mismatch("a launch of `tiled`", needed, got));
        }
        let tiles = if self.full { self.k } else { self.k.div_ceil(self.rows) };
        let samples = n.next_multiple_of(Self::block_samples(grid.threads, self.across));
        let components = if self.full { self.k } else { tiles * self.rows };
        let exponents = match self.exponents {
            Some(exponents) => exponents.argument(components, samples)?,
            None => tiled::Exponents { q: ptr::null_mut(), normalisers: ptr::null_mut(), stride: 0 },
        };
        let parameters = self.parameters.pointer();
        Ok(TiledArgs {
            columns: self.columns.argument(self.cached_quads),
            d: d as u32,
            tiles: tiles as u32,
            component_warps: self.across,
            scales_and_shifts: parameters,
            weights_and_seeds: parameters.wrapping_add(scales),
            sample_weights: if self.weighted { self.columns.weights() } else { ptr::null() },
            samples: self.scores.map_or(ptr::null_mut(), |scores| scores.pointer_mut()),
            exponents,
            output: self.output.argument(grid.blocks.0)?,
        })
    }
}
