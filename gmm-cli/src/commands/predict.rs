//! `gmm predict`: the component of each sample.
use super::by_group::{GroupModelFile, read_model};
use crate::input::{DataOptions, Input, Names, Source, feature, names_of, refuse_overlap};
use crate::terminal::text;
use anyhow::bail;
use clap::Args;
use gaussmix::data::Samples;
use gaussmix::io::{Columns, IdColumn, Model, TableOutput};
use std::path::PathBuf;

/// Write the most probable component of each sample, the probability of each component, or the expected values of other
/// features
///
/// Components are counted from 0. They are written as int64 of shape (samples,), probabilities as float64 of shape
/// (samples, components). For a model of `gmm fit --variational` both are those of the posterior, as scikit-learn
/// computes them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm predict model.json data.npy -o labels.npy
  gmm predict model.json data.csv --proba -o probabilities.csv
  gmm predict model.json flats.csv --target price,rent -o prices.csv
  gmm predict model.json data.parquet --id customer -o groups.parquet
  gmm predict models.parquet purchases.parquet --by customer -o labels.parquet
  zcat data.csv.gz | gmm predict model.json - -o labels.csv")]
pub struct Predict {
    /// The mixture, .json or .npz; with --by the .parquet or folder of `gmm fit --by`
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Write the probability of each component for each sample instead of the most probable component
    #[arg(long)]
    proba: bool,
    /// Write the means of these features of the model (by name or number, separated by commas) given the other
    /// features, which are the columns of the data: regression by the mixture, float64 of shape (samples, targets),
    /// computed on the CPU
    #[arg(long, value_name = "FEATURES", conflicts_with_all = ["proba", "by", "kernel"])]
    target: Vec<Names>,
    /// Where to write: .npy, or .csv, .tsv or .parquet with names of columns
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Keep this column of the data in the result, before the others; it is not a feature
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// Use the mixture of each row's group, named by this column, which is kept in the result. If the fit to the group
    /// failed, the component is -1 and probabilities are NaN
    ///
    /// The whole table is read into memory. A group without a model is an error.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["id", "kernel"])]
    by: Option<String>,
}

impl Predict {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], self.data.inputs().chain([Some(&self.model)]))?;
        let output = TableOutput::create(&self.output)?;
        if self.id.is_some() {
            output.check_ids()?;
        }
        if let Some(by) = &self.by {
            return self.run_by(by, &output);
        }
        let model = read_model(&self.model)?;
        if !self.target.is_empty() {
            return self.run_target(&model, &output);
        }
        let (mixture, found) = (model.density(), &model.summary);
        let selection = self.data.table.selection(found.feature_names.clone(), self.id.clone());
        let mut input = Input::open(&self.data, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        let (n, k) = (source.samples.n_samples(), mixture.n_components());
        let failed = |e| source.failed(&self.model, e);
        let mut read_ids = |rows| source.ids(rows);
        let ids = self.id.as_deref().map(|name| IdColumn { name, read: &mut read_ids });
        if self.proba {
            let chunks = source.pass(8 * k, |chunk| Ok(chunk.predict_proba(mixture)?.into_raw_vec_and_offset().0));
            let written = output.write_with_ids(n, &Columns::Numbered("p", k), ids, chunks)?;
            written.map_err(failed)?;
            return text::print(format_args!(
                "probabilities of {} for {} samples written to {output}",
                text::components(k),
                text::grouped(n as u64),
            ));
        }
        let mut counts = vec![0u64; k];
        let chunks = source.pass(16, |chunk| {
            let labels = chunk.predict(mixture)?;
            labels.iter().for_each(|&c| counts[c] += 1);
            Ok(labels.into_iter().map(|c| mixture.label(c)).collect::<Vec<i64>>())
        });
        let written = output.write_with_ids(n, &Columns::One("component"), ids, chunks)?;
        written.map_err(failed)?;
        let rows = counts.iter().enumerate().map(|(c, &count)| {
            let name = if mixture.is_noise(c) { "noise (-1)".into() } else { c.to_string() };
            vec![name, text::grouped(count), format!("{:.2} %", 100.0 * count as f64 / n as f64)]
        });
        text::print(text::table(&["component", "samples", "share"], rows, 1))?;
        let n = text::grouped(n as u64);
        text::print(format_args!("components of {n} samples written to {output}"))
    }

    fn run_target(&self, model: &Model, output: &TableOutput) -> anyhow::Result<()> {
        let (mixture, names) = (model.density(), model.summary.feature_names.as_deref());
        let d = mixture.n_features();
        let chosen = Names::all(&self.target);
        let targets: Vec<usize> = chosen.iter().map(|text| feature(names, d, text)).collect::<anyhow::Result<_>>()?;
        let given: Vec<usize> = (0..d).filter(|j| !targets.contains(j)).collect();
        if given.is_empty() || given.len() + targets.len() != d {
            bail!(
                "--target names a feature twice, or all {d} features of the model; name each once, and leave at least one to predict from"
            );
        }
        let selection = self.data.table.selection(names_of(names, given.iter().copied()), self.id.clone());
        let mut input = Input::open(&self.data, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        let (n, columns) = (source.samples.n_samples(), source.samples.n_features());
        if columns != given.len() {
            bail!(
                "{}: has {columns} columns, but the model has {} features besides those of --target",
                source.name(),
                given.len()
            );
        }
        let mut read_ids = |rows| source.ids(rows);
        let ids = self.id.as_deref().map(|name| IdColumn { name, read: &mut read_ids });
        let regression = mixture.regression(&given, &targets)?;
        let means = |samples: Samples<'_>, _: usize| Ok(regression.predict(&samples)?.into_raw_vec_and_offset().0);
        let named = names_of(names, targets.iter().copied());
        let written_as = named.map_or(Columns::Numbered("x", targets.len()), Columns::Named);
        let written = output.write_with_ids(n, &written_as, ids, source.pass_samples(3 * 8 * d, means))?;
        written.map_err(|e| source.failed(&self.model, e))?;
        let n = text::grouped(n as u64);
        text::print(format_args!("expected {} of {n} samples written to {output}", chosen.join(", ")))
    }

    fn run_by(&self, by: &str, output: &TableOutput) -> anyhow::Result<()> {
        let models = GroupModelFile::read(&self.model)?;
        let mut input = models.open(&self.data, by)?;
        let source = Source::new(&mut input, false)?;
        let divided = models.divide(&source, by)?;
        let (n, k) = (source.samples.n_samples(), models.n_components());
        let what = if self.proba {
            let each = divided.evaluate(|evaluator, model| {
                Ok(evaluator.predict_proba(model.density())?.into_raw_vec_and_offset().0)
            })?;
            divided.write(output, &Columns::Numbered("p", k), &each, f64::NAN)?;
            "probabilities of components"
        } else {
            let each = divided.evaluate(|evaluator, model| {
                Ok(evaluator.predict(model.density())?.into_iter().map(|c| c as i64).collect::<Vec<i64>>())
            })?;
            divided.write(output, &Columns::One("component"), &each, -1)?;
            "components"
        };
        let (n, groups) = (text::grouped(n as u64), text::grouped(divided.groups.names.len() as u64));
        text::print(format_args!("{what} of {n} samples in {groups} groups written to {output}"))?;
        divided.note_without_model();
        Ok(())
    }
}
