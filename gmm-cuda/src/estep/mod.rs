//! The E-step by the kernels of `gmm_kernels::estep`: in float32, and in float64 by `fused64`.
mod centres;
pub(crate) mod fused;
pub(crate) mod fused64;
pub(crate) mod fused_layout;
pub(crate) mod fused_mma;
pub(crate) mod fused_mma_layout;
pub(crate) mod launch;
pub(crate) mod layouts;
pub(crate) mod linear;
pub(crate) mod moments;
pub(crate) mod operand;
pub(crate) mod pieces;
pub(crate) mod products_mma;
pub(crate) mod products_shapes;
mod products_statistics;
pub(crate) mod products_wgmma;
pub(crate) mod reduce_slices;
mod split;
mod split_component;
mod sums;
pub(crate) mod tensor_cores_layout;
pub(crate) mod weighted_sums;
pub(crate) mod weighted_sums_layout;
mod whitened_mma;
mod whitened_shapes;
pub(crate) mod whitened_wgmma;

use super::device::gpu::{Gpu, Limits};
use super::device::samples::{Chunk, Columns, DeviceSamples, Pass};
use super::device::stream::{Running, Stream, finite, seconds};
use super::device::workspace::Workspace;
use super::families::{self, candidates};
use super::general::{self, GENERAL};
use super::likelihood::{self, exp2_bias};
use super::options::Requested;
use super::plan::family::{Family, Variant};
use super::plan::task::{Digits, Multiplies, Operation, Task};
use super::plan::timing::{Chooser, Trial};
use gmm_core::error::Result;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use launch::{EStepKernels, Wanted, Work};
use layouts::{Layouts, Spare};
use moments::Moments;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use sums::Sums;
use tensor_cores_layout::TensorCoresLayout;

/// The prepared kernels, with their memory.
#[derive(Debug, Default)]
pub struct EStep {
    ready: HashMap<(Task, Variant), Box<dyn EStepKernels>>,
    /// Kernels with large memory, of the latest task only.
    large: Option<((Task, Variant), Box<dyn EStepKernels>)>,
    /// The memory of the latest mixture's layouts, for the next one.
    spare: Spare,
    variants: HashMap<Task, Variant>,
    /// The moments of the samples, once a `tied` mixture needs them; the inner `None` if no kernels here compute them.
    moments: Option<Option<Arc<Moments>>>,
}

/// The kernels and layouts of an E-step.
struct Decision<'a> {
    layouts: Layouts<'a>,
    task: Task,
    variant: Variant,
}

/// Returns the digits that the tensor cores keep of a mixture, as far as the families in question need.
fn digits(task: &Task, layouts: &Layouts<'_>, requested: Option<&'static dyn Family>, limits: &Limits) -> Digits {
    // The factors that families on the tensor cores multiply, if there are any, and whether they keep the digits.
    let multiplied = |digits| {
        let families = families::usable(&Task { digits, ..*task }, requested, limits);
        let multiplies = families.iter().filter_map(|family| family.on_tensor_cores(task.full())).max()?;
        Some((multiplies, layouts.tensor_cores(multiplies).expandable()))
    };
    match multiplied(Digits::Expandable) {
        None | Some((_, true)) => Digits::Expandable,
        Some((Multiplies::Products, false))
            if requested.is_none() && matches!(multiplied(Digits::Whitenable), Some((_, true))) =>
        {
            Digits::Whitenable
        }
        _ => Digits::Neither,
    }
}

impl EStep {
    /// Returns the statistics of a mixture, and the variant that computed them; no statistics, and the variant of the
    /// general kernels, if no kernels here can compute them. The device's context is current.
    pub fn statistics(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<(Variant, Option<Statistics>)> {
        let linear = self.decide_linear(data, mixture, chooser, requested)?;
        let decision = linear.map_or_else(|| self.decide(data, mixture, chooser, requested), |linear| Ok(Some(linear)));
        let Some(decision) = decision? else { return Ok((general::VARIANT, None)) };
        let statistics = self.e_step(data, &decision)?;
        self.spare = decision.layouts.into_memory();
        Ok((decision.variant, Some(statistics)))
    }

    /// Decides for kernels that compute all terms; `None` if only the general ones can.
    fn decide<'m>(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &'m Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<Option<Decision<'m>>> {
        let layouts = Layouts::new(data, mixture, mem::take(&mut self.spare))?;
        let limits = &chooser.gpu.limits;
        let family = requested.and_then(Requested::family);
        let mut task = Task::new(Operation::EStep, data, mixture);
        task.digits = digits(&task, &layouts, family, limits);
        if let Some(family) = family
            && let Some(problem) = family.problem(&task, limits)
        {
            return Err(families::error(family.name().into(), problem, &task, limits));
        }
        let general: &dyn Family = &GENERAL;
        let first = families::usable(&task, family, limits).first().copied().filter(|first| *first != general);
        let Some(first) = first else { return Ok(None) };
        task.central = first.is_central(&layouts);
        let variant = self.choose(data, &task, chooser, requested, &layouts)?;
        task.central = variant.family.is_central(&layouts);
        Ok(Some(Decision { layouts, task, variant }))
    }

    /// Decides for kernels that compute only the linear terms of a `tied` mixture for each sample, completed by the
    /// [`Moments`] of all samples. `None` if this is impossible, would lose digits, or would not be faster.
    fn decide_linear<'m>(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &'m Mixture,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
    ) -> Result<Option<Decision<'m>>> {
        let task = Task::new(Operation::EStep, data, mixture);
        let family = requested.and_then(Requested::family);
        let Some(task) = families::linear(&task, family, &chooser.gpu.limits) else { return Ok(None) };
        let Covariances::Tied(precision) = mixture.precisions() else { return Ok(None) };
        let Some(moments) = self.moments(data)? else { return Ok(None) };
        let (_, coefficients) = mem::take(&mut self.spare);
        let layout = TensorCoresLayout::of_linear(coefficients, mixture, precision.view(), data.frame(), &moments);
        if !layout.expandable() {
            self.spare.1 = layout.into_memory();
            return Ok(None);
        }
        let layouts = Layouts::linear(mixture, data.frame(), layout);
        let variant = self.choose(data, &task, chooser, requested, &layouts)?;
        Ok(Some(Decision { layouts, task, variant }))
    }

    /// Returns the variant for a task: the requested, the remembered, or the fastest by measured time.
    fn choose(
        &mut self,
        data: &mut DeviceSamples<f32>,
        task: &Task,
        chooser: &Chooser<'_>,
        requested: Option<Requested>,
        layouts: &Layouts<'_>,
    ) -> Result<Variant> {
        match (requested, self.variants.get(task)) {
            (Some(Requested::Variant(variant)), _) => return Ok(variant),
            (_, Some(variant)) => return Ok(*variant),
            _ => {}
        }
        let gpu = data.gpu();
        let family = requested.and_then(Requested::family);
        let Chunk { pass, columns, started } = data.chunk(0)?;
        started.wait()?;
        let mut trial = EStepTrial { gpu, task: *task, stream: &pass.stream, columns, layouts, ready: None };
        let variant = chooser.choose(task, family, candidates(task, family, &gpu.limits), &mut trial)?;
        self.variants.insert(*task, variant);
        Ok(variant)
    }

    /// Returns the moments of the samples, by the E-step of one component; `None` if no kernels here compute them.
    ///
    /// The tensor cores are excluded, because they cut off the last digits of sums and round weights to float16: all
    /// evaluations of `tied` mixtures have these digits, which cost next to nothing once. So variants are not timed either.
    pub fn moments(&mut self, data: &mut DeviceSamples<f32>) -> Result<Option<Arc<Moments>>> {
        if let Some(moments) = &self.moments {
            return Ok(moments.clone());
        }
        let moments = self.new_moments(data)?.map(Arc::new);
        Ok(self.moments.insert(moments).clone())
    }

    fn new_moments(&mut self, data: &mut DeviceSamples<f32>) -> Result<Option<Moments>> {
        // The variances of a very wide or narrow frame may leave the range of float64.
        let Ok(mixture) = Moments::mixture(data.frame()) else { return Ok(None) };
        let task = Task::new(Operation::EStep, data, &mixture);
        let general: &dyn Family = &GENERAL;
        let first = candidates(&task, None, &data.gpu().limits).into_iter().find(|first| first.family != general);
        let Some(variant) = first else { return Ok(None) };
        let layouts = Layouts::new(data, &mixture, Spare::default())?;
        let task = Task { central: variant.family.is_central(&layouts), ..task };
        let statistics = self.e_step(data, &Decision { layouts, task, variant })?;
        // They are not needed again.
        self.ready.remove(&(task, variant));
        self.large = self.large.take().filter(|(of, _)| *of != (task, variant));
        Ok(Some(Moments::new(&statistics, data.frame(), data.n(), data.total_weight())))
    }

    /// Returns the kernels of a variant, with the parameters of a mixture. [`keep`](Self::keep) must follow their use.
    fn take(&mut self, data: &mut DeviceSamples<f32>, decision: &Decision<'_>) -> Result<Box<dyn EStepKernels>> {
        let Decision { layouts, task, variant } = decision;
        layouts.check(task)?;
        let key = (*task, *variant);
        let known = match self.large.take() {
            Some((of, kernels)) if of == key => Some(kernels),
            other => {
                // The memory of the previous kernels is freed before the new ones allocate theirs.
                self.large = other.filter(|_| !variant.family.facts().large_memory);
                self.ready.remove(&key)
            }
        };
        let kernels = match known {
            Some(kernels) => kernels,
            None => variant.family.e_step(data.gpu(), *variant, task, data.is_resident())?,
        };
        for pass in data.passes() {
            kernels.prepare(&mut pass.workspace, layouts)?;
        }
        Ok(kernels)
    }

    fn keep(&mut self, Decision { task, variant, .. }: &Decision<'_>, kernels: Box<dyn EStepKernels>) {
        if variant.family.facts().large_memory {
            self.large = Some(((*task, *variant), kernels));
        } else {
            self.ready.insert((*task, *variant), kernels);
        }
    }

    fn e_step(&mut self, data: &mut DeviceSamples<f32>, decision: &Decision<'_>) -> Result<Statistics> {
        let layouts = &decision.layouts;
        let kernels = self.take(data, decision)?;
        let exp2_bias = if decision.variant.family.facts().exp2_bias { exp2_bias(data.gpu())? } else { 0.0 };
        let (weight_scale, total_weight, frame) = (data.weight_scale(), data.total_weight(), data.frame());
        let statistics = |values: &[f64], log2: f64| {
            kernels.statistics(layouts, &Sums { values, log2, weight_scale, total_weight, exp2_bias, frame })
        };
        let whole = data.n_chunks() == 1;
        let (mut of_chunks, mut log2_of_chunks): (Vec<f64>, f64) = (Vec::new(), 0.0);
        let mut of_all = None;
        run(data, &*kernels, layouts, Wanted::Statistics, |running, stream, n| {
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
        })?;
        let statistics = of_all.unwrap_or_else(|| statistics(&of_chunks, log2_of_chunks));
        self.keep(decision, kernels);
        statistics
    }

    /// Returns the log-likelihood by the E-step kernels before the sums, with a task and variant from
    /// [`total_on_tensor_cores`](families::total_on_tensor_cores). `None` if digits of a total would be lost. The
    /// device's context is current.
    pub fn log_likelihood(
        &mut self,
        data: &mut DeviceSamples<f32>,
        mixture: &Mixture,
        task: &Task,
        variant: Variant,
    ) -> Result<Option<f64>> {
        let layouts = Layouts::new(data, mixture, mem::take(&mut self.spare))?;
        let decision = Decision { layouts, task: *task, variant };
        let layout = decision.layouts.tensor_cores(Multiplies::Features);
        let mut total = None;
        if layout.keeps_totals() {
            let kernels = self.take(data, &decision)?;
            let mut log2 = 0.0;
            run(data, &*kernels, &decision.layouts, Wanted::Total, |running, stream, n| {
                log2 += kernels.read_total(running, stream, n)?;
                Ok(())
            })?;
            self.keep(&decision, kernels);
            let offset = layout.parameters().offset + layout.missing(mixture);
            total = Some(likelihood::layout::total(data.weight_scale() * log2, data.total_weight(), offset, 0.0));
        }
        self.spare = decision.layouts.into_memory();
        total.map(|total| Ok(finite(vec![total])?[0])).transpose()
    }
}

/// Runs prepared kernels over all samples, chunk by chunk; `finish` waits for the work on a number of samples.
fn run<'a>(
    data: &'a DeviceSamples<f32>,
    kernels: &'a dyn EStepKernels,
    layouts: &Layouts<'_>,
    wanted: Wanted,
    mut finish: impl FnMut(Running<'a, ()>, &'a Stream, usize) -> Result<()>,
) -> Result<()> {
    data.one_by_one(
        |_, Chunk { pass, columns, started }| {
            let Pass { stream, workspace, .. } = pass;
            let started = started.followed_by(workspace.parameters.send(stream)?);
            let work = Work { stream, parameters: workspace.parameters.device(), columns, wanted };
            let running = kernels.start(work, layouts)?;
            Ok((started.followed_by(running), stream, columns.n()))
        },
        |(running, stream, n)| finish(running, stream, n),
    )
}

/// The E-step by which variants are timed.
struct EStepTrial<'a> {
    gpu: &'static Gpu,
    task: Task,
    stream: &'a Stream,
    columns: Columns<'a>,
    layouts: &'a Layouts<'a>,
    ready: Option<Ready>,
}

struct Ready {
    kernels: Box<dyn EStepKernels>,
    workspace: Workspace,
    n: usize,
}

impl Trial for EStepTrial<'_> {
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()> {
        // Frees the previous variant's memory.
        self.ready = None;
        let mut workspace = Workspace::new(1)?;
        let task = Task { n, central: variant.family.is_central(self.layouts), ..self.task };
        let kernels = variant.family.e_step(self.gpu, variant, &task, false)?;
        kernels.prepare(&mut workspace, self.layouts)?;
        workspace.parameters.send(self.stream)?.wait()?;
        self.ready = Some(Ready { kernels, workspace, n });
        Ok(())
    }

    fn seconds(&mut self, repeats: u32) -> Result<f64> {
        let Some(Ready { kernels, workspace, n }) = &self.ready else { return Ok(f64::INFINITY) };
        let (stream, columns, wanted) = (self.stream, self.columns.part(0, *n)?, Wanted::Statistics);
        let work = Work { stream, parameters: workspace.parameters.device(), columns, wanted };
        seconds(stream, repeats, || kernels.start(work, self.layouts))
    }
}
