//! Options that several benches have.
use clap::Args;
use gaussmix::Error;
use gaussmix::device::{Device, kernel_names};
use gaussmix::io::Output;
use gaussmix::program::whole_number;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A device, and the name by which the user asked for it.
#[derive(Debug, Clone)]
pub struct Named {
    pub name: String,
    pub device: Device,
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(Self { name: name.into(), device: name.parse()? })
    }
}

impl Named {
    /// The kernels of the device; `None` alone if it has none. It is loaded all the same then: the
    /// error says why it cannot be used.
    pub fn kernels(&self) -> Vec<Option<String>> {
        let names = kernel_names(&self.device);
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
    }
}

/// The devices and the shape of a mixture.
#[derive(Debug, Args)]
pub struct MixtureOptions {
    /// Devices to compare: reference, cpu, cuda, cuda:N, cuda:all or auto
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', default_value = "reference,cpu,cuda")]
    pub device: Vec<Named>,
    /// Number of mixture components
    #[arg(short, value_parser = whole_number, default_value = "8")]
    pub k: usize,
    /// Number of features
    #[arg(short, value_parser = whole_number, default_value = "13")]
    pub d: usize,
}

/// Where the times go.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Print an array of rows `device, kernel, n, k, d, seconds` as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the times over the number of samples, both axes logarithmic
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

impl OutputOptions {
    /// Makes sure that the plot can be written, before anything is measured.
    pub fn create(&self) -> anyhow::Result<Option<Output>> {
        Ok(self.plot.as_ref().map(Output::create).transpose()?)
    }
}

/// A number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.0..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be between 0 and 3600".into())
}

/// Distinct numbers in ascending order.
pub fn ascending(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
