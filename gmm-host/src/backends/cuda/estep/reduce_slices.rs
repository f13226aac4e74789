//! `reduce_slices`: sums over slices of the samples.
use crate::backends::cuda::device::check_suffices;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::error::Result;
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

// SAFETY: the lengths of both arrays are checked here; a thread without a number does nothing.
unsafe impl Launch for ReduceSlices<'_> {
    type Argument = ReduceSlicesArgs;

    fn argument(&self, grid: &Grid) -> Result<ReduceSlicesArgs> {
        let needed = vec![self.slices * self.count, self.count, slices::shared_bytes(grid.threads)];
        let got = vec![self.sums.len(), self.totals.len(), grid.shared];
        check_suffices("a launch of `reduce_slices`", needed, got)?;
        Ok(ReduceSlicesArgs {
            sums: self.sums.pointer(),
            slices: self.slices as u32,
            count: self.count as u32,
            totals: self.totals.pointer_mut(),
        })
    }
}
