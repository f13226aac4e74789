//! `gmm impute`: fills in missing values.
use crate::input::{DataOptions, Input, Source, TableOptions, refuse_overlap};
use crate::terminal::text;
use anyhow::Context;
use clap::Args;
use gaussmix::data::Samples;
use gaussmix::io::{Columns, Model, TableNumber, TableOutput};
use gaussmix::model::Mixture;
use std::path::PathBuf;

/// Fill in missing values
///
/// Replaces each missing value (NaN; a field of text that is empty or listed in --na-values; a null of Parquet or
/// Arrow) by its mean under the mixture, given the observed values of its sample. These means vary less than the data
/// does. With --draws, the data is written M times, one copy after the other, with missing values drawn from their
/// distribution given the observed ones: combine the estimates from the M data sets by Rubin's rules. Observed values
/// do not change.
///
/// Computes on the CPU in float64; the result has the data's type.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm fit data.csv --missing -k 3 -o model.json
  gmm impute model.json data.csv -o filled.csv
  gmm impute model.json data.npy --draws 20 --seed 1 -o draws.npy    20·N rows: all samples, 20 times")]
pub struct Impute {
    /// The mixture, .json or .npz
    model: PathBuf,
    #[command(flatten)]
    table: TableOptions,
    /// Draw the missing values M times instead of writing their means
    #[arg(long, value_name = "M", value_parser = gaussmix::program::whole_number)]
    draws: Option<usize>,
    /// Seed of the draws
    #[arg(long = "random-state", visible_alias = "seed", value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Memory that the data and its copies may take, such as 500M or 8G. Larger files are read in chunks. Default: half
    /// of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = crate::input::options::size_in_bytes)]
    memory: Option<u64>,
    /// Where to write: .npy, or .csv, .tsv or .parquet with the names of the columns
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Impute {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], self.table.inputs().chain([Some(&self.model)]))?;
        let output = TableOutput::create(&self.output)?;
        let model = Model::read(&self.model)?;
        let options = DataOptions::on_host(self.table.clone(), true, self.memory);
        let mut input = Input::open(&options, None, &self.table.selection(model.summary.feature_names.clone(), None))?;
        let source = Source::new(&mut input, false)?;
        match source.dtype() {
            "float32" => self.write(&output, model.density(), &source, |v| v as f32)?,
            _ => self.write(&output, model.density(), &source, |v| v)?,
        }
        let n = text::grouped(source.samples.n_samples() as u64);
        let missing = source.missing().unwrap_or_else(|| "nothing missing".into());
        let what = match self.draws {
            None => format!("{n} samples ({missing})"),
            Some(draws) => format!("{draws} draws of {n} samples ({missing})"),
        };
        text::print(format_args!("{what} written to {output}"))
    }

    /// Writes the means, or the draws of all samples one after the other.
    fn write<T: TableNumber>(
        &self,
        output: &TableOutput,
        mixture: &Mixture,
        source: &Source<'_>,
        round: impl Fn(f64) -> T,
    ) -> anyhow::Result<()> {
        let (n, d) = (source.samples.n_samples(), source.samples.n_features());
        let (draws, round) = (self.draws.unwrap_or(1), &round);
        let fill = |draw: usize| {
            let fill = move |samples: Samples<'_>, start: usize| {
                let filled = match self.draws {
                    None => mixture.impute(&samples)?.into_raw_vec_and_offset().0,
                    Some(_) => {
                        let draws = mixture.impute_draws(&samples, draw..draw + 1, self.seed, start)?;
                        draws.into_raw_vec_and_offset().0
                    }
                };
                Ok(filled.into_iter().map(round).collect::<Vec<T>>())
            };
            source.pass_samples(3 * 8 * d, fill)
        };
        let names = source.names().map(<[String]>::to_vec);
        let columns = names.map_or(Columns::Numbered("x", d), Columns::Named);
        let rows = n
            .checked_mul(draws)
            .with_context(|| format!("--draws {draws}: the rows of the result cannot be counted; use fewer draws"))?;
        let written = output.write(rows, &columns, (0..draws).flat_map(fill))?;
        written.map_err(|e| source.failed(&self.model, e))
    }
}
