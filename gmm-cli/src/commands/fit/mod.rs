//! `gmm fit`: fits a mixture to data by expectation-maximisation.
mod checkpoints;
mod groups;
mod labels;
mod report;

use super::training::{Trainable, Trained, Training};
use crate::exit_code::SUCCESS;
use crate::input::{Input, Source, refuse_overlap};
use crate::plot;
use crate::terminal::{FitProgress, Interrupt, ProgressLine, interrupt, text};
use anyhow::{Context, anyhow};
use checkpoints::CheckpointWriter;
use clap::Args;
use gaussmix::evaluator::{Description, Evaluator};
use gaussmix::fit::{Callback, Em, Fit as Fitted, FittedModel as _, Fitting, Variational};
use gaussmix::io::{
    Checkpoint, CheckpointOutput, FitSummary, Identity, ModelInFile as _, ModelOutput, Output, read_checkpoint,
    read_model_with_summary,
};
use gaussmix::mcmc::Fingerprint;
use gaussmix::model::{CovarianceModel, Mixture};
use gaussmix::program::whole_number;
use labels::Known;
use ndarray::Array1;
use report::Report;
use std::path::PathBuf;
use std::time::Instant;

/// Fit a Gaussian mixture to a data set
///
/// Finds the likeliest parameters by EM or, with --variational, their posterior under a prior.
///
/// Ctrl-C, SIGTERM or SIGHUP ends the fit after the current iteration, and writes the model so far to the files of -o
/// and --checkpoint. With --by the finished fits are written, and the unfinished ones get the error "stopped" in -o. A
/// second signal ends the program at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm fit data.npy -k 8 -o model.json
  gmm fit data.csv -k 3 --covariance-type diag --n-init 10 --plot fit.svg -o model.npz
  gmm fit data.npy -k 64 --standardize --max-iter 1000 --checkpoint fit.json -o model.json
  gmm fit data.npy -k 20 --variational --plot fit.svg -o model.json
  gmm fit new.npy --init model.json --freeze means=0,2,weights -o refitted.json
  gmm fit iris.csv -k 3 --drop species -o model.json
  gmm fit customers.parquet -k 8 --columns age,income,visits -o model.json
  gmm fit folder-of-parquet-files -k 8 --memory 4G -o model.json
  gmm fit purchases.parquet -k 3 --by customer -o models.parquet
  gmm fit iris.csv -k 2 --by species -o models/")]
pub struct Fit {
    /// Number of components; needed without --init. Default: that of --init
    #[arg(short, long = "n-components", value_name = "K", value_parser = whole_number, required_unless_present = "init")]
    k: Option<usize>,
    /// Model of the covariances: full, tied, diag, spherical, or one of mclust's, such as VEV. Default:
    /// that of --init, or full
    #[arg(long, value_name = "TYPE")]
    covariance_type: Option<CovarianceModel>,
    /// Start the fit at this model, or with --variational at its posterior
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["n_init", "init_params"])]
    init: Option<PathBuf>,
    /// The known components of rows: a file with a number for each row, which is its component counted from 0, or -1 if
    /// unknown. The fitted components have the numbers of the labels
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Fit a mixture to each group of rows with the same value in this column (numbers, truth values or texts), which
    /// is not a feature
    ///
    /// Each fit sees only the rows of its group. Small fits run side by side. A fit that fails does not stop the
    /// others; the command fails if all do. The whole table is read into memory.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["init", "labels", "plot", "standardize", "kernel"]
    )]
    by: Option<String>,
    /// Where to write the model: .json, or .npz with scikit-learn's attributes. With --by: a .parquet with a row for
    /// each component of each group (not with --variational), or a new or empty folder (a name without an ending, or
    /// with / at its end) for groups.csv and a .json of each group
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Save the state of the fit to this file every ten seconds and at the end. If the file exists, continue from it
    /// with the same data and options; only --max-iter and --tol may differ. With --by a .jsonl, to which each finished
    /// fit is added; all options must be the same
    #[arg(long, value_name = "FILE", conflicts_with = "halving")]
    checkpoint: Option<PathBuf>,
    /// Draw the data with the components in two dimensions, and the lower bound of each iteration. Samples with missing
    /// values are open circles, at the means of the missing values; components that --variational leaves without
    /// samples are faint
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    training: Training,
}

/// Returns a hash of a start's parameters, by which a checkpoint recognises it.
fn start_fingerprint(mixture: &Mixture) -> String {
    let (weights, means) = (mixture.weights(), mixture.means());
    let all: Array1<f64> = weights.iter().chain(means.iter()).copied().chain(mixture.covariances().iter()).collect();
    Fingerprint::of_numbers(all.view())
}

struct Outputs {
    model: Option<ModelOutput>,
    checkpoint: Option<CheckpointOutput>,
    plot: Option<Output>,
}

/// A fit that was not interrupted.
struct Finished<M> {
    /// The fit in the units of the samples.
    fit: Fitted<M>,
    /// The fit in the units of the data.
    own: Fitted<M>,
    /// The device and kernel of the iterations, if any.
    iterated_by: Option<Description>,
    seconds: f64,
}

impl Fit {
    pub fn run(self) -> anyhow::Result<u8> {
        match (&self.by, self.training.is_variational()) {
            (Some(by), false) => self.run_by::<Em>(by),
            (Some(by), true) => self.run_by::<Variational>(by),
            (None, false) => self.run_one::<Em>(),
            (None, true) => self.run_one::<Variational>(),
        }
    }

    fn run_one<M: Trained>(&self) -> anyhow::Result<u8> {
        let outputs = self.open()?;
        let known = self.labels.as_deref().map(Known::read).transpose()?;
        let (init, init_names) = match &self.init {
            Some(path) => read_model_with_summary(path).map(|(init, found)| (Some(init), found.feature_names))?,
            None => (None, None),
        };
        let resumed = self.resumed()?;
        let (k, covariance_type) = self.shape(init.as_ref().map(M::Model::density))?;
        let fitting = self.training.fitting::<M>(k, covariance_type)?;
        let selection = self.training.data.table.selection(init_names, None);
        let mut input = Input::open(&self.training.data, self.training.sample_weight.as_deref(), &selection)?;
        let made_with = match self.checkpoint {
            Some(_) => {
                self.identity(input.identity()?, known.as_ref(), &fitting, init.as_ref().map(M::Model::density))?
            }
            None => Identity::default(),
        };
        if let Some(resumed) = &resumed {
            self.check(resumed, &made_with)?;
        }
        let source = Source::new(&mut input, self.training.fit.standardize)?;
        source.check_columns()?;
        let model = self.started(fitting, &source, covariance_type, init, resumed)?.check()?;
        let mut evaluator = labels::evaluator(&source, known, k)?;

        let finished = self.fit(&source, evaluator.as_mut(), &outputs, made_with, |evaluator, callback| {
            model.fit_with(evaluator, callback)
        })?;
        let Some(Finished { fit, own, iterated_by, seconds }) = finished else { return Ok(interrupt::EXIT_CODE) };
        let line = ProgressLine::start("evaluating the fit");
        let report = Report::new(&source, evaluator.as_mut(), iterated_by, (&fit, &own), seconds)?;
        if let Some(plot) = &outputs.plot {
            let fitted = plot::Fitted {
                mixture: &own.mixture.parts()?.0,
                alive: &fit.mixture.alive().unwrap_or_else(|| vec![true; k]),
                bounds: &own.lower_bounds,
                bound: M::Model::BOUND,
            };
            draw(plot, &source, evaluator.as_mut(), fit.mixture.density(), &fitted)?;
        }
        drop(line);
        if self.json {
            text::print_json(&report)?;
        } else {
            let (model, plot) = (outputs.model.as_ref(), outputs.plot.as_ref());
            text::print(report.text(&source, &own, self.training.fit.options.max_iter, model, plot)?)?;
        }
        Ok(SUCCESS)
    }

    /// Fits by `fit`, with progress and checkpoints, and writes the model. Returns `None`, after a note, if a signal
    /// stopped the fit.
    fn fit<M: Trainable>(
        &self,
        source: &Source<'_>,
        evaluator: &mut dyn Evaluator,
        outputs: &Outputs,
        made_with: Identity,
        fit: impl FnOnce(&mut dyn Evaluator, Callback<'_, M>) -> gaussmix::Result<Fitted<M>>,
    ) -> anyhow::Result<Option<Finished<M>>> {
        let interrupt = Interrupt::install();
        let begin = Instant::now();
        let mut progress = FitProgress::start(&interrupt, source.samples.n_samples(), source.standardization.as_ref());
        let mut checkpoints = CheckpointWriter::new(outputs.checkpoint.as_ref(), source, made_with);
        let (fit, iterated_by) = iterate(evaluator, fit, &mut |i| {
            let flow = progress.after_iteration(i, || self.describe_run(i.run));
            if let Some(problem) = checkpoints.after_iteration(i.fit, i.best, flow.is_break()) {
                progress.line.hide_while(|| text::note(format_args!("{problem:#}; the fit continues")));
            }
            flow
        });
        drop(progress);
        let fit = fit.map_err(|e| source.advise(e, true)).with_context(|| self.describe_failure(&checkpoints))?;
        let seconds = begin.elapsed().as_secs_f64();
        let own = source.restore_fit(&fit)?;
        self.training.note_regularization(source, &own.mixture);
        if let Some(model) = &outputs.model {
            let summary = FitSummary::from(&own).with_feature_names(source.names());
            model.write_with_summary(&own.mixture, &summary)?;
        }
        if fit.stopped {
            checkpoints.finish(None)?;
            text::note(self.describe_interruption(own.n_iter()));
            return Ok(None);
        }
        // The checkpoint says that the last run is done, although it holds the best run.
        let mut last = fit.clone();
        last.run = self.training.fit.options.n_init - 1;
        checkpoints.finish(Some(&last))?;
        Ok(Some(Finished { fit, own, iterated_by, seconds }))
    }

    /// Checks that all results can be written, before anything is read.
    fn open(&self) -> anyhow::Result<Outputs> {
        let inputs = self.training.inputs().chain([self.labels.as_ref(), self.init.as_ref()]);
        refuse_overlap([self.output.as_ref(), self.checkpoint.as_ref(), self.plot.as_ref()], inputs)?;
        Ok(Outputs {
            model: self.output.as_ref().map(ModelOutput::create).transpose()?,
            checkpoint: self.checkpoint.as_ref().map(CheckpointOutput::create).transpose()?,
            plot: self.plot.as_ref().map(Output::create).transpose()?,
        })
    }

    fn resumed<M: Trainable>(&self) -> anyhow::Result<Option<Checkpoint<M>>> {
        match &self.checkpoint {
            Some(path) if path.metadata().is_ok_and(|m| m.is_file() && m.len() > 0) => Ok(Some(read_checkpoint(path)?)),
            _ => Ok(None),
        }
    }

    fn shape(&self, init: Option<&Mixture>) -> anyhow::Result<(usize, CovarianceModel)> {
        let k = self.k.or(init.map(Mixture::n_components)).context("-k is missing")?;
        let covariance_type = self.covariance_type.or(init.map(Mixture::covariance_model));
        Ok((k, covariance_type.unwrap_or(CovarianceModel::VVV)))
    }

    /// Returns the identity of the data and of the options that change the course of the fit. A fit continues from a
    /// checkpoint only if both are the same.
    fn identity<M: Trained>(
        &self,
        data: Identity,
        known: Option<&Known>,
        fitting: &Fitting<M>,
        init: Option<&Mixture>,
    ) -> anyhow::Result<Identity> {
        let data = data.with("labels", known.map(Known::fingerprint)).with("init", init.map(start_fingerprint));
        self.training.identify(data, fitting, self.by.is_none())
    }

    fn check<M>(&self, resumed: &Checkpoint<M>, now: &Identity) -> anyhow::Result<()> {
        let place = self.checkpoint.as_ref().map_or(String::new(), |path| path.display().to_string());
        resumed.made_with.check(now).map_err(|differences| {
            anyhow!(
                "{place}: belongs to another fit: {differences}; give the same data and options, or name another checkpoint"
            )
        })
    }

    /// Returns the fit in the units of the samples, with its start.
    fn started<M: Trained>(
        &self,
        fitting: Fitting<M>,
        source: &Source<'_>,
        covariance_type: CovarianceModel,
        init: Option<M::Model>,
        resumed: Option<Checkpoint<M::Model>>,
    ) -> anyhow::Result<Fitting<M>> {
        let fitting = self.training.in_units(source, fitting)?;
        if let Some(resumed) = resumed {
            let (present, best) = self.go_on(source, covariance_type, resumed)?;
            return Ok(fitting.resume(present, best));
        }
        let Some(init) = init else { return Ok(fitting) };
        Ok(fitting.start(self.start(source, covariance_type, init)?))
    }

    /// Returns the fits of a checkpoint in the units of the samples, to be resumed.
    fn go_on<M: Trainable>(
        &self,
        source: &Source<'_>,
        covariance_type: CovarianceModel,
        Checkpoint { present, best, .. }: Checkpoint<M>,
    ) -> anyhow::Result<(Fitted<M>, Option<Fitted<M>>)> {
        let place = || self.checkpoint.as_ref().map_or(String::new(), |path| path.display().to_string());
        text::note(format_args!(
            "continuing from {}: {}iteration {}",
            place(),
            self.describe_run(present.run),
            present.n_iter()
        ));
        let fits = source.standardize_fit(present, covariance_type).and_then(|present| {
            Ok((present, best.map(|best| source.standardize_fit(best, covariance_type)).transpose()?))
        });
        fits.with_context(|| format!("{}: belongs to another fit", place()))
    }

    /// Returns the model of --init in the units of the samples.
    fn start<M: Trainable>(&self, source: &Source<'_>, covariance_type: CovarianceModel, init: M) -> anyhow::Result<M> {
        let start = match &source.standardization {
            Some(standard) => standard.standardize(&init, covariance_type),
            None => Ok(init),
        };
        start.with_context(|| self.init.as_ref().map_or(String::new(), |path| path.display().to_string()))
    }

    fn describe_run(&self, run: usize) -> String {
        match self.training.fit.options.n_init {
            1 => String::new(),
            n => format!("run {}/{n}, ", run + 1),
        }
    }

    fn describe_interruption(&self, n_iter: usize) -> String {
        let mut text = format!("interrupted after {n_iter} iterations");
        match &self.output {
            Some(path) => text += &format!("; the model so far is in {}", path.display()),
            None if self.checkpoint.is_none() => text += "; nothing was written (no -o or --checkpoint)",
            None => {}
        }
        if let Some(path) = &self.checkpoint {
            text += &format!("; the same command continues from {}", path.display());
        }
        text
    }

    fn describe_failure<M: Trainable>(&self, checkpoints: &CheckpointWriter<'_, '_, M>) -> String {
        match (&self.checkpoint, checkpoints.any_written()) {
            (Some(path), true) => format!("the fit failed; its last checkpoint is in {}", path.display()),
            _ => format!("the fit to {} failed", self.training.data.table.describe()),
        }
    }
}

/// Fits by `fit`, and describes the device and kernel of the iterations, if any: later evaluations may use other
/// kernels.
fn iterate<M>(
    evaluator: &mut dyn Evaluator,
    fit: impl FnOnce(&mut dyn Evaluator, Callback<'_, M>) -> gaussmix::Result<Fitted<M>>,
    callback: Callback<'_, M>,
) -> (gaussmix::Result<Fitted<M>>, Option<Description>) {
    let mut iterated = false;
    let fit = fit(evaluator, &mut |i| {
        iterated = true;
        callback(i)
    });
    (fit, iterated.then(|| evaluator.describe()))
}

fn draw(
    plot: &Output,
    source: &Source<'_>,
    evaluator: &mut dyn Evaluator,
    density: &Mixture,
    fitted: &plot::Fitted<'_>,
) -> anyhow::Result<()> {
    let scatter = plot::Scatter::new(source, evaluator, density)?;
    let svg = plot::fit(&scatter, fitted, source.names().unwrap_or_default())?;
    Ok(plot.write(|file| file.write_all(svg.as_bytes()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gaussmix::data::{Rows, Samples};
    use gaussmix::evaluator::{DataFacts, ReferenceEvaluator};
    use gaussmix::fit::GaussianMixtureParams;
    use gaussmix::statistics::Statistics;
    use ndarray::{Array1, arr2};
    use std::ops::ControlFlow;

    /// The reference backend with a different kernel name for each operation, like the CUDA backend.
    struct Kernels(ReferenceEvaluator, &'static str);

    impl Evaluator for Kernels {
        fn data(&self) -> DataFacts<'_> {
            self.0.data()
        }
        fn describe(&self) -> Description {
            Description::new("here", self.1)
        }
        fn log_likelihood(&mut self, mixture: &Mixture) -> gaussmix::Result<f64> {
            self.1 = "total";
            self.0.log_likelihood(mixture)
        }
        fn score_samples(&mut self, mixture: &Mixture) -> gaussmix::Result<Array1<f64>> {
            self.1 = "scores";
            self.0.score_samples(mixture)
        }
        fn statistics(&mut self, mixture: &Mixture) -> gaussmix::Result<Statistics> {
            self.1 = "statistics";
            self.0.statistics(mixture)
        }
        fn rows(&mut self, rows: &[usize]) -> gaussmix::Result<Rows> {
            self.0.rows(rows)
        }
    }

    #[test]
    fn the_kernel_is_that_of_the_iterations() {
        let data = gaussmix::io::read_data(concat!(env!("CARGO_MANIFEST_DIR"), "/data/iris.csv")).unwrap();
        for (max_iter, kernel) in [(5, "statistics"), (0, "total")] {
            let mut evaluator = Kernels(ReferenceEvaluator::new(data.samples().unwrap()), "none");
            let params = GaussianMixtureParams::new(2).max_iter(max_iter);
            let see = &mut |_: &gaussmix::fit::Iteration<'_>| ControlFlow::Continue(());
            let model = params.check().unwrap();
            let (fit, iterated_by) = iterate(&mut evaluator, |on, callback| model.fit_with(on, callback), see);
            evaluator.log_likelihood(&fit.unwrap().mixture).unwrap();
            assert_eq!(iterated_by.unwrap_or_else(|| evaluator.describe()).kernel, kernel);
        }
        let one = arr2(&[[1.0]]);
        let mut evaluator = Kernels(ReferenceEvaluator::new(Samples::from_f64(one.view()).unwrap()), "none");
        let params = GaussianMixtureParams::new(2).check().unwrap();
        let see = &mut |_: &gaussmix::fit::Iteration<'_>| ControlFlow::Continue(());
        let (fit, iterated_by) = iterate(&mut evaluator, |on, callback| params.fit_with(on, callback), see);
        assert!(fit.is_err() && iterated_by.is_none());
    }
}
