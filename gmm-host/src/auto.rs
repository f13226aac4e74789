//! The device `auto`: CPU or GPU, whichever is faster for the data and the mixture at hand, by measurement.
//!
//! A GPU costs before it gives: its driver takes about a fifth of a second to start and compiles each kernel when it is
//! first used, and the samples are laid out once more. So the CPU works from the start, as if there were nothing else, and
//! a thread of its own (`warm_up`) has the driver start and compile meanwhile. Evaluations move when that is done, if what
//! they are likely to take yet is longer than another layout of the samples, and if the GPU is then measured to be faster.
//! A job that ends before has waited for nothing.
use crate::{
    CovarianceType, CpuEvaluator, Description, Error, Evaluator, Mixture, Operation, Precision, ReferenceEvaluator,
    Result, Rows, Samples, Statistics, WalkSteps, WalkTarget,
};
use ndarray::{Array1, Array2};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use warm_up::{State, WarmUp};

mod warm_up;

/// An evaluation that the CPU does in this many seconds stays there: a GPU needs about as long to answer at all.
const QUICK: f64 = 15e-6;
/// The GPU's driver is started at once for data of more elements than this, else when the CPU has evaluated for so long:
/// most jobs over less data are done by then, and do not touch the driver.
const LARGE: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_millis(20);
/// E-steps that a fit is taken to have ahead of it. Of other evaluations there are taken to be as many as there were.
const E_STEPS: u32 = 10;
/// Steps of the walk that is timed.
const STEPS: usize = 16;

/// Makes samples resident on the GPU.
pub(crate) type Open = for<'a> fn(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>>;

/// Evaluates on the CPU or on the GPU. Each kind of evaluation (operation, K, covariance type, number type) stays with the
/// CPU, which has it first, or moves to the GPU once; what neither has goes to the float64 reference. Labels and
/// responsibilities, which are asked for once, come from the CPU.
pub(crate) struct AutoEvaluator<'a> {
    samples: Samples<'a>,
    cpu: CpuEvaluator<'a>,
    /// What the CPU's layout of the samples took: the GPU's takes about as long.
    layout: Duration,
    open: Open,
    gpu: Gpu<'a>,
    warm_up: Option<WarmUp>,
    reference: Option<ReferenceEvaluator>,
    /// Evaluations on the CPU of kinds that have no side yet, and the time of all.
    seen: HashMap<Kind, Seen>,
    evaluated: Duration,
    choices: HashMap<Kind, Side>,
    latest: Option<Side>,
    settled: bool,
}

/// The state of the GPU.
enum Gpu<'a> {
    /// Without the samples yet.
    Unopened,
    /// No GPU, or one that failed.
    Absent,
    Ready(Box<dyn Evaluator + 'a>),
}

/// Evaluations of a kind.
struct Seen {
    count: u32,
    fastest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Cpu,
    Gpu,
    Reference,
}

/// A kind of evaluation: operation, K, covariance type, number type.
pub(crate) type Kind = (Op, usize, CovarianceType, Precision);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Total,
    Batch,
    Scores,
    Statistics,
    Walk,
}

/// Steps that lead nowhere, to be timed.
struct Still(usize);

impl WalkSteps for Still {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        rows.fill(0.0);
        std::mem::take(&mut self.0)
    }
    fn record(&mut self, _: &[f64], _: &[f64]) {}
}

impl<'a> AutoEvaluator<'a> {
    /// `open` reaches the GPU, if there is one.
    pub fn new(samples: Samples<'a>, open: Open) -> Result<Self> {
        let large = samples.n_samples().saturating_mul(samples.n_features()) > LARGE;
        let warm_up = large.then(|| WarmUp::start(&samples, open));
        let begin = Instant::now();
        let cpu = CpuEvaluator::new(samples.clone())?;
        Ok(Self {
            samples,
            cpu,
            layout: begin.elapsed(),
            open,
            gpu: Gpu::Unopened,
            warm_up,
            reference: None,
            seen: HashMap::new(),
            evaluated: Duration::ZERO,
            choices: HashMap::new(),
            latest: None,
            settled: false,
        })
    }

    /// Runs an evaluation on the side of its kind.
    fn run<T>(&mut self, op: Op, mixture: &Mixture, work: impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        crate::evaluator::check_features(mixture, self.n_features())?;
        let kind = self.kind(op, mixture);
        if !self.settled && !self.choices.contains_key(&kind) && !self.worth_a_move(kind, mixture) {
            match self.on_cpu(kind, &work) {
                Err(Error::Unsupported { .. }) => {}
                result => return result,
            }
        }
        let side = self.side_for(kind, 1, &work)?;
        let result = work(self.side(side))?;
        self.latest = Some(side);
        Ok(result)
    }

    fn kind(&self, op: Op, mixture: &Mixture) -> Kind {
        let operation = if op == Op::Statistics { Operation::Statistics } else { Operation::LogLikelihood };
        (op, mixture.n_components(), mixture.covariance_type(), self.precision(mixture, operation))
    }

    /// Evaluates on the CPU, which the kind stays with if it is quick there.
    fn on_cpu<T>(&mut self, kind: Kind, work: &impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = work(&mut self.cpu)?;
        let time = begin.elapsed();
        self.latest = Some(Side::Cpu);
        self.evaluated += time;
        let seen = self.seen.entry(kind).or_insert(Seen { count: 0, fastest: Duration::MAX });
        (seen.count, seen.fastest) = (seen.count.saturating_add(1), seen.fastest.min(time));
        if seen.fastest.as_secs_f64() < QUICK || matches!(self.gpu, Gpu::Absent) {
            self.choices.insert(kind, Side::Cpu);
        }
        Ok(result)
    }

    /// Whether the GPU is ready for a kind, and what is likely to come yet pays for another layout of the samples. Sees to
    /// it that the GPU becomes ready.
    fn worth_a_move(&mut self, kind: Kind, mixture: &Mixture) -> bool {
        if matches!(self.gpu, Gpu::Absent) || self.warm_up.is_none() && self.evaluated < PATIENCE {
            return false;
        }
        let warm_up = self.warm_up.get_or_insert_with(|| WarmUp::start(&self.samples, self.open));
        match warm_up.state(kind, mixture) {
            State::Busy => false,
            State::Failed => {
                self.gpu = Gpu::Absent;
                false
            }
            State::Warm => self.seen.get(&kind).is_some_and(|seen| {
                let ahead = if kind.0 == Op::Statistics { E_STEPS.max(seen.count) } else { seen.count };
                matches!(self.gpu, Gpu::Ready(_)) || seen.fastest * ahead > self.layout
            }),
        }
    }

    /// The side of a kind, by the time of `work`, which is so many evaluations, where it has none yet.
    fn side_for<T>(
        &mut self,
        kind: Kind,
        evaluations: usize,
        work: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Side> {
        if let Some(side) = self.choices.get(&kind) {
            return Ok(*side);
        }
        let cpu = match self.seen.get(&kind) {
            Some(seen) => Some(seen.fastest.as_secs_f64()),
            None => seconds(&mut self.cpu, work)?,
        };
        let side = self.choose(cpu, evaluations, work)?;
        self.choices.insert(kind, side);
        Ok(side)
    }

    /// Times `work` on the GPU, against the CPU's time.
    fn choose<T>(
        &mut self,
        cpu: Option<f64>,
        evaluations: usize,
        work: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Side> {
        if cpu.is_some_and(|cpu| cpu < QUICK * evaluations as f64) {
            return Ok(Side::Cpu);
        }
        if let Gpu::Unopened = self.gpu {
            self.gpu = (self.open)(self.samples.clone()).map_or(Gpu::Absent, Gpu::Ready);
        }
        let gpu = match &mut self.gpu {
            Gpu::Ready(gpu) => match seconds(gpu.as_mut(), work) {
                // A GPU that fails is none.
                Err(Error::Cuda { .. }) => {
                    self.gpu = Gpu::Absent;
                    None
                }
                result => result?,
            },
            _ => None,
        };
        Ok(match (cpu, gpu) {
            (None, None) => Side::Reference,
            (Some(cpu), Some(gpu)) if gpu < cpu => Side::Gpu,
            (None, Some(_)) => Side::Gpu,
            (Some(_), _) => Side::Cpu,
        })
    }

    /// The evaluator of a side.
    fn side(&mut self, side: Side) -> &mut (dyn Evaluator + 'a) {
        match (side, &mut self.gpu) {
            (Side::Gpu, Gpu::Ready(gpu)) => gpu.as_mut(),
            (Side::Reference, _) => self.reference.get_or_insert_with(|| ReferenceEvaluator::new(self.samples.clone())),
            _ => &mut self.cpu,
        }
    }
}

impl Evaluator for AutoEvaluator<'_> {
    fn n_samples(&self) -> usize {
        self.samples.n_samples()
    }

    fn n_features(&self) -> usize {
        self.samples.n_features()
    }

    fn total_weight(&self) -> f64 {
        self.cpu.total_weight()
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        self.cpu.precision(mixture, operation)
    }

    /// Of the side that the latest evaluation ran on.
    fn describe(&self) -> Description {
        match (self.latest, &self.gpu, &self.reference) {
            (Some(Side::Gpu), Gpu::Ready(gpu), _) => gpu.describe(),
            (Some(Side::Reference), _, Some(reference)) => reference.describe(),
            _ => self.cpu.describe(),
        }
    }

    fn settle(&mut self) {
        self.settled = true;
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.run(Op::Total, mixture, |side| side.log_likelihood(mixture))
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        match mixtures.first() {
            Some(first) => self.run(Op::Batch, first, |side| side.log_likelihood_batch(mixtures)),
            None => Ok(Vec::new()),
        }
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.run(Op::Scores, mixture, |side| side.score_samples(mixture))
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.run(Op::Statistics, mixture, |side| side.statistics(mixture))
    }

    /// Where the GPU walks faster than the CPU evaluates: decided before the first step.
    fn walk(
        &mut self,
        target: &WalkTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn WalkSteps,
    ) -> Result<bool> {
        target.check(self.n_features(), point)?;
        let Some(mixture) = target.mixture(point) else { return Ok(false) };
        let kind = self.kind(Op::Walk, &mixture);
        let side = self.side_for(kind, STEPS, &|side: &mut dyn Evaluator| {
            // From nowhere, where every step is rejected.
            if side.walk(target, point, f64::NAN, &mut Still(STEPS))? {
                return Ok(());
            }
            (0..STEPS).try_for_each(|_| side.log_likelihood(&mixture).map(drop))
        })?;
        if side == Side::Reference {
            return Ok(false);
        }
        let walks = self.side(side).walk(target, point, log_density, steps)?;
        if walks {
            self.latest = Some(side);
        }
        Ok(walks)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.cpu.predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.cpu.predict_proba(mixture)
    }
}

/// Seconds of one evaluation: the best of a few after one that does not count, unless that one is long. None where the
/// side does not have it.
fn seconds<T>(side: &mut dyn Evaluator, work: &impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<Option<f64>> {
    let mut best = f64::INFINITY;
    for run in 0..4 {
        let start = Instant::now();
        match work(side) {
            Err(Error::Unsupported { .. }) => return Ok(None),
            result => result.map(|_| ())?,
        }
        let time = start.elapsed().as_secs_f64();
        if run > 0 || time > 0.05 {
            best = best.min(time);
        }
        if run == 1 && time > 0.05 {
            break;
        }
    }
    Ok(Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Covariances, View, WalkPrior};
    use std::time::Duration;

    /// A GPU of these tests, slower or faster than any CPU, or broken. Its answer shows that it was asked.
    struct Fake {
        n: usize,
        d: usize,
        delay: Duration,
        broken: bool,
        /// What rows are read back from.
        reference: ReferenceEvaluator,
    }

    const ANSWER: f64 = -123.0;

    impl Evaluator for Fake {
        fn n_samples(&self) -> usize {
            self.n
        }
        fn n_features(&self) -> usize {
            self.d
        }
        fn total_weight(&self) -> f64 {
            self.n as f64
        }
        fn describe(&self) -> Description {
            Description { device: "fake".into(), kernel: "fake".into() }
        }
        fn log_likelihood(&mut self, _: &Mixture) -> Result<f64> {
            std::thread::sleep(self.delay);
            if self.broken { Err(Error::Cuda { op: "fake", message: "broken".into() }) } else { Ok(ANSWER) }
        }
        fn score_samples(&mut self, _: &Mixture) -> Result<Array1<f64>> {
            Err(Error::Unsupported { what: "scoring".into(), backend: "the fake", remedy: "none" })
        }
        fn statistics(&mut self, _: &Mixture) -> Result<Statistics> {
            Err(Error::Unsupported { what: "an E-step".into(), backend: "the fake", remedy: "none" })
        }
        fn walk(&mut self, _: &WalkTarget, _: &[f64], _: f64, steps: &mut dyn WalkSteps) -> Result<bool> {
            let mut rows = vec![f64::NAN; 1000];
            while steps.propose(&mut rows) > 0 {
                std::thread::sleep(self.delay);
            }
            Ok(true)
        }
        fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
            self.reference.rows(rows)
        }
    }

    fn fake(samples: Samples<'_>, delay: Duration, broken: bool) -> Result<Box<dyn Evaluator + '_>> {
        let (n, d) = (samples.n_samples(), samples.n_features());
        Ok(Box::new(Fake { n, d, delay, broken, reference: ReferenceEvaluator::new(samples) }))
    }

    fn fast(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        fake(samples, Duration::ZERO, false)
    }
    /// Slower than the CPU.
    fn slow(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        fake(samples, Duration::from_secs(2), false)
    }
    fn broken(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        fake(samples, Duration::ZERO, true)
    }
    fn none(_: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        Err(Error::NoCudaDevice { reason: "none here".into() })
    }
    fn never(_: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        panic!("the GPU is not to be touched")
    }

    fn data(n: usize) -> Array2<f32> {
        Array2::from_shape_fn((n, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f32 / 4.0)
    }

    fn mixture(k: usize) -> Mixture {
        let means = Array2::from_shape_fn((k, 2), |(c, j)| (c * 2 + j) as f64 / k as f64);
        Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, Covariances::Diag(Array2::ones((k, 2)))).unwrap()
    }

    fn unsettled(x: &Array2<f32>, open: Open) -> AutoEvaluator<'_> {
        AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), open).unwrap()
    }

    /// One that decides at once.
    fn auto(x: &Array2<f32>, open: Open) -> AutoEvaluator<'_> {
        let mut auto = unsettled(x, open);
        auto.settle();
        auto
    }

    /// Opened after a second only.
    fn late(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        std::thread::sleep(Duration::from_secs(1));
        fast(samples)
    }

    /// Totals until the GPU answers; how many came from the CPU, and how long all took.
    fn until_moved(auto: &mut AutoEvaluator<'_>, x: &Array2<f32>, m: &Mixture) -> (usize, Duration) {
        let begin = Instant::now();
        for count in 0.. {
            let total = auto.log_likelihood(m).unwrap();
            if total == ANSWER {
                return (count, begin.elapsed());
            }
            if count == 0 {
                assert_true(x, m, total);
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it never moves");
        }
        unreachable!()
    }

    #[test]
    fn the_cpu_works_while_the_gpu_starts() {
        // Small data, where the driver is started in the course of it, and large data, where it is at once.
        for (n, k) in [(40_000, 40), (600_000, 4)] {
            let (x, m) = (data(n), mixture(k));
            let mut auto = unsettled(&x, late);
            let (on_cpu, time) = until_moved(&mut auto, &x, &m);
            assert!(on_cpu >= 2 && time >= Duration::from_millis(900), "{on_cpu} evaluations in {time:?}");
            assert_eq!(auto.describe().device, "fake");
            assert_eq!(auto.log_likelihood(&m).unwrap(), ANSWER);
        }
    }

    #[test]
    fn a_job_that_ends_before_waits_for_nothing() {
        fn never_ending(_: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
            std::thread::sleep(Duration::from_secs(3600));
            Err(Error::NoCudaDevice { reason: "too late".into() })
        }
        let (x, m) = (data(600_000), mixture(2));
        let begin = Instant::now();
        let mut auto = unsettled(&x, never_ending);
        assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
        drop(auto);
        assert!(begin.elapsed() < Duration::from_secs(600), "it waited for the driver");
    }

    #[test]
    fn it_stays_where_the_gpu_is_slower_or_fails() {
        let (x, m) = (data(600_000), mixture(4));
        for open in [slow as Open, broken, none] {
            let mut auto = unsettled(&x, open);
            let begin = Instant::now();
            while auto.choices.is_empty() {
                assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
                assert!(begin.elapsed() < Duration::from_secs(120), "it never decides");
            }
            assert_eq!(auto.choices.values().collect::<Vec<_>>(), [&Side::Cpu]);
            assert!(auto.describe().device.starts_with("cpu"));
        }
    }

    /// Samples are laid out once more only for a job that lasts.
    #[test]
    fn it_moves_only_for_what_pays_for_the_move() {
        let (x, m) = (data(40_000), mixture(40));
        let mut auto = unsettled(&x, fast);
        auto.layout = Duration::from_secs(3600);
        auto.evaluated = PATIENCE;
        let kind = auto.kind(Op::Total, &m);
        for _ in 0..20 {
            assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(matches!(auto.gpu, Gpu::Unopened));
        auto.seen.insert(kind, Seen { count: 1, fastest: Duration::from_secs(3601) });
        assert_eq!(until_moved(&mut auto, &x, &m).0, 0);
    }

    /// The truth, and how far float32 may be from it: 10⁻⁶ of the sum.
    #[track_caller]
    fn assert_true(x: &Array2<f32>, mixture: &Mixture, total: f64) {
        let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).log_likelihood(mixture).unwrap();
        assert!((total - truth).abs() <= 1e-6 * truth.abs(), "{total} for {truth}");
    }

    /// A prior that says nothing.
    fn flat(k: usize, d: usize) -> WalkPrior {
        let zeros = |len| vec![0.0; len];
        WalkPrior {
            concentration: zeros(k),
            location: zeros(k * d),
            precision: zeros(k * d),
            scaled_precision: zeros(k * d),
            by_log_scale: zeros(k),
            by_variance: zeros(k),
            by_precision: zeros(k),
            constant: 0.0,
        }
    }

    #[test]
    fn small_data_never_touches_the_gpu() {
        // A few operations: nanoseconds; even a busy machine has one of three runs below the limit.
        let x = data(10);
        let mut auto = auto(&x, never);
        assert_true(&x, &mixture(2), auto.log_likelihood(&mixture(2)).unwrap());
        assert!(auto.describe().device.starts_with("cpu"));
    }

    /// The GPU gets float64 samples and weights as they are.
    #[test]
    fn float64_and_weights_reach_the_gpu() {
        fn same(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
            assert!(matches!(samples.view(), View::F64(_)));
            // The few samples that it warms up with count one each.
            let right =
                |(i, w): (usize, &f64)| *w == if samples.n_samples() < 40_000 { 1.0 } else { 0.1 + (i % 3) as f64 };
            assert!(samples.weights().is_some_and(|w| w.iter().enumerate().all(right)));
            fast(samples)
        }
        for n in [40_000, 600_000] {
            let (x, weights) = (data(n).mapv(f64::from), Array1::from_shape_fn(n, |i| 0.1 + (i % 3) as f64));
            let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
            let mut auto = AutoEvaluator::new(samples.clone(), same).unwrap();
            auto.settle();
            assert_eq!(auto.log_likelihood(&mixture(40)).unwrap(), ANSWER);
            assert_eq!(auto.total_weight(), samples.total_weight());
            // What this GPU lacks is done with the same numbers.
            let scores = auto.score_samples(&mixture(2)).unwrap();
            let truth = ReferenceEvaluator::new(samples).score_samples(&mixture(2)).unwrap();
            assert!(scores.iter().zip(&truth).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)));
        }
    }

    #[test]
    fn the_faster_side_is_taken_and_kept() {
        for n in [40_000, 600_000] {
            let x = data(n);
            let m = mixture(40);
            let mut with_fast = auto(&x, fast);
            assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
            assert_eq!(with_fast.describe().device, "fake");
            // What the GPU lacks goes to the CPU; what was chosen stays.
            let scores = with_fast.score_samples(&m).unwrap();
            assert_eq!(scores.len(), n);
            assert_true(&x, &m, scores.sum());
            assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
        }
        let x = data(40_000);
        let m = mixture(40);
        let mut with_slow = auto(&x, slow);
        let total = with_slow.log_likelihood(&m).unwrap();
        assert_true(&x, &m, total);
        assert_eq!(with_slow.log_likelihood(&m).unwrap().to_bits(), total.to_bits());
        assert!(with_slow.describe().device.starts_with("cpu"));
    }

    #[test]
    fn a_walk_goes_where_it_is_faster() {
        let target = WalkTarget { n_components: 40, n_features: 2, spherical: true, prior: flat(40, 2) };
        let point = vec![0.0; target.dim()];
        for (open, walks) in [(fast as Open, true), (slow, false), (none, false)] {
            let x = data(10_000);
            let mut auto = auto(&x, open);
            let mut steps = Still(3);
            assert_eq!(auto.walk(&target, &point, 0.0, &mut steps).unwrap(), walks);
            assert_eq!(steps.0, if walks { 0 } else { 3 }, "a walk that is not done asks for nothing");
            assert!(!walks || auto.describe().device == "fake");
        }
        let x = data(100);
        let refused = auto(&x, none).walk(&target, &point[1..], 0.0, &mut Still(1));
        assert!(matches!(refused, Err(Error::ShapeMismatch { .. })));
    }

    #[test]
    fn a_gpu_that_is_missing_or_fails_leaves_the_cpu() {
        let (x, m) = (data(40_000), mixture(40));
        for open in [none as Open, broken] {
            assert_true(&x, &m, auto(&x, open).log_likelihood(&m).unwrap());
        }
        let x = data(600_000);
        assert_true(&x, &m, auto(&x, none).log_likelihood(&m).unwrap());
        assert_true(&x, &m, auto(&x, broken).log_likelihood(&m).unwrap());
    }

    #[test]
    fn errors_are_not_choices() {
        let x = data(100);
        let mut auto = auto(&x, none);
        let wrong =
            Mixture::new(Array1::ones(1), Array2::zeros((1, 3)), Covariances::Diag(Array2::ones((1, 3)))).unwrap();
        assert!(matches!(auto.log_likelihood(&wrong), Err(Error::ShapeMismatch { .. })));
        assert!(auto.choices.is_empty());
        assert!(auto.log_likelihood_batch(&[]).unwrap().is_empty());
        assert!(matches!(auto.rows(&[100]), Err(Error::NoSuchRow { .. })));
    }
}
