//! `batch`: many parameter sets over one read of the data; and `reduce_sets`, which adds up the sums of the blocks.
use super::launch::{LikelihoodKernels, Sets, Work};
use super::layout;
use super::reduce_sets::{ReduceSets, Totals};
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, enlarge};
use crate::device::require;
use crate::device::samples::Columns;
use crate::device::stream::Running;
use crate::device::workspace::Workspace;
use crate::plan::family::{Facts, Family, Variant, at_most, fitting, no_room};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::Result;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::likelihood::batch::{BatchArgs, QUADS, shared_bytes};
use gmm_kernels::likelihood::small_k::{self, MAX_FEATURES, row};
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use std::sync::Arc;

/// `batch`: totals of many parameter sets, in one read of the data. Its split is the most sets of a group.
pub static BATCH: BatchFamily = BatchFamily;
pub struct BatchFamily;

/// Returns K for the kernel, made even by a component of zeros.
fn even(k: usize) -> usize {
    k.next_multiple_of(small_k::SIDE_BY_SIDE)
}

/// Returns the sets of a group: as many as the split allows and 48 KiB of shared memory hold, at least one.
pub fn group(shape: Shape, k: usize, d: usize) -> usize {
    let fits = |group: &usize| shared_bytes(d, even(k), *group, shape.block) <= 48 << 10;
    (1..=shape.split as usize).rev().find(fits).unwrap_or(1)
}

impl Family for BatchFamily {
    fn facts(&self) -> Facts {
        let about = "totals of many parameter sets in one read of the data";
        Facts { exp2_bias: true, ..Facts::plain("batch", about, &[Operation::Total, Operation::Totals]) }
    }

    fn sizes(&self) -> String {
        format!("D ≤ {MAX_FEATURES}, K as shared memory allows")
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let fits = |task: &Task| shared_bytes(task.d, even(task.k), 1, 256) <= limits.shared_per_block;
        at_most("features", MAX_FEATURES, task.d).or_else(|| no_room(task, fits))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        let all = if task.n <= limits.multiprocessors as usize * 64 * 2 * QUAD {
            vec![(16, 64, 3)]
        } else {
            vec![(16, 96, 1), (16, 128, 3), (16, 192, 1), (16, 64, 6), (8, 128, 3)]
        };
        let all = all.into_iter().map(|(split, block, per)| Shape::new(split, block, per)).collect();
        fitting(self, all, task, limits)
    }

    fn cached(&self, task: &Task, limits: &Limits) -> Vec<Option<u32>> {
        if task.n * task.d * size_of::<f32>() > limits.l2 { vec![Some(0)] } else { vec![None] }
    }

    fn is_launchable(&self, _: Shape) -> bool {
        true
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        shape.block as usize * QUAD * QUADS
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        shared_bytes(task.d, even(task.k), group(shape, task.k, task.d), shape.block)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        Ok(Arc::new(Ready {
            kernel: gpu.kernel(&entries::batch(task.d), Some(168))?,
            reduce: gpu.kernel(&entries::reduce_sets(), None)?,
            variant,
            task: *task,
            blocks: variant.blocks(task.n, gpu.limits.multiprocessors),
        }))
    }
}

/// The kernels made ready for a task: one leaves each block's sums, the other adds them up.
#[derive(Debug)]
struct Ready {
    kernel: Kernel<BatchArgs>,
    reduce: Kernel<ReduceSetsArgs>,
    variant: Variant,
    task: Task,
    blocks: u32,
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        let (Task { k, d, .. }, sets) = (self.task, sets.apart());
        enlarge(&mut workspace.partials, self.blocks as usize * sets.len())?;
        workspace.parameters.fill(parameters(k, d, sets.len()), |to| write(sets, to))
    }

    fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>> {
        let (Task { k, d, .. }, Work { stream, workspace, columns, .. }) = (self.task, work);
        let partials = Numbers::of(&workspace.partials);
        let sums = Batch {
            columns,
            cached_quads: self.variant.cached_quads(d),
            parameters: workspace.parameters.device(),
            sets: sets.len(),
            group: group(self.variant.shape, k, d).min(sets.len()),
            k,
            partials,
        };
        let running = stream.launch(self.kernel, sums.grid(self.blocks, self.variant.shape.block), sums)?;
        let totals = Totals::Slots(&workspace.totals, sets.len());
        let reduce = ReduceSets { partials, count: self.blocks as usize, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(sets.len()), reduce)?).borrowed())
    }
}

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

launch!(Batch<'_>, BatchArgs, "batch", |launch, grid, what| {
    let (k, d) = (even(launch.k), launch.columns.d());
    let shape = launch.grid(grid.blocks.0, grid.threads);
    require(what, d <= MAX_FEATURES && grid.blocks.1 == shape.blocks.1)?;
    grid.require_shared(what, shape.shared)?;
    Ok(BatchArgs {
        columns: launch.columns.argument(launch.cached_quads),
        parameters: launch.parameters.read(parameters(k, d, launch.sets), what)?,
        sets: launch.sets as u32,
        group: launch.group as u32,
        k: k as u32,
        partials: launch.partials.write(grid.blocks.0 as usize * launch.sets, what)?,
    })
});
