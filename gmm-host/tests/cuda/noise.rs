//! Samples that each have their own noise, on a real device, against the CPU in float64.
//!
//! Tolerance: 10⁻¹⁰ of the sums' size, for factorisations and sums in another order. A sample left out or counted twice
//! is 10⁻⁴ or more.
use crate::common::estep::assert_statistics_agree;
use crate::common::{assert_all_close, assert_close, blobs, mixture, normal, spd};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, CpuEvaluator, Device, Evaluator, GaussianMixtureParams, LoadOptions, Noise, Samples, load,
};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::ControlFlow;

pub fn tests() -> Vec<Test> {
    vec![
        ("every_operation_agrees_with_the_cpu", every_operation_agrees_with_the_cpu),
        ("many_samples_and_pieces", many_samples_and_pieces),
        ("a_fit_is_the_cpus", a_fit_is_the_cpus),
        ("what_the_kernels_lack_stays_on_the_cpu", what_the_kernels_lack_stays_on_the_cpu),
    ]
}

/// Returns variances, or covariances.
fn noise<'a>(seed: u64, n: usize, d: usize, is_diagonal: bool) -> Noise<'a> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    if is_diagonal {
        let v = Array2::from_shape_simple_fn((n, d), || rng.random_range(0.0..2.0));
        return Noise::variances(v.into_shared()).unwrap();
    }
    let mut v = Array3::zeros((n, d, d));
    v.outer_iter_mut().for_each(|mut m| m.assign(&(spd(&mut rng, d) * rng.random_range(0.1..2.0))));
    Noise::covariances(v.into_shared()).unwrap()
}

fn on_gpu<'a>(samples: &Samples<'a>) -> Box<dyn Evaluator + 'a> {
    load(Device::Cuda(0), samples.clone(), &LoadOptions::new()).unwrap()
}

/// Compares all operations, and the bits of several evaluations.
fn check(n: usize, d: usize, k: usize, covariance_type: CovarianceType, is_diagonal: bool) {
    let what = format!("{covariance_type} N={n} D={d} K={k}");
    let seed = (n + 1000 * d) as u64;
    let x = normal(seed, n, d, 1.0);
    let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
    let samples = Samples::from_f64(x.view()).unwrap().with_noise(noise(seed, n, d, is_diagonal)).unwrap();
    let samples = if is_diagonal { samples } else { samples.with_weights(weights.view()).unwrap() };
    let m = mixture(seed + 1, covariance_type, k, d, 1.0);
    let (mut gpu, mut cpu) = (on_gpu(&samples), CpuEvaluator::new(samples.clone()).unwrap());
    let scores = cpu.score_samples(&m).unwrap();
    assert_all_close(&what, gpu.score_samples(&m).unwrap(), scores.to_vec(), 1e-10, d as f64);
    let size: f64 = scores.iter().map(|v| v.abs()).sum();
    assert_close(&what, gpu.log_likelihood(&m).unwrap(), cpu.log_likelihood(&m).unwrap(), 1e-10, size);
    let r = cpu.predict_proba(&m).unwrap();
    assert_all_close(&what, gpu.predict_proba(&m).unwrap(), r, 1e-9, 1.0);
    // Rounding may decide between equally probable components.
    let labels = cpu.predict(&m).unwrap();
    let same = gpu.predict(&m).unwrap().iter().zip(&labels).filter(|(a, b)| a == b).count();
    assert!(same * 1000 >= n * 999, "{what}: {same} labels of {n} agree");
    let statistics = gpu.statistics(&m).unwrap();
    assert_statistics_agree(&what, &statistics, &cpu.statistics(&m).unwrap(), 1e-10);
    assert_eq!(gpu.statistics(&m).unwrap(), statistics, "{what}: the same bits every time");
    assert_eq!(gpu.share().unwrap().statistics(&m).unwrap(), statistics, "{what}: a shared evaluator");
    assert_eq!(on_gpu(&samples).statistics(&m).unwrap(), statistics, "{what}: another evaluator");
}

fn every_operation_agrees_with_the_cpu() {
    let narrow = [(1, 1, 1), (1000, 1, 3), (3001, 2, 1), (3001, 3, 9), (2000, 4, 5), (2000, 5, 40), (3000, 6, 17)];
    let wide = [(1000, 7, 4), (1500, 8, 20), (700, 9, 3), (500, 16, 4), (500, 17, 3), (300, 33, 5), (300, 64, 2)];
    for (i, (n, d, k)) in narrow.into_iter().chain(wide).enumerate() {
        for covariance_type in [CovarianceType::Full, CovarianceType::Diag] {
            check(n, d, k, covariance_type, (i % 2 == 0) == (covariance_type == CovarianceType::Full));
        }
    }
}

fn many_samples_and_pieces() {
    check(200_003, 6, 100, CovarianceType::Full, false);
    check(20_001, 44, 20, CovarianceType::Tied, true);
    check(9_001, 30, 7, CovarianceType::Full, false);
}

/// EM from the same start, step by step: errors of a step pass to the next.
fn a_fit_is_the_cpus() {
    let x = blobs(41, 3000, 4);
    let samples = Samples::from_f64(x.view()).unwrap().with_noise(noise(42, 3000, 4, false)).unwrap();
    let fit = |e: &mut dyn Evaluator| {
        let params = GaussianMixtureParams::new(3).max_iter(20);
        params.check().unwrap().fit_with(e, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let (a, b) = (fit(on_gpu(&samples).as_mut()), fit(&mut CpuEvaluator::new(samples.clone()).unwrap()));
    assert_all_close("means", a.mixture.means().to_owned(), b.mixture.means().to_owned(), 1e-6, 1.0);
    assert_all_close("covariances", a.mixture.covariances().iter(), b.mixture.covariances().iter(), 1e-6, 1.0);
}

fn what_the_kernels_lack_stays_on_the_cpu() {
    let x = normal(1, 300, 2, 0.0);
    let r = Array3::from_shape_fn((300, 2, 3), |(i, a, b)| f64::from((i + a + b) % 3 == 0) + 0.1 * a as f64);
    let projected = noise(2, 300, 2, true).projected(r.view()).unwrap();
    let samples = Samples::from_f64(x.view()).unwrap().with_noise(projected).unwrap();
    assert!(load(Device::Cuda(0), samples.clone(), &LoadOptions::new()).is_err());
    let m = mixture(3, CovarianceType::Full, 2, 3, 0.0);
    let mut auto = load(Device::Auto, samples, &LoadOptions::new()).unwrap();
    assert!(auto.statistics(&m).unwrap().log_likelihood().is_finite());
}
