//! `gmm score`: the log-likelihood of a mixture over a data set.
use super::by_group::{GroupModelFile, read_model};
use super::timing::{self, Timing};
use crate::input::{DataOptions, Input, Source, refuse_overlap};
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::evaluator::{Evaluator, Operation};
use gaussmix::io::{Columns, IdColumn, TableOutput};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// The time of repeated evaluations for a measurement.
const TIMING_BUDGET: Duration = Duration::from_millis(100);

/// Compute the log-likelihood of a data set under a mixture
///
/// For a model of `gmm fit --variational` it is the result of scikit-learn's `score_samples`, with the posterior's
/// expectations of logarithms.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm score model.json data.npy
  gmm score model.json data.csv --device reference --json
  gmm score model.json data.npy --per-sample scores.npy
  gmm score model.json data.csv --outliers 0.01 --per-sample outliers.csv
  gmm score model.json part-*.parquet --per-sample scores.csv --id customer
  gmm score models.parquet purchases.parquet --by customer --per-sample scores.parquet")]
pub struct Score {
    /// The mixture, .json or .npz; with --by the .parquet or folder of `gmm fit --by`
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Write the log-likelihood of each sample to this file: .npy (float64), .csv, .tsv or .parquet
    #[arg(long, value_name = "OUT")]
    per_sample: Option<PathBuf>,
    /// Call this share of the samples outliers, those with the lowest log-likelihoods: print the threshold and the
    /// number of samples below it, and with --per-sample write a second column `outlier` of 1 and 0
    #[arg(long, value_name = "SHARE", conflicts_with = "by", value_parser = share)]
    outliers: Option<f64>,
    /// Keep this column of the data in the result, before the others; it is not a feature
    #[arg(long, value_name = "NAME", requires = "per_sample")]
    id: Option<String>,
    /// Use the mixture of each row's group, named by this column, which is kept in the result. If the fit to the group
    /// failed, the log-likelihood is NaN and is not counted
    ///
    /// The whole table is read into memory. A group without a model is an error.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "kernel"])]
    by: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

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
    precision: &'static str,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outliers: Option<Outliers>,
}

#[derive(Serialize)]
struct Outliers {
    /// Samples with a log-likelihood below are outliers.
    threshold: f64,
    n: usize,
    rows: Vec<usize>,
}

impl Outliers {
    /// Finds the outliers. The threshold is the quantile, interpolated linearly, as in `GaussianMixtureOutlierDetector`
    /// of the Python package; at −∞ it is the least finite log-likelihood.
    fn new(scores: &[f64], share: f64) -> Self {
        let mut sorted = scores.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = share * (sorted.len() - 1) as f64;
        let (low, part) = (at as usize, at.fract());
        let high = sorted[(low + 1).min(sorted.len() - 1)];
        let threshold = match sorted[low] {
            f64::NEG_INFINITY => sorted.iter().copied().find(|score| score.is_finite()).unwrap_or(high),
            lower => lower + part * (high - lower),
        };
        let rows: Vec<usize> = (0..scores.len()).filter(|row| scores[*row] < threshold).collect();
        Self { threshold, n: rows.len(), rows }
    }
}

/// Parses a share of the samples, like scikit-learn's `contamination`.
fn share(text: &str) -> Result<f64, String> {
    let within = |share: &f64| *share > 0.0 && *share <= 0.5;
    text.parse().ok().filter(within).ok_or_else(|| "a share is above 0 and at most 0.5".into())
}

#[derive(Serialize)]
struct GroupRow<'a> {
    n: usize,
    d: usize,
    by: &'a str,
    n_groups: usize,
    /// The samples of groups whose fits failed; no other figure counts them.
    n_without_model: usize,
    log_likelihood: f64,
    mean_log_likelihood: f64,
    groups: Vec<OfGroup>,
}

#[derive(Serialize)]
struct OfGroup {
    group: String,
    n_samples: usize,
    /// Null if the fit failed.
    log_likelihood: Option<f64>,
}

impl Score {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([self.per_sample.as_ref()], self.data.inputs().chain([Some(&self.model)]))?;
        let output = self.per_sample.as_ref().map(TableOutput::create).transpose()?;
        if let (Some(output), Some(_)) = (&output, &self.id) {
            output.check_ids()?;
        }
        if let Some(by) = &self.by {
            return self.run_by(by, output.as_ref());
        }
        let model = read_model(&self.model)?;
        let (mixture, log_total) = (model.density(), model.log_total());
        let selection = self.data.table.selection(model.summary.feature_names.clone(), self.id.clone());
        let mut input = Input::open(&self.data, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        let n = source.samples.n_samples();
        let scores = match self.outliers {
            Some(_) => Columns::Named(vec!["log_likelihood".into(), "outlier".into()]),
            None => Columns::One("log_likelihood"),
        };
        if let Some(output) = &output {
            TableOutput::check_space(&[(output, output.size::<f64>(n, &scores))])?;
        }
        let mut evaluator = source.evaluator()?;
        let failed = |e| source.failed(&self.model, e);
        let mut log_likelihood = 0.0;
        let line = ProgressLine::start("evaluating the model");
        let timing = timing::time(TIMING_BUDGET, |_| {
            log_likelihood = evaluator.log_likelihood(mixture)? + n as f64 * log_total;
            Ok::<_, gaussmix::Error>(())
        });
        drop(line);
        let Timing { median, repetitions } = timing.map_err(failed)?;
        let description = evaluator.describe();
        text::tell_gpu_problem(&description);
        let (precision, computed_in_float64) = source.precision(evaluator.as_ref(), mixture, Operation::LogLikelihood);
        let d = source.samples.n_features();
        let mut outliers = None;
        if self.outliers.is_some() || output.is_some() {
            let of = |evaluator: &mut dyn Evaluator| Ok((evaluator.score_samples(mixture)? + log_total).to_vec());
            // If the samples are in memory, the evaluator holds them.
            let mut parts: Box<dyn Iterator<Item = gaussmix::Result<Vec<f64>>> + '_> = match source.is_chunked() {
                true => Box::new(source.pass(8, of)),
                false => Box::new(std::iter::once_with(|| of(evaluator.as_mut()))),
            };
            let _line = ProgressLine::start("evaluating each sample");
            if let Some(share) = self.outliers {
                let each = parts.collect::<gaussmix::Result<Vec<_>>>().map_err(failed)?.concat();
                let found = Outliers::new(&each, share);
                let rows = each.iter().flat_map(|score| [*score, f64::from(u8::from(*score < found.threshold))]);
                parts = Box::new(std::iter::once(Ok(rows.collect())));
                outliers = Some(found);
            }
            if let Some(output) = &output {
                let mut read_ids = |rows| source.ids(rows);
                let ids = self.id.as_deref().map(|name| IdColumn { name, read: &mut read_ids });
                output.write_with_ids(n, &scores, ids, parts)?.map_err(failed)?;
            }
        }
        let row = Row {
            n,
            d,
            k: mixture.n_gaussians(),
            covariance_type: mixture.covariance_model().name(),
            log_likelihood,
            mean_log_likelihood: log_likelihood / n as f64,
            device: description.device,
            kernel: description.kernel,
            precision,
            seconds: median,
            outliers,
        };
        text::report(self.json, &row, || {
            self.report(&row, &source.describe(), repetitions, computed_in_float64, output.as_ref())
        })
    }

    fn run_by(&self, by: &str, output: Option<&TableOutput>) -> anyhow::Result<()> {
        let models = GroupModelFile::read(&self.model)?;
        let mut input = models.open(&self.data, by)?;
        let source = Source::new(&mut input, false)?;
        let divided = models.divide(&source, by)?;
        let n = source.samples.n_samples();
        let results = divided.evaluate(|evaluator, model| {
            let total = evaluator.log_likelihood(model.density())? + evaluator.n_samples() as f64 * model.log_total();
            let each = match output {
                Some(_) => (evaluator.score_samples(model.density())? + model.log_total()).to_vec(),
                None => Vec::new(),
            };
            Ok((total, each))
        })?;
        let (totals, each): (Vec<Option<f64>>, Vec<Option<Vec<f64>>>) = results.into_iter().map(Option::unzip).unzip();
        if let Some(output) = output {
            divided.write(output, &Columns::One("log_likelihood"), &each, f64::NAN)?;
        }
        let groups = totals.iter().zip(&divided.groups.sets).enumerate().map(|(group, (total, set))| OfGroup {
            group: divided.groups.names.text(group),
            n_samples: set.n_samples(),
            log_likelihood: *total,
        });
        let log_likelihood = totals.iter().flatten().sum();
        let n_without_model = divided.n_without_model();
        let row = GroupRow {
            n,
            d: source.samples.n_features(),
            by,
            n_groups: totals.len(),
            n_without_model,
            log_likelihood,
            mean_log_likelihood: log_likelihood / (n - n_without_model) as f64,
            groups: groups.collect(),
        };
        let mut lines = vec![
            format!("data            {}", source.describe()),
            format!("groups          {}, by `{by}`", text::grouped(row.n_groups as u64)),
            format!("models          {}", self.model.display()),
            format!("log-likelihood  {}", row.log_likelihood),
            format!("  per sample    {}", row.mean_log_likelihood),
        ];
        lines.extend(output.map(|output| format!("per sample      written to {output}")));
        text::report(self.json, &row, || lines.join("\n"))?;
        divided.note_without_model();
        Ok(())
    }

    fn report(
        &self,
        row: &Row,
        data: &str,
        repetitions: usize,
        computed_in_float64: Option<&str>,
        output: Option<&TableOutput>,
    ) -> String {
        let mut lines = vec![
            format!("data            {data}"),
            format!("model           {}: {}, {}", self.model.display(), text::components(row.k), row.covariance_type),
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
        lines.extend(computed_in_float64.map(String::from));
        lines.extend(row.outliers.as_ref().map(|Outliers { threshold, n, .. }| {
            format!("outliers        {}, with a log-likelihood below {threshold}", text::grouped(*n as u64))
        }));
        lines.extend(output.map(|output| format!("per sample      written to {output}")));
        lines.join("\n")
    }
}
