//! Times fits on the CPU for `benches/compare_sklearn.py`, which times scikit-learn on the same
//! samples.
//!
//! `em_times em X.npy MEANS.npy TYPE`: ten iterations from weights 1/K, the means (K, D), and
//! precisions of 2 on the diagonal. Prints the seconds, with the loading of the samples, and the
//! last lower bound.
//!
//! `em_times start X.npy K TYPE SEEDS`: a fit from a start by k-means for each seed from 0. Prints
//! the seconds of the start, those of the whole fit, the iterations, and the last lower bound.
use gmm_host::{
    CovarianceType, Covariances, Device, Error, Evaluator, GaussianMixtureParams, LoadOptions, Mixture, Samples, load,
};
use ndarray::{Array1, Array2, Array3};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn evaluator(x: &Array2<f32>) -> Result<Box<dyn Evaluator + '_>, Error> {
    load(Device::Cpu, Samples::from_f32(x.view())?, &LoadOptions::default())
}

fn em(x: &Array2<f32>, means: &Array2<f32>, covariance_type: CovarianceType) -> Outcome<()> {
    let (k, d) = means.dim();
    let covariances = match covariance_type {
        CovarianceType::Diag => Covariances::Diag(Array2::from_elem((k, d), 0.5)),
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 0.5 } else { 0.0 }))
        }
        _ => return Err("em_times em: TYPE is diag or full".into()),
    };
    let start = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means.mapv(f64::from), covariances)?;
    let params = GaussianMixtureParams::new(k).covariance_type(covariance_type).max_iter(10).tol(0.0).start(start);
    let mut times = Vec::new();
    let mut lower_bound = f64::NAN;
    for _ in 0..5 {
        let began = Instant::now();
        lower_bound = params.clone().check()?.fit(evaluator(x)?.as_mut())?.lower_bound();
        times.push(began.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    println!("{} {lower_bound}", times[times.len() / 2]);
    Ok(())
}

fn start(x: &Array2<f32>, k: usize, covariance_type: CovarianceType, seeds: u64) -> Outcome<()> {
    let params = GaussianMixtureParams::new(k).covariance_type(covariance_type).max_iter(500);
    for seed in 0..seeds {
        let params = params.clone().random_state(seed);
        let mut evaluator = evaluator(x)?;
        let began = Instant::now();
        params.clone().max_iter(0).check()?.fit(evaluator.as_mut())?;
        let start = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let fit = params.check()?.fit(evaluator.as_mut())?;
        println!("{start} {} {} {}", began.elapsed().as_secs_f64(), fit.n_iter(), fit.lower_bound());
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["em", x, means, t] => em(&ndarray_npy::read_npy(x)?, &ndarray_npy::read_npy(means)?, t.parse()?),
        ["start", x, k, t, seeds] => start(&ndarray_npy::read_npy(x)?, k.parse()?, t.parse()?, seeds.parse()?),
        _ => Err("usage: em_times em X.npy MEANS.npy TYPE, or em_times start X.npy K TYPE SEEDS".into()),
    }
}
