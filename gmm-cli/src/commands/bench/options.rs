//! Options that several benches share.
use crate::terminal::text;
use clap::Args;
use gaussmix::Error;
use gaussmix::device::{Device, kernel_names};
use gaussmix::io::Output;
use gaussmix::program::whole_number;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A device, and the name the user gave it.
#[derive(Debug, Clone)]
pub struct Named {
    /// The name as given.
    pub name: String,
    /// The device.
    pub device: Device,
}

impl FromStr for Named {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(Self { name: name.into(), device: name.parse()? })
    }
}

impl Named {
    /// Returns the kernels of the device, or `[None]` if it has none: the device is loaded all the same, and the error
    /// says why it cannot be used.
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
    /// Print an array of JSON objects, one for each measurement, with times in seconds
    #[arg(long)]
    pub json: bool,
    /// Draw the times
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

impl OutputOptions {
    /// Opens the plot's file before anything is measured. Errors: if it cannot be written.
    pub fn create(&self) -> anyhow::Result<Option<Output>> {
        Ok(self.plot.as_ref().map(Output::create).transpose()?)
    }

    /// Writes the plot, if requested, and says so unless JSON was printed.
    pub(super) fn draw(
        plot: Option<Output>,
        json: bool,
        svg: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let Some(plot) = plot else { return Ok(()) };
        let svg = svg()?;
        plot.write(|file| file.write_all(svg.as_bytes()))?;
        if !json {
            text::print(format!("\nplot: {plot}"))?;
        }
        Ok(())
    }
}

/// Parses a number of seconds, from 0 to an hour.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.0..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be between 0 and 3600".into())
}

/// Returns the distinct numbers in ascending order.
pub fn ascending(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
