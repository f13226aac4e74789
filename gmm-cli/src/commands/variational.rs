//! The options of variational inference, with scikit-learn's names and defaults.
use super::training::Training;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use gaussmix::fit::BayesianGaussianMixtureParams;
use gaussmix::io::{self, Data, Identity};
use gaussmix::model::{CovarianceType, Covariances, WeightConcentrationPriorType};
use ndarray::Array1;
use std::path::PathBuf;

/// The options that `fit` and `select` have in common.
#[derive(Debug, Args)]
#[command(next_help_heading = "Variational inference")]
pub struct Variational {
    /// Find the posterior of the parameters by variational inference, under a prior, instead of the
    /// likeliest parameters by EM. Components that the data does not need are left without samples
    #[arg(long)]
    pub variational: bool,
    /// Prior of the weights
    #[arg(long, value_name = "TYPE", requires = "variational", default_value = "dirichlet-process")]
    weight_concentration_prior_type: PriorType,
    /// Its concentration: the smaller, the fewer components have weight. Default: 1/K
    #[arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true)]
    weight_concentration_prior: Option<f64>,
    /// The larger, the nearer are the means to --mean-prior. Default: 1
    #[arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true)]
    mean_precision_prior: Option<f64>,
    /// Prior mean: a number for each feature, separated by commas, or a file with them (.npy, or
    /// .csv with one column). Default: that of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    mean_prior: Option<Numbers>,
    /// Degrees of freedom of the prior of the precisions, above the number of features less one.
    /// Default: the number of features
    #[arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true)]
    degrees_of_freedom_prior: Option<f64>,
    /// Scale of that prior, in the shape of the covariance of one component: the rows of a matrix
    /// for full and tied, a number for each feature for diag, one number for spherical; separated by
    /// commas, or a file. Default: the covariance of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    covariance_prior: Option<Numbers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PriorType {
    #[value(alias = "dirichlet_process")]
    DirichletProcess,
    #[value(alias = "dirichlet_distribution")]
    DirichletDistribution,
}

/// Numbers, or the file that has them.
#[derive(Debug, Clone, PartialEq)]
enum Numbers {
    Given(Vec<f64>),
    File(PathBuf),
}

impl std::str::FromStr for Numbers {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<f64>, _> = text.split(',').map(|number| number.trim().parse()).collect();
        Ok(numbers.map_or_else(|_| Self::File(text.into()), Self::Given))
    }
}

impl Numbers {
    fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Given(_) => None,
            Self::File(path) => Some(path),
        }
    }

    fn vector(&self) -> anyhow::Result<Vec<f64>> {
        match self {
            Self::Given(numbers) => Ok(numbers.clone()),
            Self::File(path) => Ok(io::read_vector(path)?.to_vec()),
        }
    }

    /// The numbers of a square matrix, row by row.
    fn matrix(&self) -> anyhow::Result<(usize, Vec<f64>)> {
        let (rows, numbers) = match self {
            Self::Given(numbers) => (numbers.len().isqrt(), numbers.clone()),
            Self::File(path) => {
                let values = match io::read_data(path)? {
                    Data::F32(x) => x.mapv(f64::from),
                    Data::F64(x) => x,
                };
                (values.nrows(), values.iter().copied().collect())
            }
        };
        if rows * rows != numbers.len() {
            bail!("{} numbers are not the rows of a square matrix", numbers.len());
        }
        Ok((rows, numbers))
    }

    fn covariance(&self, covariance_type: CovarianceType) -> anyhow::Result<Covariances> {
        let (d, numbers) = match covariance_type {
            CovarianceType::Full | CovarianceType::Tied => self.matrix()?,
            CovarianceType::Diag => {
                let numbers = self.vector()?;
                (numbers.len(), numbers)
            }
            _ => (1, self.vector()?),
        };
        Ok(Covariances::from_vec(covariance_type, 1, d, numbers)?)
    }
}

impl Variational {
    /// The parameters of a fit.
    pub fn params(
        &self,
        training: &Training,
        covariance_type: CovarianceType,
    ) -> anyhow::Result<BayesianGaussianMixtureParams> {
        let mut params = training
            .bayesian_params()
            .covariance_type(covariance_type)
            .weight_concentration_prior_type(self.prior_type());
        if let Some(value) = self.weight_concentration_prior {
            params = params.weight_concentration_prior(value);
        }
        if let Some(value) = self.mean_precision_prior {
            params = params.mean_precision_prior(value);
        }
        if let Some(numbers) = &self.mean_prior {
            params = params.mean_prior(Array1::from_vec(numbers.vector().context("--mean-prior")?));
        }
        if let Some(value) = self.degrees_of_freedom_prior {
            params = params.degrees_of_freedom_prior(value);
        }
        if let Some(numbers) = &self.covariance_prior {
            params = params.covariance_prior(numbers.covariance(covariance_type).context("--covariance-prior")?);
        }
        Ok(params)
    }

    /// Adds the options that change the course of a fit.
    pub fn identify(&self, identity: Identity, covariance_type: CovarianceType) -> anyhow::Result<Identity> {
        // The pattern names all options, so that a new one cannot be forgotten here.
        let Self {
            variational,
            weight_concentration_prior_type: _,
            weight_concentration_prior,
            mean_precision_prior,
            mean_prior,
            degrees_of_freedom_prior,
            covariance_prior,
        } = self;
        let mean = mean_prior.as_ref().map(Numbers::vector).transpose()?;
        let covariance = covariance_prior.as_ref().map(|numbers| numbers.covariance(covariance_type)).transpose()?;
        let covariance = covariance.map(|covariance| covariance.iter().collect::<Vec<f64>>());
        Ok(identity
            .with("variational", *variational)
            .with("weight-concentration-prior-type", self.prior_type().name())
            .with("weight-concentration-prior", *weight_concentration_prior)
            .with("mean-precision-prior", *mean_precision_prior)
            .with("mean-prior", mean)
            .with("degrees-of-freedom-prior", *degrees_of_freedom_prior)
            .with("covariance-prior", covariance))
    }

    /// The prior of the weights.
    pub fn prior_type(&self) -> WeightConcentrationPriorType {
        match self.weight_concentration_prior_type {
            PriorType::DirichletProcess => WeightConcentrationPriorType::DirichletProcess,
            PriorType::DirichletDistribution => WeightConcentrationPriorType::DirichletDistribution,
        }
    }

    /// The files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = Option<&PathBuf>> {
        [&self.mean_prior, &self.covariance_prior].into_iter().map(|numbers| numbers.as_ref().and_then(Numbers::file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_or_a_file() {
        assert_eq!("1, -2.5,3e2".parse(), Ok(Numbers::Given(vec![1.0, -2.5, 300.0])));
        for name in ["prior.npy", "1,x", ""] {
            assert_eq!(name.parse(), Ok(Numbers::File(name.into())));
        }
        let numbers = |count| Numbers::Given(vec![1.0; count]);
        assert!(
            numbers(4).covariance(CovarianceType::Full).is_ok() && numbers(3).covariance(CovarianceType::Full).is_err()
        );
        assert!(numbers(3).covariance(CovarianceType::Diag).is_ok());
        assert!(numbers(2).covariance(CovarianceType::Spherical).is_err());
    }
}
