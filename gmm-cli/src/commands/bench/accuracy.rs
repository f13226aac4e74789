//! `gmm bench accuracy`: the error of each kernel, against the float64 reference, beside its
//! time.
use super::options::{MixtureOptions, Named, seconds};
use super::problem::Problem;
use super::rows::print_rows;
use crate::commands::timing;
use crate::commands::values::whole_number;
use crate::input::tuning_file;
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::evaluator::{Evaluator, Operation, Precision, ReferenceEvaluator};
use gaussmix::model::{CovarianceType, Mixture};
use gaussmix::statistics::{Freeze, Statistics};
use serde::Serialize;
use std::borrow::Borrow;
use std::time::Duration;

const FLOAT64: &str = "float64";

/// What `--json` prints for each measurement. The errors say how far a result is from that of the
/// reference over the same numbers; a total alone has no errors of statistics.
#[derive(Debug, Serialize)]
struct Row {
    device: String,
    kernel: String,
    /// The number type of the computation.
    precision: &'static str,
    /// `total`, the log-likelihood, or `estep`, the log-likelihood and the sufficient statistics.
    operation: &'static str,
    n: usize,
    k: usize,
    d: usize,
    covariance_type: &'static str,
    seconds: f64,
    /// The relative error of the log-likelihood.
    total: f64,
    #[serde(flatten)]
    statistics: Option<StatisticsErrors>,
}

/// The errors of the parameters that follow from an E-step.
#[derive(Debug, Serialize)]
struct StatisticsErrors {
    /// Of the counts: the norm of the difference over the norm.
    counts: f64,
    /// Of the means, likewise.
    means: f64,
    /// Of the covariances, likewise.
    covariances: f64,
    /// The largest error of a mean in one column, in standard deviations of its component there.
    deviations: f64,
}

/// Show the error of each kernel of each device beside its time, in float32 and float64
///
/// Errors of the log-likelihood and of an E-step, against the float64 reference over the same
/// random numbers.
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
    /// Measures every kernel of every device and prints the table or the rows.
    pub fn run(self) -> anyhow::Result<()> {
        let mut line = ProgressLine::start("making random data");
        let problem = Problem::random([self.n, self.mixture.k, self.mixture.d], self.covariance_type)?;
        let (samples, mixture) = (Samples::from_f32(problem.data.view())?, &problem.mixtures[0]);
        let bench = Bench { samples, mixture, budget: self.seconds };
        line.show("evaluating the reference".into());
        let truth = Truth::new(&bench)?;
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
                // A GPU computes in float64 if it is asked for no kernel.
                measure(None, Precision::Float64);
            }
        }
        drop(line);
        print_rows(&rows, &notes, self.json, report)
    }
}

/// The data and the mixture, and how long to measure.
struct Bench<'a> {
    samples: Samples<'a>,
    mixture: &'a Mixture,
    /// Longest time of each measurement.
    budget: Duration,
}

/// What the reference gives.
struct Truth {
    total: f64,
    statistics: Statistics,
    /// The mixture that follows from the statistics.
    updated: Mixture,
}

impl Truth {
    fn new(bench: &Bench<'_>) -> Result<Self, Error> {
        let mut reference = ReferenceEvaluator::new(bench.samples.clone());
        let total = reference.log_likelihood(bench.mixture)?;
        let statistics = reference.statistics(bench.mixture)?;
        let updated = statistics.update(bench.mixture, 0.0, &Freeze::default())?.mixture;
        Ok(Self { total, statistics, updated })
    }

    fn total_error(&self, total: f64) -> f64 {
        ((total - self.total) / self.total).abs()
    }

    fn statistics_errors(&self, statistics: &Statistics, mixture: &Mixture) -> Result<StatisticsErrors, Error> {
        let updated = statistics.update(mixture, 0.0, &Freeze::default())?.mixture;
        let (means, true_means) = (updated.means(), self.updated.means());
        let deviations = means
            .indexed_iter()
            .zip(true_means)
            .map(|(((k, j), mean), truth)| (mean - truth).abs() / self.updated.variance(k, j).sqrt());
        Ok(StatisticsErrors {
            counts: relative(statistics.counts(), self.statistics.counts()),
            means: relative(means, true_means),
            covariances: relative(updated.covariances().iter(), self.updated.covariances().iter()),
            deviations: deviations.fold(0.0, f64::max),
        })
    }
}

/// The Euclidean norm of the difference, over that of the truth.
fn relative<A: Borrow<f64>, B: Borrow<f64>>(
    got: impl IntoIterator<Item = A>,
    truth: impl IntoIterator<Item = B>,
) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (got, truth) in got.into_iter().zip(truth) {
        let (got, truth) = (*got.borrow(), *truth.borrow());
        difference += (got - truth).powi(2);
        norm += truth.powi(2);
    }
    (difference / norm).sqrt()
}

impl Bench<'_> {
    /// The operations that this kernel has in this precision: total, E-step, both or none.
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
                // It computes in the other one whatever the type of the samples.
                continue;
            }
            let (total, statistics) = if operation == Operation::Statistics {
                let statistics = evaluator.statistics(self.mixture)?;
                (statistics.log_likelihood(), Some(truth.statistics_errors(&statistics, self.mixture)?))
            } else {
                (evaluator.log_likelihood(self.mixture)?, None)
            };
            let used = evaluator.describe().kernel;
            if kernel.is_some_and(|requested| !used.starts_with(requested)) {
                // The kernel is for other operations, and another one has made this one.
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
                total: truth.total_error(total),
                statistics,
            });
        }
        Ok(rows)
    }
}

fn report(rows: &[Row], notes: &[String]) -> String {
    let error = |value: f64| format!("{value:.0e}");
    let of_statistics = |row: &Row, of: fn(&StatisticsErrors) -> f64| {
        row.statistics.as_ref().map_or_else(|| "–".into(), |errors| error(of(errors)))
    };
    let lines = rows.iter().map(|row| {
        vec![
            row.device.clone(),
            row.kernel.clone(),
            row.precision.into(),
            if row.operation == "estep" { "E-step".into() } else { row.operation.into() },
            text::seconds(row.seconds),
            error(row.total),
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

#[cfg(test)]
mod tests {
    use super::*;
    use gaussmix::model::Covariances;
    use ndarray::{Array2, array};

    #[test]
    fn errors_are_in_their_units() {
        assert_eq!(relative([3.0, 4.0], [3.0, 4.0]), 0.0);
        // A difference of 1 where the norm is 5.
        assert_eq!(relative([3.0, 5.0], [3.0, 4.0]), 0.2);

        let x = Array2::from_shape_fn((50, 1), |(i, _)| (i as f64).sin());
        let mixture = Mixture::new(array![1.0], array![[0.1]], Covariances::Diag(array![[0.6]])).unwrap();
        let bench = |x| Bench { samples: Samples::from_f64(x).unwrap(), mixture: &mixture, budget: Duration::ZERO };
        let truth = Truth::new(&bench(x.view())).unwrap();
        let same = truth.statistics_errors(&truth.statistics, &mixture).unwrap();
        assert_eq!([same.counts, same.means, same.covariances, same.deviations], [0.0; 4]);

        // All samples moved by half a deviation, and twice as many of them.
        let sigma = truth.updated.covariances().iter().next().unwrap().sqrt();
        let moved = ndarray::concatenate![ndarray::Axis(0), x, x] + 0.5 * sigma;
        let other = Truth::new(&bench(moved.view())).unwrap();
        let errors = truth.statistics_errors(&other.statistics, &mixture).unwrap();
        // A few roundings of float64.
        assert!((errors.deviations - 0.5).abs() < 1e-12, "{errors:?}");
        assert!((errors.counts - 1.0).abs() < 1e-12 && errors.covariances < 1e-12, "{errors:?}");
        assert_eq!(truth.total_error(truth.total), 0.0);
        assert!((truth.total_error(1.5 * truth.total) - 0.5).abs() < 1e-15);
    }
}
