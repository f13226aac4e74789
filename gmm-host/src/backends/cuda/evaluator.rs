//! The CUDA backend in float32: the choice of a kernel for each operation.
use super::backend::{CudaOptions, cuda_kernel_names};
use super::estep::{self, EStep, scatter_threads};
use super::general::{self, General};
use super::gpu::failed;
use super::launch::{Lane, MAX_SETS, Plan};
use super::layout;
use super::memory::allocate;
use super::moments::{self, Moments};
use super::resident::Resident;
use super::scattered::Scattered;
use super::tuning::{self, Trial};
use super::variant::{Kind, Op, Task, Variant, candidates};
use super::walk::{self, Shape, Walk};
use super::whitened::Whitened;
use crate::backends::device_parameters::DeviceParameters;
use crate::backends::either_precision::Float32Evaluator;
use crate::data::frame::Frame;
use crate::evaluator::check_features;
use crate::{
    Covariances, Description, Error, Evaluator, MetropolisSteps, MetropolisTarget, Mixture, Result, Rows, Samples,
    Statistics,
};
use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use ndarray::{Array1, Array2};
use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::fmt;
use std::slice;

/// Samples whose scores are on the device at once.
const SCORES: usize = 1 << 22;

/// What the user asks for.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Kind(Kind),
    Variant(Variant),
    /// The kernel of [`Evaluator::metropolis`], which has no other operation.
    Walk(Option<Shape>),
    /// A kernel that is the only one for what it does: a run that recorded it goes on with it in any case.
    Only(&'static str),
}

/// The names of [`Wish::Only`].
const ONLY: [&str; 3] = [moments::NAME, estep::NAME, general::NAME];

impl Wish {
    fn new(name: &str) -> Result<Self> {
        let kind = name.parse().map(Self::Kind).or_else(|()| name.parse().map(Self::Variant));
        let walk = || if name == walk::NAME { Ok(Self::Walk(None)) } else { name.parse().map(|s| Self::Walk(Some(s))) };
        let only = || ONLY.into_iter().find(|only| *only == name).map(Self::Only).ok_or(());
        kind.or_else(|()| walk()).or_else(|()| only()).map_err(|()| Error::Kernel {
            name: name.into(),
            problem: "is not one of the CUDA backend".into(),
            available: cuda_kernel_names().join(", "),
        })
    }

    fn kind(self) -> Option<Kind> {
        match self {
            Self::Kind(kind) => Some(kind),
            Self::Variant(variant) => Some(variant.kind),
            Self::Walk(_) | Self::Only(_) => None,
        }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(kind.name()),
            Self::Variant(variant) => variant.fmt(f),
            Self::Walk(None) => f.write_str(walk::NAME),
            Self::Walk(Some(shape)) => shape.fmt(f),
            Self::Only(name) => f.write_str(name),
        }
    }
}

/// The CUDA backend in float32.
#[derive(Debug)]
pub(super) struct Single<'a> {
    /// First, so that its drop comes before the others'.
    pub data: Resident<f32>,
    samples: Samples<'a>,
    wish: Option<Wish>,
    plans: HashMap<(usize, Op), Plan>,
    /// The E-step's kernels for small K and D, by lanes and kind.
    moments: HashMap<(usize, moments::Kind), Moments>,
    /// Those for larger ones, for the latest shape.
    estep: Option<EStep>,
    general: General<f32>,
    walk: Option<Walk>,
    latest: Option<Latest>,
}

/// The kernel that the latest evaluation used.
#[derive(Debug, Clone, Copy)]
enum Latest {
    Variant(Variant),
    Moments,
    EStep,
    General,
    Walk(Shape),
}

impl fmt::Display for Latest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variant(variant) => variant.fmt(f),
            Self::Moments => f.write_str(moments::NAME),
            Self::EStep => f.write_str(estep::NAME),
            Self::General => f.write_str(general::NAME),
            Self::Walk(shape) => shape.fmt(f),
        }
    }
}

impl<'a> Single<'a> {
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        let wish = options.kernel.as_deref().map(Wish::new).transpose()?;
        let data = Resident::new(&samples, ordinal, options.memory_limit)?;
        let (plans, moments) = (HashMap::new(), HashMap::new());
        Ok(Self {
            data,
            samples,
            wish,
            plans,
            moments,
            estep: None,
            general: General::new()?,
            walk: None,
            latest: None,
        })
    }

    /// Whether the kernels of this file evaluate it; else `general` does.
    fn is_plain(&self, mixture: &Mixture) -> bool {
        let diagonal = matches!(mixture.covariances(), Covariances::Diag(_) | Covariances::Spherical(_));
        diagonal && !self.data.weighted()
    }

    /// The general kernels, which do all that is left.
    fn general(&mut self) -> (&mut General<f32>, &mut Resident<f32>) {
        self.latest = Some(Latest::General);
        (&mut self.general, &mut self.data)
    }

    /// The mixture in the data's frame.
    fn pack(&self, mixture: &Mixture) -> Result<DeviceParameters<f32>> {
        check_features(mixture, self.data.d)?;
        DeviceParameters::new(mixture, &self.data.frame)
    }

    /// The kernel of the user's wish, where it has the operation.
    fn wished(&self, op: Op) -> Option<Wish> {
        self.wish.filter(|wish| match op {
            Op::Total => wish.kind().is_some(),
            Op::Batch => wish.kind() == Some(Kind::Batch),
            Op::Scores => wish.kind().is_some_and(Kind::scores),
        })
    }

    /// The variant to use for these parameters: chosen once for each K and operation.
    fn plan(&mut self, op: Op, sets: &[DeviceParameters<f32>]) -> Result<Plan> {
        let k = sets.first().map_or(0, |p| p.n_components);
        if let Some(plan) = self.plans.get(&(k, op)) {
            self.latest = Some(Latest::Variant(plan.variant));
            return Ok(*plan);
        }
        let (gpu, wish) = (self.data.gpu, self.wished(op));
        let size = self.data.chunk_size();
        let n = if op == Op::Scores { size.min(SCORES) } else { size };
        let task = Task { n, k, d: self.data.d, op };
        let plan = if let Some(Wish::Variant(variant)) = wish {
            Plan::new(gpu, variant, &task)?
        } else {
            let mut scores = if op == Op::Scores { Some(allocate(n)?) } else { None };
            let (lane, columns) = self.data.send(0)?;
            let trial = Trial { lane, columns: columns.part(0, n)?, sets, scores: scores.as_mut() };
            tuning::choose(gpu, &task, wish.and_then(Wish::kind), trial)?
        };
        self.plans.insert((k, op), plan);
        self.latest = Some(Latest::Variant(plan.variant));
        Ok(plan)
    }

    /// Runs `work` with the device's context current; after a failure no work is left behind that could still write to
    /// what the next evaluation uses.
    fn with_device<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.data.gpu.enter()?;
        work(self).inspect_err(|_| self.data.drain())
    }

    /// Each set's total, as a natural logarithm.
    fn totals(&mut self, op: Op, sets: &[DeviceParameters<f32>]) -> Result<Vec<f64>> {
        let plan = self.plan(op, sets)?;
        for lane in &mut self.data.lanes {
            lane.upload(&plan, sets)?;
        }
        let mut totals = vec![0.0; sets.len()];
        let mut add = |lane: &Lane| -> Result<()> {
            totals.iter_mut().zip(lane.wait(sets.len())?).for_each(|(sum, total)| *sum += total);
            Ok(())
        };
        let (lanes, chunks) = (self.data.lanes.len(), self.data.n_chunks());
        for c in 0..chunks {
            if c >= lanes {
                add(&self.data.lanes[c % lanes])?;
            }
            let (lane, columns) = self.data.send(c)?;
            lane.launch(&plan, columns, sets, None)?;
        }
        for c in chunks.saturating_sub(lanes)..chunks {
            add(&self.data.lanes[c % lanes])?;
        }
        let bias = plan.variant.kind.bias();
        Ok(totals.iter().zip(sets).map(|(total, packed)| layout::total(*total, self.data.n, packed, bias)).collect())
    }

    /// The sums of the E-step's kernel over all samples.
    fn moments(&mut self, whitened: &Whitened) -> Result<Vec<f64>> {
        let key = (moments::lanes(whitened.dim().0), moments::Kind::new(whitened));
        let mut kernel = match self.moments.remove(&key) {
            Some(kernel) => kernel,
            None => Moments::new(self.data.gpu, whitened)?,
        };
        let mut sums: Vec<f64> = Vec::new();
        for c in 0..self.data.n_chunks() {
            let (lane, columns) = self.data.send(c)?;
            let chunk = kernel.run(lane, columns, whitened)?;
            if sums.is_empty() {
                sums = chunk;
            } else {
                sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v);
            }
        }
        self.moments.insert(key, kernel);
        Ok(sums)
    }

    /// The E-step for larger K and D; none if a stage of samples does not fit into shared memory.
    fn estep(&mut self, mixture: &Mixture) -> Result<Option<Statistics>> {
        let Self { data, estep, .. } = self;
        check_features(mixture, data.d)?;
        let packed = DeviceParameters::with_matrices(mixture, &data.frame)?;
        let shared = data.gpu.limits.shared_per_block;
        let threads = scatter_threads(mixture.covariance_type());
        let scattered = Scattered::new(mixture, &packed, &data.frame, (threads, shared));
        if scattered.shape.shared_bytes() > shared {
            return Ok(None);
        }
        let mut kernels = match estep.take() {
            Some(kernels) if kernels.serves(packed.n_components, &scattered.shape) => kernels,
            // Its memory is free again before the next one asks for some.
            _ => EStep::new(data.gpu, &packed, &scattered, data.chunk_size())?,
        };
        let mut values = vec![0.0; scattered.shape.sums()];
        let mut log2 = 0.0;
        for c in 0..data.n_chunks() {
            let (lane, columns) = data.send(c)?;
            let sums = kernels.run(lane, columns, &packed, &scattered)?;
            values.iter_mut().zip(sums.values).for_each(|(sum, v)| *sum += v);
            log2 += sums.log2;
        }
        *estep = Some(kernels);
        let (scale, weight) = (data.weight_scale(), data.total_weight);
        values.iter_mut().for_each(|sum| *sum *= scale);
        let log_likelihood = LN_2 * (scale * log2 + weight * packed.offset);
        self.latest = Some(Latest::EStep);
        scattered.statistics(&values, weight, log_likelihood, &self.data.frame).map(Some)
    }

    /// See [`super::CudaEvaluator::kernel_seconds`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        if !self.is_plain(mixture) {
            let (general, data) = self.general();
            return general.seconds(data, mixture, repeats);
        }
        let packed = self.pack(mixture)?;
        let sets = slice::from_ref(&packed);
        self.with_device(|this| {
            let plan = this.plan(Op::Total, sets)?;
            let (lane, columns) = this.data.send(0)?;
            lane.upload(&plan, sets)?;
            let mut trial = Trial { lane, columns, sets, scores: None };
            trial.seconds(&plan, 1)?;
            trial.seconds(&plan, repeats.max(1))
        })
    }
}

impl Float32Evaluator for Single<'_> {
    fn frame(&self) -> &Frame {
        &self.data.frame
    }
}

impl Evaluator for Single<'_> {
    fn n_samples(&self) -> usize {
        self.data.n
    }

    fn n_features(&self) -> usize {
        self.data.d
    }

    fn total_weight(&self) -> f64 {
        self.data.total_weight
    }

    fn describe(&self) -> Description {
        let wish = || self.wish.map_or_else(|| "not chosen yet".into(), |wish| wish.to_string());
        Description { device: self.data.describe(), kernel: self.latest.map_or_else(wish, |latest| latest.to_string()) }
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        if !self.is_plain(mixture) {
            let (general, data) = self.general();
            return general.log_likelihood(data, mixture);
        }
        let packed = self.pack(mixture)?;
        self.with_device(|this| this.totals(Op::Total, slice::from_ref(&packed))).map(|totals| totals[0])
    }

    /// A set's total does not depend on which other sets it is evaluated with. It may differ from
    /// [`Self::log_likelihood`]'s by rounding.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        if !mixtures.iter().all(|mixture| self.is_plain(mixture)) {
            return mixtures.iter().map(|mixture| self.log_likelihood(mixture)).collect();
        }
        let packed: Vec<_> = mixtures.iter().map(|m| self.pack(m)).collect::<Result<_>>()?;
        self.with_device(|this| {
            let mut totals = Vec::with_capacity(packed.len());
            for same_k in packed.chunk_by(|a, b| a.n_components == b.n_components) {
                let task = Task { n: this.data.chunk_size(), k: same_k[0].n_components, d: this.data.d, op: Op::Batch };
                let together = this.wish.and_then(Wish::kind).is_none_or(|kind| kind == Kind::Batch)
                    && !candidates(&task, None, &this.data.gpu.limits).is_empty();
                let (op, most) = if together { (Op::Batch, MAX_SETS) } else { (Op::Total, 1) };
                for sets in same_k.chunks(most) {
                    totals.extend(this.totals(op, sets)?);
                }
            }
            Ok(totals)
        })
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        if !self.is_plain(mixture) {
            let (general, data) = self.general();
            return general.score_samples(data, mixture);
        }
        let packed = self.pack(mixture)?;
        let sets = slice::from_ref(&packed);
        self.with_device(|this| {
            let plan = this.plan(Op::Scores, sets)?;
            let mut scores: DeviceBuffer<f32> = allocate(this.data.n.min(SCORES))?;
            let mut host = vec![0.0f32; scores.len()];
            let mut all = Vec::with_capacity(this.data.n);
            for c in 0..this.data.n_chunks() {
                let (lane, columns) = this.data.send(c)?;
                lane.upload(&plan, sets)?;
                for first in (0..columns.n()).step_by(SCORES) {
                    let n = SCORES.min(columns.n() - first);
                    lane.launch(&plan, columns.part(first, n)?, sets, Some(&mut scores))?;
                    // SAFETY: both are as long, and the copy is waited for.
                    unsafe { scores.index(..n).async_copy_to(&mut host[..n], &lane.stream) }
                        .map_err(failed("cuMemcpyDtoHAsync"))?;
                    lane.synchronize()?;
                    all.extend(host[..n].iter().map(|v| LN_2 * (f64::from(*v) + packed.offset)));
                }
            }
            Ok(Array1::from_vec(all))
        })
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        let (k, d) = mixture.means().dim();
        if !moments::takes(k, d) {
            if let Some(statistics) = self.with_device(|this| this.estep(mixture))? {
                return Ok(statistics);
            }
            let (general, data) = self.general();
            return general.statistics(data, mixture);
        }
        check_features(mixture, self.data.d)?;
        let whitened = Whitened::new(mixture, &self.data.frame)?;
        let mut sums = self.with_device(|this| this.moments(&whitened))?;
        self.latest = Some(Latest::Moments);
        let scale = self.data.weight_scale();
        sums.iter_mut().for_each(|sum| *sum *= scale);
        let weight = self.data.total_weight;
        whitened.statistics(&sums, moments::lanes(k), weight, layout::EXP2_BIAS, &self.data.frame)
    }

    /// With up to 8 components, 16 features, and resident samples without weights, if no other kernel is asked for.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.data.d, point)?;
        let shape = match self.wish {
            None => None,
            Some(Wish::Walk(shape)) => shape,
            Some(_) => return Ok(false),
        };
        if !walk::takes(target) || !self.data.is_resident() || self.data.weighted() {
            return Ok(false);
        }
        self.with_device(|this| {
            let Self { data, walk, latest, .. } = this;
            let walk = match walk.take().filter(|walk| walk.is_for(target)) {
                Some(ready) => walk.insert(ready),
                None => walk.insert(Walk::new(data.gpu, target, &data.frame, data.n, shape)?),
            };
            *latest = Some(Latest::Walk(walk.shape));
            let (lane, columns) = data.send(0)?;
            walk.run(lane, columns, point, log_density, steps).map(|()| true)
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        let (general, data) = self.general();
        general.predict(data, mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        let (general, data) = self.general();
        general.predict_proba(data, mixture)
    }
}
