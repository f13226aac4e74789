//! Draws from the posterior of a mixture over the iris data: `cargo run --release --example mcmc`.
use gaussmix::device::{Device, LoadOptions};
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::io;
use gaussmix::mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Settings, Start};
use gaussmix::model::CovarianceType;
use std::ops::ControlFlow;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = io::read_data(Path::new("data/iris.csv"))?;
    let samples = data.samples()?;
    let mut evaluator = gaussmix::device::load(Device::Auto, samples.clone(), &LoadOptions::default())?;

    // Three components, in the order of their mean petal length (column 2), with the default prior.
    let model = PosteriorModel::new(3, CovarianceType::Diag, &Prior::default(), Some(2), &DataSummary::new(&samples))?;
    // The chains begin near the best fit by EM.
    let params = GaussianMixtureParams::default().n_components(3).covariance_type(CovarianceType::Diag);
    let fit = params.check()?.fit(evaluator.as_mut())?;

    let settings = Settings::default().chains(4).warmup(500).draws(500);
    let start = Start::around(&model, &fit.mixture, &settings)?;
    let mut posterior = Posterior::new(&model, evaluator.as_mut())?;
    let mut run = Chains::new(settings, start, &mut posterior)?;
    run.advance(&mut posterior, |progress| {
        if progress.done % 500 == 0 {
            eprintln!("{} of {}, {} evaluations", progress.done, progress.of, progress.evaluations);
        }
        ControlFlow::Continue(())
    })?;
    println!("{}", run.summary());
    // With a prefix as argument, the draws are written in CmdStan's CSV format, which ArviZ reads.
    if let Some(prefix) = std::env::args_os().nth(1) {
        for path in run.save(Path::new(&prefix))? {
            println!("{}", path.display());
        }
    }
    Ok(())
}
