//! Samples with missing values under covariances with matrices, on a real device.
//!
//! Tolerances: in float64 10⁻¹⁰ of the sums' size, for another order of addition; in float32 2·10⁻⁵, for samples rounded
//! to 2⁻²⁴ and exponents with some tens of roundings. A row left out or counted twice is 10⁻³ or more.
use crate::common::{
    Allowed, Backend, CUDA_BACKENDS, assert_all_close, assert_close, assert_evaluators_agree, assert_mixtures_close,
    cuda, estep, mixture, normal, with_holes, with_means,
};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, CpuEvaluator, CudaEvaluator, CudaOptions, Error, Evaluator, GaussianMixtureParams, Mixture,
    ReferenceEvaluator, Samples,
};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub fn tests() -> Vec<Test> {
    vec![
        ("every_operation_agrees_with_the_reference", every_operation_agrees_with_the_reference),
        ("many_rows_agree_with_the_cpu", many_rows_agree_with_the_cpu),
        ("a_pattern_for_each_row", a_pattern_for_each_row),
        ("rows_and_columns_without_values", rows_and_columns_without_values),
        ("a_fit_is_the_cpus", a_fit_is_the_cpus),
        ("mixtures_of_other_k_take_turns", mixtures_of_other_k_take_turns),
        ("one_missing_value_makes_two_patterns", one_missing_value_makes_two_patterns),
        ("what_cannot_be_evaluated_is_an_error", what_cannot_be_evaluated_is_an_error),
    ]
}

/// The types with matrices, in float64 and float32.
fn cases() -> impl Iterator<Item = (CovarianceType, &'static Backend)> {
    let types = [CovarianceType::Full, CovarianceType::Tied];
    types.into_iter().flat_map(|t| CUDA_BACKENDS.iter().map(move |backend| (t, backend)))
}

/// Returns samples, with weights or without.
fn samples(backend: &Backend, x: &Array2<f64>, weighted: bool) -> Samples<'static> {
    let weights = Array1::from_shape_fn(x.nrows(), |i| (i % 5) as f64 * 0.7 + 0.1);
    backend.samples(x.view(), weighted.then_some(weights.view()))
}

fn tolerance(backend: &Backend) -> f64 {
    backend.tolerance(1e-10, 2e-5)
}

fn check(backend: &Backend, samples: &Samples<'_>, m: &Mixture, truth: &mut dyn Evaluator) {
    let what = format!("{} {} N={}", backend.name, m.covariance_type(), samples.n_samples());
    let what = format!("{what} K={} D={}", m.n_components(), m.n_features());
    let (total, statistics) = (tolerance(backend), backend.tolerance(1e-10, estep::FLOAT32));
    let allowed = Allowed { sample: 10.0 * total, total, statistics };
    assert_evaluators_agree(&what, &mut cuda(samples.clone(), None, None), truth, m, allowed);
}

fn every_operation_agrees_with_the_reference() {
    let complete = [(1, 1, 1, 0.0), (1, 4, 3, 0.5), (700, 1, 2, 0.3), (1000, 13, 1, 0.1), (3001, 13, 8, 0.05)];
    let more = [(2000, 13, 8, 0.3), (2000, 16, 5, 0.6), (3000, 5, 20, 0.1), (2000, 7, 40, 0.1), (1500, 20, 6, 0.1)];
    let all = complete.into_iter().chain(more).chain([(600, 40, 3, 0.05)]);
    for (i, (n, d, k, holes)) in all.enumerate() {
        for (covariance_type, backend) in cases() {
            let x = with_holes(i as u64, normal(i as u64, n, d, 2.0), holes);
            let samples = samples(backend, &x, i % 2 == 1);
            let m = mixture(7 + i as u64, covariance_type, k, d, 2.0);
            check(backend, &samples, &m, &mut ReferenceEvaluator::new(samples.clone()));
        }
    }
}

/// Patterns of many rows, which take several slices and parts.
fn many_rows_agree_with_the_cpu() {
    let (n, d, k) = (300_000, 13, 8);
    let mut x = normal(3, n, d, 1.0);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    // Some hundred patterns.
    let patterns: Vec<u32> =
        (0..100).map(|_| rng.random::<u32>() & rng.random::<u32>() & rng.random::<u32>()).collect();
    for mut row in x.outer_iter_mut() {
        let pattern = if rng.random::<bool>() { 0 } else { patterns[rng.random_range(0..patterns.len())] };
        row.iter_mut().enumerate().filter(|(j, _)| pattern >> j & 1 == 1).for_each(|(_, v)| *v = f64::NAN);
    }
    for (covariance_type, backend) in cases() {
        let samples = samples(backend, &x, !backend.float32);
        let mut cpu = CpuEvaluator::new(samples.clone().into_float64()).unwrap();
        check(backend, &samples, &mixture(5, covariance_type, k, d, 1.0), &mut cpu);
    }
}

/// As many patterns as rows, more than are on the device at once.
fn a_pattern_for_each_row() {
    let (n, d, k) = (12_000, 40, 4);
    let samples = samples(&CUDA_BACKENDS[1], &with_holes(21, normal(21, n, d, 0.0), 0.4), false);
    let mut cpu = CpuEvaluator::new(samples.clone().into_float64()).unwrap();
    check(&CUDA_BACKENDS[1], &samples, &mixture(22, CovarianceType::Full, k, d, 0.0), &mut cpu);
}

fn rows_and_columns_without_values() {
    for (covariance_type, backend) in cases() {
        let mut x = with_holes(31, normal(31, 500, 4, 0.0), 0.2);
        for row in [0, 250, 499] {
            x.row_mut(row).fill(f64::NAN);
        }
        x.column_mut(2).fill(f64::NAN);
        // Far from the origin, where a float32 has a few digits of the unit left.
        x.column_mut(0).mapv_inplace(|v| (64.0 * v).round() / 64.0 + 1e5);
        let samples = samples(backend, &x, false);
        let m = mixture(32, covariance_type, 3, 4, 0.0);
        let mut means = m.means().to_owned();
        means.column_mut(0).mapv_inplace(|v| v + 1e5);
        let m = with_means(&m, means);
        let mut e = cuda(samples.clone(), None, None);
        assert!([0, 250, 499].iter().all(|&row| e.score_samples(&m).unwrap()[row] == 0.0));
        let (got, want) = (e.statistics(&m).unwrap(), ReferenceEvaluator::new(samples).statistics(&m).unwrap());
        let tolerance = tolerance(backend);
        assert_close("log-likelihood", got.log_likelihood(), want.log_likelihood(), tolerance, 500.0);
        assert_all_close("counts", got.counts(), want.counts(), tolerance, 500.0);
        assert_all_close("means", got.means(), want.means(), tolerance, 10.0);
        assert_all_close("scatter", got.scatter().iter(), want.scatter().iter(), tolerance, 5000.0);
    }
}

/// EM from the same start, step by step: errors of a step pass to the next.
fn a_fit_is_the_cpus() {
    for covariance_type in [CovarianceType::Full, CovarianceType::Tied] {
        let samples = samples(&CUDA_BACKENDS[0], &with_holes(41, crate::common::blobs(41, 3000, 4), 0.1), false);
        let params = GaussianMixtureParams::new(3).covariance_type(covariance_type).max_iter(20);
        let a = params.fit(&mut cuda(samples.clone(), None, None)).unwrap();
        let b = params.fit(&mut CpuEvaluator::new(samples).unwrap()).unwrap();
        assert_mixtures_close("fits", &a.mixture, &b.mixture, 1e-6, 1.0);
    }
}

fn mixtures_of_other_k_take_turns() {
    let samples = samples(&CUDA_BACKENDS[1], &with_holes(51, normal(51, 4000, 6, 0.0), 0.2), false);
    let (mut e, mut truth) = (cuda(samples.clone(), None, None), ReferenceEvaluator::new(samples));
    for k in [3, 12, 2, 40, 3] {
        let m = mixture(k as u64, CovarianceType::Tied, k, 6, 0.0);
        let (got, want) = (e.statistics(&m).unwrap(), truth.statistics(&m).unwrap());
        estep::assert_statistics_agree(&format!("K={k}"), &got, &want, estep::FLOAT32);
    }
}

/// One sample has its own pattern; all others are complete.
fn one_missing_value_makes_two_patterns() {
    let mut x = normal(61, 5000, 13, 0.0);
    x.row_mut(0)[3] = f64::NAN;
    let samples = samples(&CUDA_BACKENDS[1], &x, false);
    let m = mixture(62, CovarianceType::Full, 8, 13, 0.0);
    check(&CUDA_BACKENDS[1], &samples, &m, &mut ReferenceEvaluator::new(samples.clone()));
}

fn what_cannot_be_evaluated_is_an_error() {
    let samples = samples(&CUDA_BACKENDS[1], &with_holes(71, normal(71, 1000, 3, 0.0), 0.2), false);
    let m = mixture(72, CovarianceType::Full, 2, 4, 0.0);
    assert!(cuda(samples.clone(), None, None).log_likelihood(&m).is_err(), "another number of features");
    let limit = CudaOptions::default().with_memory_limit(1000);
    let error = CudaEvaluator::new(samples, 0, &limit)
        .and_then(|mut e| e.log_likelihood(&mixture(72, CovarianceType::Full, 2, 3, 0.0)))
        .unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}
