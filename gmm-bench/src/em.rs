use crate::median;
use anyhow::bail;
use clap::Subcommand;
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions, load};
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::model::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2};
use ndarray_npy::read_npy;
use std::path::PathBuf;
use std::time::Instant;

/// Time fits of a file on the CPU, for benches/compare_sklearn.py
#[derive(Debug, Subcommand)]
pub enum Em {
    /// Ten iterations from weights 1/K, the means of a file, and precisions of 2 on the diagonal
    ///
    /// Prints the seconds, including the loading of the samples, and the last lower bound.
    Ten { x: PathBuf, means: PathBuf, covariance_type: CovarianceType },
    /// A fit from a k-means start for each seed from 0
    ///
    /// Prints the seconds of the start and of the whole fit, the iterations, and the last lower bound.
    Start { x: PathBuf, k: usize, covariance_type: CovarianceType, seeds: u64 },
}

fn evaluator(x: &Array2<f32>) -> Result<Box<dyn Evaluator + '_>, Error> {
    load(Device::Cpu, Samples::from_f32(x.view())?, &LoadOptions::default())
}

impl Em {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Ten { x, means, covariance_type } => ten(&read_npy(x)?, &read_npy(means)?, covariance_type),
            Self::Start { x, k, covariance_type, seeds } => start(&read_npy(x)?, k, covariance_type, seeds),
        }
    }
}

fn ten(x: &Array2<f32>, means: &Array2<f32>, covariance_type: CovarianceType) -> anyhow::Result<()> {
    let (k, d) = means.dim();
    if !matches!(covariance_type, CovarianceType::Diag | CovarianceType::Full) {
        bail!("the covariance type must be diag or full, not {covariance_type}");
    }
    let covariances = Covariances::isotropic(covariance_type, k, d, 0.5);
    let start = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means.mapv(f64::from), covariances)?;
    let params = GaussianMixtureParams::new(k).covariance_type(covariance_type).max_iter(10).tol(0.0).start(start);
    let params = params.check()?;
    let mut lower_bound = f64::NAN;
    let seconds = median(|_| {
        lower_bound = params.fit(evaluator(x)?.as_mut())?.lower_bound();
        Ok::<_, Error>(())
    })?;
    println!("{seconds} {lower_bound}");
    Ok(())
}

fn start(x: &Array2<f32>, k: usize, covariance_type: CovarianceType, seeds: u64) -> anyhow::Result<()> {
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
