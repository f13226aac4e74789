//! `gmm marginal`: some features of a mixture alone.
use crate::input::{Names, feature, names_of, refuse_overlap};
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{self, FitSummary, ModelOutput};
use std::path::PathBuf;

/// The distribution of some features alone
///
/// It is a mixture again, of the same type of covariances, with the features in the order given. Of
/// a posterior of variational inference, the mixture of its means is taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm marginal model.json petal_length_cm,petal_width_cm -o petals.json
  gmm marginal model.json 2,3 -o petals.json               features by number, counted from 0")]
pub struct Marginal {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The features that stay; each by the name that the model has for it, or by its number,
    /// counted from 0; one with a comma stands in double quotes
    #[arg(value_name = "FEATURES", required = true)]
    features: Vec<Names>,
    /// Where to write the mixture, .json or .npz, with the names of its features
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Marginal {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], [Some(&self.model)])?;
        let output = ModelOutput::create(&self.output)?;
        let (mixture, FitSummary { feature_names: names, .. }) = io::read_model_with_summary(&self.model)?;
        let (names, d) = (names.as_deref(), mixture.n_features());
        let features = Names::all(&self.features);
        let features = features.iter().map(|text| feature(names, d, text)).collect::<anyhow::Result<Vec<_>>>()?;
        let marginal = mixture.marginal(&features)?;
        let summary = FitSummary { feature_names: names_of(names, features), ..FitSummary::default() };
        output.write_with_summary(&marginal, &summary)?;
        Ok(text::print(format_args!("{} of {d} features written to {output}", marginal.n_features()))?)
    }
}
