//! `gmm convert`: a model in another file format.
use crate::terminal::text;
use clap::Args;
use gaussmix::io::{Model, ModelOutput, Output, model_to_c};
use std::path::PathBuf;

/// Convert a model between .json and .npz, or to a C header
///
/// The .npz has the names and shapes of scikit-learn's attributes. Every number keeps its bits. How
/// a fit found the model (`converged`, `n_iter`, `lower_bound`, `lower_bounds`) is converted too,
/// where the file says it, and so is the posterior of variational inference.
///
/// The header (.h) has functions for C99 and C++ that need no library: NAME_score, the
/// log-likelihood of a sample, NAME_predict, its most probable component, and NAME_predict_proba,
/// where NAME is that of the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm convert model.json model.npz
  gmm convert model.npz model.json
  gmm convert model.json model.h")]
pub struct Convert {
    /// The model to read, .json or .npz
    from: PathBuf,
    /// The model to write, .json or .npz, or a C header, .h
    to: PathBuf,
}

impl Convert {
    pub fn run(self) -> anyhow::Result<()> {
        if self.to.extension().is_some_and(|end| end.eq_ignore_ascii_case("h")) {
            let output = Output::create(&self.to)?;
            let name = self.to.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
            let header = model_to_c(&Model::read(&self.from)?, &name)?;
            output.write(|file| file.write_all(header.as_bytes()))?;
            return Ok(text::print(format_args!("{output} written"))?);
        }
        let output = ModelOutput::create(&self.to)?;
        let model = Model::read(&self.from)?;
        match &model.posterior {
            Some(posterior) => output.write_variational(posterior, &model.summary)?,
            None => output.write_with_summary(&model.mixture, &model.summary)?,
        }
        Ok(text::print(format_args!("{output} written"))?)
    }
}
