//! The E-step on the device: launches of the `moments` kernels.
use super::gpu::{Gpu, Kernel, failed};
use super::launch::{Columns, Lane, arg, shape};
use super::memory::allocate;
use super::whitened::Whitened;
use crate::{Error, Result};
use cust::memory::{CopyDestination, DeviceBuffer};
use gmm_kernels::direct::MAX_FEATURES;
use gmm_kernels::moments::{self, MomentsArgs};
use gmm_kernels::simt::WARP;

/// Most components that the kernels take.
const MAX_COMPONENTS: usize = 32;
/// Threads of a block; a multiple of the warp.
const BLOCK: u32 = 128;

/// Whether the kernels take so many components and features.
pub(super) fn takes(k: usize, d: usize) -> bool {
    k <= MAX_COMPONENTS && d <= MAX_FEATURES
}

/// The lanes that share a sample, of the instance for K components.
pub(super) fn lanes(k: usize) -> usize {
    if k <= 8 { 8 } else { MAX_COMPONENTS }
}

/// A kernel made ready for mixtures of one shape.
#[derive(Debug)]
pub(super) struct Moments {
    kernel: &'static Kernel,
    reduce: &'static Kernel,
    full: bool,
    pub lanes: usize,
    d: usize,
    most_blocks: u32,
    shared: usize,
    totals: DeviceBuffer<f64>,
    partials: DeviceBuffer<f64>,
}

impl Moments {
    /// The kernel for mixtures like this one. The device's context is current.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more components or features than the kernels take.
    pub fn new(gpu: &Gpu, whitened: &Whitened) -> Result<Self> {
        let ((k, d), full) = (whitened.dim(), whitened.full());
        if !takes(k, d) {
            return Err(Error::Unsupported {
                what: format!(
                    "an E-step with {k} components and {d} features (at most {MAX_COMPONENTS} and {MAX_FEATURES})"
                ),
                backend: "the CUDA backend",
                remedy: "use the device `cpu`",
            });
        }
        let lanes = lanes(k);
        let shared = moments::shared_bytes(d, full, lanes, BLOCK);
        // By registers: 168 for a diagonal, 255 for a triangle (measured on an H200).
        let (cap, resident) = if full { (None, 2) } else { (Some(168), 3) };
        let per_multiprocessor = (gpu.limits.shared_per_multiprocessor / (shared + 1024)).clamp(1, resident);
        let most_blocks = gpu.limits.multiprocessors * per_multiprocessor as u32;
        let values = moments::values(d, full, lanes);
        let kind = if full { "full" } else { "diag" };
        Ok(Self {
            kernel: gpu.kernel(&format!("moments_{kind}_k{lanes:02}_d{d:02}"), cap)?,
            reduce: gpu.kernel("batch_reduce", None)?,
            full,
            lanes,
            d,
            most_blocks,
            shared,
            totals: allocate(values)?,
            partials: allocate(values * most_blocks as usize)?,
        })
    }

    /// Runs the E-step over some samples and waits for its sums, [`moments::values`] of them.
    pub fn run(&mut self, lane: &mut Lane, columns: Columns<'_>, whitened: &Whitened) -> Result<Vec<f64>> {
        let ((k, d), full) = (whitened.dim(), whitened.full());
        if (lanes(k), d, full) != (self.lanes, self.d, self.full) || columns.d() != d {
            return Err(shape("a mixture for this kernel", vec![self.lanes, self.d], vec![lanes(k), d]));
        }
        lane.stage(moments::numbers(d, full) * self.lanes, |to| whitened.write(self.lanes, to))?;
        let warps = BLOCK / WARP;
        let blocks = (columns.n().div_ceil(moments::TILE) as u32).div_ceil(warps).min(self.most_blocks);
        let partials = self.partials.as_device_ptr().as_mut_ptr();
        let args = MomentsArgs {
            // Stream all: the parameters and partial sums are all that is worth keeping.
            columns: columns.args(0),
            sample_weights: columns.weights(),
            parameters: lane.parameters(),
            partials,
        };
        let totals = self.totals.as_device_ptr().as_mut_ptr();
        let values = self.totals.len() as u32;
        // SAFETY: the arguments of these entries: the columns are checked, all parameters were staged, there is a partial
        // sum for each value and block, and a total for each value.
        unsafe {
            lane.start(self.kernel, (blocks, 1), BLOCK, self.shared, &[arg(&args)])?;
            lane.start(self.reduce, (values, 1), WARP, 0, &[arg(&partials), arg(&blocks), arg(&totals)])?;
        }
        lane.synchronize()?;
        let mut host = vec![0.0; self.totals.len()];
        self.totals.copy_to(&mut host).map_err(failed("cuMemcpyDtoH"))?;
        Ok(host)
    }
}
