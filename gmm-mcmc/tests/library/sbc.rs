//! Simulation-based calibration (Talts and others 2018). Parameters are drawn from the prior, and
//! data from these parameters. If the sampler and the density are right, the rank of a true
//! parameter among the draws of the posterior is uniform.
use crate::common::run_from_prior;
use gmm_host::{CovarianceType, ReferenceEvaluator, Samples};
use gmm_mcmc::{
    DataSummary, Posterior, PosteriorModel, Prior, Result, RunIdentity, Sampler, Settings, Target, Variable,
};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const REPLICATES: usize = 240;
/// Draws of each replicate; ranks are 0 to 63.
const DRAWS: usize = 63;
const BINS: usize = 8;
/// χ² of 8 bins has 7 degrees of freedom and exceeds this with probability 10⁻⁴.
const LIMIT: f64 = 29.878;

struct Case {
    k: usize,
    d: usize,
    n: usize,
    covariance_type: CovarianceType,
    order: Option<usize>,
    prior: &'static str,
}

const DIAG: Case = Case {
    k: 2,
    d: 1,
    n: 15,
    covariance_type: CovarianceType::Diag,
    order: Some(0),
    prior: r#"{"weights": {"dirichlet": {"concentration": 2.0}}, "means": {"normal": {"location": 1.0, "scale": 3.0}},
        "scales": {"half_normal": {"scale": 1.0}}}"#,
};

/// Draws samples from the mixture whose numbers are those of `PosteriorModel::parameters`.
fn sample_data(model: &PosteriorModel, parameters: &[f64], n: usize, rng: &mut ChaCha8Rng) -> Array2<f64> {
    let (k, d) = (model.n_components(), model.n_features());
    let (weights, rest) = parameters.split_at(k);
    let (means, covariances) = rest.split_at(k * d);
    let mut x = Array2::zeros((n, d));
    for mut row in x.outer_iter_mut() {
        let mut u: f64 = rng.random();
        let c = weights.iter().position(|w| {
            u -= w;
            u < 0.0
        });
        let c = c.unwrap_or(k - 1);
        let z: Vec<f64> = (0..d).map(|_| StandardNormal.sample(rng)).collect();
        for j in 0..d {
            row[j] = means[c * d + j]
                + match model.covariance_type() {
                    CovarianceType::Spherical => covariances[c].sqrt() * z[j],
                    CovarianceType::Diag => covariances[c * d + j].sqrt() * z[j],
                    // The Cholesky factor in one or two dimensions.
                    _ => {
                        let s = &covariances[c * d * d..];
                        match j {
                            0 => s[0].sqrt() * z[0],
                            _ => s[1] / s[0].sqrt() * z[0] + (s[3] - s[1] * s[1] / s[0]).sqrt() * z[1],
                        }
                    }
                };
        }
    }
    x
}

/// Returns χ² of the ranks of each parameter.
fn calibrate(
    case: &Case,
    settings: &Settings,
    mut wrap: impl FnMut(Posterior<'_>, Settings) -> Vec<Vec<f64>>,
) -> Vec<(String, f64)> {
    // The priors state all their parameters, so only the shape of this data matters.
    let blank = Array2::from_shape_fn((case.n, case.d), |(i, j)| (i + j) as f64);
    let summary = DataSummary::new(&Samples::from_f64(blank.view()).unwrap());
    let prior = Prior::from_json(case.prior).unwrap();
    let model = PosteriorModel::new(case.k, case.covariance_type, &prior, case.order, &summary).unwrap();
    let mut counts = Vec::new();
    for replicate in 0..REPLICATES {
        let mut rng = ChaCha8Rng::seed_from_u64(1000 + replicate as u64);
        let truth = model.parameters(&model.sample_prior(&mut rng).unwrap());
        let x = sample_data(&model, &truth, case.n, &mut rng);
        let mut evaluator = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap());
        let posterior = Posterior::new(&model, &mut evaluator).unwrap();
        let draws = wrap(posterior, settings.clone().seed(replicate as u64));
        assert!(draws.len() >= DRAWS);
        counts.resize(truth.len(), [0usize; BINS]);
        for (i, truth) in truth.iter().enumerate() {
            let rank = draws[..DRAWS].iter().filter(|d| d[i] < *truth).count();
            counts[i][rank * BINS / (DRAWS + 1)] += 1;
        }
    }
    let names = model.variables().into_iter().flat_map(|v| {
        let size: usize = v.shape.iter().product();
        (0..size).map(move |i| format!("{}[{i}]", v.name))
    });
    let expected = REPLICATES as f64 / BINS as f64;
    names
        .zip(counts.iter().map(|c| c.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum()))
        // The last weight follows from the others. With K = 1 it is the only one, and constant.
        .filter(|(name, _)| name != &format!("weights[{}]", case.k - 1))
        .collect()
}

/// Returns the parameters of all draws: the first draw of each chain, then the second of each, and so on.
fn draws(mut posterior: Posterior<'_>, settings: Settings) -> Vec<Vec<f64>> {
    let run = run_from_prior(settings, &mut posterior);
    rows(&run)
}

fn rows(run: &gmm_mcmc::Chains) -> Vec<Vec<f64>> {
    let (weights, means, covariances) =
        (run.draws("weights").unwrap(), run.draws("means").unwrap(), run.draws("covariances").unwrap());
    let (chains, n) = (run.settings().chains, run.drawn());
    let part = |a: &ndarray::ArrayD<f64>, c: usize, i: usize| -> Vec<f64> {
        let flat = a.as_slice().unwrap();
        let size = flat.len() / (chains * n);
        flat[(c * n + i) * size..(c * n + i + 1) * size].to_vec()
    };
    (0..n)
        .flat_map(|i| (0..chains).map(move |c| (c, i)))
        .map(|(c, i)| [part(&weights, c, i), part(&means, c, i), part(&covariances, c, i)].concat())
        .collect()
}

fn assert_calibrated(case: &Case, settings: &Settings) {
    let chi_squared = calibrate(case, settings, draws);
    for (name, value) in &chi_squared {
        assert!(*value < LIMIT, "{name} of {}: {chi_squared:?}", settings.sampler.name());
    }
}

#[test]
fn metropolis_is_calibrated() {
    let settings = Settings::new(Sampler::METROPOLIS).chains(1).warmup(1000).draws(DRAWS).thin(50).seed(0);
    assert_calibrated(&DIAG, &settings);
    let spherical = Case {
        k: 2,
        d: 2,
        n: 12,
        covariance_type: CovarianceType::Spherical,
        order: Some(1),
        prior: r#"{"weights": {"dirichlet": {"concentration": 3.0}},
            "means": {"scaled_normal": {"location": 0.0, "precision": 0.1}},
            "scales": {"inverse_gamma": {"shape": 3.0, "scale": 2.0}}}"#,
    };
    assert_calibrated(&spherical, &settings);
}

#[test]
fn metropolis_by_component_is_calibrated() {
    let settings = Settings::new(Sampler::METROPOLIS_BY_COMPONENT).chains(1).warmup(500).draws(DRAWS).thin(20).seed(0);
    assert_calibrated(&DIAG, &settings);
}

#[test]
fn the_ensemble_is_calibrated() {
    // Each of 12 walkers makes 6 draws, of which the first 63 count.
    let settings = Settings::new(Sampler::ENSEMBLE).chains(12).warmup(300).draws(6).thin(40).seed(0);
    assert_calibrated(&DIAG, &settings);
}

#[test]
fn nuts_is_calibrated() {
    let settings = Settings::new(Sampler::NUTS).chains(1).warmup(300).draws(DRAWS).thin(2).seed(0);
    assert_calibrated(&DIAG, &settings);
    let full = Case {
        k: 1,
        d: 2,
        n: 8,
        covariance_type: CovarianceType::Full,
        order: None,
        prior: r#"{"means": {"normal": {"location": 1.0, "scale": 3.0}}, "scales": {"half_normal": {"scale": 2.0}},
            "correlations": {"lkj": {"shape": 2.0}}}"#,
    };
    assert_calibrated(&full, &settings);
}

/// A wrong posterior, without the Jacobian of the scales.
struct Forgetful<'a>(Posterior<'a>);

impl Target for Forgetful<'_> {
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn log_density(&mut self, theta: &[f64]) -> Result<f64> {
        Ok(self.0.log_density(theta)? - theta[3] - theta[4])
    }
    fn log_density_gradient(&mut self, _: &[f64], _: &mut [f64]) -> Result<f64> {
        unimplemented!("Metropolis needs no gradient")
    }
    fn variables(&self) -> Vec<Variable> {
        self.0.variables()
    }
    fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        self.0.parameters(theta)
    }
    fn identity(&self) -> RunIdentity {
        self.0.identity()
    }
}

#[test]
fn calibration_finds_a_forgotten_jacobian() {
    let settings = Settings::new(Sampler::METROPOLIS).chains(1).warmup(1000).draws(DRAWS).thin(20).seed(0);
    let chi_squared = calibrate(&DIAG, &settings, |posterior, settings| {
        let start = gmm_mcmc::Start::from_prior(posterior.model(), &settings).unwrap();
        rows(&crate::common::run(settings, start, &mut Forgetful(posterior)))
    });
    let worst = chi_squared.iter().map(|c| c.1).fold(0.0, f64::max);
    assert!(worst > LIMIT, "{chi_squared:?}");
}
