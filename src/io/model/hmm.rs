//! Hidden Markov models in JSON files.
use crate::io::model::json::read_text;
use crate::io::{Output, Problem, Result};
use gmm_hmm::HiddenMarkov;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct Contents<M> {
    version: u64,
    /// Names the kind of model, which a mixture's file lacks.
    hidden_markov_model: M,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    feature_names: Option<Vec<String>>,
}

/// Reads a hidden Markov model and the names of its features, if the file has them.
///
/// # Errors
/// If the file cannot be read, is not such JSON, or has unusable parameters.
pub fn read_hidden_markov(path: impl AsRef<Path>) -> Result<(HiddenMarkov, Option<Vec<String>>)> {
    let path = path.as_ref();
    let text = read_text(path)?;
    let contents: Contents<HiddenMarkov> = serde_json::from_str(&text)
        .map_err(|error| Problem::format(format!("not a hidden Markov model: {error}")).at(path))?;
    let (model, names) = (contents.hidden_markov_model, contents.feature_names);
    if contents.version != 1 {
        let problem = format!("its version is {}; this program reads version 1", contents.version);
        return Err(Problem::Format(problem).at(path));
    }
    match &names {
        Some(found) if found.len() != model.n_features() => {
            let problem = format!("it has {} names for {} features", found.len(), model.n_features());
            Err(Problem::Format(problem).at(path))
        }
        _ => Ok((model, names)),
    }
}

/// Writes a hidden Markov model as JSON.
///
/// # Errors
/// As [`Output::write`].
pub fn write_hidden_markov(output: &Output, model: &HiddenMarkov, feature_names: Option<&[String]>) -> Result<()> {
    let feature_names = feature_names.map(<[String]>::to_vec);
    let contents = Contents { version: 1, hidden_markov_model: model, feature_names };
    output.write(|file| {
        serde_json::to_writer(&mut *file, &contents)?;
        file.write_all(b"\n")
    })
}
