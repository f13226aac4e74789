//! Samples that each have their own noise, on a real device, against the CPU in float64.
//!
//! Tolerance: 10⁻¹⁰ of the sums' size, for factorisations and sums in another order. A sample left out or counted twice
//! is 10⁻⁴ or more.
use crate::common::{Allowed, assert_evaluators_agree, assert_mixtures_close, blobs, mixture, normal, sizes, spd};
use crate::gpu_harness::Test;
use gmm_host::{
    CovarianceType, CpuEvaluator, Device, Evaluator, GaussianMixtureParams, LoadOptions, Noise, Samples, load,
};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

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
    assert_evaluators_agree(&what, gpu.as_mut(), &mut cpu, &m, Allowed { sample: 1e-9, ..Allowed::all(1e-10) });
    let another = on_gpu(&samples).statistics(&m).unwrap();
    assert_eq!(gpu.statistics(&m).unwrap(), another, "{what}: another evaluator");
}

fn every_operation_agrees_with_the_cpu() {
    let narrow = sizes("1x1x1 1000x1x3 3001x2x1 3001x3x9 2000x4x5 2000x5x40 3000x6x17");
    let wide = sizes("1000x7x4 1500x8x20 700x9x3 500x16x4 500x17x3 300x33x5 300x64x2");
    for (i, (n, d, k)) in narrow.chain(wide).enumerate() {
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
    let params = GaussianMixtureParams::new(3).max_iter(20);
    let a = params.fit(on_gpu(&samples).as_mut()).unwrap();
    let b = params.fit(&mut CpuEvaluator::new(samples).unwrap()).unwrap();
    assert_mixtures_close("fits", &a.mixture, &b.mixture, 1e-6, 1.0);
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
