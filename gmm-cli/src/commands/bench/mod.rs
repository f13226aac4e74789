//! `gmm bench`: measured times, a subcommand for each thing that is measured.
mod accuracy;
mod crossover;
mod errors;
mod likelihood;
mod map;
mod markov_chain;
mod options;
mod pairs;
mod problem;
mod report;
mod rows;
mod workload;

use clap::{Args, Subcommand};

/// Measure times on this machine
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  gmm bench likelihood --plot bench.svg         from which number of samples on the GPU is faster
  gmm bench likelihood --device cuda --kernels --n 1e6 --json
  gmm bench accuracy --device cpu --n 1e5       the error of each kernel beside its time
  gmm bench map --plot map.svg                  the time over the floor of each number of features and components
  gmm bench mcmc --device cpu,cuda              a million evaluations in a Markov chain
  gmm bench inner-products                      vectors times a matrix, beside published times
  gmm bench report rows.json --plot bench.svg   draw what --json printed before"
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
    Mcmc(markov_chain::Mcmc),
    InnerProducts(pairs::InnerProducts),
    GaussianKernel(pairs::GaussianKernel),
    Report(report::Report),
}

impl Bench {
    pub fn run(self) -> anyhow::Result<()> {
        match self.subject {
            Subject::Likelihood(command) => command.run(),
            Subject::Accuracy(command) => command.run(),
            Subject::Map(command) => command.run(),
            Subject::Mcmc(command) => command.run(),
            Subject::InnerProducts(command) => command.run(),
            Subject::GaussianKernel(command) => command.run(),
            Subject::Report(command) => command.run(),
        }
    }
}
