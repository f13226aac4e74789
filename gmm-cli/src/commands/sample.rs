//! `gmm sample`: draws samples from a mixture.
use crate::input::refuse_overlap;
use crate::terminal::{ProgressLine, text};
use clap::Args;
use gaussmix::io::{self, Columns, TableOutput};
use gaussmix::model::Mixture;
use gaussmix::program::whole_number;
use ndarray::Array2;
use std::path::PathBuf;

/// The count of numbers drawn and written at a time.
const CHUNK: usize = 1 << 20;

/// Draw samples from a mixture
///
/// The same seed gives the same samples. With a larger -n the first samples stay the same.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm sample model.json -n 1000 --seed 1 -o samples.npy
  gmm sample model.json -n 1e6 -o samples.csv --labels components.csv")]
pub struct Sample {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// Number of samples
    #[arg(short, value_parser = whole_number)]
    n: usize,
    /// Seed of the random numbers
    #[arg(long = "random-state", visible_alias = "seed", value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Where to write the samples (samples × features): .npy (float64), or .csv, .tsv or .parquet with names of columns
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Write float32 instead of float64
    #[arg(long)]
    float32: bool,
    /// Write the component of each sample (counted from 0): .npy (int64), .csv, .tsv or .parquet
    #[arg(long, value_name = "OUT")]
    labels: Option<PathBuf>,
}

impl Sample {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output), self.labels.as_ref()], [Some(&self.model)])?;
        let output = TableOutput::create(&self.output)?;
        let labels = self.labels.as_ref().map(TableOutput::create).transpose()?;
        let (mixture, found) = io::read_model_with_summary::<Mixture>(&self.model)?;
        let columns = found.feature_names.map_or(Columns::Numbered("x", mixture.n_features()), Columns::Named);
        let component = Columns::One("component");
        let size =
            if self.float32 { output.size::<f32>(self.n, &columns) } else { output.size::<f64>(self.n, &columns) };
        let mut tables = vec![(&output, size)];
        tables.extend(labels.as_ref().map(|labels| (labels, labels.size::<i64>(self.n, &component))));
        TableOutput::check_space(&tables)?;
        let values = self.chunks(&mixture)?.map(|drawn| Ok::<_, gaussmix::Error>(drawn?.0.into_raw_vec_and_offset().0));
        if self.float32 {
            let values = values.map(|x| Ok::<_, gaussmix::Error>(x?.into_iter().map(|v: f64| v as f32).collect()));
            output.write(self.n, &columns, values)??;
        } else {
            output.write(self.n, &columns, values)??;
        }
        if let Some(labels) = &labels {
            // The samples are drawn again for their components, which then need not be held in memory.
            let values = self.chunks(&mixture)?;
            let label = |c| mixture.label(c);
            let values = values.map(|drawn| Ok::<_, gaussmix::Error>(drawn?.1.into_iter().map(label).collect()));
            labels.write(self.n, &component, values)??;
        }
        let (n, d) = (text::grouped(self.n as u64), mixture.n_features());
        text::print(format_args!("{n} samples × {d} features written to {output}"))?;
        labels.map_or(Ok(()), |labels| text::print(format_args!("their components written to {labels}")))
    }

    fn chunks<'a>(
        &self,
        mixture: &'a Mixture,
    ) -> gaussmix::Result<impl Iterator<Item = gaussmix::Result<(Array2<f64>, Vec<usize>)>> + 'a> {
        let mut sampler = mixture.sampler(self.seed)?;
        let (n, rows) = (self.n, (CHUNK / mixture.n_features()).max(1));
        let mut line = ProgressLine::start("drawing samples");
        Ok((0..n).step_by(rows).map(move |start| {
            line.rows("drawing samples", start, Some(n));
            sampler.draw(rows.min(n - start))
        }))
    }
}
