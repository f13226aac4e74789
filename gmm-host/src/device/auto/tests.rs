//! Tests of `auto` with a fake GPU, as fast or as broken as each test needs.
use super::choice::OnCpu;
use super::*;
use gmm_core::backends::sharded::ShardedEvaluator;
use gmm_core::contract::metropolis::MetropolisPrior;
use gmm_core::data::samples::View;
use gmm_core::model::covariances::Covariances;
use std::time::Duration;

/// A fake GPU, slower or faster than any CPU, or broken. All its log-likelihoods are [`ANSWER`].
struct Fake {
    n: usize,
    d: usize,
    delay: Duration,
    broken: bool,
    reference: ReferenceEvaluator,
}

type OpenFn = fn(Samples<'_>) -> Result<Box<dyn Evaluator + '_>>;

const ANSWER: f64 = -123.0;

impl Evaluator for Fake {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::new(self.n, self.d)
    }
    fn describe(&self) -> Description {
        Description::new("fake", "fake")
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
    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.reference.rows(rows)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }
}

impl Sampling for Fake {
    fn metropolis(&mut self, _: &MetropolisTarget, _: &[f64], _: f64, steps: &mut dyn MetropolisSteps) -> Result<bool> {
        let mut rows = vec![f64::NAN; 1000];
        while steps.propose(&mut rows) > 0 {
            std::thread::sleep(self.delay);
        }
        Ok(true)
    }
}

fn fake(samples: Samples<'_>, delay: Duration, broken: bool) -> Result<Box<dyn Evaluator + '_>> {
    let (n, d) = (samples.n_samples(), samples.n_features());
    Ok(Box::new(Fake { n, d, delay, broken, reference: ReferenceEvaluator::new(samples) }))
}

fn fast(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
    fake(samples, Duration::ZERO, false)
}
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

/// A time that no job reaches.
const AGES: Duration = Duration::from_secs(1 << 40);

/// Returns an `auto` that expects the start of the GPU to cost `gpu_start`.
fn costing(gpu_start: Duration, x: &Array2<f32>, open: OpenFn) -> AutoEvaluator<'_> {
    let mut auto = AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), None, open).unwrap();
    auto.choices.rules.start = gpu_start;
    auto
}

/// Returns an `auto` that starts the GPU as soon as the layout of the samples pays.
fn unsettled(x: &Array2<f32>, open: OpenFn) -> AutoEvaluator<'_> {
    costing(Duration::ZERO, x, open)
}

/// Returns an `auto` that chooses before the first result.
fn auto(x: &Array2<f32>, open: OpenFn) -> AutoEvaluator<'_> {
    let mut auto = unsettled(x, open);
    auto.sampling().unwrap().settle();
    auto
}

/// A GPU that takes a second to open.
fn late(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
    std::thread::sleep(Duration::from_secs(1));
    fast(samples)
}

/// Evaluates until the GPU answers. Returns the number of the CPU's results, and the total time.
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

/// Returns whether the GPU is started after `evaluations` evaluations of `milliseconds` each on the CPU.
fn starts(method: Method, evaluations: u32, milliseconds: u64) -> bool {
    let (x, m) = (data(10), mixture(2));
    let mut auto = AutoEvaluator::new(Samples::from_f32(x.view()).unwrap(), None, never).unwrap();
    auto.choices.layout = Duration::ZERO;
    let kind = auto.kind(method, &m);
    (0..evaluations).for_each(|_| auto.choices.count(kind, Duration::from_millis(milliseconds)));
    auto.choices.start_pays(kind)
}

#[test]
fn the_gpu_is_started_for_what_lasts_longer_than_its_start() {
    // A fit is expected to need 20 E-steps: only the remaining time counts.
    assert!(starts(Method::Statistics, 1, 100));
    assert!((0..=100).all(|done| !starts(Method::Statistics, done, 1)));
    // After more, it is expected to need as many again.
    assert!(starts(Method::Statistics, 1000, 1));
    // So are other evaluations.
    for method in [Method::LogLikelihood, Method::LogLikelihoodBatch] {
        assert!(!starts(method, 0, 200) && !starts(method, 2, 200) && starts(method, 3, 200));
    }
    // Scores are made once.
    assert!(!starts(Method::ScoreSamples, 1, 3_600_000));
}

/// A short job on `auto` gives the CPU's bits, and opens no GPU.
#[test]
fn a_short_job_is_the_same_as_on_the_cpu() {
    use crate::fit::GaussianMixtureParams;
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
        // `{:?}` prints all digits.
        format!("{fit:?} {total:?} {:?} {labels:?} {:?}", scores.to_vec(), proba.into_raw_vec_and_offset().0)
    }
    let x = Array2::from_shape_fn((5_000, 2), |(i, j)| ((i * i + 31 * j) % 97) as f32 / 10.0);
    let cpu = job(&mut CpuEvaluator::new(Samples::from_f32(x.view()).unwrap()).unwrap());
    for settled in [false, true] {
        let mut auto = costing(AGES, &x, counted);
        if settled {
            auto.sampling().unwrap().settle();
        }
        assert_eq!(job(&mut auto), cpu);
        assert!(auto.warm_up.is_none() && OPENED.load(Ordering::SeqCst) == 0, "settled: {settled}");
    }
    // The same job opens it once the CPU has spent more time than the start costs.
    let mut auto = costing(AGES, &x, counted);
    auto.choices.cpu_time = AGES * 2;
    job(&mut auto);
    assert!(auto.warm_up.is_some());
    let begin = Instant::now();
    while OPENED.load(Ordering::SeqCst) == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is never opened");
        std::thread::yield_now();
    }
}

/// The CPU makes each evaluation once, for the caller, never only for its time.
#[test]
fn no_evaluation_is_repeated_for_its_time() {
    let (x, m) = (data(40_000), mixture(40));
    // One that stays on the CPU, one that stays because of its first evaluation, and one that moves.
    for (start, settled, open) in [(AGES, false, never as OpenFn), (AGES, true, never), (Duration::ZERO, false, late)] {
        let (on_cpu, mut given) = (std::cell::Cell::new(0), 0);
        let mut auto = costing(start, &x, open);
        auto.settled = settled;
        let begin = Instant::now();
        loop {
            let total = auto.run(Method::LogLikelihood, &m, |side| {
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
    auto.choices.layout = Duration::ZERO;
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
    let gpus = [(slow as OpenFn, None), (broken, Some("broken")), (none, Some("none here"))];
    for ((open, problem), settled) in gpus.into_iter().flat_map(|gpu| [(gpu, false), (gpu, true)]) {
        let mut auto = if settled { auto(&x, open) } else { unsettled(&x, open) };
        let begin = Instant::now();
        while auto.choices.sides.is_empty() {
            assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
            assert!(begin.elapsed() < Duration::from_secs(120), "it never decides");
        }
        assert_eq!(auto.choices.sides.values().collect::<Vec<_>>(), [&Side::Cpu]);
        assert_left(&auto, problem);
        // This GPU cannot be shared.
        if problem.is_some() {
            assert_left(auto.share().unwrap().as_ref(), problem);
        }
        let total = auto.log_likelihood(&m).unwrap();
        assert_eq!(auto.log_likelihood(&m).unwrap().to_bits(), total.to_bits());
    }
}

/// Checks that an evaluator is on the CPU, and why it gave up the GPU, if it did.
#[track_caller]
fn assert_left(auto: &dyn Evaluator, problem: Option<&str>) {
    let Description { device, gpu_problem, .. } = auto.describe();
    assert!(device.starts_with("cpu"), "{device}");
    assert_eq!(gpu_problem.is_some(), problem.is_some(), "{gpu_problem:?}");
    assert!(gpu_problem.unwrap_or_default().contains(problem.unwrap_or_default()));
}

/// The samples are laid out on the GPU only if the expected evaluations take longer.
#[test]
fn it_moves_only_for_what_pays_for_the_move() {
    let (x, m) = (data(40_000), mixture(40));
    let mut auto = unsettled(&x, fast);
    (auto.choices.layout, auto.choices.cpu_time) = (AGES, AGES * 2);
    let kind = auto.kind(Method::LogLikelihood, &m);
    for _ in 0..20 {
        assert_true(&x, &m, auto.log_likelihood(&m).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(auto.gpu, Gpu::Unopened) && auto.warm_up.is_some());
    auto.choices.on_cpu.insert(kind, OnCpu { count: 1, fastest: AGES * 2 });
    assert_eq!(until_moved(&mut auto, &x, &m).0, 0);
}

/// Checks a log-likelihood against the reference, within 10⁻⁶ of the sum for the rounding of float32.
#[track_caller]
fn assert_true(x: &Array2<f32>, mixture: &Mixture, total: f64) {
    let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).log_likelihood(mixture).unwrap();
    assert!((total - truth).abs() <= 1e-6 * truth.abs(), "{total} for {truth}");
}

/// A prior density that is the same everywhere.
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

/// The GPU gets the caller's float64 samples and weights.
#[test]
fn float64_and_weights_reach_the_gpu() {
    fn same(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        assert!(matches!(samples.view(), View::F64(_)));
        // The few samples of the warm-up count one each.
        let right = |(i, w): (usize, &f64)| *w == if samples.n_samples() < 40_000 { 1.0 } else { 0.1 + (i % 3) as f64 };
        assert!(samples.weights().is_some_and(|w| w.iter().enumerate().all(right)));
        fast(samples)
    }
    for n in [40_000, 60_000] {
        let (x, weights) = (data(n).mapv(f64::from), Array1::from_shape_fn(n, |i| 0.1 + (i % 3) as f64));
        let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
        let mut auto = AutoEvaluator::new(samples.clone(), None, same).unwrap();
        auto.sampling().unwrap().settle();
        assert_eq!(auto.log_likelihood(&mixture(40)).unwrap(), ANSWER);
        assert_eq!(auto.total_weight(), samples.total_weight());
        // The reference replaces the operations that this GPU lacks, with the same numbers.
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
    // Operations that the GPU lacks go to the CPU; earlier choices stay.
    assert_eq!(with_fast.statistics(&m).unwrap().n_components(), 40);
    let scores = with_fast.score_samples(&m).unwrap();
    assert_eq!(scores.len(), n);
    assert_true(&x, &m, scores.sum());
    assert_eq!(with_fast.log_likelihood(&m).unwrap(), ANSWER);
}

#[test]
fn a_walk_goes_where_it_is_faster() {
    let target = MetropolisTarget { n_components: 40, n_features: 2, spherical: true, prior: flat(40, 2) };
    let point = vec![0.0; target.dim()];
    for (open, on_device) in [(fast as OpenFn, true), (slow, false), (none, false)] {
        let x = data(10_000);
        let mut auto = auto(&x, open);
        let mut steps = ZeroSteps(3);
        assert_eq!(auto.sampling().unwrap().metropolis(&target, &point, 0.0, &mut steps).unwrap(), on_device);
        assert_eq!(steps.0, if on_device { 0 } else { 3 }, "no steps are asked for where none are made");
        assert!(!on_device || auto.describe().device == "fake");
    }
    let x = data(100);
    let refused = auto(&x, none).sampling().unwrap().metropolis(&target, &point[1..], 0.0, &mut ZeroSteps(1));
    assert!(matches!(refused, Err(Error::ShapeMismatch { .. })));
}

#[test]
fn errors_are_not_choices() {
    let x = data(100);
    let mut auto = auto(&x, none);
    let wrong = Mixture::new(Array1::ones(1), Array2::zeros((1, 3)), Covariances::Diag(Array2::ones((1, 3)))).unwrap();
    assert!(matches!(auto.log_likelihood(&wrong), Err(Error::ShapeMismatch { .. })));
    assert!(auto.choices.sides.is_empty());
    assert!(auto.log_likelihood_batch(&[]).unwrap().is_empty());
    assert!(matches!(auto.rows(&[100]), Err(Error::NoSuchRow { .. })));
}

/// A GPU that takes some time for each sample, with or without its own Metropolis steps.
struct Timed<'a> {
    cpu: CpuEvaluator<'a>,
    per_sample: Duration,
    walks: bool,
}

impl Timed<'_> {
    fn work(&self) {
        std::thread::sleep(self.per_sample * self.cpu.n_samples() as u32);
    }
}

impl Evaluator for Timed<'_> {
    fn data(&self) -> DataFacts<'_> {
        self.cpu.data()
    }
    fn describe(&self) -> Description {
        Description::new("gpu", "timed")
    }
    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.work();
        self.cpu.log_likelihood(mixture)
    }
    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        self.cpu.score_samples(mixture)
    }
    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        self.work();
        self.cpu.statistics(mixture)
    }
    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.cpu.rows(rows)
    }
    fn sampling(&mut self) -> Option<&mut dyn Sampling> {
        Some(self)
    }
}

impl Sampling for Timed<'_> {
    fn metropolis(&mut self, _: &MetropolisTarget, _: &[f64], _: f64, steps: &mut dyn MetropolisSteps) -> Result<bool> {
        let mut rows = vec![f64::NAN; 1000];
        loop {
            match if self.walks { steps.propose(&mut rows) } else { 0 } {
                0 => return Ok(self.walks),
                proposed => (0..proposed).for_each(|_| self.work()),
            }
        }
    }
}

type Opened = Arc<std::sync::atomic::AtomicUsize>;

fn timed<'a>(samples: Samples<'a>, per_sample: Duration, walks: bool) -> Result<Box<dyn Evaluator + 'a>> {
    Ok(Box::new(Timed { cpu: CpuEvaluator::with_threads(samples, 1)?, per_sample, walks }))
}

/// Returns `auto` over four GPUs that take `per_sample` each; all of them together take `overhead` more per evaluation.
fn gpus(x: &Array2<f32>, per_sample: Duration, overhead: Duration, opened: &Opened) -> Box<dyn Evaluator> {
    let samples = Samples::from_shared_f32(x.to_shared()).unwrap();
    let opened = Arc::clone(opened);
    let one = |samples| timed(samples, per_sample, true);
    on_gpus(samples, true, one, move |samples| {
        opened.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        four(samples, per_sample, overhead)
    })
    .unwrap()
}

fn four(samples: Samples<'_>, per_sample: Duration, overhead: Duration) -> Result<Box<dyn Evaluator + '_>> {
    let n = samples.n_samples();
    let part = |i: usize| {
        let rows = samples.rows(i * n / 4..(i + 1) * n / 4);
        timed(rows, per_sample + overhead / (n / 4) as u32, false)
    };
    Ok(Box::new(ShardedEvaluator::new((0..4).map(part).collect::<Result<_>>()?)?))
}

fn n_devices(data: &dyn Evaluator) -> usize {
    data.describe().device.split(" + ").count()
}

#[test]
fn one_gpu_goes_on_as_all_where_that_is_faster() {
    let (x, m) = (data(20_000), mixture(2));
    let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).log_likelihood(&m).unwrap();
    // An evaluation takes one GPU 40 ms, so a fit of 20 pays for the start of the others.
    let opened = Opened::default();
    let mut auto = gpus(&x, Duration::from_micros(2), Duration::ZERO, &opened);
    auto.statistics(&m).unwrap();
    // The first evaluation does not count.
    auto.statistics(&m).unwrap();
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 0);
    let begin = Instant::now();
    while n_devices(auto.as_ref()) == 1 {
        auto.statistics(&m).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "it never moves");
    }
    // A warm-up, and the samples.
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 2);
    let mut settled = gpus(&x, Duration::from_micros(2), Duration::ZERO, &opened);
    settled.sampling().unwrap().settle();
    let total = settled.log_likelihood(&m).unwrap();
    assert_eq!(n_devices(settled.as_ref()), 4);
    assert!((total - truth).abs() <= 1e-6 * truth.abs(), "float32, sums in float64: {total} {truth}");
    assert_eq!(settled.log_likelihood(&m).unwrap(), total);
    // A chain on one device would take four times as long; the caller makes its steps.
    let target = MetropolisTarget { n_components: 2, n_features: 2, spherical: true, prior: flat(2, 2) };
    let mut steps = ZeroSteps(3);
    assert!(!settled.sampling().unwrap().metropolis(&target, &vec![0.0; target.dim()], 0.0, &mut steps).unwrap());
    assert_eq!(steps.0, 3);
}

#[test]
fn one_gpu_stays_alone_where_more_would_not_be_faster() {
    let m = mixture(2);
    let opened = Opened::default();
    let count = || opened.load(std::sync::atomic::Ordering::SeqCst);
    // Starting together costs more than the other GPUs gain, as measured.
    let x = data(20_000);
    let mut slower = gpus(&x, Duration::from_nanos(50), Duration::from_millis(20), &opened);
    slower.sampling().unwrap().settle();
    let total = slower.log_likelihood(&m).unwrap();
    assert_eq!((n_devices(slower.as_ref()), count()), (1, 1));
    assert_eq!(slower.log_likelihood(&m).unwrap(), total);
    // Work that one GPU does soon is not tried on more: a fit of short E-steps, however long the first one takes.
    let x = data(10_000);
    let mut short = gpus(&x, Duration::ZERO, Duration::ZERO, &opened);
    (0..10).for_each(|_| drop(short.statistics(&m).unwrap()));
    // Nor are a few samples, such as a warm-up's.
    let few = data(100);
    let mut few = gpus(&few, Duration::from_millis(1), Duration::ZERO, &opened);
    few.sampling().unwrap().settle();
    few.log_likelihood(&m).unwrap();
    assert_eq!(count(), 1);
}

/// It tries the CPU, one GPU and all of them before the first result.
#[test]
fn a_settled_evaluator_decides_between_all_devices_at_once() {
    fn open(samples: Samples<'_>) -> Result<Box<dyn Evaluator + '_>> {
        on_gpus(samples, true, |samples| timed(samples, Duration::from_nanos(200), false), fast)
    }
    let (x, m) = (data(100_000), mixture(100));
    let mut auto = auto(&x, open);
    // Only all of them give this answer.
    assert_eq!(auto.log_likelihood(&m).unwrap(), ANSWER);
    assert_eq!(auto.log_likelihood(&m).unwrap(), ANSWER);
    assert_eq!(auto.describe().device, "fake");
}
