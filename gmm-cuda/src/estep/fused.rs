//! `fused`: the E-step in one read of the data, for K up to 32 and D up to 16, or small matrices.
use super::launch::{EStepKernels, Read, Work};
use super::layouts::Layouts;
use super::sums::Sums;
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel, Launch};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, allocate};
use crate::device::samples::Columns;
use crate::device::slots::Slots;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Workspace;
use crate::likelihood::{ReduceSets, Totals};
use crate::plan::family::{Facts, Family, Variant, at_most};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::fused::{
    BY_VALUE, FusedArgs, MAX_COMPONENTS, TILE, by_value, capacity, most_features, numbers, shared_bytes, values,
};
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;

/// `fused`: the E-step of few components of few features, and in float64 of diagonal covariances.
pub static FUSED: FusedFamily = FusedFamily;
pub struct FusedFamily;

/// The launch in float64: as many warps as registers hold.
pub const FLOAT64: Variant = Variant { family: &FUSED, shape: Shape::new(1, 128, 2), cached: Some(0) };

impl Family for FusedFamily {
    fn facts(&self) -> Facts {
        let about = "the E-step in one read of the data; of diagonal covariances also in float64";
        Facts { exp2_bias: true, ..Facts::complete("fused", about, &[Operation::EStep]) }
    }

    fn sizes(&self) -> String {
        let of = |full, k| format!("K ≤ {k}, D ≤ {}", most_features(full, capacity(k)));
        format!("{}; of matrices {} or {}", of(false, MAX_COMPONENTS), of(true, 8), of(true, MAX_COMPONENTS))
    }

    fn limit(&self, task: &Task, _: &Limits) -> Option<String> {
        at_most("components", MAX_COMPONENTS, task.k)
            .or_else(|| at_most("features", most_features(task.full(), capacity(task.k)), task.d))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // As many warps as registers hold, or fewer if their sums would not fit into shared memory.
        let most = if task.full() { vec![(128, 2), (64, 4)] } else { vec![(128, 3), (96, 4), (64, 6)] };
        let few = if task.is_long() { most.len() } else { 1 };
        let shared = |block: u32| self.shared_bytes(task, Shape::new(1, block, 1));
        let fitting =
            |block: u32| (1..=block / WARP).rev().map(|w| w * WARP).find(|b| shared(*b) <= limits.shared_per_block);
        let per = |block: u32, per: u32| limits.blocks_by_shared(shared(block)).clamp(1, per);
        let mut found = Vec::new();
        for &(block, most) in &most[..few] {
            let block = fitting(block).unwrap_or(WARP);
            let shape = Shape::new(1, block, per(block, most));
            if !found.contains(&shape) {
                found.push(shape);
            }
        }
        found
    }

    fn cached(&self, _: &Task, _: &Limits) -> Vec<Option<u32>> {
        // Measured on an H200: keeping part of the data in the cache gains nothing here.
        vec![Some(0)]
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        (shape.block / WARP) as usize * TILE
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        shared_bytes(task.d, task.full(), capacity(task.k), shape.block)
    }

    fn e_step(&self, gpu: &Gpu, variant: Variant, task: &Task, _same: bool) -> Result<Box<dyn EStepKernels>> {
        let (full, capacity, d) = (task.full(), capacity(task.k), task.d);
        // More registers would cost a block of each multiprocessor (measured on an H200); triangles need them.
        let max_registers = (!full).then_some(168);
        let kernel = gpu.kernel(&entries::fused(full, capacity, d), max_registers)?;
        let sums = SumsOfBlocks::new(gpu, variant, values(d, full, capacity))?;
        Ok(Box::new(Fused { kernel, full, capacity, d, variant, sums }))
    }
}

/// The sums of a launch's blocks, and the kernel that adds them up in the host's memory.
#[derive(Debug)]
pub(super) struct SumsOfBlocks {
    reduce: Kernel<ReduceSetsArgs>,
    variant: Variant,
    multiprocessors: u32,
    totals: Slots,
    partials: DeviceBuffer<f64>,
}

impl SumsOfBlocks {
    /// Prepares for launches of a variant with this many sums.
    pub fn new(gpu: &Gpu, variant: Variant, count: usize) -> Result<Self> {
        let multiprocessors = gpu.limits.multiprocessors;
        Ok(Self {
            reduce: gpu.kernel(&entries::reduce_sets(), None)?,
            variant,
            multiprocessors,
            totals: Slots::new(count)?,
            partials: allocate(count * (multiprocessors * variant.shape.per_multiprocessor) as usize)?,
        })
    }

    /// Starts the launch over `n` samples that `launch` makes for a sum of each value and block, and adds these up.
    pub fn start<'a, L: Launch + Copy + 'a>(
        &'a self,
        stream: &'a Stream,
        kernel: Kernel<L::Argument>,
        (n, shared): (usize, usize),
        launch: impl FnOnce(Numbers<'a, f64>) -> L,
    ) -> Result<Running<'a, ()>> {
        let blocks = self.variant.blocks(n, self.multiprocessors);
        let (partials, count) = (Numbers::of(&self.partials), self.totals.len());
        self.totals.clear(count);
        let grid = Grid::new(blocks, self.variant.shape.block, shared);
        let running = stream.launch(kernel, grid, launch(partials))?;
        let reduce = ReduceSets { partials, count: blocks as usize, totals: Totals::Slots(&self.totals, count) };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(count), reduce)?).borrowed())
    }

    pub fn results(&self, running: Running<'_, ()>) -> Result<Vec<f64>> {
        running.results(&self.totals, self.totals.len())
    }
}

#[derive(Debug)]
struct Fused {
    kernel: Kernel<FusedArgs>,
    full: bool,
    capacity: usize,
    d: usize,
    variant: Variant,
    sums: SumsOfBlocks,
}

impl EStepKernels for Fused {
    fn prepare(&self, workspace: &mut Workspace, layouts: &Layouts<'_>) -> Result<()> {
        let len = if by_value(self.d, self.full, self.capacity) { 0 } else { layouts.fused().len() };
        workspace.parameters.fill(len, |to| {
            if len > 0 {
                layouts.fused().write(to)
            }
        })
    }

    fn start<'a>(&'a self, work: Work<'a>, layouts: &Layouts<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, parameters, columns, .. } = work;
        let Self { kernel, full, capacity, d, variant, .. } = *self;
        let shared = shared_bytes(d, full, capacity, variant.shape.block);
        let (cached_quads, by_value) = (variant.cached_quads(d), layouts.fused().by_value());
        self.sums.start(stream, kernel, (columns.n(), shared), |partials| FusedLaunch {
            columns,
            cached_quads,
            full,
            capacity,
            by_value,
            parameters,
            partials,
        })
    }

    fn read(&self, running: Running<'_, ()>, _: &Stream, _: usize, read: &mut Read<'_>) -> Result<()> {
        read(&self.sums.results(running)?, 0.0);
        Ok(())
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        Statistics::from_centred_sums(layouts.fused().centred_sums(sums))
    }
}

#[derive(Clone, Copy)]
struct FusedLaunch<'a> {
    columns: Columns<'a>,
    cached_quads: u32,
    full: bool,
    capacity: usize,
    /// The parameters, or none if they are in memory.
    by_value: Option<[f32; BY_VALUE]>,
    parameters: Numbers<'a, f32>,
    /// A sum for each value and block.
    partials: Numbers<'a, f64>,
}

launch!(FusedLaunch<'_>, FusedArgs, "fused", |launch, grid, what| {
    let (d, full, capacity) = (launch.columns.d(), launch.full, launch.capacity);
    grid.require_shared(what, shared_bytes(d, full, capacity, grid.threads))?;
    // The kernel reads the memory only if it does not take the parameters by value.
    let parameters = if by_value(d, full, capacity) { 0 } else { numbers(d, full) * capacity };
    Ok(FusedArgs {
        columns: launch.columns.argument(launch.cached_quads),
        sample_weights: launch.columns.weights(),
        parameters: launch.parameters.read(parameters, what)?,
        by_value: launch.by_value.unwrap_or([0.0; BY_VALUE]),
        partials: launch.partials.write(values(d, full, capacity) * grid.blocks.0 as usize, what)?,
    })
});
