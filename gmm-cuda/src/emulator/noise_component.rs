//! Mixtures with noise, by each family.
use super::{float32, normal, of_each_type, samples, used};
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::model::mixture::Mixture;
use gmm_core::model::uniform::UniformDensity;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Returns each type of mixtures of K components over D features, the last of which is noise.
fn with_noise(rng: &mut ChaCha8Rng, k: usize, d: usize) -> impl Iterator<Item = Mixture> {
    // About the density two standard deviations away, so that noise shares samples with the Gaussians.
    let noise = UniformDensity { volume: 8f64.powi(d as i32), lower: vec![-4.0; d], upper: vec![4.0; d] };
    of_each_type(rng, k - 1, d).into_iter().map(move |gaussians| {
        let weights = gaussians.weights().iter().map(|w| 0.6 * w).chain([0.4]).collect();
        gaussians.with_noise(weights, noise.clone()).unwrap()
    })
}

/// Float32's exponents of some tens are off by a few units of 2⁻²⁴ of themselves, and those of float16 pairs by some
/// units of 2⁻²⁰.
const ROUNDING: f64 = 1e-4;

#[test]
fn totals_and_scores_know_noise() {
    for (kernel, k, d) in [("small_k", 3, 2), ("tiled", 5, 20), ("tiled", 9, 7), ("pair", 4, 5), ("general", 3, 6)] {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let x = normal(&mut rng, 90, d);
        for mixture in with_noise(&mut rng, k, d).filter(|mixture| kernel != "pair" || mixture.factor().is_none()) {
            let samples = samples(&x, None);
            let mut evaluator = float32(&samples, kernel);
            let mut reference = ReferenceEvaluator::new(samples.clone());
            let (got, truth) =
                (evaluator.log_likelihood(&mixture).unwrap(), reference.log_likelihood(&mixture).unwrap());
            used(&evaluator, kernel);
            let what = format!("{kernel} {}: {got} for {truth}", mixture.covariance_type());
            assert!((got - truth).abs() < ROUNDING * truth.abs(), "{what}");
            if kernel != "small_k" {
                let truth = reference.score_samples(&mixture).unwrap();
                for (a, b) in evaluator.score_samples(&mixture).unwrap().iter().zip(&truth) {
                    assert!((a - b).abs() < ROUNDING * b.abs().max(1.0), "{what}: {a} for {b}");
                }
            }
        }
    }
}

#[test]
fn e_steps_know_noise() {
    let cases = [
        ("fused", 4, 3),
        ("fused_mma", 9, 6),
        ("expanded_mma", 9, 6),
        ("products_mma", 5, 12),
        ("products_wgmma", 5, 17),
        ("whitened_mma", 4, 20),
        ("whitened_wgmma", 4, 33),
        ("weighted_sums", 5, 9),
        ("general", 3, 6),
    ];
    for (kernel, k, d) in cases {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let x = normal(&mut rng, 130, d);
        let takes = |mixture: &Mixture| match kernel {
            "products_wgmma" => mixture.factor().is_none(),
            "expanded_mma" | "whitened_mma" | "whitened_wgmma" => mixture.factor().is_some(),
            "fused_mma" => mixture.factor().is_none(),
            _ => true,
        };
        for mixture in with_noise(&mut rng, k, d).filter(takes) {
            let samples = samples(&x, None);
            let mut evaluator = float32(&samples, kernel);
            let got = evaluator.statistics(&mixture).unwrap();
            used(&evaluator, kernel);
            let truth = ReferenceEvaluator::new(samples.clone()).statistics(&mixture).unwrap();
            let what = format!("{kernel} {}", mixture.covariance_type());
            let (a, b) = (got.log_likelihood(), truth.log_likelihood());
            assert!((a - b).abs() < ROUNDING * b.abs(), "{what}: {a} for {b}");
            for (a, b) in got.counts().iter().zip(truth.counts()) {
                assert!((a - b).abs() < ROUNDING * 130.0, "{what}: count {a} for {b}");
            }
            for c in 0..k - 1 {
                let near = |(a, b): (&f64, &f64)| (a - b).abs() < ROUNDING * 130.0 / truth.counts()[c].max(0.1);
                assert!(got.means().row(c).iter().zip(truth.means().row(c)).all(near), "{what}: mean {c}");
            }
            let weights =
                |s: gmm_core::statistics::Statistics| s.update(&mixture, 1e-3, &Default::default()).unwrap().mixture;
            assert_eq!(weights(got).noise(), mixture.noise(), "{what}");
        }
    }
}
