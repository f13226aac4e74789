//! `gmm axis`: a mixture along one of its features.
use crate::input::{feature, refuse_overlap};
use crate::terminal::text;
use anyhow::bail;
use clap::Args;
use gaussmix::io::{self, Columns, FitSummary, TableOutput};
use gaussmix::model::{Mixture, Region};
use gaussmix::program::whole_number;
use serde_json::json;
use std::path::PathBuf;

/// Probabilities, quantiles and regions of highest density of one feature
///
/// The region of highest density is the shortest set with a given probability; it may consist of several intervals.
/// Without --cdf, --quantile and --hdr, some quantiles and the region of 0.95 are printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm axis model.json petal_length_cm --quantile 0.05,0.5,0.95 --hdr 0.9
  gmm axis model.json 2 --cdf 2.5 --json
  gmm axis model.json 2 -o line.csv                        the density, for a plot")]
pub struct Axis {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The feature, by its name in the model, or by its number, counted from 0; may be left out if the model has one
    /// feature
    feature: Option<String>,
    /// Print the probability of values up to each X
    #[arg(long, value_name = "X", value_delimiter = ',', allow_hyphen_values = true)]
    cdf: Vec<f64>,
    /// Print the value at or below which a sample lies with each probability P
    #[arg(long, value_name = "P", value_delimiter = ',')]
    quantile: Vec<f64>,
    /// Print the region of highest density with each probability P
    #[arg(long, value_name = "P", value_delimiter = ',')]
    hdr: Vec<f64>,
    /// Write a table of points on the axis with the density, the probability below, and each component's part of the
    /// density: .npy, .csv, .tsv or .parquet
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Number of points to write, evenly spaced from the quantile at 0.001 to that at 0.999
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole_number, requires = "output")]
    points: usize,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Axis {
    pub fn run(mut self) -> anyhow::Result<()> {
        refuse_overlap([self.output.as_ref()], [Some(&self.model)])?;
        let output = self.output.as_ref().map(TableOutput::create).transpose()?;
        let (mixture, FitSummary { feature_names: names, .. }) = io::read_model_with_summary::<Mixture>(&self.model)?;
        let d = mixture.n_features();
        let chosen = match &self.feature {
            Some(text) => feature(names.as_deref(), d, text)?,
            None if d == 1 => 0,
            None => bail!("the model has {d} features; name the one whose axis is meant, such as 0"),
        };
        let line = mixture.marginal(&[chosen])?;
        if self.cdf.is_empty() && self.quantile.is_empty() && self.hdr.is_empty() && output.is_none() {
            (self.quantile, self.hdr) = (vec![0.025, 0.25, 0.5, 0.75, 0.975], vec![0.95]);
        }
        let cdf = self.cdf.iter().map(|x| Ok((*x, line.cdf(*x)?))).collect::<gaussmix::Result<Vec<_>>>()?;
        let quantile =
            self.quantile.iter().map(|p| Ok((*p, line.quantile(*p)?))).collect::<gaussmix::Result<Vec<_>>>()?;
        let hdr = self.hdr.iter().map(|level| Ok((*level, line.hdr(*level)?))).collect::<gaussmix::Result<Vec<_>>>()?;
        if let Some(output) = &output {
            let axis = line.on_axis(self.points)?;
            let name = names.map_or_else(|| "x".into(), |names| names[chosen].clone());
            let components = (0..line.n_components()).map(|c| format!("component{c}"));
            let columns = [name, "density".into(), "cdf".into()].into_iter().chain(components).collect();
            let rows = axis.components.outer_iter().enumerate().map(|(i, components)| {
                let row = [axis.x[i], axis.density[i], axis.cdf[i]].into_iter().chain(components.iter().copied());
                Ok::<_, gaussmix::Error>(row.collect::<Vec<f64>>())
            });
            output.write(self.points, &Columns::Named(columns), rows)??;
        }
        // Infinite numbers are null. The density is that at the ends of the intervals.
        let region = |(level, Region { intervals, density }): &(f64, Region)| json!({ "level": level, "intervals": intervals, "density": density });
        let report = json!({
            "cdf": cdf.iter().map(|(x, p)| json!({ "x": x, "p": p })).collect::<Vec<_>>(),
            "quantile": quantile.iter().map(|(p, x)| json!({ "p": p, "x": x })).collect::<Vec<_>>(),
            "hdr": hdr.iter().map(region).collect::<Vec<_>>(),
        });
        let mut lines: Vec<String> = Vec::new();
        lines.extend(cdf.iter().map(|(x, p)| format!("cdf       {x:<8} {p}")));
        lines.extend(quantile.iter().map(|(p, x)| format!("quantile  {p:<8} {x}")));
        lines.extend(hdr.iter().map(|(level, Region { intervals, density })| {
            let intervals: Vec<String> = intervals.iter().map(|[a, b]| format!("{a} to {b}")).collect();
            format!("hdr       {level:<8} {}; density at the ends {density}", intervals.join(", "))
        }));
        lines.extend(output.map(|output| format!("{} places written to {output}", self.points)));
        text::report(self.json, &report, || lines.join("\n"))
    }
}
