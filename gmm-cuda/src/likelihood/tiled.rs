//! `tiled8`, `tiled16` and their kernels for triangles: any K and D, sample weights, scores, exponents for the E-step.
use super::exponents::Exponents;
use super::launch::{LikelihoodKernels, Sets, Work};
use super::layout;
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::samples::Columns;
use crate::device::stream::Running;
use crate::device::workspace::{Output, Workspace};
use crate::plan::family::{Facts, Family, Variant, fitting};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::error::Result;
use gmm_kernels::entries;
use gmm_kernels::likelihood::tiled::{self, TiledArgs, WARP_SAMPLES, shared_bytes};
use gmm_kernels::simt::WARP;
use std::ptr;
use std::sync::Arc;

/// `tiled8`: totals and scores of any shape, in tiles of eight components, or of eight rows of a triangle. Its split is
/// the warps of a block along the components.
pub static TILED8: TiledFamily = TiledFamily { rows: 8 };
/// `tiled16`: the same in tiles of sixteen.
pub static TILED16: TiledFamily = TiledFamily { rows: 16 };
pub struct TiledFamily {
    rows: usize,
}

impl Family for TiledFamily {
    fn facts(&self) -> Facts {
        let (name, about) = match self.rows {
            8 => ("tiled8", "totals and scores in tiles of eight components, or rows of a triangle"),
            _ => ("tiled16", "totals and scores in tiles of sixteen components, or rows of a triangle"),
        };
        let complete = Facts::complete(name, about, &[Operation::Total, Operation::Scores]);
        Facts { gaps: self.rows == 8, always_has_split: true, ..complete }
    }

    fn sizes(&self) -> String {
        "any".into()
    }

    fn limit(&self, _: &Task, _: &Limits) -> Option<String> {
        None
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        let tiles = if task.full() { task.k } else { task.k.div_ceil(self.rows) } as u32;
        let across = |block: u32| [1, 2, 4, 8].into_iter().filter(move |a| *a <= tiles && *a <= block / WARP);
        let all = [(64, 4), (128, 2), (128, 3), (128, 4), (128, 6), (256, 1), (256, 2)];
        let all = all.iter().flat_map(|&(block, per)| across(block).map(move |a| Shape::new(a, block, per))).collect();
        fitting(self, all, task, limits)
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        let warps = shape.block / WARP;
        warps.is_multiple_of(shape.split) && (warps / shape.split).is_power_of_two()
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        Tiled::block_samples(shape.block, shape.split)
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        shared_bytes(self.rows, task.gaps, shape.block, shape.split)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        let kernel = gpu.kernel(&entries::tiled(self.rows, task.full(), task.gaps), None)?;
        let grid = variant.grid(task, gpu.limits.multiprocessors);
        Ok(Arc::new(Ready { kernel, variant, task: *task, grid, rows: self.rows }))
    }
}

#[derive(Debug)]
struct Ready {
    kernel: Kernel<TiledArgs>,
    variant: Variant,
    task: Task,
    grid: Grid,
    rows: usize,
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        workspace.blocks.enlarge(self.grid.blocks.0 as usize)?;
        let (Task { k, d, gaps, .. }, full) = (self.task, self.task.full());
        let (scales, constants) = layout::tiled_lengths(k, d, self.rows, full, gaps);
        workspace.parameters.fill(scales + constants, |to| {
            let (scales, constants) = to.split_at_mut(scales);
            layout::write_tiled(&sets.apart()[0], self.rows, scales, constants);
        })
    }

    fn start<'a>(&self, work: Work<'a>, _: Sets<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, workspace, columns, scores } = work;
        let likelihood = Tiled {
            columns,
            cached_quads: self.variant.cached_quads(self.task.d),
            k: self.task.k,
            rows: self.rows,
            full: self.task.full(),
            gaps: self.task.gaps,
            across: self.variant.shape.split,
            parameters: workspace.parameters.device(),
            weighted: self.task.weighted,
            scores,
            exponents: None,
            output: workspace.output(),
        };
        Ok(stream.launch(self.kernel, self.grid, likelihood)?.borrowed())
    }
}

#[derive(Clone, Copy)]
pub struct Tiled<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    pub k: usize,
    /// Components of a tile, or rows of a triangle's tile.
    pub rows: usize,
    pub full: bool,
    pub gaps: bool,
    /// Warps of a block along the components.
    pub across: u32,
    /// As [`layout::write_tiled`] writes them: scales or triangles, then constants.
    pub parameters: Numbers<'a, f32>,
    /// Whether the total counts samples by their weights.
    pub weighted: bool,
    /// The place of each sample's log₂-likelihood, if requested.
    pub scores: Option<Numbers<'a, f32>>,
    pub exponents: Option<Exponents<'a>>,
    pub output: Output<'a>,
}

impl Tiled<'_> {
    /// Returns the samples that a block of this many threads takes at a time.
    pub fn block_samples(threads: u32, across: u32) -> usize {
        (threads / WARP / across) as usize * WARP_SAMPLES
    }
}

launch!(Tiled<'_>, TiledArgs, "tiled", |launch, grid, what| {
    let (n, d, k, across) = (launch.columns.n(), launch.columns.d(), launch.k, launch.across);
    let (scales, constants) = layout::tiled_lengths(k, d, launch.rows, launch.full, launch.gaps);
    require(what, across.is_power_of_two() && (grid.threads / WARP).is_multiple_of(across))?;
    grid.require_shared(what, shared_bytes(launch.rows, launch.gaps, grid.threads, across))?;
    let tiles = if launch.full { k } else { k.div_ceil(launch.rows) };
    let samples = n.next_multiple_of(Tiled::block_samples(grid.threads, across));
    let components = if launch.full { k } else { tiles * launch.rows };
    let exponents = match launch.exponents {
        Some(exponents) => exponents.argument(components, samples)?,
        None => tiled::Exponents { q: ptr::null_mut(), normalisers: ptr::null_mut(), stride: 0 },
    };
    Ok(TiledArgs {
        columns: launch.columns.argument(launch.cached_quads),
        d: d as u32,
        tiles: tiles as u32,
        component_warps: across,
        scales_and_shifts: launch.parameters.read(scales, what)?,
        weights_and_seeds: launch.parameters.read_part(scales..scales + constants)?,
        sample_weights: launch.columns.weights_if(launch.weighted),
        samples: Numbers::write_if(launch.scores, n, what)?,
        exponents,
        output: launch.output.argument(grid.blocks.0)?,
    })
});
