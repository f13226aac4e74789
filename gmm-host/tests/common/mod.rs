//! Data, mixtures and comparisons for the tests.
#![allow(dead_code, missing_docs)]
pub mod agreement;
pub mod estep;
pub mod far;
pub mod noise_component;
pub mod precision;
pub mod sweep;

use gmm_host::{
    CentredSums, Checked, CovarianceType, Covariances, CpuEvaluator, Evaluator, Fit, Fitting, Iteration, Method,
    Mixture, ReferenceEvaluator, Samples, ShardedEvaluator, Statistics,
};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::borrow::Borrow;
use std::ops::ControlFlow;

/// Returns the configuration of every property test, with the same cases in each run. A failing case is written to a
/// `.proptest-regressions` file beside the test's source, to be committed, and is tried first from then on.
pub fn proptest_config() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, FileFailurePersistence, RngSeed};
    Config {
        cases: 24,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..Config::default()
    }
}

pub fn normal(seed: u64, n: usize, d: usize, offset: f64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || offset + rng.sample::<f64, _>(StandardNormal))
}

/// Returns N, D and K of several cases, from text such as `1x1x1 300x4x3`.
pub fn sizes(text: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    text.split_whitespace().map(|case| {
        let numbers: Vec<usize> = case.split('x').map(|number| number.parse().unwrap()).collect();
        (numbers[0], numbers[1], numbers[2])
    })
}

/// Makes a share of the values missing, at random and independently.
pub fn with_holes(seed: u64, mut x: Array2<f64>, share: f64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    x.map_inplace(|v| *v = if rng.random::<f64>() < share { f64::NAN } else { *v });
    x
}

/// Returns weights of very different size, some of them zero.
pub fn weights(n: usize) -> Array1<f64> {
    Array1::from_shape_fn(n, |i| if i % 7 == 3 { 0.0 } else { 1.0 / 64.0 + (i % 11) as f64 })
}

/// Returns the responsibilities (N, K) of samples that belong to one class each.
pub fn of_classes(n: usize, k: usize, class: impl Fn(usize) -> usize) -> Array2<f64> {
    Array2::from_shape_fn((n, k), |(i, c)| f64::from(u8::from(class(i) == c)))
}

/// Returns three well separated blobs of different width.
pub fn blobs(seed: u64, n: usize, d: usize) -> Array2<f64> {
    let mut x = normal(seed, n, d, 0.0);
    for (i, mut row) in x.outer_iter_mut().enumerate() {
        let blob = (i % 3) as f64;
        row.map_inplace(|v| *v = *v * (0.5 + 0.25 * blob) + 5.0 * blob);
    }
    x
}

/// Returns a random symmetric positive definite matrix with eigenvalues of about one.
pub fn spd(rng: &mut ChaCha8Rng, d: usize) -> Array2<f64> {
    let a = Array2::from_shape_simple_fn((d, d), || rng.sample::<f64, _>(StandardNormal) / (d as f64).sqrt());
    let mut m = a.dot(&a.t()) + Array2::<f64>::eye(d) * 0.3;
    m = (&m + &m.t()) / 2.0;
    m
}

pub fn mixture(seed: u64, covariance_type: CovarianceType, k: usize, d: usize, offset: f64) -> Mixture {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let weights = &weights / weights.sum();
    let means = Array2::from_shape_simple_fn((k, d), || offset + rng.sample::<f64, _>(StandardNormal));
    let covariances = match covariance_type {
        CovarianceType::Full => {
            let mut v = Array3::zeros((k, d, d));
            v.outer_iter_mut().for_each(|mut m| m.assign(&spd(&mut rng, d)));
            Covariances::Full(v)
        }
        CovarianceType::Tied => Covariances::Tied(spd(&mut rng, d)),
        CovarianceType::Diag => Covariances::Diag(Array2::from_shape_simple_fn((k, d), || rng.random_range(0.3..2.0))),
        _ => Covariances::Spherical(Array1::from_shape_simple_fn(k, || rng.random_range(0.3..2.0))),
    };
    Mixture::new(weights, means, covariances).unwrap()
}

/// Returns the mixture with other means.
pub fn with_means(m: &Mixture, means: Array2<f64>) -> Mixture {
    Mixture::new(m.weights().to_owned(), means, m.covariances().clone()).unwrap()
}

/// The callback that lets a fit go on.
pub fn go<M>(_: &Iteration<'_, M>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Fits, and shows each iteration.
pub fn watched<M: Method>(
    model: &Checked<Fitting<M>>,
    evaluator: &mut dyn Evaluator,
    mut show: impl FnMut(&Iteration<'_, M::Model>),
) -> Fit<M::Model> {
    let shown = &mut |i: &Iteration<'_, M::Model>| {
        show(i);
        ControlFlow::Continue(())
    };
    model.fit_with(evaluator, shown).unwrap()
}

/// Interrupts a fit in this run and iteration. Returns the fit as it is there, and the best of the runs before.
pub fn interrupted<M: Method<Model: Clone>>(
    model: &Checked<Fitting<M>>,
    evaluator: &mut dyn Evaluator,
    (run, iteration): (usize, usize),
) -> (Fit<M::Model>, Option<Fit<M::Model>>) {
    let mut last = None;
    let stop = &mut |i: &Iteration<'_, M::Model>| {
        if (i.run, i.iteration) != (run, iteration) {
            return ControlFlow::Continue(());
        }
        last = Some((i.fit.clone(), i.best.cloned()));
        ControlFlow::Break(())
    };
    assert!(model.fit_with(evaluator, stop).unwrap().stopped);
    last.unwrap()
}

/// Checks that bounds fall nowhere by more than is `allowed` beside the larger one.
#[track_caller]
pub fn assert_rises(what: &str, bounds: &[f64], allowed: impl Fn(f64) -> f64) {
    for (i, pair) in bounds.windows(2).enumerate() {
        assert!(pair[1] >= pair[0] - allowed(pair[0]), "{what}, iteration {i}: {pair:?}");
    }
}

/// Runs `work` with this many threads of rayon.
pub fn with_threads<T: Send>(n: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(work)
}

pub fn reference(x: ArrayView2<'_, f64>) -> ReferenceEvaluator {
    ReferenceEvaluator::new(Samples::from_f64(x).unwrap())
}

/// Returns the reference, with many samples divided among threads.
pub fn reference_in_threads(samples: &Samples<'_>) -> ShardedEvaluator<'static> {
    let n = samples.n_samples();
    let rows = if n < 5000 { n } else { n.div_ceil(8) };
    let part = |start| ReferenceEvaluator::new(samples.rows(start..n.min(start + rows)));
    let parts = (0..n).step_by(rows).map(|start| Box::new(part(start)) as Box<dyn Evaluator>);
    ShardedEvaluator::new(parts.collect()).unwrap()
}

pub fn weighted(x: ArrayView2<'_, f64>, weights: ArrayView1<'_, f64>) -> ReferenceEvaluator {
    ReferenceEvaluator::new(Samples::from_f64(x).unwrap().with_weights(weights).unwrap())
}

/// Returns statistics from means and from full scatter (K, D, D), in the shape of the type.
pub fn statistics_of(
    t: CovarianceType,
    log_likelihood: f64,
    weight: f64,
    counts: Array1<f64>,
    means: Array2<f64>,
    scatter: Array3<f64>,
) -> Statistics {
    let diagonals = Array2::from_shape_fn(means.dim(), |(c, j)| scatter[[c, j, j]]);
    let second = match t {
        CovarianceType::Full | CovarianceType::Tied => Covariances::of_matrices(t, scatter),
        _ => Covariances::of_diagonals(t, diagonals),
    };
    let first = Array2::zeros(means.dim());
    Statistics::from_centred_sums(CentredSums { weight, log_likelihood, centres: means, counts, first, second })
        .unwrap()
}

#[derive(Debug, Clone, Copy)]
pub struct Backend {
    pub name: &'static str,
    pub load: for<'a> fn(Samples<'a>) -> Box<dyn Evaluator + 'a>,
    pub float32: bool,
}

/// The backends that every machine can run. A new backend is added here or to [`CUDA_BACKENDS`].
pub const BACKENDS: &[Backend] = &[
    Backend { name: "reference", load: |s| Box::new(ReferenceEvaluator::new(s)), float32: false },
    Backend { name: "cpu, float64", load: |s| Box::new(CpuEvaluator::new(s).unwrap()), float32: false },
    Backend { name: "cpu, float32", load: |s| Box::new(CpuEvaluator::new(s).unwrap()), float32: true },
];

/// The backends that need a GPU, for tests under `gpu_harness`.
#[cfg(feature = "cuda")]
pub const CUDA_BACKENDS: &[Backend] = &[
    Backend { name: "cuda, float64", load: load_cuda, float32: false },
    Backend { name: "cuda, float32", load: load_cuda, float32: true },
];

#[cfg(feature = "cuda")]
fn load_cuda(samples: Samples<'_>) -> Box<dyn Evaluator + '_> {
    Box::new(cuda(samples, None, None))
}

/// Returns an evaluator on the first GPU, by a kernel and with a limit of its memory, if these are given.
#[cfg(feature = "cuda")]
pub fn cuda<'a>(
    samples: Samples<'a>,
    kernel: Option<&str>,
    memory_limit: Option<usize>,
) -> gmm_host::CudaEvaluator<'a> {
    let options = gmm_host::CudaOptions::default().with_kernel(kernel.map(String::from));
    gmm_host::CudaEvaluator::new(samples, 0, &options.with_memory_limit(memory_limit)).unwrap()
}

impl Backend {
    /// Returns samples, rounded to float32 if the backend is float32; NaN is a missing value.
    pub fn samples(&self, x: ArrayView2<'_, f64>, weights: Option<ArrayView1<'_, f64>>) -> Samples<'static> {
        let samples = match self.float32 {
            true => Samples::with_shared_missing(x.mapv(|v| v as f32).into_shared()).unwrap(),
            false => Samples::with_shared_missing(x.to_shared()).unwrap(),
        };
        match weights {
            Some(weights) => samples.with_shared_weights(weights.to_shared()).unwrap(),
            None => samples,
        }
    }

    /// Returns an evaluator over [`samples`](Self::samples).
    pub fn evaluator(&self, x: ArrayView2<'_, f64>, weights: Option<ArrayView1<'_, f64>>) -> Box<dyn Evaluator> {
        (self.load)(self.samples(x, weights))
    }

    pub fn seen(&self, x: &Array2<f64>) -> Array2<f64> {
        if self.float32 { x.mapv(|v| f64::from(v as f32)) } else { x.clone() }
    }

    pub fn tolerance(&self, float64: f64, float32: f64) -> f64 {
        if self.float32 { float32 } else { float64 }
    }
}

/// Fails where |a − b| > tolerance · max(|b|, scale).
pub fn assert_close(what: &str, a: f64, b: f64, tolerance: f64, scale: f64) {
    let bound = tolerance * b.abs().max(scale);
    assert!((a - b).abs() <= bound, "{what}: {a} against {b}, apart by {:e}, allowed {bound:e}", (a - b).abs());
}

pub fn assert_all_close(
    what: &str,
    a: impl IntoIterator<Item: Borrow<f64>>,
    b: impl IntoIterator<Item: Borrow<f64>>,
    tolerance: f64,
    scale: f64,
) {
    let a: Vec<f64> = a.into_iter().map(|v| *v.borrow()).collect();
    let b: Vec<f64> = b.into_iter().map(|v| *v.borrow()).collect();
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
        assert_close(&format!("{what}[{i}]"), a, b, tolerance, scale);
    }
}

pub fn assert_mixtures_close(what: &str, a: &Mixture, b: &Mixture, tolerance: f64, scale: f64) {
    assert_all_close(&format!("{what}: weights"), a.weights(), b.weights(), tolerance, scale);
    assert_all_close(&format!("{what}: means"), a.means(), b.means(), tolerance, scale);
    assert_all_close(&format!("{what}: covariances"), a.covariances().iter(), b.covariances().iter(), tolerance, scale);
}

/// Compares the lower bounds and the parameters of fits, relative to the largest number of each array.
pub fn assert_fits_close(what: &str, a: &Fit, b: &Fit, tolerance: f64) {
    let numbers = |fit: &Fit| {
        let m = &fit.mixture;
        [fit.lower_bounds.clone(), m.weights().to_vec(), m.supervector().to_vec(), m.covariances().iter().collect()]
    };
    for (a, b) in numbers(a).into_iter().zip(numbers(b)) {
        let largest = b.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        assert_all_close(what, a, b, tolerance, largest);
    }
}

/// The errors that a comparison of two evaluators allows.
#[derive(Clone, Copy)]
pub struct Allowed {
    /// The error of a sample's score or responsibilities, relative to the score's size, at least one.
    pub sample: f64,
    /// The error of a total, relative to the sum of the sizes of the samples' scores.
    pub total: f64,
    /// The error of statistics, as in [`estep::assert_statistics_agree`].
    pub statistics: f64,
}

impl Allowed {
    pub fn all(tolerance: f64) -> Self {
        Self { sample: tolerance, total: tolerance, statistics: tolerance }
    }
}

/// Compares all evaluations of a mixture with those of another evaluator. The results have the same bits every time,
/// also of a shared evaluator.
pub fn assert_evaluators_agree(
    what: &str,
    e: &mut dyn Evaluator,
    truth: &mut dyn Evaluator,
    m: &Mixture,
    allowed: Allowed,
) {
    let scores = truth.score_samples(m).unwrap();
    let sizes = scores.mapv(|v| v.abs().max(1.0));
    assert_all_close(&format!("{what}: scores"), e.score_samples(m).unwrap(), &scores, allowed.sample, 1.0);
    let all_sizes = match e.data().weights.or(truth.data().weights) {
        Some(weights) => weights.dot(&sizes),
        None => sizes.sum(),
    };
    let (total, of_truth) = (e.log_likelihood(m).unwrap(), truth.log_likelihood(m).unwrap());
    assert_close(&format!("{what}: total"), total, of_truth, allowed.total, all_sizes);
    assert_eq!(total.to_bits(), e.log_likelihood(m).unwrap().to_bits(), "{what}: the same bits every time");
    for total in e.log_likelihood_batch(&[m.clone(), m.clone()]).unwrap() {
        assert_close(&format!("{what}: a batch"), total, of_truth, allowed.total, all_sizes);
    }
    let (r, of_truth) = (e.predict_proba(m).unwrap(), truth.predict_proba(m).unwrap());
    for (i, label) in e.predict(m).unwrap().into_iter().enumerate() {
        // A responsibility's relative error is the absolute error of two exponents.
        let tolerance = 2.0 * allowed.sample * sizes[i];
        assert_all_close(&format!("{what}: responsibilities of {i}"), r.row(i), of_truth.row(i), tolerance, 1.0);
        let most = of_truth.row(i).fold(0.0, |most: f64, v| most.max(*v));
        assert!(of_truth[[i, label]] >= most - 2.0 * tolerance, "{what}: label {label} of {i}: {}", of_truth.row(i));
    }
    let statistics = e.statistics(m).unwrap();
    estep::assert_statistics_agree(what, &statistics, &truth.statistics(m).unwrap(), allowed.statistics);
    assert_eq!(e.statistics(m).unwrap(), statistics, "{what}: the same bits every time");
    if let Ok(mut shared) = e.share() {
        assert_eq!(shared.log_likelihood(m).unwrap().to_bits(), total.to_bits(), "{what}: a shared evaluator");
        assert_eq!(shared.statistics(m).unwrap(), statistics, "{what}: a shared evaluator");
    }
}

/// Compares statistics; means only of components with at least a thousandth of a sample.
pub fn assert_statistics_close(a: &Statistics, b: &Statistics, tolerance: f64, scale: f64) {
    assert_close("weight", a.weight(), b.weight(), tolerance, 0.0);
    assert_close("log-likelihood", a.log_likelihood(), b.log_likelihood(), tolerance, 0.0);
    assert_all_close("counts", a.counts(), b.counts(), tolerance, scale);
    for ((mean, truth), _) in
        a.means().outer_iter().zip(b.means().outer_iter()).zip(b.counts()).filter(|(_, n)| **n > 1e-3)
    {
        assert_all_close("mean", &mean, &truth, tolerance, scale);
    }
    assert_all_close("scatter", a.scatter().iter(), b.scatter().iter(), tolerance, scale);
}
