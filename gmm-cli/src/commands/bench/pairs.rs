//! `gmm bench inner-products` and `gmm bench gaussian-kernel`: work on pairs of vectors, which needs
//! no mixture.
use super::options::{Named, OutputOptions, ascending, seconds};
use super::report::{Missing, report};
use super::rows::Row;
use super::workload::{self, Workload};
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::program::whole_number;
use std::time::Duration;

/// Time the products of N vectors with a resident matrix of K rows, beside published times
///
/// Each time is the median of repeated calls, from vectors on the host to products on the host.
#[derive(Debug, Args)]
pub struct InnerProducts {
    #[command(flatten)]
    common: Common,
    /// Numbers of vectors
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1,10,100,1e3,1e4,5e4")]
    n: Vec<usize>,
    /// Number of rows of the matrix
    #[arg(short, value_parser = whole_number, default_value = "1000")]
    k: usize,
    /// Number of numbers of a vector
    #[arg(short, value_parser = whole_number, default_value = "1000")]
    d: usize,
    /// Time the shape of the published times too, which takes 1.3 GB
    #[arg(long)]
    published: bool,
}

/// Time exp(−γ‖a − b‖²) of N resident pairs of rows, beside published times
///
/// Each time is the median of repeated calls, until the values are on the host.
#[derive(Debug, Args)]
pub struct GaussianKernel {
    #[command(flatten)]
    common: Common,
    /// Numbers of pairs
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "10,100,1e3,1e4,1e5,1e6")]
    n: Vec<usize>,
    /// Number of features
    #[arg(short, value_parser = whole_number, default_value = "20")]
    d: usize,
}

#[derive(Debug, Args)]
struct Common {
    /// Devices to compare: reference, cpu, cuda, cuda:N or auto
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', default_value = "cpu,cuda")]
    device: Vec<Named>,
    /// Seconds to spend on each measurement
    #[arg(long, value_parser = seconds, default_value = "0.5")]
    seconds: Duration,
    #[command(flatten)]
    output: OutputOptions,
}

impl InnerProducts {
    pub fn run(self) -> anyhow::Result<()> {
        let own = ascending(self.n).into_iter().map(|n| [n, self.d, self.k]);
        let published = self.published.then_some(workload::LARGE_PRODUCT);
        self.common.run(Workload::InnerProducts, &own.chain(published).collect::<Vec<_>>())
    }
}

impl GaussianKernel {
    pub fn run(self) -> anyhow::Result<()> {
        let shapes: Vec<_> = ascending(self.n).into_iter().map(|n| [n, self.d, 1]).collect();
        self.common.run(Workload::GaussianKernel, &shapes)
    }
}

impl Common {
    /// Times the work for each shape (N, D, K) on each device.
    fn run(self, workload: Workload, shapes: &[[usize; 3]]) -> anyhow::Result<()> {
        let plot = self.output.create()?;
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        let mut line = ProgressLine::start("measuring");
        for Named { name, device } in &self.device {
            for &[n, d, k] in shapes {
                line.show(format!("measuring {name} with {} {}", text::grouped(n as u64), workload.items().0));
                match workload::time(workload, *device, [n, d, k], self.seconds) {
                    Ok(seconds) => {
                        let kernel = workload.name().into();
                        rows.push(Row { device: name.clone(), kernel, n, k, d, seconds });
                    }
                    Err(reason) => {
                        missing.push(Missing { device: name.clone(), kernel: String::new(), reason });
                        break;
                    }
                }
            }
        }
        drop(line);
        report(workload, &rows, missing, self.output.json, plot)
    }
}
