//! `gmm reduce`: a mixture of fewer components.
use crate::input::refuse_overlap;
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{self, FitSummary, ModelOutput};
use gaussmix::program::whole_number;
use std::path::PathBuf;

/// Merge components, those first of which that loses least
///
/// Two components after the other are merged to their common weight, mean and covariance (Runnalls
/// 2007). The Kullback-Leibler divergence of the result from the model is at most the bound that is
/// printed. Of a posterior of variational inference, the mixture of its means is taken.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm reduce model.json -k 3 -o smaller.json")]
pub struct Reduce {
    /// The mixture, .json or .npz
    model: PathBuf,
    /// The number of components that stay
    #[arg(short, long = "components", value_name = "K", value_parser = whole_number)]
    k: usize,
    /// Where to write the mixture, .json or .npz, with the names of its features
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

impl Reduce {
    pub fn run(self) -> anyhow::Result<()> {
        refuse_overlap([Some(&self.output)], [Some(&self.model)])?;
        let output = ModelOutput::create(&self.output)?;
        let (mixture, FitSummary { feature_names, .. }) = io::read_model_with_summary(&self.model)?;
        let (smaller, bound) = mixture.reduce(self.k)?;
        output.write_with_summary(&smaller, &FitSummary { feature_names, ..FitSummary::default() })?;
        let k = mixture.n_components();
        Ok(text::print(format_args!(
            "{} of {k} written to {output}; divergence from the model at most {bound:.6} nats",
            text::components(self.k)
        ))?)
    }
}
