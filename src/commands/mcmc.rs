//! `gmm mcmc`: draws from the posterior of a mixture.
use super::bench::whole_number;
use super::files;
use super::interrupt::{self, Interrupt};
use super::plot::{self, Trace};
use super::progress::Progress;
use super::text;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use gmm::io::{self, Identity, Output};
use gmm::mcmc::{
    self, DataSummary, Journal, Model, Outcome, Posterior, Prior, Row, Run, Sampler, Saved, Settings, Start, Target,
};
use gmm::{CovarianceType, Device, Error, Evaluator, GaussianMixtureParams, LoadOptions, Mixture, Samples};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Rows of the summary that are printed; `--json` has them all.
const SHOWN: usize = 40;
/// Fits by EM, of which the best is where the chains start: chains about a poor maximum leave it one by one, or never.
const STARTS: usize = 10;
/// Quantities that are plotted, at most.
const PLOTTED: usize = 32;
/// Time between two saves of a run that goes on.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// The least time between two changes of the live line.
const TICK: Duration = Duration::from_millis(100);

/// Sample the posterior of a mixture over a data set by Markov chain Monte Carlo
///
/// Writes PREFIX-1.csv … in CmdStan's layout, a file for each chain, and PREFIX.npz; existing ones are replaced with
/// --overwrite only. Ctrl-C keeps what was drawn (as PREFIX.partial…), and every ten seconds it is saved in any case, so that
/// a crash or a kill loses no more. The same command with --resume goes on from it, to the same bits as if it had
/// not been interrupted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm mcmc data.npy -k 3 --order 0 -o post
  gmm mcmc data.npy -k 3 --order 0 -o post --draws 5000 --resume     the same, longer
  gmm mcmc data.npy -k 8 --sampler metropolis --draws 10000 --thin 100 --init model.json -o post
  gmm mcmc data.npy -k 2 --prior prior.json --plot trace.svg -o post

A prior, here of two columns:
  {\"weights\": {\"dirichlet\": {\"concentration\": 1.0}},
   \"means\": {\"normal\": {\"location\": [0.0, 1.0], \"scale\": 10.0}},
   \"scales\": {\"half_normal\": {\"scale\": 2.0}},
   \"correlations\": {\"lkj\": {\"shape\": 1.0}}}
The scales are standard deviations. A value is one number for all, a list by column or a table by component and column (of
weights and of spherical scales: a list by component). Also possible: means {\"scaled_normal\": {\"location\": …, \"precision\": …}},
normal with the variance σ²/precision, and scales {\"inverse_gamma\": {\"shape\": …, \"scale\": …}} of the variances σ².
What is left out is the default's: the weights and the correlations are uniform; location and scale of the means, and
the scale of the scales, are the mean and the standard deviation of the data's column.")]
pub struct Mcmc {
    /// The data (samples × features): .npy (float32 or float64) or .csv (with or without a header)
    data: PathBuf,
    /// Where to compute: auto, cpu, cuda, cuda:N or reference
    #[arg(long, default_value = "auto")]
    device: Device,
    /// The kernel (code variant) to use instead of the one that the device chooses
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Compute in float64 whatever the data is; by default float32 data is, where float32 has too few digits for a mixture
    #[arg(long, conflicts_with = "kernel")]
    float64: bool,
    /// Number of components
    #[arg(short, value_parser = whole_number)]
    k: usize,
    /// Shape of the covariances: full, diag or spherical
    #[arg(long, value_name = "TYPE", default_value = "diag")]
    covariance_type: CovarianceType,
    /// Keep the components in the order of their means in this column (counted from 0), so that chains do not swap them
    #[arg(long, value_name = "COLUMN")]
    order: Option<usize>,
    /// The prior
    #[arg(long, value_name = "FILE.json")]
    prior: Option<PathBuf>,
    /// Start the chains around this model; by default around the best of ten fits by EM
    #[arg(long, value_name = "MODEL")]
    init: Option<PathBuf>,
    /// The sampler
    #[arg(long, value_enum, default_value_t = SamplerName::Nuts)]
    sampler: SamplerName,
    /// metropolis: update the weights and each component one after the other; a draw is then K + 1 evaluations
    #[arg(long)]
    by_component: bool,
    /// nuts: the acceptance that warm-up steers towards
    #[arg(long, default_value_t = 0.8, value_name = "RATE")]
    target_accept: f64,
    /// nuts: at most 2^DEPTH - 1 gradients a draw
    #[arg(long, default_value_t = 10, value_name = "DEPTH")]
    max_depth: u64,
    /// Number of chains; of the ensemble the walkers, an even number above that of the parameters. Default: 4, or twice the
    /// parameters
    #[arg(long, value_parser = whole_number)]
    chains: Option<usize>,
    /// Iterations of warm-up, which are not recorded. Default: nuts 1000, metropolis 500 times the parameters, ensemble 200
    /// times the parameters
    #[arg(long)]
    warmup: Option<usize>,
    /// Draws to record of each chain. Default: 1000; of each walker of the ensemble 200
    #[arg(long, value_parser = whole_number)]
    draws: Option<usize>,
    /// Iterations for each draw. Default: nuts 1, metropolis and ensemble twice the parameters
    #[arg(long, value_parser = whole_number)]
    thin: Option<usize>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to write: PREFIX-1.csv and so on, and PREFIX.npz
    #[arg(short, long, value_name = "PREFIX")]
    output: PathBuf,
    /// Go on with the run that was saved under PREFIX, unfinished or finished; give the same options, or more --draws
    #[arg(long)]
    resume: bool,
    /// Replace the results, or the unfinished run, that lie under PREFIX
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Draw traces and marginal distributions of the log density and the first 31 parameters
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SamplerName {
    /// Random-walk Metropolis, adapted during warm-up
    Metropolis,
    /// Affine-invariant ensemble
    Ensemble,
    /// No-U-Turn sampler, with gradients
    Nuts,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    sampler: String,
    chains: usize,
    draws: usize,
    acceptance: f64,
    divergences: usize,
    max_r_hat: f64,
    min_ess: f64,
    /// Of this run of the program, as the next three.
    evaluations: u64,
    seconds: f64,
    evaluations_per_second: f64,
    ess_per_second: f64,
    device: String,
    kernel: String,
    files: Vec<PathBuf>,
    warnings: Vec<String>,
    parameters: Vec<Row>,
}

impl Mcmc {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plot = self.plot.as_ref().map(Output::create).transpose()?;
        let prior = self.prior()?;
        let init = self.init.as_ref().map(io::read_model).transpose()?;
        let input = files::read_data(&self.data, u64::MAX)?;
        let samples = input.samples().with_context(|| self.data.display().to_string())?;
        let data = DataSummary::new(&samples);
        let model = Model::new(self.k, self.covariance_type, &prior, self.order, &data)?;
        let settings = self.settings(&model);
        settings.check(model.dim())?;
        let saved = if self.resume { Some(self.saved(&settings)?) } else { None };
        if saved.is_none() {
            mcmc::check_outputs(&self.output, settings.chains, self.overwrite)?;
        }
        let mut evaluator = self.load(samples, saved.as_ref())?;
        // The start is of one device too: the same command makes the same draws.
        evaluator.settle();
        let interrupt = Interrupt::install();
        let progress = Progress::start("looking for a start");
        let start = match (&saved, init) {
            (Some(_), _) => None,
            (None, Some(mixture)) => Some(mixture),
            (None, None) => match self.fit(evaluator.as_mut(), &interrupt)? {
                Some(mixture) => Some(mixture),
                None => {
                    drop(progress);
                    text::note("interrupted before anything was drawn; nothing was written");
                    return Ok(ExitCode::from(interrupt::EXIT_CODE));
                }
            },
        };
        let mut posterior = Posterior::new(&model, evaluator.as_mut())?;
        let mut run = match (saved, start) {
            (Some(saved), _) => saved.resume(&mut posterior)?,
            (None, Some(mixture)) => {
                let start = Start::around(&model, &mixture, &settings)?;
                Run::new(settings.clone(), start, &mut posterior)?
            }
            (None, None) => bail!("there is no start"),
        };
        run.set_draws(settings.draws)?;

        let begin = Instant::now();
        let (before, drawn_before) = (posterior.evaluations(), run.drawn());
        let mut live = Live::new(&progress, &settings, before, drawn_before);
        let mut journal = Journal::new(&self.output);
        let mut noted = false;
        let outcome = loop {
            // Since the first new evaluation: a warm-up of NUTS that is taken up again first reads those that it has made.
            let (made, mut since) = (posterior.evaluations(), None);
            let outcome = run.advance(&mut posterior, |p| {
                live.show(p);
                let save = p.evaluations > made && since.get_or_insert_with(Instant::now).elapsed() >= SAVE_EVERY;
                if save || interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if interrupt.noted() || !matches!(outcome, Ok(Outcome::Stopped)) {
                break outcome;
            }
            if let Err(e) = journal.save(&run)
                && !std::mem::replace(&mut noted, true)
            {
                progress.suspend(|| text::note(format_args!("not saved while it runs ({e}); the run goes on")));
            }
        };
        let (seconds, evaluations) = (begin.elapsed().as_secs_f64(), posterior.evaluations() - before);
        drop(progress);
        match outcome {
            Ok(Outcome::Finished) => {}
            Ok(Outcome::Stopped) if !run.has_progress() => {
                text::note("interrupted before anything was drawn; nothing was written");
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            Ok(Outcome::Stopped) => {
                run.save(&self.output)?;
                text::note(format_args!("interrupted; {}", self.kept(&run)));
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            // What would fail again: only draws are worth keeping.
            Err(error @ (mcmc::Error::Start(_) | mcmc::Error::Nuts { .. })) if run.drawn() == 0 => {
                if !self.resume {
                    journal.remove();
                }
                return Err(error.into());
            }
            Err(error) if !run.has_progress() => return Err(error.into()),
            Err(error) => {
                run.save(&self.output).context("what was drawn before a failure could not be kept")?;
                return Err(anyhow::Error::new(error).context(self.kept(&run)));
            }
        }
        let files = run.save(&self.output)?;
        if let Some(plot) = &plot {
            let svg = plot::traces(&traces(&run))?;
            plot.write(|file| file.write_all(svg.as_bytes()))?;
        }
        let summary = run.summary();
        let share = (run.drawn() - drawn_before) as f64 / run.drawn() as f64;
        let report = Report {
            n: data.n_samples,
            d: data.n_features,
            k: self.k,
            covariance_type: self.covariance_type.name(),
            sampler: summary.sampler.clone(),
            chains: summary.chains,
            draws: summary.draws,
            acceptance: summary.acceptance,
            divergences: summary.divergences,
            max_r_hat: summary.max_r_hat(),
            min_ess: summary.min_ess(),
            evaluations,
            seconds,
            evaluations_per_second: evaluations as f64 / seconds,
            ess_per_second: summary.min_ess() * share / seconds,
            device: run.identity().device.clone(),
            kernel: run.identity().kernel.clone(),
            files,
            warnings: summary.warnings(),
            parameters: summary.rows.clone(),
        };
        if self.json {
            text::print_json(&report)?;
        } else {
            text::print(self.table(&report, summary, plot.as_ref()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// On a resume, with the kernel of the saved run, if it can be told to the device.
    fn load<'a>(&self, samples: Samples<'a>, saved: Option<&Saved>) -> gmm::Result<Box<dyn Evaluator + 'a>> {
        let load = |kernel: Option<String>| {
            gmm::load(self.device, samples.clone(), &LoadOptions::new().kernel(kernel).float64(self.float64))
        };
        match (&self.kernel, saved) {
            (None, Some(saved)) => match load(Some(saved.run().identity().kernel.clone())) {
                Err(Error::Kernel { .. }) => load(None),
                loaded => loaded,
            },
            (kernel, _) => load(kernel.clone()),
        }
    }

    fn prior(&self) -> anyhow::Result<Prior> {
        let Some(path) = &self.prior else { return Ok(Prior::default()) };
        let text = std::fs::read_to_string(path).with_context(|| format!("{}: cannot read it", path.display()))?;
        Prior::from_json(&text).with_context(|| path.display().to_string())
    }

    fn settings(&self, model: &Model) -> Settings {
        let sampler = match self.sampler {
            SamplerName::Metropolis => Sampler::Metropolis { by_component: self.by_component },
            SamplerName::Ensemble => Sampler::ENSEMBLE,
            SamplerName::Nuts => Sampler::Nuts { target_accept: self.target_accept, max_depth: self.max_depth },
        };
        let usual = Settings::usual(sampler, model);
        Settings {
            chains: self.chains.unwrap_or(usual.chains),
            warmup: self.warmup.unwrap_or(usual.warmup),
            draws: self.draws.unwrap_or(usual.draws),
            thin: self.thin.unwrap_or(usual.thin),
            seed: self.seed,
            ..usual
        }
    }

    /// The saved run, if it was made with these settings.
    fn saved(&self, settings: &Settings) -> anyhow::Result<Saved> {
        let saved = Saved::load(&self.output)?;
        let made = Settings { draws: settings.draws, ..saved.run().settings().clone() };
        if made != *settings {
            let differences = Identity::of(&made)?.check(&Identity::of(settings)?).err().unwrap_or_default();
            bail!("{}: is of another run: {differences}; give the same options", self.output.display());
        }
        Ok(saved)
    }

    /// A maximum of the likelihood; `None` if interrupted.
    fn fit(&self, evaluator: &mut dyn Evaluator, interrupt: &Interrupt) -> anyhow::Result<Option<Mixture>> {
        let params = GaussianMixtureParams::default()
            .n_components(self.k)
            .covariance_type(self.covariance_type)
            .n_init(STARTS)
            .random_state(self.seed)
            .check()?;
        let fit = params.fit_with(evaluator, &mut |_| {
            if interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let fit = fit.context("no start was found; give one with --init")?;
        Ok((!interrupt.noted()).then_some(fit.mixture))
    }

    fn kept(&self, run: &Run) -> String {
        let what = match run.drawn() {
            0 => "the warm-up so far is".into(),
            drawn => format!("{drawn} draws of each chain are"),
        };
        format!("{what} kept in {}.partial…; the same command with --resume goes on", self.output.display())
    }

    fn table(&self, report: &Report, mut summary: mcmc::Summary, plot: Option<&Output>) -> String {
        let hidden = summary.rows.len().saturating_sub(SHOWN);
        summary.rows.truncate(SHOWN);
        let mut lines = vec![summary.to_string()];
        if hidden > 0 {
            lines.push(format!("({hidden} more parameters: --json)"));
        }
        let what = if self.sampler == SamplerName::Nuts { "gradients" } else { "evaluations" };
        // A finished run that is only looked at again has made none.
        if report.evaluations > 0 {
            let mut work = format!(
                "{} {what} in {}: {} each, {} a second",
                text::grouped(report.evaluations),
                text::seconds(report.seconds),
                text::seconds(report.seconds / report.evaluations as f64),
                text::count(report.evaluations_per_second),
            );
            if report.ess_per_second > 0.0 {
                work += &format!("; {} effective draws a second, at least", text::count(report.ess_per_second));
            }
            lines.push(work);
        }
        lines.push(format!("computed by {}, kernel {}", report.device, report.kernel));
        let name = |path: Option<&PathBuf>| path.map_or(String::new(), |p| p.display().to_string());
        let (csv, npz) = report.files.split_at(report.files.len().saturating_sub(1));
        lines.push(format!("written: {} … {}, {}", name(csv.first()), name(csv.last()), name(npz.first())));
        lines.extend(plot.map(|plot| format!("plot: {plot}")));
        lines.join("\n")
    }
}

/// The line that tells how far the run is.
struct Live<'a> {
    progress: &'a Progress,
    begin: Instant,
    shown: Instant,
    evaluations: u64,
    warmup: f64,
    /// Iterations in all, and those that were done before this process.
    total: f64,
    before: Option<f64>,
    thin: f64,
}

impl<'a> Live<'a> {
    fn new(progress: &'a Progress, settings: &Settings, evaluations: u64, drawn: usize) -> Self {
        let now = Instant::now();
        let (warmup, thin) = (settings.warmup as f64, settings.thin as f64);
        let before = (drawn > 0).then_some(warmup + drawn as f64 * thin);
        let total = warmup + settings.draws as f64 * thin;
        Self { progress, begin: now, shown: now, evaluations, warmup, total, before, thin }
    }

    fn show(&mut self, p: &mcmc::Progress<'_>) {
        let done = if p.warming_up {
            self.warmup * p.done as f64 / p.of as f64
        } else {
            self.warmup + p.done as f64 * self.thin
        };
        // The first call tells where a resumed warm-up goes on.
        let before = *self.before.get_or_insert(done);
        if self.shown.elapsed() < TICK {
            return;
        }
        self.shown = Instant::now();
        let elapsed = self.begin.elapsed().as_secs_f64();
        let mut line = format!(
            "{} {} of {}, {} evaluations/s",
            if p.warming_up { "warm-up" } else { "draw" },
            text::grouped(p.done as u64),
            text::grouped(p.of as u64),
            text::count((p.evaluations - self.evaluations) as f64 / elapsed),
        );
        if p.acceptance.is_finite() {
            line += &format!(", acceptance {:.2}", p.acceptance);
        }
        if p.divergences > 0 {
            line += &format!(", {} divergences", p.divergences);
        }
        if done > before {
            let left = elapsed * (self.total - done) / (done - before);
            line += &format!(", {} left", text::seconds(left));
        }
        self.progress.say(line);
    }
}

/// The log density and the first parameters, chain by chain.
fn traces(run: &Run) -> Vec<Trace> {
    let mut traces = Vec::new();
    for variable in ["lp__", "weights", "means", "covariances"] {
        let Some(draws) = run.draws(variable) else { continue };
        let (chains, n) = (draws.shape()[0], draws.shape()[1]);
        let flat: Vec<f64> = draws.iter().copied().collect();
        let size = flat.len() / (chains * n).max(1);
        for i in 0..size {
            if traces.len() == PLOTTED {
                return traces;
            }
            let place = ndarray_index(&draws.shape()[2..], i);
            let column = |rows: &[f64]| rows.chunks(size).map(|row| row[i]).collect();
            traces.push(Trace {
                name: format!("{variable}{place}"),
                chains: flat.chunks(n * size).map(column).collect(),
            });
        }
    }
    traces
}

/// `.2.1` for component 2, column 1, counted from 1 as in the CSV.
fn ndarray_index(shape: &[usize], mut i: usize) -> String {
    let mut index = String::new();
    for &n in shape.iter().rev() {
        index = format!(".{}{index}", i % n + 1);
        i /= n;
    }
    index
}
