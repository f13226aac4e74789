//! The commands, each a file or a folder. A command turns typed options into calls of the engine and results into text.
mod adapt;
mod axis;
pub mod bench;
mod by_group;
mod compare;
mod completions;
mod convert;
mod devices;
mod fit;
mod hmm;
mod impute;
mod made;
mod man;
mod mcmc;
pub mod mpi;
mod numbers;
mod predict;
mod sample;
mod score;
mod select;
pub mod timing;
mod training;

use crate::exit_code::SUCCESS;
use crate::terminal::{Verbosity, text};
use clap::{CommandFactory, Parser, Subcommand};
use gaussmix::Reproducible;
use gaussmix::program::whole_number;

/// Gaussian mixture models on the CPU and on CUDA GPUs
#[derive(Debug, Parser)]
#[command(name = "gmm", version, arg_required_else_help = true, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The number of threads that compute. Default: one for each core
    #[arg(long, value_name = "N", global = true, value_parser = whole_number)]
    threads: Option<usize>,
    /// Compute with the same bits on every CPU, and on no GPU: slower on CPUs without AVX-512, and
    /// tens of times slower on those without fused multiply-adds
    #[arg(long, global = true)]
    reproducible: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

const EXAMPLES: &str = "\
Examples:
  gmm fit data.npy -k 8 -o model.json         fit a mixture of 8 components to data
  gmm select data.npy -k 1:20 -o model.json   choose the number of components
  gmm adapt model.json new.npy -o m.json      the model, adapted to a few samples
  gmm score model.json data.npy               log-likelihood of the data under the model
  gmm predict model.json data.npy -o k.npy    the most probable component of each sample
  gmm impute model.json data.csv -o full.csv  fill in missing values
  gmm sample model.json -n 1000 -o new.npy    draw new samples from the model
  gmm condition model.json x=1.8 -o c.json    the other features, given one
  gmm marginal model.json x,y -o m.json       some features alone
  gmm axis model.json x --hdr 0.9             quantiles and regions of highest density of a feature
  gmm compare a.json b.json                   how far two mixtures are from each other
  gmm reduce model.json -k 3 -o r.json        the mixture with fewer components
  gmm convert model.json model.npz            the same model under scikit-learn's attribute names
  gmm mcmc data.npy -k 3 -o post              draws from the posterior, for ArviZ and other tools
  gmm hmm fit w.csv --by id -k 3 -o h.json    hidden states of rows that stand in sequences
  gmm bench likelihood --plot bench.svg       time of one evaluation for N = 100 ... 1,000,000
  gmm devices                                 the devices and kernels of this machine
  source <(gmm completions bash)              complete commands and options with the tab key

Exit codes: 0 success, 1 failure (the reason is on stderr), 2 wrong options, 130 ended by Ctrl-C,
SIGTERM or SIGHUP.";

#[derive(Debug, Subcommand)]
enum Command {
    Fit(fit::Fit),
    Adapt(adapt::Adapt),
    Select(select::Select),
    Score(score::Score),
    Predict(predict::Predict),
    Impute(impute::Impute),
    Sample(sample::Sample),
    Mcmc(mcmc::Mcmc),
    Hmm(hmm::Hmm),
    Condition(made::Condition),
    Marginal(made::Marginal),
    Axis(axis::Axis),
    Compare(compare::Compare),
    Reduce(made::Reduce),
    Product(made::Product),
    Sum(made::Sum),
    Convert(convert::Convert),
    Bench(bench::Bench),
    Devices(devices::Devices),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Cli {
    pub fn run(self) -> anyhow::Result<u8> {
        self.verbosity.apply();
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        }
        let _same = self.reproducible.then(Reproducible::begin);
        let success = |()| SUCCESS;
        let code = match self.command {
            Command::Fit(command) => command.run(),
            Command::Adapt(command) => command.run().map(success),
            Command::Select(command) => command.run(),
            Command::Score(command) => command.run().map(success),
            Command::Predict(command) => command.run().map(success),
            Command::Impute(command) => command.run().map(success),
            Command::Sample(command) => command.run().map(success),
            Command::Mcmc(command) => command.run(),
            Command::Hmm(command) => command.run().map(success),
            Command::Condition(command) => command.run().map(success),
            Command::Marginal(command) => command.run().map(success),
            Command::Axis(command) => command.run().map(success),
            Command::Compare(command) => command.run().map(success),
            Command::Reduce(command) => command.run().map(success),
            Command::Product(command) => command.run().map(success),
            Command::Sum(command) => command.run().map(success),
            Command::Convert(command) => command.run().map(success),
            Command::Bench(command) => command.run().map(success),
            Command::Devices(command) => command.run().map(success),
            Command::Completions(command) => command.run(Self::command()).map(success),
            Command::Man(command) => command.run(Self::command()).map(success),
        };
        text::tell(|| "done".into());
        code
    }
}
