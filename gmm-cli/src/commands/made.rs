//! `gmm condition`, `marginal`, `reduce`, `product` and `sum`: make a mixture from others.
use crate::input::{Names, feature, given, names_of, read_alike, refuse_overlap};
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{FitSummary, ModelOutput};
use gaussmix::model::Mixture;
use gaussmix::program::whole_number;
use std::path::PathBuf;

/// A mixture, the names of its features, and the text of the report before and after the file's name.
type Made = (Mixture, Option<Vec<String>>, [String; 2]);

/// Writes to `output` the mixture that `make` builds from those in `files` and the names of their features.
fn make<'a>(
    files: impl IntoIterator<Item = &'a PathBuf>,
    output: &PathBuf,
    make: impl FnOnce(&[Mixture], Option<&[String]>) -> anyhow::Result<Made>,
) -> anyhow::Result<()> {
    let files: Vec<_> = files.into_iter().collect();
    refuse_overlap([Some(output)], files.iter().copied().map(Some))?;
    let output = ModelOutput::create(output)?;
    let (mixtures, names) = read_alike(&files)?;
    let (mixture, feature_names, [what, more]) = make(&mixtures, names.as_deref())?;
    output.write_with_summary(&mixture, &FitSummary { feature_names, ..FitSummary::default() })?;
    text::print(format_args!("{what} written to {output}{more}"))
}

/// Condition a mixture on the values of some features
///
/// Writes the distribution of the other features, a mixture of the same covariance type: each component has its mean
/// and covariance given the values, and a weight in proportion to its density at the values. The mixture's mean is the
/// value that `gmm impute` fills in. A posterior of variational inference is replaced by the mixture of its means.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm condition model.json petal_length_cm=4.2 -o given.json
  gmm condition model.json 0=5.1 2=4.2 -o given.json       features by number, counted from 0
  gmm sample given.json -n 1000 -o new.csv                 draw the others")]
pub struct Condition {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// Features and their values; a feature by its name in the model, or by its number, counted from 0
    #[arg(value_name = "FEATURE=VALUE", required = true)]
    given: Vec<String>,
    /// Where to write the mixture, .json or .npz, with the names of the remaining features
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Condition {
    pub fn run(self) -> anyhow::Result<()> {
        make([&self.model], &self.output, |mixtures, names| {
            let d = mixtures[0].n_features();
            let values = self.given.iter().map(|text| {
                let (name, value) = given(text)?;
                Ok((feature(names, d, name)?, value))
            });
            let values = values.collect::<anyhow::Result<Vec<_>>>()?;
            let conditional = mixtures[0].condition(&values)?;
            let rest = (0..d).filter(|j| values.iter().all(|(feature, _)| feature != j));
            let what = format!("the other {} of {d} features", conditional.n_features());
            Ok((conditional, names_of(names, rest), [what, String::new()]))
        })
    }
}

/// Keep some features of a mixture
///
/// Writes the distribution of these features, a mixture of the same covariance type, in the given order of features. A
/// posterior of variational inference is replaced by the mixture of its means.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm marginal model.json petal_length_cm,petal_width_cm -o petals.json
  gmm marginal model.json 2,3 -o petals.json               features by number, counted from 0")]
pub struct Marginal {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The features to keep, each by its name in the model, or by its number, counted from 0; write a name with a comma
    /// in double quotes
    #[arg(value_name = "FEATURES", required = true)]
    features: Vec<Names>,
    /// Where to write the mixture, .json or .npz, with the names of its features
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Marginal {
    pub fn run(self) -> anyhow::Result<()> {
        make([&self.model], &self.output, |mixtures, names| {
            let d = mixtures[0].n_features();
            let features = Names::all(&self.features);
            let features = features.iter().map(|text| feature(names, d, text)).collect::<anyhow::Result<Vec<_>>>()?;
            let marginal = mixtures[0].marginal(&features)?;
            let what = format!("{} of {d} features", marginal.n_features());
            Ok((marginal, names_of(names, features), [what, String::new()]))
        })
    }
}

/// Merge components, beginning with the pair that loses least
///
/// Merges two components at a time to their common weight, mean and covariance (Runnalls 2007). Prints an upper bound
/// of the Kullback-Leibler divergence of the result from the model. A posterior of variational inference is replaced by
/// the mixture of its means.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm reduce model.json -k 3 -o smaller.json")]
pub struct Reduce {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The number of components to keep
    #[arg(short, long = "components", value_name = "K", value_parser = whole_number)]
    k: usize,
    /// Where to write the mixture, .json or .npz, with the names of its features
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Reduce {
    pub fn run(self) -> anyhow::Result<()> {
        make([&self.model], &self.output, |mixtures, names| {
            let (smaller, bound) = mixtures[0].reduce(self.k)?;
            let what = format!("{} of {}", text::components(self.k), mixtures[0].n_components());
            let more = format!("; divergence from the model at most {bound:.6} nats");
            Ok((smaller, names.map(<[String]>::to_vec), [what, more]))
        })
    }
}

/// Multiply two densities and normalise the product
///
/// The result is a mixture with a component for each pair of components, as if two independent opinions were combined.
/// Prints the logarithm of the integral of the product.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm product a.json b.json -o both.json")]
pub struct Product {
    /// The first mixture, .json or .npz
    first: PathBuf,
    /// The second mixture, .json or .npz, with the same features
    second: PathBuf,
    /// Where to write the mixture, .json or .npz
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Product {
    pub fn run(self) -> anyhow::Result<()> {
        make([&self.first, &self.second], &self.output, |mixtures, names| {
            let (product, log_integral) = mixtures[0].product(&mixtures[1])?;
            let what = text::components(product.n_components());
            let more = format!("; log of the integral {log_integral:.6}");
            Ok((product, names.map(<[String]>::to_vec), [what, more]))
        })
    }
}

/// Add densities, weighted
///
/// The result is a mixture with the components of all models.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm sum a.json b.json -o pooled.json
  gmm sum a.json b.json --weights 0.7,0.3 -o pooled.json")]
pub struct Sum {
    /// The mixtures, .json or .npz, with the same features
    #[arg(required = true)]
    models: Vec<PathBuf>,
    /// The weight of each model, up to a factor; equal by default
    #[arg(long, value_name = "W", value_delimiter = ',')]
    weights: Option<Vec<f64>>,
    /// Where to write the mixture, .json or .npz
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Sum {
    pub fn run(self) -> anyhow::Result<()> {
        make(&self.models, &self.output, |mixtures, names| {
            let weights = self.weights.unwrap_or_else(|| vec![1.0; mixtures.len()]);
            let sum = Mixture::sum(&mixtures.iter().collect::<Vec<_>>(), &weights)?;
            let what = text::components(sum.n_components());
            Ok((sum, names.map(<[String]>::to_vec), [what, String::new()]))
        })
    }
}
