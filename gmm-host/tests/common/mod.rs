//! Data, mixtures and comparisons for the tests.
#![allow(dead_code, missing_docs)]
pub mod agreement;
pub mod estep;
pub mod far;
pub mod noise_component;
pub mod precision;
pub mod sweep;

use gmm_host::{
    CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, ReferenceEvaluator, Samples, ShardedEvaluator,
    Statistics,
};
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

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
    Box::new(gmm_host::CudaEvaluator::new(samples, 0, &Default::default()).unwrap())
}

impl Backend {
    /// Returns an evaluator over `x`, rounded to float32 if the backend is float32.
    pub fn evaluator(&self, x: ArrayView2<'_, f64>, weights: Option<ArrayView1<'_, f64>>) -> Box<dyn Evaluator> {
        let samples = if self.float32 {
            Samples::from_shared_f32(x.mapv(|v| v as f32).into_shared()).unwrap()
        } else {
            Samples::from_shared_f64(x.to_shared()).unwrap()
        };
        (self.load)(match weights {
            Some(weights) => samples.with_shared_weights(weights.to_shared()).unwrap(),
            None => samples,
        })
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
    a: impl IntoIterator<Item = f64>,
    b: impl IntoIterator<Item = f64>,
    tolerance: f64,
    scale: f64,
) {
    let (a, b): (Vec<f64>, Vec<f64>) = (a.into_iter().collect(), b.into_iter().collect());
    assert_eq!(a.len(), b.len(), "{what}");
    for (i, (a, b)) in a.into_iter().zip(b).enumerate() {
        assert_close(&format!("{what}[{i}]"), a, b, tolerance, scale);
    }
}

/// Compares statistics; means only of components with at least a thousandth of a sample.
pub fn assert_statistics_close(a: &Statistics, b: &Statistics, tolerance: f64, scale: f64) {
    assert_close("weight", a.weight(), b.weight(), tolerance, 0.0);
    assert_close("log-likelihood", a.log_likelihood(), b.log_likelihood(), tolerance, 0.0);
    assert_all_close("counts", a.counts().iter().copied(), b.counts().iter().copied(), tolerance, scale);
    for ((mean, truth), _) in
        a.means().outer_iter().zip(b.means().outer_iter()).zip(b.counts()).filter(|(_, n)| **n > 1e-3)
    {
        assert_all_close("mean", mean.iter().copied(), truth.iter().copied(), tolerance, scale);
    }
    assert_all_close("scatter", a.scatter().iter(), b.scatter().iter(), tolerance, scale);
}
