//! `gmm bench accuracy`: the error of each kernel against the float64 reference, beside its time.
use super::errors::{Errors, StatisticsErrors, Truth, in_words};
use super::options::{MixtureOptions, Named, seconds};
use super::problem::Problem;
use super::rows::print_rows;
use crate::commands::timing;
use crate::input::tuning_file;
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::{Operation, Precision, ReferenceEvaluator};
use gaussmix::model::{CovarianceType, Mixture};
use gaussmix::program::whole_number;
use serde::Serialize;
use std::time::Duration;

const FLOAT64: &str = "float64";

/// A measurement as `--json` prints it. Errors are against the reference over the same numbers.
#[derive(Debug, Serialize)]
struct Row {
    device: String,
    kernel: String,
    precision: &'static str,
    /// `total`, the log-likelihood, or `estep`, the log-likelihood and the sufficient statistics.
    operation: &'static str,
    n: usize,
    k: usize,
    d: usize,
    covariance_type: &'static str,
    seconds: f64,
    #[serde(flatten)]
    errors: Errors,
}

/// Show the error of each kernel of each device beside its time, in float32 and float64
///
/// Shows the errors of the log-likelihood and of an E-step, against the float64 reference over the same random numbers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm bench accuracy --device cpu --n 1e5
  gmm bench accuracy --covariance-type full --device cuda -k 64 -d 32")]
pub struct Accuracy {
    #[command(flatten)]
    mixture: MixtureOptions,
    /// Number of samples
    #[arg(long, value_parser = whole_number, default_value = "1e6")]
    n: usize,
    /// The shape of the covariances: full, tied, diag or spherical
    #[arg(long, default_value = "diag", value_name = "TYPE")]
    covariance_type: CovarianceType,
    /// Seconds to spend on each measurement
    #[arg(long, value_parser = seconds, default_value = "0.5")]
    seconds: Duration,
    /// Print the rows of the table as JSON
    #[arg(long)]
    json: bool,
}

impl Accuracy {
    pub fn run(self) -> anyhow::Result<()> {
        let mut line = ProgressLine::start("making random data");
        let problem = Problem::random([self.n, self.mixture.k, self.mixture.d], self.covariance_type)?;
        let (samples, mixture) = (Samples::from_f32(problem.data.view())?, &problem.mixtures[0]);
        let bench = Bench { samples, mixture, budget: self.seconds };
        line.show("evaluating the reference".into());
        let truth = Truth::new(&mut ReferenceEvaluator::new(bench.samples.clone()), mixture)?;
        let (mut rows, mut notes): (Vec<Row>, Vec<String>) = (Vec::new(), Vec::new());
        for named in &self.mixture.device {
            let Named { name, device } = named;
            let kernels = named.kernels();
            let mut measure = |kernel: Option<&str>, precision| {
                let label = kernel.map_or_else(|| name.clone(), |kernel| format!("{name} ({kernel})"));
                line.show(format!("measuring {label}"));
                match bench.measure(*device, kernel, precision, &truth) {
                    Ok(measured) => rows.extend(measured.into_iter().map(|row| Row { device: name.clone(), ..row })),
                    Err(error) => {
                        let note = format!("{label}: {error}");
                        if !notes.contains(&note) {
                            notes.push(note);
                        }
                    }
                }
                rows.iter().any(|row| row.device == *name && row.precision == FLOAT64)
            };
            for kernel in &kernels {
                measure(kernel.as_deref(), Precision::Float32);
            }
            let by_kernels = kernels.iter().fold(false, |_, kernel| measure(kernel.as_deref(), Precision::Float64));
            if !by_kernels {
                // A GPU computes in float64 only if no kernel is requested.
                measure(None, Precision::Float64);
            }
        }
        drop(line);
        print_rows(&rows, &notes, self.json, report)
    }
}

struct Bench<'a> {
    samples: Samples<'a>,
    mixture: &'a Mixture,
    budget: Duration,
}

impl Bench<'_> {
    /// Measures the operations that this kernel supports in this precision.
    fn measure(
        &self,
        device: Device,
        kernel: Option<&str>,
        precision: Precision,
        truth: &Truth,
    ) -> Result<Vec<Row>, Error> {
        let float64 = precision == Precision::Float64;
        let options = LoadOptions::new().kernel(kernel.map(String::from)).float64(float64).tuning_file(tuning_file());
        let mut evaluator = gaussmix::device::load(device, self.samples.clone(), &options)?;
        let mut rows = Vec::new();
        for (operation, name) in [(Operation::LogLikelihood, "total"), (Operation::Statistics, "estep")] {
            if evaluator.precision(self.mixture, operation) != precision {
                // This evaluator computes in the other precision whatever the type of the samples.
                continue;
            }
            let errors = if operation == Operation::Statistics {
                truth.errors_of(&evaluator.statistics(self.mixture)?, self.mixture)?
            } else {
                truth.errors_of_total(evaluator.log_likelihood(self.mixture)?)
            };
            let used = evaluator.describe().kernel;
            if kernel.is_some_and(|requested| !used.starts_with(requested)) {
                // The requested kernel cannot do this operation, and another one has done it.
                continue;
            }
            let timing = timing::time(self.budget, |_| match operation {
                Operation::Statistics => evaluator.statistics(self.mixture).map(drop),
                _ => evaluator.log_likelihood(self.mixture).map(drop),
            })?;
            rows.push(Row {
                device: String::new(),
                kernel: used,
                precision: if float64 { FLOAT64 } else { "float32" },
                operation: name,
                n: self.samples.n_samples(),
                k: self.mixture.n_components(),
                d: self.mixture.n_features(),
                covariance_type: self.mixture.covariance_type().name(),
                seconds: timing.median,
                errors,
            });
        }
        Ok(rows)
    }
}

fn report(rows: &[Row], notes: &[String]) -> String {
    let of_statistics = |row: &Row, of: fn(&StatisticsErrors) -> f64| {
        row.errors.statistics.as_ref().map_or_else(|| "–".into(), |errors| in_words(of(errors)))
    };
    let lines = rows.iter().map(|row| {
        vec![
            row.device.clone(),
            row.kernel.clone(),
            row.precision.into(),
            if row.operation == "estep" { "E-step".into() } else { row.operation.into() },
            text::seconds(row.seconds),
            in_words(row.errors.total),
            of_statistics(row, |errors| errors.counts),
            of_statistics(row, |errors| errors.means),
            of_statistics(row, |errors| errors.covariances),
            of_statistics(row, |errors| errors.deviations),
        ]
    });
    let header =
        ["device", "kernel", "computes in", "operation", "time", "total", "counts", "means", "covariances", "mean / σ"];
    let first = &rows[0];
    let n = text::grouped(first.n as u64);
    let mut out = format!("N = {n}, D = {}, K = {}, {} covariances\n\n", first.d, first.k, first.covariance_type);
    out += &text::table(&header, lines, 4);
    out += "\n\nThe last five columns are errors against the float64 reference over the same numbers: relative for the total; the norm of\n\
            the difference over the norm for counts, means and covariances; and the largest of a mean in standard deviations σ of its\n\
            component.";
    for note in notes {
        out += "\n\n";
        out += note;
    }
    out
}
