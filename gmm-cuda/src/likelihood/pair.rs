//! `pair`: one thread for each (sample, component); the kernel to read first, never chosen by itself.
use super::launch::{LikelihoodKernels, Sets, Work};
use super::layout::{component_rows, pair_row};
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::samples::Columns;
use crate::device::stream::Running;
use crate::device::workspace::{Output, Workspace};
use crate::plan::family::{Facts, Family, Variant, fitting, no_room};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::error::Result;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::likelihood::pair::{PairArgs, shared_bytes};
use gmm_kernels::simt::WARP;
use std::sync::Arc;

/// `pair`: totals and scores. Its split is the components that a block takes at a time.
pub static PAIR: PairFamily = PairFamily;
pub struct PairFamily;

impl Family for PairFamily {
    fn facts(&self) -> Facts {
        let about = "totals and scores with a thread for each sample and component";
        let operations = &[Operation::Total, Operation::Scores];
        Facts { always_has_split: true, ..Facts::plain("pair", about, operations) }
    }

    fn sizes(&self) -> String {
        "D that fits into shared memory".into()
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        no_room(task, |task| !self.shapes(task, limits).is_empty())
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // As many blocks as a multiprocessor has registers for.
        let components = (task.k as u32).min(WARP);
        let shape = Shape::new(components, WARP * components, (48 / components).min(32));
        if self.shared_bytes(task, shape) > limits.shared_per_block {
            return Vec::new();
        }
        fitting(self, vec![shape], task, limits)
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        shape.split == shape.block / WARP
    }

    fn samples_of_block(&self, _: Shape) -> usize {
        WARP as usize
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        shared_bytes(task.d, shape.block)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        let kernel = gpu.kernel(&entries::pair(), None)?;
        let grid = variant.grid(task, gpu.limits.multiprocessors);
        Ok(Arc::new(Ready { kernel, task: *task, grid }))
    }
}

#[derive(Debug)]
struct Ready {
    kernel: Kernel<PairArgs>,
    task: Task,
    grid: Grid,
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        workspace.blocks.enlarge(self.grid.blocks.0 as usize)?;
        let width = pair_row(self.task.d);
        workspace.parameters.fill(self.task.k * width, |to| component_rows(&sets.apart()[0], width, to))
    }

    fn start<'a>(&self, work: Work<'a>, _: Sets<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, workspace, columns, scores } = work;
        let (parameters, output) = (workspace.parameters.device(), workspace.output());
        let pair = Pair { columns, k: self.task.k, parameters, scores, output };
        Ok(stream.launch(self.kernel, self.grid, pair)?.borrowed())
    }
}

#[derive(Clone, Copy)]
pub struct Pair<'a> {
    pub columns: Columns<'a>,
    pub k: usize,
    pub parameters: Numbers<'a, f32>,
    /// The place of each sample's log₂-likelihood, if requested.
    pub scores: Option<Numbers<'a, f32>>,
    pub output: Output<'a>,
}

launch!(Pair<'_>, PairArgs, "pair", |launch, grid, what| {
    let (n, d) = (launch.columns.n(), launch.columns.d());
    require(what, launch.columns.stride().is_multiple_of(QUAD))?;
    grid.require_shared(what, shared_bytes(d, grid.threads))?;
    Ok(PairArgs {
        x: launch.columns.x(),
        stride: launch.columns.stride() as u64,
        n: n as u64,
        k: launch.k as u32,
        d: d as u32,
        parameters: launch.parameters.read(launch.k * pair_row(d), what)?,
        samples: Numbers::write_if(launch.scores, n, what)?,
        output: launch.output.argument(grid.blocks.0)?,
    })
});
