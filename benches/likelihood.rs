//! Time of one evaluation on the CPU: `cargo bench -p gaussmix --bench likelihood`.
//!
//! The ids are backend/covariance type/type/N/D/K. `compare_sklearn.py` beside this file runs this and scikit-learn.
#![allow(missing_docs)]
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gmm_host::{CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, ReferenceEvaluator, Samples};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

type Backend = (&'static str, usize, for<'a> fn(Samples<'a>) -> Box<dyn Evaluator + 'a>);

/// Name, largest measured N, constructor.
const BACKENDS: [Backend; 2] = [
    ("cpu", 1_000_000, |s| Box::new(CpuEvaluator::new(s).unwrap())),
    ("reference", 10_000, |s| Box::new(ReferenceEvaluator::new(s))),
];

fn mixture(t: CovarianceType, k: usize, d: usize) -> Mixture {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let mut variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..1.5));
    let covariances = match t {
        CovarianceType::Spherical => Covariances::Spherical(variances.column_mut(0).to_owned()),
        _ => Covariances::Diag(variances),
    };
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap()
}

fn likelihood(c: &mut Criterion) {
    let cases = [100, 1_000, 10_000, 100_000, 1_000_000].map(|n| (n, 13, 8)).into_iter();
    for (n, d, k) in cases.chain([(100_000, 64, 32), (10_000, 200, 300)]) {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let x64 = Array2::from_shape_simple_fn((n, d), || rng.sample::<f64, _>(StandardNormal));
        let x32 = x64.mapv(|v| v as f32);
        for (backend, largest, make) in BACKENDS {
            if n * d * k > largest * 13 * 8 {
                continue;
            }
            for (element, samples) in [("f32", Samples::from_f32(x32.view())), ("f64", Samples::from_f64(x64.view()))] {
                let mut evaluator = make(samples.unwrap());
                for t in [CovarianceType::Diag, CovarianceType::Spherical] {
                    let m = mixture(t, k, d);
                    let mut group = c.benchmark_group("log_likelihood");
                    group.throughput(Throughput::Elements(n as u64));
                    if n * d * k > 10_000_000 {
                        group.sample_size(20);
                    }
                    let id = BenchmarkId::from_parameter(format!("{backend}/{t}/{element}/N{n}/D{d}/K{k}"));
                    group.bench_function(id, |b| b.iter(|| evaluator.log_likelihood(&m).unwrap()));
                }
            }
        }
    }
}

criterion_group!(benches, likelihood);
criterion_main!(benches);
