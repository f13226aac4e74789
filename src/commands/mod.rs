//! The commands: one file each, from typed options to the engine and back to text.
mod advice;
mod bench;
mod bench_mcmc;
mod convert;
mod dataset;
mod devices;
mod files;
mod fit;
pub mod interrupt;
mod mcmc;
mod plot;
mod predict;
mod progress;
mod sample;
mod score;
mod select;
mod source;
mod text;
mod timing;
mod training;
mod watch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Gaussian mixtures at the speed of the hardware.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gmm fit data.npy -k 8 -o model.json         fit a mixture of 8 components
  gmm select data.npy -k 1:20 -o model.json   choose the number of components
  gmm score model.json data.npy               log-likelihood of the data
  gmm predict model.json data.npy -o k.npy    the most probable component of each sample
  gmm sample model.json -n 1000 -o new.npy    new samples
  gmm convert model.json model.npz            the same model, with scikit-learn's attribute names
  gmm mcmc data.npy -k 3 -o post              draws from the posterior, for ArviZ and the like
  gmm bench --plot bench.svg                  time per evaluation for N = 100 ... 1,000,000
  gmm devices                                 what there is to compute on

Exit codes: 0 done, 1 failure (the reason is on stderr), 2 wrong use, 130 ended by Ctrl-C,
SIGTERM or SIGHUP.";

#[derive(Debug, Subcommand)]
enum Command {
    Fit(fit::Fit),
    Select(select::Select),
    Score(score::Score),
    Predict(predict::Predict),
    Sample(sample::Sample),
    Mcmc(mcmc::Mcmc),
    Convert(convert::Convert),
    Bench(bench::Bench),
    Devices(devices::Devices),
}

/// An error with all its causes, in a form that a terminal can take.
pub fn harmless(error: &anyhow::Error) -> String {
    text::harmless(&format!("{error:#}")).into_owned()
}

impl Cli {
    /// Runs the command that was asked for.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self.command {
            Command::Fit(command) => command.run(),
            Command::Select(command) => command.run(),
            Command::Score(command) => command.run().map(done),
            Command::Predict(command) => command.run().map(done),
            Command::Sample(command) => command.run().map(done),
            Command::Mcmc(command) => command.run(),
            Command::Convert(command) => command.run().map(done),
            Command::Bench(command) => command.run().map(done),
            Command::Devices(command) => command.run().map(done),
        }
    }
}
