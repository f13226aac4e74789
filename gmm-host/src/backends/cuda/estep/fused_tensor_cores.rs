//! `fused_tensor_cores`: the E-step on the matrix units in one read of the data, for K up to 64 and
//! D up to 32.
use super::tensor_cores_layout::TensorCoresLayout;
use crate::Result;
use crate::backends::cuda::device::gpu::{Gpu, REGISTERS};
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::{BlockSums, Numbers, Output, Total, Workspace, allocate, locked, zeroed};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::slots::Slots;
use crate::backends::cuda::device::stream::{Running, Stream, finite};
use crate::backends::cuda::device::{check_suffices, mismatch};
use crate::backends::cuda::plan::Variant;
use cust::memory::{DeviceBuffer, LockedBuffer};
use gmm_kernels::entries;
use gmm_kernels::estep::fused_tensor_cores::{BY_VALUE, FusedTensorCoresArgs, Shape, unit};
use std::cell::RefCell;

/// A kernel made ready for mixtures of one shape.
#[derive(Debug)]
pub struct FusedTensorCores {
    kernel: Kernel<FusedTensorCoresArgs>,
    shape: Shape,
    variant: Variant,
    multiprocessors: u32,
    results: Results,
    /// The sums as integers, which are zeros between launches.
    integers: DeviceBuffer<u64>,
    /// The log-likelihood of each block.
    block_sums: BlockSums,
}

/// Most results that the host reads where the kernel writes them. Many arrive sooner by one copy
/// behind the kernel.
const MOST_SLOTS: usize = 512;

/// Where the log-likelihood and behind it the sums are written.
#[derive(Debug)]
enum Results {
    /// To the host's memory.
    Slots(Slots),
    /// To the device's memory, from where they are copied to page-locked memory.
    Copied { device: DeviceBuffer<f64>, host: RefCell<LockedBuffer<f64>> },
}

impl Results {
    fn new(count: usize) -> Result<Self> {
        if count <= MOST_SLOTS {
            return Slots::new(count).map(Self::Slots);
        }
        Ok(Self::Copied { device: allocate(count)?, host: locked(count)?.into() })
    }

    fn len(&self) -> usize {
        match self {
            Self::Slots(slots) => slots.len(),
            Self::Copied { device, .. } => device.len(),
        }
    }

    /// Their place on the device.
    fn pointer(&self) -> *mut f64 {
        match self {
            Self::Slots(slots) => slots.device_pointer(),
            Self::Copied { device, .. } => Numbers::of(device).pointer_mut(),
        }
    }

    /// The place of the log-likelihood.
    fn total(&self) -> Total<'_> {
        match self {
            Self::Slots(slots) => Total::Slot(slots),
            Self::Copied { device, .. } => Total::Device(Numbers::of(device)),
        }
    }
}

impl FusedTensorCores {
    /// The kernel for mixtures of a shape. The device's context is current.
    pub fn new(gpu: &Gpu, shape: Shape, variant: Variant) -> Result<Self> {
        // As many as let the variant's blocks share a multiprocessor.
        let registers = REGISTERS / (variant.block * variant.per_multiprocessor) / 8 * 8;
        let most_blocks = gpu.limits.multiprocessors * variant.per_multiprocessor;
        Ok(Self {
            kernel: gpu.kernel(&entries::fused_tensor_cores(shape), Some(registers.min(255)))?,
            shape,
            variant,
            multiprocessors: gpu.limits.multiprocessors,
            results: Results::new(1 + shape.sums())?,
            integers: zeroed(shape.sums())?,
            block_sums: BlockSums::new(most_blocks as usize)?,
        })
    }

    /// Waits for the E-step that was started last, and gives its log-likelihood and behind it the
    /// sums.
    pub fn results(&self, running: Running<'_, ()>, stream: &Stream) -> Result<Vec<f64>> {
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

    /// Writes the parameters of a mixture for the launches of a workspace, unless they are passed
    /// by value.
    pub fn prepare(&self, workspace: &mut Workspace, layout: &TensorCoresLayout) -> Result<()> {
        if layout.fused_shape() != Some(self.shape) {
            let got = vec![layout.dim().0, layout.dim().1];
            let needed = vec![self.shape.capacity(), self.shape.features()];
            return Err(mismatch("a mixture for `fused_tensor_cores`", needed, got));
        }
        let len = if self.shape.by_value() { 0 } else { self.shape.numbers() };
        workspace.parameters.fill(len, |to| {
            if len > 0 {
                layout.write_fused(self.shape, to)
            }
        })
    }

    /// Starts the E-step over some samples; [`results`](Self::results) gives what it finds.
    pub fn start<'a>(
        &'a self,
        stream: &'a Stream,
        layout: &TensorCoresLayout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        weighted: bool,
    ) -> Result<Running<'a, ()>> {
        let blocks = self.variant.blocks_of(columns.n(), self.shape.round(), self.multiprocessors);
        let launch = FusedLaunch {
            columns,
            cached_quads: self.variant.cached_quads(columns.d()),
            shape: self.shape,
            weighted,
            by_value: layout.fused_by_value(self.shape),
            parameters,
            integers: Numbers::of(&self.integers),
            results: &self.results,
            output: Output { blocks: &self.block_sums, total: self.results.total() },
        };
        if let Results::Slots(slots) = &self.results {
            slots.clear(slots.len());
        }
        let grid = Grid::new(blocks, self.variant.block, self.shape.shared_bytes(self.variant.block));
        Ok(stream.launch(self.kernel, grid, launch)?.borrowed())
    }
}

/// A launch that leaves the sums of all blocks.
#[derive(Clone, Copy)]
struct FusedLaunch<'a> {
    columns: Columns<'a>,
    cached_quads: u32,
    shape: Shape,
    weighted: bool,
    /// The parameters, or none where they are in memory.
    by_value: Option<[f32; BY_VALUE]>,
    parameters: Numbers<'a, f32>,
    /// An integer for each sum, zero now.
    integers: Numbers<'a, u64>,
    /// A place for the log-likelihood, and one for each sum.
    results: &'a Results,
    output: Output<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Output` checks its own;
// features, parameters, places of the sums and shared memory are checked here.
unsafe impl Launch for FusedLaunch<'_> {
    type Argument = FusedTensorCoresArgs;

    fn argument(&self, grid: &Grid) -> Result<FusedTensorCoresArgs> {
        let (shape, d) = (self.shape, self.columns.d());
        // The kernel reads the memory only where it does not take the parameters by value.
        let parameters = if shape.by_value() { 0 } else { shape.numbers() };
        let needed = vec![parameters, shape.sums(), 1 + shape.sums(), shape.shared_bytes(grid.threads), d];
        let got = vec![self.parameters.len(), self.integers.len(), self.results.len(), grid.shared, shape.features()];
        check_suffices("a launch of `fused_tensor_cores`", needed, got)?;
        Ok(FusedTensorCoresArgs {
            columns: self.columns.argument(self.cached_quads),
            d: d as u32,
            sample_weights: if self.weighted { self.columns.weights() } else { std::ptr::null() },
            parameters: self.parameters.pointer(),
            by_value: self.by_value.unwrap_or([0.0; BY_VALUE]),
            integers: self.integers.pointer_mut(),
            unit: unit(self.columns.n() as u64),
            sums: self.results.pointer().wrapping_add(1),
            output: self.output.argument(grid.blocks.0)?,
        })
    }
}
