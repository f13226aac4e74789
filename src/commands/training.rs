//! The options of a fit, with scikit-learn's names and defaults.
use super::bench::whole_number;
use super::source::DataOptions;
use clap::Args;
use gmm::io::Identity;
use gmm::{GaussianMixtureParams, InitParams};
use std::path::PathBuf;

/// What `fit` and `select` have in common.
#[derive(Debug, Args)]
pub struct Training {
    #[command(flatten)]
    pub data: DataOptions,
    /// A fit has converged when an iteration changes the mean log-likelihood of a sample by less than this
    #[arg(long, default_value_t = 1e-3, allow_negative_numbers = true)]
    tol: f64,
    /// Most iterations of a run
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub max_iter: usize,
    /// Added to every variance, in squared units of the data (of standard deviations, with --standardize)
    #[arg(long, value_name = "VARIANCE", default_value_t = 1e-6, allow_negative_numbers = true)]
    reg_covar: f64,
    /// Runs from different starts, of which the best is kept
    #[arg(long, value_name = "RUNS", default_value = "1", value_parser = whole_number)]
    pub n_init: usize,
    /// How to find a start: kmeans, k-means++, random or random_from_data
    #[arg(long, value_name = "METHOD", default_value = "kmeans")]
    init_params: InitParams,
    /// Seed of every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A weight for each sample (a sample of weight 2 counts as two): .npy of shape (samples,) or .csv with one column
    #[arg(long, value_name = "FILE")]
    pub sample_weight: Option<PathBuf>,
    /// Fit to columns of mean 0 and standard deviation 1
    ///
    /// The start and --reg-covar then treat all columns alike. The model and all figures are in the data's own units all
    /// the same, converted without loss; the covariances of a `spherical` fit differ by column there: its model is `diag`.
    #[arg(long)]
    pub standardize: bool,
}

impl Training {
    pub fn params(&self) -> GaussianMixtureParams {
        GaussianMixtureParams::default()
            .tol(self.tol)
            .max_iter(self.max_iter)
            .reg_covar(self.reg_covar)
            .n_init(self.n_init)
            .init_params(self.init_params)
            .random_state(self.seed)
    }

    /// Adds the options that change the course of a fit. `--tol` and `--max-iter` say only when it ends: a fit that has
    /// ended may be taken further.
    pub fn identify(&self, identity: Identity) -> Identity {
        // All are named here, so that a new one is not forgotten.
        let Self { data: _, tol: _, max_iter: _, reg_covar, n_init, init_params, seed, sample_weight: _, standardize } =
            self;
        identity
            .with("reg-covar", *reg_covar)
            .with("n-init", *n_init)
            .with("init-params", init_params.name())
            .with("seed", *seed)
            .with("standardize", *standardize)
    }
}
