//! The CPU backend's E-step, for every covariance type, element type and instruction set, against the reference.
use crate::common::estep::{self, Subject, both, check};
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, ReferenceEvaluator, Samples};
use ndarray::{Array1, Array2, Array3, array};

/// Returns the CPU with every instruction set. Tolerances are for another order of summation.
fn cpu() -> Vec<Subject> {
    let subject = |kernel: &'static str| Subject {
        name: kernel.into(),
        load: Box::new(|samples| Box::new(CpuEvaluator::with_kernel(samples, kernel).unwrap())),
        float64: 1e-11,
        totals: (1e-12, 1e-12),
    };
    CpuEvaluator::kernels().into_iter().map(subject).collect()
}

macro_rules! on_the_cpu {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                estep::$name(&cpu());
            }
        )*
    };
}

on_the_cpu! {
    every_type_and_size
    narrow_clusters_far_from_each_other
    overlapping_clusters_far_from_the_centre
    far_samples_and_dead_components
    weights_of_any_size
}

#[test]
fn the_same_bits_every_time_and_for_any_number_of_threads() {
    // More chunks than segments.
    let n = if cfg!(debug_assertions) { 40_000 } else { 300_000 };
    let (double, single) = both(&blobs(48, n, 2));
    let w = Array1::from_shape_fn(n, |i| (i % 3) as f64);
    let holes = with_holes(1, blobs(2, 3000, 2), 0.2);
    for t in CovarianceType::ALL {
        let m = mixture(49, t, 3, 2, 3.0);
        for samples in [
            Samples::from_f32(single.view()).unwrap(),
            Samples::from_f64(double.view()).unwrap(),
            Samples::from_f32(single.view()).unwrap().with_weights(w.view()).unwrap(),
            Samples::with_missing(holes.view()).unwrap(),
        ] {
            let on = |threads| {
                let mut e = CpuEvaluator::with_threads(samples.clone(), threads).unwrap();
                let statistics = e.statistics(&m).unwrap();
                assert_eq!(e.statistics(&m).unwrap(), statistics);
                let probabilities = (e.predict_proba(&m).unwrap(), e.score_samples(&m).unwrap());
                (statistics, e.log_likelihood(&m).unwrap().to_bits(), probabilities)
            };
            let one = on(1);
            assert!([2, 3, 5].iter().all(|&threads| on(threads) == one), "{t}");
        }
    }
}

#[test]
fn sums_over_many_samples_stay_exact() {
    // A sum that stays in float32 too long is off by far more than 10⁻⁶ of a standard deviation.
    let n = if cfg!(debug_assertions) { 20_000 } else { 400_000 };
    let x = blobs(50, n, 5);
    let means = Array2::from_shape_fn((3, 5), |(c, _)| 5.0 * c as f64);
    for t in CovarianceType::ALL {
        // Near a fit the responsibilities are close to 0 or 1.
        let covariances = mixture(51, t, 3, 5, 5.0).covariances().clone();
        let m = Mixture::new(Array1::from_elem(3, 1.0 / 3.0), means.clone(), covariances);
        check(&cpu(), "many samples", &x, None, &m.unwrap(), 2e-6);
    }
}

#[test]
fn components_near_to_the_centre_of_the_data_and_far_from_it() {
    // Up to eight deviations the CPU takes moments around the data's centre, beyond around the means. Sums of 4096
    // samples in float32 lose up to 10⁻⁷ of the sum of squares, here at most 50 times the scatter.
    for (deviations, n) in [(0.0, 63), (3.0, 4096), (7.0, 4096), (12.0, 4096), (7.0, 1)] {
        for (k, d) in [(1, 1), (2, 3), (3, 5), (4, 4), (7, 6), (9, 13)] {
            let x = Array2::from_shape_fn((n, d), |(i, j)| {
                let noise = ((i * 7919 + j * 104_729) as f64 * 0.618).sin() * 1.4;
                noise + if i % 3 == 0 { deviations * (1.0 - (i / 3 % k) as f64 / k as f64) } else { 0.0 }
            });
            let means =
                Array2::from_shape_fn((k, d), |(c, _)| if c == 0 { 0.0 } else { deviations * c as f64 / k as f64 });
            for t in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
                let covariances = mixture(54, t, k, d, 1.0).covariances().clone();
                let m = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means.clone(), covariances).unwrap();
                check(&cpu(), &format!("{deviations} deviations, N={n} K={k} D={d}"), &x, None, &m, 1e-5);
            }
        }
    }
}

#[test]
fn the_narrow_direction_of_features_that_are_nearly_the_same() {
    // Their difference has 10⁻² of their variance. float32 sums of up to 4096 samples have errors of 10⁻⁷ of their
    // terms: the variance is right to 10⁻⁵ around the means; around the data's centre, five deviations away, it was
    // 2·10⁻⁴ off.
    let n = 8192;
    let noise = |i: usize, factor: f64| (i as f64 * factor).sin() * std::f64::consts::SQRT_2;
    let x = Array2::from_shape_fn((n, 2), |(i, j)| {
        let near = if i % 3 == 0 { 10.0 } else { 0.0 };
        near + noise(i, 0.618) + if j == 1 { 0.1 * noise(i, 1.234) } else { 0.0 }
    });
    let covariance = array![[1.0, 1.0], [1.0, 1.01]];
    let covariances = Array3::from_shape_fn((2, 2, 2), |(_, i, j)| covariance[[i, j]]);
    let means = array![[0.0, 0.0], [10.0, 10.0]];
    let m = Mixture::new(array![0.5, 0.5], means, Covariances::Full(covariances)).unwrap();
    let (double, single) = both(&x);
    let variance = |statistics: gmm_host::Statistics, c: usize| {
        let Covariances::Full(v) = statistics.scatter() else { unreachable!() };
        (v[[c, 0, 0]] - v[[c, 0, 1]] - v[[c, 1, 0]] + v[[c, 1, 1]]) / statistics.counts()[c]
    };
    for kernel in CpuEvaluator::kernels() {
        for c in 0..2 {
            let expected = variance(reference(double.view()).statistics(&m).unwrap(), c);
            let samples = Samples::from_f32(single.view()).unwrap();
            let got = variance(CpuEvaluator::with_kernel(samples, kernel).unwrap().statistics(&m).unwrap(), c);
            assert!((got / expected - 1.0).abs() <= 3e-5, "{kernel}, component {c}: {got:e} for {expected:e}");
        }
    }
}

#[test]
fn a_narrow_component_of_wide_data() {
    // One value is so far away that, in units of the whole range, the squares of the others underflow in float32.
    let mut x = Array2::from_shape_fn((400, 2), |(i, j)| ((i * (7 + j)) as f32 * 0.37).sin());
    x[[17, 0]] = 3e25;
    x[[18, 1]] = -2e25;
    let variances = |c: usize| if c == 0 { 0.5 } else { 1e49 };
    for t in CovarianceType::ALL.into_iter().filter(|t| *t != CovarianceType::Tied) {
        let covariances = match t {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((2, 2, 2), |(c, i, j)| {
                if i == j { variances(c) } else { 0.3 * variances(c) }
            })),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((2, 2), |(c, _)| variances(c))),
            _ => Covariances::Spherical(Array1::from_shape_fn(2, variances)),
        };
        let m = Mixture::new(Array1::from(vec![0.9, 0.1]), Array2::zeros((2, 2)), covariances).unwrap();
        let samples = Samples::from_f32(x.view()).unwrap();
        let expected = ReferenceEvaluator::new(samples.clone()).statistics(&m).unwrap();
        let got = CpuEvaluator::new(samples).unwrap().statistics(&m).unwrap();
        for (got, expected) in got.scatter().iter().zip(expected.scatter().iter()) {
            // float64 in another order of summation.
            assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{t}: {got:e} for {expected:e}");
        }
    }
}
