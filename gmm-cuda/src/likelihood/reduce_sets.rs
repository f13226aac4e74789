//! `reduce_sets`: sums over blocks, a number for each of several sets.
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::slots::Slots;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;

#[derive(Clone, Copy)]
pub enum Totals<'a> {
    /// The first slots, of this number, in the host's memory.
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
    /// Returns a warp for each set.
    pub fn grid(&self, sets: usize) -> Grid {
        Grid::new(sets as u32, WARP, 0)
    }
}

// There is a block for each set.
launch!(ReduceSets<'_>, ReduceSetsArgs, "reduce_sets", |launch, grid, what| {
    let sets = grid.blocks.0 as usize;
    let totals = match launch.totals {
        Totals::Slots(slots, count) => {
            require(what, sets <= count)?;
            slots.write(sets, what)?
        }
        Totals::Device(totals) => totals.write(sets, what)?,
    };
    Ok(ReduceSetsArgs {
        partials: launch.partials.read(sets * launch.count, what)?,
        count: launch.count as u32,
        totals,
    })
});
