//! The device `auto`: CPU or GPU, whichever is faster for the data and the mixture at hand, by measurement.
//!
//! A GPU costs before it gives: its driver takes a third of a second to start and to compile kernels, the samples are laid
//! out once more, and the end of a process waits for the driver. So the CPU works from the start, as if there were nothing
//! else, and every evaluation is timed as it is made. The driver is touched only where the CPU is expected to need longer
//! yet than that costs; then a thread of its own (`warm_up`) has it start and compile, while the CPU works on. Evaluations
//! move when that is done, if what is expected yet pays for the layout, and if the GPU is then measured to be faster.
use crate::{
    CovarianceType, CpuEvaluator, Description, Error, Evaluator, MetropolisSteps, MetropolisTarget, Mixture, Operation,
    Precision, ReferenceEvaluator, Result, Rows, Samples, Statistics,
};
use ndarray::{Array1, Array2};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use warm_up::{State, WarmUp};

mod warm_up;

/// What the start of a GPU costs a process, besides the layout of the samples: driver, context and modules (0.31 s on an
/// H200), what its end takes longer (0.06 s), and a margin, because the number of evaluations to come is a guess. A job of
/// which the CPU is not expected to need as much yet never touches the GPU.
const START: Duration = Duration::from_millis(500);
/// An evaluation that the CPU does in this time stays there: a GPU needs about as long to answer at all.
const QUICK: Duration = Duration::from_micros(15);
/// One timing of an evaluation that takes longer than this is enough.
const LONG: Duration = Duration::from_millis(50);
/// E-steps that a fit is taken to need.
const E_STEPS: u32 = 20;
/// Evaluations that a settled evaluator is taken to have ahead of it: what a few Markov chains need.
const CHAIN: u32 = 30_000;
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
    /// What the GPU's start costs besides.
    start: Duration,
    open: Open,
    gpu: Gpu<'a>,
    warm_up: Option<WarmUp>,
    reference: Option<ReferenceEvaluator>,
    /// Evaluations on the CPU of kinds that have no side yet.
    seen: HashMap<Kind, Seen>,
    /// The time of all of these but scores.
    spent: Duration,
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

impl MetropolisSteps for Still {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        rows.fill(0.0);
        std::mem::take(&mut self.0)
    }
    fn record(&mut self, _: &[f64], _: &[f64]) {}
}

impl<'a> AutoEvaluator<'a> {
    /// `open` reaches the GPU, if there is one.
    pub fn new(samples: Samples<'a>, open: Open) -> Result<Self> {
        let begin = Instant::now();
        let cpu = CpuEvaluator::new(samples.clone())?;
        Ok(Self {
            samples,
            cpu,
            layout: begin.elapsed(),
            start: START,
            open,
            gpu: Gpu::Unopened,
            warm_up: None,
            reference: None,
            seen: HashMap::new(),
            spent: Duration::ZERO,
            choices: HashMap::new(),
            latest: None,
            settled: false,
        })
    }

    /// Runs an evaluation on the side of its kind, or decides about that.
    fn run<T>(&mut self, op: Op, mixture: &Mixture, work: impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        crate::evaluator::check_features(mixture, self.n_features())?;
        let kind = self.kind(op, mixture);
        let mut result = None;
        if !self.choices.contains_key(&kind) {
            if self.settled || !self.worth_a_move(kind, mixture) {
                result = self.on_cpu(kind, &work)?;
            }
            if self.settled {
                self.settle_kind(kind, &work)?;
            }
            if !self.choices.contains_key(&kind) && (self.settled || result.is_none()) {
                result = self.try_gpu(kind, 1, &work)?.or(result);
            }
        }
        if let Some(result) = result {
            return Ok(result);
        }
        let side = self.choices.get(&kind).copied().unwrap_or(Side::Cpu);
        let result = work(self.side(side))?;
        self.latest = Some(side);
        Ok(result)
    }

    fn kind(&self, op: Op, mixture: &Mixture) -> Kind {
        let operation = if op == Op::Statistics { Operation::Statistics } else { Operation::LogLikelihood };
        (op, mixture.n_components(), mixture.covariance_type(), self.precision(mixture, operation))
    }

    /// Evaluates on the CPU, which the kind stays with if it is quick there. None where the CPU does not have it.
    fn on_cpu<T>(&mut self, kind: Kind, work: &impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<Option<T>> {
        let begin = Instant::now();
        let result = match work(&mut self.cpu) {
            Err(Error::Unsupported { .. }) => return Ok(None),
            result => result?,
        };
        self.count(kind, begin.elapsed());
        self.latest = Some(Side::Cpu);
        Ok(Some(result))
    }

    /// Counts an evaluation on the CPU.
    fn count(&mut self, kind: Kind, time: Duration) {
        if kind.0 != Op::Scores {
            self.spent += time;
        }
        let seen = self.seen.entry(kind).or_insert(Seen { count: 0, fastest: Duration::MAX });
        (seen.count, seen.fastest) = (seen.count.saturating_add(1), seen.fastest.min(time));
        if seen.fastest < QUICK || matches!(self.gpu, Gpu::Absent) {
            self.choices.insert(kind, Side::Cpu);
        }
    }

    /// Whether the GPU is ready for a kind, and what the CPU is expected to need for it yet pays for the layout. Has the
    /// GPU started where that pays, and asks it to become ready.
    fn worth_a_move(&mut self, kind: Kind, mixture: &Mixture) -> bool {
        if matches!(self.gpu, Gpu::Absent) || self.warm_up.is_none() && !self.worth_a_start(kind) {
            return false;
        }
        let warm_up = self.warm_up.get_or_insert_with(|| WarmUp::start(&self.samples, self.open));
        match warm_up.state(kind, mixture) {
            State::Busy => false,
            State::Failed => {
                self.gpu = Gpu::Absent;
                false
            }
            State::Warm => match self.gpu {
                Gpu::Ready(_) => self.seen.contains_key(&kind),
                _ => kind.0 != Op::Scores && self.expected(kind) > self.layout,
            },
        }
    }

    /// Whether the CPU is expected to need longer yet than the GPU costs: for evaluations of this kind, or for any, of which
    /// as many again are expected as there were.
    fn worth_a_start(&self, kind: Kind) -> bool {
        kind.0 != Op::Scores && self.expected(kind).max(self.spent) > self.start + self.layout
    }

    /// What the CPU is expected to need yet for a kind: for as many evaluations again as there were, and for the rest of a fit.
    fn expected(&self, kind: Kind) -> Duration {
        self.seen.get(&kind).map_or(Duration::ZERO, |seen| {
            let fit = if kind.0 == Op::Statistics { E_STEPS.saturating_sub(seen.count) } else { 0 };
            seen.fastest.saturating_mul(seen.count.max(fit))
        })
    }

    /// Leaves a kind of a settled evaluator to the CPU, unless Markov chains would take so long there that the GPU may pay.
    /// The first evaluation is slower than the next ones, so that a short one is repeated before it has the GPU started.
    fn settle_kind<T>(&mut self, kind: Kind, work: &impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<()> {
        for _ in 0..4 {
            let Some(fastest) = self.seen.get(&kind).map(|seen| seen.fastest) else { break };
            let ready = matches!(self.gpu, Gpu::Ready(_));
            let pays = ready || fastest.saturating_mul(CHAIN) > self.start + self.layout;
            if kind.0 == Op::Scores || !pays {
                self.choices.insert(kind, Side::Cpu);
            }
            if self.choices.contains_key(&kind) || fastest > LONG {
                break;
            }
            self.on_cpu(kind, work)?;
        }
        Ok(())
    }

    /// Times `work`, which is so many evaluations, on the GPU and decides about the kind. The result if the GPU is faster
    /// than the CPU was, or has what the CPU does not.
    fn try_gpu<T>(
        &mut self,
        kind: Kind,
        evaluations: u32,
        work: &impl Fn(&mut dyn Evaluator) -> Result<T>,
    ) -> Result<Option<T>> {
        if let Gpu::Unopened = self.gpu {
            self.gpu = (self.open)(self.samples.clone()).map_or(Gpu::Absent, Gpu::Ready);
        }
        let gpu = match &mut self.gpu {
            Gpu::Ready(gpu) => match trial(gpu.as_mut(), work) {
                // A GPU that fails is none.
                Err(Error::Cuda { .. }) => {
                    self.gpu = Gpu::Absent;
                    None
                }
                result => result?,
            },
            _ => None,
        };
        let cpu = self.seen.get(&kind).map(|seen| seen.fastest.saturating_mul(evaluations));
        let (side, result) = match gpu {
            Some((time, result)) if cpu.is_none_or(|cpu| time < cpu) => (Side::Gpu, Some(result)),
            _ if cpu.is_none() => (Side::Reference, None),
            _ => (Side::Cpu, None),
        };
        self.choices.insert(kind, side);
        if result.is_some() {
            self.latest = Some(side);
        }
        Ok(result)
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

    /// Where the GPU walks faster than the CPU evaluates: decided before the first step, for thousands of steps.
    fn metropolis(
        &mut self,
        target: &MetropolisTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn MetropolisSteps,
    ) -> Result<bool> {
        target.check(self.n_features(), point)?;
        let Some(mixture) = target.mixture(point) else { return Ok(false) };
        let kind = self.kind(Op::Walk, &mixture);
        if !self.choices.contains_key(&kind) {
            // Elsewhere each step of a walk is an evaluation.
            let evaluate = |side: &mut dyn Evaluator| side.log_likelihood(&mixture).map(drop);
            self.on_cpu(kind, &evaluate)?;
            self.settle_kind(kind, &evaluate)?;
        }
        if !self.choices.contains_key(&kind) {
            self.try_gpu(kind, STEPS as u32, &|side: &mut dyn Evaluator| {
                // From nowhere, where every step is rejected.
                if side.metropolis(target, point, f64::NAN, &mut Still(STEPS))? {
                    return Ok(());
                }
                (0..STEPS).try_for_each(|_| side.log_likelihood(&mixture).map(drop))
            })?;
        }
        let side = self.choices.get(&kind).copied().unwrap_or(Side::Cpu);
        if side == Side::Reference {
            return Ok(false);
        }
        let walks = self.side(side).metropolis(target, point, log_density, steps)?;
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

/// The time of one evaluation, and its result: the best of a few after one that does not count, unless that one is long. None
/// where the side does not have it.
fn trial<T>(
    side: &mut dyn Evaluator,
    work: &impl Fn(&mut dyn Evaluator) -> Result<T>,
) -> Result<Option<(Duration, T)>> {
    let mut best = Duration::MAX;
    let mut run = 0;
    loop {
        let begin = Instant::now();
        let result = match work(side) {
            Err(Error::Unsupported { .. }) => return Ok(None),
            result => result?,
        };
        let time = begin.elapsed();
        if run > 0 || time > LONG {
            best = best.min(time);
        }
        if run == 3 || run == 1 && time > LONG {
            return Ok(Some((best, result)));
        }
        run += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Covariances, MetropolisPrior, View};
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
        fn metropolis(
            &mut self,
            _: &MetropolisTarget,
            _: &[f64],
            _: f64,
            steps: &mut dyn MetropolisSteps,
        ) -> Result<bool> {
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

    /// More than any job takes.
    const AGES: Duration = Duration::from_secs(1 << 40);

    /// One for which the start of the GPU costs so much.
    fn costing(start: Duration, x: &Array2<f32>, open: Open) -> AutoEvaluator<'_> {
        let mut auto = AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), open).unwrap();
        auto.start = start;
        auto
    }

    /// One that has the GPU started as soon as the samples' layout pays.
    fn unsettled(x: &Array2<f32>, open: Open) -> AutoEvaluator<'_> {
        costing(Duration::ZERO, x, open)
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
        let (x, m) = (data(40_000), mixture(40));
        let mut auto = unsettled(&x, late);
        let (on_cpu, time) = until_moved(&mut auto, &x, &m);
        assert!(on_cpu >= 2 && time >= Duration::from_millis(900), "{on_cpu} evaluations in {time:?}");
        assert_eq!(auto.describe().device, "fake");
        assert_eq!(auto.log_likelihood(&m).unwrap(), ANSWER);
    }

    /// Whether the GPU would be started after so many evaluations, each of so many milliseconds on the CPU.
    fn starts(op: Op, evaluations: u32, milliseconds: u64) -> bool {
        let (x, m) = (data(10), mixture(2));
        let mut auto = AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), never).unwrap();
        auto.layout = Duration::ZERO;
        let kind = auto.kind(op, &m);
        (0..evaluations).for_each(|_| auto.count(kind, Duration::from_millis(milliseconds)));
        auto.worth_a_start(kind)
    }

    #[test]
    fn the_gpu_is_started_for_what_lasts_longer_than_its_start() {
        // A fit is taken to need 20 E-steps: what the rest takes counts.
        assert!(starts(Op::Statistics, 1, 100));
        assert!((0..=100).all(|done| !starts(Op::Statistics, done, 1)));
        // One that has needed more is taken to need as many again.
        assert!(starts(Op::Statistics, 1000, 1));
        // So are other evaluations.
        for op in [Op::Total, Op::Batch] {
            assert!(!starts(op, 0, 200) && !starts(op, 2, 200) && starts(op, 3, 200));
        }
        // Scores are made once.
        assert!(!starts(Op::Scores, 1, 3_600_000));
    }

    /// A short job does on `auto` what it does on the CPU, to the last bit, and no GPU is opened for it.
    #[test]
    fn a_short_job_is_the_same_as_on_the_cpu() {
        use crate::GaussianMixtureParams;
        use std::sync::atomic::{AtomicUsize, Ordering};

        static OPENED: AtomicUsize = AtomicUsize::new(0);
        fn counted(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
            OPENED.fetch_add(1, Ordering::SeqCst);
            late(samples)
        }
        fn job(evaluator: &mut dyn Evaluator) -> String {
            let params = GaussianMixtureParams::default().n_components(2).check().unwrap();
            let fit = params.fit_with(evaluator, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            let total = evaluator.log_likelihood(&fit.mixture).unwrap();
            let scores = evaluator.score_samples(&fit.mixture).unwrap();
            let labels = evaluator.predict(&fit.mixture).unwrap();
            let proba = evaluator.predict_proba(&fit.mixture).unwrap();
            // Numbers are printed with all of their digits.
            format!("{fit:?} {total:?} {:?} {labels:?} {:?}", scores.to_vec(), proba.into_raw_vec_and_offset().0)
        }
        let x = Array2::from_shape_fn((5_000, 2), |(i, j)| ((i * i + 31 * j) % 97) as f32 / 10.0);
        let cpu = job(&mut CpuEvaluator::new(Samples::from_f32(x.view()).unwrap()).unwrap());
        for settled in [false, true] {
            let mut auto = costing(AGES, &x, counted);
            if settled {
                auto.settle();
            }
            assert_eq!(job(&mut auto), cpu);
            assert!(auto.warm_up.is_none() && OPENED.load(Ordering::SeqCst) == 0, "settled: {settled}");
        }
        // The same job opens it once the CPU has spent more time than the start costs.
        let mut auto = costing(AGES, &x, counted);
        auto.spent = AGES * 2;
        job(&mut auto);
        assert!(auto.warm_up.is_some());
        let begin = Instant::now();
        while OPENED.load(Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is never opened");
            std::thread::yield_now();
        }
    }

    /// What the CPU evaluates it evaluates for the caller: it is asked once for each result that it gives.
    #[test]
    fn no_evaluation_is_repeated_for_its_time() {
        let (x, m) = (data(40_000), mixture(40));
        // One that stays on the CPU, one that does so by its first evaluation, and one that moves.
        for (start, settled, open) in [(AGES, false, never as Open), (AGES, true, never), (Duration::ZERO, false, late)]
        {
            let (on_cpu, mut given) = (std::cell::Cell::new(0), 0);
            let mut auto = costing(start, &x, open);
            auto.settled = settled;
            let begin = Instant::now();
            loop {
                let total = auto.run(Op::Total, &m, |side| {
                    on_cpu.set(on_cpu.get() + u32::from(side.describe().device.starts_with("cpu")));
                    side.log_likelihood(&m)
                });
                if total.unwrap() == ANSWER {
                    break;
                }
                given += 1;
                if start == AGES && given == 20 {
                    break;
                }
                assert!(begin.elapsed() < Duration::from_secs(60), "it never moves");
            }
            assert_eq!(on_cpu.get(), given);
        }
    }

    #[test]
    fn a_job_that_ends_before_waits_for_nothing() {
        fn never_ending(_: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
            std::thread::sleep(Duration::from_secs(3600));
            Err(Error::NoCudaDevice { reason: "too late".into() })
        }
        let (x, m) = (data(40_000), mixture(40));
        let begin = Instant::now();
        let mut auto = unsettled(&x, never_ending);
        auto.layout = Duration::ZERO;
        for _ in 0..3 {
            assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
        }
        assert!(auto.warm_up.is_some());
        drop(auto);
        assert!(begin.elapsed() < Duration::from_secs(600), "it waited for the driver");
    }

    #[test]
    fn it_stays_where_the_gpu_is_slower_or_fails() {
        let (x, m) = (data(40_000), mixture(40));
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
        (auto.layout, auto.spent) = (AGES, AGES * 2);
        let kind = auto.kind(Op::Total, &m);
        for _ in 0..20 {
            assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(matches!(auto.gpu, Gpu::Unopened) && auto.warm_up.is_some());
        auto.seen.insert(kind, Seen { count: 1, fastest: AGES * 2 });
        assert_eq!(until_moved(&mut auto, &x, &m).0, 0);
    }

    /// The truth, and how far float32 may be from it: 10⁻⁶ of the sum.
    #[track_caller]
    fn assert_true(x: &Array2<f32>, mixture: &Mixture, total: f64) {
        let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).log_likelihood(mixture).unwrap();
        assert!((total - truth).abs() <= 1e-6 * truth.abs(), "{total} for {truth}");
    }

    /// A prior that says nothing.
    fn flat(k: usize, d: usize) -> MetropolisPrior {
        let zeros = |len| vec![0.0; len];
        MetropolisPrior {
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
        let x = data(10);
        let mut auto = costing(AGES, &x, never);
        auto.settle();
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
        for n in [40_000, 60_000] {
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
        let (n, m) = (40_000, mixture(40));
        let x = data(n);
        let mut with_fast = auto(&x, fast);
        assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
        assert_eq!(with_fast.describe().device, "fake");
        // What the GPU lacks goes to the CPU; what was chosen stays.
        assert_eq!(with_fast.statistics(&m).unwrap().n_components(), 40);
        let scores = with_fast.score_samples(&m).unwrap();
        assert_eq!(scores.len(), n);
        assert_true(&x, &m, scores.sum());
        assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
        let mut with_slow = auto(&x, slow);
        let total = with_slow.log_likelihood(&m).unwrap();
        assert_true(&x, &m, total);
        assert_eq!(with_slow.log_likelihood(&m).unwrap().to_bits(), total.to_bits());
        assert!(with_slow.describe().device.starts_with("cpu"));
    }

    #[test]
    fn a_walk_goes_where_it_is_faster() {
        let target = MetropolisTarget { n_components: 40, n_features: 2, spherical: true, prior: flat(40, 2) };
        let point = vec![0.0; target.dim()];
        for (open, walks) in [(fast as Open, true), (slow, false), (none, false)] {
            let x = data(10_000);
            let mut auto = auto(&x, open);
            let mut steps = Still(3);
            assert_eq!(auto.metropolis(&target, &point, 0.0, &mut steps).unwrap(), walks);
            assert_eq!(steps.0, if walks { 0 } else { 3 }, "a walk that is not done asks for nothing");
            assert!(!walks || auto.describe().device == "fake");
        }
        let x = data(100);
        let refused = auto(&x, none).metropolis(&target, &point[1..], 0.0, &mut Still(1));
        assert!(matches!(refused, Err(Error::ShapeMismatch { .. })));
    }

    #[test]
    fn a_gpu_that_is_missing_or_fails_leaves_the_cpu() {
        let (x, m) = (data(40_000), mixture(40));
        for open in [none as Open, broken] {
            assert_true(&x, &m, auto(&x, open).log_likelihood(&m).unwrap());
        }
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
