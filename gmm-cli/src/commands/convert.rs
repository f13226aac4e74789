//! `gmm convert`: writes a model in another file format.
use crate::input::feature;
use crate::terminal::text;
use anyhow::{Context, bail};
use clap::Args;
use gaussmix::io::{Model, ModelOutput, Output, model_to_c};
use gaussmix::model::Order;
use std::path::PathBuf;

/// Convert a model between .json and .npz, or to a C header
///
/// The .npz has the names and shapes of scikit-learn's attributes. Every number keeps its bits. The record of the fit
/// (`converged`, `n_iter`, `lower_bound`, `lower_bounds`), if the file has one, and the posterior of variational
/// inference are converted too. With --order the components of a mixture are sorted.
///
/// The header (.h) has functions for C99 and C++ that need no library: NAME_score returns the log-likelihood of a
/// sample, NAME_predict its most probable component, and NAME_predict_proba the probabilities of all components. NAME
/// is the name of the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm convert model.json model.npz
  gmm convert model.npz model.json
  gmm convert model.json model.h
  gmm convert model.json sorted.json --order weight        the heaviest component first")]
pub struct Convert {
    /// The model to read, .json or .npz
    from: PathBuf,
    /// The model to write, .json or .npz, or a C header, .h
    to: PathBuf,
    /// Sort the components: `weight` puts the heaviest one first; a feature (by name, or by number counted from 0)
    /// sorts by the means of that feature, ascending; several numbers with commas list all components, counted from 0,
    /// in their new order
    #[arg(long, value_name = "ORDER")]
    order: Option<String>,
}

impl Convert {
    fn model(&self) -> anyhow::Result<Model> {
        let mut model = Model::read(&self.from)?;
        if let Some(order) = &self.order {
            if model.posterior.is_some() {
                bail!(
                    "--order sorts mixtures, and the model is a posterior of variational inference; leave --order out"
                );
            }
            model.mixture = model.mixture.sorted(&parse(order, &model)?)?;
        }
        Ok(model)
    }

    pub fn run(self) -> anyhow::Result<()> {
        let header = self.to.extension().is_some_and(|end| end.eq_ignore_ascii_case("h"));
        if header {
            let output = Output::create(&self.to)?;
            let name = self.to.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
            let header = model_to_c(&self.model()?, &name)?;
            output.write(|file| file.write_all(header.as_bytes()))?;
            return text::print(format_args!("{output} written"));
        }
        let output = ModelOutput::create(&self.to)?;
        let model = self.model()?;
        output.write_with_summary(&model, &model.summary)?;
        text::print(format_args!("{output} written"))
    }
}

fn parse(text: &str, model: &Model) -> anyhow::Result<Order> {
    if text == "weight" {
        return Ok(Order::Weight);
    }
    let names = model.summary.feature_names.as_deref();
    let is_name = names.is_some_and(|names| names.iter().any(|name| name == text));
    if is_name || !text.contains(',') {
        return Ok(Order::Mean(feature(names, model.mixture.n_features(), text)?));
    }
    let numbers = text.split(',').map(|number| number.trim().parse().with_context(|| format!("--order: `{number}`")));
    Ok(Order::Permutation(numbers.collect::<anyhow::Result<_>>()?))
}
