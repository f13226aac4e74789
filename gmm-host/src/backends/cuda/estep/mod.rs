//! The E-step by the kernels of `gmm_kernels::estep`: in float32, and in float64 by `fused64`.
mod centres;
pub(crate) mod fused;
pub(crate) mod fused64;
pub(crate) mod fused64_layout;
pub(crate) mod fused_layout;
pub(crate) mod fused_mma;
pub(crate) mod fused_mma_layout;
pub(crate) mod launch;
pub(crate) mod moments;
pub(crate) mod operand;
pub(crate) mod pieces;
pub(crate) mod products_mma;
pub(crate) mod products_shapes;
mod products_statistics;
pub(crate) mod products_wgmma;
mod reduce_slices;
mod split_component;
mod sums;
pub(crate) mod tensor_cores_layout;
pub(crate) mod weighted_sums;
pub(crate) mod weighted_sums_layout;
pub(crate) mod whitened_mma;
mod whitened_shapes;
pub(crate) mod whitened_wgmma;

use super::device::gpu::Gpu;
use super::device::samples::{Chunk, Columns, DeviceSamples, Pass};
use super::device::stream::{Stream, finite, seconds};
use super::device::workspace::Workspace;
use super::general;
use super::likelihood::{self, exp2_bias};
use super::options::Requested;
use super::plan::families::{self, candidates, families};
use super::plan::family::{Family, Variant};
use super::plan::task::{Multiplies, Operation, Task};
use super::plan::timing::{Chooser, Trial};
use crate::error::Result;
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use crate::precision::Precision;
use crate::statistics::Statistics;
use launch::{EStepKernels, Layout, Wanted};
use moments::Moments;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use sums::Sums;
use tensor_cores_layout::TensorCoresLayout;

/// The kernels that have been made ready, with their memory.
#[derive(Debug, Default)]
pub struct EStep {
    /// By task and variant.
    ready: HashMap<(Task, Variant), Box<dyn EStepKernels>>,
    /// Those of the latest task only, because their memory is large.
    large: Option<((Task, Variant), Box<dyn EStepKernels>)>,
    /// The memory of the latest mixture's layout, for the next one: fresh memory takes longer to get
    /// than to fill.
    spare: Option<TensorCoresLayout>,
    /// Choices made, by task.
    variants: HashMap<Task, Variant>,
    /// The moments of the samples, which are the same as long as this exists, once a `tied` mixture
    /// has asked for them: none, where no kernels here give them.
    moments: Option<Option<Arc<Moments>>>,
}

/// The families on the tensor cores that may compute a task, and what they multiply: features, if
/// all of them do.
struct OnTensorCores {
    layout: TensorCoresLayout,
    multiplies: Multiplies,
}

impl OnTensorCores {
    /// From `layout` of what they multiply; None where none of the families is on the tensor cores.
    fn of(
        usable: &[&'static dyn Family],
        task: &Task,
        layout: impl FnOnce(Multiplies) -> TensorCoresLayout,
    ) -> Option<Self> {
        let multiplied: Vec<_> = usable.iter().filter_map(|family| family.on_tensor_cores(task.full)).collect();
        let products = multiplied.contains(&Multiplies::Products);
        let multiplies = if products { Multiplies::Products } else { Multiplies::Features };
        (!multiplied.is_empty()).then(|| Self { layout: layout(multiplies), multiplies })
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
        if let Some((variant, statistics)) = self.linear(data, mixture, chooser, requested)? {
            return Ok((variant, Some(statistics)));
        }
        let (memory, mut coefficients) = self.spare.take().map(TensorCoresLayout::into_memory).unwrap_or_default();
        let parameters = Arc::new(data.parameters_in(memory, mixture)?);
        let mut task = task(data, mixture);
        let limits = &chooser.gpu.limits;
        let requested_family = requested.and_then(Requested::family);
        let mut usable = requested_family.map_or_else(|| families(&task, limits), |family| vec![family]);
        let mut layout = |multiplies| {
            let memory = mem::take(&mut coefficients);
            TensorCoresLayout::of(multiplies, memory, mixture, parameters.clone(), data.frame())
        };
        let mut on_tensor_cores = OnTensorCores::of(&usable, &task, &mut layout);
        let expandable = |it: &OnTensorCores| it.layout.expandable();
        task.expandable = on_tensor_cores.as_ref().is_none_or(expandable);
        task.whitenable = task.expandable;
        if !task.expandable && requested_family.is_none() {
            if on_tensor_cores.is_some_and(|it| it.multiplies == Multiplies::Products) {
                task.whitenable = true;
                on_tensor_cores = OnTensorCores::of(&families(&task, limits), &task, &mut layout);
                task.whitenable = on_tensor_cores.as_ref().is_some_and(expandable);
            } else {
                on_tensor_cores = None;
            }
            usable = families(&task, limits);
        }
        if let Some(family) = requested_family
            && let Some(problem) = family.problem(&task, limits)
        {
            return Err(families::error(family.name().into(), problem, &task, limits));
        }
        let family = usable.first().copied().unwrap_or(&general::GENERAL);
        let layout = match on_tensor_cores {
            Some(OnTensorCores { layout, multiplies }) if family.on_tensor_cores(task.full) == Some(multiplies) => {
                Some(Layout::TensorCores(layout))
            }
            _ => family.layout(mixture, &parameters, data.frame()),
        };
        let Some(mut layout) = layout else { return Ok((general::VARIANT, None)) };
        task.central = layout.central();
        let variant = match (requested, self.variants.get(&task)) {
            (Some(Requested::Variant(variant)), _) => variant,
            (_, Some(variant)) => *variant,
            _ => {
                let frame = data.frame().clone();
                let layout = |family: &dyn Family| family.layout(mixture, &parameters, &frame);
                self.choose(data, &task, chooser, requested_family, &layout)?
            }
        };
        if family != variant.family {
            let other = variant.family.layout(mixture, &parameters, data.frame());
            let Some(other) = other else { return Ok((general::VARIANT, None)) };
            layout = other;
            task.central = layout.central();
        }
        let statistics = self.e_step(data, &layout, &task, variant)?;
        if let Layout::TensorCores(layout) = layout {
            drop(parameters);
            self.spare = Some(layout);
        }
        Ok((variant, Some(statistics)))
    }

    /// Chooses the variant for a task, by the time that each needs for a mixture in the layout of its
    /// family.
    fn choose(
        &mut self,
        data: &mut DeviceSamples<f32>,
        task: &Task,
        chooser: &Chooser<'_>,
        requested: Option<&'static dyn Family>,
        layout: &dyn Fn(&dyn Family) -> Option<Layout>,
    ) -> Result<Variant> {
        let gpu = data.gpu();
        let Chunk { pass, columns, started } = data.chunk(0)?;
        started.wait()?;
        let mut trial = EStepTrial { gpu, task: *task, stream: &pass.stream, columns, layout, ready: None };
        let variant = chooser.choose(task, requested, &mut trial)?;
        self.variants.insert(*task, variant);
        Ok(variant)
    }

    /// As [`statistics`](Self::statistics), of a `tied` mixture, from what is linear in the features
    /// of each sample and from the [`Moments`] of all. None where this is not possible, would lose
    /// digits, or would not be faster.
    fn linear(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<Option<(Variant, Statistics)>> {
        let family = requested.and_then(Requested::family);
        let Some(task) = families::linear(&task(data, mixture), family, &chooser.gpu.limits) else { return Ok(None) };
        let Some(moments) = self.moments(data, chooser)? else { return Ok(None) };
        let (_, coefficients) = self.spare.take().map(TensorCoresLayout::into_memory).unwrap_or_default();
        let layout = TensorCoresLayout::of_linear(coefficients, mixture, data.frame(), &moments);
        if !layout.expandable() {
            return Ok(None);
        }
        let variant = match (requested, self.variants.get(&task)) {
            (Some(Requested::Variant(variant)), _) => variant,
            (_, Some(variant)) => *variant,
            // All families for it read one layout.
            _ => self.choose(data, &task, chooser, family, &|_| Some(Layout::TensorCores(layout.clone())))?,
        };
        let layout = Layout::TensorCores(layout);
        let statistics = self.e_step(data, &layout, &task, variant)?;
        if let Layout::TensorCores(layout) = layout {
            self.spare = Some(layout);
        }
        Ok(Some((variant, statistics)))
    }

    /// The moments of the samples, by the E-step of a mixture of one component; none where no kernels
    /// here give them.
    ///
    /// Not by the tensor cores, which cut off the last digits of sums and round the samples' weights
    /// to float16: all E-steps of `tied` mixtures have these digits, which take next to no time once.
    /// For the same reason variants are not timed.
    fn moments(&mut self, data: &mut DeviceSamples<f32>, chooser: &Chooser<'_>) -> Result<Option<Arc<Moments>>> {
        if let Some(moments) = &self.moments {
            return Ok(moments.clone());
        }
        let moments = self.new_moments(data, chooser)?.map(Arc::new);
        Ok(self.moments.insert(moments).clone())
    }

    fn new_moments(&mut self, data: &mut DeviceSamples<f32>, chooser: &Chooser<'_>) -> Result<Option<Moments>> {
        // The variances of so wide or narrow a frame may be no numbers of float64.
        let Ok(mixture) = Moments::mixture(data.frame()) else { return Ok(None) };
        let mut task = Task { expandable: false, whitenable: false, ..task(data, &mixture) };
        let Some(variant) = candidates(&task, None, &chooser.gpu.limits).into_iter().next() else { return Ok(None) };
        let parameters = Arc::new(data.parameters(&mixture)?);
        let Some(layout) = variant.family.layout(&mixture, &parameters, data.frame()) else { return Ok(None) };
        task.central = layout.central();
        let statistics = self.e_step(data, &layout, &task, variant)?;
        // They are not asked for again.
        self.ready.remove(&(task, variant));
        self.large = self.large.take().filter(|(of, _)| *of != (task, variant));
        Ok(Some(Moments::new(&statistics, data.frame(), data.n(), data.total_weight())))
    }

    /// The kernels of a variant, with the parameters of a mixture. [`keep`](Self::keep) is to be
    /// called behind their use.
    fn take(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &Layout,
        task: &Task,
        variant: Variant,
    ) -> Result<Box<dyn EStepKernels>> {
        let key = (*task, variant);
        let known = match self.large.take() {
            Some((of, kernels)) if of == key => Some(kernels),
            other => {
                // The memory of the former kernels is freed before the new ones allocate theirs.
                self.large = other.filter(|_| !variant.family.has_large_memory());
                self.ready.remove(&key)
            }
        };
        let kernels = match known {
            Some(kernels) => kernels,
            None => variant.family.e_step(data.gpu(), layout, variant, task, data.is_resident())?,
        };
        for pass in data.passes() {
            kernels.prepare(&mut pass.workspace, layout)?;
        }
        Ok(kernels)
    }

    /// Keeps kernels for the next E-step.
    fn keep(&mut self, task: &Task, variant: Variant, kernels: Box<dyn EStepKernels>) {
        if variant.family.has_large_memory() {
            self.large = Some(((*task, variant), kernels));
        } else {
            self.ready.insert((*task, variant), kernels);
        }
    }

    /// The statistics of a mixture by a variant.
    fn e_step(
        &mut self,
        data: &mut DeviceSamples<f32>,
        layout: &Layout,
        task: &Task,
        variant: Variant,
    ) -> Result<Statistics> {
        let kernels = self.take(data, layout, task, variant)?;
        let exp2_bias = if kernels.needs_exp2_bias() { exp2_bias(data.gpu())? } else { 0.0 };
        let (weight_scale, total_weight, frame) = (data.weight_scale(), data.total_weight(), data.frame());
        let statistics = |values: &[f64], log2: f64| {
            kernels.statistics(layout, &Sums { values, log2, weight_scale, total_weight, exp2_bias, frame })
        };
        let whole = data.n_chunks() == 1;
        let (mut of_chunks, mut log2_of_chunks): (Vec<f64>, f64) = (Vec::new(), 0.0);
        let mut of_all = None;
        data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                let parameters = workspace.parameters.device();
                let running = kernels.start(stream, layout, parameters, columns, Wanted::Statistics)?;
                Ok((started.followed_by(running), stream, columns.n()))
            },
            |(running, stream, n)| {
                kernels.read(running, stream, n, &mut |values, log2| {
                    log2_of_chunks += log2;
                    if whole {
                        of_all = Some(statistics(values, log2));
                    } else if of_chunks.is_empty() {
                        of_chunks = values.to_vec();
                    } else {
                        of_chunks.iter_mut().zip(values).for_each(|(sum, v)| *sum += v);
                    }
                })
            },
        )?;
        let statistics = of_all.unwrap_or_else(|| statistics(&of_chunks, log2_of_chunks));
        self.keep(task, variant, kernels);
        statistics
    }

    /// The log-likelihood, by those kernels of the E-step that come before its sums: with a task
    /// and a variant that [`total_on_tensor_cores`](families::total_on_tensor_cores) gave.
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
        let parameters = Arc::new(parameters);
        let layout = TensorCoresLayout::of(Multiplies::Features, Vec::new(), mixture, parameters, data.frame());
        let layout = Layout::TensorCores(layout);
        let of_features = layout.tensor_cores()?;
        let mut total = None;
        if of_features.keeps_totals() {
            let kernels = self.take(data, &layout, task, variant)?;
            let mut log2 = 0.0;
            data.one_by_one(
                |_, Chunk { pass, columns, started }| {
                    let Pass { stream, workspace, .. } = pass;
                    let started = started.followed_by(workspace.parameters.send(stream)?);
                    let parameters = workspace.parameters.device();
                    let running = kernels.start(stream, &layout, parameters, columns, Wanted::Total)?;
                    Ok((started.followed_by(running), stream, columns.n()))
                },
                |(running, stream, n)| {
                    log2 += kernels.read_total(running, stream, n)?;
                    Ok(())
                },
            )?;
            self.keep(task, variant, kernels);
            let offset = offset + of_features.missing(mixture);
            total = Some(likelihood::layout::total(data.weight_scale() * log2, data.total_weight(), offset, 0.0));
        }
        if let Layout::TensorCores(layout) = layout {
            self.spare = Some(layout);
        }
        total.map(|total| Ok(finite(vec![total])?[0])).transpose()
    }
}

/// The E-step of a mixture that the tensor cores keep the digits of.
fn task(data: &DeviceSamples<f32>, mixture: &Mixture) -> Task {
    let (k, d) = mixture.means().dim();
    Task {
        operation: Operation::EStep,
        n: data.chunk_size(),
        k,
        d,
        full: mixture.factor().is_some(),
        tied: matches!(mixture.factor(), Some(Covariances::Tied(_))),
        central: false,
        expandable: true,
        whitenable: true,
        weighted: data.weighted(),
        gaps: data.gaps(),
        precision: Precision::Float32,
    }
}

/// The E-step that variants are timed with.
struct EStepTrial<'a> {
    gpu: &'static Gpu,
    task: Task,
    stream: &'a Stream,
    columns: Columns<'a>,
    layout: &'a dyn Fn(&dyn Family) -> Option<Layout>,
    ready: Option<Ready>,
}

/// A variant made ready, for so many samples.
struct Ready {
    kernels: Box<dyn EStepKernels>,
    layout: Layout,
    workspace: Workspace,
    n: usize,
}

impl Trial for EStepTrial<'_> {
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()> {
        // Frees the memory of the variant before.
        self.ready = None;
        let mut workspace = Workspace::new(1)?;
        let Some(layout) = (self.layout)(variant.family) else { return Ok(()) };
        let task = Task { n, central: layout.central(), ..self.task };
        let kernels = variant.family.e_step(self.gpu, &layout, variant, &task, false)?;
        kernels.prepare(&mut workspace, &layout)?;
        workspace.parameters.send(self.stream)?.wait()?;
        self.ready = Some(Ready { kernels, layout, workspace, n });
        Ok(())
    }

    fn seconds(&mut self, repeats: u32) -> Result<f64> {
        let Some(Ready { kernels, layout, workspace, n }) = &self.ready else { return Ok(f64::INFINITY) };
        let (stream, columns) = (self.stream, self.columns.part(0, *n)?);
        let parameters = workspace.parameters.device();
        seconds(stream, repeats, || kernels.start(stream, layout, parameters, columns, Wanted::Statistics))
    }
}
