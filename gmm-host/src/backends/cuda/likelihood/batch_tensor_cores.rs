//! `batch_tensor_cores` and `batch_warpgroup`: many similar parameter sets over one read of the
//! data, on the matrix units.
use super::batch_tensor_cores_layout::{eights, fours, sections};
use crate::Result;
use crate::backends::cuda::device::kernel::{Grid, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::{check_suffices, mismatch};
use gmm_kernels::likelihood::batch_tensor_cores::{BatchTensorCoresArgs, MAX_FEATURES, SETS, shared_bytes};
use gmm_kernels::likelihood::batch_warpgroup::{self, MOST_FOURS};

/// A launch that leaves each block's sum for each set, and for those that make the last four whole.
#[derive(Clone, Copy)]
pub struct BatchTensorCores<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    /// Coefficients, weights, and the reference.
    pub parameters: Numbers<'a, f32>,
    pub sets: usize,
    /// Sets of a block, at most.
    pub part: usize,
    pub k: usize,
    /// Whether it is `batch_warpgroup`.
    pub warpgroups: bool,
    pub partials: Numbers<'a, f64>,
}

impl BatchTensorCores<'_> {
    pub fn grid(&self, blocks: u32, threads: u32) -> Grid {
        let (all, part) = (fours(self.sets), self.part());
        let shared_bytes = if self.warpgroups { batch_warpgroup::shared_bytes } else { shared_bytes };
        let shared = shared_bytes(self.columns.d(), eights(self.k), part, threads);
        Grid { blocks: (blocks, all.div_ceil(part) as u32), threads, shared, cooperative: false }
    }

    /// Fours of sets of a block.
    fn part(&self) -> usize {
        fours(self.part).min(fours(self.sets))
    }
}

// SAFETY: the columns' lengths were checked when they were made; parameters of all sets and a sum
// for each set and block are checked here.
unsafe impl Launch for BatchTensorCores<'_> {
    type Argument = BatchTensorCoresArgs;

    fn argument(&self, grid: &Grid) -> Result<BatchTensorCoresArgs> {
        let (k, d) = (self.k, self.columns.d());
        let [coefficients, weights, reference] = sections(k, d, self.sets);
        let shape = self.grid(grid.blocks.0, grid.threads);
        let needed = vec![reference.end, SETS * fours(self.sets) * grid.blocks.0 as usize, shape.shared];
        let got = vec![self.parameters.len(), self.partials.len(), grid.shared];
        let too_many = self.warpgroups && self.part() > MOST_FOURS;
        if grid.blocks.1 != shape.blocks.1 || d > MAX_FEATURES || self.sets == 0 || too_many {
            return Err(mismatch("a launch of `batch_tensor_cores`", needed, got));
        }
        check_suffices("a launch of `batch_tensor_cores`", needed, got)?;
        Ok(BatchTensorCoresArgs {
            columns: self.columns.argument(self.cached_quads),
            d: d as u32,
            fours: fours(self.sets) as u32,
            part: self.part() as u32,
            eights: eights(k) as u32,
            coefficients: self.parameters.part(coefficients)?.pointer(),
            weights: self.parameters.part(weights)?.pointer(),
            reference: self.parameters.part(reference)?.pointer(),
            partials: self.partials.pointer_mut(),
        })
    }
}
