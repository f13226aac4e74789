//! `gmm bench likelihood`: the time of one evaluation for several devices and numbers of samples.
use super::options::{MixtureOptions, Named, OutputOptions, ascending, seconds};
use super::problem::{PARAMETER_SETS, Problem};
use super::report::{Missing, Workload, report};
use super::rows::Row;
use crate::commands::timing;
use crate::input::tuning_file;
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::device::{LoadOptions, load};
use gaussmix::model::CovarianceType;
use gaussmix::program::whole_number;
use ndarray::s;
use std::time::Duration;

/// The log-likelihood of N samples under a mixture of K components.
pub const LIKELIHOOD: Workload = Workload {
    title: |Row { d, k, .. }| format!("One evaluation of the log-likelihood, K = {k}, D = {d}"),
    items: "samples",
    header: ["device", "kernel", "N", "evaluation", "per sample"],
    about: |row| row.kernel.clone(),
};

/// Time one evaluation of the log-likelihood, for several devices and numbers of samples
///
/// Random float32 data stays on the device. Each time is the median of repeated evaluations with different parameters,
/// from the parameters of a mixture on the host to the total log-likelihood on the host.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm bench likelihood
  gmm bench likelihood --device cpu,cuda --n 1e3,1e5,1e7 --plot bench.svg
  gmm bench likelihood --device cuda --kernels --n 1e6 --json")]
pub struct Likelihood {
    #[command(flatten)]
    mixture: MixtureOptions,
    /// Numbers of samples
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1e2,1e3,1e4,1e5,1e6")]
    n: Vec<usize>,
    /// Time each kernel (code variant) of each device, not only the one that the device chooses
    #[arg(long)]
    kernels: bool,
    /// Seconds to spend on each measurement
    #[arg(long, value_parser = seconds, default_value = "0.5")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputOptions,
}

impl Likelihood {
    pub fn run(mut self) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        self.n = ascending(self.n);
        let MixtureOptions { device: devices, k, d } = &self.mixture;
        let most = self.n.last().copied().unwrap_or(1);
        let mut line = ProgressLine::start("making random data");
        let problem = Problem::random([most, *k, *d], CovarianceType::Diag)?;
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        for device in devices {
            let kernels = if self.kernels { device.kernels() } else { vec![None] };
            for kernel in kernels {
                if let Err(reason) = self.measure(device, kernel.clone(), &problem, &mut rows, &mut line) {
                    let (device, kernel) = (device.name.clone(), kernel.unwrap_or_default());
                    missing.push(Missing { device, kernel, reason });
                }
            }
        }
        drop(line);
        report(&LIKELIHOOD, &rows, missing, None, self.output.json, plot)
    }

    fn measure(
        &self,
        Named { name, device }: &Named,
        kernel: Option<String>,
        problem: &Problem,
        rows: &mut Vec<Row>,
        line: &mut ProgressLine,
    ) -> Result<(), Error> {
        let options = LoadOptions::new().kernel(kernel).tuning_file(tuning_file());
        for &n in &self.n {
            line.show(format!("measuring {name} with {} samples", text::grouped(n as u64)));
            let mut evaluator = load(*device, Samples::from_f32(problem.data.slice(s![..n, ..]))?, &options)?;
            let timing = timing::time(self.seconds, |i| {
                evaluator.log_likelihood(&problem.mixtures[i % PARAMETER_SETS]).map(drop)
            })?;
            let used = evaluator.describe().kernel;
            if options.kernel.as_ref().is_some_and(|requested| !used.starts_with(requested.as_str())) {
                // The requested kernel cannot evaluate the likelihood, and another one has done it.
                return Ok(());
            }
            let MixtureOptions { k, d, .. } = self.mixture;
            rows.push(Row { device: name.clone(), kernel: used, n, k, d, seconds: timing.median });
        }
        Ok(())
    }
}
