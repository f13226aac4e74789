//! `gmm fit`: a mixture that fits the data, by expectation-maximisation.
use super::bench::whole_number;
use super::files::refuse_overlap;
use super::interrupt::{self, Interrupt};
use super::plot;
use super::source::Source;
use super::text;
use super::training::Training;
use super::watch::Watch;
use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use gmm::io::{self, Checkpoint, CheckpointOutput, Identity, ModelOutput, Output};
use gmm::{
    Callback, CovarianceType, Criterion, Description, Evaluator, Fit as Fitted, Freeze, GaussianMixtureParams,
    GaussianMixtureValidParams, Mixture, Operation, Samples, mcmc,
};
use ndarray::{ArrayView1, Axis};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The least time between two checkpoints.
const SAVE: Duration = Duration::from_secs(10);

/// Weights that are printed, at most.
const MANY: usize = 12;

/// Fit a Gaussian mixture to a data set
///
/// Ctrl-C (or SIGTERM, or SIGHUP) ends the fit with the iteration that it is in: the model so far is written where -o or
/// --checkpoint says (a second one ends the program at once).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm fit data.npy -k 8 -o model.json
  gmm fit data.csv -k 3 --covariance-type diag --n-init 10 --plot fit.svg -o model.npz
  gmm fit data.npy -k 64 --standardize --tol 1e-5 --max-iter 1000 --checkpoint fit.json -o model.json
  gmm fit new.npy --init model.json --freeze means -o adapted.json")]
pub struct Fit {
    /// Number of components; by default that of --init
    #[arg(short, value_parser = whole_number, required_unless_present = "init")]
    k: Option<usize>,
    /// Shape of the covariances: full, tied, diag or spherical; by default that of --init, or full
    #[arg(long, value_name = "TYPE")]
    covariance_type: Option<CovarianceType>,
    /// Start at this model
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["n_init", "init_params"])]
    init: Option<PathBuf>,
    /// Parameters that stay as the start has them: weights, means, covariances, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    freeze: Vec<Parameter>,
    /// Where to write the model: .json, or .npz with scikit-learn's attributes
    #[arg(short, long, value_name = "MODEL")]
    output: Option<PathBuf>,
    /// Write where the fit stands to this file every ten seconds and at its end; if the file is there already, go on from it,
    /// with the same data and options (--max-iter and --tol may be others)
    #[arg(long, value_name = "FILE.json")]
    checkpoint: Option<PathBuf>,
    /// Draw the data with the components, in two dimensions, and the lower bound of each iteration
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    training: Training,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Parameter {
    Weights,
    Means,
    Covariances,
}

impl Parameter {
    fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Means => "means",
            Self::Covariances => "covariances",
        }
    }
}

/// What tells a given start from another of the same K and covariance type.
fn start(mixture: &Mixture) -> gmm::Result<String> {
    let (weights, means) = (mixture.weights(), mixture.means());
    let all: Vec<f64> = weights.iter().chain(means.iter()).copied().chain(mixture.covariances().iter()).collect();
    let column = ArrayView1::from(&all).insert_axis(Axis(1));
    Samples::from_f64(column).map(|column| mcmc::fingerprint(&column))
}

/// What `--json` prints. Likelihoods are in the data's units, over all samples by weight.
#[derive(Serialize)]
struct Report {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    n_iter: usize,
    converged: bool,
    /// Mean log-likelihood of a sample before the last M-step; null without iterations.
    lower_bound: Option<f64>,
    log_likelihood: f64,
    bic: f64,
    aic: f64,
    /// Components (from 0) that had no samples or no usable covariance in the last iteration, and kept theirs.
    kept: Vec<usize>,
    /// Of the iterations; without any, of the log-likelihood.
    device: String,
    kernel: String,
    /// The number type of an iteration with the fitted model.
    precision: &'static str,
    #[serde(skip)]
    widened: Option<&'static str>,
    seconds: f64,
}

/// The files that are written.
struct Outputs {
    model: Option<ModelOutput>,
    checkpoint: Option<CheckpointOutput>,
    plot: Option<Output>,
}

impl Fit {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let outputs = self.open()?;
        let init = self.init.as_ref().map(io::read_model).transpose()?;
        let resumed = self.resumed()?;
        let (k, covariance_type) = self.shape(init.as_ref())?;
        let mut input = self.training.data.read(self.training.sample_weight.as_deref())?;
        let made_with = match self.checkpoint {
            Some(_) => self.identity(input.identity()?, k, covariance_type, init.as_ref())?,
            None => Identity::default(),
        };
        if let Some(resumed) = &resumed {
            self.check(resumed, &made_with)?;
        }
        let source = Source::new(&mut input, self.training.standardize)?;
        let params = self.params(&source, k, covariance_type, init, resumed)?;
        let model = params.check()?;
        let mut evaluator = source.evaluator()?;

        let interrupt = Interrupt::install();
        let begin = Instant::now();
        let mut watch = Watch::start(&interrupt, source.samples.n_samples(), source.log_scale());
        let mut saver = Saver::new(outputs.checkpoint.as_ref(), &source, made_with);
        let (fit, e_step) = iterate(&model, evaluator.as_mut(), &mut |i| {
            let flow = watch.see(i, || self.which(i.run));
            if let Some(problem) = saver.see(i.fit, i.best, flow.is_break()) {
                watch.progress.suspend(|| text::note(format_args!("{problem:#}; the fit goes on")));
            }
            flow
        });
        drop(watch);
        let fit = fit.map_err(|e| source.advise(e, true)).with_context(|| self.failure(&saver))?;
        let seconds = begin.elapsed().as_secs_f64();
        let own = source.restore_fit(&fit)?;
        if let Some(model) = &outputs.model {
            model.write_fit(&own)?;
        }
        if fit.stopped {
            saver.finish(None)?;
            text::note(self.interrupted(&own));
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        // All runs are done, whichever of them was the best.
        let mut last = fit.clone();
        last.run = self.training.n_init - 1;
        saver.finish(Some(&last))?;
        let report = self.report(&source, evaluator.as_mut(), e_step, &fit, own.n_iter(), seconds)?;
        if let Some(plot) = &outputs.plot {
            let svg = plot::fit(&plot::Scatter::new(&source, evaluator.as_mut(), &fit.mixture)?, &own)?;
            plot.write(|file| file.write_all(svg.as_bytes()))?;
        }
        if self.json {
            text::print_json(&report)?;
        } else {
            text::print(self.text(&source, &own, &report, &outputs))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Finds out whether all results can be written, before anything is read.
    fn open(&self) -> anyhow::Result<Outputs> {
        let (data, weights) = (&self.training.data.data, self.training.sample_weight.as_ref());
        refuse_overlap([self.output.as_ref(), self.checkpoint.as_ref(), self.plot.as_ref()], [Some(data), weights])?;
        Ok(Outputs {
            model: self.output.as_ref().map(ModelOutput::create).transpose()?,
            checkpoint: self.checkpoint.as_ref().map(CheckpointOutput::create).transpose()?,
            plot: self.plot.as_ref().map(Output::create).transpose()?,
        })
    }

    /// The checkpoint, where there is one.
    fn resumed(&self) -> anyhow::Result<Option<Checkpoint>> {
        match &self.checkpoint {
            Some(path) if path.metadata().is_ok_and(|m| m.is_file() && m.len() > 0) => {
                Ok(Some(io::read_checkpoint(path)?))
            }
            _ => Ok(None),
        }
    }

    /// K and the covariance type.
    fn shape(&self, init: Option<&Mixture>) -> anyhow::Result<(usize, CovarianceType)> {
        let k = self.k.or(init.map(Mixture::n_components)).context("-k is missing")?;
        let covariance_type = self.covariance_type.or(init.map(Mixture::covariance_type));
        Ok((k, covariance_type.unwrap_or(CovarianceType::Full)))
    }

    /// The data and the options that change the course of the fit, which must be those of the checkpoint.
    fn identity(
        &self,
        data: Identity,
        k: usize,
        covariance_type: CovarianceType,
        init: Option<&Mixture>,
    ) -> gmm::Result<Identity> {
        let mut freeze: Vec<&str> = self.freeze.iter().map(|parameter| parameter.name()).collect();
        freeze.sort_unstable();
        freeze.dedup();
        let freeze = if freeze.is_empty() { "none".into() } else { freeze.join(",") };
        let start = init.map(start).transpose()?;
        let shape = data.with("k", k).with("covariance-type", covariance_type.name());
        Ok(self.training.identify(shape.with("freeze", freeze).with("init", start)))
    }

    /// Refuses a checkpoint of other data or options.
    fn check(&self, resumed: &Checkpoint, now: &Identity) -> anyhow::Result<()> {
        let place = self.checkpoint.as_ref().map_or(String::new(), |path| path.display().to_string());
        resumed.made_with.check(now).map_err(|differences| {
            anyhow!(
                "{place}: is of another fit: {differences}; give the same data and options, or name another checkpoint"
            )
        })
    }

    fn params(
        &self,
        source: &Source<'_>,
        k: usize,
        covariance_type: CovarianceType,
        init: Option<Mixture>,
        resumed: Option<Checkpoint>,
    ) -> anyhow::Result<GaussianMixtureParams> {
        let frozen = |parameter| self.freeze.contains(&parameter);
        let freeze = Freeze {
            weights: frozen(Parameter::Weights),
            means: frozen(Parameter::Means),
            covariances: frozen(Parameter::Covariances),
        };
        let params = self.training.params().n_components(k).covariance_type(covariance_type).freeze(freeze);
        if let Some(Checkpoint { present, best, .. }) = resumed {
            let place = || self.checkpoint.as_ref().map_or(String::new(), |path| path.display().to_string());
            text::note(format_args!(
                "going on from {}: {}iteration {}",
                place(),
                self.which(present.run),
                present.n_iter()
            ));
            let fits = source.standardize_fit(present, covariance_type).and_then(|present| {
                Ok((present, best.map(|best| source.standardize_fit(best, covariance_type)).transpose()?))
            });
            let (present, best) = fits.with_context(|| format!("{}: is of another fit", place()))?;
            return Ok(params.resume(present, best));
        }
        let Some(init) = init else { return Ok(params) };
        let start = match &source.standardization {
            Some(standard) => standard.standardize(&init, covariance_type),
            None => Ok(init),
        };
        let place = || self.init.as_ref().map_or(String::new(), |path| path.display().to_string());
        Ok(params.start(start.with_context(place)?))
    }

    /// Which run, where there are several.
    fn which(&self, run: usize) -> String {
        match self.training.n_init {
            1 => String::new(),
            n => format!("run {}/{n}, ", run + 1),
        }
    }

    fn interrupted(&self, fit: &Fitted) -> String {
        let mut text = format!("interrupted after {} iterations", fit.n_iter());
        match &self.output {
            Some(path) => text += &format!("; the model so far is in {}", path.display()),
            None if self.checkpoint.is_none() => text += "; nothing was written (no -o or --checkpoint)",
            None => {}
        }
        if let Some(path) = &self.checkpoint {
            text += &format!("; the same command goes on from {}", path.display());
        }
        text
    }

    /// What is left of a fit that failed.
    fn failure(&self, saver: &Saver<'_>) -> String {
        match (&self.checkpoint, saver.saved_any) {
            (Some(path), true) => format!("the fit failed; its last checkpoint is in {}", path.display()),
            _ => format!("the fit to {} failed", self.training.data.data.display()),
        }
    }

    fn report(
        &self,
        source: &Source<'_>,
        evaluator: &mut dyn Evaluator,
        e_step: Option<Description>,
        fit: &Fitted,
        n_iter: usize,
        seconds: f64,
    ) -> anyhow::Result<Report> {
        let (mixture, weight) = (&fit.mixture, evaluator.total_weight());
        let log_likelihood = evaluator.log_likelihood(mixture)? - weight * source.log_scale();
        let (n, d) = (evaluator.n_samples(), evaluator.n_features());
        let criterion = |c: Criterion| c.value(log_likelihood, mixture.n_parameters(), weight, d);
        let Description { device, kernel, .. } = e_step.unwrap_or_else(|| evaluator.describe());
        let (precision, widened) = source.precision(evaluator, mixture, Operation::Statistics);
        Ok(Report {
            n,
            d,
            k: mixture.n_components(),
            covariance_type: mixture.covariance_type().name(),
            n_iter,
            converged: fit.converged,
            lower_bound: fit.lower_bounds.last().map(|bound| bound - source.log_scale()),
            log_likelihood,
            bic: criterion(Criterion::Bic),
            aic: criterion(Criterion::Aic),
            kept: fit.retained.clone(),
            device,
            kernel,
            precision,
            widened,
            seconds,
        })
    }

    fn text(&self, source: &Source<'_>, own: &Fitted, report: &Report, outputs: &Outputs) -> String {
        let converged = if report.converged {
            "converged".into()
        } else {
            let remedy = if self.training.max_iter == 0 { "" } else { "; raise --max-iter or --tol" };
            format!("not converged{remedy}")
        };
        let mut lines = vec![
            format!("data            {}", source.describe()),
            format!("model           {}, {}", text::components(report.k), report.covariance_type),
            format!("iterations      {}, {converged}", report.n_iter),
            format!("log-likelihood  {}", report.log_likelihood),
            format!("  per sample    {}", report.log_likelihood / source.samples.total_weight()),
            format!("BIC             {}", report.bic),
            format!("AIC             {}", report.aic),
            format!("computed by     {}, kernel {}", report.device, report.kernel),
            format!("time            {}", text::seconds(report.seconds)),
        ];
        lines.extend(report.widened.map(String::from));
        let k = own.mixture.n_components();
        if (2..=MANY).contains(&k) {
            let weights: Vec<String> = own.mixture.weights().iter().map(|w| format!("{w:.4}")).collect();
            lines.insert(2, format!("  weights       {}", weights.join(", ")));
        }
        if !report.kept.is_empty() {
            lines.push(format!(
                "kept            components {:?} (counted from 0) had no samples or no usable covariance in the last \
                 iteration and kept theirs: fewer components may do",
                report.kept
            ));
        }
        if let Some(model) = &outputs.model {
            let other = own.mixture.covariance_type().name();
            let as_other = if other == report.covariance_type { String::new() } else { format!(", as {other}") };
            lines.push(format!("written         {model}{as_other}"));
        }
        lines.extend(outputs.plot.as_ref().map(|plot| format!("plot            {plot}")));
        lines.join("\n")
    }
}

/// Fits, and says what computed the iterations, if there were any: other evaluations may have other kernels.
fn iterate(
    model: &GaussianMixtureValidParams,
    evaluator: &mut dyn Evaluator,
    callback: Callback<'_>,
) -> (gmm::Result<Fitted>, Option<Description>) {
    let mut iterated = false;
    let fit = model.fit_with(evaluator, &mut |i| {
        iterated = true;
        callback(i)
    });
    (fit, iterated.then(|| evaluator.describe()))
}

/// Writes checkpoints.
struct Saver<'a> {
    output: Option<&'a CheckpointOutput>,
    source: &'a Source<'a>,
    made_with: Identity,
    saved: Instant,
    saved_any: bool,
    /// Of the iteration with which the fit was stopped.
    last: Option<Checkpoint>,
    failed: bool,
}

impl<'a> Saver<'a> {
    fn new(output: Option<&'a CheckpointOutput>, source: &'a Source<'a>, made_with: Identity) -> Self {
        Self { output, source, made_with, saved: Instant::now(), saved_any: false, last: None, failed: false }
    }

    /// Writes a checkpoint if it is time for one; the first failure is told. Keeps that of the last iteration.
    fn see(&mut self, present: &Fitted, best: Option<&Fitted>, last: bool) -> Option<anyhow::Error> {
        let output = self.output?;
        if last {
            self.last = self.checkpoint(present, best).ok();
            return None;
        }
        if self.saved.elapsed() < SAVE {
            return None;
        }
        let written = self.checkpoint(present, best).and_then(|checkpoint| Ok(output.write(&checkpoint)?));
        self.saved = Instant::now();
        self.saved_any |= written.is_ok();
        written.err().filter(|_| !std::mem::replace(&mut self.failed, true))
    }

    /// Writes the last one: of a fit that is done, or of the iteration that it was stopped with.
    fn finish(&mut self, done: Option<&Fitted>) -> anyhow::Result<()> {
        let Some(output) = self.output else { return Ok(()) };
        if let Some(fit) = done {
            self.last = Some(self.checkpoint(fit, None)?);
        }
        let Some(last) = &self.last else { return Ok(()) };
        output.write(last).context("the checkpoint could not be written")
    }

    fn checkpoint(&self, present: &Fitted, best: Option<&Fitted>) -> anyhow::Result<Checkpoint> {
        Ok(Checkpoint {
            made_with: self.made_with.clone(),
            present: self.source.restore_fit(present)?,
            best: best.map(|best| self.source.restore_fit(best)).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gmm::{ReferenceEvaluator, Rows, Samples, Statistics};
    use ndarray::{Array1, arr2};
    use std::ops::ControlFlow;

    /// The reference, with another kernel for each operation, as the CUDA backend has it.
    struct Kernels(ReferenceEvaluator, &'static str);

    impl Evaluator for Kernels {
        fn n_samples(&self) -> usize {
            self.0.n_samples()
        }
        fn n_features(&self) -> usize {
            self.0.n_features()
        }
        fn total_weight(&self) -> f64 {
            self.0.total_weight()
        }
        fn describe(&self) -> Description {
            Description::new("here", self.1)
        }
        fn log_likelihood(&mut self, mixture: &Mixture) -> gmm::Result<f64> {
            self.1 = "total";
            self.0.log_likelihood(mixture)
        }
        fn score_samples(&mut self, mixture: &Mixture) -> gmm::Result<Array1<f64>> {
            self.1 = "scores";
            self.0.score_samples(mixture)
        }
        fn statistics(&mut self, mixture: &Mixture) -> gmm::Result<Statistics> {
            self.1 = "statistics";
            self.0.statistics(mixture)
        }
        fn rows(&mut self, rows: &[usize]) -> gmm::Result<Rows> {
            self.0.rows(rows)
        }
    }

    #[test]
    fn the_kernel_is_that_of_the_iterations() {
        let data = gmm::io::read_data(concat!(env!("CARGO_MANIFEST_DIR"), "/data/iris.csv")).unwrap();
        for (max_iter, kernel) in [(5, "statistics"), (0, "total")] {
            let mut evaluator = Kernels(ReferenceEvaluator::new(data.samples().unwrap()), "none");
            let params = GaussianMixtureParams::default().n_components(2).max_iter(max_iter);
            let see = &mut |_: &gmm::Iteration<'_>| ControlFlow::Continue(());
            let (fit, e_step) = iterate(&params.check().unwrap(), &mut evaluator, see);
            evaluator.log_likelihood(&fit.unwrap().mixture).unwrap();
            assert_eq!(e_step.unwrap_or_else(|| evaluator.describe()).kernel, kernel);
        }
        let one = arr2(&[[1.0]]);
        let mut evaluator = Kernels(ReferenceEvaluator::new(Samples::from_f64(one.view()).unwrap()), "none");
        let params = GaussianMixtureParams::default().n_components(2).check().unwrap();
        let (fit, e_step) = iterate(&params, &mut evaluator, &mut |_| ControlFlow::Continue(()));
        assert!(fit.is_err() && e_step.is_none());
    }
}
