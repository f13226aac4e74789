//! The device `auto`: CPU or GPU, whichever is measured to be faster for the data and the mixture at hand.
//!
//! A GPU has costs before it is useful: its driver takes a third of a second to start and to compile kernels, the
//! samples are laid out a second time, and the end of a process waits for the driver. So evaluations are made and timed
//! on the CPU at first. When the CPU is expected to need longer than these costs ([`choice`]), a separate thread
//! ([`warm_up`]) starts the driver while the CPU goes on. Then, if the remaining evaluations pay for the layout, they
//! are timed on the GPU too, and move there if it is faster.
//!
//! With several GPUs, evaluations move to another such evaluator ([`on_gpus`]), from one GPU to all by the same rules.
use choice::{Choices, Kind, LONG, Method, Rules, Side};
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::draw::{Draw, Drawn};
use gmm_core::contract::evaluator::{DataFacts, Description, Evaluator, check_features, data_facts, draw_by_scores};
use gmm_core::contract::markov::Markov;
use gmm_core::contract::metropolis::{MetropolisSteps, MetropolisTarget};
use gmm_core::contract::sampling::Sampling;
use gmm_core::data::samples::{Rows, Samples};
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use gmm_core::precision::{Operation, Precision};
use gmm_core::statistics::Statistics;
use ndarray::{Array1, Array2};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warm_up::{OpenGpu, PROBE, State, WarmUp};

mod choice;
#[cfg(test)]
mod tests;
mod warm_up;

/// The Metropolis steps that time the GPU.
const TIMED_STEPS: usize = 16;
/// The CPU's time in a settled evaluator is the fastest of this many evaluations, because the first is slower.
const SETTLING_EVALUATIONS: usize = 4;

/// Evaluates on the CPU or the GPU; or on one GPU, in the place of the CPU, or all GPUs. Each [`Kind`] of evaluation
/// begins on the CPU and moves to the GPU at most once. A kind that neither supports goes to the float64 reference, or
/// is an error if both are GPUs. Labels and responsibilities come from the CPU, because callers ask for them once.
pub(crate) struct AutoEvaluator<'a> {
    samples: Samples<'a>,
    cpu: Box<dyn Evaluator + 'a>,
    gpu: Gpu<'a>,
    open_gpu: OpenGpu,
    warm_up: Option<WarmUp>,
    reference: Option<ReferenceEvaluator>,
    choices: Choices,
    latest: Option<Side>,
    settled: bool,
    batch_reference: Option<Mixture>,
    /// Whether the first side is a GPU too.
    from_gpu: bool,
}

/// Returns the GPU's evaluator of some samples; with `several` GPUs it moves from one to all if measured to be faster.
pub(crate) fn on_gpus<'a>(
    samples: Samples<'a>,
    several: bool,
    open_one: impl Fn(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>>,
    open_all: impl for<'b> Fn(Samples<'b>) -> Result<Box<dyn Evaluator + 'b>> + Send + Sync + 'static,
) -> Result<Box<dyn Evaluator + 'a>> {
    let begin = Instant::now();
    let one = open_one(samples.clone())?;
    // A warm-up's few samples are for the kernels of one GPU.
    if !several || samples.n_samples().saturating_mul(samples.n_features()) <= PROBE {
        return Ok(one);
    }
    let choices = Choices::new(begin.elapsed(), Rules::TO_ALL_GPUS);
    Ok(Box::new(AutoEvaluator { from_gpu: true, ..AutoEvaluator::of(samples, one, choices, open_all) }))
}

enum Gpu<'a> {
    /// The samples are not on it yet.
    Unopened,
    /// There is no GPU, or it has failed, for this reason.
    Absent(String),
    Ready(Box<dyn Evaluator + 'a>),
}

impl<'a> AutoEvaluator<'a> {
    /// Lays out the samples for the CPU, with `threads` threads or rayon's; calls `open_gpu` if a GPU should pay.
    pub fn new(
        samples: Samples<'a>,
        threads: Option<usize>,
        open_gpu: impl for<'b> Fn(Samples<'b>) -> Result<Box<dyn Evaluator + 'b>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let begin = Instant::now();
        let cpu = Box::new(CpuEvaluator::with(samples.clone(), threads, None)?);
        let choices = Choices::new(begin.elapsed(), Rules::TO_A_GPU);
        Ok(Self::of(samples, cpu, choices, open_gpu))
    }

    fn of(
        samples: Samples<'a>,
        cpu: Box<dyn Evaluator + 'a>,
        choices: Choices,
        open_gpu: impl for<'b> Fn(Samples<'b>) -> Result<Box<dyn Evaluator + 'b>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            samples,
            cpu,
            gpu: Gpu::Unopened,
            open_gpu: Arc::new(open_gpu),
            warm_up: None,
            reference: None,
            choices,
            latest: None,
            settled: false,
            batch_reference: None,
            from_gpu: false,
        }
    }

    /// Evaluates on the side of the kind, after choosing it if it is time to.
    fn run<T>(
        &mut self,
        method: Method,
        mixture: &Mixture,
        evaluate: impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<T> {
        check_features(mixture, self.n_features())?;
        let kind = self.kind(method, mixture);
        if !self.choices.is_made(kind)
            && let Some(result) = self.evaluate_undecided(kind, mixture, &evaluate)?
        {
            return Ok(result);
        }
        let side = self.choices.side(kind);
        let result = evaluate(self.side(side))?;
        self.latest = Some(side);
        Ok(result)
    }

    /// Evaluates a kind without a side, and may choose one. Returns `None` without a usable result.
    fn evaluate_undecided<T>(
        &mut self,
        kind: Kind,
        mixture: &Mixture,
        evaluate: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut result = None;
        if self.settled || !self.gpu_is_worth_a_trial(kind, mixture) {
            result = self.evaluate_on_cpu(kind, 1, evaluate)?;
        }
        if self.settled {
            self.settle_kind(kind, 1, evaluate)?;
        }
        if !self.choices.is_made(kind) && (self.settled || result.is_none()) {
            result = self.try_gpu(kind, 1, evaluate)?.or(result);
        }
        Ok(result)
    }

    fn kind(&self, method: Method, mixture: &Mixture) -> Kind {
        let operation = if method == Method::Statistics { Operation::Statistics } else { Operation::LogLikelihood };
        Kind {
            method,
            n_components: mixture.n_components(),
            covariance_type: mixture.covariance_type(),
            precision: self.precision(mixture, operation),
        }
    }

    /// Makes `count` evaluations on the CPU by `evaluate` and times them. Returns `None` if the CPU lacks the kind.
    fn evaluate_on_cpu<T>(
        &mut self,
        kind: Kind,
        count: u32,
        evaluate: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Option<T>> {
        let begin = Instant::now();
        let result = match evaluate(self.cpu.as_mut()) {
            Err(Error::Unsupported { .. }) if !self.from_gpu => return Ok(None),
            result => result?,
        };
        self.choices.count(kind, begin.elapsed() / count);
        if matches!(self.gpu, Gpu::Absent(_)) {
            self.choices.choose(kind, Side::Cpu);
        }
        self.latest = Some(Side::Cpu);
        Ok(Some(result))
    }

    /// Returns whether the GPU has compiled its kernels for the kind and the remaining evaluations pay for the layout
    /// there. Starts the GPU, and requests the kernels, when these pay.
    fn gpu_is_worth_a_trial(&mut self, kind: Kind, mixture: &Mixture) -> bool {
        if matches!(self.gpu, Gpu::Absent(_)) || self.warm_up.is_none() && !self.choices.start_pays(kind) {
            return false;
        }
        let warm_up = self.warm_up.get_or_insert_with(|| WarmUp::start(&self.samples, &self.open_gpu));
        match warm_up.state(kind, mixture) {
            State::Busy => false,
            State::Failed(error) => {
                self.gpu = Gpu::Absent(error.to_string());
                false
            }
            State::Warm if matches!(self.gpu, Gpu::Ready(_)) => self.choices.fastest(kind).is_some(),
            State::Warm => self.choices.layout_pays(kind),
        }
    }

    /// Leaves a kind of a settled evaluator to the CPU, unless Markov chains would take so long there that a GPU may
    /// pay. Repeats short evaluations, because the first is slower than the next.
    fn settle_kind<T>(
        &mut self,
        kind: Kind,
        count: u32,
        evaluate: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<()> {
        for _ in 0..SETTLING_EVALUATIONS {
            let Some(fastest) = self.choices.fastest(kind) else { break };
            let gpu_is_ready = matches!(self.gpu, Gpu::Ready(_)) && kind.method != Method::ScoreSamples;
            if !(gpu_is_ready || self.choices.chains_pay(kind, fastest)) {
                self.choices.choose(kind, Side::Cpu);
            }
            if self.choices.is_made(kind) || fastest > LONG {
                break;
            }
            self.evaluate_on_cpu(kind, count, evaluate)?;
        }
        Ok(())
    }

    /// Times `count` evaluations by `evaluate` on the GPU, and chooses the kind's side: the GPU if it is faster than
    /// the CPU, or if the CPU does not support the kind. Returns the GPU's result if the GPU is chosen.
    fn try_gpu<T>(
        &mut self,
        kind: Kind,
        count: u32,
        evaluate: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Option<T>> {
        if let Gpu::Unopened = self.gpu {
            self.gpu =
                (self.open_gpu)(self.samples.clone()).map_or_else(|error| Gpu::Absent(error.to_string()), Gpu::Ready);
            if let (Gpu::Ready(gpu), true) = (&mut self.gpu, self.settled) {
                gpu.sampling().into_iter().for_each(Sampling::settle);
            }
        }
        let timed = match &mut self.gpu {
            Gpu::Ready(gpu) => match time(gpu.as_mut(), evaluate) {
                // A GPU that fails is not used again; the CPU holds all the data.
                Err(error @ Error::Cuda { .. }) => {
                    self.gpu = Gpu::Absent(error.to_string());
                    None
                }
                timed => timed?,
            },
            Gpu::Unopened | Gpu::Absent(_) => None,
        };
        let cpu = self.choices.fastest(kind).map(|fastest| fastest.saturating_mul(count));
        let (side, result) = match timed {
            Some((gpu, result)) if cpu.is_none_or(|cpu| gpu < cpu) => (Side::Gpu, Some(result)),
            _ if cpu.is_none() => (Side::Reference, None),
            _ => (Side::Cpu, None),
        };
        self.choices.choose(kind, side);
        if result.is_some() {
            self.latest = Some(side);
        }
        Ok(result)
    }

    fn side(&mut self, side: Side) -> &mut (dyn Evaluator + 'a) {
        match (side, &mut self.gpu) {
            (Side::Gpu, Gpu::Ready(gpu)) => gpu.as_mut(),
            (Side::Reference, _) => self.reference.get_or_insert_with(|| ReferenceEvaluator::new(self.samples.clone())),
            _ => self.cpu.as_mut(),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Evaluator for AutoEvaluator<'_> {
    data_facts!();

    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        self.cpu.precision(mixture, operation)
    }

    /// Describes the side of the latest evaluation.
    fn describe(&self) -> Description {
        let mut description = match (self.latest, &self.gpu, &self.reference) {
            (Some(Side::Gpu), Gpu::Ready(gpu), _) => return gpu.describe(),
            (Some(Side::Reference), _, Some(reference)) => reference.describe(),
            _ => self.cpu.describe(),
        };
        if let Gpu::Absent(problem) = &self.gpu {
            description.gpu_problem = Some(problem.clone());
        }
        description
    }

    /// Shares the samples of the CPU and the GPU, and the choices so far.
    fn share(&self) -> Result<Box<dyn Evaluator + '_>> {
        let gpu = match &self.gpu {
            Gpu::Unopened => Gpu::Unopened,
            Gpu::Absent(problem) => Gpu::Absent(problem.clone()),
            Gpu::Ready(gpu) => Gpu::Ready(gpu.share()?),
        };
        Ok(Box::new(AutoEvaluator {
            samples: self.samples.reborrow(),
            cpu: self.cpu.share()?,
            gpu,
            open_gpu: Arc::clone(&self.open_gpu),
            warm_up: None,
            reference: self.reference.clone(),
            choices: self.choices.clone(),
            latest: self.latest,
            settled: self.settled,
            batch_reference: self.batch_reference.clone(),
            from_gpu: self.from_gpu,
        }))
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.run(Method::LogLikelihood, mixture, |side| side.log_likelihood(mixture))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let Some(first) = mixtures.first() else { return Ok(Vec::new()) };
        let reference = self.batch_reference.take();
        let totals = self.run(Method::LogLikelihoodBatch, first, |side| {
            // Each time, because the side may have changed.
            if let (Some(reference), Some(sampling)) = (&reference, side.sampling()) {
                sampling.fix_batch_reference(reference);
            }
            side.log_likelihood_batch(mixtures)
        });
        self.batch_reference = reference;
        totals
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.run(Method::ScoreSamples, mixture, |side| side.score_samples(mixture))
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.run(Method::Statistics, mixture, |side| side.statistics(mixture))
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn draw(&mut self, draw: &Draw<'_>) -> Result<Vec<Drawn>> {
        draw_by_scores(self, draw)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.cpu.predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.cpu.predict_proba(mixture)
    }

    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }

    fn markov(&mut self) -> Option<&mut dyn Markov> {
        None
    }
}

impl Sampling for AutoEvaluator<'_> {
    fn settle(&mut self) {
        self.settled = true;
    }

    fn useful_shares(&mut self) -> usize {
        let side = self.latest.unwrap_or(Side::Cpu);
        self.side(side).sampling().map_or(1, Sampling::useful_shares)
    }

    fn fix_batch_reference(&mut self, mixture: &Mixture) {
        self.batch_reference = Some(mixture.clone());
    }

    /// Runs on the GPU if its steps are faster than evaluations on the CPU, decided before the first of many steps.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.n_features(), point)?;
        let Some(mixture) = target.mixture(point) else { return Ok(false) };
        let kind = self.kind(Method::Metropolis, &mixture);
        if !self.choices.is_made(kind) {
            let steps = |side: &mut dyn Evaluator| {
                // With a log density of NaN at the point, the device rejects every step.
                if let Some(own) = side.sampling()
                    && own.metropolis(target, point, f64::NAN, &mut ZeroSteps(TIMED_STEPS))?
                {
                    return Ok(());
                }
                (0..TIMED_STEPS).try_for_each(|_| side.log_likelihood(&mixture).map(drop))
            };
            if self.from_gpu {
                self.evaluate_on_cpu(kind, TIMED_STEPS as u32, &steps)?;
                self.settle_kind(kind, TIMED_STEPS as u32, &steps)?;
            } else {
                // On the CPU each step is one evaluation.
                let evaluate = |side: &mut dyn Evaluator| side.log_likelihood(&mixture).map(drop);
                self.evaluate_on_cpu(kind, 1, &evaluate)?;
                self.settle_kind(kind, 1, &evaluate)?;
            }
            if !self.choices.is_made(kind) {
                self.try_gpu(kind, TIMED_STEPS as u32, &steps)?;
            }
        }
        let side = self.choices.side(kind);
        let Some(own) = self.side(side).sampling() else { return Ok(false) };
        let done = own.metropolis(target, point, log_density, steps)?;
        if done {
            self.latest = Some(side);
        }
        Ok(done)
    }
}

/// This many steps of length zero, only to be timed.
struct ZeroSteps(usize);

impl MetropolisSteps for ZeroSteps {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        rows.fill(0.0);
        std::mem::take(&mut self.0)
    }
    fn record(&mut self, _: &[f64], _: &[f64]) {}
}

/// Returns the result of an evaluation and its time: the shortest of three after an uncounted one, or of two if they
/// are [`LONG`]. Returns `None` if the evaluator does not support it.
fn time<T>(
    evaluator: &mut dyn Evaluator,
    evaluate: &impl Fn(&mut dyn Evaluator) -> Result<T>,
) -> Result<Option<(Duration, T)>> {
    let mut shortest = Duration::MAX;
    let mut run = 0;
    loop {
        let begin = Instant::now();
        let result = match evaluate(evaluator) {
            Err(Error::Unsupported { .. }) => return Ok(None),
            result => result?,
        };
        let time = begin.elapsed();
        if run > 0 || time > LONG {
            shortest = shortest.min(time);
        }
        if run == 3 || run == 1 && time > LONG {
            return Ok(Some((shortest, result)));
        }
        run += 1;
    }
}
