//! What `gmm fit` and `gmm select` fit: the options of the library, and what a command adds to them.
use super::numbers::Numbers;
use crate::input::{DataOptions, Source};
use crate::terminal::text;
use anyhow::Context;
use clap::Args;
use gaussmix::Reproducible;
use gaussmix::fit::{Em, Fit, FitOptions, FittedModel, Fitting, Method, Regularized, Variational};
use gaussmix::io::{self, Checkpoint, CheckpointOutput, FitSummary, Identity, ModelOutput};
use gaussmix::model::{CovarianceType, Mixture, VariationalMixture};
use gaussmix::statistics::Freeze;
use ndarray::Array1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The options that `fit` and `select` have in common.
#[derive(Debug, Args)]
pub struct Training {
    #[command(flatten)]
    pub data: DataOptions,
    #[command(flatten)]
    pub options: FitOptions,
    #[command(flatten)]
    em: Em,
    /// Parameters that are not fitted and stay those of the start: weights, means, covariances,
    /// separated by commas; of single components (from 0) as in means=0,2. With weights=equal or
    /// means=equal those of all components are equal
    #[arg(long, value_name = "NAMES")]
    freeze: Vec<Freeze>,
    /// A weight for each sample (a sample of weight 2 counts as two): .npy of shape (samples,) or
    /// .csv with one column
    #[arg(long, value_name = "FILE")]
    pub sample_weight: Option<PathBuf>,
    /// Fit to columns of mean 0 and standard deviation 1
    ///
    /// The start and --reg-covar then treat all columns alike. The model and all figures are
    /// converted back to the data's own units without loss. A `spherical` fit has variances that
    /// differ by column there, so that its model is `diag`.
    #[arg(long)]
    pub standardize: bool,
    #[command(flatten)]
    posterior: Posterior,
}

/// The options of variational inference.
#[derive(Debug, Args)]
#[command(next_help_heading = "Variational inference")]
struct Posterior {
    /// Find the posterior of the parameters by variational inference, under a prior, instead of the
    /// likeliest parameters by EM. Components that the data does not need are left without samples
    #[arg(long, conflicts_with = "prior")]
    variational: bool,
    #[command(flatten)]
    options: Variational,
    /// Prior mean: a number for each feature, separated by commas, or a file with them (.npy, or
    /// .csv with one column). Default: that of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    mean_prior: Option<Numbers>,
    /// Scale of the prior of the precisions, in the shape of the covariance of one component: the rows
    /// of a matrix for full and tied, a number for each feature for diag, one number for spherical;
    /// separated by commas, or a file. Default: the covariance of the data
    #[arg(long, value_name = "NUMBERS|FILE", requires = "variational", allow_hyphen_values = true)]
    covariance_prior: Option<Numbers>,
}

/// A method with its options on the command line, and the files of what it finds.
pub trait Trained: Method<Model: Trainable> + Serialize {
    /// The method with the options that were given.
    fn of(training: &Training, covariance_type: CovarianceType) -> anyhow::Result<Self>;
}

impl Trained for Em {
    fn of(training: &Training, _: CovarianceType) -> anyhow::Result<Self> {
        Ok(training.em.clone())
    }
}

impl Trained for Variational {
    fn of(training: &Training, covariance_type: CovarianceType) -> anyhow::Result<Self> {
        let Posterior { options, mean_prior, covariance_prior, .. } = &training.posterior;
        let mut method = options.clone();
        let mean = mean_prior.as_ref().map(|numbers| numbers.vector().context("--mean-prior")).transpose()?;
        method.mean_prior = mean.map(Array1::from_vec);
        let covariance = |numbers: &Numbers| numbers.covariance(covariance_type).context("--covariance-prior");
        method.covariance_prior = covariance_prior.as_ref().map(covariance).transpose()?;
        Ok(method)
    }
}

/// What a fit finds, and its files.
pub trait Trainable: FittedModel + Serialize + DeserializeOwned {
    /// The lower bound, as the axis of a plot has it.
    const BOUND: &'static str;

    /// The model of a file, and the names of its features.
    fn read_model(path: &Path) -> io::Result<(Self, Option<Vec<String>>)>;

    fn write_model(&self, output: &ModelOutput, summary: &FitSummary) -> io::Result<()>;

    fn read_checkpoint(path: &Path) -> io::Result<Checkpoint<Self>>;

    fn write_checkpoint(output: &CheckpointOutput, checkpoint: &Checkpoint<Self>) -> io::Result<()>;

    /// The model in a file of one group.
    fn of_group(self, summary: FitSummary) -> gaussmix::Result<io::Model>;

    /// The mixture to be drawn.
    fn to_mixture(&self) -> gaussmix::Result<Mixture>;

    /// Which components are alive (K,); none where all are.
    fn alive(&self) -> Option<Vec<bool>>;

    /// The lower bound of the log-evidence of all samples, where the fit has one.
    fn elbo(fit: &Fit<Self>) -> Option<f64>;

    /// The type of the prior of the weights.
    fn prior_type(&self) -> Option<&'static str>;
}

impl Trainable for Mixture {
    const BOUND: &'static str = "lower bound (mean log-likelihood of a sample)";

    fn read_model(path: &Path) -> io::Result<(Self, Option<Vec<String>>)> {
        io::read_model_with_summary(path).map(|(mixture, found)| (mixture, found.feature_names))
    }

    fn write_model(&self, output: &ModelOutput, summary: &FitSummary) -> io::Result<()> {
        output.write_with_summary(self, summary)
    }

    fn read_checkpoint(path: &Path) -> io::Result<Checkpoint> {
        io::read_checkpoint(path)
    }

    fn write_checkpoint(output: &CheckpointOutput, checkpoint: &Checkpoint) -> io::Result<()> {
        output.write(checkpoint)
    }

    fn of_group(self, summary: FitSummary) -> gaussmix::Result<io::Model> {
        Ok(io::Model::new(self, summary))
    }

    fn to_mixture(&self) -> gaussmix::Result<Mixture> {
        Ok(self.clone())
    }

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

    fn read_model(path: &Path) -> io::Result<(Self, Option<Vec<String>>)> {
        io::read_variational_model(path).map(|(posterior, found)| (posterior, found.feature_names))
    }

    fn write_model(&self, output: &ModelOutput, summary: &FitSummary) -> io::Result<()> {
        output.write_variational(self, summary)
    }

    fn read_checkpoint(path: &Path) -> io::Result<Checkpoint<Self>> {
        io::read_variational_checkpoint(path)
    }

    fn write_checkpoint(output: &CheckpointOutput, checkpoint: &Checkpoint<Self>) -> io::Result<()> {
        output.write_variational(checkpoint)
    }

    fn of_group(self, summary: FitSummary) -> gaussmix::Result<io::Model> {
        io::Model::of_posterior(self, summary)
    }

    fn to_mixture(&self) -> gaussmix::Result<Mixture> {
        Self::to_mixture(self)
    }

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
    /// Whether the fit is by variational inference.
    pub fn is_variational(&self) -> bool {
        self.posterior.variational
    }

    /// The fit that the options describe, in the units of the data.
    pub fn fitting<M: Trained>(&self, k: usize, covariance_type: CovarianceType) -> anyhow::Result<Fitting<M>> {
        let fitting = Fitting::from((self.options.clone(), M::of(self, covariance_type)?));
        let freeze = self.freeze.iter().cloned().fold(Freeze::default(), Freeze::or);
        let fitting = fitting.n_components(k).covariance_type(covariance_type).freeze(freeze);
        Ok(fitting.reproducible(Reproducible::is_on()))
    }

    /// The same in the units of the samples.
    pub fn in_units<M: Trained>(&self, source: &Source<'_>, fitting: Fitting<M>) -> gaussmix::Result<Fitting<M>> {
        match &source.standardization {
            Some(standard) => fitting.standardized(standard),
            None => Ok(fitting),
        }
    }

    /// Notes on the terminal where `--reg-covar` is large beside the variance of a column. Standardised
    /// columns have the variance 1, so that it was chosen in their units.
    pub fn note_regularization(&self, source: &Source<'_>, fitted: &impl Regularized) {
        let reg_covar = self.options.reg_covar;
        let found = fitted.over_regularized(reg_covar).filter(|_| source.standardization.is_none());
        let Some((column, variance)) = found else { return };
        let name = source.names().map_or_else(|| column.to_string(), |names| names[column].clone());
        text::note(format_args!(
            "--reg-covar {reg_covar:e} is more than a thousandth of the variance of column `{name}`, {variance:.1e}: the fit depends on \
             the units; use --standardize, or a smaller --reg-covar"
        ));
    }

    /// The files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = Option<&PathBuf>> {
        let of_prior = [&self.posterior.mean_prior, &self.posterior.covariance_prior];
        let of_prior = of_prior.into_iter().map(|numbers| numbers.as_ref().and_then(Numbers::file));
        self.data.table.inputs().chain([self.sample_weight.as_ref()]).chain(of_prior)
    }

    /// Adds the options that change the course of a fit: all but where it computes and, with
    /// `may_go_on`, when it ends.
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
            .with("standardize", self.standardize)
            .with("variational", self.is_variational()))
    }
}
