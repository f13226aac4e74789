//! `gmm mcmc`: draws from the posterior of a mixture.
mod progress;
mod report;

use crate::exit_code::SUCCESS;
use crate::input::{DataOptions, Input, Source, feature, refuse_overlap};
use crate::plot;
use crate::terminal::{Interrupt, ProgressLine, interrupt, text};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use gaussmix::Error;
use gaussmix::data::Samples;
use gaussmix::evaluator::Evaluator;
use gaussmix::fit::GaussianMixtureParams;
use gaussmix::io::{self, Identity, Output};
use gaussmix::mcmc::{
    self, Chains, DataSummary, Journal, Outcome, Posterior, PosteriorModel, Prior, Sampler, Saved, Settings, Start,
    Target,
};
use gaussmix::model::{CovarianceType, Mixture};
use gaussmix::program::{whole_number, whole_number_or_0};
use progress::RunProgress;
use report::{Report, Work};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The chains start at the best of this many fits by EM. Chains that start near a poor maximum of the likelihood leave
/// it at different times, or never.
const FITS: usize = 10;
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Sample the posterior of a mixture over a data set by Markov chain Monte Carlo
///
/// Writes a file in CmdStan's layout for each chain, PREFIX-1.csv and so on, and PREFIX.npz. Existing files are
/// replaced only with --overwrite. The run is saved every ten seconds and after Ctrl-C, in files that begin with
/// PREFIX.partial. The same command with --resume continues from there, with the same bits as a run without
/// interruption.
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
The scales are the standard deviations of a component. Each value is one number for all, a list
with a number for each column, or a table by component and column (for weights and spherical
scales a list by component). Other priors:
  means {\"scaled_normal\": {\"location\": …, \"precision\": …}}: normal with the variance σ²/precision
  scales {\"inverse_gamma\": {\"shape\": …, \"scale\": …}}: a prior of the variances σ²
Default, also for parts that are left out: weights and correlations are uniform; the means are
normal with the mean and the standard deviation of the data's column; the scales are half normal
with the standard deviation of the data's column.")]
pub struct Mcmc {
    #[command(flatten)]
    data: DataOptions,
    /// Number of components
    #[arg(short, value_parser = whole_number)]
    k: usize,
    /// Shape of the covariances: full, diag or spherical
    #[arg(long, value_name = "TYPE", default_value = "diag")]
    covariance_type: CovarianceType,
    /// Keep the components in the order of their means in this feature (its name, or its number, counted from 0), so
    /// that chains do not exchange components
    #[arg(long, value_name = "COLUMN")]
    order: Option<String>,
    /// The prior, as shown below
    #[arg(long, value_name = "FILE.json")]
    prior: Option<PathBuf>,
    /// Start the chains near this model. Default: near the best of ten fits by EM
    #[arg(long, value_name = "MODEL")]
    init: Option<PathBuf>,
    /// The sampler
    #[arg(long, value_enum, default_value_t = SamplerName::Nuts)]
    sampler: SamplerName,
    /// With metropolis: update the weights and each component in turn; an iteration takes K + 1 evaluations
    #[arg(long)]
    by_component: bool,
    /// With nuts: the acceptance rate at which warm-up aims when it adapts the step size. Default: 0.8
    #[arg(long, value_name = "RATE")]
    target_accept: Option<f64>,
    /// With nuts: most doublings of a trajectory; a draw takes at most 2^DEPTH - 1 gradients. Default: 10
    #[arg(long, value_name = "DEPTH", value_parser = whole_number_or_0)]
    max_depth: Option<usize>,
    /// Number of chains. For the ensemble, the number of walkers, which is even and larger than the number of
    /// parameters. Default: 4; for the ensemble twice the number of parameters
    #[arg(long, value_parser = whole_number)]
    chains: Option<usize>,
    /// Iterations of warm-up, which are not recorded. Default: 1000 for nuts; 500 times the number of parameters for
    /// metropolis, 200 times for the ensemble
    #[arg(long, value_parser = whole_number_or_0)]
    warmup: Option<usize>,
    /// Draws to record of each chain. Default: 1000; for the ensemble 200 of each walker
    #[arg(long, value_parser = whole_number)]
    draws: Option<usize>,
    /// Iterations for each recorded draw. Default: 1 for nuts; twice the number of parameters for metropolis and the
    /// ensemble
    #[arg(long, value_parser = whole_number)]
    thin: Option<usize>,
    /// Seed of every random choice
    #[arg(long = "random-state", visible_alias = "seed", value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Where to write: the PREFIX of the names PREFIX-1.csv and so on, and PREFIX.npz
    #[arg(short, long, value_name = "PREFIX")]
    output: PathBuf,
    /// Continue the run saved under PREFIX, unfinished or finished. The options must be the same, except for a larger
    /// --draws; the run has its start already, so --init is not used
    #[arg(long)]
    resume: bool,
    /// Replace the results or the unfinished run under PREFIX
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Plot traces and marginal distributions of the log density and the first 31 parameters
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

impl Mcmc {
    pub fn run(self) -> anyhow::Result<u8> {
        self.check_sampler()?;
        let plot = self.plot.as_ref().map(Output::create).transpose()?;
        let prior = self.prior()?;
        let init = self.init.as_ref().map(io::read_model_with_summary).transpose()?;
        let (init, names) = init.map_or((None, None), |(init, found)| (Some(init), found.feature_names));
        let selection = self.data.table.selection(names, None);
        let mut input = Input::open(&self.data, None, &selection)?;
        let source = Source::new(&mut input, false)?;
        source.check_columns()?;
        let samples = source.whole("chains")?;
        let data = DataSummary::new(&samples);
        let model = PosteriorModel::new(self.k, self.covariance_type, &prior, self.order(&source)?, &data)?;
        let settings = self.settings(&model);
        settings.check(model.dim())?;
        settings.check_draws(model.dim())?;
        let results: Vec<PathBuf> = mcmc::results(&self.output, settings.chains).collect();
        let inputs = self.data.inputs().chain([self.init.as_ref(), self.prior.as_ref()]);
        refuse_overlap(results.iter().map(Some).chain([self.plot.as_ref()]), inputs)?;
        let saved = if self.resume { Some(self.saved_run(&settings)?) } else { None };
        if saved.is_none() {
            mcmc::check_outputs(&self.output, settings.chains, self.overwrite)?;
        }
        let mut evaluator = self.load(samples, saved.as_ref())?;
        // The start must come from one device: otherwise the same command could make different draws.
        evaluator.sampling().into_iter().for_each(|sampling| sampling.settle());
        let interrupt = Interrupt::install();
        let line = ProgressLine::start("looking for a start");
        let beginning = match (saved, init) {
            (Some(saved), _) => Beginning::Saved(saved),
            (None, Some(mixture)) => Beginning::Around(mixture),
            (None, None) => match self.fit(evaluator.as_mut(), data.reg_covar(), &interrupt)? {
                Some(mixture) => Beginning::Around(mixture),
                None => {
                    drop(line);
                    return Ok(nothing_drawn());
                }
            },
        };
        let mut posterior = Posterior::new(&model, evaluator.as_mut())?;
        let mut run = match beginning {
            Beginning::Saved(saved) => saved.resume(&mut posterior)?,
            Beginning::Around(mixture) => {
                let start = Start::around(&model, &mixture, &settings)?;
                Chains::new(settings.clone(), start, &mut posterior)?
            }
        };
        run.set_draws(settings.draws)?;

        let begin = Instant::now();
        let (evaluations_before, drawn_before) = (posterior.evaluations(), run.drawn());
        let mut journal = Journal::new(&self.output);
        let progress = RunProgress::new(line, &settings, evaluations_before, drawn_before);
        let outcome = advance(&mut run, &mut posterior, &mut journal, progress, &interrupt);
        let (seconds, evaluations) = (begin.elapsed().as_secs_f64(), posterior.evaluations() - evaluations_before);
        match outcome {
            Ok(Outcome::Finished) => {}
            Ok(Outcome::Stopped) if !run.has_progress() => return Ok(nothing_drawn()),
            Ok(Outcome::Stopped) => {
                run.save(&self.output)?;
                text::note(format_args!("interrupted; {}", self.describe_saved(&run)));
                return Ok(interrupt::EXIT_CODE);
            }
            Err(error) => return Err(self.save_after(error, &run, journal)),
        }
        let files = run.save(&self.output)?;
        if let Some(plot) = &plot {
            let svg = plot::traces(&report::traces(&run, source.names()))?;
            plot.write(|file| file.write_all(svg.as_bytes()))?;
        }
        let summary = run.summary();
        let share = (run.drawn() - drawn_before) as f64 / run.drawn() as f64;
        let work = Work::new(evaluations, seconds, share, summary.min_ess());
        let report = Report::new(&model, &run, &summary, work, files);
        let evaluations = if self.sampler == SamplerName::Nuts { "gradients" } else { "evaluations" };
        let words = || report.text(evaluations, summary, source.names(), plot.as_ref());
        text::report(self.json, &report, words)?;
        Ok(SUCCESS)
    }

    /// Saves the draws of a run that failed, and says so in the error.
    fn save_after(&self, error: mcmc::Error, run: &Chains, journal: Journal) -> anyhow::Error {
        let fails_at_start = matches!(error, mcmc::Error::Start(_) | mcmc::Error::Nuts { .. });
        if fails_at_start && run.drawn() == 0 {
            // A resumed run would fail again in the same way. Files saved by an earlier process stay.
            if !self.resume {
                journal.remove();
            }
            return error.into();
        }
        if !run.has_progress() {
            return error.into();
        }
        match run.save(&self.output) {
            Ok(_) => anyhow::Error::new(error).context(self.describe_saved(run)),
            Err(e) => anyhow::Error::new(e).context("the draws before the failure could not be saved"),
        }
    }

    /// Loads the samples. A resumed run uses the kernel it was saved with, if the device still accepts its name.
    fn load<'a>(&self, samples: Samples<'a>, saved: Option<&Saved>) -> gaussmix::Result<Box<dyn Evaluator + 'a>> {
        let load = |kernel: Option<String>| {
            gaussmix::device::load(self.data.device, samples.clone(), &self.data.load_options().kernel(kernel))
        };
        match (&self.data.kernel, saved) {
            (None, Some(saved)) => match load(Some(saved.run().identity().kernel.clone())) {
                Err(Error::Kernel { .. }) => load(None),
                loaded => loaded,
            },
            (kernel, _) => load(kernel.clone()),
        }
    }

    fn order(&self, source: &Source<'_>) -> anyhow::Result<Option<usize>> {
        let order = self.order.as_deref();
        let of = |column| feature(source.names(), source.samples.n_features(), column).context("--order");
        order.map(of).transpose()
    }

    fn prior(&self) -> anyhow::Result<Prior> {
        let Some(path) = &self.prior else { return Ok(Prior::default()) };
        let text = io::read_text(path)?;
        Prior::from_json(&text).with_context(|| path.display().to_string())
    }

    /// Refuses options of another sampler.
    fn check_sampler(&self) -> anyhow::Result<()> {
        for (option, given, sampler, name) in [
            ("--by-component", self.by_component, SamplerName::Metropolis, "metropolis"),
            ("--target-accept", self.target_accept.is_some(), SamplerName::Nuts, "nuts"),
            ("--max-depth", self.max_depth.is_some(), SamplerName::Nuts, "nuts"),
        ] {
            if given && self.sampler != sampler {
                bail!("{option} is an option of --sampler {name}; leave it out, or name that sampler");
            }
        }
        Ok(())
    }

    fn settings(&self, model: &PosteriorModel) -> Settings {
        let sampler = match self.sampler {
            SamplerName::Metropolis if self.by_component => Sampler::METROPOLIS_BY_COMPONENT,
            SamplerName::Metropolis => Sampler::METROPOLIS,
            SamplerName::Ensemble => Sampler::ENSEMBLE,
            SamplerName::Nuts => Sampler::nuts(self.target_accept.unwrap_or(0.8), self.max_depth.unwrap_or(10) as u64),
        };
        let usual = Settings::usual(sampler, model);
        let (chains, warmup) = (self.chains.unwrap_or(usual.chains), self.warmup.unwrap_or(usual.warmup));
        let (draws, thin) = (self.draws.unwrap_or(usual.draws), self.thin.unwrap_or(usual.thin));
        usual.chains(chains).warmup(warmup).draws(draws).thin(thin).seed(self.seed)
    }

    /// Reads the saved run, which must have been made with these settings.
    fn saved_run(&self, settings: &Settings) -> anyhow::Result<Saved> {
        let saved = Saved::load(&self.output)?;
        let made = saved.run().settings().clone().draws(settings.draws);
        if made != *settings {
            let differences = Identity::of(&made)?.check(&Identity::of(settings)?).err().unwrap_or_default();
            bail!("{}: belongs to another run: {differences}; give the same options", self.output.display());
        }
        Ok(saved)
    }

    /// Finds a maximum of the likelihood; `None` after a signal.
    fn fit(
        &self,
        evaluator: &mut dyn Evaluator,
        reg_covar: f64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<Mixture>> {
        let params = GaussianMixtureParams::default()
            .n_components(self.k)
            .covariance_type(self.covariance_type)
            .reg_covar(reg_covar)
            .n_init(FITS)
            .random_state(self.seed)
            .check()?;
        let fit = params.fit_with(evaluator, &mut |_| {
            if interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let fit = fit.context("no start was found; give one with --init")?;
        Ok((!interrupt.noted()).then_some(fit.mixture))
    }

    fn describe_saved(&self, run: &Chains) -> String {
        let what = match run.drawn() {
            0 => "the warm-up so far is".into(),
            drawn => format!("{drawn} draws of each chain are"),
        };
        format!("{what} saved in {}.partial…; the same command with --resume continues", self.output.display())
    }
}

enum Beginning {
    Saved(Saved),
    Around(Mixture),
}

fn nothing_drawn() -> u8 {
    text::note("interrupted before anything was drawn; nothing was written");
    interrupt::EXIT_CODE
}

/// Advances a run to its end, a signal or a failure, and saves it every ten seconds.
fn advance(
    run: &mut Chains,
    posterior: &mut Posterior<'_>,
    journal: &mut Journal,
    mut progress: RunProgress,
    interrupt: &Interrupt,
) -> mcmc::Result<Outcome> {
    let mut any_failed = false;
    loop {
        // The interval begins with the first new evaluation: a resumed warm-up of NUTS first repeats the saved
        // iterations, without evaluations.
        let (evaluations, mut interval) = (posterior.evaluations(), None);
        let outcome = run.advance(posterior, |p| {
            progress.show(p);
            let due =
                p.evaluations > evaluations && interval.get_or_insert_with(Instant::now).elapsed() >= SAVE_INTERVAL;
            if due || interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if interrupt.noted() || !matches!(outcome, Ok(Outcome::Stopped)) {
            return outcome;
        }
        if let Err(e) = journal.save(run)
            && !std::mem::replace(&mut any_failed, true)
        {
            let note = format!("the run could not be saved ({e}); it continues");
            progress.line.hide_while(|| text::note(note));
        }
    }
}
