//! Samples that each have their own noise: `noisy_density`, `posterior`, `noisy_sums`.
//!
//! Tolerances: 10⁻¹⁰ of the sizes of scores and sums, for factorisations in another order. A sample left out or counted
//! twice is 10⁻³ or more away.
use super::{compare, flat, of_each_type, sizes};
use crate::evaluator::CudaEvaluator;
use crate::options::CudaOptions;
use gmm_core::backends::cpu::CpuEvaluator;
use gmm_core::backends::noisy_reference::NoisyReference;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::noise::Noise;
use gmm_core::data::samples::Samples;
use gmm_core::error::Error;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, arr1};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const TOLERANCE: f64 = 1e-10;

fn production<'a>(samples: &Samples<'a>) -> CudaEvaluator<'a> {
    CudaEvaluator::new(samples.clone(), 0, &CudaOptions::default()).unwrap()
}

fn normal(rng: &mut ChaCha8Rng, n: usize, d: usize) -> Array2<f64> {
    Array2::from_shape_simple_fn((n, d), || rng.sample(StandardNormal))
}

/// Returns covariances (N, D, D), or variances (N, D).
fn noise<'a>(rng: &mut ChaCha8Rng, n: usize, d: usize, is_diagonal: bool) -> Noise<'a> {
    let sizes = Array1::from_shape_simple_fn(n, || rng.random_range(0.01..2.0));
    if is_diagonal {
        let v = Array2::from_shape_fn((n, d), |(i, _)| sizes[i] * rng.random_range(0.0..1.0));
        return Noise::variances(v.into_shared()).unwrap();
    }
    let mut v = Array3::zeros((n, d, d));
    for (mut v, size) in v.outer_iter_mut().zip(&sizes) {
        let b = normal(rng, d, d);
        v.assign(&(b.dot(&b.t()) * *size));
    }
    Noise::covariances(v.into_shared()).unwrap()
}

fn check(samples: &Samples<'_>, mixture: &Mixture) {
    let (mut engine, mut reference) = (production(samples), NoisyReference::new(samples.clone()));
    compare("noise", &mut engine, &mut reference, mixture, (TOLERANCE, TOLERANCE), true);
    let r = reference.predict_proba(mixture).unwrap();
    for (got, truth) in engine.predict_proba(mixture).unwrap().iter().zip(&r) {
        assert!((got - truth).abs() <= TOLERANCE * samples.n_features() as f64, "{got} for {truth}");
    }
}

/// Pairs of a thread (D ≤ 8) and of a warp, one and several pieces.
#[test]
fn every_shape_agrees_with_the_reference() {
    let narrow = sizes("1x1x1 70x1x3 45x2x1 2100x3x2 33x4x11 130x5x9 40x6x8 5x7x17");
    let wide = sizes("40x8x3 1x9x1 9x9x2 6x16x5 5x17x3 3x32x2 1x33x2 3x44x2 2x64x1");
    for (seed, (n, d, k)) in narrow.chain(wide).enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        let x = normal(&mut rng, n, d);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for (form, mixture) in of_each_type(&mut rng, k, d).into_iter().enumerate() {
            let samples = Samples::from_f64(x.view()).unwrap();
            let samples = samples.with_noise(noise(&mut rng, n, d, (form + seed) % 2 == 0)).unwrap();
            check(&if form < 2 { samples } else { samples.with_weights(weights.view()).unwrap() }, &mixture);
        }
    }
}

/// Far from the origin, where float32 has a few digits of the unit left; a component without weight, and without noise.
#[test]
fn far_samples_and_dead_components() {
    for d in [3, 10] {
        let mut rng = ChaCha8Rng::seed_from_u64(d as u64);
        let x = normal(&mut rng, 40, d).mapv(|v| ((4.0 * v).round() / 4.0 + 2e6) as f32);
        let samples = Samples::from_f32(x.view()).unwrap().with_noise(noise(&mut rng, 40, d, false)).unwrap();
        for mixture in of_each_type(&mut rng, 3, d) {
            let mut means = mixture.means().mapv(|v| v + 2e6);
            means.row_mut(1).fill(-1e9);
            let mixture = Mixture::new(arr1(&[0.6, 0.0, 0.4]), means, mixture.covariances().clone()).unwrap();
            let (mut engine, mut reference) = (production(&samples), NoisyReference::new(samples.clone()));
            let (got, truth) = (engine.statistics(&mixture).unwrap(), reference.statistics(&mixture).unwrap());
            let near =
                |got: f64, truth: f64| assert!((got - truth).abs() <= 1e-9 * truth.abs().max(40.0), "{got} {truth}");
            near(got.log_likelihood(), truth.log_likelihood());
            got.counts().iter().zip(truth.counts()).for_each(|(got, truth)| near(*got, *truth));
            flat(got.scatter()).into_iter().zip(flat(truth.scatter())).for_each(|(got, truth)| near(got, truth));
            let measured = mixture.clone().of_measurements();
            let plain = samples.clone().without_noise();
            let (mut engine, mut reference) = (production(&samples), NoisyReference::new(plain));
            near(engine.log_likelihood(&measured).unwrap(), reference.log_likelihood(&mixture).unwrap());
        }
    }
}

/// Rows as the caller counts them: one that no component reaches, one with a singular T, and one of weight zero.
#[test]
fn what_has_no_density_is_named() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let weights = arr1(&[1.0, 2.0, 1.0, 0.0, 1.0, 0.5]);
    for d in [2, 12] {
        let mut x = normal(&mut rng, 6, d);
        x[[3, 1]] = 1e160;
        let samples = Samples::from_f64(x.view()).unwrap().with_noise(noise(&mut rng, 6, d, true)).unwrap();
        let mixture = of_each_type(&mut rng, 3, d).remove(0);
        let (mut engine, mut reference) = (production(&samples), CpuEvaluator::new(samples.clone()).unwrap());
        assert_eq!(engine.score_samples(&mixture).unwrap()[3], f64::NEG_INFINITY);
        assert_eq!(engine.log_likelihood(&mixture).unwrap(), f64::NEG_INFINITY);
        assert_eq!(engine.predict(&mixture).unwrap(), reference.predict(&mixture).unwrap());
        let nearest = reference.predict_proba(&mixture).unwrap();
        assert_eq!(engine.predict_proba(&mixture).unwrap().row(3), nearest.row(3));
        let error = engine.statistics(&mixture).unwrap_err();
        assert!(matches!(error, Error::UnreachableSample { row: 3 }), "{error}");
        let mut weighted = production(&samples.clone().with_weights(weights.view()).unwrap());
        assert!(weighted.statistics(&mixture).unwrap().log_likelihood().is_finite());

        // In row 4 the noise of all columns is the same, and hides the components.
        let s = Array3::from_shape_fn((6, d, d), |(row, i, j)| f64::from(row == 4 || i == j));
        let noise = Noise::covariances(s.into_shared()).unwrap();
        let zeros = Array2::<f64>::zeros((6, d));
        let samples = Samples::from_f64(zeros.view()).unwrap().with_noise(noise).unwrap();
        let narrow = Covariances::Spherical(arr1(&[1e-20, 1.0]));
        let mixture = Mixture::new(arr1(&[0.5, 0.5]), Array2::zeros((2, d)), narrow).unwrap();
        for evaluator in [&mut production(&samples) as &mut dyn Evaluator, &mut CpuEvaluator::new(samples).unwrap()] {
            for error in [evaluator.log_likelihood(&mixture).unwrap_err(), evaluator.predict(&mixture).unwrap_err()] {
                assert!(matches!(error, Error::NoSpread { row: 4 }), "{error}");
            }
        }
    }
    let x = Array2::<f64>::zeros((3, 65));
    let samples = Samples::from_f64(x.view()).unwrap().with_noise(noise(&mut rng, 3, 65, true)).unwrap();
    let error = CudaEvaluator::new(samples, 0, &CudaOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}
