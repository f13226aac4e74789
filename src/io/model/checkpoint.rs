//! Checkpoints: files from which an unfinished fit continues.
use super::contents::FitSummary;
use super::json::{ModelMembers, parse_model, read_text, to_json};
use super::variational::{self, Member};
use crate::io::{Identity, Output, Problem, Result, extension};
use gmm_host::{Fit, Mixture, VariationalMixture};
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

type Parts<'a> = (ModelMembers, Option<Member<'a>>);

impl<'a> WrittenMembers<'a> {
    fn new<M>(
        checkpoint: &'a Checkpoint<M>,
        parts: impl Fn(&'a M) -> std::result::Result<Parts<'a>, Problem>,
    ) -> std::result::Result<Self, Problem> {
        let of_fit = |fit: &'a Fit<M>, names: Option<&[String]>| -> std::result::Result<Self, Problem> {
            let (model, variational) = parts(&fit.mixture)?;
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
    pub fn write(&self, checkpoint: &Checkpoint) -> Result<()> {
        self.write_members(WrittenMembers::new(checkpoint, |mixture| Ok((mixture.into(), None))))
    }

    /// Like [`write`](Self::write), for a fit by variational inference.
    pub fn write_variational(&self, checkpoint: &Checkpoint<VariationalMixture>) -> Result<()> {
        self.write_members(WrittenMembers::new(checkpoint, |posterior| {
            Ok(((&posterior.to_mixture()?).into(), Some(posterior.into())))
        }))
    }

    fn write_members(&self, members: std::result::Result<WrittenMembers<'_>, Problem>) -> Result<()> {
        let json = members.and_then(|members| to_json(&members).map_err(|e| Problem::format(e.to_string())));
        let json = json.map_err(|problem| problem.at(self.path()))?;
        self.0.write(|file| file.write_all(json.as_bytes()))
    }
}

/// Reads a checkpoint.
///
/// # Errors
/// If the file cannot be read or is not a checkpoint (perhaps a model), or was written by an older version, which did
/// not record its data.
pub fn read_checkpoint(path: impl AsRef<Path>) -> Result<Checkpoint> {
    read_with(path.as_ref(), parse_model, Mixture::n_components)
}

/// Reads a checkpoint of a fit by variational inference. [`read_checkpoint`] reads the checkpoint of any fit, with the
/// mixtures of the means. Errors: as [`read_checkpoint`]; also if the fit was by EM.
pub fn read_variational_checkpoint(path: impl AsRef<Path>) -> Result<Checkpoint<VariationalMixture>> {
    let model = |json: &str| variational::parse_json(json)?.posterior.ok_or_else(variational::no_posterior);
    read_with(path.as_ref(), model, VariationalMixture::n_components)
}

fn read_with<M>(
    path: &Path,
    model: impl Fn(&str) -> std::result::Result<M, Problem>,
    n_components: impl Fn(&M) -> usize,
) -> Result<Checkpoint<M>> {
    let json = read_text(path)?;
    let read = || {
        let (present, ReadMembers { made_with, best, feature_names, .. }) = parse(&json, &model, &n_components)?;
        let best = best.map(|best| parse(best.get(), &model, &n_components)).transpose()?.map(|(fit, _)| fit);
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

fn parse<M>(
    json: &str,
    model: impl Fn(&str) -> std::result::Result<M, Problem>,
    n_components: impl Fn(&M) -> usize,
) -> std::result::Result<(Fit<M>, ReadMembers<'_>), Problem> {
    let mixture = model(json)?;
    let members: ReadMembers<'_> = serde_json::from_str(json).map_err(|e| {
        Problem::Format(format!("a model, but not a checkpoint of a fit ({e}); start from it with --init instead"))
    })?;
    let k = n_components(&mixture);
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
    use gmm_host::{BayesianGaussianMixtureParams, CovarianceType, Covariances, Samples, WeightConcentrationPriorType};
    use ndarray::arr1;
    use std::ops::ControlFlow;

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

    /// A fit that continues from a checkpoint ends with the bits of an uninterrupted one.
    #[test]
    fn variational_fits_go_on_from_checkpoints() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.json");
        let x =
            ndarray::Array2::from_shape_fn((90, 2), |(i, j)| (i as f64 * 0.7 + j as f64).sin() + (7 * (i % 3)) as f64);
        let mut evaluator = gmm_host::CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
        for t in CovarianceType::ALL {
            for kind in WeightConcentrationPriorType::ALL {
                let params = BayesianGaussianMixtureParams::new(4).covariance_type(t);
                let params = params.weight_concentration_prior_type(kind).n_init(3).max_iter(8).tol(0.0);
                let valid = params.clone().check().unwrap();
                let whole = valid.fit_with(&mut evaluator, &mut |_| ControlFlow::Continue(())).unwrap();
                let mut last = None;
                let stop = &mut |i: &gmm_host::Iteration<'_, VariationalMixture>| {
                    last = Some((i.fit.clone(), i.best.cloned()));
                    if (i.run, i.iteration) == (1, 5) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                assert!(valid.fit_with(&mut evaluator, stop).unwrap().stopped);
                let (present, best) = last.unwrap();
                assert!(best.is_some());
                let made_with = Identity::default().with("data", "90 × 2");
                let written = Checkpoint { made_with, present, best, feature_names: None };
                CheckpointOutput::create(&path).unwrap().write_variational(&written).unwrap();
                let read = read_variational_checkpoint(&path).unwrap();
                assert_eq!(read.made_with, written.made_with);
                let resumed = params.resume(read.present, read.best).check().unwrap();
                let resumed = resumed.fit_with(&mut evaluator, &mut |_| ControlFlow::Continue(())).unwrap();
                let (got, expected) = (&resumed, &whole);
                assert_eq!(
                    (&got.mixture, &got.lower_bounds),
                    (&expected.mixture, &expected.lower_bounds),
                    "{t} {kind}"
                );
                assert_eq!((got.run, got.converged), (expected.run, expected.converged));
                // Every command can read it as a model, and as a checkpoint of its means.
                let means = written.present.mixture.to_mixture().unwrap();
                assert_eq!(crate::io::read_model(&path).unwrap(), means);
                assert_eq!(read_checkpoint(&path).unwrap().present.mixture, means);
            }
        }
        let em =
            Checkpoint { made_with: Identity::default(), present: fit(0, &[], &[]), best: None, feature_names: None };
        CheckpointOutput::create(&path).unwrap().write(&em).unwrap();
        let error = read_variational_checkpoint(&path).unwrap_err().to_string();
        assert!(error.contains("c.json: ") && error.contains("without a posterior"), "{error}");
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
        let (made_with, present) = (Identity::default(), fit(0, &[-1.0], &[1]));
        let checkpoint = Checkpoint { made_with, present, best: None, feature_names: None };
        let members = WrittenMembers::new(&checkpoint, |mixture| Ok((mixture.into(), None))).unwrap();
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
