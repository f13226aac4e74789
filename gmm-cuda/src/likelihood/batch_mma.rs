//! `batch_mma` and `batch_wgmma`: many similar parameter sets over one read of the data, on the tensor cores.
use super::batch_mma_layout::{bundles_of, octets_of, sections};
use super::launch::{LikelihoodKernels, Sets, Work};
use super::reduce_sets::{ReduceSets, Totals};
use crate::device::gpu::{Gpu, Limits, REGISTERS};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, enlarge};
use crate::device::samples::Columns;
use crate::device::stream::Running;
use crate::device::workspace::Workspace;
use crate::device::{mismatch, require};
use crate::plan::family::{Facts, Family, Unit, Variant, at_most, no_room};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::error::{Error, Result};
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::likelihood::batch_mma::{self, BatchMmaArgs, MAX_FEATURES, SETS, shared_bytes, steps};
use gmm_kernels::likelihood::batch_parameters::BatchParametersArgs;
use gmm_kernels::likelihood::batch_wgmma::{self, MOST_BUNDLES};
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::{WARP, WARPGROUP};
use std::sync::Arc;

/// `batch_mma`: totals of parameter sets near to a reference; the tensor cores multiply their differences from it. Its
/// split is the most sets of a block.
pub static BATCH_MMA: NearSetsFamily = NearSetsFamily { unit: Unit::Mma };
/// `batch_wgmma`: the same with the products of warpgroups.
pub static BATCH_WGMMA: NearSetsFamily = NearSetsFamily { unit: Unit::Wgmma };
pub struct NearSetsFamily {
    unit: Unit,
}

impl Family for NearSetsFamily {
    fn facts(&self) -> Facts {
        let name = if self.unit == Unit::Wgmma { "batch_wgmma" } else { "batch_mma" };
        let about = "totals of parameter sets near to each other, on the tensor cores";
        let plain = Facts::plain(name, about, &[Operation::Totals]);
        Facts { unit: self.unit, compares_sets: true, exp2_bias: true, ..plain }
    }

    fn sizes(&self) -> String {
        format!("D ≤ {MAX_FEATURES}, K as shared memory allows")
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let too_large = || no_room(task, |task| !self.shapes(task, limits).is_empty());
        let too_far = "takes parameter sets only that are so near to each other that float16 keeps the digits of their \
                       differences";
        at_most("features", MAX_FEATURES, task.d)
            .or_else(too_large)
            .or_else(|| (!task.is_expandable()).then(|| too_far.into()))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        let least = if self.unit == Unit::Wgmma { 128 } else { 64 };
        let all = [
            (64, 512, 1),
            (64, 384, 1),
            (32, 256, 2),
            (32, 512, 1),
            (16, 256, 2),
            (8, 128, 4),
            (4, 128, 2),
            (4, least, 1),
        ];
        let all = all.into_iter().map(|(split, block, per)| Shape::new(split, block, per));
        let fits = |&shape: &Shape| {
            let shared = self.shared_bytes(task, shape);
            let registers = registers(task) * shape.block * shape.per_multiprocessor;
            shared <= limits.shared_per_block
                && shape.per_multiprocessor <= limits.blocks_by_shared(shared)
                && registers <= REGISTERS
        };
        // With few samples the shape makes no difference.
        let few = task.n <= limits.multiprocessors as usize * 512 * QUAD;
        all.filter(fits).take(if few { 1 } else { 4 }).collect()
    }

    fn cached(&self, task: &Task, limits: &Limits) -> Vec<Option<u32>> {
        let fits = task.n * task.d * size_of::<f32>() <= limits.l2;
        if fits && self.unit == Unit::Mma { vec![None] } else { vec![Some(0)] }
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        self.unit == Unit::Mma
            || shape.block.is_multiple_of(WARPGROUP) && bundles_of(shape.split as usize) <= MOST_BUNDLES
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        let of_warp = if self.unit == Unit::Wgmma { batch_wgmma::SAMPLES } else { batch_mma::SAMPLES };
        (shape.block / WARP) as usize * of_warp
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        let bytes = if self.unit == Unit::Wgmma { batch_wgmma::shared_bytes } else { shared_bytes };
        bytes(task.d, octets_of(task.k), bundles_of(shape.split as usize), shape.block)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        Ok(Arc::new(Ready {
            parameters: gpu.kernel(&entries::batch_parameters(), None)?,
            kernel: gpu.kernel(&self.entry(task), Some(registers(task)))?,
            reduce: gpu.kernel(&entries::reduce_sets(), None)?,
            variant,
            task: *task,
            blocks: variant.blocks(task.n, gpu.limits.multiprocessors),
            unit: self.unit,
        }))
    }
}

fn registers(task: &Task) -> u32 {
    // 512 threads, or 384, then leave registers of a multiprocessor for a warp of `reduce_sets`: it adds up a batch's
    // sums beside the blocks of another thread's batch, which stay there all the time.
    if steps(task.d) <= 2 { 120 } else { 160 }
}

impl NearSetsFamily {
    fn entry(&self, task: &Task) -> entries::Entry<BatchMmaArgs> {
        if self.unit == Unit::Wgmma {
            entries::batch_wgmma(steps(task.d), task.k)
        } else {
            entries::batch_mma(steps(task.d))
        }
    }
}

/// The kernels made ready for a task: one makes the parameters, one leaves each block's sums, one adds them up.
#[derive(Debug)]
struct Ready {
    parameters: Kernel<BatchParametersArgs>,
    kernel: Kernel<BatchMmaArgs>,
    reduce: Kernel<ReduceSetsArgs>,
    variant: Variant,
    task: Task,
    blocks: u32,
    unit: Unit,
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        let Sets::Near(near) = sets else { return Err(self.apart()) };
        enlarge(&mut workspace.partials, self.blocks as usize * sets.len().next_multiple_of(SETS))?;
        near.prepare(workspace)
    }

    fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>> {
        let Sets::Near(near) = sets else { return Err(self.apart()) };
        let Work { stream, workspace, columns, .. } = work;
        let started = near.start(self.parameters, stream, workspace)?;
        let partials = Numbers::of(&workspace.partials);
        let sums = BatchMma {
            columns,
            cached_quads: self.variant.cached_quads(self.task.d),
            parameters: Numbers::of(&workspace.batch_parameters),
            sets: sets.len(),
            part: self.variant.shape.split as usize,
            k: self.task.k,
            unit: self.unit,
            partials,
        };
        let grid = sums.grid(self.blocks, self.variant.shape.block);
        let running = started.followed_by(stream.launch(self.kernel, grid, sums)?);
        let totals = Totals::Slots(&workspace.totals, sets.len());
        let reduce = ReduceSets { partials, count: self.blocks as usize, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(sets.len()), reduce)?).borrowed())
    }
}

impl Ready {
    /// Returns the error of sets that are not compared with a reference.
    fn apart(&self) -> Error {
        mismatch("parameter sets near to a reference", vec![], vec![])
    }
}

/// A launch that leaves each block's sum for each set, and for those that fill the last four.
#[derive(Clone, Copy)]
pub struct BatchMma<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    /// Coefficients, weights, and the reference.
    pub parameters: Numbers<'a, f32>,
    pub sets: usize,
    /// Most sets of a block.
    pub part: usize,
    pub k: usize,
    pub unit: Unit,
    pub partials: Numbers<'a, f64>,
}

impl BatchMma<'_> {
    pub fn grid(&self, blocks: u32, threads: u32) -> Grid {
        let (all, part) = (bundles_of(self.sets), self.part());
        let shared_bytes = if self.unit == Unit::Wgmma { batch_wgmma::shared_bytes } else { shared_bytes };
        let shared = shared_bytes(self.columns.d(), octets_of(self.k), part, threads);
        Grid { blocks: (blocks, all.div_ceil(part) as u32), threads, shared, cooperative: false }
    }

    /// Returns the fours of sets of a block.
    fn part(&self) -> usize {
        bundles_of(self.part).min(bundles_of(self.sets))
    }
}

launch!(BatchMma<'_>, BatchMmaArgs, "batch_mma", |launch, grid, what| {
    let (k, d, bundles) = (launch.k, launch.columns.d(), bundles_of(launch.sets));
    let [coefficients, weights, reference] = sections(k, d, launch.sets);
    let shape = launch.grid(grid.blocks.0, grid.threads);
    let too_many = launch.unit == Unit::Wgmma && launch.part() > MOST_BUNDLES;
    require(what, d <= MAX_FEATURES && launch.sets > 0 && !too_many)?;
    require(what, grid.blocks.1 == shape.blocks.1)?;
    grid.require_shared(what, shape.shared)?;
    Ok(BatchMmaArgs {
        columns: launch.columns.argument(launch.cached_quads),
        d: d as u32,
        bundles: bundles as u32,
        group: launch.part() as u32,
        octets: octets_of(k) as u32,
        coefficients: launch.parameters.read_part(coefficients)?,
        weights: launch.parameters.read_part(weights)?,
        reference: launch.parameters.read_part(reference)?,
        partials: launch.partials.write(SETS * bundles * grid.blocks.0 as usize, what)?,
    })
});
