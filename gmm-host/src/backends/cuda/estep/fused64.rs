//! `fused64`: the E-step in float64 in one read of the data, for diagonal covariances, K up to 32
//! and D up to 16.
use super::fused::FLOAT64;
use super::fused64_layout::Fused64Layout;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::require;
use crate::backends::cuda::device::samples::{Chunk, Columns, DeviceSamples};
use crate::backends::cuda::device::slots::Slots;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::Upload;
use crate::backends::cuda::likelihood::{ReduceSets, Totals};
use crate::backends::cuda::plan::family::Variant;
use crate::backends::device_parameters::{Deviations, DeviceParameters};
use crate::error::Result;
use crate::evaluator::check_features;
use crate::model::mixture::Mixture;
use crate::statistics::CentredSums;
use gmm_driver::DeviceBuffer;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::fused64::{Fused64Args, MAX_COMPONENTS, MAX_FEATURES, numbers, shared_bytes, values};
use gmm_kernels::reduce::sets::ReduceSetsArgs;

/// A kernel made ready for mixtures of one shape.
#[derive(Debug)]
pub struct Fused64 {
    kernel: Kernel<Fused64Args>,
    reduce: Kernel<ReduceSetsArgs>,
    /// Components and features of the instance.
    instance: (usize, usize),
    variant: Variant,
    multiprocessors: u32,
    parameters: Upload<f64>,
    /// Where the sums are written, in the host's memory.
    sums: Slots,
    partials: DeviceBuffer<f64>,
}

impl Fused64 {
    /// Whether the kernels can make a mixture's E-step. (Those of full and tied covariances have
    /// too many sums for registers.)
    pub fn takes(mixture: &Mixture) -> bool {
        let (k, d) = mixture.means().dim();
        mixture.factor().is_none() && k <= MAX_COMPONENTS && d <= MAX_FEATURES
    }

    /// The sums of a mixture that the kernels take, and the variant that they were computed with.
    /// `kernel` is that of the E-step before, and is replaced where it does not fit. The device's
    /// context is current.
    pub fn centred_sums(
        kernel: &mut Option<Self>,
        data: &DeviceSamples<f64>,
        mixture: &Mixture,
    ) -> Result<(Variant, CentredSums)> {
        check_features(mixture, data.d())?;
        let parameters = DeviceParameters::<f64>::new(mixture, data.frame(), Deviations::InFrame)?;
        let layout = Fused64Layout::new(mixture.covariance_type(), parameters);
        let ready = match kernel.take() {
            Some(ready) if ready.instance == layout.instance() => ready,
            _ => Self::new(data.gpu(), &layout)?,
        };
        let ready = kernel.insert(ready);
        ready.parameters.fill(layout.len(), |to| layout.write(to))?;
        let ready = &*ready;
        let mut sums = vec![0.0; ready.sums.len()];
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let started = started.followed_by(ready.parameters.send(&pass.stream)?);
                Ok(started.followed_by(ready.start(&pass.stream, columns)?))
            },
            |running| {
                let chunk = running.results(&ready.sums, ready.sums.len())?;
                sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v);
                Ok(())
            },
        )?;
        let scale = data.weight_scale();
        sums.iter_mut().for_each(|sum| *sum *= scale);
        Ok((ready.variant, layout.centred_sums(&sums, data.total_weight(), data.frame())))
    }

    fn new(gpu: &Gpu, layout: &Fused64Layout) -> Result<Self> {
        let (capacity, features) = layout.instance();
        let variant = FLOAT64;
        let values = values(features, capacity);
        let most_blocks = gpu.limits.multiprocessors * variant.shape.per_multiprocessor;
        Ok(Self {
            kernel: gpu.kernel(&entries::fused64(capacity, features), None)?,
            reduce: gpu.kernel(&entries::reduce_sets(), None)?,
            instance: (capacity, features),
            variant,
            multiprocessors: gpu.limits.multiprocessors,
            parameters: Upload::new()?,
            sums: Slots::new(values)?,
            partials: allocate(values * most_blocks as usize)?,
        })
    }

    /// Starts the E-step over some samples; its sums are written to the slots.
    fn start<'a>(&'a self, stream: &'a Stream, columns: Columns<'a, f64>) -> Result<Running<'a, ()>> {
        let (capacity, features) = self.instance;
        let blocks = self.variant.blocks(columns.n(), self.multiprocessors);
        let (partials, values) = (Numbers::of(&self.partials), self.sums.len());
        let grid =
            Grid::new(blocks, self.variant.shape.block, shared_bytes(features, capacity, self.variant.shape.block));
        let launch = Fused64Launch { columns, instance: self.instance, parameters: self.parameters.device(), partials };
        self.sums.clear(values);
        let running = stream.launch(self.kernel, grid, launch)?;
        let reduce = ReduceSets { partials, count: blocks as usize, totals: Totals::Slots(&self.sums, values) };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(values), reduce)?).borrowed())
    }
}

/// A launch that leaves each block's sums.
#[derive(Clone, Copy)]
struct Fused64Launch<'a> {
    columns: Columns<'a, f64>,
    instance: (usize, usize),
    parameters: Numbers<'a, f64>,
    /// A sum for each value and block.
    partials: Numbers<'a, f64>,
}

// The columns' stride is a multiple of a quad.
launch!(Fused64Launch<'_>, Fused64Args, "fused64", |launch, grid, what| {
    let ((capacity, features), columns) = (launch.instance, &launch.columns);
    require(what, columns.d() <= features && columns.stride() >= columns.n().next_multiple_of(QUAD))?;
    grid.require_shared(what, shared_bytes(features, capacity, grid.threads))?;
    Ok(Fused64Args {
        x: columns.x(),
        stride: columns.stride() as u64,
        n: columns.n() as u64,
        d: columns.d() as u32,
        sample_weights: columns.weights(),
        parameters: launch.parameters.read(numbers(features) * capacity, what)?,
        partials: launch.partials.write(values(features, capacity) * grid.blocks.0 as usize, what)?,
    })
});
