//! `pair`: one thread for each (sample, component), the readable baseline.
use super::layout::pair_row;
use crate::Result;
use crate::backends::cuda::device::check_suffices;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::{Numbers, Output};
use crate::backends::cuda::device::samples::Columns;
use gmm_kernels::likelihood::pair::{PairArgs, shared_bytes};
use std::ptr;

/// A launch over K components.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    pub columns: Columns<'a>,
    pub k: usize,
    pub parameters: Numbers<'a, f32>,
    /// Where to write each sample's log₂-likelihood, if it is asked for.
    pub scores: Option<Numbers<'a, f32>>,
    pub output: Output<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own; K
// rows of parameters, a place for each sample's score and the shared memory are checked here.
unsafe impl Launch for Pair<'_> {
    type Argument = PairArgs;

    fn argument(&self, grid: &Grid) -> Result<PairArgs> {
        let (n, d) = (self.columns.n(), self.columns.d());
        let needed = vec![self.k * pair_row(d), n, shared_bytes(grid.threads)];
        let got = vec![self.parameters.len(), self.scores.map_or(n, |scores| scores.len()), grid.shared];
        check_suffices("a launch of `pair`", needed, got)?;
        Ok(PairArgs {
            x: self.columns.x(),
            stride: self.columns.stride() as u64,
            n: n as u64,
            k: self.k as u32,
            d: d as u32,
            parameters: self.parameters.pointer(),
            samples: self.scores.map_or(ptr::null_mut(), |scores| scores.pointer_mut()),
            output: self.output.argument(grid.blocks.0)?,
        })
    }
}
