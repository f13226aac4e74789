//! `fused_mma` and `expanded_mma`: the E-step on the tensor cores in one read of the data, for few enough components
//! and features that a block's warps hold all sums in their registers.
use super::launch::{EStepKernels, Read, Work};
use super::layouts::Layouts;
use super::products_shapes::{Expanded, loses_digits};
use super::sums::Sums;
use crate::device::gpu::{Gpu, Limits, REGISTERS};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, allocate, copied, locked, zeroed};
use crate::device::samples::Columns;
use crate::device::slots::Slots;
use crate::device::stream::{Running, Stream, finite};
use crate::device::workspace::{BlockSums, Output, Total, Workspace};
use crate::device::{mismatch, require};
use crate::plan::family::{Facts, Family, Unit, Variant, no_room};
use crate::plan::task::{Multiplies, Operation, Shape, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::{DeviceBuffer, LockedBuffer};
use gmm_kernels::entries;
use gmm_kernels::estep::fused_mma::{
    BY_VALUE, COMPONENTS_OF_WARP_GAPS, FEATURES_OF_WARP, FusedMmaArgs, FusedShape, MAX_COMPONENTS, MAX_COMPONENTS_FULL,
    MAX_COMPONENTS_WIDE, MAX_FEATURES, MAX_FEATURES_EXPANDED, MAX_FEATURES_FULL, ROW, STEP, unit,
};
use gmm_kernels::simt::WARP;
use std::cell::RefCell;
use std::iter;

/// `fused_mma`: the E-step of few components on the tensor cores, in one read of the data.
pub static FUSED_MMA: FusedMmaFamily = FusedMmaFamily { expanded: false };
/// `expanded_mma`: the same for few features, from all products of two.
pub static EXPANDED_MMA: FusedMmaFamily = FusedMmaFamily { expanded: true };
pub struct FusedMmaFamily {
    /// Whether the exponents of matrices are expanded into products.
    expanded: bool,
}

/// Returns the threads of a block whose sums fit into a multiprocessor's registers.
fn most_threads(shape: FusedShape) -> u32 {
    match shape.components {
        _ if shape.rotations > 0 => 384,
        _ if shape.expanded > 0 => shape.most_warps() as u32 * WARP,
        1 if shape.gaps => 384,
        1 | 2 if !shape.gaps => 512,
        _ => 256,
    }
}

impl FusedMmaFamily {
    fn instance(&self, task: &Task) -> Option<FusedShape> {
        match self.expanded {
            true if task.gaps => None,
            true => Expanded::of(task.full(), task.is_linear()).shape(task.k, task.d),
            false => FusedShape::new(task.k, task.d, task.full(), task.gaps),
        }
    }
}

impl Family for FusedMmaFamily {
    fn facts(&self) -> Facts {
        let (name, about) = match self.expanded {
            true => (
                "expanded_mma",
                "the E-step in one read of the data, on the tensor cores, from products of two features",
            ),
            false => ("fused_mma", "the E-step in one read of the data, on the tensor cores"),
        };
        let complete = Facts::complete(name, about, &[Operation::EStep]);
        Facts { unit: Unit::Mma, gaps: !self.expanded, linear: true, exp2_bias: true, ..complete }
    }

    fn sizes(&self) -> String {
        if self.expanded {
            let most = |d: usize| (1..).take_while(|k| Expanded::All.shape(*k, d).is_some()).count();
            let sizes = [4, 8, 13, MAX_FEATURES_EXPANDED].map(|d| format!("K ≤ {} of D ≤ {d}", most(d)));
            return format!("{}, and between (full)", sizes.join(", "));
        }
        format!(
            "K ≤ {MAX_COMPONENTS_WIDE} of D ≤ {FEATURES_OF_WARP}, K ≤ {COMPONENTS_OF_WARP_GAPS} of D ≤ {MAX_FEATURES}, \
             and between (complete samples of D ≤ {STEP}: K ≤ {MAX_COMPONENTS}); full K ≤ {MAX_COMPONENTS_FULL}, \
             D ≤ {MAX_FEATURES_FULL}"
        )
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let Task { k, d, .. } = *task;
        if self.instance(task).is_none() {
            return Some(format!("takes {}, not {k} components of {d} features", self.sizes()));
        }
        loses_digits(task, self.on_tensor_cores(task.full()))
            .or_else(|| no_room(task, |task| !self.shapes(task, limits).is_empty()))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        let Some(shape) = self.instance(task) else { return Vec::new() };
        // As many teams as registers and shared memory hold sums for.
        let team = shape.team.warps() * WARP;
        let fits = |block: &u32| shape.shared_bytes(*block) <= limits.shared_per_block;
        let block = (1..=most_threads(shape) / team).rev().map(|teams| teams * team).find(fits);
        block.map(|block| Shape::new(1, block, 1)).into_iter().collect()
    }

    fn cached(&self, _: &Task, _: &Limits) -> Vec<Option<u32>> {
        // Measured on an H200: keeping part of the data in the cache gains nothing here.
        vec![Some(0)]
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        self.instance(task).map_or(usize::MAX, |instance| instance.shared_bytes(shape.block))
    }

    fn on_tensor_cores(&self, full: bool) -> Option<Multiplies> {
        Some(if full && !self.expanded { Multiplies::Features } else { Multiplies::Products })
    }

    fn e_step(&self, gpu: &Gpu, variant: Variant, task: &Task, _same: bool) -> Result<Box<dyn EStepKernels>> {
        let shape = self.instance(task);
        let shape = shape.ok_or_else(|| mismatch("a task of `fused_mma`", vec![], vec![task.k, task.d]))?;
        let multiplies = self.on_tensor_cores(task.full()).unwrap_or(Multiplies::Products);
        Ok(Box::new(FusedMma::new(gpu, shape, multiplies, variant, task)?))
    }
}

#[derive(Debug)]
pub struct FusedMma {
    kernel: Kernel<FusedMmaArgs>,
    shape: FusedShape,
    multiplies: Multiplies,
    variant: Variant,
    weighted: bool,
    multiprocessors: u32,
    /// The rows of each product of expanded exponents.
    pairs: Option<DeviceBuffer<u32>>,
    results: Results,
    /// The sums as integers, which are zero between launches.
    integers: DeviceBuffer<u64>,
    block_sums: BlockSums,
}

/// The most results that the host reads where the kernel writes them. More arrive sooner by one copy after the kernel.
const MOST_SLOTS: usize = 512;

/// The place of the log-likelihood, followed by the sums.
#[derive(Debug)]
enum Results {
    /// In the host's memory.
    Slots(Slots),
    /// In the device's memory, to be copied to page-locked memory.
    Copied { device: DeviceBuffer<f64>, host: RefCell<LockedBuffer<f64>> },
}

impl Results {
    fn new(count: usize) -> Result<Self> {
        if count <= MOST_SLOTS {
            return Slots::new(count).map(Self::Slots);
        }
        Ok(Self::Copied { device: allocate(count)?, host: locked(count)?.into() })
    }

    fn write(&self, len: usize, what: &'static str) -> Result<*mut f64> {
        match self {
            Self::Slots(slots) => slots.write(len, what),
            Self::Copied { device, .. } => Numbers::of(device).write(len, what),
        }
    }

    fn total(&self) -> Total<'_> {
        match self {
            Self::Slots(slots) => Total::Slot(slots),
            Self::Copied { device, .. } => Total::Device(Numbers::of(device)),
        }
    }
}

impl FusedMma {
    /// Makes the kernel for mixtures of a task and its shape. The device's context is current.
    fn new(gpu: &Gpu, shape: FusedShape, multiplies: Multiplies, variant: Variant, task: &Task) -> Result<Self> {
        let pairs = (shape.expanded > 0).then(|| {
            // Products behind the last have coefficients of zero.
            let pairs = Expanded::of(task.full(), task.is_linear()).pairs(task.d).chain(iter::repeat((task.d, task.d)));
            let pairs = pairs.take(shape.products()).map(|(i, j)| ((i * ROW) | ((j * ROW) << 16)) as u32);
            copied(&pairs.collect::<Vec<_>>())
        });
        // As many as the largest block has for each thread: one kernel for all sizes of teams.
        let registers = REGISTERS / most_threads(shape) / 8 * 8;
        let most_blocks = gpu.limits.multiprocessors * variant.shape.per_multiprocessor;
        Ok(Self {
            kernel: gpu.kernel(&entries::fused_mma(shape), Some(registers.min(255)))?,
            shape,
            multiplies,
            variant,
            weighted: task.weighted,
            multiprocessors: gpu.limits.multiprocessors,
            pairs: pairs.transpose()?,
            results: Results::new(1 + shape.sums())?,
            integers: zeroed(shape.sums())?,
            block_sums: BlockSums::new(most_blocks as usize)?,
        })
    }

    /// Waits for the E-step started last, and returns its log-likelihood followed by the sums.
    fn results(&self, running: Running<'_, ()>, stream: &Stream) -> Result<Vec<f64>> {
        match &self.results {
            Results::Slots(slots) => running.results(slots, slots.len()),
            Results::Copied { device, host } => {
                let mut host = host.borrow_mut();
                stream.read(device, &mut host)?;
                running.wait()?;
                finite(host.to_vec())
            }
        }
    }
}

impl EStepKernels for FusedMma {
    fn prepare(&self, workspace: &mut Workspace, layouts: &Layouts<'_>) -> Result<()> {
        let len = if self.shape.by_value() { 0 } else { self.shape.numbers() };
        workspace.parameters.fill(len, |to| {
            if len > 0 {
                layouts.tensor_cores(self.multiplies).write_fused(self.shape, to)
            }
        })
    }

    fn start<'a>(&'a self, work: Work<'a>, layouts: &Layouts<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, parameters, columns, .. } = work;
        let teams = self.variant.shape.block / WARP / self.shape.team.warps();
        let blocks = self.variant.most_blocks(columns.n(), teams as usize * self.shape.round(), self.multiprocessors);
        let launch = FusedLaunch {
            columns,
            cached_quads: self.variant.cached_quads(columns.d()),
            shape: self.shape,
            weighted: self.weighted,
            by_value: layouts.tensor_cores(self.multiplies).fused_by_value(self.shape),
            parameters,
            pairs: self.pairs.as_ref().map(Numbers::of),
            integers: Numbers::of(&self.integers),
            results: &self.results,
            output: Output { blocks: &self.block_sums, total: self.results.total() },
        };
        if let Results::Slots(slots) = &self.results {
            slots.clear(slots.len());
        }
        let grid = Grid::new(blocks, self.variant.shape.block, self.shape.shared_bytes(self.variant.shape.block));
        Ok(stream.launch(self.kernel, grid, launch)?.borrowed())
    }

    fn read(&self, running: Running<'_, ()>, stream: &Stream, _: usize, read: &mut Read<'_>) -> Result<()> {
        read(&self.results(running, stream)?, 0.0);
        Ok(())
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(self.multiplies).fused_statistics(self.shape, sums)
    }
}

#[derive(Clone, Copy)]
struct FusedLaunch<'a> {
    columns: Columns<'a>,
    cached_quads: u32,
    shape: FusedShape,
    weighted: bool,
    /// The parameters, or none if they are in memory.
    by_value: Option<[f32; BY_VALUE]>,
    parameters: Numbers<'a, f32>,
    pairs: Option<Numbers<'a, u32>>,
    /// An integer for each sum, zero before the launch.
    integers: Numbers<'a, u64>,
    /// A place for the log-likelihood, and one for each sum.
    results: &'a Results,
    output: Output<'a>,
}

launch!(FusedLaunch<'_>, FusedMmaArgs, "fused_mma", |launch, grid, what| {
    let (shape, d) = (launch.shape, launch.columns.d());
    let whole_teams = grid.threads.is_multiple_of(shape.team.warps() * WARP);
    require(what, d <= shape.features() && whole_teams)?;
    grid.require_shared(what, shape.shared_bytes(grid.threads))?;
    // The kernel reads the memory only if it does not take the parameters by value.
    let parameters = if shape.by_value() { 0 } else { shape.numbers() };
    Ok(FusedMmaArgs {
        columns: launch.columns.argument(launch.cached_quads),
        d: d as u32,
        team: shape.team,
        sample_weights: launch.columns.weights_if(launch.weighted),
        parameters: launch.parameters.read(parameters, what)?,
        by_value: launch.by_value.unwrap_or([0.0; BY_VALUE]),
        pairs: Numbers::read_if(launch.pairs, shape.products(), what)?,
        integers: launch.integers.write(shape.sums(), what)?,
        unit: unit(launch.columns.n() as u64),
        sums: launch.results.write(1 + shape.sums(), what)?.wrapping_add(1),
        output: launch.output.argument(grid.blocks.0)?,
    })
});
