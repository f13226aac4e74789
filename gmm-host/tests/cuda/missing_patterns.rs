//! Samples with missing values under covariances with matrices, on a real device.
//!
//! Tolerances: 10⁻¹⁰ of the sums' size in float64, for another order of addition; 2·10⁻⁵ in float32, for samples
//! rounded to 2⁻²⁴ and exponents with some tens of roundings. A row left out or counted twice is 10⁻³ or more.
use crate::common::{assert_all_close, assert_close, assert_statistics_close, mixture, normal};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, CpuEvaluator, CudaEvaluator, CudaOptions, Error, Evaluator, GaussianMixtureParams, Mixture,
    ReferenceEvaluator, Samples,
};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::ControlFlow;

pub fn tests() -> Vec<Test> {
    vec![
        ("every_operation_agrees_with_the_reference", every_operation_agrees_with_the_reference),
        ("many_rows_agree_with_the_cpu", many_rows_agree_with_the_cpu),
        ("a_pattern_for_each_row", a_pattern_for_each_row),
        ("the_same_bits_every_time", the_same_bits_every_time),
        ("rows_and_columns_without_values", rows_and_columns_without_values),
        ("a_fit_is_the_cpus", a_fit_is_the_cpus),
        ("mixtures_of_other_k_take_turns", mixtures_of_other_k_take_turns),
        ("one_missing_value_makes_two_patterns", one_missing_value_makes_two_patterns),
        ("what_cannot_be_evaluated_is_an_error", what_cannot_be_evaluated_is_an_error),
    ]
}

const TYPES: [CovarianceType; 2] = [CovarianceType::Full, CovarianceType::Tied];

fn with_holes(seed: u64, mut x: Array2<f64>, share: f64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    x.map_inplace(|v| *v = if rng.random::<f64>() < share { f64::NAN } else { *v });
    x
}

/// The samples as float32 or float64, and as the reference sees them.
struct Data {
    short: Option<Array2<f32>>,
    x: Array2<f64>,
    weights: Option<Array1<f64>>,
}

impl Data {
    fn new(x: Array2<f64>, float32: bool, weighted: bool) -> Self {
        let short = float32.then(|| x.mapv(|v| v as f32));
        let x = short.as_ref().map_or(x, |short| short.mapv(f64::from));
        let weights = weighted.then(|| Array1::from_shape_fn(x.nrows(), |i| (i % 5) as f64 * 0.7 + 0.1));
        Self { short, x, weights }
    }

    fn weigh<'a>(&'a self, samples: Samples<'a>) -> Samples<'a> {
        match &self.weights {
            Some(weights) => samples.with_weights(weights.view()).unwrap(),
            None => samples,
        }
    }

    fn samples(&self) -> Samples<'_> {
        self.weigh(match &self.short {
            Some(x) => Samples::with_missing(x.view()).unwrap(),
            None => Samples::with_missing(self.x.view()).unwrap(),
        })
    }

    fn cuda(&self) -> CudaEvaluator<'_> {
        CudaEvaluator::new(self.samples(), 0, &CudaOptions::default()).unwrap()
    }

    fn reference(&self) -> ReferenceEvaluator {
        ReferenceEvaluator::new(self.weigh(Samples::with_missing(self.x.view()).unwrap()))
    }

    fn tolerance(&self) -> f64 {
        if self.short.is_some() { 2e-5 } else { 1e-10 }
    }
}

fn check(data: &Data, m: &Mixture, truth: &mut dyn Evaluator, what: &str) {
    let (n, tolerance) = (data.x.nrows(), data.tolerance());
    let size = data.x.iter().filter(|v| !v.is_nan()).fold(1.0, |max: f64, v| max.max(v.abs()));
    let mut e = data.cuda();
    let scores = truth.score_samples(m).unwrap();
    assert_all_close(&format!("{what}: scores"), e.score_samples(m).unwrap(), scores.to_vec(), tolerance, 10.0);
    let total: f64 = scores.iter().map(|v| v.abs()).sum();
    assert_close(
        &format!("{what}: total"),
        e.log_likelihood(m).unwrap(),
        truth.log_likelihood(m).unwrap(),
        tolerance,
        total,
    );
    let statistics = truth.statistics(m).unwrap();
    let got = e.statistics(m).unwrap();
    assert_statistics_close(&got, &statistics, tolerance, size * size * n as f64);
    let labels = truth.predict(m).unwrap();
    let same = e.predict(m).unwrap().iter().zip(&labels).filter(|(a, b)| a == b).count();
    // Rounding may decide between equally probable components.
    assert!(same * 1000 >= n * 999, "{what}: {same} labels of {n} agree");
    let r = truth.predict_proba(m).unwrap();
    assert_all_close(&format!("{what}: probabilities"), e.predict_proba(m).unwrap(), r, 10.0 * tolerance, 1.0);
    assert_eq!(e.n_samples(), n);
    assert_close("weight", e.total_weight(), statistics.weight(), 1e-12, 0.0);
}

fn every_operation_agrees_with_the_reference() {
    for (i, (n, d, k, holes)) in [
        (1, 1, 1, 0.0),
        (1, 4, 3, 0.5),
        (700, 1, 2, 0.3),
        (1000, 13, 1, 0.1),
        (3001, 13, 8, 0.05),
        (2000, 13, 8, 0.3),
        (2000, 16, 5, 0.6),
        (3000, 5, 20, 0.1),
        (2000, 7, 40, 0.1),
        (1500, 20, 6, 0.1),
        (600, 40, 3, 0.05),
    ]
    .into_iter()
    .enumerate()
    {
        for (covariance_type, float32) in TYPES.into_iter().flat_map(|t| [(t, true), (t, false)]) {
            let data = Data::new(with_holes(i as u64, normal(i as u64, n, d, 2.0), holes), float32, i % 2 == 1);
            let m = mixture(7 + i as u64, covariance_type, k, d, 2.0);
            let what = format!("{covariance_type} N={n} D={d} K={k} float32={float32}");
            check(&data, &m, &mut data.reference(), &what);
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
    for (covariance_type, float32) in TYPES.into_iter().flat_map(|t| [(t, true), (t, false)]) {
        let data = Data::new(x.clone(), float32, !float32);
        let m = mixture(5, covariance_type, k, d, 1.0);
        let wide = data.weigh(Samples::with_missing(data.x.view()).unwrap());
        let mut cpu = CpuEvaluator::new(wide).unwrap();
        check(&data, &m, &mut cpu, &format!("{covariance_type} float32={float32}"));
    }
}

/// As many patterns as rows, more than are on the device at once.
fn a_pattern_for_each_row() {
    let (n, d, k) = (12_000, 40, 4);
    let data = Data::new(with_holes(21, normal(21, n, d, 0.0), 0.4), true, false);
    let m = mixture(22, CovarianceType::Full, k, d, 0.0);
    let mut cpu = CpuEvaluator::new(Samples::with_missing(data.x.view()).unwrap()).unwrap();
    check(&data, &m, &mut cpu, "a pattern for each row");
}

fn the_same_bits_every_time() {
    for (d, float32) in [(13, true), (13, false), (20, true)] {
        let data = Data::new(with_holes(8, normal(8, 20_000, d, 0.0), 0.1), float32, true);
        let m = mixture(9, CovarianceType::Full, 6, d, 0.0);
        let once = || {
            let mut e = data.cuda();
            (e.statistics(&m).unwrap(), e.log_likelihood(&m).unwrap(), e.score_samples(&m).unwrap())
        };
        assert_eq!(once(), once());
        let mut e = data.cuda();
        assert_eq!(e.statistics(&m).unwrap(), e.statistics(&m).unwrap());
        let mut shared = e.share().unwrap();
        assert_eq!(shared.statistics(&m).unwrap(), once().0);
    }
}

fn rows_and_columns_without_values() {
    for (covariance_type, float32) in TYPES.into_iter().flat_map(|t| [(t, true), (t, false)]) {
        let mut x = with_holes(31, normal(31, 500, 4, 0.0), 0.2);
        for row in [0, 250, 499] {
            x.row_mut(row).fill(f64::NAN);
        }
        x.column_mut(2).fill(f64::NAN);
        // Far from the origin, where a float32 has a few digits of the unit left.
        x.column_mut(0).mapv_inplace(|v| (64.0 * v).round() / 64.0 + 1e5);
        let data = Data::new(x, float32, false);
        let m = mixture(32, covariance_type, 3, 4, 0.0);
        let mut means = m.means().to_owned();
        means.column_mut(0).mapv_inplace(|v| v + 1e5);
        let m = Mixture::new(m.weights().to_owned(), means, m.covariances().clone()).unwrap();
        let mut e = data.cuda();
        assert!([0, 250, 499].iter().all(|&row| e.score_samples(&m).unwrap()[row] == 0.0));
        let mut truth = data.reference();
        let (got, want) = (e.statistics(&m).unwrap(), truth.statistics(&m).unwrap());
        let tolerance = data.tolerance();
        assert_close("log-likelihood", got.log_likelihood(), want.log_likelihood(), tolerance, 500.0);
        assert_all_close("counts", got.counts().to_vec(), want.counts().to_vec(), tolerance, 500.0);
        assert_all_close("means", got.means().to_owned(), want.means().to_owned(), tolerance, 10.0);
        assert_all_close("scatter", got.scatter().iter(), want.scatter().iter(), tolerance, 5000.0);
    }
}

/// EM from the same start, step by step: errors of a step pass to the next.
fn a_fit_is_the_cpus() {
    for covariance_type in TYPES {
        let data = Data::new(with_holes(41, crate::common::blobs(41, 3000, 4), 0.1), false, false);
        let fit = |e: &mut dyn Evaluator| {
            let params = GaussianMixtureParams::new(3).covariance_type(covariance_type).max_iter(20);
            params.check().unwrap().fit_with(e, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        let (mut cuda, mut cpu) = (data.cuda(), CpuEvaluator::new(data.samples()).unwrap());
        let (a, b) = (fit(&mut cuda), fit(&mut cpu));
        assert_all_close("means", a.mixture.means().to_owned(), b.mixture.means().to_owned(), 1e-6, 1.0);
        assert_all_close("covariances", a.mixture.covariances().iter(), b.mixture.covariances().iter(), 1e-6, 1.0);
    }
}

fn mixtures_of_other_k_take_turns() {
    let data = Data::new(with_holes(51, normal(51, 4000, 6, 0.0), 0.2), true, false);
    let (mut e, mut truth) = (data.cuda(), data.reference());
    for k in [3, 12, 2, 40, 3] {
        let m = mixture(k as u64, CovarianceType::Tied, k, 6, 0.0);
        let (got, want) = (e.statistics(&m).unwrap(), truth.statistics(&m).unwrap());
        assert_statistics_close(&got, &want, data.tolerance(), 4000.0 * 25.0);
    }
}

/// One sample has its own pattern; all others are complete.
fn one_missing_value_makes_two_patterns() {
    let mut x = normal(61, 5000, 13, 0.0);
    x.row_mut(0)[3] = f64::NAN;
    let data = Data::new(x, true, false);
    check(&data, &mixture(62, CovarianceType::Full, 8, 13, 0.0), &mut data.reference(), "one value missing");
}

fn what_cannot_be_evaluated_is_an_error() {
    let data = Data::new(with_holes(71, normal(71, 1000, 3, 0.0), 0.2), true, false);
    let m = mixture(72, CovarianceType::Full, 2, 4, 0.0);
    assert!(data.cuda().log_likelihood(&m).is_err(), "another number of features");
    let limit = CudaOptions::default().with_memory_limit(1000);
    let error = CudaEvaluator::new(data.samples(), 0, &limit)
        .and_then(|mut e| e.log_likelihood(&mixture(72, CovarianceType::Full, 2, 3, 0.0)))
        .unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}
