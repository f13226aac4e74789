use crate::{median, normal};
use clap::Args;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions, load};
use gaussmix::fit::{BayesianGaussianMixtureParams, GaussianMixtureParams};
use gaussmix::model::{
    CovarianceType, Covariances, VariationalMixture, VariationalPrior, WeightConcentrationPriorType,
};
use gaussmix::program::whole_number;
use gaussmix_cli::bench::{mixtures, text};
use ndarray::Array1;

/// D and K.
const SHAPES: [(usize, usize); 5] = [(13, 8), (32, 64), (64, 32), (128, 1024), (128, 16)];

/// Time an iteration of variational inference beside one of EM
#[derive(Debug, Args)]
pub struct Variational {
    #[arg(long, default_value = "cuda")]
    device: Device,
    /// Number of samples
    #[arg(long, value_parser = whole_number, default_value = "1e6")]
    n: usize,
}

impl Variational {
    pub fn run(self) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for (d, k) in SHAPES {
            let x = normal(self.n, d)?;
            let mut evaluator = load(self.device, Samples::from_f32(x.view())?, &LoadOptions::default())?;
            for covariance_type in [CovarianceType::Diag, CovarianceType::Full] {
                let [start] = <[_; 1]>::try_from(mixtures(1, [k, d], covariance_type)?).expect("one mixture");
                let (mean, covariance) = (Array1::zeros(d), Covariances::isotropic(covariance_type, 1, d, 1.0));
                let kind = WeightConcentrationPriorType::DirichletProcess;
                let prior = VariationalPrior::new(kind, 1.0, 1.0, mean.clone(), d as f64, covariance.clone())?;
                let posterior = VariationalMixture::from_statistics(&prior, &evaluator.statistics(&start)?, 1e-6)?;
                let em =
                    GaussianMixtureParams::new(k).covariance_type(covariance_type).max_iter(1).start(start).check()?;
                let variational = BayesianGaussianMixtureParams::new(k)
                    .covariance_type(covariance_type)
                    .max_iter(1)
                    .weight_concentration_prior(1.0)
                    .mean_prior(mean)
                    .covariance_prior(covariance)
                    .start(posterior)
                    .check()?;
                let of_em = median(|_| em.fit(evaluator.as_mut()).map(drop))?;
                let time = median(|_| variational.fit(evaluator.as_mut()).map(drop))?;
                let ratio = format!("{:.3}", time / of_em);
                let shape = [d.to_string(), k.to_string(), covariance_type.to_string()];
                rows.push(shape.into_iter().chain([text::seconds(of_em), text::seconds(time), ratio]).collect());
            }
        }
        text::print(text::table(&["D", "K", "type", "EM", "variational", "ratio"], rows, 0))
    }
}
