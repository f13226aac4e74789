//! The device `auto`: CPU or GPU, whichever is faster for the data and the mixture at hand, by measurement.
use crate::{
    CovarianceType, CpuEvaluator, Description, Error, Evaluator, Mixture, Operation, Precision, ReferenceEvaluator,
    Result, Rows, Samples, Statistics, WalkSteps, WalkTarget,
};
use ndarray::{Array1, Array2};
use std::collections::HashMap;
use std::time::Instant;

/// An evaluation that the CPU does in this many seconds stays there: a GPU needs about as long to answer at all, and its
/// driver a fifth of a second to start.
const QUICK: f64 = 15e-6;
/// Data of at most this many elements is laid out for the CPU at once, and for the GPU when an evaluation takes longer
/// than [`QUICK`]; larger data goes to the GPU at once, and to the CPU if that turns out to be faster.
const SMALL: usize = 1 << 20;
/// Samples and elements on which the CPU is timed where it does not have all the data.
const PROBE: (usize, usize) = (1 << 16, 1 << 22);
/// Steps of the walk that is timed.
const STEPS: usize = 16;

/// Makes samples resident on the GPU.
pub(crate) type Open = for<'a> fn(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>>;

/// Evaluates on the CPU or on the GPU. Each kind of evaluation (operation, K, covariance type, number type) is timed on both when it
/// comes first, and stays with the faster one; what neither has goes to the float64 reference. Labels and
/// responsibilities, which are asked for once, come from where the samples are.
pub(crate) struct AutoEvaluator<'a> {
    samples: Samples<'a>,
    n: usize,
    d: usize,
    total_weight: f64,
    /// With all samples; or with some, to be timed, while `gpu` has all.
    cpu: CpuEvaluator<'a>,
    cpu_is_whole: bool,
    gpu: Gpu<'a>,
    reference: Option<ReferenceEvaluator>,
    choices: HashMap<Kind, Side>,
    latest: Option<Side>,
}

/// The state of the GPU.
enum Gpu<'a> {
    /// Not asked for yet.
    Untried(Open),
    /// There is none, or none that serves.
    Absent,
    Ready(Box<dyn Evaluator + 'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Cpu,
    Gpu,
    Reference,
}

/// A kind of evaluation: operation, K, covariance type, number type.
type Kind = (Op, usize, CovarianceType, Precision);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
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
        let (n, d) = (samples.n_samples(), samples.n_features());
        let large = n.saturating_mul(d) > SMALL;
        let gpu = if large { open(samples.clone()).map_or(Gpu::Absent, Gpu::Ready) } else { Gpu::Untried(open) };
        let cpu_is_whole = !matches!(gpu, Gpu::Ready(_));
        let probe = PROBE.0.min(PROBE.1 / d).clamp(1, n);
        let cpu = CpuEvaluator::new(if cpu_is_whole { samples.clone() } else { samples.rows(0..probe) })?;
        Ok(Self {
            n,
            d,
            total_weight: samples.total_weight(),
            samples,
            cpu,
            cpu_is_whole,
            gpu,
            reference: None,
            choices: HashMap::new(),
            latest: None,
        })
    }

    /// Runs an evaluation on the side that is faster for its kind.
    fn run<T>(&mut self, op: Op, mixture: &Mixture, work: impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<T> {
        crate::evaluator::check_features(mixture, self.d)?;
        let kind = self.kind(op, mixture);
        let side = self.side_for(kind, 1, &work)?;
        let result = work(self.side(side)?);
        self.latest = Some(side);
        result
    }

    fn kind(&self, op: Op, mixture: &Mixture) -> Kind {
        let operation = if op == Op::Statistics { Operation::Statistics } else { Operation::LogLikelihood };
        (op, mixture.n_components(), mixture.covariance_type(), self.precision(mixture, operation))
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
        let side = self.choose(evaluations, work)?;
        self.choices.insert(kind, side);
        Ok(side)
    }

    /// Times an evaluation on both sides.
    fn choose<T>(&mut self, evaluations: usize, work: &impl Fn(&mut dyn Evaluator) -> Result<T>) -> Result<Side> {
        let share = self.n as f64 / self.cpu.n_samples() as f64;
        let cpu = seconds(&mut self.cpu, work)?.map(|seconds| seconds * share);
        if cpu.is_some_and(|cpu| cpu < QUICK * evaluations as f64) {
            return Ok(Side::Cpu);
        }
        if let Gpu::Untried(open) = self.gpu {
            self.gpu = open(self.samples.clone()).map_or(Gpu::Absent, Gpu::Ready);
        }
        let gpu = match &mut self.gpu {
            Gpu::Ready(gpu) => match seconds(gpu.as_mut(), work) {
                // A GPU that fails is none, as long as the data is elsewhere too.
                Err(Error::Cuda { .. }) if self.cpu_is_whole => {
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

    /// The evaluator of a side, with all samples.
    fn side(&mut self, side: Side) -> Result<&mut (dyn Evaluator + 'a)> {
        if side == Side::Reference && self.reference.is_none() {
            self.reference = Some(ReferenceEvaluator::new(self.samples.clone()));
        }
        if side == Side::Cpu && !self.cpu_is_whole {
            self.cpu = CpuEvaluator::new(self.samples.clone())?;
            self.cpu_is_whole = true;
        }
        Ok(match (side, &mut self.gpu, &mut self.reference) {
            (Side::Gpu, Gpu::Ready(gpu), _) => gpu.as_mut(),
            (Side::Reference, _, Some(reference)) => reference,
            _ => &mut self.cpu,
        })
    }

    /// A side that has all samples.
    fn holder(&mut self) -> &mut (dyn Evaluator + 'a) {
        match &mut self.gpu {
            Gpu::Ready(gpu) if !self.cpu_is_whole => gpu.as_mut(),
            _ => &mut self.cpu,
        }
    }
}

impl Evaluator for AutoEvaluator<'_> {
    fn n_samples(&self) -> usize {
        self.n
    }

    fn n_features(&self) -> usize {
        self.d
    }

    fn total_weight(&self) -> f64 {
        self.total_weight
    }

    fn precision(&self, mixture: &Mixture, operation: Operation) -> Precision {
        match &self.gpu {
            Gpu::Ready(gpu) if !self.cpu_is_whole => gpu.precision(mixture, operation),
            _ => self.cpu.precision(mixture, operation),
        }
    }

    /// Of the side that the latest evaluation ran on.
    fn describe(&self) -> Description {
        match (self.latest, &self.gpu, &self.reference) {
            (Some(Side::Gpu), Gpu::Ready(gpu), _) => gpu.describe(),
            (Some(Side::Reference), _, Some(reference)) => reference.describe(),
            (None, Gpu::Ready(gpu), _) => gpu.describe(),
            _ => self.cpu.describe(),
        }
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

    /// Where the GPU walks faster than the CPU evaluates.
    fn walk(
        &mut self,
        target: &WalkTarget,
        point: &[f64],
        log_density: f64,
        steps: &mut dyn WalkSteps,
    ) -> Result<bool> {
        target.check(self.d, point)?;
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
        let walks = self.side(side)?.walk(target, point, log_density, steps)?;
        if walks {
            self.latest = Some(side);
        }
        Ok(walks)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        self.holder().predict(mixture)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        self.holder().predict_proba(mixture)
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
    /// Slower than the CPU for a thousand samples and for the probe of a larger set: by seconds there.
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

    fn auto(x: &Array2<f32>, open: Open) -> AutoEvaluator<'_> {
        AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), open).unwrap()
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

    /// The GPU gets float64 samples and weights as they are, from the start or carried over.
    #[test]
    fn float64_and_weights_reach_the_gpu() {
        fn same(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
            assert!(matches!(samples.view(), View::F64(_)));
            assert!(samples.weights().is_some_and(|w| w.iter().enumerate().all(|(i, w)| *w == 0.1 + (i % 3) as f64)));
            fast(samples)
        }
        for n in [40_000, 600_000] {
            let (x, weights) = (data(n).mapv(f64::from), Array1::from_shape_fn(n, |i| 0.1 + (i % 3) as f64));
            let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
            let mut auto = AutoEvaluator::new(samples.clone(), same).unwrap();
            assert_eq!(auto.log_likelihood(&mixture(40)).unwrap(), ANSWER);
            assert_eq!(auto.total_weight(), samples.total_weight());
            // What this GPU lacks is done with the same numbers, carried back.
            let scores = auto.score_samples(&mixture(2)).unwrap();
            let truth = ReferenceEvaluator::new(samples).score_samples(&mixture(2)).unwrap();
            assert!(scores.iter().zip(&truth).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0)));
        }
    }

    #[test]
    fn the_faster_side_is_taken_and_kept() {
        // Small data that is carried over, and large data that was there from the start.
        for n in [40_000, 600_000] {
            let x = data(n);
            let m = mixture(40);
            let mut with_fast = auto(&x, fast);
            assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
            assert_eq!(with_fast.describe().device, "fake");
            // What the GPU lacks goes to the CPU, which gets the data back; what was chosen stays.
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
        // The data is on the GPU alone: its failure is reported.
        assert!(matches!(auto(&x, broken).log_likelihood(&m), Err(Error::Cuda { .. })));
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
