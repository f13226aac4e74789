//! Checkpoints: files from which an unfinished fit continues.
use super::contents::{FitSummary, ModelInFile};
use super::json::{ModelMembers, read_text, to_json};
use super::variational::{self, Member};
use crate::io::{Identity, Output, Problem, Result, extension};
use gmm_host::{Fit, Mixture};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::path::Path;

/// The state of an unfinished fit, for [`resume`](gmm_host::GaussianMixtureParams::resume).
///
/// The file is a model in JSON, that of the current run, so every command can read it as a model. Besides the members
/// of a fitted model (`converged`, `n_iter`, `lower_bound`, `lower_bounds`) it has `run`, `retained`, `best` (the best
/// run so far, with the same members) and `made_with`; for variational inference also `variational`, the posterior,
/// beside the mixture of its means.
#[derive(Debug, Clone)]
pub struct Checkpoint<M = Mixture> {
    /// The data and the options of the fit, which continues only with the same ones.
    pub made_with: Identity,
    /// The current run.
    pub present: Fit<M>,
    /// The best of the runs before the current one.
    pub best: Option<Fit<M>>,
    /// The names of the features, if any.
    pub feature_names: Option<Vec<String>>,
}

#[derive(Serialize)]
struct WrittenMembers<'a> {
    #[serde(flatten)]
    model: ModelMembers,
    #[serde(skip_serializing_if = "Option::is_none")]
    variational: Option<Member<'a>>,
    #[serde(flatten)]
    summary: FitSummary,
    run: usize,
    retained: &'a [usize],
    best: Option<Box<WrittenMembers<'a>>>,
    /// `None` for the best run, which shares the current run's.
    #[serde(skip_serializing_if = "Option::is_none")]
    made_with: Option<&'a Identity>,
}

impl<'a> WrittenMembers<'a> {
    fn new<M: ModelInFile>(checkpoint: &'a Checkpoint<M>) -> gmm_host::Result<Self> {
        let of_fit = |fit: &'a Fit<M>, names: Option<&[String]>| -> gmm_host::Result<Self> {
            let (mixture, posterior) = fit.mixture.parts()?;
            let (model, variational) = (ModelMembers::from(&mixture), posterior.map(Member::from));
            let summary = FitSummary::from(fit).with_feature_names(names);
            Ok(Self { model, variational, summary, run: fit.run, retained: &fit.retained, best: None, made_with: None })
        };
        let Checkpoint { made_with, present, best, feature_names } = checkpoint;
        let best = best.as_ref().map(|best| of_fit(best, None)).transpose()?.map(Box::new);
        Ok(Self { best, made_with: Some(made_with), ..of_fit(present, feature_names.as_deref())? })
    }
}

#[derive(Deserialize)]
struct ReadMembers<'a> {
    made_with: Option<Identity>,
    feature_names: Option<Vec<String>>,
    converged: bool,
    lower_bounds: Vec<f64>,
    run: usize,
    /// Named `kept` by earlier versions.
    #[serde(alias = "kept")]
    retained: Vec<usize>,
    #[serde(borrow)]
    best: Option<&'a RawValue>,
}

/// A result file for checkpoints; see [`Output`].
#[derive(Debug)]
pub struct CheckpointOutput(Output);

impl CheckpointOutput {
    /// Checks that `path` can be written, and changes nothing there. Errors: as [`Output::create`]; also if the name
    /// does not end in `.json`.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if extension(path) != "json" {
            return Err(Problem::format("the name of a checkpoint must end in .json").at(path));
        }
        Output::create(path).map(Self)
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the checkpoint in place of the previous one. Errors: as [`Output::write`].
    pub fn write<M: ModelInFile>(&self, checkpoint: &Checkpoint<M>) -> Result<()> {
        let members = WrittenMembers::new(checkpoint).map_err(Problem::from);
        let json = members.and_then(|members| to_json(&members).map_err(|e| Problem::format(e.to_string())));
        let json = json.map_err(|problem| problem.at(self.path()))?;
        self.0.write(|file| file.write_all(json.as_bytes()))
    }
}

/// Reads a checkpoint; as one of a [`Mixture`] that of any fit, of variational inference with the mixtures of the means.
///
/// # Errors
/// If the file cannot be read or is not a checkpoint (perhaps a model), or was written by an older version, which did
/// not record its data; also if a posterior is wanted and the fit was by EM.
pub fn read_checkpoint<M: ModelInFile>(path: impl AsRef<Path>) -> Result<Checkpoint<M>> {
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

fn parse<M: ModelInFile>(json: &str) -> std::result::Result<(Fit<M>, ReadMembers<'_>), Problem> {
    let model = variational::parse_json(json)?;
    let k = model.mixture.n_components();
    let members: ReadMembers<'_> = serde_json::from_str(json).map_err(|e| {
        Problem::Format(format!("a model, but not a checkpoint of a fit ({e}); start from it with --init instead"))
    })?;
    if let Some(c) = members.retained.iter().find(|&&c| c >= k) {
        return Err(Problem::Format(format!("`retained` names component {c} (counted from 0) of {k}")));
    }
    let mut fit = Fit::new(M::of(model)?);
    (fit.lower_bounds, fit.retained) = (members.lower_bounds.clone(), members.retained.clone());
    (fit.converged, fit.run) = (members.converged, members.run);
    Ok((fit, members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm_host::{
        BayesianGaussianMixtureParams, CovarianceType, Covariances, VariationalMixture, WeightConcentrationPriorType,
    };
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
            let read: Checkpoint = read_checkpoint(&path).unwrap();
            assert_eq!(format!("{read:?}"), format!("{written:?}"));
            // Every command can read it as a model.
            assert_eq!(crate::io::read_model(&path).unwrap(), written.present.mixture);
        }
    }

    #[test]
    fn checkpoints_of_variational_fits_come_back_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let x =
            ndarray::Array2::from_shape_fn((90, 2), |(i, j)| (i as f64 * 0.7 + j as f64).sin() + (7 * (i % 3)) as f64);
        for t in CovarianceType::ALL {
            for kind in WeightConcentrationPriorType::ALL {
                let params = BayesianGaussianMixtureParams::new(4).covariance_type(t);
                let params = params.weight_concentration_prior_type(kind);
                let [present, best] = [5, 3].map(|n| params.clone().max_iter(n).fit(&x).unwrap());
                let made_with = Identity::default().with("data", "90 × 2");
                let written = Checkpoint { made_with, present, best: Some(best), feature_names: None };
                CheckpointOutput::create(&path).unwrap().write(&written).unwrap();
                let read = read_checkpoint::<VariationalMixture>(&path).unwrap();
                assert_eq!(format!("{read:?}"), format!("{written:?}"));
                // Every command can read it as a model, and as a checkpoint of its means.
                let means = written.present.mixture.to_mixture().unwrap();
                assert_eq!(crate::io::read_model(&path).unwrap(), means);
                assert_eq!(read_checkpoint::<Mixture>(&path).unwrap().present.mixture, means);
            }
        }
        let em =
            Checkpoint { made_with: Identity::default(), present: fit(0, &[], &[]), best: None, feature_names: None };
        CheckpointOutput::create(&path).unwrap().write(&em).unwrap();
        let error = read_checkpoint::<VariationalMixture>(&path).unwrap_err().to_string();
        assert!(error.contains("c.json: ") && error.contains("without a posterior"), "{error}");
    }

    #[test]
    fn other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let refused = |text: String, part: &str| {
            std::fs::write(&path, text).unwrap();
            let error = read_checkpoint::<Mixture>(&path).unwrap_err().to_string();
            assert!(error.contains("c.json: ") && error.contains(part), "{error}");
        };
        let (made_with, present) = (Identity::default(), fit(0, &[-1.0], &[1]));
        let checkpoint = Checkpoint { made_with, present, best: None, feature_names: None };
        let members = WrittenMembers::new(&checkpoint).unwrap();
        let whole = to_json(&WrittenMembers { made_with: None, ..members }).unwrap();
        refused(crate::io::model_to_json(&fit(0, &[], &[]).mixture), "--init");
        refused(whole.replace("\"retained\": [1]", "\"retained\": [2]"), "component 2");
        refused(whole.replace("\"run\": 0", "\"run\": -1"), "not a checkpoint");
        refused(whole.replace("\"best\": null", "\"best\": {}"), "missing field");
        refused(whole[..whole.len() - 4].into(), "not a model");
        refused(whole, "an older version");
        assert!(CheckpointOutput::create(folder.path().join("c.npz")).unwrap_err().to_string().contains(".json"));
    }
}
