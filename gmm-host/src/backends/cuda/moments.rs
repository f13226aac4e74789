//! The E-step on the device: launches of the `moments` kernels.
use super::gpu::{Gpu, Kernel};
use super::launch::{Columns, Lane, arg, shape};
use super::memory::{Slots, allocate};
use super::whitened::Whitened;
use crate::Result;
use cust::memory::DeviceBuffer;
use gmm_kernels::estep::fused::{self as moments, FusedArgs};
use gmm_kernels::likelihood::small_k::MAX_FEATURES;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;

/// Name of these kernels together.
pub(super) const NAME: &str = "moments";
/// Most components that the kernels take.
const MAX_COMPONENTS: usize = 32;

/// The lanes that share a sample, of the instance for K components.
pub(super) fn lanes(k: usize) -> usize {
    if k <= 8 { 8 } else { MAX_COMPONENTS }
}

/// Whether there is an instance for that many components and features.
pub(super) fn takes(k: usize, d: usize) -> bool {
    k <= MAX_COMPONENTS && d <= MAX_FEATURES
}

/// A kernel made ready for mixtures of one shape.
#[derive(Debug)]
pub(super) struct Moments {
    kernel: &'static Kernel,
    reduce: &'static Kernel,
    kind: Kind,
    pub lanes: usize,
    d: usize,
    block: u32,
    most_blocks: u32,
    shared: usize,
    /// Where the sums come out, in the host's memory.
    sums: Slots,
    partials: DeviceBuffer<f64>,
}

/// The kernels of the family: what the moments are taken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Plain,
    Diag,
    Full,
}

impl Kind {
    pub fn new(whitened: &Whitened) -> Self {
        match whitened {
            w if w.full() => Self::Full,
            w if w.plain() => Self::Plain,
            _ => Self::Diag,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "raw",
            Self::Diag => "diag",
            Self::Full => "full",
        }
    }
}

impl Moments {
    /// The kernel for mixtures like this one, of a shape that [`takes`] names. The device's context is current.
    pub fn new(gpu: &Gpu, whitened: &Whitened) -> Result<Self> {
        let ((k, d), full) = (whitened.dim(), whitened.full());
        if !takes(k, d) {
            return Err(shape("a mixture for `moments`", vec![MAX_COMPONENTS, MAX_FEATURES], vec![k, d]));
        }
        let lanes = lanes(k);
        let kind = Kind::new(whitened);
        let (block, cap, resident) = match kind {
            Kind::Full => (128, None, 2),
            Kind::Diag | Kind::Plain => (128, Some(168), 3usize),
        };
        // Fewer warps where their sums would not fit into shared memory.
        let fits = |block: &u32| moments::shared_bytes(d, full, lanes, *block) <= gpu.limits.shared_per_block;
        let block = (1..=block / WARP).rev().map(|warps| warps * WARP).find(fits).unwrap_or(WARP);
        let shared = moments::shared_bytes(d, full, lanes, block);
        let per_multiprocessor = (gpu.limits.shared_per_multiprocessor / (shared + 1024)).clamp(1, resident);
        let most_blocks = gpu.limits.multiprocessors * per_multiprocessor as u32;
        let values = moments::values(d, full, lanes);
        Ok(Self {
            kernel: gpu.kernel(&format!("fused_{}_k{lanes:02}_d{d:02}", kind.name()), cap)?,
            reduce: gpu.kernel("reduce_sets", None)?,
            kind,
            lanes,
            d,
            block,
            most_blocks,
            shared,
            sums: Slots::new(values)?,
            partials: allocate(values * most_blocks as usize)?,
        })
    }

    /// Runs the E-step over some samples and waits for its sums, [`moments::values`] of them.
    pub fn run(&mut self, lane: &mut Lane, columns: Columns<'_>, whitened: &Whitened) -> Result<Vec<f64>> {
        let ((k, d), full) = (whitened.dim(), whitened.full());
        if (lanes(k), d, Kind::new(whitened)) != (self.lanes, self.d, self.kind) || columns.d() != d {
            return Err(shape("a mixture for this kernel", vec![self.lanes, self.d], vec![lanes(k), d]));
        }
        lane.stage(moments::numbers(d, full) * self.lanes, |to| whitened.write(self.lanes, to))?;
        let warps = self.block / WARP;
        let blocks = (columns.n().div_ceil(moments::TILE) as u32).div_ceil(warps).min(self.most_blocks);
        let partials = self.partials.as_device_ptr().as_mut_ptr();
        let args = FusedArgs {
            // Stream all: measured, keeping a part of the data in the cache gains nothing here.
            columns: columns.args(0),
            sample_weights: columns.weights(),
            parameters: lane.parameters(),
            partials,
        };
        let values = moments::values(d, full, self.lanes);
        self.sums.clear(values);
        let totals = self.sums.device_pointer();
        // SAFETY: the arguments of these entries: the columns are checked, all parameters were staged, there is a partial
        // sum for each value and block, and a slot for each value.
        unsafe {
            lane.start(self.kernel, (blocks, 1), self.block, self.shared, &[arg(&args)])?;
            let reduce = ReduceSetsArgs { partials, count: blocks, totals };
            lane.start(self.reduce, (values as u32, 1), WARP, 0, &[arg(&reduce)])?;
        }
        (0..values).map(|i| self.sums.wait(i, &lane.stream)).collect()
    }
}
