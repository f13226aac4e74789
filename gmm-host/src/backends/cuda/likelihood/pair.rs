//! `pair`: one thread for each (sample, component), the readable baseline.
use super::layout::pair_row;
use crate::Result;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::{Numbers, Output};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::{mismatch, suffices};
use gmm_kernels::likelihood::pair::{PairArgs, shared_bytes};
use gmm_kernels::simt::WARP;
use std::ptr;

/// A launch over K components.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    pub columns: Columns<'a>,
    pub k: usize,
    /// Components that a block takes at a time.
    pub rows: u32,
    pub parameters: Numbers<'a, f32>,
    /// Where to write each sample's log₂-likelihood, if it is asked for.
    pub scores: Option<Numbers<'a, f32>>,
    pub output: Output<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own; K rows of parameters, a place
// for each sample's score and the shared memory are checked here.
unsafe impl Launch for Pair<'_> {
    type Argument = PairArgs;

    fn argument(&self, grid: &Grid) -> Result<PairArgs> {
        let (n, d) = (self.columns.n(), self.columns.d());
        let needed = vec![self.k * pair_row(d), n, shared_bytes(grid.threads, self.rows.max(1))];
        let got = vec![self.parameters.len(), self.scores.map_or(n, |scores| scores.len()), grid.shared];
        let whole = self.rows > 0 && grid.threads.is_multiple_of(WARP * self.rows);
        if !whole || !suffices(&got, &needed) {
            return Err(mismatch("a launch of `pair`", needed, got));
        }
        Ok(PairArgs {
            x: self.columns.x(),
            stride: self.columns.stride() as u64,
            n: n as u64,
            k: self.k as u32,
            d: d as u32,
            rows: self.rows,
            parameters: self.parameters.pointer(),
            samples: self.scores.map_or(ptr::null_mut(), |scores| scores.pointer_mut()),
            output: self.output.argument(grid.blocks.0)?,
        })
    }
}
