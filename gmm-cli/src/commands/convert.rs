//! `gmm convert`: a model in another file format.
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{Model, ModelOutput};
use std::path::PathBuf;

/// Convert a model between .json and .npz
///
/// The .npz has the names and shapes of scikit-learn's attributes. Every number keeps its bits. How
/// a fit found the model (`converged`, `n_iter`, `lower_bound`, `lower_bounds`) is converted too,
/// where the file says it, and so is the posterior of variational inference.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm convert model.json model.npz
  gmm convert model.npz model.json")]
pub struct Convert {
    /// The model to read, .json or .npz
    from: PathBuf,
    /// The model to write, .json or .npz
    to: PathBuf,
}

impl Convert {
    pub fn run(self) -> anyhow::Result<()> {
        let output = ModelOutput::create(&self.to)?;
        let model = Model::read(&self.from)?;
        match &model.posterior {
            Some(posterior) => output.write_variational(posterior, &model.summary)?,
            None => output.write_with_summary(&model.mixture, &model.summary)?,
        }
        Ok(text::print(format_args!("{output} written"))?)
    }
}
