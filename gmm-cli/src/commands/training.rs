//! The options of a fit, with scikit-learn's names and defaults.
use super::values::{whole_number, whole_number_or_0};
use crate::input::{DataOptions, Source};
use crate::terminal::text;
use clap::Args;
use gaussmix::fit::{BayesianGaussianMixtureParams, GaussianMixtureParams, InitParams, MapPrior, Regularized};
use gaussmix::io::Identity;
use std::path::PathBuf;

/// The options that `fit` and `select` have in common.
#[derive(Debug, Args)]
pub struct Training {
    #[command(flatten)]
    pub data: DataOptions,
    /// A fit has converged when an iteration changes the mean log-likelihood of a sample by less
    /// than this; with --variational, the lower bound of all samples
    #[arg(long, default_value_t = 1e-3, allow_negative_numbers = true)]
    tol: f64,
    /// Most iterations of a run
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = whole_number_or_0)]
    pub max_iter: usize,
    /// Added to every variance, in squared units of the data (of standard deviations, with
    /// --standardize)
    #[arg(long, value_name = "VARIANCE", default_value = "1e-6", allow_negative_numbers = true)]
    reg_covar: f64,
    /// Number of runs from different starts; the best of them is the result
    #[arg(long, value_name = "RUNS", default_value = "1", value_parser = whole_number)]
    pub n_init: usize,
    /// Drop poor runs of --n-init early: all make 5 iterations, and the half with the lower bounds is
    /// dropped; the others go on to 10, 20, 40, … iterations, until one is left
    ///
    /// It takes about half of the iterations. A run that begins slowly can be dropped although it
    /// would have been the best.
    #[arg(long)]
    pub halving: bool,
    /// Find the mode of the posterior under a prior, so that no component collapses: default, or
    /// numbers that differ from it, as in mean_precision=1,degrees_of_freedom=9,weight_concentration=2
    #[arg(long, value_name = "PRIOR", conflicts_with = "variational")]
    pub prior: Option<MapPrior>,
    /// How to find a start: kmeans, k-means++, random or random_from_data
    #[arg(long, value_name = "METHOD", default_value = "kmeans")]
    init_params: InitParams,
    /// Seed of every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
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
}

impl Training {
    pub fn params(&self) -> GaussianMixtureParams {
        let params = GaussianMixtureParams::default()
            .tol(self.tol)
            .max_iter(self.max_iter)
            .reg_covar(self.reg_covar)
            .n_init(self.n_init)
            .halving(self.halving)
            .init_params(self.init_params)
            .random_state(self.seed);
        match &self.prior {
            Some(prior) => params.prior(prior.clone()),
            None => params,
        }
    }

    /// As [`params`](Self::params), of variational inference.
    pub fn bayesian_params(&self) -> BayesianGaussianMixtureParams {
        BayesianGaussianMixtureParams::default()
            .tol(self.tol)
            .max_iter(self.max_iter)
            .reg_covar(self.reg_covar)
            .n_init(self.n_init)
            .halving(self.halving)
            .init_params(self.init_params)
            .random_state(self.seed)
    }

    /// Notes on the terminal where `--reg-covar` is large beside the variance of a column. Standardised
    /// columns have the variance 1, so that it was chosen in their units.
    pub fn note_regularization(&self, source: &Source<'_>, fitted: &impl Regularized) {
        let found = fitted.over_regularized(self.reg_covar).filter(|_| source.standardization.is_none());
        let Some((column, variance)) = found else { return };
        let name = source.names().map_or_else(|| column.to_string(), |names| names[column].clone());
        text::note(format_args!(
            "--reg-covar {:e} is more than a thousandth of the variance of column `{name}`, {variance:.1e}: the fit depends on \
             the units; use --standardize, or a smaller --reg-covar",
            self.reg_covar
        ));
    }

    /// The files that are read.
    pub fn inputs(&self) -> impl Iterator<Item = Option<&PathBuf>> {
        self.data.table.inputs().chain([self.sample_weight.as_ref()])
    }

    /// Adds the options that say when a fit ends.
    pub fn identify_end(&self, identity: Identity) -> Identity {
        identity.with("tol", self.tol).with("max-iter", self.max_iter)
    }

    /// Adds the options that change the course of a fit. `--tol` and `--max-iter` only say when it
    /// ends, so that a fit may go on with other values of them.
    pub fn identify(&self, identity: Identity) -> Identity {
        // The pattern names all options, so that a new one cannot be forgotten here.
        let Self {
            data: _,
            tol: _,
            max_iter: _,
            reg_covar,
            n_init,
            // The state of all runs is in no checkpoint: --halving and --checkpoint are refused together.
            halving: _,
            prior,
            init_params,
            seed,
            sample_weight: _,
            standardize,
        } = self;
        let identity = match prior {
            Some(MapPrior { weight_concentration, mean_precision, degrees_of_freedom, .. }) => identity.with(
                "prior",
                format!(
                    "{weight_concentration},{mean_precision},{}",
                    degrees_of_freedom.map_or("D+2".into(), |v| v.to_string())
                ),
            ),
            // As checkpoints that were made without this option.
            None => identity,
        };
        identity
            .with("reg-covar", *reg_covar)
            .with("n-init", *n_init)
            .with("init-params", init_params.name())
            .with("seed", *seed)
            .with("standardize", *standardize)
    }
}
