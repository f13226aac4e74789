//! The arguments of `python -m gaussmix.mpi`, whose processes do together what `fit`, `select`, `score` and `predict` do
//! in one.
use super::select::{Models, Range, range};
use super::training::{FitArguments, Posterior};
use crate::terminal::text;
use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser};
use gaussmix::model::CovarianceModel;
use gaussmix::program::whole_number;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 8 -o model.json
  mpiexec -n 64 python -m gaussmix.mpi fit 'frames/*.npy' -k 32 --covariance-type diag --device cuda --verbose -o model.npz
  mpiexec -n 4 python -m gaussmix.mpi fit x.npy -k 20 --variational --mean-prior 0,0,1.5 -o model.json
  mpiexec -n 4 python -m gaussmix.mpi fit new.npy --init model.json --freeze means=0,2,weights -o refitted.json
  mpiexec -n 4 python -m gaussmix.mpi select x.npy -k 1:20 --covariance-type full,diag -o model.json
  mpiexec -n 4 python -m gaussmix.mpi score model.json x.npy
  mpiexec -n 4 python -m gaussmix.mpi predict model.json x.npy -o labels.npy
  mpiexec -n 4 python -m gaussmix.mpi fit holes.parquet --missing -k 8 -o model.json

Samples are .npy files (N, D) of float64 or float32, or Parquet files of which all columns are numbers; all ranks must see
them. Models are those of the command gmm and of GaussianMixture.load. The exit code is 0 after success, 1 after a
failure, 2 for wrong arguments, and 130 after Ctrl-C, which ends a fit after the present iteration and writes its model.";

/// Fits and applies Gaussian mixtures with all ranks of an MPI job
#[derive(Debug, Parser, Serialize)]
#[command(name = "python -m gaussmix.mpi", after_help = EXAMPLES, max_term_width = 100)]
#[serde(tag = "command", rename_all = "lowercase")]
enum Mpi {
    /// Fit a mixture and write it to a file
    #[command(after_help = EXAMPLES)]
    Fit(Box<Fit>),
    /// Fit mixtures of several numbers of components and covariance types, and select the best
    #[command(after_help = EXAMPLES)]
    Select(Box<Select>),
    /// Print the mean log-likelihood of the samples, BIC and AIC
    #[command(after_help = EXAMPLES)]
    Score(Score),
    /// Write a value for each sample to a .npy file
    #[command(after_help = EXAMPLES)]
    Predict(Predict),
}

#[derive(Debug, Args, Serialize)]
struct Samples {
    /// Files of samples, or patterns of their names
    #[arg(value_name = "DATA", required = true)]
    data: Vec<String>,
    /// Where each rank computes: auto, cpu, cuda (another GPU for each rank of a computer), cuda:N, several of these as
    /// cuda:0,cpu, or reference
    #[arg(long, default_value = "auto")]
    device: String,
    /// The number of threads of a rank, as joblib counts. Default: its share of the cores
    #[arg(long = "threads", visible_alias = "n-jobs", value_name = "N", allow_negative_numbers = true)]
    n_jobs: Option<i64>,
    /// The rows of a partition, whose division decides the last bits of the result. Default: about 512 partitions of 4 to
    /// 256 MiB
    #[arg(long, value_name = "ROWS", value_parser = whole_number)]
    partition_rows: Option<usize>,
    /// Treat NaN in the data, and a null of Parquet, as a missing value
    #[arg(long)]
    missing: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args, Serialize)]
struct Training {
    #[command(flatten)]
    #[serde(flatten)]
    samples: Samples,
    /// .npy files of sample weights (N,)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    sample_weight: Option<Vec<String>>,
    #[command(flatten)]
    #[serde(skip)]
    fit: FitArguments,
    /// Whether partitions of files stay in the memory of their workers; others are read again in each iteration. Default:
    /// as many stay as half of the memory holds
    #[arg(long, value_name = "WHETHER", default_value = "auto", value_parser = PossibleValuesParser::new(["auto", "yes", "no"]))]
    resident: String,
    /// Compute with the same bits on every CPU, and on no GPU
    #[arg(long)]
    reproducible: bool,
    /// Print iterations to stderr
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Args, Serialize)]
struct Fit {
    #[command(flatten)]
    #[serde(flatten)]
    training: Training,
    /// The number of components; needed without --init
    #[arg(short = 'k', long, value_name = "K", value_parser = whole_number, required_unless_present = "init")]
    n_components: Option<usize>,
    /// The model of the covariances: full, tied, diag, spherical, or one of mclust's 14, such as VEV. Default: that of
    /// --init, or full
    #[arg(long, value_name = "TYPE")]
    covariance_type: Option<CovarianceModel>,
    /// A model to start at; with --variational, the posterior that it has
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["n_init", "init_params"])]
    init: Option<String>,
    /// What is known of the samples' components: .npy files of a number for each sample, that of its component counted from
    /// 0, or -1 where it is not known; or of a mask (N, K) of those it may belong to. Components are numbered as the labels
    /// say
    #[arg(long, value_name = "FILE", num_args = 1..)]
    labels: Option<Vec<String>>,
    /// The model to write, .json or .npz
    #[arg(short, long, value_name = "MODEL", value_parser = model)]
    output: String,
    #[command(flatten)]
    #[serde(skip)]
    posterior: Posterior,
}

#[derive(Debug, Args, Serialize)]
struct Select {
    #[command(flatten)]
    #[serde(flatten)]
    training: Training,
    /// Numbers of components to try: 1:20 (both included), 10:100:10 (in steps) or 2,4,8
    #[arg(short = 'k', long, value_name = "RANGE", value_delimiter = ',', value_parser = range, required = true)]
    n_components: Vec<Range>,
    /// Models of the covariances to try, separated by commas, or all of mclust's
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "full", value_parser = CovarianceModel::several)]
    covariance_type: Vec<Models>,
    /// The criterion to choose by; the lowest value is the best
    #[arg(long, default_value = "bic", value_parser = PossibleValuesParser::new(["bic", "aic", "icl"]))]
    criterion: String,
    /// Where to write the best model, .json or .npz
    #[arg(short, long, value_name = "MODEL", value_parser = model)]
    output: Option<String>,
}

#[derive(Debug, Args, Serialize)]
struct Score {
    /// A model, .json or .npz
    model: String,
    #[command(flatten)]
    #[serde(flatten)]
    samples: Samples,
    /// .npy files of sample weights (N,)
    #[arg(long, value_name = "FILE", num_args = 1..)]
    sample_weight: Option<Vec<String>>,
}

#[derive(Debug, Args, Serialize)]
struct Predict {
    /// A model, .json or .npz
    model: String,
    #[command(flatten)]
    #[serde(flatten)]
    samples: Samples,
    /// The .npy file to write
    #[arg(short, long, value_name = "FILE", value_parser = array)]
    output: String,
    /// The most probable component, the probabilities of all, or the log-likelihood
    #[arg(long, default_value = "labels", value_parser = PossibleValuesParser::new(["labels", "proba", "scores"]))]
    values: String,
}

fn model(name: &str) -> Result<String, &'static str> {
    if name.ends_with(".json") || name.ends_with(".npz") { Ok(name.into()) } else { Err("must end in .json or .npz") }
}

fn array(name: &str) -> Result<String, &'static str> {
    if name.ends_with(".npy") { Ok(name.into()) } else { Err("must end in .npy") }
}

impl Mpi {
    /// Returns the options of a fit that stand on the command line, by the library's names.
    fn params(&self, matches: &ArgMatches) -> anyhow::Result<Value> {
        let (training, posterior) = match self {
            Self::Fit(fit) => (&fit.training, Some(&fit.posterior)),
            Self::Select(select) => (&select.training, None),
            Self::Score(_) | Self::Predict(_) => return Ok(json!({})),
        };
        let mut params = training.fit.given(matches)?;
        params.retain(|name, _| !["n_components", "covariance_type", "device"].contains(&name.as_str()));
        params.insert("reproducible".into(), training.reproducible.into());
        if let Some(posterior) = posterior {
            params.append(&mut posterior.given(matches)?);
        }
        Ok(params.into())
    }
}

/// Returns the arguments by their names, those of a fit as `params`; or a text to print and the exit code.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Value {
    let mut command = Mpi::command();
    let name = OsString::from("python -m gaussmix.mpi");
    let parsed = command.try_get_matches_from_mut(std::iter::once(name).chain(given));
    let parsed = parsed.and_then(|matches| Ok((Mpi::from_arg_matches(&matches)?, matches)));
    let (parsed, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return json!({"text": text::message(&message.to_string()), "code": message.exit_code()}),
    };
    let matches = matches.subcommand().map_or(&matches, |(_, of_command)| of_command);
    let found = parsed.params(matches).and_then(|params| Ok((serde_json::to_value(&parsed)?, params)));
    match found {
        Ok((mut found, params)) => {
            found["variational"] = matches!(&parsed, Mpi::Fit(fit) if fit.posterior.variational).into();
            found["params"] = params;
            found
        }
        Err(error) => json!({"text": format!("error: {error:#}\n"), "code": 2}),
    }
}
