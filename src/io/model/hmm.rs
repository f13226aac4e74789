//! Hidden Markov models in JSON files.
use crate::io::model::json::read_text;
use crate::io::{Output, Problem, Result};
use gmm_hmm::HiddenMarkov;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The content of a file: a model, or a point of a fit, from which
/// [`fit_watched`](gmm_hmm::Options::fit_watched) goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct HiddenMarkovFile {
    /// The model.
    pub model: HiddenMarkov,
    /// The names of its features, if the file has them.
    pub feature_names: Option<Vec<String>>,
    /// The log-likelihoods of a fit's iterations up to that of this model; empty in the file of a model.
    pub history: Vec<f64>,
}

#[derive(Serialize, Deserialize)]
struct Contents<M> {
    version: u64,
    /// Names the kind of model, which a mixture's file lacks.
    hidden_markov_model: M,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feature_names: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<f64>,
}

impl HiddenMarkovFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not such JSON, or has unusable parameters.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = read_text(path)?;
        let contents: Contents<HiddenMarkov> = serde_json::from_str(&text)
            .map_err(|error| Problem::format(format!("not a hidden Markov model: {error}")).at(path))?;
        let Contents { version, hidden_markov_model: model, feature_names, history } = contents;
        if version != 1 {
            let problem = format!("its version is {version}; this program reads version 1");
            return Err(Problem::Format(problem).at(path));
        }
        match &feature_names {
            Some(found) if found.len() != model.n_features() => {
                let problem = format!("it has {} names for {} features", found.len(), model.n_features());
                Err(Problem::Format(problem).at(path))
            }
            _ => Ok(Self { model, feature_names, history }),
        }
    }

    /// Writes JSON.
    ///
    /// # Errors
    /// As [`Output::write`].
    pub fn write(&self, output: &Output) -> Result<()> {
        let Self { model, feature_names, history } = self.clone();
        let contents = Contents { version: 1, hidden_markov_model: &model, feature_names, history };
        output.write(|file| {
            serde_json::to_writer(&mut *file, &contents)?;
            file.write_all(b"\n")
        })
    }
}
