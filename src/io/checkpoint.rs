//! A fit in the middle of its work, in a file.
use super::model::{fit_members, model_members, parse_model};
use super::{Identity, Output, Problem, Result};
use gmm_host::Fit;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::Path;

/// Where a fit stands: what [`resume`](gmm_host::GaussianMixtureParams::resume) needs to go on.
///
/// The file is the JSON of the present run's model, which every command reads as such, with the members of a fitted
/// model (`converged`, `n_iter`, `lower_bound`, `lower_bounds`) and `made_with`, `run`, `kept` and `best`: the best run
/// before, in the same form.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The data and the options of the fit: a checkpoint is of no use with others.
    pub made_with: Identity,
    /// The run that the fit is in.
    pub present: Fit,
    /// The best of the runs before it.
    pub best: Option<Fit>,
}

/// What a checkpoint has besides the model.
#[derive(Deserialize)]
struct Members<'a> {
    made_with: Option<Identity>,
    converged: bool,
    lower_bounds: Vec<f64>,
    run: usize,
    kept: Vec<usize>,
    #[serde(borrow)]
    best: Option<&'a RawValue>,
}

/// The file of a checkpoint; see [`Output`].
#[derive(Debug)]
pub struct CheckpointOutput(Output);

impl CheckpointOutput {
    /// Makes sure that `path` can be written, and changes nothing there.
    ///
    /// # Errors
    /// As [`Output::create`]; a name that does not end in `.json`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if super::extension(path) != "json" {
            return Err(Problem::Format("the name of a checkpoint must end in .json".into()).at(path));
        }
        Output::create(path).map(Self)
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the checkpoint; may be done again and again. Errors: as [`Output::write`].
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        let best = checkpoint.best.as_ref().map_or_else(|| "null".into(), |best| object(best, "null"));
        let made_with = checkpoint.made_with.to_json();
        let whole = object(&checkpoint.present, &format!("{best},\n\"made_with\": {made_with}"));
        self.0.write(|file| writeln!(file, "{whole}"))
    }
}

fn object(fit: &Fit, best: &str) -> String {
    format!(
        "{{{},\n{},\n\"run\": {}, \"kept\": {:?},\n\"best\": {best}}}",
        model_members(&fit.mixture),
        fit_members(fit),
        fit.run,
        fit.retained
    )
}

/// Reads a checkpoint.
///
/// # Errors
/// A file that cannot be read, or is something else (a model, perhaps); a checkpoint of an older version, which does not say
/// what data it is of.
pub fn read_checkpoint(path: impl AsRef<Path>) -> Result<Checkpoint> {
    let path = path.as_ref();
    let read = || {
        let json = std::fs::read_to_string(path).map_err(Problem::io("read it"))?;
        let (present, made_with, best) = parse(&json)?;
        let best = best.map(|best| parse(best.get())).transpose()?.map(|(fit, ..)| fit);
        let made_with = made_with.ok_or_else(|| {
            Problem::Format(
                "a checkpoint of an older version, which does not say what data and options it is of; name another file, \
                 and start from this one with --init, if it is of this data"
                    .into(),
            )
        })?;
        Ok(Checkpoint { made_with, present, best })
    };
    read().map_err(|problem: Problem| problem.at(path))
}

fn parse(json: &str) -> std::result::Result<(Fit, Option<Identity>, Option<&RawValue>), Problem> {
    let mixture = parse_model(json)?;
    let Members { made_with, converged, lower_bounds, run, kept, best } = serde_json::from_str(json).map_err(|e| {
        Problem::Format(format!("a model, but no checkpoint of a fit ({e}); start from it with --init instead"))
    })?;
    let k = mixture.n_components();
    if let Some(c) = kept.iter().find(|&&c| c >= k) {
        return Err(Problem::Format(format!("`kept` names component {c} (counted from 0) of {k}")));
    }
    let mut fit = Fit::new(mixture);
    (fit.lower_bounds, fit.converged, fit.run, fit.retained) = (lower_bounds, converged, run, kept);
    Ok((fit, made_with, best))
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
            let written = Checkpoint { made_with, present, best };
            output.write(&written).unwrap();
            let read = read_checkpoint(&path).unwrap();
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
            // It is a model as well.
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
        let whole = object(&fit(0, &[-1.0], &[1]), "null");
        refused(crate::io::model_to_json(&fit(0, &[], &[]).mixture), "--init");
        refused(whole.replace("\"kept\": [1]", "\"kept\": [2]"), "component 2");
        refused(whole.replace("\"run\": 0", "\"run\": -1"), "no checkpoint");
        refused(whole.replace("\"best\": null", "\"best\": {}"), "missing field");
        refused(whole[..whole.len() - 3].into(), "not a model");
        refused(whole, "an older version");
        assert!(CheckpointOutput::create(folder.path().join("c.npz")).unwrap_err().to_string().contains(".json"));
    }
}
