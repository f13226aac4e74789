//! `fused`: the E-step in one read of the data, for K up to 32 and D up to 16.
use super::fused_layout::FusedLayout;
use crate::Result;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::{Numbers, Workspace, allocate};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::slots::Slots;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::{check_suffices, mismatch};
use crate::backends::cuda::likelihood::{ReduceSets, Totals};
use crate::backends::cuda::plan::{Task, Variant};
use cust::memory::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::fused::{BY_VALUE, FusedArgs, Moments, by_value, numbers, shared_bytes, values};
use gmm_kernels::reduce::sets::ReduceSetsArgs;

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
        let most_blocks = gpu.limits.multiprocessors * variant.per_multiprocessor;
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
    pub fn values(&self) -> usize {
        values(self.d, self.moments.full(), self.capacity)
    }

    /// Where they are written, in the host's memory.
    pub fn sums(&self) -> &Slots {
        &self.sums
    }

    /// Writes the parameters of a mixture for the launches of a workspace, unless they are passed
    /// by value.
    pub fn prepare(&self, workspace: &mut Workspace, layout: &FusedLayout) -> Result<()> {
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

    /// Starts the E-step over some samples; its sums are written to [`sums`](Self::sums).
    pub fn start<'a>(
        &'a self,
        stream: &'a Stream,
        layout: &FusedLayout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
    ) -> Result<Running<'a, ()>> {
        let blocks = self.variant.blocks(columns.n(), self.multiprocessors);
        let (partials, values) = (Numbers::of(&self.partials), self.values());
        let shared = shared_bytes(self.d, self.moments.full(), self.capacity, self.variant.block);
        let cached_quads = self.variant.cached_quads(self.d);
        let (moments, capacity, by_value) = (self.moments, self.capacity, layout.by_value());
        let launch = FusedLaunch { columns, cached_quads, moments, capacity, by_value, parameters, partials };
        self.sums.clear(values);
        let running = stream.launch(self.kernel, Grid::new(blocks, self.variant.block, shared), launch)?;
        let totals = Totals::Slots(&self.sums, values);
        let reduce = ReduceSets { partials, count: blocks as usize, totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(values), reduce)?).borrowed())
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

// SAFETY: the columns' lengths were checked when they were made; parameters, partial sums and
// shared memory are checked here.
unsafe impl Launch for FusedLaunch<'_> {
    type Argument = FusedArgs;

    fn argument(&self, grid: &Grid) -> Result<FusedArgs> {
        let (d, full, capacity) = (self.columns.d(), self.moments.full(), self.capacity);
        let partials = values(d, full, capacity) * grid.blocks.0 as usize;
        // The kernel reads the memory only where it does not take the parameters by value.
        let parameters = if by_value(d, full, capacity) { 0 } else { numbers(d, full) * capacity };
        let needed = vec![parameters, partials, shared_bytes(d, full, capacity, grid.threads)];
        let got = vec![self.parameters.len(), self.partials.len(), grid.shared];
        check_suffices("a launch of `fused`", needed, got)?;
        Ok(FusedArgs {
            columns: self.columns.argument(self.cached_quads),
            sample_weights: self.columns.weights(),
            parameters: self.parameters.pointer(),
            by_value: self.by_value.unwrap_or([0.0; BY_VALUE]),
            partials: self.partials.pointer_mut(),
        })
    }
}
