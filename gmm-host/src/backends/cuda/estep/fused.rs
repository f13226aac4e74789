//! `fused`: the E-step in one read of the data, for K up to 32 and D up to 16.
use super::fused_layout::FusedLayout;
use super::launch::{EStepKernels, Layout, Wanted};
use super::sums::Sums;
use crate::backends::cuda::device::gpu::{Gpu, Limits};
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::slots::Slots;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::Workspace;
use crate::backends::cuda::likelihood::{ReduceSets, Totals};
use crate::backends::cuda::plan::family::{Family, Takes, Variant, at_most};
use crate::backends::cuda::plan::task::{Operation, Shape, Task};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::precision::Precision;
use crate::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::fused::{
    BY_VALUE, FusedArgs, MAX_COMPONENTS, Moments, TILE, by_value, capacity, numbers, shared_bytes, values,
};
use gmm_kernels::estep::fused64;
use gmm_kernels::likelihood::small_k::MAX_FEATURES;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;
use std::sync::Arc;

/// `fused`: the E-step of few components of few features, and in float64 of diagonal covariances.
pub static FUSED: FusedFamily = FusedFamily;
pub struct FusedFamily;

/// The launch in float64: as many warps as registers hold.
pub const FLOAT64: Variant = Variant { family: &FUSED, shape: Shape::new(1, 128, 2), cached: Some(0) };

/// Which moments a task's kernel sums.
fn moments(task: &Task) -> Moments {
    match (task.full, task.central) {
        (true, _) => Moments::Full,
        (false, true) => Moments::Diag,
        (false, false) => Moments::Raw,
    }
}

impl Family for FusedFamily {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn about(&self) -> &'static str {
        "the E-step in one read of the data; of diagonal covariances also in float64"
    }

    fn sizes(&self) -> String {
        format!("K ≤ {MAX_COMPONENTS}, D ≤ {MAX_FEATURES}")
    }

    fn takes(&self) -> Takes {
        Takes::complete(&[Operation::EStep])
    }

    fn limit(&self, task: &Task, _: &Limits) -> Option<String> {
        at_most("features", MAX_FEATURES, task.d).or_else(|| at_most("components", MAX_COMPONENTS, task.k))
    }

    fn takes_float64(&self, task: &Task) -> bool {
        task.operation == Operation::EStep && !task.full
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        if task.precision == Precision::Float64 {
            return vec![FLOAT64.shape];
        }
        // As many warps as registers hold, and fewer where the sums of all would not fit into
        // shared memory.
        let most = if task.full { vec![(128, 2), (64, 4)] } else { vec![(128, 3), (96, 4), (64, 6)] };
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
        // Measured on an H200: keeping a part of the data in the cache gains nothing here.
        vec![Some(0)]
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        (shape.block / WARP) as usize * TILE
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        if task.precision == Precision::Float64 {
            return fused64::shared_bytes(fused64::features(task.d), fused64::capacity(task.k), shape.block);
        }
        shared_bytes(task.d, task.full, capacity(task.k), shape.block)
    }

    fn entries(&self, task: &Task, _: Shape) -> Vec<String> {
        let Task { k, d, .. } = *task;
        if task.precision == Precision::Float64 {
            return vec![entries::fused64(fused64::capacity(k), fused64::features(d)).name().into()];
        }
        vec![entries::fused(moments(task), capacity(k), d).name().into()]
    }

    fn has_exp2_bias(&self) -> bool {
        true
    }

    fn layout(&self, mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, _: &Frame) -> Option<Layout> {
        Some(Layout::Fused(FusedLayout::new(mixture.covariance_type(), parameters.as_ref().clone())))
    }

    fn e_step(
        &self,
        gpu: &Gpu,
        layout: &Layout,
        variant: Variant,
        task: &Task,
        _same: bool,
    ) -> Result<Box<dyn EStepKernels>> {
        Ok(Box::new(Fused::new(gpu, layout.fused()?, variant, task)?))
    }
}

/// A kernel made ready for mixtures of one shape.
#[derive(Debug)]
pub struct Fused {
    kernel: Kernel<FusedArgs>,
    reduce: Kernel<ReduceSetsArgs>,
    moments: Moments,
    capacity: usize,
    d: usize,
    variant: Variant,
    multiprocessors: u32,
    /// Where the sums are written, in the host's memory.
    sums: Slots,
    partials: DeviceBuffer<f64>,
}

impl Fused {
    /// The kernel for mixtures like this one. The device's context is current.
    pub fn new(gpu: &Gpu, layout: &FusedLayout, variant: Variant, task: &Task) -> Result<Self> {
        let (moments, capacity, d) = (layout.moments(), layout.capacity(), task.d);
        // More registers would cost a block of each multiprocessor (measured on an H200); triangles
        // need them.
        let max_registers = (!moments.full()).then_some(168);
        let values = values(d, moments.full(), capacity);
        let most_blocks = gpu.limits.multiprocessors * variant.shape.per_multiprocessor;
        Ok(Self {
            kernel: gpu.kernel(&entries::fused(moments, capacity, d), max_registers)?,
            reduce: gpu.kernel(&entries::reduce_sets(), None)?,
            moments,
            capacity,
            d,
            variant,
            multiprocessors: gpu.limits.multiprocessors,
            sums: Slots::new(values)?,
            partials: allocate(values * most_blocks as usize)?,
        })
    }

    /// How many sums a launch gives.
    fn values(&self) -> usize {
        values(self.d, self.moments.full(), self.capacity)
    }
}

impl EStepKernels for Fused {
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()> {
        let layout = layout.fused()?;
        let got = (layout.moments(), layout.capacity(), layout.n_features());
        if got != (self.moments, self.capacity, self.d) {
            return Err(mismatch("a mixture for `fused`", vec![self.capacity, self.d], vec![got.1, got.2]));
        }
        let full = self.moments.full();
        let len = if by_value(self.d, full, self.capacity) { 0 } else { numbers(self.d, full) * self.capacity };
        workspace.parameters.fill(len, |to| {
            if len > 0 {
                layout.write(to)
            }
        })
    }

    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        layout: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        _: Wanted,
    ) -> Result<Running<'a, ()>> {
        let blocks = self.variant.blocks(columns.n(), self.multiprocessors);
        let (partials, values) = (Numbers::of(&self.partials), self.values());
        let shared = shared_bytes(self.d, self.moments.full(), self.capacity, self.variant.shape.block);
        let cached_quads = self.variant.cached_quads(self.d);
        let (moments, capacity, by_value) = (self.moments, self.capacity, layout.fused()?.by_value());
        let launch = FusedLaunch { columns, cached_quads, moments, capacity, by_value, parameters, partials };
        self.sums.clear(values);
        let running = stream.launch(self.kernel, Grid::new(blocks, self.variant.shape.block, shared), launch)?;
        let totals = Totals::Slots(&self.sums, values);
        let reduce = ReduceSets { partials, count: blocks as usize, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(values), reduce)?).borrowed())
    }

    fn read(&self, running: Running<'_, ()>, _: &Stream, _: usize, read: &mut dyn FnMut(&[f64], f64)) -> Result<()> {
        read(&running.results(&self.sums, self.values())?, 0.0);
        Ok(())
    }

    fn needs_exp2_bias(&self) -> bool {
        true
    }

    fn statistics(&self, layout: &Layout, sums: &Sums<'_>) -> Result<Statistics> {
        Statistics::from_centred_sums(layout.fused()?.centred_sums(sums))
    }
}

/// A launch that leaves each block's sums.
#[derive(Clone, Copy)]
struct FusedLaunch<'a> {
    columns: Columns<'a>,
    cached_quads: u32,
    moments: Moments,
    capacity: usize,
    /// The parameters, or none where they are in memory.
    by_value: Option<[f32; BY_VALUE]>,
    parameters: Numbers<'a, f32>,
    /// A sum for each value and block.
    partials: Numbers<'a, f64>,
}

launch!(FusedLaunch<'_>, FusedArgs, "fused", |launch, grid, what| {
    let (d, full, capacity) = (launch.columns.d(), launch.moments.full(), launch.capacity);
    grid.require_shared(what, shared_bytes(d, full, capacity, grid.threads))?;
    // The kernel reads the memory only where it does not take the parameters by value.
    let parameters = if by_value(d, full, capacity) { 0 } else { numbers(d, full) * capacity };
    Ok(FusedArgs {
        columns: launch.columns.argument(launch.cached_quads),
        sample_weights: launch.columns.weights(),
        parameters: launch.parameters.read(parameters, what)?,
        by_value: launch.by_value.unwrap_or([0.0; BY_VALUE]),
        partials: launch.partials.write(values(d, full, capacity) * grid.blocks.0 as usize, what)?,
    })
});
