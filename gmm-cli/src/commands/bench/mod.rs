//! `gmm bench`: measured times, with a subcommand for each workload.
mod accuracy;
mod crossover;
mod errors;
mod likelihood;
mod map;
mod options;
mod problem;
mod report;
mod rows;

use clap::{Args, Subcommand};

pub use likelihood::LIKELIHOOD;
pub use map::{Rates, Task};
pub use options::{MixtureOptions, Named, OutputOptions, ascending, seconds};
pub use problem::{Problem, mixtures, numbers};
pub use report::{Missing, Workload, report};
pub use rows::{Row, print_rows};

/// Measure times on this machine
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  gmm bench likelihood --plot bench.svg         from which number of samples on the GPU is faster
  gmm bench likelihood --device cuda --kernels --n 1e6 --json
  gmm bench accuracy --device cpu --n 1e5       the error of each kernel beside its time
  gmm bench map --plot map.svg                  the time over the floor of each number of features and components"
)]
pub struct Bench {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    Likelihood(likelihood::Likelihood),
    Accuracy(accuracy::Accuracy),
    Map(map::MapOfShapes),
}

impl Bench {
    pub fn run(self) -> anyhow::Result<()> {
        match self.subject {
            Subject::Likelihood(command) => command.run(),
            Subject::Accuracy(command) => command.run(),
            Subject::Map(command) => command.run(),
        }
    }
}
