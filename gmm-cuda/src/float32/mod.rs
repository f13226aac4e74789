//! The CUDA backend in float32: each operation by the kernel that its plan has chosen.
mod batches;

use crate::device::gpu::Gpu;
use crate::device::memory::{Numbers, allocate};
use crate::device::samples::{Chunk, DeviceSamples, MAX_TOTALS, Pass};
use crate::device::staging::Staging;
use crate::device::stream::seconds;
use crate::device::workspace::Workspace;
use crate::estep::EStep;
use crate::estep::linear::{of_full, of_tied};
use crate::estep::whitened_wgmma::WHITENED_WGMMA;
use crate::families::{self, candidates, families, total_on_tensor_cores};
use crate::general::{self, GENERAL, General};
use crate::likelihood::{LikelihoodTrial, NearSets, Plan, Sets, Work, exp2_bias, layout};
use crate::metropolis::shape::Shape;
use crate::metropolis::{self, Metropolis};
use crate::missing::add_offsets;
use crate::options::{CudaOptions, Requested};
use crate::plan::family::{Family, Variant};
use crate::plan::task::{Operation, Task};
use crate::plan::timing::Chooser;
use crate::source::Source;
use gmm_core::backends::device_parameters::{Deviations, DeviceParameters};
use gmm_core::backends::enough_digits::FramedEvaluator;
use gmm_core::contract::evaluator::{DataFacts, Description, Evaluator, check_features};
use gmm_core::contract::markov::{Markov, MarkovChain, MarkovSums};
use gmm_core::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use gmm_core::contract::sampling::Sampling;
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::Rows;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::Precision;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::fmt;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

/// Threads that prepare batches for one device. An evaluation of an ensemble of 430 walkers (D = 13, K = 8) on an H200
/// with 16 cores, with 1, 4 and 6 threads (2026-11-24): N = 10⁶ 9.3, 6.4 and 6.4 µs; N = 10⁵ 6.0, 3.2 and 2.7 µs.
const USEFUL_SHARES: usize = 6;
/// Samples whose scores are on the device at once.
const SCORES: usize = 1 << 22;

#[derive(Debug)]
pub(super) struct Float32<'a> {
    /// The first field, so that it is dropped first: its drop waits for the device.
    pub data: DeviceSamples<f32>,
    samples: Source<'a>,
    requested: Option<Requested>,
    tuning_file: Option<PathBuf>,
    plans: HashMap<Task, Planned>,
    estep: EStep,
    general: General<f32>,
    metropolis: Option<Metropolis>,
    /// The mixture to which batches' parameter sets are compared.
    batch_reference: Option<Arc<Mixture>>,
    /// Whether the latest batch had distant sets. Then nearness is checked first, or the next sums could be wasted.
    had_far_sets: bool,
    latest: Option<Latest>,
}

/// How a likelihood is evaluated.
#[derive(Debug, Clone)]
enum Planned {
    By(Plan),
    /// By the general kernels, on request or because no other can.
    General,
}

impl Planned {
    fn compares_sets(&self) -> bool {
        matches!(self, Self::By(plan) if plan.variant.family.facts().compares_sets)
    }
}

#[derive(Debug, Clone, Copy)]
enum Latest {
    Variant(Variant),
    Metropolis(Shape),
}

impl fmt::Display for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variant(variant) => variant.fmt(f),
            Self::Metropolis(shape) => shape.fmt(f),
        }
    }
}

impl<'a> Float32<'a> {
    pub fn new(samples: Source<'a>, options: &CudaOptions) -> Result<Self> {
        let requested = options.kernel.as_deref().map(Requested::new).transpose()?;
        let data = samples.load(Deviations::InFrame, options.memory_limit)?;
        Self::over(data, samples, requested, options.tuning_file.clone())
    }

    fn over(
        data: DeviceSamples<f32>,
        samples: Source<'a>,
        requested: Option<Requested>,
        tuning_file: Option<PathBuf>,
    ) -> Result<Self> {
        let _entered = data.gpu().enter()?;
        Ok(Self {
            data,
            samples,
            requested,
            tuning_file,
            plans: HashMap::new(),
            estep: EStep::default(),
            general: General::new()?,
            metropolis: None,
            batch_reference: None,
            had_far_sets: false,
            latest: None,
        })
    }

    fn parameters(&self, mixture: &Mixture) -> Result<DeviceParameters<f32>> {
        self.data.parameters(mixture)
    }

    pub fn task(&self, operation: Operation, mixture: &Mixture) -> Task {
        let task = Task::new(operation, &self.data, mixture);
        Task { n: if operation == Operation::Scores { task.n.min(SCORES) } else { task.n }, ..task }
    }

    /// Returns the task and parameters of a total or of scores, and the part of a total (log₂) that they leave out: with
    /// the [linear](Task::is_linear) terms of a `tied` mixture, or products of two features of a `full` one, if that is
    /// possible, loses no digits, and is not slower.
    pub fn prepared(&mut self, operation: Operation, mixture: &Mixture) -> Result<(Task, DeviceParameters<f32>, f64)> {
        let task = self.task(operation, mixture);
        let family = self.requested(operation).and_then(Requested::family);
        if let Some(linear) = families::linear(&task, family, &self.data.gpu().limits)
            && let Some(moments) = self.estep.moments(&mut self.data)?
            && let Some((of_terms, quadratic)) = of_tied(mixture, self.data.frame(), &moments)
        {
            // Scores compute the quadratic terms with the matrix.
            let (matrices, quadratic) = match operation {
                Operation::Scores => (self.parameters(mixture)?.matrices, 0.0),
                _ => (of_terms.matrices, quadratic.log2),
            };
            return Ok((linear, DeviceParameters { matrices, ..of_terms }, quadratic));
        }
        let parameters = self.parameters(mixture)?;
        if let Some(expanded) = families::expanded(&task, family, &self.data.gpu().limits)
            && let Some(of_full) = of_full(mixture, self.data.frame(), &parameters)
        {
            return Ok((expanded, of_full, 0.0));
        }
        Ok((task, parameters, 0.0))
    }

    /// Returns the requested kernel, if it has the operation.
    fn requested(&self, operation: Operation) -> Option<Requested> {
        let has = |family: &dyn Family| family.has(operation);
        self.requested.filter(|requested| requested.family().is_some_and(has))
    }

    /// Returns how these parameters are evaluated, decided once for each task; with `near`, compared to this reference.
    fn plan(&mut self, task: &Task, sets: &[DeviceParameters<f32>], near: Option<NearSets<'_>>) -> Result<Planned> {
        let planned = match self.plans.get(task) {
            Some(planned) => planned.clone(),
            None => {
                let planned = self.new_plan(task, sets, near)?;
                self.plans.insert(*task, planned.clone());
                planned
            }
        };
        self.latest = Some(Latest::Variant(match &planned {
            Planned::By(plan) => plan.variant,
            Planned::General => general::VARIANT,
        }));
        Ok(planned)
    }

    fn new_plan(&self, task: &Task, sets: &[DeviceParameters<f32>], near: Option<NearSets<'_>>) -> Result<Planned> {
        let gpu = self.data.gpu();
        let requested = self.requested(task.operation);
        let family = requested.and_then(Requested::family);
        let general: &dyn Family = &GENERAL;
        if family == Some(general) || family.is_none() && families(task, &gpu.limits) == [general] {
            return Ok(Planned::General);
        }
        if let Some(Requested::Variant(variant)) = requested {
            return Ok(Planned::By(Plan::new(gpu, variant, task)?));
        }
        if let Some(family) = family
            && let Some(problem) = family.problem(task, &gpu.limits)
        {
            return Err(families::error(family.name().into(), problem, task, &gpu.limits));
        }
        let scores = (task.operation == Operation::Scores).then(|| allocate(task.n)).transpose()?;
        let Chunk { pass, columns, started } = self.data.chunk(0)?;
        started.wait()?;
        let mut trial = LikelihoodTrial {
            gpu,
            task: *task,
            stream: &pass.stream,
            workspace: Workspace::new(MAX_TOTALS)?,
            columns: columns.part(0, task.n)?,
            sets,
            near,
            scores: scores.as_ref().map(Numbers::of),
            plan: None,
        };
        let variant = self.chooser(gpu).choose(task, family, candidates(task, family, &gpu.limits), &mut trial)?;
        Ok(Planned::By(Plan::new(gpu, variant, task)?))
    }

    fn chooser<'c>(&'c self, gpu: &'c Gpu) -> Chooser<'c> {
        Chooser { gpu, file: self.tuning_file.as_deref() }
    }

    /// Returns each set's total, as a natural logarithm.
    fn totals(&mut self, plan: &Plan, sets: &[DeviceParameters<f32>]) -> Result<Vec<f64>> {
        for pass in self.data.passes() {
            plan.prepare(&mut pass.workspace, Sets::Apart(sets))?;
        }
        let mut totals = vec![0.0; sets.len()];
        self.data.for_each_chunk(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let started = started.followed_by(workspace.parameters.send(stream)?);
                let running = plan.start(Work { stream, workspace, columns, scores: None }, Sets::Apart(sets))?;
                Ok((started.followed_by(running), workspace))
            },
            |(running, workspace)| running.results(&workspace.totals, sets.len()),
            |chunk| totals.iter_mut().zip(chunk).for_each(|(sum, total)| *sum += total),
        )?;
        let of = totals.into_iter().zip(sets);
        of.map(|(log2, set)| self.total(plan, log2, set.offset)).collect()
    }

    /// Returns a total as a natural logarithm, from a plan's sum over all samples and the set's constant.
    fn total(&self, plan: &Plan, log2: f64, offset: f64) -> Result<f64> {
        let bias = if plan.variant.family.facts().exp2_bias { exp2_bias(self.data.gpu())? } else { 0.0 };
        Ok(layout::total(self.data.weight_scale() * log2, self.data.total_weight(), offset, bias))
    }

    fn scores(&mut self, plan: &Plan, parameters: &DeviceParameters<f32>) -> Result<Array1<f64>> {
        let sets = Sets::Apart(slice::from_ref(parameters));
        for pass in self.data.passes() {
            plan.prepare(&mut pass.workspace, sets)?;
        }
        let scores: DeviceBuffer<f32> = allocate(self.data.n().min(SCORES))?;
        let staging = Staging::new(self.data.gpu(), scores.len());
        let mut all = Vec::with_capacity(self.data.n());
        self.data.one_by_one(
            |_, Chunk { pass, columns, started }| {
                let Pass { stream, workspace, .. } = pass;
                let _started = started.followed_by(workspace.parameters.send(stream)?);
                for first in (0..columns.n()).step_by(SCORES) {
                    let n = SCORES.min(columns.n() - first);
                    let place = Numbers::of(&scores);
                    let work = Work { stream, workspace, columns: columns.part(first, n)?, scores: Some(place) };
                    let running = plan.start(work, sets)?;
                    staging.read(stream, place.part(0..n)?, |scores| {
                        all.par_extend(scores.par_iter().map(|v| LN_2 * (f64::from(*v) + parameters.offset)));
                    })?;
                    running.wait()?;
                }
                Ok(())
            },
            Ok,
        )?;
        Ok(Array1::from_vec(all))
    }

    /// Returns the general kernels, for operations that no other kernel has.
    fn general(&mut self) -> (&mut General<f32>, &mut DeviceSamples<f32>) {
        self.latest = Some(Latest::Variant(general::VARIANT));
        (&mut self.general, &mut self.data)
    }

    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let _entered = self.data.gpu().enter()?;
        let (task, parameters, _) = self.prepared(Operation::Total, mixture)?;
        let sets = slice::from_ref(&parameters);
        let Planned::By(plan) = self.plan(&task, sets, None)? else {
            let (general, data) = self.general();
            return general.seconds(data, mixture, repeats);
        };
        let sets = Sets::Apart(sets);
        for pass in self.data.passes() {
            plan.prepare(&mut pass.workspace, sets)?;
        }
        let Chunk { pass, columns, started } = self.data.chunk(0)?;
        let Pass { stream, workspace, .. } = pass;
        started.followed_by(workspace.parameters.send(stream)?).wait()?;
        let run =
            |repeats| seconds(stream, repeats, || plan.start(Work { stream, workspace, columns, scores: None }, sets));
        run(1)?;
        run(repeats.max(1))
    }
}

impl FramedEvaluator for Float32<'_> {
    const PRECISION: Precision = Precision::Float32;

    fn frame(&self) -> &Frame {
        self.data.frame()
    }

    fn shared(&self) -> Result<Self> {
        let other = Self::over(self.data.share()?, self.samples.clone(), self.requested, self.tuning_file.clone())?;
        Ok(Self { batch_reference: self.batch_reference.clone(), ..other })
    }
}

impl Evaluator for Float32<'_> {
    fn data(&self) -> DataFacts<'_> {
        let (total_weight, weights) = (self.data.total_weight(), self.samples.weights());
        DataFacts { total_weight, weights, ..DataFacts::new(self.data.n(), self.data.d()) }
    }

    fn describe(&self) -> Description {
        let requested = || self.requested.map_or_else(|| "not chosen yet".into(), |requested| requested.to_string());
        let kernel = self.latest.map_or_else(requested, |latest| latest.to_string());
        Description::new(self.data.describe(), kernel)
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        check_features(mixture, self.data.d())?;
        let _entered = self.data.gpu().enter()?;
        let task = self.task(Operation::Total, mixture);
        let whitened =
            |requested| matches!(requested, Requested::Family(family) if family.name() == WHITENED_WGMMA.facts().name);
        if self.requested.is_none_or(whitened)
            && let Some((task, variant)) = total_on_tensor_cores(&task, &self.data.gpu().limits)
            && let Some(total) = self.estep.log_likelihood(&mut self.data, mixture, &task, variant)?
        {
            self.latest = Some(Latest::Variant(variant));
            return Ok(total);
        }
        let (task, parameters, quadratic) = self.prepared(Operation::Total, mixture)?;
        let sets = slice::from_ref(&parameters);
        match self.plan(&task, sets, None)? {
            Planned::By(plan) => Ok(self.totals(&plan, sets)?[0] + LN_2 * quadratic),
            Planned::General => {
                let (general, data) = self.general();
                general.log_likelihood(data, mixture)
            }
        }
    }

    /// Returns the totals, the same bits for the same sets in the same order. Without a fixed reference, near sets are
    /// compared to the first: rounding may depend on it, and differ from [`Self::log_likelihood`]'s.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        mixtures.iter().try_for_each(|mixture| check_features(mixture, self.data.d()))?;
        let _entered = self.data.gpu().enter()?;
        let mut totals = vec![0.0; mixtures.len()];
        let task = |mixture: &Mixture| self.task(Operation::Totals, mixture);
        let lengths: Vec<usize> = mixtures.chunk_by(|a, b| task(a) == task(b)).map(<[_]>::len).collect();
        let mut first = 0;
        for length in lengths {
            let (sets, totals) = (&mixtures[first..][..length], &mut totals[first..][..length]);
            let task = self.task(Operation::Totals, &sets[0]);
            self.batch(&task, sets, totals)?;
            first += length;
        }
        Ok(totals)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        check_features(mixture, self.data.d())?;
        let _entered = self.data.gpu().enter()?;
        let (task, parameters, _) = self.prepared(Operation::Scores, mixture)?;
        match self.plan(&task, slice::from_ref(&parameters), None)? {
            Planned::By(plan) => {
                let scores = self.scores(&plan, &parameters)?;
                Ok(add_offsets(&self.samples, parameters.gaps.as_ref(), scores))
            }
            Planned::General => self.general.score_samples(&mut self.data, &self.samples, mixture),
        }
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.data.d())?;
        let gpu = self.data.gpu();
        let _entered = gpu.enter()?;
        let requested = self.requested(Operation::EStep);
        let chooser = Chooser { gpu, file: self.tuning_file.as_deref() };
        let (variant, statistics) = self.estep.statistics(&mut self.data, mixture, &chooser, requested)?;
        self.latest = Some(Latest::Variant(variant));
        match statistics {
            Some(statistics) => Ok(statistics),
            None => self.general.statistics(&mut self.data, &self.samples, mixture),
        }
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.latest = Some(Latest::Variant(general::VARIANT));
        self.general.predict(&mut self.data, &self.samples, mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.latest = Some(Latest::Variant(general::VARIANT));
        self.general.predict_proba(&mut self.data, &self.samples, mixture)
    }

    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        Some(self)
    }
}

impl Markov for Float32<'_> {
    fn expectations(&mut self, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        self.latest = Some(Latest::Variant(general::VARIANT));
        self.general.expectations(&mut self.data, &self.samples, chain)
    }
}

impl Sampling for Float32<'_> {
    fn useful_shares(&mut self) -> usize {
        if self.data.is_resident() { USEFUL_SHARES.min(rayon::current_num_threads()) } else { 1 }
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        if self.batch_reference.as_deref() != Some(mixture) {
            self.batch_reference = Some(Arc::new(mixture.clone()));
        }
    }

    /// Makes the steps on the device for up to 8 components, 16 features, and resident samples without weights and
    /// missing values, unless another kernel is requested.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.data.d(), point)?;
        let shape = match self.requested {
            None => None,
            Some(Requested::Metropolis(shape)) => shape,
            Some(_) => return Ok(false),
        };
        if !metropolis::takes(target) || !self.data.is_resident() || self.data.weighted() || self.data.gaps() {
            return Ok(false);
        }
        let gpu = self.data.gpu();
        let _entered = gpu.enter()?;
        let metropolis = match self.metropolis.take().filter(|metropolis| metropolis.is_for(target)) {
            Some(ready) => self.metropolis.insert(ready),
            None => {
                let (frame, n) = (self.data.frame(), self.data.n());
                self.metropolis.insert(Metropolis::new(gpu, target, frame, n, shape, exp2_bias(gpu)?)?)
            }
        };
        self.latest = Some(Latest::Metropolis(metropolis.shape));
        let Chunk { pass, columns, .. } = self.data.chunk(0)?;
        metropolis.run(&pass.stream, columns, point, log_density, steps).map(|()| true)
    }
}
