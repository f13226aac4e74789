//! The commands: one file each, from typed options to the engine and back to text.
mod bench;
mod convert;
mod devices;
mod plot;
mod score;
mod text;
mod timing;

use clap::{Parser, Subcommand};

/// Gaussian mixtures at the speed of the hardware.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gmm score model.json data.npy          log-likelihood of the data, on the fastest device found
  gmm convert model.json model.npz       the same model, with scikit-learn's attribute names
  gmm bench --plot bench.svg             time per evaluation for N = 100 ... 1,000,000
  gmm devices                            what there is to compute on

Exit codes: 0 done, 1 failure (the reason is on stderr), 2 wrong use.";

#[derive(Debug, Subcommand)]
enum Command {
    Score(score::Score),
    Convert(convert::Convert),
    Bench(bench::Bench),
    Devices(devices::Devices),
}

impl Cli {
    /// Runs the command that was asked for.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Score(command) => command.run(),
            Command::Convert(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Devices(command) => command.run(),
        }
    }
}
