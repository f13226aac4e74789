//! The E-step by the kernels of `gmm_kernels::estep`: in float32, and in float64 by `fused64`.
pub(crate) mod fused;
pub(crate) mod fused64;
pub(crate) mod fused64_layout;
pub(crate) mod fused_layout;
pub(crate) mod fused_tensor_cores;
pub(crate) mod fused_tensor_cores_layout;
pub(crate) mod operand;
pub(crate) mod pieces;
pub(crate) mod tensor_cores;
pub(crate) mod tensor_cores_layout;
pub(crate) mod warpgroup;
pub(crate) mod warpgroup_whitened;
pub(crate) mod weighted_sums;
pub(crate) mod weighted_sums_layout;
pub(crate) mod whitened;

use super::device::gpu::Gpu;
use super::device::memory::{Numbers, Workspace};
use super::device::mismatch;
use super::device::samples::{Chunk, Columns, DeviceSamples, Pass};
use super::device::stream::{Running, Stream, finite};
use super::likelihood::{self, exp2_bias, seconds};
use super::options::Requested;
use super::plan::timing::{Chooser, Trial};
use super::plan::{Family, Operation, Task, Variant, families};
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::data::frame::Frame;
use crate::{Mixture, Precision, Result, Statistics};
use fused::Fused;
use fused_layout::FusedLayout;
use fused_tensor_cores::FusedTensorCores;
use gmm_kernels::estep::fused::Moments;
use gmm_kernels::estep::fused_tensor_cores::Shape;
use pieces::{Pieces, Wanted};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use tensor_cores::TensorCores;
use tensor_cores_layout::TensorCoresLayout;
use warpgroup_whitened::WarpgroupWhitened;
use weighted_sums::WeightedSums;
use weighted_sums_layout::WeightedSumsLayout;
use whitened::Whitened;

/// The kernels that have been made ready, with their memory.
#[derive(Debug, Default)]
pub struct EStep {
    /// `fused`, by moments, capacity, and variant.
    fused: HashMap<(Moments, usize, Variant), Fused>,
    /// `fused_tensor_cores`, by instance and variant.
    fused_tensor_cores: HashMap<(Shape, Variant), FusedTensorCores>,
    /// `weighted_sums`, for the latest task only, because its memory is large.
    weighted_sums: Option<WeightedSums>,
    /// `tensor_cores`, likewise.
    tensor_cores: Option<OnMatrixUnits>,
    /// The memory of the latest mixture's layout, for the next one: fresh memory takes longer to
    /// get than to fill.
    spare: Option<TensorCoresLayout>,
    /// Choices made, by task.
    variants: HashMap<Task, Variant>,
}

/// A mixture in the layout of the kernels that are to compute its E-step.
enum Layout {
    Fused(FusedLayout),
    TensorCores(TensorCoresLayout),
    WeightedSums(WeightedSumsLayout),
}

impl Layout {
    /// The layout of a family; `None` for those that have no E-step, and for the general kernels.
    fn new(family: Family, mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, frame: &Frame) -> Option<Self> {
        Some(match family {
            _ if family.multiplies_features(parameters.has_triangles()) => {
                Self::TensorCores(TensorCoresLayout::of_features(mixture, parameters.clone(), frame))
            }
            Family::Fused => Self::Fused(FusedLayout::new(mixture.covariance_type(), parameters.as_ref().clone())),
            _ if family.on_matrix_units() => {
                Self::TensorCores(TensorCoresLayout::new(mixture, parameters.clone(), frame))
            }
            Family::WeightedSums => {
                Self::WeightedSums(WeightedSumsLayout::new(mixture, parameters.as_ref().clone(), frame))
            }
            _ => return None,
        })
    }

    /// Whether moments are taken around each component's centre.
    fn central(&self) -> bool {
        match self {
            Self::Fused(layout) => layout.moments() != Moments::Raw,
            Self::TensorCores(_) => false,
            Self::WeightedSums(layout) => layout.central(),
        }
    }
}

impl EStep {
    /// The statistics of a mixture, and the variant that they were computed with. That variant is
    /// of the family [`Family::General`], and there are no statistics, where none of the kernels
    /// here can do it. The device's context is current.
    pub fn statistics(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<(Variant, Option<Statistics>)> {
        let (memory, mut coefficients) = self.spare.take().map(TensorCoresLayout::into_memory).unwrap_or_default();
        let parameters = Arc::new(data.parameters_in(memory, mixture)?);
        let mut task = Task {
            operation: Operation::EStep,
            n: data.chunk_size(),
            k: parameters.n_components,
            d: parameters.n_features,
            full: parameters.has_triangles(),
            tied: matches!(parameters.matrices, Matrices::Shared(_)),
            central: false,
            expandable: true,
            weighted: data.weighted(),
            gaps: data.gaps(),
            precision: Precision::Float32,
        };
        let limits = &chooser.gpu.limits;
        let requested_family = requested.and_then(Requested::family);
        let mut usable = families(&task, limits);
        let asked_for =
            |family| requested_family.map_or_else(|| usable.contains(&family), |requested| requested == family);
        let (mut tensor_cores, mut by_features) = (None, false);
        let on_units: Vec<Family> =
            Family::ALL.into_iter().filter(|family| family.on_matrix_units() && asked_for(*family)).collect();
        if !on_units.is_empty() {
            by_features = on_units.iter().all(|family| family.multiplies_features(task.full));
            let layout = if by_features {
                TensorCoresLayout::of_features(mixture, parameters.clone(), data.frame())
            } else {
                let memory = mem::take(&mut coefficients);
                TensorCoresLayout::new_in(memory, mixture, parameters.clone(), data.frame())
            };
            task.expandable = layout.expandable();
            if !task.expandable {
                usable = families(&task, limits);
            }
            tensor_cores = Some(Layout::TensorCores(layout));
        }
        if let Some(family) = requested_family
            && let Some(problem) = family.problem(&task, limits)
        {
            return Err(Family::error(family.name().into(), problem, &task, limits));
        }
        let family = requested_family.or_else(|| usable.first().copied()).unwrap_or(Family::General);
        let layout = match tensor_cores {
            Some(layout) if family.on_matrix_units() && family.multiplies_features(task.full) == by_features => {
                Some(layout)
            }
            _ => Layout::new(family, mixture, &parameters, data.frame()),
        };
        let Some(mut layout) = layout else { return Ok((super::general::VARIANT, None)) };
        task.central = layout.central();
        let variant = match (requested, self.variants.get(&task)) {
            (Some(Requested::Variant(variant)), _) => variant,
            (_, Some(variant)) => *variant,
            _ => {
                let (gpu, frame) = (data.gpu(), data.frame().clone());
                let chunk = data.chunk(0)?;
                chunk.started.wait()?;
                let (stream, columns) = (&chunk.pass.stream, chunk.columns);
                let mut trial =
                    EStepTrial { gpu, task, stream, columns, mixture, parameters: &parameters, frame, ready: None };
                let variant = chooser.choose(&task, requested_family, &mut trial)?;
                self.variants.insert(task, variant);
                variant
            }
        };
        if family != variant.family {
            let other = Layout::new(variant.family, mixture, &parameters, data.frame());
            let Some(other) = other else { return Ok((super::general::VARIANT, None)) };
            layout = other;
            task.central = layout.central();
        }
        let statistics = match &layout {
            Layout::Fused(layout) => self.fused(data, layout, &task, variant)?,
            Layout::TensorCores(layout) if variant.family == Family::FusedTensorCores => {
                self.fused_tensor_cores(data, layout, variant)?
            }
            Layout::TensorCores(layout) => self.tensor_cores(data, layout, &task, variant)?,
            Layout::WeightedSums(layout) => self.weighted_sums(data, layout, &task, variant)?,
        };
        if let Layout::TensorCores(layout) = layout {
            drop(parameters);
            self.spare = Some(layout);
        }
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

    fn fused_tensor_cores(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &TensorCoresLayout,
        variant: Variant,
    ) -> Result<Statistics> {
        let shape = layout.fused_shape().ok_or_else(|| mismatch("a mixture for this E-step", vec![], vec![]))?;
        let kernel = match self.fused_tensor_cores.entry((shape, variant)) {
            std::collections::hash_map::Entry::Occupied(ready) => ready.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(FusedTensorCores::new(data.gpu(), shape, variant)?)
            }
        };
        let kernel: &FusedTensorCores = kernel;
        for pass in data.passes() {
            kernel.prepare(&mut pass.workspace, layout)?;
        }
        let weighted = data.weighted();
        let mut sums: Vec<f64> = Vec::new();
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                let parameters = workspace.parameters.device();
                let running = kernel.start(stream, layout, parameters, columns, weighted)?;
                Ok((started.followed_by(running), stream))
            },
            |(running, stream)| {
                let chunk = kernel.results(running, stream)?;
                if sums.is_empty() {
                    sums = chunk;
                } else {
                    sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v);
                }
                Ok(())
            },
        )?;
        let bias = exp2_bias(data.gpu())?;
        layout.fused_statistics(shape, &sums, data.weight_scale(), data.total_weight(), bias, data.frame())
    }

    /// The log-likelihood, by those kernels of the E-step that come before its sums: with a task
    /// and a variant that [`total_on_matrix_units`](super::plan::total_on_matrix_units) gave.
    /// `None` where they would lose digits of a total. The device's context is current.
    pub fn log_likelihood(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        task: &Task,
        variant: Variant,
    ) -> Result<Option<f64>> {
        let (memory, _) = self.spare.take().map(TensorCoresLayout::into_memory).unwrap_or_default();
        let parameters = data.parameters_in(memory, mixture)?;
        let offset = parameters.offset;
        let layout = TensorCoresLayout::of_features(mixture, parameters, data.frame());
        let mut total = None;
        if layout.keeps_totals() {
            let kernels = self.ready(data, &layout, task, variant)?;
            let mut log2 = 0.0;
            data.one_by_one(
                |_, Chunk { pass, columns, started }| {
                    let Pass { stream, workspace, .. } = pass;
                    let started = started.followed_by(workspace.parameters.send(stream)?);
                    let running = kernels.start(stream, workspace.parameters.device(), columns, Wanted::Total)?;
                    Ok((started.followed_by(running), stream, columns.n()))
                },
                |(running, stream, n)| {
                    log2 += kernels.pieces().read_total(running, stream, n)?;
                    Ok(())
                },
            )?;
            self.tensor_cores = Some(kernels);
            let offset = offset + layout.missing(mixture);
            total = Some(likelihood::layout::total(data.weight_scale() * log2, data.total_weight(), offset, 0.0));
        }
        self.spare = Some(layout);
        total.map(|total| Ok(finite(vec![total])?[0])).transpose()
    }

    /// The kernels on the matrix units, with the parameters of a mixture.
    fn ready(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &TensorCoresLayout,
        task: &Task,
        variant: Variant,
    ) -> Result<OnMatrixUnits> {
        let kernels = match self.tensor_cores.take() {
            Some(kernels) if kernels.serves(task, variant) => kernels,
            // The memory of the former kernels has been freed before the new ones allocate theirs.
            _ => OnMatrixUnits::new(data.gpu(), variant, task, data.is_resident())?,
        };
        for pass in data.passes() {
            kernels.prepare(&mut pass.workspace, layout)?;
        }
        Ok(kernels)
    }

    fn tensor_cores(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &TensorCoresLayout,
        task: &Task,
        variant: Variant,
    ) -> Result<Statistics> {
        let kernels = self.ready(data, layout, task, variant)?;
        let whole = data.n_chunks() == 1;
        let scale = data.weight_scale();
        let statistics = |sums: &[f64], log2: f64| {
            kernels.statistics(layout, sums, scale, data.total_weight(), scale * log2, data.frame())
        };
        let mut of_chunks: Vec<f64> = Vec::new();
        let mut log2_of_chunks = 0.0;
        let mut of_all = None;
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                let running = kernels.start(stream, workspace.parameters.device(), columns, Wanted::Statistics)?;
                Ok((started.followed_by(running), stream, columns.n()))
            },
            |(running, stream, n)| {
                kernels.pieces().read(running, stream, n, |sums, log2| {
                    log2_of_chunks += log2;
                    if whole {
                        of_all = Some(statistics(sums, log2));
                    } else if of_chunks.is_empty() {
                        of_chunks = sums.to_vec();
                    } else {
                        of_chunks.iter_mut().zip(sums).for_each(|(sum, v)| *sum += v);
                    }
                })
            },
        )?;
        let statistics = of_all.unwrap_or_else(|| statistics(&of_chunks, log2_of_chunks));
        self.tensor_cores = Some(kernels);
        statistics
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

/// The kernels of [`Family::TensorCores`], [`Family::Warpgroup`], [`Family::WarpgroupWhitened`] and
/// [`Family::Whitened`].
#[derive(Debug)]
enum OnMatrixUnits {
    /// They multiply with products of features.
    Products(Box<TensorCores>),
    /// They multiply with features, for matrices.
    Features(Box<Whitened>),
    /// The same by warpgroups.
    OfWarpgroups(Box<WarpgroupWhitened>),
}

impl OnMatrixUnits {
    /// Makes the kernels ready; see [`TensorCores::new`].
    fn new(gpu: &Gpu, variant: Variant, task: &Task, same: bool) -> Result<Self> {
        Ok(match variant.family {
            Family::Whitened => Self::Features(Box::new(Whitened::new(gpu, variant, task)?)),
            Family::WarpgroupWhitened => {
                Self::OfWarpgroups(Box::new(WarpgroupWhitened::new(gpu, variant, task, same)?))
            }
            _ => Self::Products(Box::new(TensorCores::new(gpu, variant, task, same)?)),
        })
    }

    fn serves(&self, task: &Task, variant: Variant) -> bool {
        match self {
            Self::Products(kernels) => kernels.serves(task, variant),
            Self::Features(kernels) => kernels.serves(task, variant),
            Self::OfWarpgroups(kernels) => kernels.serves(task, variant),
        }
    }

    fn prepare(&self, workspace: &mut Workspace, layout: &TensorCoresLayout) -> Result<()> {
        match self {
            Self::Products(kernels) => kernels.prepare(workspace, layout),
            Self::Features(kernels) => kernels.prepare(workspace, layout),
            Self::OfWarpgroups(kernels) => kernels.prepare(workspace, layout),
        }
    }

    /// Starts the E-step, or at least what is wanted of it.
    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        wanted: Wanted,
    ) -> Result<Running<'a, ()>> {
        match self {
            Self::Products(kernels) => kernels.start(stream, parameters, columns),
            Self::Features(kernels) => kernels.start(stream, parameters, columns),
            Self::OfWarpgroups(kernels) => kernels.start(stream, parameters, columns, wanted),
        }
    }

    fn pieces(&self) -> &Pieces {
        match self {
            Self::Products(kernels) => kernels.pieces(),
            Self::Features(kernels) => kernels.pieces(),
            Self::OfWarpgroups(kernels) => kernels.pieces(),
        }
    }

    fn statistics(
        &self,
        layout: &TensorCoresLayout,
        sums: &[f64],
        scale: f64,
        weight: f64,
        log2: f64,
        frame: &Frame,
    ) -> Result<Statistics> {
        match self {
            Self::Products(kernels) => layout.statistics(kernels.shapes(), sums, scale, weight, log2, frame),
            Self::Features(kernels) => layout.whitened_statistics(kernels.shapes(), sums, scale, weight, log2, frame),
            Self::OfWarpgroups(kernels) => {
                layout.whitened_statistics(kernels.shapes(), sums, scale, weight, log2, frame)
            }
        }
    }
}

/// The E-step that variants are timed with.
struct EStepTrial<'a> {
    gpu: &'static Gpu,
    task: Task,
    stream: &'a Stream,
    columns: Columns<'a>,
    mixture: &'a Mixture,
    parameters: &'a Arc<DeviceParameters<f32>>,
    frame: Frame,
    ready: Option<Ready>,
}

/// A variant made ready, for so many samples.
struct Ready {
    kernels: Kernels,
    workspace: Workspace,
    n: usize,
}

enum Kernels {
    Fused(Fused, FusedLayout),
    FusedTensorCores(FusedTensorCores, Box<TensorCoresLayout>),
    TensorCores(OnMatrixUnits),
    WeightedSums(Box<WeightedSums>, WeightedSumsLayout),
}

impl Trial for EStepTrial<'_> {
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()> {
        // Frees the memory of the variant before.
        self.ready = None;
        let mut workspace = Workspace::new(1)?;
        let Some(layout) = Layout::new(variant.family, self.mixture, self.parameters, &self.frame) else {
            return Ok(());
        };
        let task = Task { n, central: layout.central(), ..self.task };
        let kernels = match layout {
            Layout::Fused(layout) => {
                let kernel = Fused::new(self.gpu, &layout, variant, &task)?;
                kernel.prepare(&mut workspace, &layout)?;
                Kernels::Fused(kernel, layout)
            }
            Layout::TensorCores(layout) if variant.family == Family::FusedTensorCores => {
                let Some(shape) = layout.fused_shape() else { return Ok(()) };
                let kernel = FusedTensorCores::new(self.gpu, shape, variant)?;
                kernel.prepare(&mut workspace, &layout)?;
                Kernels::FusedTensorCores(kernel, Box::new(layout))
            }
            Layout::TensorCores(layout) => {
                let kernels = OnMatrixUnits::new(self.gpu, variant, &task, false)?;
                kernels.prepare(&mut workspace, &layout)?;
                Kernels::TensorCores(kernels)
            }
            Layout::WeightedSums(layout) => {
                let kernels = WeightedSums::new(self.gpu, &layout, variant, &task)?;
                kernels.prepare(&mut workspace, &layout)?;
                Kernels::WeightedSums(Box::new(kernels), layout)
            }
        };
        workspace.parameters.send(self.stream)?.wait()?;
        self.ready = Some(Ready { kernels, workspace, n });
        Ok(())
    }

    fn seconds(&mut self, repeats: u32) -> Result<f64> {
        let Some(Ready { kernels, workspace, n }) = &self.ready else { return Ok(f64::INFINITY) };
        let (stream, columns) = (self.stream, self.columns.part(0, *n)?);
        let parameters = workspace.parameters.device();
        match kernels {
            Kernels::Fused(kernel, layout) => {
                seconds(stream, repeats, || kernel.start(stream, layout, parameters, columns))
            }
            Kernels::FusedTensorCores(kernel, layout) => {
                seconds(stream, repeats, || kernel.start(stream, layout, parameters, columns, self.task.weighted))
            }
            Kernels::TensorCores(kernels) => {
                seconds(stream, repeats, || kernels.start(stream, parameters, columns, Wanted::Statistics))
            }
            Kernels::WeightedSums(kernels, layout) => {
                seconds(stream, repeats, || kernels.start(stream, parameters, layout, columns))
            }
        }
    }
}
