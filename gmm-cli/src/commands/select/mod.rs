//! `gmm select`: the number of components and the covariance type that suit the data best.
use super::training::{Trained, Training};
use crate::exit_code::SUCCESS;
use crate::input::{Input, Source, refuse_overlap};
use crate::plot;
use crate::terminal::{FitProgress, Interrupt, interrupt, text};
use anyhow::Context;
use clap::Args;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::{
    Callback, Candidate, Criterion, Em, Fit, FittedModel as _, Fitting, Ranked, Selection, Variational, select_by,
};
use gaussmix::io::{FitSummary, ModelOutput, Output};
use gaussmix::model::{CovarianceModel, VariationalMixture};
use gaussmix::program::whole_number;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Choose the number of components and the covariance type
///
/// Fits a model for each, and reports the one with the lowest criterion. With --merge only the largest number of
/// components is fitted from a start. Then the two closest components are merged and the mixture is fitted again, until
/// the smallest number is reached (the method of Bouman's program CLUSTER).
///
/// With --variational each fit is one by variational inference, and the best one has the highest lower bound of the
/// log-evidence (ELBO). K is then an upper limit, and a fit uses only its alive components: a single K, larger than the
/// expected number, can be enough.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm select data.npy -k 1:20
  gmm select data.csv -k 1:10 --covariance-type full,tied,diag --n-init 5 -o best.json
  gmm select data.npy -k 2,4,8,16 --criterion aic --json
  gmm select data.npy -k 1:64 --merge --covariance-type diag
  gmm select data.npy -k 1:20 --grow --n-init 10 --halving
  gmm select data.csv -k 20 --covariance-type full,tied,diag --variational -o best.json
  gmm select iris.csv -k 1:8 --drop species")]
pub struct Select {
    /// Numbers of components to try: 1:20 (both included), 10:100:10 (in steps) or 2,4,8
    #[arg(short, long = "n-components", alias = "k", value_name = "RANGE", value_delimiter = ',', value_parser = range, required = true)]
    k: Vec<Range>,
    /// Models of the covariances to try, separated by commas: full, tied, diag, spherical, any of mclust's
    /// 14, such as VEV, or all
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "full", value_parser = CovarianceModel::several)]
    covariance_type: Vec<Models>,
    /// The criterion to choose by: bic, aic, icl or rissanen; the lowest value is the best
    #[arg(long, default_value = "bic", conflicts_with = "variational")]
    criterion: Criterion,
    /// Merge components from the largest number down to the smallest instead of fitting each number anew
    #[arg(long, conflicts_with = "variational")]
    merge: bool,
    /// For each number of components but the first, add a run that starts from the previous fit, with those components
    /// split whose split helps most
    ///
    /// It often finds a better mixture than many starts do.
    #[arg(long, conflicts_with_all = ["variational", "merge"])]
    grow: bool,
    /// Where to write the best model: .json, or .npz with scikit-learn's attributes
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Draw the criterion, or the lower bound with --variational, over the number of components
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    training: Training,
}

type Selected<M> = Selection<M, Row>;

pub type Range = Vec<usize>;

/// The report as `--json` prints it. Likelihoods are in the data's units; they and lower bounds are sums over all
/// samples times their weights.
#[derive(Serialize)]
struct Report {
    n: usize,
    d: usize,
    criterion: &'static str,
    best: Row,
    candidates: Vec<Row>,
    /// The models whose covariances collapsed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<FailedRow>,
    device: String,
    kernel: String,
    seconds: f64,
}

#[derive(Serialize)]
struct FailedRow {
    k: usize,
    covariance_type: &'static str,
    reason: String,
}

#[derive(Serialize, Clone)]
struct Row {
    k: usize,
    /// With --variational, the number of alive components.
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<usize>,
    covariance_type: &'static str,
    #[serde(flatten)]
    of_mixture: Option<OfMixture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elbo: Option<f64>,
    n_iter: usize,
    converged: bool,
}

/// Figures of fits by EM alone.
#[derive(Serialize, Clone)]
struct OfMixture {
    n_parameters: usize,
    log_likelihood: f64,
    value: f64,
}

impl Row {
    fn value(&self) -> f64 {
        self.of_mixture.as_ref().map_or(self.elbo.unwrap_or(f64::NAN), |of| of.value)
    }
}

impl Ranked for Row {
    fn criterion(&self) -> f64 {
        if self.of_mixture.is_some() { self.value() } else { -self.value() }
    }
}

impl Select {
    pub fn run(self) -> anyhow::Result<u8> {
        if self.training.is_variational() {
            return self.run_by::<Variational>("elbo", |fittings, source, evaluator, callback| {
                let model = |fitting| self.training.in_units(source, fitting)?.check();
                let models: Vec<_> = fittings.into_iter().map(model).collect::<gaussmix::Result<_>>()?;
                let rank = |_: &mut dyn Evaluator, fit: &Fit<_>| Ok(posterior(&source.restore_fit(fit)?));
                select_by(evaluator, &models, &rank, callback)
            });
        }
        self.run_by::<Em>(self.criterion.name(), |fittings, source, evaluator, callback| {
            let weight = evaluator.total_weight();
            let selection = self.select(&fittings[0], evaluator, callback)?;
            Ok(selection.map_rows(|row| self.row(&row, source, weight)))
        })
    }

    /// Selects by a criterion, with progress, and writes and prints the result.
    fn run_by<M: Trained>(
        &self,
        criterion: &'static str,
        select: impl FnOnce(
            Vec<Fitting<M>>,
            &Source<'_>,
            &mut dyn Evaluator,
            Callback<'_, M::Model>,
        ) -> gaussmix::Result<Selected<M::Model>>,
    ) -> anyhow::Result<u8> {
        let (output, plot) = self.open()?;
        // Wrong options are reported before anything is read.
        let fittings = self.fittings::<M>()?;
        fittings.iter().try_for_each(|fitting| fitting.clone().check().map(drop))?;
        let selection = self.training.data.table.selection(None, None);
        let mut input = Input::open(&self.training.data, self.training.sample_weight.as_deref(), &selection)?;
        let source = Source::new(&mut input, self.training.fit.standardize)?;
        source.check_columns()?;
        let mut evaluator = source.evaluator()?;

        let interrupt = Interrupt::install();
        let begin = Instant::now();
        let mut progress = FitProgress::start(&interrupt, source.samples.n_samples(), source.standardization.as_ref());
        let selection = select(fittings, &source, evaluator.as_mut(), &mut |i| {
            progress.after_iteration(i, || {
                let density = i.fit.mixture.density();
                format!("{}, K = {}, ", density.covariance_type(), density.n_gaussians())
            })
        });
        drop(progress);
        let selection = selection.map_err(|e| source.advise(e, true));
        let selection = selection.with_context(|| self.training.data.table.describe())?;
        let seconds = begin.elapsed().as_secs_f64();
        note_left_out(&selection.left_out);
        let failed = selection.failed.into_iter().map(|failed| {
            let (k, covariance_type, reason) = (failed.n_components, failed.covariance_type.name(), failed.reason);
            text::note(format_args!("{covariance_type}, K = {k} is left out: {reason}"));
            FailedRow { k, covariance_type, reason }
        });
        let failed = failed.collect();
        self.training.note_regularization(&source, &selection.fit.mixture);
        if let Some(output) = &output {
            let own = source.restore_fit(&selection.fit)?;
            let summary = FitSummary::from(&own).with_feature_names(source.names());
            output.write_with_summary(&own.mixture, &summary)?;
        }
        let candidates = selection.table;
        let best = candidates[selection.best].clone();
        if selection.stopped {
            text::note(self.interrupted(candidates.len(), best.k, best.covariance_type));
            return Ok(interrupt::EXIT_CODE);
        }
        if let Some(plot) = &plot {
            let direction = if best.of_mixture.is_some() { "lower" } else { "higher" };
            let name = criterion.to_uppercase();
            let caption = format!("{name} over the number of components; {direction} is better");
            let drawn = candidates.iter().filter(|row| !row.value().is_nan());
            let series = self.series(drawn.map(|row| (row.covariance_type, (row.k as f64, row.value()))));
            let svg = plot::criterion(&caption, &series, (best.k as f64, best.value()))?;
            plot.write(|file| file.write_all(svg.as_bytes()))?;
        }
        let description = evaluator.describe();
        text::tell_gpu_problem(&description);
        let report = Report {
            n: evaluator.n_samples(),
            d: evaluator.n_features(),
            criterion,
            best,
            candidates,
            failed,
            device: description.device,
            kernel: description.kernel,
            seconds,
        };
        text::report(self.json, &report, || report.text(&source, output.as_ref(), plot.as_ref()))?;
        report.note_largest();
        Ok(SUCCESS)
    }

    /// Returns the fits to try, in the units of the data.
    fn fittings<M: Trained>(&self) -> anyhow::Result<Vec<Fitting<M>>> {
        let of_type = |t| self.numbers().into_iter().map(move |k| self.training.fitting(k, t));
        self.covariance_type.concat().into_iter().flat_map(of_type).collect()
    }

    /// Checks that the results can be written, before anything is read.
    fn open(&self) -> anyhow::Result<(Option<ModelOutput>, Option<Output>)> {
        let inputs = self.training.inputs();
        refuse_overlap([self.output.as_ref(), self.plot.as_ref()], inputs)?;
        let output = self.output.as_ref().map(ModelOutput::create).transpose()?;
        Ok((output, self.plot.as_ref().map(Output::create).transpose()?))
    }

    fn numbers(&self) -> Vec<usize> {
        let mut k = self.k.concat();
        k.sort_unstable();
        k.dedup();
        k
    }

    fn select(
        &self,
        params: &Fitting<Em>,
        evaluator: &mut dyn Evaluator,
        callback: Callback<'_>,
    ) -> gaussmix::Result<Selection> {
        let k = self.numbers();
        if !self.merge {
            let select = if self.grow { gaussmix::fit::grow } else { gaussmix::fit::select };
            return select(evaluator, params, &k, &self.covariance_type.concat(), self.criterion, callback);
        }
        // `k` is not empty: the option is required, and every range has a number.
        let (first, last) = (k[0], k[k.len() - 1]);
        let most = k.iter().rev().copied().find(|&k| k <= evaluator.n_samples()).unwrap_or(last);
        let least = first.min(most);
        let mut all: Option<Selection> = None;
        for covariance_type in self.covariance_type.concat() {
            let model = params.clone().n_components(most).covariance_type(covariance_type).check()?;
            let one = gaussmix::fit::merge_down(evaluator, &model, least, self.criterion, callback)?;
            let stopped = one.stopped;
            all = Some(match all {
                Some(all) => all.then(one),
                None => one,
            });
            if stopped {
                break;
            }
        }
        let mut all = all.ok_or(gaussmix::Error::BadParameter {
            name: "covariance_type",
            value: "an empty list".into(),
            remedy: "give at least one",
        })?;
        all.left_out = k.into_iter().filter(|&k| k > most).collect();
        Ok(all)
    }

    /// Converts a candidate to the data's units.
    fn row(&self, row: &Candidate, source: &Source<'_>, weight: f64) -> Row {
        let log_likelihood = row.log_likelihood - weight * source.log_scale();
        let of_certain = self.criterion.value(log_likelihood, row.n_parameters, weight, source.samples.n_features());
        let value = if row.criterion.is_nan() { f64::NAN } else { of_certain + row.uncertainty };
        Row {
            k: row.n_components,
            alive: None,
            covariance_type: row.covariance_type.name(),
            of_mixture: Some(OfMixture { n_parameters: row.n_parameters, log_likelihood, value }),
            elbo: None,
            n_iter: row.n_iter,
            converged: row.converged,
        }
    }

    fn interrupted(&self, n_fits: usize, k: usize, covariance_type: &str) -> String {
        let what = format!("the best of {n_fits} fits (the last of them unfinished)");
        match &self.output {
            Some(path) => {
                let k = text::components(k);
                format!("interrupted; {what}, {k}, {covariance_type}, is in {}", path.display())
            }
            None => "interrupted; nothing was written (no -o)".into(),
        }
    }

    /// Returns a line for each covariance type, from points with the names of their types.
    fn series(&self, all: impl Iterator<Item = (&'static str, (f64, f64))> + Clone) -> Vec<plot::Series> {
        let line = |t: CovarianceModel| {
            let of_type = all.clone().filter(|(name, _)| *name == t.name());
            let mut points: Vec<(f64, f64)> = of_type.map(|(_, point)| point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            plot::Series { name: t.name().into(), points }
        };
        self.covariance_type.concat().into_iter().map(line).collect()
    }
}

/// Converts a posterior to the data's units.
fn posterior(fit: &Fit<VariationalMixture>) -> Row {
    Row {
        k: fit.mixture.n_components(),
        alive: Some(fit.mixture.alive().iter().filter(|alive| **alive).count()),
        covariance_type: fit.mixture.covariance_type().name(),
        of_mixture: None,
        elbo: Some(fit.elbo()),
        n_iter: fit.n_iter(),
        converged: fit.converged,
    }
}

impl Report {
    fn text(&self, source: &Source<'_>, output: Option<&ModelOutput>, plot: Option<&Output>) -> String {
        let best = &self.best;
        let name = self.criterion.to_uppercase();
        let rows = self.candidates.iter().map(|row| {
            let difference = row.value() - best.value();
            let mut cells = vec![row.covariance_type.into(), row.k.to_string()];
            cells.extend(row.alive.map(|alive| alive.to_string()));
            let of_mixture = row.of_mixture.as_ref();
            cells.extend(
                of_mixture
                    .into_iter()
                    .flat_map(|of| [of.n_parameters.to_string(), format!("{:.3}", of.log_likelihood)]),
            );
            cells.push(if row.value().is_nan() { "NA".into() } else { format!("{:.3}", row.value()) });
            cells.push(match (difference, of_mixture) {
                (0.0, _) => "best".into(),
                _ if difference.is_nan() => "a component is empty or has collapsed".into(),
                (_, Some(_)) => format!("+{difference:.3}"),
                (_, None) => format!("{difference:.3}"),
            });
            cells.push(format!("{}{}", row.n_iter, if row.converged { "" } else { ", not converged" }));
            cells
        });
        let header = match best.alive {
            None => &["type", "K", "parameters", "log-likelihood", &name, "", "iterations"][..],
            Some(_) => &["type", "K", "alive", &name, "", "iterations"],
        };
        let alive = best.alive.map_or_else(String::new, |alive| format!("{alive} of them alive, "));
        let mut lines = vec![
            format!("data  {}", source.describe()),
            String::new(),
            text::table(header, rows, 1),
            String::new(),
            format!(
                "best by {name}: {}, {alive}{}; {} by {}, kernel {}",
                text::components(best.k),
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

    /// Prints a note if a larger number of components may be better.
    fn note_largest(&self) {
        let is_largest = self.candidates.iter().all(|row| row.k <= self.best.k);
        match self.best.alive {
            Some(alive) if alive == self.best.k && is_largest => {
                text::note("all components of the best fit are alive: with a larger K there may be more");
            }
            None if self.candidates.len() > 1 && is_largest => {
                text::note("the best number of components is the largest that was tried: more may be better");
            }
            _ => {}
        }
    }
}

fn note_left_out(left_out: &[usize]) {
    if let [first, .., last] | [first @ last] = left_out[..] {
        let which = if first == last { format!("K = {first} is") } else { format!("K from {first} to {last} are") };
        text::note(format_args!("{which} left out: there are fewer samples that count"));
    }
}

/// Models of covariances.
pub type Models = Vec<CovarianceModel>;

/// Parses a range: `5`, `1:20` or `10:100:10`.
pub fn range(text: &str) -> Result<Range, String> {
    let wrong = || format!("`{text}` must be a number, or FIRST:LAST or FIRST:LAST:STEP with whole numbers above 0");
    let numbers: Option<Vec<usize>> = text.split(':').map(|part| whole_number(part.trim()).ok()).collect();
    let (first, last, step) = match numbers.ok_or_else(wrong)?[..] {
        [only] => (only, only, 1),
        [first, last] => (first, last, 1),
        [first, last, step] => (first, last, step),
        _ => return Err(wrong()),
    };
    if first > last || (last - first) / step >= 100_000 {
        return Err(wrong());
    }
    Ok((first..=last).step_by(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(range("1:4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(range("7"), Ok(vec![7]));
        assert_eq!(range("1e1:12"), Ok(vec![10, 11, 12]));
        assert_eq!(range("10:35:10"), Ok(vec![10, 20, 30]));
        for bad in ["", "0", "0:3", "3:1", "1:2:0", "1:2:3:4", "a:b", "-1:3", "1:1000000000000"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
