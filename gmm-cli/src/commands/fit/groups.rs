//! `gmm fit --by`: fits a mixture to each group of rows.
use super::Fit;
use super::report::data;
use crate::commands::training::Trained;
use crate::exit_code::SUCCESS;
use crate::input::{Groups, Input, Source, refuse_overlap};
use crate::terminal::{Interrupt, ProgressLine, interrupt, text};
use anyhow::bail;
use gaussmix::fit::{Checked, Fit as Fitted, Fitting, Watch};
use gaussmix::io::{ColumnSelection, FitLog, FitSummary, GroupFit, GroupModels, GroupOutput, Identity, Ids, Model};
use gaussmix::mcmc::Fingerprint;
use gaussmix::{Error, Result};
use ndarray::Array1;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const MAX_FAILURES: usize = 5;

/// Counts the fits that have ended, writes them to the checkpoint, and stops the others after a signal.
struct Progress<'a, M> {
    interrupt: Interrupt,
    line: Mutex<ProgressLine>,
    ended: AtomicUsize,
    names: &'a Ids,
    checkpoint: Option<FitLog>,
    /// Whether a fit could not be written to the checkpoint.
    any_failed: AtomicBool,
    n_runs: usize,
    /// The runs of the checkpoint, by the names of their groups and their numbers.
    known: HashMap<(String, usize), Fitted<M>>,
}

impl<M: Serialize + Clone + Sync> Watch<M> for Progress<'_, M> {
    fn known(&self, set: usize, run: usize) -> Option<Fitted<M>> {
        self.known.get(&(self.names.text(set), run)).cloned()
    }

    fn ended(&self, set: usize, result: &Result<Fitted<M>>) {
        let ended = 1 + self.ended.fetch_add(1, Ordering::Relaxed);
        let written = match (&self.checkpoint, result) {
            (Some(checkpoint), Ok(fit)) => checkpoint.add(&self.names.text(set), fit),
            _ => Ok(()),
        };
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Err(problem), false) = (written, self.any_failed.load(Ordering::Relaxed)) {
            self.any_failed.store(true, Ordering::Relaxed);
            line.hide_while(|| text::note(format_args!("{problem}; the fits continue")));
        }
        let tell = || {
            let outcome = match result {
                Ok(fit) => format!("{} iterations", fit.n_iter()),
                Err(error) => error.to_string(),
            };
            format!("group `{}`: {outcome}", self.names.text(set))
        };
        line.hide_while(|| text::tell(tell));
        line.update(|| {
            let n = self.n_runs;
            let what = if n == self.names.len() { "groups" } else { "runs" };
            let (percent, n) = (100.0 * ended as f64 / n as f64, text::grouped(n as u64));
            format!("fitting: {} of {n} {what}, {percent:.0} %", text::grouped(ended as u64))
        });
    }

    fn slowed(&self, error: &gaussmix::Error) {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.hide_while(|| {
            text::note(format_args!("{error}; the GPU makes small fits one by one, which takes longer"))
        });
    }

    fn stop(&self) -> bool {
        self.interrupt.noted()
    }
}

#[derive(Serialize)]
struct Report<'a> {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_names: Option<&'a [String]>,
    /// The column of the groups.
    by: &'a str,
    n_groups: usize,
    fitted: usize,
    failed: usize,
    converged: usize,
    seconds: f64,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    group: Name,
    n_samples: usize,
    /// Null if the fit failed, like the next two.
    converged: Option<bool>,
    n_iter: Option<u64>,
    /// Mean log-likelihood of a sample before the last M-step, or the lower bound of --variational; null also without
    /// iterations.
    lower_bound: Option<f64>,
    error: Option<String>,
}

/// A value of the column of the groups.
#[derive(Serialize)]
#[serde(untagged)]
enum Name {
    Integer(i64),
    Text(String),
}

impl Fit {
    pub(super) fn run_by<M: Trained>(&self, by: &str) -> anyhow::Result<u8> {
        self.training.data.check_one_device()?;
        let output = self.open_groups()?;
        let (k, covariance_type) = self.shape(None)?;
        let selection = ColumnSelection { by: Some(by.into()), ..self.training.data.table.selection(None, None) };
        let mut input = Input::open(&self.training.data, self.training.sample_weight.as_deref(), &selection)?;
        let data = self.checkpoint.as_ref().map(|_| input.identity()).transpose()?;
        let source = Source::new(&mut input, false)?;
        let groups = Groups::new(&source, by)?;
        output.as_ref().map_or(Ok(()), |output| output.check_names(by, &groups.names, source.names()))?;
        if self.training.has_noise() {
            bail!("--noise-component is for one fit; leave it out, or fit each group by itself");
        }
        let device = self.training.data.device;

        let fitting = self.training.fitting::<M>(k, covariance_type)?.device(device);
        let made_with = match data {
            Some(data) => self.groups_identity(data, &fitting, &groups)?,
            None => Identity::default(),
        };
        let fitting = fitting.check()?;

        let begin = Instant::now();
        let fits = self.fit_groups(&groups, &made_with, &fitting)?;
        let model = |fit: Fitted<M::Model>| {
            let summary = FitSummary::from(&fit).with_feature_names(source.names());
            Model::with_summary(&fit.mixture, summary)
        };
        let results: Vec<Result<Model>> = fits.into_iter().map(|fit| fit.and_then(model)).collect();
        let seconds = begin.elapsed().as_secs_f64();

        let stopped = results.iter().filter(|result| matches!(result, Err(Error::Stopped))).count();
        let model = |(group, result): (usize, Result<Model>)| match result {
            Ok(model) => Ok(model),
            Err(Error::Stopped) => Err("stopped".into()),
            Err(error) => Err(source.advise(groups.error(group, error), false).to_string()),
        };
        let fits = results.into_iter().enumerate().map(model).zip(&groups.sets);
        let fits = fits.map(|(model, set)| GroupFit { n_samples: set.n_samples(), model }).collect();
        let models = GroupModels { by: by.into(), groups: groups.names, fits };
        let (n_groups, fitted) = (models.fits.len(), models.models().count());
        if let (Some(output), true) = (&output, fitted > 0) {
            output.write(&models)?;
        }
        if stopped > 0 {
            let mut written = match &output {
                Some(output) if fitted > 0 => format!("; the models so far are in {}", output.path().display()),
                _ if self.checkpoint.is_none() => "; nothing was written".into(),
                _ => String::new(),
            };
            if let Some(path) = &self.checkpoint {
                written += &format!("; the same command continues from {}", path.display());
            }
            let ended = text::grouped((n_groups - stopped) as u64);
            text::note(format_args!("interrupted after {ended} of {} fits{written}", text::grouped(n_groups as u64)));
            return Ok(interrupt::EXIT_CODE);
        }
        let failed = n_groups - fitted;
        if let (0, Some(GroupFit { model: Err(error), .. })) = (fitted, models.fits.first()) {
            let (name, group) = (source.name(), models.groups.text(0));
            bail!(
                "{name}: all of {} fits failed; that to the group `{group}`: {error}",
                text::grouped(n_groups as u64)
            );
        }
        if failed > 0 {
            text::note(format_args!(
                "{} of {} fits failed",
                text::grouped(failed as u64),
                text::grouped(n_groups as u64)
            ));
        }
        let report = Report {
            n: source.samples.n_samples(),
            d: source.samples.n_features(),
            k,
            covariance_type: covariance_type.name(),
            feature_names: source.names(),
            by,
            n_groups,
            fitted,
            failed,
            converged: models.models().filter(|model| model.summary.converged == Some(true)).count(),
            seconds,
            groups: (0..n_groups).map(|group| Group::new(&models, group)).collect(),
        };
        text::report(self.json, &report, || report.text(&source, output.as_ref()))?;
        Ok(SUCCESS)
    }

    fn fit_groups<M: Trained>(
        &self,
        groups: &Groups<'_>,
        made_with: &Identity,
        fitting: &Checked<Fitting<M>>,
    ) -> anyhow::Result<Vec<Result<Fitted<M::Model>>>> {
        let (checkpoint, known) = match &self.checkpoint {
            Some(path) => {
                let (log, known) = FitLog::open(path, made_with)?;
                (Some(log), known)
            }
            None => (None, Vec::<(String, Fitted<M::Model>)>::new()),
        };
        let n_runs = groups.names.len() * fitting.n_runs();
        if let (Some(checkpoint), false) = (&checkpoint, known.is_empty()) {
            let (known, n) = (text::grouped(known.len() as u64), text::grouped(n_runs as u64));
            text::note(format_args!("continuing from {}: {known} of {n} fits", checkpoint.path().display()));
        }
        let progress = Progress {
            interrupt: Interrupt::install(),
            line: Mutex::new(ProgressLine::start("fitting")),
            ended: AtomicUsize::new(known.len()),
            names: &groups.names,
            checkpoint,
            any_failed: AtomicBool::new(false),
            n_runs,
            known: known.into_iter().map(|(name, fit)| ((name, fit.run), fit)).collect(),
        };
        Ok(fitting.fit_many(&groups.sets, &progress))
    }

    /// Returns the identity of the data, the groups and all options: fits in a checkpoint are not repeated, so every
    /// option must be the same.
    fn groups_identity<M: Trained>(
        &self,
        data: Identity,
        fitting: &Fitting<M>,
        groups: &Groups<'_>,
    ) -> anyhow::Result<Identity> {
        let names =
            (0..groups.names.len()).flat_map(|group| groups.names.text(group).into_bytes().into_iter().chain([0]));
        let all: Array1<f64> = groups.of_row.iter().map(|&group| group as f64).chain(names.map(f64::from)).collect();
        self.identity(data.with("the groups", Fingerprint::of_numbers(all.view())), None, fitting, None)
    }

    /// Checks that the models can be written, before anything is read.
    fn open_groups(&self) -> anyhow::Result<Option<GroupOutput>> {
        let inputs = || self.training.inputs();
        let Some(path) = &self.output else {
            refuse_overlap([self.checkpoint.as_ref()], inputs())?;
            return Ok(None);
        };
        // In an existing folder, this file would be replaced.
        let inside = if path.is_dir() { path.join("groups.csv") } else { path.clone() };
        refuse_overlap([Some(&inside), self.checkpoint.as_ref()], inputs())?;
        let goes_on = self
            .checkpoint
            .as_ref()
            .is_some_and(|log| log.metadata().is_ok_and(|found| found.is_file() && found.len() > 0));
        let output = if goes_on { GroupOutput::resume(path)? } else { GroupOutput::create(path)? };
        if self.training.is_variational() && !output.is_folder() {
            bail!("{}: a .parquet has no place for posteriors of --variational; name a folder", path.display());
        }
        Ok(Some(output))
    }
}

impl Group {
    fn new(models: &GroupModels, group: usize) -> Self {
        let fit = &models.fits[group];
        let summary = fit.model.as_ref().map(|model| &model.summary).ok();
        Self {
            group: match &models.groups {
                Ids::Integers(ids) => ids[group].map_or_else(|| Name::Text(String::new()), Name::Integer),
                Ids::Texts(_) => Name::Text(models.groups.text(group)),
            },
            n_samples: fit.n_samples,
            converged: summary.and_then(|summary| summary.converged),
            n_iter: summary.and_then(|summary| summary.n_iter),
            lower_bound: summary.and_then(|summary| summary.lower_bound),
            error: fit.model.as_ref().err().cloned(),
        }
    }
}

impl Report<'_> {
    fn text(&self, source: &Source<'_>, output: Option<&GroupOutput>) -> String {
        let count = |n: usize| text::grouped(n as u64);
        let mut lines = data(source, self.feature_names);
        lines.push(format!("groups          {}, by `{}`", count(self.n_groups), self.by));
        let sizes = self.groups.iter().map(|group| group.n_samples);
        if let (Some(least), Some(most)) = (sizes.clone().min(), sizes.max()) {
            lines.push(format!("  samples       {} to {} in a group", count(least), count(most)));
        }
        lines.push(format!("model           {}, {}, for each group", text::components(self.k), self.covariance_type));
        lines.push(format!("fitted          {}", count(self.fitted)));
        let advice = if self.converged < self.fitted { "; raise --max-iter or --tol for the others" } else { "" };
        lines.push(format!("  converged     {}{advice}", count(self.converged)));
        lines.push(format!("failed          {}", count(self.failed)));
        let failures = self.groups.iter().filter_map(|group| Some((&group.group, group.error.as_ref()?)));
        for (group, error) in failures.take(MAX_FAILURES) {
            let group = match group {
                Name::Integer(id) => id.to_string(),
                Name::Text(text) => text.clone(),
            };
            lines.push(format!("  `{group}`: {error}"));
        }
        lines.push(format!("time            {}", text::seconds(self.seconds)));
        lines.extend(output.map(|output| format!("written         {output}")));
        lines.join("\n")
    }
}
