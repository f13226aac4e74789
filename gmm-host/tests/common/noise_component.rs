//! Evaluators under mixtures with noise, against the formulas.
use super::*;
use gmm_host::{CovarianceModel, UniformDensity};

/// Fails unless scores, responsibilities, labels and statistics of these models are those of K Gaussians beside a
/// constant density.
pub fn assert_noise_agrees(backend: &Backend, models: &[CovarianceModel], n: usize, k: usize, d: usize) {
    let x = backend.seen(&blobs(7, n, d));
    let density = 0.01f64.powi(d as i32);
    let noise = UniformDensity { volume: 1.0 / density, lower: vec![-9.0; d], upper: vec![9.0; d] };
    for &model in models {
        let what = format!("{} {model} {n}x{d} k={k}", backend.name);
        let gaussians = mixture(5, model.form(), k, d, 2.0).with_covariance_model(model).unwrap();
        let weights = gaussians.weights().iter().map(|w| 0.75 * w).chain([0.25]).collect();
        let noisy = gaussians.with_noise(weights, noise.clone()).unwrap();
        let scores = reference(x.view()).score_samples(&gaussians).unwrap();
        let scores = scores.mapv(|v| {
            let (a, b) = (v + 0.75f64.ln(), (0.25 * density).ln());
            a.max(b) + (-(a - b).abs()).exp().ln_1p()
        });
        let of_noise = scores.mapv(|v| ((0.25 * density).ln() - v).exp());
        let mut evaluator = backend.evaluator(x.view(), None);
        // Of float32, the rounding of exponents of some hundreds.
        let tolerance = backend.tolerance(1e-10, 3e-4);
        for (row, v) in evaluator.score_samples(&noisy).unwrap().iter().enumerate() {
            assert_close(&format!("{what}, score {row}"), *v, scores[row], tolerance, 1.0);
        }
        let r = evaluator.predict_proba(&noisy).unwrap();
        for (row, label) in evaluator.predict(&noisy).unwrap().into_iter().enumerate() {
            assert_close(&format!("{what}, noise of {row}"), r[[row, k]], of_noise[row], tolerance, 1.0);
            let margin = (of_noise[row] - 0.5).abs() > 1e-2 || k > 1;
            assert!(!margin || of_noise[row] < 0.51 || label == k, "{what}: {label} of row {row}");
        }
        let got = evaluator.statistics(&noisy).unwrap();
        let truth = reference(x.view()).statistics(&noisy).unwrap();
        assert_close(&format!("{what}, total"), got.log_likelihood(), scores.sum(), tolerance, n as f64);
        assert_close(&format!("{what}, count"), got.counts()[k], of_noise.sum(), tolerance, n as f64);
        for c in 0..k {
            let counts = (got.counts()[c], truth.counts()[c]);
            assert_close(&format!("{what}, count {c}"), counts.0, counts.1, tolerance, n as f64);
        }
        let (got, truth) =
            (got.update(&noisy, 1e-3, &Default::default()), truth.update(&noisy, 1e-3, &Default::default()));
        if let (Ok(got), Ok(truth)) = (got, truth) {
            assert_eq!(got.mixture.noise(), Some(&noise), "{what}");
            for (a, b) in got.mixture.weights().iter().zip(truth.mixture.weights()) {
                assert_close(&format!("{what}, weight"), *a, *b, tolerance, 1.0);
            }
        }
    }
}
