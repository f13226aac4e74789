//! Times an iteration of variational inference beside one of EM, over the shapes of `estep_times`.
//!
//! `cargo run --release -p gmm-host --features cuda --example variational_times [DEVICE [N [CASES]]]`,
//! where DEVICE is cuda or cpu, and CASES are the numbers of some of the cases, from 0 and with
//! commas between them.
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, Covariances, Device, Error, GaussianMixtureParams, LoadOptions,
    Mixture, Samples, VariationalMixture, VariationalPrior, WeightConcentrationPriorType, load,
};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

/// D, K and type.
const CASES: [(usize, usize, CovarianceType); 8] = [
    (13, 8, CovarianceType::Diag),
    (13, 8, CovarianceType::Full),
    (32, 64, CovarianceType::Diag),
    (32, 64, CovarianceType::Full),
    (64, 32, CovarianceType::Diag),
    (64, 32, CovarianceType::Full),
    (128, 1024, CovarianceType::Diag),
    (128, 16, CovarianceType::Full),
];
/// Rounds, of which the first does not count.
const ROUNDS: usize = 30;

/// Covariances of 1 on the diagonal and `correlation` beside it.
fn covariances(covariance_type: CovarianceType, k: usize, d: usize, correlation: f64) -> Covariances {
    match covariance_type {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 1.0 } else { correlation }))
        }
        _ => Covariances::Diag(Array2::ones((k, d))),
    }
}

/// The least time of rounds, in milliseconds, and its median.
fn summary(mut times: Vec<f64>) -> (f64, f64) {
    times.remove(0);
    times.sort_by(f64::total_cmp);
    (times[0] * 1e3, times[times.len() / 2] * 1e3)
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device: Device = arguments.first().map_or("cuda", String::as_str).parse()?;
    let n = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let is_chosen = |i: usize| arguments.get(2).is_none_or(|cases| cases.split(',').any(|case| case == i.to_string()));
    println!("N = {n}, float32, {device}; milliseconds of an iteration, median (least) of {} rounds", ROUNDS - 1);
    println!("   D     K  type                 EM           variational   ratio");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (i, (d, k, covariance_type)) in CASES.into_iter().enumerate() {
        if !is_chosen(i) {
            continue;
        }
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let mut evaluator = load(device, Samples::from_f32(x.view())?, &LoadOptions::default())?;
        // Components as wide as the data and near its centre, so that every sample belongs to several.
        let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal) / (d as f64).sqrt());
        let weights = Array1::from_elem(k, 1.0 / k as f64);
        let mixture = Mixture::new(weights, means, covariances(covariance_type, k, d, 0.2))?;
        let (mean, covariance) = (Array1::zeros(d), covariances(covariance_type, 1, d, 0.0));
        let kind = WeightConcentrationPriorType::DirichletProcess;
        let prior = VariationalPrior::new(kind, 1.0, 1.0, mean.clone(), d as f64, covariance.clone())?;
        let posterior = VariationalMixture::from_statistics(&prior, &evaluator.statistics(&mixture)?, 1e-6)?;
        let em = GaussianMixtureParams::new(k).covariance_type(covariance_type).max_iter(1).start(mixture).check()?;
        let variational = BayesianGaussianMixtureParams::new(k)
            .covariance_type(covariance_type)
            .max_iter(1)
            .weight_concentration_prior(1.0)
            .mean_prior(mean)
            .covariance_prior(covariance)
            .start(posterior)
            .check()?;
        let (mut of_em, mut of_variational) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let began = Instant::now();
            em.fit(evaluator.as_mut())?;
            of_em.push(began.elapsed().as_secs_f64());
            let began = Instant::now();
            variational.fit(evaluator.as_mut())?;
            of_variational.push(began.elapsed().as_secs_f64());
        }
        let ((least, median), (least_v, median_v)) = (summary(of_em), summary(of_variational));
        let name = covariance_type.name();
        println!(
            "{d:4} {k:5}  {name:6} {median:9.3} ({least:8.3}) {median_v:9.3} ({least_v:8.3})  {:6.3}",
            median_v / median
        );
    }
    Ok(())
}
