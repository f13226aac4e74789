//! `gmm product` and `gmm sum`: mixtures made of others.
use crate::input::{read_alike, refuse_overlap};
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{FitSummary, ModelOutput};
use gaussmix::model::Mixture;
use std::path::PathBuf;

/// The normalised product of two densities
///
/// It is a mixture with a component for each pair of components, as of two independent opinions of
/// the same thing. The logarithm of the integral of the product is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm product a.json b.json -o both.json")]
pub struct Product {
    /// The first mixture, .json or .npz
    first: PathBuf,
    /// The second mixture, .json or .npz, of the same features
    second: PathBuf,
    /// Where to write the mixture, .json or .npz
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Product {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], [Some(&self.first), Some(&self.second)])?;
        let output = ModelOutput::create(&self.output)?;
        let (mixtures, feature_names) = read_alike(&[&self.first, &self.second])?;
        let (product, log_integral) = mixtures[0].product(&mixtures[1])?;
        output.write_with_summary(&product, &FitSummary { feature_names, ..FitSummary::default() })?;
        let k = text::components(product.n_components());
        Ok(text::print(format_args!("{k} written to {output}; log of the integral {log_integral:.6}"))?)
    }
}

/// The weighted sum of densities
///
/// It is a mixture with the components of all models.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm sum a.json b.json -o pooled.json
  gmm sum a.json b.json --weights 0.7,0.3 -o pooled.json")]
pub struct Sum {
    /// The mixtures, .json or .npz, of the same features
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// The weight of each model, up to a factor; by default all are equal
    #[arg(long, value_name = "W", value_delimiter = ',')]
    weights: Option<Vec<f64>>,
    /// Where to write the mixture, .json or .npz
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Sum {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], self.models.iter().map(Some))?;
        let output = ModelOutput::create(&self.output)?;
        let (mixtures, feature_names) = read_alike(&self.models.iter().collect::<Vec<_>>())?;
        let weights = self.weights.unwrap_or_else(|| vec![1.0; mixtures.len()]);
        let sum = Mixture::sum(&mixtures.iter().collect::<Vec<_>>(), &weights)?;
        output.write_with_summary(&sum, &FitSummary { feature_names, ..FitSummary::default() })?;
        Ok(text::print(format_args!("{} written to {output}", text::components(sum.n_components())))?)
    }
}
