//! `fused64`: the E-step in float64 in one read of the data, for diagonal covariances, K up to 32 and D up to 16.
use super::fused::{FLOAT64, SumsOfBlocks};
use super::fused_layout::FusedLayout;
use super::sums::Sums;
use crate::device::gpu::Gpu;
use crate::device::kernel::Kernel;
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::samples::{Chunk, Columns, DeviceSamples};
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Upload;
use crate::plan::family::Variant;
use gmm_core::backends::device_parameters::{Deviations, DeviceParameters};
use gmm_core::contract::evaluator::check_features;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::CentredSums;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::fused64::{Fused64Args, MAX_COMPONENTS, MAX_FEATURES, numbers, shared_bytes, values};

#[derive(Debug)]
pub struct Fused64 {
    kernel: Kernel<Fused64Args>,
    /// Components and features of the instance.
    instance: (usize, usize),
    parameters: Upload<f64>,
    sums: SumsOfBlocks,
}

impl Fused64 {
    /// Returns whether the kernels can make a mixture's E-step. (Matrices have too many sums for registers.)
    pub fn takes(mixture: &Mixture) -> bool {
        let (k, d) = mixture.means().dim();
        mixture.factor().is_none() && k <= MAX_COMPONENTS && d <= MAX_FEATURES
    }

    /// Returns the sums of a mixture that the kernels take, and the variant that computed them. `kernel`, from the
    /// previous E-step, is replaced if it does not fit. The device's context is current.
    pub fn centred_sums(
        kernel: &mut Option<Self>,
        data: &DeviceSamples<f64>,
        mixture: &Mixture,
    ) -> Result<(Variant, CentredSums)> {
        check_features(mixture, data.d())?;
        let parameters = DeviceParameters::<f64>::new(mixture, data.frame(), Deviations::InFrame)?;
        let layout = FusedLayout::<f64>::new(mixture.covariance_type(), parameters);
        let instance = (layout.capacity(), layout.features());
        let ready = match kernel.take() {
            Some(ready) if ready.instance == instance => ready,
            _ => Self::new(data.gpu(), instance)?,
        };
        let ready = kernel.insert(ready);
        ready.parameters.fill(layout.len(), |to| layout.write(to))?;
        let ready = &*ready;
        let mut values = vec![0.0; values(instance.1, instance.0)];
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let started = started.followed_by(ready.parameters.send(&pass.stream)?);
                Ok(started.followed_by(ready.start(&pass.stream, columns)?))
            },
            |running| {
                values.iter_mut().zip(ready.sums.results(running)?).for_each(|(sum, v)| *sum += v);
                Ok(())
            },
        )?;
        let sums = Sums {
            values: &values,
            log2: 0.0,
            weight_scale: data.weight_scale(),
            total_weight: data.total_weight(),
            exp2_bias: 0.0,
            frame: data.frame(),
        };
        Ok((FLOAT64, layout.centred_sums(&sums)))
    }

    fn new(gpu: &Gpu, instance: (usize, usize)) -> Result<Self> {
        let (capacity, features) = instance;
        Ok(Self {
            kernel: gpu.kernel(&entries::fused64(capacity, features), None)?,
            instance,
            parameters: Upload::new()?,
            sums: SumsOfBlocks::new(gpu, FLOAT64, values(features, capacity))?,
        })
    }

    fn start<'a>(&'a self, stream: &'a Stream, columns: Columns<'a, f64>) -> Result<Running<'a, ()>> {
        let (instance, parameters) = (self.instance, self.parameters.device());
        let shared = shared_bytes(instance.1, instance.0, FLOAT64.shape.block);
        self.sums.start(stream, self.kernel, (columns.n(), shared), |partials| Fused64Launch {
            columns,
            instance,
            parameters,
            partials,
        })
    }
}

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
