//! Measures what `gmm bench` does not: `cargo run --release -p gmm-bench -- --help`, docs/measuring.md.
mod batch;
mod commands;
mod em;
mod many;
mod markov_chain;
mod metropolis;
mod missing;
mod operations;
mod pairs;
mod pairwise;
mod several;
mod variational;

use clap::Parser;
use gaussmix::memory;
use gaussmix_cli::bench::{numbers, time};
use ndarray::Array2;
use std::process::ExitCode;
use std::time::Duration;

/// Measure what `gmm bench` does not
///
/// Times are medians, from parameters on the host to results on the host unless a column says otherwise. Samples are
/// float32, from a standard normal distribution.
#[derive(Debug, Parser)]
#[command(name = "gmm-bench", arg_required_else_help = true, max_term_width = 100)]
enum Bench {
    Mcmc(markov_chain::Mcmc),
    InnerProducts(pairs::InnerProducts),
    GaussianKernel(pairs::GaussianKernel),
    Report(pairs::Report),
    Batch(batch::Batch),
    Operations(operations::Operations),
    Metropolis(metropolis::Metropolis),
    Several(several::Several),
    Missing(missing::Missing),
    Variational(variational::Variational),
    Many(many::Many),
    Pairwise(pairwise::Pairwise),
    Commands(commands::Commands),
    #[command(subcommand)]
    Em(em::Em),
}

fn main() -> ExitCode {
    let measured = match Bench::parse() {
        Bench::Mcmc(bench) => bench.run(),
        Bench::InnerProducts(bench) => bench.run(),
        Bench::GaussianKernel(bench) => bench.run(),
        Bench::Report(bench) => bench.run(),
        Bench::Batch(bench) => bench.run(),
        Bench::Operations(bench) => bench.run(),
        Bench::Metropolis(bench) => bench.run(),
        Bench::Several(bench) => bench.run(),
        Bench::Missing(bench) => bench.run(),
        Bench::Variational(bench) => bench.run(),
        Bench::Many(bench) => bench.run(),
        Bench::Pairwise(bench) => bench.run(),
        Bench::Commands(bench) => bench.run(),
        Bench::Em(bench) => bench.run(),
    };
    let Err(error) = measured else { return ExitCode::SUCCESS };
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}

/// The median time of a call, in seconds; `work` gets the number of the call.
fn median<E>(work: impl FnMut(usize) -> Result<(), E>) -> Result<f64, E> {
    time(Duration::from_millis(300), work).map(|timing| timing.median)
}

/// N samples of D independent, normal features.
fn normal(n: usize, d: usize) -> gaussmix::Result<Array2<f32>> {
    memory::check("the samples and their copies", &[n, d], 3 * size_of::<f32>(), "use fewer samples or features")?;
    Ok(Array2::from_shape_vec((n, d), numbers(n * d, 0.0)).expect("N·D numbers"))
}
