//! `reduce_sets`: sums over blocks, a number for each of several sets.
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::slots::Slots;
use crate::error::Result;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;

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
