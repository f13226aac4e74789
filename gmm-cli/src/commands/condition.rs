//! `gmm condition`: the features of a mixture given values of others.
use crate::input::{feature, given, names_of, refuse_overlap};
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{self, FitSummary, ModelOutput};
use std::path::PathBuf;

/// The distribution of the other features, given values of some
///
/// It is a mixture again, of the same type of covariances: each component with its mean and
/// covariance given the values, and with a weight in proportion to its density at them. Its mean is
/// what `gmm impute` fills in. Of a posterior of variational inference, the mixture of its means is
/// taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm condition model.json petal_length_cm=4.2 -o given.json
  gmm condition model.json 0=5.1 2=4.2 -o given.json       features by number, counted from 0
  gmm sample given.json -n 1000 -o new.csv                 draw the others")]
pub struct Condition {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// Features and their values; a feature by the name that the model has for it, or by its number,
    /// counted from 0
    #[arg(value_name = "FEATURE=VALUE", required = true)]
    given: Vec<String>,
    /// Where to write the mixture, .json or .npz, with the names of the features that are left
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Condition {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], [Some(&self.model)])?;
        let output = ModelOutput::create(&self.output)?;
        let (mixture, FitSummary { feature_names: names, .. }) = io::read_model_with_summary(&self.model)?;
        let (names, d) = (names.as_deref(), mixture.n_features());
        let values = self.given.iter().map(|text| {
            let (name, value) = given(text)?;
            Ok((feature(names, d, name)?, value))
        });
        let values = values.collect::<anyhow::Result<Vec<_>>>()?;
        let conditional = mixture.condition(&values)?;
        let rest = (0..d).filter(|j| values.iter().all(|(feature, _)| feature != j));
        let summary = FitSummary { feature_names: names_of(names, rest), ..FitSummary::default() };
        output.write_with_summary(&conditional, &summary)?;
        Ok(text::print(format_args!("the other {} of {d} features written to {output}", conditional.n_features()))?)
    }
}
