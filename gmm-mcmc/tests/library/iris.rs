//! All samplers draw from the same posterior: three components over the iris data.
use crate::common::{estimate, run, scalar};
use gmm_host::{CovarianceType, Covariances, CpuEvaluator, Evaluator, Mixture, ReferenceEvaluator, Samples};
use gmm_mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings, Start};
use ndarray::{Array1, Array2, Axis, s};

/// Returns the measurements (150, 4). Each species has 50 consecutive rows.
fn iris() -> Array2<f64> {
    let text = include_str!("../data/iris.csv");
    let rows: Vec<f64> = text
        .lines()
        .skip(1)
        .flat_map(|line| line.split(',').take(4).map(|v| v.trim().parse::<f64>().unwrap()).collect::<Vec<_>>())
        .collect();
    Array2::from_shape_vec((150, 4), rows).unwrap()
}

fn species(x: &Array2<f64>) -> Mixture {
    let (mut means, mut variances) = (Array2::zeros((3, 4)), Array2::zeros((3, 4)));
    for c in 0..3 {
        let rows = x.slice(s![c * 50..(c + 1) * 50, ..]);
        means.row_mut(c).assign(&rows.mean_axis(Axis(0)).unwrap());
        variances.row_mut(c).assign(&rows.var_axis(Axis(0), 0.0));
    }
    Mixture::new(Array1::from_elem(3, 1.0 / 3.0), means, Covariances::Diag(variances)).unwrap()
}

#[test]
fn the_samplers_agree() {
    let x = iris();
    let samples = Samples::from_f64(x.view()).unwrap();
    let model =
        PosteriorModel::new(3, CovarianceType::Diag, &Prior::default(), Some(2), &DataSummary::new(&samples)).unwrap();
    assert_eq!(model.dim(), 2 + 12 + 12);
    let sample = |sampler, chains, warmup, draws, thin| {
        // NUTS runs over the reference, the others over the CPU, so that the backends are compared too.
        let mut evaluator: Box<dyn Evaluator + '_> = match sampler {
            Sampler::Nuts { .. } => Box::new(ReferenceEvaluator::new(samples.clone())),
            _ => Box::new(CpuEvaluator::new(samples.clone()).unwrap()),
        };
        let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
        let settings = Settings::new(sampler).chains(chains).warmup(warmup).draws(draws).thin(thin).seed(7);
        let start = Start::around(&model, &species(&x), &settings).unwrap();
        run(settings, start, &mut posterior)
    };
    let runs: Vec<Chains> = vec![
        sample(Sampler::NUTS, 4, 300, 500, 1),
        sample(Sampler::METROPOLIS, 4, 10_000, 1000, 100),
        sample(Sampler::METROPOLIS_BY_COMPONENT, 4, 2000, 1000, 25),
        sample(Sampler::ENSEMBLE, 60, 2000, 100, 80),
    ];
    for run in &runs {
        let summary = run.summary();
        // The advice is 1.01, for longer chains than these. A walker of the ensemble makes few effective draws.
        let ensemble = run.settings().sampler == Sampler::ENSEMBLE;
        assert!(summary.max_r_hat() < if ensemble { 1.12 } else { 1.05 }, "{summary}");
        assert!(summary.min_ess() > 100.0, "{summary}");
        assert_eq!(run.divergences(), 0);
    }
    // Warm-up aims for 0.8 and for 0.234 + 0.206/26.
    assert!((0.65..0.95).contains(&runs[0].acceptance()), "{}", runs[0].acceptance());
    assert!((0.2..0.3).contains(&runs[1].acceptance()), "{}", runs[1].acceptance());
    // 27 quantities in 3 comparisons each: chance exceeds 4 standard errors once in 200 such tests.
    for (name, size) in [("weights", 3), ("means", 12), ("covariances", 12)] {
        for i in 0..size {
            let (reference, error) = estimate(&scalar(&runs[0], name, i));
            for other in &runs[1..] {
                let (mean, other_error) = estimate(&scalar(other, name, i));
                let error = error.hypot(other_error);
                let sampler = other.settings().sampler;
                assert!(
                    (mean - reference).abs() < 4.0 * error,
                    "{name}[{i}], {sampler:?}: {mean} {reference} ± {error}"
                );
            }
        }
    }
}
