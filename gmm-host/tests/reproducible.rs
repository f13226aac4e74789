//! The same bits on every CPU. The switch is one for the process, so that this is a program of its own.
#![allow(missing_docs)]
use gmm_host::simd::Isa;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, CpuEvaluator, Criterion, Device, Error, Evaluator,
    GaussianMixtureParams, LoadOptions, Mixture, Predict, Reproducible, Samples, grow, load,
};
use ndarray::{Array1, Array2};
use std::ops::ControlFlow;

/// What the fits below give on every CPU.
const DIGEST: u64 = 0xe7ba_7187_9289_7973;

/// A hash of the bits of numbers (FNV-1a, of words).
#[derive(Debug, Clone, PartialEq)]
struct Digest(u64);

impl Digest {
    fn add(&mut self, numbers: impl IntoIterator<Item = f64>) {
        numbers
            .into_iter()
            .for_each(|v| self.0 = (self.0 ^ v.to_bits()).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29));
    }

    fn add_mixture(&mut self, mixture: &Mixture) {
        self.add(mixture.weights().iter().copied());
        self.add(mixture.means().iter().copied());
        self.add(mixture.covariances().iter());
        self.add(mixture.precisions_cholesky().iter());
    }
}

/// A number from −1 to 1 that is the same everywhere.
fn number(i: usize) -> f64 {
    let hashed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hashed = (hashed ^ hashed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((hashed ^ hashed >> 32) >> 12) as f64 / (1u64 << 51) as f64 - 1.0
}

/// Three clouds, one after the other.
fn clouds(n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((n, d), |(i, j)| {
        let at = (0..4).map(|k| number(4 * (i * d + j) + k)).sum::<f64>();
        at + 2.0 * number(1_000_000 + i % 3 * d + j) + at.abs() * number(2_000_000 + j)
    })
}

/// Samples in float32 or float64, plain, with weights or with missing values.
fn with_samples<T>(x: &Array2<f64>, float32: bool, what: &str, work: impl FnOnce(Samples<'_>) -> T) -> T {
    let mut x = x.clone();
    if what == "missing" {
        let d = x.ncols();
        x.indexed_iter_mut().filter(|((i, j), _)| (i * d + j) % 7 == 3).for_each(|(_, v)| *v = f64::NAN);
    }
    let (narrow, weights) = (x.mapv(|v| v as f32), Array1::from_shape_fn(x.nrows(), |i| (i % 5) as f64 * 0.3));
    let samples = match (float32, what) {
        (true, "missing") => Samples::with_missing(narrow.view()),
        (false, "missing") => Samples::with_missing(x.view()),
        (true, _) => Samples::from_f32(narrow.view()),
        (false, _) => Samples::from_f64(x.view()),
    };
    work(if what == "weights" { samples.unwrap().with_weights(weights.view()).unwrap() } else { samples.unwrap() })
}

/// The bits of all that an evaluator gives.
fn evaluate(evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Digest {
    let mut digest = Digest(0);
    let statistics = evaluator.statistics(mixture).unwrap();
    digest.add([evaluator.log_likelihood(mixture).unwrap(), statistics.log_likelihood()]);
    digest.add(statistics.counts().iter().copied());
    digest.add(statistics.means().iter().copied());
    digest.add(statistics.scatter().iter());
    digest.add(evaluator.score_samples(mixture).unwrap());
    digest.add(evaluator.predict_proba(mixture).unwrap());
    digest.add(evaluator.predict(mixture).unwrap().into_iter().map(|label| label as f64));
    digest
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let _same = Reproducible::begin();
    let kernels: Vec<&str> = Isa::reproducible().into_iter().map(Isa::name).collect();
    let sizes = (1..=17).map(|d| (209, d)).chain([(65, 64), (5003, 3), (1501, 20)]);
    for (n, d) in sizes {
        let x = clouds(n, d);
        for covariance_type in CovarianceType::ALL {
            let fit =
                GaussianMixtureParams::new(5).covariance_type(covariance_type).reg_covar(0.01).max_iter(2).tol(0.0);
            let mixture = fit.fit(&x).unwrap().mixture;
            for (float32, what) in
                [false, true].into_iter().flat_map(|f| ["plain", "weights", "missing"].map(|w| (f, w)))
            {
                let digests: Vec<Digest> = kernels
                    .iter()
                    .enumerate()
                    .map(|(threads, kernel)| {
                        with_samples(&x, float32, what, |samples| {
                            let mut evaluator = CpuEvaluator::with(samples, Some(threads + 1), Some(kernel)).unwrap();
                            evaluate(&mut evaluator, &mixture)
                        })
                    })
                    .collect();
                assert!(
                    digests.iter().all(|one| *one == digests[0]),
                    "{n} {d} {covariance_type} {float32} {what}: {digests:?}"
                );
            }
        }
    }
}

#[test]
fn fits_have_the_bits_that_they_have_on_every_cpu() {
    let _same = Reproducible::begin();
    let mut digest = Digest(0);
    for (n, d) in [(311, 1), (311, 5), (2603, 13), (12_011, 2), (301, 37)] {
        let x = clouds(n, d);
        for covariance_type in CovarianceType::ALL {
            let fit = GaussianMixtureParams::new(3).covariance_type(covariance_type).max_iter(20).reg_covar(0.001);
            for (float32, what) in [(false, "plain"), (true, "weights"), (false, "missing"), (true, "missing")] {
                let found = with_samples(&x, float32, what, |samples| fit.fit(samples)).unwrap();
                digest.add(found.lower_bounds.iter().copied());
                digest.add_mixture(&found.mixture);
            }
            let posterior = BayesianGaussianMixtureParams::new(4).covariance_type(covariance_type).max_iter(10);
            digest.add_mixture(posterior.fit(&x).unwrap().mixture.density());
            let mixture = fit.fit(&x).unwrap().mixture;
            digest.add(mixture.score_samples(&x).unwrap());
            digest.add(mixture.sample(50, 7).unwrap().0);
            println!("{n} {d} {covariance_type}: {digest:?}");
        }
    }
    let (x, params) = (clouds(700, 2), GaussianMixtureParams::new(1).n_init(2));
    let mut evaluator = load(Device::Auto, Samples::from_f64(x.view()).unwrap(), &LoadOptions::new()).unwrap();
    assert!(evaluator.describe().device.starts_with("cpu") && evaluator.describe().kernel.starts_with("reproducible-"));
    let types = [CovarianceType::Diag, CovarianceType::Full];
    let found =
        grow(evaluator.as_mut(), &params, &[1, 2, 3, 4], &types, Criterion::Bic, &mut |_| ControlFlow::Continue(()))
            .unwrap();
    digest.add(found.table.iter().map(|row| row.criterion));
    digest.add_mixture(&found.fit.mixture);
    assert_eq!(digest.0, DIGEST, "{:#x}", digest.0);
}

#[test]
fn gpus_are_refused() {
    let _same = Reproducible::begin();
    let x = clouds(10, 2);
    let error = GaussianMixtureParams::new(1).device(Device::Cuda(0)).fit(&x).unwrap_err();
    assert!(matches!(error, Error::Unsupported { backend: "GPUs", .. }), "{error}");
}
