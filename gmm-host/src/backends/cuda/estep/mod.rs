//! The E-step in float32, by the kernels of `gmm_kernels::estep`.
pub(crate) mod fused;
pub(crate) mod fused_layout;
pub(crate) mod weighted_sums;
pub(crate) mod weighted_sums_layout;

use super::device::gpu::Gpu;
use super::device::memory::Workspace;
use super::device::samples::{Chunk, Columns, DeviceSamples, Pass};
use super::device::stream::Stream;
use super::likelihood::{exp2_bias, seconds};
use super::options::Requested;
use super::plan::timing::{Chooser, Trial};
use super::plan::{Family, Operation, Task, Variant, families};
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::{Mixture, Precision, Result, Statistics};
use fused::Fused;
use fused_layout::FusedLayout;
use gmm_kernels::estep::fused::Moments;
use std::collections::HashMap;
use weighted_sums::WeightedSums;
use weighted_sums_layout::WeightedSumsLayout;

/// The kernels that have been made ready, with their memory.
#[derive(Debug, Default)]
pub struct EStep {
    /// `fused`, by moments, capacity, and variant.
    fused: HashMap<(Moments, usize, Variant), Fused>,
    /// `weighted_sums`, for the latest task only, because its memory is large.
    weighted_sums: Option<WeightedSums>,
    /// Choices made, by task.
    variants: HashMap<Task, Variant>,
}

/// A mixture in the layout of the kernels that are to compute its E-step.
enum Layout {
    Fused(FusedLayout),
    WeightedSums(WeightedSumsLayout),
}

impl EStep {
    /// The statistics of a mixture, and the variant that they were computed with. That variant is of the family
    /// [`Family::General`], and there are no statistics, where neither `fused` nor `weighted_sums` can do it.
    /// The device's context is current.
    pub fn statistics(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<(Variant, Option<Statistics>)> {
        let parameters = DeviceParameters::<f32>::with_matrices(mixture, data.frame())?;
        let mut task = Task {
            operation: Operation::EStep,
            n: data.chunk_size(),
            k: parameters.n_components,
            d: parameters.n_features,
            full: !matches!(parameters.matrices, Matrices::Diagonal),
            tied: matches!(parameters.matrices, Matrices::Shared(_)),
            central: false,
            weighted: data.weighted(),
            precision: Precision::Float32,
        };
        let limits = &chooser.gpu.limits;
        let family = requested.and_then(Requested::family);
        if let Some(family) = family
            && let Some(problem) = family.problem(&task, limits)
        {
            return Err(Family::error(family.name().into(), problem, &task, limits));
        }
        let family = family.or_else(|| families(&task, limits).first().copied()).unwrap_or(Family::General);
        let layout = match family {
            Family::Fused => {
                let layout = FusedLayout::new(mixture.covariance_type(), parameters);
                task.central = layout.moments() != Moments::Raw;
                Layout::Fused(layout)
            }
            Family::WeightedSums => {
                let layout = WeightedSumsLayout::new(mixture, parameters, data.frame());
                task.central = layout.central();
                Layout::WeightedSums(layout)
            }
            _ => return Ok((super::general::VARIANT, None)),
        };
        let variant = match (requested, self.variants.get(&task)) {
            (Some(Requested::Variant(variant)), _) => variant,
            (_, Some(variant)) => *variant,
            _ => {
                let (gpu, chunk) = (data.gpu(), data.chunk(0)?);
                chunk.started.wait()?;
                let (stream, columns) = (&chunk.pass.stream, chunk.columns);
                let mut trial = EStepTrial { gpu, task, stream, columns, layout: &layout, ready: None };
                let variant = chooser.choose(&task, Some(family), &mut trial)?;
                self.variants.insert(task, variant);
                variant
            }
        };
        let statistics = match &layout {
            Layout::Fused(layout) => self.fused(data, layout, &task, variant)?,
            Layout::WeightedSums(layout) => self.weighted_sums(data, layout, &task, variant)?,
        };
        Ok((variant, Some(statistics)))
    }

    fn fused(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &FusedLayout,
        task: &Task,
        variant: Variant,
    ) -> Result<Statistics> {
        let key = (layout.moments(), layout.capacity(), variant);
        let kernel = match self.fused.entry(key) {
            std::collections::hash_map::Entry::Occupied(ready) => ready.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Fused::new(data.gpu(), layout, variant, task)?)
            }
        };
        let kernel: &Fused = kernel;
        for pass in data.passes() {
            kernel.prepare(&mut pass.workspace, layout)?;
        }
        let mut sums: Vec<f64> = Vec::new();
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                Ok(started.followed_by(kernel.start(stream, layout, workspace.parameters.device(), columns)?))
            },
            |running| {
                let chunk = running.results(kernel.sums(), kernel.values())?;
                if sums.is_empty() {
                    sums = chunk;
                } else {
                    sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v);
                }
                Ok(())
            },
        )?;
        let scale = data.weight_scale();
        sums.iter_mut().for_each(|sum| *sum *= scale);
        layout.statistics(&sums, data.total_weight(), exp2_bias(data.gpu())?, data.frame())
    }

    fn weighted_sums(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &WeightedSumsLayout,
        task: &Task,
        variant: Variant,
    ) -> Result<Statistics> {
        let kernels = match self.weighted_sums.take() {
            Some(kernels) if kernels.serves(task, variant) => kernels,
            // The memory of the former kernels has been freed before the new ones allocate theirs.
            _ => WeightedSums::new(data.gpu(), layout, variant, task)?,
        };
        for pass in data.passes() {
            kernels.prepare(&mut pass.workspace, layout)?;
        }
        let mut values = vec![0.0; kernels.shape().sums()];
        let mut log2 = 0.0;
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                let running = kernels.start(stream, workspace.parameters.device(), layout, columns)?;
                Ok((started.followed_by(running), stream, columns.n()))
            },
            |(running, stream, n)| {
                let sums = kernels.sums(running, stream, n)?;
                values.iter_mut().zip(sums.values).for_each(|(sum, v)| *sum += v);
                log2 += sums.log2;
                Ok(())
            },
        )?;
        self.weighted_sums = Some(kernels);
        let (scale, weight) = (data.weight_scale(), data.total_weight());
        values.iter_mut().for_each(|sum| *sum *= scale);
        layout.statistics(task, &values, weight, scale * log2, data.frame())
    }
}

/// The E-step that variants are timed with.
struct EStepTrial<'a> {
    gpu: &'static Gpu,
    task: Task,
    stream: &'a Stream,
    columns: Columns<'a>,
    layout: &'a Layout,
    ready: Option<Ready>,
}

/// A variant made ready, for so many samples.
enum Ready {
    Fused(Fused, Workspace, usize),
    WeightedSums(Box<WeightedSums>, Workspace, usize),
}

impl Trial for EStepTrial<'_> {
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()> {
        // Frees the memory of the variant before.
        self.ready = None;
        let task = Task { n, ..self.task };
        let mut workspace = Workspace::new(1)?;
        self.ready = Some(match self.layout {
            Layout::Fused(layout) => {
                let kernel = Fused::new(self.gpu, layout, variant, &task)?;
                kernel.prepare(&mut workspace, layout)?;
                workspace.parameters.send(self.stream)?.wait()?;
                Ready::Fused(kernel, workspace, n)
            }
            Layout::WeightedSums(layout) => {
                let kernels = WeightedSums::new(self.gpu, layout, variant, &task)?;
                kernels.prepare(&mut workspace, layout)?;
                workspace.parameters.send(self.stream)?.wait()?;
                Ready::WeightedSums(Box::new(kernels), workspace, n)
            }
        });
        Ok(())
    }

    fn seconds(&mut self, repeats: u32) -> Result<f64> {
        let (stream, columns) = (self.stream, self.columns);
        match (&self.ready, self.layout) {
            (Some(Ready::Fused(kernel, workspace, n)), Layout::Fused(layout)) => {
                let columns = columns.part(0, *n)?;
                seconds(stream, repeats, || kernel.start(stream, layout, workspace.parameters.device(), columns))
            }
            (Some(Ready::WeightedSums(kernels, workspace, n)), Layout::WeightedSums(layout)) => {
                let columns = columns.part(0, *n)?;
                seconds(stream, repeats, || kernels.start(stream, workspace.parameters.device(), layout, columns))
            }
            _ => Ok(f64::INFINITY),
        }
    }
}
