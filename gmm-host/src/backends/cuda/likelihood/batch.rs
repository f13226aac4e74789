//! `batch`: many parameter sets over one read of the data; and `reduce_sets`, which adds up the
//! sums of the blocks.
use super::layout;
use crate::Result;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::slots::Slots;
use crate::backends::cuda::plan::even;
use crate::backends::device_parameters::DeviceParameters;
use gmm_kernels::likelihood::batch::{BatchArgs, shared_bytes};
use gmm_kernels::likelihood::small_k::{MAX_FEATURES, row};
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;

/// Numbers of the parameters of so many sets.
pub fn parameters(k: usize, d: usize, sets: usize) -> usize {
    sets * even(k) * row(d, false)
}

/// Writes the parameters of the sets, one after the other.
pub fn write(sets: &[DeviceParameters<f32>], out: &mut [f32]) {
    for (set, out) in sets.iter().zip(out.chunks_exact_mut(parameters(sets[0].n_components, sets[0].n_features, 1))) {
        layout::component_rows(set, row(set.n_features, false), out);
    }
}

/// A launch that leaves each block's sum for each set.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    pub parameters: Numbers<'a, f32>,
    pub sets: usize,
    /// Sets of a group.
    pub group: usize,
    pub k: usize,
    pub partials: Numbers<'a, f64>,
}

impl Batch<'_> {
    pub fn grid(&self, blocks: u32, threads: u32) -> Grid {
        let shared = shared_bytes(self.columns.d(), even(self.k), self.group, threads);
        Grid { blocks: (blocks, self.sets.div_ceil(self.group) as u32), threads, shared, cooperative: false }
    }
}

// SAFETY: the columns' lengths were checked when they were made; parameters of all sets and a sum
// for each set and block are checked here.
unsafe impl Launch for Batch<'_> {
    type Argument = BatchArgs;

    fn argument(&self, grid: &Grid) -> Result<BatchArgs> {
        let (k, d) = (even(self.k), self.columns.d());
        let needed = [parameters(k, d, self.sets), grid.blocks.0 as usize * self.sets];
        let got = [self.parameters.len(), self.partials.len()];
        let shape = self.grid(grid.blocks.0, grid.threads);
        if needed[0] > got[0] || needed[1] > got[1] || d > MAX_FEATURES {
            return Err(mismatch("a launch of `batch`", needed.into(), got.into()));
        }
        if grid.blocks.1 != shape.blocks.1 || grid.shared < shape.shared {
            return Err(mismatch("the grid of `batch`", vec![shape.shared], vec![grid.shared]));
        }
        Ok(BatchArgs {
            columns: self.columns.argument(self.cached_quads),
            parameters: self.parameters.pointer(),
            sets: self.sets as u32,
            group: self.group as u32,
            k: k as u32,
            partials: self.partials.pointer_mut(),
        })
    }
}

/// Where `reduce_sets` writes its totals.
#[derive(Clone, Copy)]
pub enum Totals<'a> {
    /// The first so many slots, in the host's memory.
    Slots(&'a Slots, usize),
    Device(Numbers<'a, f64>),
}

/// A launch that adds up `count` numbers for each of several sets.
#[derive(Clone, Copy)]
pub struct ReduceSets<'a> {
    /// (sets, count)
    pub partials: Numbers<'a, f64>,
    pub count: usize,
    pub totals: Totals<'a>,
}

impl ReduceSets<'_> {
    /// A warp for each set.
    pub fn grid(&self, sets: usize) -> Grid {
        Grid::new(sets as u32, WARP, 0)
    }
}

// SAFETY: `count` numbers and a place for the total of each set, that is of each block, are checked
// here.
unsafe impl Launch for ReduceSets<'_> {
    type Argument = ReduceSetsArgs;

    fn argument(&self, grid: &Grid) -> Result<ReduceSetsArgs> {
        let sets = grid.blocks.0 as usize;
        let (places, totals) = match self.totals {
            Totals::Slots(slots, count) => (count.min(slots.len()), slots.device_pointer()),
            Totals::Device(totals) => (totals.len(), totals.pointer_mut()),
        };
        if self.partials.len() < sets * self.count || places < sets {
            let got = vec![self.partials.len(), places];
            return Err(mismatch("a launch of `reduce_sets`", vec![sets * self.count, sets], got));
        }
        Ok(ReduceSetsArgs { partials: self.partials.pointer(), count: self.count as u32, totals })
    }
}
