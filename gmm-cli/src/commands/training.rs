//! The fits of `gmm fit` and `gmm select`: the options of the library, and those that the commands add.
use super::numbers::Numbers;
use crate::input::{DataOptions, Source};
use crate::terminal::text;
use anyhow::Context;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use gaussmix::Reproducible;
use gaussmix::fit::{Em, Fit, FitOptions, FittedModel, Fitting, Method, Regularized, Variational};
use gaussmix::io::{Identity, ModelInFile};
use gaussmix::model::{CovarianceModel, Mixture, VariationalMixture};
use gaussmix::statistics::Freeze;
use ndarray::Array1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The options that `fit` and `select` share.
#[derive(Debug, Args)]
pub struct Training {
    #[command(flatten)]
    pub data: DataOptions,
    /// A weight for each sample (a sample of weight 2 counts as two): .npy of shape (samples,) or .csv with one column
    #[arg(long, value_name = "FILE")]
    pub sample_weight: Option<PathBuf>,
    #[command(flatten)]
    pub fit: FitArguments,
    #[command(flatten)]
    posterior: Posterior,
}

/// The options of a fit that do not depend on where its samples are.
#[derive(Debug, Args)]
pub struct FitArguments {
    #[command(flatten)]
    pub options: FitOptions,
    #[command(flatten)]
    em: Em,
    /// Keep these parameters as they are in the start: weights, means, covariances, separated by commas; those of
    /// single components (from 0) as in means=0,2. With weights=equal or means=equal those of all components are equal
    #[arg(long, value_name = "NAMES")]
    freeze: Vec<Freeze>,
    /// Fit to columns of mean 0 and standard deviation 1
    ///
    /// The start and --reg-covar then treat all columns alike. The model and all figures are converted back to the
    /// data's units without loss. The variances of a `spherical` fit differ by column in these units, so its model is
    /// `diag`.
    #[arg(long)]
    pub standardize: bool,
}

impl FitArguments {
    fn freeze(&self) -> Freeze {
        self.freeze.iter().cloned().fold(Freeze::default(), Freeze::or)
    }

    /// Returns the options that stand on the command line, by the library's names.
    pub fn given(&self, matches: &ArgMatches) -> serde_json::Result<Map<String, Value>> {
        let mut found = given(&self.options, matches)?;
        found.append(&mut given(&self.em, matches)?);
        if !self.freeze.is_empty() {
            found.insert("freeze".into(), serde_json::to_value(self.freeze())?);
        }
        found.insert("standardize".into(), self.standardize.into());
        Ok(found)
    }
}

/// Returns the options whose arguments stand on the command line, by their names.
fn given(options: &impl Serialize, matches: &ArgMatches) -> serde_json::Result<Map<String, Value>> {
    let Value::Object(mut found) = serde_json::to_value(options)? else { return Ok(Map::new()) };
    found.retain(|name, _| {
        let is_it = |id: &str| id == name || (id == "noise_component" && name == "noise");
        let id = matches.ids().find(|id| is_it(id.as_str()));
        id.is_some_and(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine))
    });
    Ok(found)
}

/// The options of variational inference.
#[derive(Debug, Args)]
#[command(next_help_heading = "Variational inference")]
pub struct Posterior {
    /// Find the posterior of the parameters under a prior by variational inference, instead of the likeliest parameters
    /// by EM. Components that the data does not need get no samples
    #[arg(long, conflicts_with_all = ["prior", "noise_component"])]
    pub variational: bool,
    #[command(flatten)]
    options: Variational,
    /// Prior mean: a number for each feature, separated by commas, or a file with them (.npy, or .csv with one column).
    /// Default: the mean of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    mean_prior: Option<Numbers>,
    /// Scale of the prior of the precisions, in the shape of one component's covariance: the rows of a matrix for full
    /// and tied, a number for each feature for diag, one number for spherical; separated by commas, or a file. Default:
    /// the covariance of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    covariance_prior: Option<Numbers>,
}

impl Posterior {
    /// Returns the options that stand on the command line, by the library's names; priors as numbers one after the other.
    pub fn given(&self, matches: &ArgMatches) -> anyhow::Result<Map<String, Value>> {
        let mut found = given(&self.options, matches)?;
        for (name, numbers) in [("mean_prior", &self.mean_prior), ("covariance_prior", &self.covariance_prior)] {
            if let Some(numbers) = numbers {
                let all = numbers.all().with_context(|| format!("--{}", name.replace('_', "-")))?;
                found.insert(name.into(), all.into());
            }
        }
        Ok(found)
    }
}

/// A method with its options on the command line.
pub trait Trained: Method<Model: Trainable> + Serialize {
    fn of(training: &Training, covariance_type: CovarianceModel) -> anyhow::Result<Self>;
}

impl Trained for Em {
    fn of(training: &Training, _: CovarianceModel) -> anyhow::Result<Self> {
        Ok(training.fit.em.clone())
    }
}

impl Trained for Variational {
    fn of(training: &Training, covariance_type: CovarianceModel) -> anyhow::Result<Self> {
        let Posterior { options, mean_prior, covariance_prior, .. } = &training.posterior;
        let mut method = options.clone();
        let mean = mean_prior.as_ref().map(|numbers| numbers.vector().context("--mean-prior")).transpose()?;
        method.mean_prior = mean.map(Array1::from_vec);
        let covariance = |numbers: &Numbers| numbers.covariance(covariance_type.form()).context("--covariance-prior");
        method.covariance_prior = covariance_prior.as_ref().map(covariance).transpose()?;
        Ok(method)
    }
}

/// The model that a fit finds.
pub trait Trainable: FittedModel + ModelInFile + Serialize + DeserializeOwned {
    /// The lower bound, as the label of a plot's axis.
    const BOUND: &'static str;

    /// Returns whether each component is alive (K,), or `None` if all are.
    fn alive(&self) -> Option<Vec<bool>>;

    /// Returns the lower bound of the log-evidence of all samples, if the fit has one.
    fn elbo(fit: &Fit<Self>) -> Option<f64>;

    fn prior_type(&self) -> Option<&'static str>;
}

impl Trainable for Mixture {
    const BOUND: &'static str = "lower bound (mean log-likelihood of a sample)";

    fn alive(&self) -> Option<Vec<bool>> {
        None
    }

    fn elbo(_: &Fit<Self>) -> Option<f64> {
        None
    }

    fn prior_type(&self) -> Option<&'static str> {
        None
    }
}

impl Trainable for VariationalMixture {
    const BOUND: &'static str = "lower bound, as scikit-learn counts";

    fn alive(&self) -> Option<Vec<bool>> {
        Some(Self::alive(self))
    }

    fn elbo(fit: &Fit<Self>) -> Option<f64> {
        fit.lower_bounds.last().map(|_| fit.elbo())
    }

    fn prior_type(&self) -> Option<&'static str> {
        Some(self.prior().weight_concentration_type.name())
    }
}

impl Training {
    pub fn is_variational(&self) -> bool {
        self.posterior.variational
    }

    pub fn has_noise(&self) -> bool {
        self.fit.em.noise.is_some()
    }

    /// Returns the fit that the options describe, in the units of the data.
    pub fn fitting<M: Trained>(&self, k: usize, covariance_type: CovarianceModel) -> anyhow::Result<Fitting<M>> {
        let fitting = Fitting::from((self.fit.options.clone(), M::of(self, covariance_type)?));
        let fitting = fitting.n_components(k).covariance_type(covariance_type).freeze(self.fit.freeze());
        Ok(fitting.reproducible(Reproducible::is_on()))
    }

    /// Returns the fit in the units of the samples.
    pub fn in_units<M: Trained>(&self, source: &Source<'_>, fitting: Fitting<M>) -> gaussmix::Result<Fitting<M>> {
        match &source.standardization {
            Some(standard) => fitting.standardized(standard),
            None => Ok(fitting),
        }
    }

    /// Prints a note if `--reg-covar` is large relative to the variance of a column. Not for standardised columns:
    /// their variance is 1, and `--reg-covar` was chosen in their units.
    pub fn note_regularization(&self, source: &Source<'_>, fitted: &impl Regularized) {
        let reg_covar = self.fit.options.reg_covar;
        let found = fitted.over_regularized(reg_covar).filter(|_| source.standardization.is_none());
        let Some((column, variance)) = found else { return };
        let name = source.names().map_or_else(|| column.to_string(), |names| names[column].clone());
        text::note(format_args!(
            "--reg-covar {reg_covar:e} is more than a thousandth of the variance of column `{name}`, {variance:.1e}: the fit depends on \
             the units; use --standardize, or a smaller --reg-covar"
        ));
    }

    pub fn inputs(&self) -> impl Iterator<Item = Option<&PathBuf>> {
        let of_prior = [&self.posterior.mean_prior, &self.posterior.covariance_prior];
        let of_prior = of_prior.into_iter().map(|numbers| numbers.as_ref().and_then(Numbers::file));
        self.data.inputs().chain([self.sample_weight.as_ref()]).chain(of_prior)
    }

    /// Adds the options that change the course of a fit to `data`: all except the device and, with `may_go_on`, the
    /// criteria that end the fit.
    pub fn identify<M: Trained>(
        &self,
        data: Identity,
        fitting: &Fitting<M>,
        may_go_on: bool,
    ) -> anyhow::Result<Identity> {
        let mut options = Identity::of(fitting)?.without(&["device"]);
        if may_go_on {
            options = options.without(&["tol", "max_iter"]);
        }
        Ok(data
            .and(options.with_names_of_options())
            .with("standardize", self.fit.standardize)
            .with("variational", self.is_variational()))
    }
}
