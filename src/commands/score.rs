//! `gmm score`: the log-likelihood of a mixture over a data set.
use super::text;
use super::timing::{self, Timing};
use anyhow::{Context, bail};
use clap::Args;
use gmm::io::{self, Output};
use gmm::{Device, LoadOptions};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the evaluation is repeated for its time.
const TIMING_BUDGET: Duration = Duration::from_millis(100);

/// Log-likelihood of a data set under a mixture
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm score model.json data.npy
  gmm score model.json data.csv --device reference --json
  gmm score model.json data.npy --per-sample scores.npy")]
pub struct Score {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The data (samples × features): .npy (float32 or float64) or .csv (with or without a header)
    data: PathBuf,
    /// Where to compute: auto, cpu, cuda, cuda:N or reference
    #[arg(long, default_value = "auto")]
    device: Device,
    /// The kernel (code variant) to use instead of the one that the device chooses
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Write the log-likelihood of each sample to this file (float64, .npy)
    #[arg(long, value_name = "OUT.npy")]
    per_sample: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Row {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    log_likelihood: f64,
    mean_log_likelihood: f64,
    device: String,
    kernel: String,
    seconds: f64,
}

impl Score {
    pub fn run(self) -> anyhow::Result<()> {
        let output = self.per_sample.as_deref().map(|path| self.open(path)).transpose()?;
        let mixture = io::read_model(&self.model)?;
        let data = io::read_data(&self.data)?;
        let samples = data.samples().with_context(|| self.data.display().to_string())?;
        let mut evaluator = gmm::load(self.device, samples, &LoadOptions { kernel: self.kernel.clone() })?;
        let log_likelihood = evaluator
            .log_likelihood(&mixture)
            .with_context(|| format!("{} over {}", self.model.display(), self.data.display()))?;
        let Timing { median, repetitions } =
            timing::time(TIMING_BUDGET, |_| evaluator.log_likelihood(&mixture).map(drop))?;
        let description = evaluator.describe();
        if let Some(output) = output {
            let scores = evaluator.score_samples(&mixture)?;
            output.write(|file| io::write_npy(&scores, file))?;
        }
        let (n, d) = data.dim();
        let row = Row {
            n,
            d,
            k: mixture.n_components(),
            covariance_type: mixture.covariance_type().name(),
            log_likelihood,
            mean_log_likelihood: log_likelihood / n as f64,
            device: description.device,
            kernel: description.kernel,
            seconds: median,
        };
        if self.json { text::print_json(&row) } else { Ok(text::print(self.report(&row, data.dtype(), repetitions))?) }
    }

    fn open(&self, path: &Path) -> anyhow::Result<Output> {
        for input in [&self.model, &self.data] {
            if let (Ok(a), Ok(b)) = (path.canonicalize(), input.canonicalize())
                && a == b
            {
                bail!("{}: is an input; name another file for the result", path.display());
            }
        }
        Ok(Output::create(path)?)
    }

    fn report(&self, row: &Row, dtype: &str, repetitions: usize) -> String {
        let mut lines = vec![
            format!(
                "data            {}: {} samples × {} features, {dtype}",
                self.data.display(),
                text::grouped(row.n as u64),
                row.d
            ),
            format!("model           {}: {} components, {}", self.model.display(), row.k, row.covariance_type),
            format!("log-likelihood  {}", row.log_likelihood),
            format!("  per sample    {}", row.mean_log_likelihood),
            format!("computed by     {}, kernel {}", row.device, row.kernel),
            format!(
                "one evaluation  {} (median of {}), {} per sample, {} an hour",
                text::seconds(row.seconds),
                text::grouped(repetitions as u64),
                text::seconds(row.seconds / row.n as f64),
                text::count(3600.0 / row.seconds)
            ),
        ];
        lines.extend(self.per_sample.as_ref().map(|path| format!("per sample      written to {}", path.display())));
        lines.join("\n")
    }
}
