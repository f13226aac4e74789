//! Checkpoints: files from which an unfinished fit goes on.
use super::contents::FitSummary;
use super::json::{ModelMembers, parse_model, read_text, to_json};
use crate::io::{Identity, Output, Problem, Result, extension};
use gmm_host::Fit;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::Path;

/// The state of an unfinished fit: what [`resume`](gmm_host::GaussianMixtureParams::resume) needs
/// to go on.
///
/// The file is a model in JSON, that of the current run, so that every command can read it as a
/// model. Besides the members of a fitted model (`converged`, `n_iter`, `lower_bound`,
/// `lower_bounds`) it has `run`, `retained`, `best` (the best run so far, with the same members)
/// and `made_with`.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The data and the options of the fit. It can go on only with the same.
    pub made_with: Identity,
    /// The current run.
    pub present: Fit,
    /// The best of the runs before the current one.
    pub best: Option<Fit>,
    /// The names of the features, if they have any.
    pub feature_names: Option<Vec<String>>,
}

/// The members of a checkpoint as they are written.
#[derive(Serialize)]
struct WrittenMembers<'a> {
    #[serde(flatten)]
    model: ModelMembers,
    #[serde(flatten)]
    summary: FitSummary,
    run: usize,
    retained: &'a [usize],
    best: Option<Box<WrittenMembers<'a>>>,
    /// The best run has none of its own: it is of the same data and options as the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_with: Option<&'a Identity>,
}

impl<'a> WrittenMembers<'a> {
    fn new(fit: &'a Fit, best: Option<&'a Fit>, made_with: Option<&'a Identity>, names: Option<&[String]>) -> Self {
        Self {
            model: (&fit.mixture).into(),
            summary: FitSummary::from(fit).with_feature_names(names),
            run: fit.run,
            retained: &fit.retained,
            best: best.map(|best| Box::new(Self::new(best, None, None, None))),
            made_with,
        }
    }
}

/// The members of a checkpoint that are read besides those of the model.
#[derive(Deserialize)]
struct ReadMembers<'a> {
    made_with: Option<Identity>,
    feature_names: Option<Vec<String>>,
    converged: bool,
    lower_bounds: Vec<f64>,
    run: usize,
    /// Earlier versions called it `kept`.
    #[serde(alias = "kept")]
    retained: Vec<usize>,
    #[serde(borrow)]
    best: Option<&'a RawValue>,
}

/// A result file for checkpoints; see [`Output`].
#[derive(Debug)]
pub struct CheckpointOutput(Output);

impl CheckpointOutput {
    /// Makes sure that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// As [`Output::create`]; also if the name does not end in `.json`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if extension(path) != "json" {
            return Err(Problem::format("the name of a checkpoint must end in .json").at(path));
        }
        Output::create(path).map(Self)
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the checkpoint; each call replaces the one before. Errors: as [`Output::write`].
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        let Checkpoint { made_with, present, best, feature_names } = checkpoint;
        let json = WrittenMembers::new(present, best.as_ref(), Some(made_with), feature_names.as_deref());
        let json = to_json(&json);
        let json = json.map_err(|e| Problem::format(e.to_string()).at(self.path()))?;
        self.0.write(|file| file.write_all(json.as_bytes()))
    }
}

/// Reads a checkpoint.
///
/// # Errors
/// If the file cannot be read or is not a checkpoint (a model, perhaps), or if it was written by an
/// older version, which did not record the data that it belongs to.
pub fn read_checkpoint(path: impl AsRef<Path>) -> Result<Checkpoint> {
    let path = path.as_ref();
    let json = read_text(path)?;
    let read = || {
        let (present, ReadMembers { made_with, best, feature_names, .. }) = parse(&json)?;
        let best = best.map(|best| parse(best.get())).transpose()?.map(|(fit, _)| fit);
        let made_with = made_with.ok_or_else(|| {
            Problem::Format(
                "a checkpoint of an older version, which does not record its data and options; name another file, and start \
                 from this one with --init, if it belongs to this data"
                    .into(),
            )
        })?;
        Ok(Checkpoint { made_with, present, best, feature_names })
    };
    read().map_err(|problem: Problem| problem.at(path))
}

fn parse(json: &str) -> std::result::Result<(Fit, ReadMembers<'_>), Problem> {
    let mixture = parse_model(json)?;
    let members: ReadMembers<'_> = serde_json::from_str(json).map_err(|e| {
        Problem::Format(format!("a model, but not a checkpoint of a fit ({e}); start from it with --init instead"))
    })?;
    let k = mixture.n_components();
    if let Some(c) = members.retained.iter().find(|&&c| c >= k) {
        return Err(Problem::Format(format!("`retained` names component {c} (counted from 0) of {k}")));
    }
    let mut fit = Fit::new(mixture);
    (fit.lower_bounds, fit.retained) = (members.lower_bounds.clone(), members.retained.clone());
    (fit.converged, fit.run) = (members.converged, members.run);
    Ok((fit, members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_host::{Covariances, Mixture};
    use ndarray::arr1;

    fn fit(run: usize, lower_bounds: &[f64], kept: &[usize]) -> Fit {
        let means = ndarray::arr2(&[[0.1 + 0.2, run as f64], [-1.0 / 3.0, 1e-300]]);
        let mixture =
            Mixture::new(arr1(&[0.25, 0.75]), means, Covariances::Spherical(arr1(&[1.0 / 3.0, 2.0]))).unwrap();
        let mut fit = Fit::new(mixture);
        (fit.lower_bounds, fit.retained) = (lower_bounds.to_vec(), kept.to_vec());
        (fit.converged, fit.run) = (kept.is_empty(), run);
        fit
    }

    #[test]
    fn checkpoints_come_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let output = CheckpointOutput::create(&path).unwrap();
        for (present, best) in
            [(fit(2, &[-1.0 / 3.0, 0.1], &[1]), Some(fit(0, &[-7e22], &[]))), (fit(0, &[], &[]), None)]
        {
            let made_with = Identity::default().with("data", "12345 × 2").with("reg-covar", 1.0 / 3.0);
            let feature_names = best.as_ref().map(|_| vec!["a".into(), "b".into()]);
            let written = Checkpoint { made_with, present, best, feature_names };
            output.write(&written).unwrap();
            let read = read_checkpoint(&path).unwrap();
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
            // Every command can read it as a model.
            assert_eq!(crate::io::read_model(&path).unwrap(), written.present.mixture);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let refused = |text: String, part: &str| {
            std::fs::write(&path, text).unwrap();
            let error = read_checkpoint(&path).unwrap_err().to_string();
            assert!(error.contains("c.json: ") && error.contains(part), "{error}");
        };
        let whole = to_json(&WrittenMembers::new(&fit(0, &[-1.0], &[1]), None, None, None)).unwrap();
        refused(crate::io::model_to_json(&fit(0, &[], &[]).mixture), "--init");
        refused(whole.replace("\"retained\": [1]", "\"retained\": [2]"), "component 2");
        refused(whole.replace("\"run\": 0", "\"run\": -1"), "not a checkpoint");
        refused(whole.replace("\"best\": null", "\"best\": {}"), "missing field");
        refused(whole[..whole.len() - 4].into(), "not a model");
        refused(whole, "an older version");
        assert!(CheckpointOutput::create(folder.path().join("c.npz")).unwrap_err().to_string().contains(".json"));
    }
}
