//! `reduce_slices`: sums over slices of the samples.
use crate::device::kernel::Grid;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use gmm_kernels::reduce::slices::{self, REDUCE_NUMBERS, ReduceSlicesArgs};

/// Threads of a block.
const REDUCE_BLOCK: u32 = 1024;

/// A launch that adds up the slices' sums.
#[derive(Clone, Copy)]
pub struct ReduceSlices<'a> {
    /// (slices, count)
    pub sums: Numbers<'a, f64>,
    pub slices: usize,
    pub count: usize,
    pub totals: Numbers<'a, f64>,
}

impl ReduceSlices<'_> {
    pub fn grid(&self) -> Grid {
        let blocks = (self.count as u32).div_ceil(REDUCE_NUMBERS);
        Grid::new(blocks, REDUCE_BLOCK, slices::shared_bytes(REDUCE_BLOCK))
    }
}

launch!(ReduceSlices<'_>, ReduceSlicesArgs, "reduce_slices", |launch, grid, what| {
    grid.require_shared(what, slices::shared_bytes(grid.threads))?;
    Ok(ReduceSlicesArgs {
        sums: launch.sums.read(launch.slices * launch.count, what)?,
        slices: launch.slices as u32,
        count: launch.count as u32,
        totals: launch.totals.write(launch.count, what)?,
    })
});
