//! With one component and the conjugate prior, the posterior is normal-inverse-gamma, whose moments have a closed form.
use crate::common::{estimate, run_from_prior, scalar};
use gmm_host::{CovarianceType, ReferenceEvaluator, Samples};
use gmm_mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings};
use ndarray::Array2;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const N: usize = 25;
const PRIOR: &str = r#"{"means": {"scaled_normal": {"location": [1.0, -2.0], "precision": 0.5}},
    "scales": {"inverse_gamma": {"shape": 4.0, "scale": [3.0, 0.5]}}}"#;

fn check(settings: Settings) -> Chains {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let x = Array2::from_shape_fn((N, 2), |(_, j)| {
        let z: f64 = StandardNormal.sample(&mut rng);
        [2.0, 10.0][j] + [0.7, 3.0][j] * z
    });
    let samples = Samples::from_f64(x.view()).unwrap();
    let prior = Prior::from_json(PRIOR).unwrap();
    let model = PosteriorModel::new(1, CovarianceType::Diag, &prior, None, &DataSummary::new(&samples)).unwrap();
    let mut evaluator = ReferenceEvaluator::new(samples);
    let mut posterior = Posterior::new(&model, &mut evaluator).unwrap();
    let run = run_from_prior(settings, &mut posterior);

    for (j, (m0, b0)) in [(1.0, 3.0), (-2.0, 0.5)].into_iter().enumerate() {
        let n = N as f64;
        let centre = x.column(j).sum() / n;
        let scatter: f64 = x.column(j).iter().map(|v| (v - centre).powi(2)).sum();
        let kappa = 0.5 + n;
        let m = (0.5 * m0 + n * centre) / kappa;
        let a = 4.0 + n / 2.0;
        let b = b0 + 0.5 * scatter + 0.5 * 0.5 * n / kappa * (centre - m0).powi(2);
        let variance_of_mean = b / ((a - 1.0) * kappa);
        let (mean_of_variance, variance_of_variance) = (b / (a - 1.0), (b / (a - 1.0)).powi(2) / (a - 2.0));

        let means = scalar(&run, "means", j);
        let variances = scalar(&run, "covariances", j);
        let map = |chains: &[Vec<f64>], f: &dyn Fn(f64) -> f64| -> Vec<Vec<f64>> {
            chains.iter().map(|c| c.iter().map(|&x| f(x)).collect()).collect()
        };
        for (what, chains, expected) in [
            ("mean", means.clone(), m),
            ("its variance", map(&means, &|x| (x - m).powi(2)), variance_of_mean),
            ("variance", variances.clone(), mean_of_variance),
            ("its variance", map(&variances, &|x| (x - mean_of_variance).powi(2)), variance_of_variance),
        ] {
            let (got, error) = estimate(&chains);
            let sampler = run.settings().sampler;
            assert!(
                (got - expected).abs() < 3.0 * error,
                "{sampler:?}, column {j}, {what}: {got} ± {error}, {expected}"
            );
            // The standard error is small enough for a meaningful comparison.
            let scale = if what == "mean" { variance_of_mean.sqrt() } else { expected };
            assert!(error < 0.1 * scale, "{sampler:?}, column {j}, {what}: error {error} of {scale}");
        }
    }
    assert!(run.summary().max_r_hat() < 1.02, "{}", run.summary());
    run
}

#[test]
fn metropolis_meets_the_closed_form() {
    check(Settings::new(Sampler::METROPOLIS).chains(4).warmup(2000).draws(10_000).thin(5).seed(1));
    let sampler = Sampler::METROPOLIS_BY_COMPONENT;
    check(Settings::new(sampler).chains(4).warmup(2000).draws(10_000).thin(5).seed(2));
}

#[test]
fn the_ensemble_meets_the_closed_form() {
    check(Settings::new(Sampler::ENSEMBLE).chains(20).warmup(1000).draws(3000).thin(5).seed(3));
}

#[test]
fn nuts_meets_the_closed_form() {
    let run = check(Settings::new(Sampler::NUTS).chains(4).warmup(500).draws(5000).thin(1).seed(4));
    // Warm-up aims for 0.8.
    assert!((0.65..0.95).contains(&run.acceptance()), "{}", run.acceptance());
    assert_eq!(run.divergences(), 0);
}
