//! `gmm predict`: which component each sample comes from.
use crate::input::{DataOptions, Input, Source, refuse_overlap};
use crate::terminal::text;
use anyhow::Context;
use clap::Args;
use gaussmix::io::{self, Columns, TableOutput};
use std::path::PathBuf;

/// Write the most probable component of each sample, or the probability of each component
///
/// Components are counted from 0. The components are written as int64 of shape (samples,), the probabilities as float64 of
/// shape (samples, components).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm predict model.json data.npy -o labels.npy
  gmm predict model.json data.csv --proba -o probabilities.csv")]
pub struct Predict {
    /// The mixture, .json or .npz
    model: PathBuf,
    #[command(flatten)]
    data: DataOptions,
    /// Write the probability of each component for each sample instead of the most probable component
    #[arg(long)]
    proba: bool,
    /// Where to write: .npy, or .csv with a header
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Predict {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], [Some(&self.model), Some(&self.data.data)])?;
        let output = TableOutput::create(&self.output)?;
        let mixture = io::read_model(&self.model)?;
        let mut input = Input::open(&self.data, None)?;
        let source = Source::new(&mut input, false)?;
        let (n, k) = (source.samples.n_samples(), mixture.n_components());
        let failed = || format!("{} over {}", self.model.display(), self.data.data.display());
        if self.proba {
            let chunks = source.pass(8 * k, |chunk| Ok(chunk.predict_proba(&mixture)?.into_raw_vec_and_offset().0));
            let written = output.write(n, &Columns::Numbered("p", k), chunks)?;
            written.map_err(|e| source.advise(e, false)).with_context(failed)?;
            return Ok(text::print(format_args!(
                "probabilities of {} for {} samples written to {output}",
                text::components(k),
                text::grouped(n as u64),
            ))?);
        }
        let mut counts = vec![0u64; k];
        let chunks = source.pass(16, |chunk| {
            let labels = chunk.predict(&mixture)?;
            labels.iter().for_each(|&c| counts[c] += 1);
            Ok(labels.into_iter().map(|c| c as i64).collect::<Vec<i64>>())
        });
        let written = output.write(n, &Columns::One("component"), chunks)?;
        written.map_err(|e| source.advise(e, false)).with_context(failed)?;
        let rows = counts.iter().enumerate().map(|(c, &count)| {
            vec![c.to_string(), text::grouped(count), format!("{:.2} %", 100.0 * count as f64 / n as f64)]
        });
        text::print(text::table(&["component", "samples", "share"], rows, 1))?;
        let n = text::grouped(n as u64);
        Ok(text::print(format_args!("components of {n} samples written to {output}"))?)
    }
}
