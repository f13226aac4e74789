//! `gmm predict`: which component each sample comes from.
use crate::input::{DataOptions, Input, Source, refuse_overlap};
use crate::terminal::text;
use anyhow::Context;
use clap::Args;
use gaussmix::io::{Columns, IdColumn, Model, TableOutput};
use std::path::PathBuf;

/// Write the most probable component of each sample, or the probability of each component
///
/// Components are counted from 0. The components are written as int64 of shape (samples,), the
/// probabilities as float64 of shape (samples, components). Both are those of the posterior, as
/// scikit-learn computes them, if the model is of `gmm fit --variational`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm predict model.json data.npy -o labels.npy
  gmm predict model.json data.csv --proba -o probabilities.csv
  gmm predict model.json data.parquet --id customer -o groups.parquet
  zcat data.csv.gz | gmm predict model.json - -o labels.csv")]
pub struct Predict {
    /// The mixture, .json or .npz
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Write the probability of each component for each sample instead of the most probable
    /// component
    #[arg(long)]
    proba: bool,
    /// Where to write: .npy, or with names of columns .csv, .tsv or .parquet
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Keep this column of the data in the result, before the others; it is not a feature
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
}

impl Predict {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], self.data.table.inputs().chain([Some(&self.model)]))?;
        let output = TableOutput::create(&self.output)?;
        if self.id.is_some() {
            output.check_ids()?;
        }
        let model = Model::read(&self.model)?;
        let (mixture, found) = (model.density(), &model.summary);
        let selection = self.data.table.selection(found.feature_names.clone(), self.id.clone());
        let mut input = Input::open(&self.data, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        let (n, k) = (source.samples.n_samples(), mixture.n_components());
        let failed = || format!("{} over {}", self.model.display(), self.data.table.describe());
        let mut read_ids = |rows| source.ids(rows);
        let ids = self.id.as_deref().map(|name| IdColumn { name, read: &mut read_ids });
        if self.proba {
            let chunks = source.pass(8 * k, |chunk| Ok(chunk.predict_proba(mixture)?.into_raw_vec_and_offset().0));
            let written = output.write_with_ids(n, &Columns::Numbered("p", k), ids, chunks)?;
            written.map_err(|e| source.advise(e, false)).with_context(failed)?;
            return Ok(text::print(format_args!(
                "probabilities of {} for {} samples written to {output}",
                text::components(k),
                text::grouped(n as u64),
            ))?);
        }
        let mut counts = vec![0u64; k];
        let chunks = source.pass(16, |chunk| {
            let labels = chunk.predict(mixture)?;
            labels.iter().for_each(|&c| counts[c] += 1);
            Ok(labels.into_iter().map(|c| c as i64).collect::<Vec<i64>>())
        });
        let written = output.write_with_ids(n, &Columns::One("component"), ids, chunks)?;
        written.map_err(|e| source.advise(e, false)).with_context(failed)?;
        let rows = counts.iter().enumerate().map(|(c, &count)| {
            vec![c.to_string(), text::grouped(count), format!("{:.2} %", 100.0 * count as f64 / n as f64)]
        });
        text::print(text::table(&["component", "samples", "share"], rows, 1))?;
        let n = text::grouped(n as u64);
        Ok(text::print(format_args!("components of {n} samples written to {output}"))?)
    }
}
