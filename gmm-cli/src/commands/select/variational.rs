//! `gmm select --variational`: fits by variational inference, compared by their lower bounds.
use super::{Select, note_left_out};
use crate::exit_code::SUCCESS;
use crate::input::{Input, Source};
use crate::plot;
use crate::terminal::{FitProgress, Interrupt, interrupt, text};
use anyhow::Context;
use gaussmix::Error;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::{
    BayesianGaussianMixtureParams, BayesianGaussianMixtureValidParams, Callback, Fit, Standardization,
};
use gaussmix::io::{FitSummary, ModelOutput, Output};
use gaussmix::model::VariationalMixture;
use serde::Serialize;
use std::time::Instant;

/// What `--json` prints. Bounds are sums over all samples times their weights.
#[derive(Serialize)]
struct Report {
    n: usize,
    d: usize,
    criterion: &'static str,
    best: Row,
    candidates: Vec<Row>,
    device: String,
    kernel: String,
    seconds: f64,
}

#[derive(Serialize, Clone)]
struct Row {
    k: usize,
    /// How many of them are alive.
    alive: usize,
    covariance_type: &'static str,
    /// The lower bound of the log-evidence.
    elbo: f64,
    n_iter: usize,
    converged: bool,
}

impl From<&Fit<VariationalMixture>> for Row {
    fn from(fit: &Fit<VariationalMixture>) -> Self {
        Self {
            k: fit.mixture.n_components(),
            alive: fit.mixture.alive().iter().filter(|alive| **alive).count(),
            covariance_type: fit.mixture.covariance_type().name(),
            elbo: fit.elbo(),
            n_iter: fit.n_iter(),
            converged: fit.converged,
        }
    }
}

/// The fits that were made, and the best of them.
struct Selection {
    rows: Vec<Row>,
    best: Row,
    fit: Fit<VariationalMixture>,
    left_out: Vec<usize>,
}

impl Select {
    pub(super) fn run_variational(&self) -> anyhow::Result<u8> {
        let (output, plot) = self.open()?;
        let params = self.params()?;
        let selection = self.training.data.table.selection(None, None);
        let mut input = Input::open(&self.training.data, self.training.sample_weight.as_deref(), &selection)?;
        let source = Source::new(&mut input, self.training.standardize)?;
        source.check_columns()?;
        let models = models(params, source.standardization.as_ref())?;
        let mut evaluator = source.evaluator()?;

        let interrupt = Interrupt::install();
        let begin = Instant::now();
        let mut progress = FitProgress::start(&interrupt, source.samples.n_samples(), source.standardization.as_ref());
        let selection = select(&models, &source, evaluator.as_mut(), &mut |i| {
            progress.after_iteration(i, || {
                let mixture = &i.fit.mixture;
                format!("{}, K = {}, ", mixture.covariance_type(), mixture.n_components())
            })
        });
        drop(progress);
        let selection = selection.map_err(|e| source.advise(e, true));
        let Selection { rows, best, fit, left_out } = selection.with_context(|| self.training.data.table.describe())?;
        let seconds = begin.elapsed().as_secs_f64();
        note_left_out(&left_out);
        self.training.note_regularization(&source, &fit.mixture);
        if let Some(output) = &output {
            output.write_variational(&fit.mixture, &FitSummary::from(&fit).with_feature_names(source.names()))?;
        }
        if interrupt.noted() {
            text::note(self.interrupted(rows.len(), best.k, best.covariance_type));
            return Ok(interrupt::EXIT_CODE);
        }
        if let Some(plot) = &plot {
            let points = |row: &Row| (row.covariance_type, (row.k as f64, row.elbo));
            let series = self.series(rows.iter().map(points));
            let caption = "ELBO over the number of components; higher is better";
            let svg = plot::criterion(caption, &series, (best.k as f64, best.elbo))?;
            plot.write(|file| file.write_all(svg.as_bytes()))?;
        }
        let description = evaluator.describe();
        let report = Report {
            n: evaluator.n_samples(),
            d: evaluator.n_features(),
            criterion: "elbo",
            best,
            candidates: rows,
            device: description.device,
            kernel: description.kernel,
            seconds,
        };
        if self.json {
            text::print_json(&report)?;
        } else {
            text::print(report.text(&source, output.as_ref(), plot.as_ref()))?;
        }
        if report.best.alive == report.best.k && report.candidates.iter().all(|row| row.k <= report.best.k) {
            text::note("all components of the best fit are alive: with a larger K there may be more");
        }
        Ok(SUCCESS)
    }

    /// The parameters for each covariance type and K, each checked before anything is read.
    fn params(&self) -> anyhow::Result<Vec<BayesianGaussianMixtureParams>> {
        let mut all = Vec::new();
        for &covariance_type in &self.covariance_type {
            let params = self.variational.params(&self.training, covariance_type)?;
            for k in self.numbers() {
                let params = params.clone().n_components(k);
                params.clone().check()?;
                all.push(params);
            }
        }
        Ok(all)
    }
}

/// The models of these parameters, with priors in standardised units if the samples have them.
fn models(
    params: Vec<BayesianGaussianMixtureParams>,
    standard: Option<&Standardization>,
) -> gaussmix::Result<Vec<BayesianGaussianMixtureValidParams>> {
    let model = |params: BayesianGaussianMixtureParams| match standard {
        Some(standard) => params.standardized(standard)?.check(),
        None => params.check(),
    };
    params.into_iter().map(model).collect()
}

/// Fits all models, and finds the one with the highest bound of the log-evidence, of equals the
/// first. A K for which there are too few samples is left out, unless all are.
fn select(
    models: &[BayesianGaussianMixtureValidParams],
    source: &Source<'_>,
    evaluator: &mut dyn Evaluator,
    callback: Callback<'_, VariationalMixture>,
) -> gaussmix::Result<Selection> {
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    let mut best: Option<(Row, Fit<VariationalMixture>)> = None;
    let mut too_few = None;
    for model in models {
        let fit = match model.fit_with(evaluator, callback) {
            Err(error @ (Error::TooFewSamples { .. } | Error::TooFewWeightedSamples { .. })) => {
                left_out.push(model.n_components());
                too_few = too_few.or(Some(error));
                continue;
            }
            fit => fit?,
        };
        let fit = source.restore_fit(&fit)?;
        let (row, stopped) = (Row::from(&fit), fit.stopped);
        rows.push(row.clone());
        // A bound that is no number gives way to any other.
        if best.as_ref().is_none_or(|(best, _)| row.elbo > best.elbo || best.elbo.is_nan()) {
            best = Some((row, fit));
        }
        if stopped {
            break;
        }
    }
    left_out.sort_unstable();
    left_out.dedup();
    match (best, too_few) {
        (Some((best, fit)), _) => Ok(Selection { rows, best, fit, left_out }),
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::BadParameter {
            name: "covariance_type",
            value: "an empty list".into(),
            remedy: "give at least one",
        }),
    }
}

impl Report {
    fn text(&self, source: &Source<'_>, output: Option<&ModelOutput>, plot: Option<&Output>) -> String {
        let best = &self.best;
        let rows = self.candidates.iter().map(|row| {
            let difference = row.elbo - best.elbo;
            vec![
                row.covariance_type.into(),
                row.k.to_string(),
                row.alive.to_string(),
                format!("{:.3}", row.elbo),
                if difference == 0.0 { "best".into() } else { format!("{difference:.3}") },
                format!("{}{}", row.n_iter, if row.converged { "" } else { ", not converged" }),
            ]
        });
        let mut lines = vec![
            format!("data  {}", source.describe()),
            String::new(),
            text::table(&["type", "K", "alive", "ELBO", "", "iterations"], rows, 1),
            String::new(),
            format!(
                "best by ELBO: {}, {} of them alive, {}; {} by {}, kernel {}",
                text::components(best.k),
                best.alive,
                best.covariance_type,
                text::seconds(self.seconds),
                self.device,
                self.kernel
            ),
        ];
        lines.extend(output.map(|output| format!("written: {output}")));
        lines.extend(plot.map(|plot| format!("plot: {plot}")));
        lines.join("\n")
    }
}
