//! A run: settings, the state of the sampler, and the draws so far.
use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::samplers::team::Team;
use crate::samplers::{PosteriorDraw, Sampler, Settings, Start, State, evaluate};
use crate::target::{RunIdentity, Target, Variable, is_shared_work};
use ndarray::{ArrayD, IxDyn};
use std::ops::ControlFlow;

/// The progress of a run, passed to its callback after each iteration of warm-up and after each draw.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Whether the run is in its warm-up.
    pub warming_up: bool,
    /// Iterations of warm-up, or draws, of each chain. For NUTS, which warms up one chain after another, the iterations
    /// of all chains.
    pub done: usize,
    /// The total of these iterations or draws.
    pub of: usize,
    /// Evaluations of the density by the target, in this run and before.
    pub evaluations: u64,
    /// Mean acceptance probability of the draws so far; NaN before the first draw.
    pub acceptance: f64,
    /// Divergent trajectories among the draws so far.
    pub divergences: usize,
    /// The draws since the last call: one of each chain, then the next one of each chain, and so on. Empty during
    /// warm-up.
    pub draws: &'a [PosteriorDraw],
}

/// The end of [`Chains::advance`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All draws are made.
    Finished,
    /// The callback stopped the run.
    Stopped,
}

/// A run of a sampler. It can be stopped between any two draws, saved, loaded and advanced further. Its draws are then,
/// to the bit, those of an uninterrupted run.
///
/// ```
/// use gmm_mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings, Start};
/// use gmm_host::{CovarianceType, ReferenceEvaluator, Samples};
/// use std::ops::ControlFlow;
///
/// let x = ndarray::Array2::from_shape_fn((40, 1), |(i, _)| (i % 2) as f64 * 5.0 + (i as f64).sin());
/// let samples = Samples::from_f64(x.view())?;
/// let model = PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), Some(0), &DataSummary::new(&samples))?;
/// let mut evaluator = ReferenceEvaluator::new(samples);
/// let mut posterior = Posterior::new(&model, &mut evaluator)?;
/// let settings = Settings::new(Sampler::NUTS).chains(2).warmup(200).draws(100);
/// let start = Start::from_prior(&model, &settings)?;
/// let mut run = Chains::new(settings, start, &mut posterior)?;
/// let mut seen = 0;
/// run.advance(&mut posterior, |progress| {
///     for draw in progress.draws {
///         let [w0, w1, m0, m1, ..] = draw.parameters[..] else { unreachable!() };
///         assert!(m0 <= m1 && (w0 + w1 - 1.0).abs() < 1e-12);
///         seen += 1;
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(seen, 2 * 100);
/// println!("{}", run.summary());
/// assert_eq!(run.draws("means").unwrap().shape(), [2, 100, 2, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Chains {
    pub(crate) settings: Settings,
    pub(crate) identity: RunIdentity,
    pub(crate) variables: Vec<Variable>,
    pub(crate) state: State,
    /// Finished iterations of warm-up or, for NUTS, the number of chains whose warm-up is finished.
    pub(crate) warmed: usize,
    pub(crate) rows: Rows,
    acceptance_sum: f64,
    divergences: usize,
}

impl Chains {
    /// Returns a run without iterations. Evaluates the density at the starting points.
    ///
    /// # Errors
    /// [`Error::Setting`]; [`Error::Start`] if a point does not fit or its log density is not finite; the target's
    /// errors.
    pub fn new(settings: Settings, start: Start, target: &mut dyn Target) -> Result<Self> {
        let state = State::new(&settings, start, target)?;
        let (identity, variables) = (target.identity(), target.variables());
        let width = settings.sampler.statistics().len() + variables.iter().map(Variable::size).sum::<usize>();
        let rows = Rows::new(settings.chains, width);
        Ok(Self { settings, identity, variables, state, warmed: 0, rows, acceptance_sum: 0.0, divergences: 0 })
    }

    pub(crate) fn restore(
        settings: Settings,
        identity: RunIdentity,
        variables: Vec<Variable>,
        state: State,
        warmed: usize,
        rows: Rows,
    ) -> Self {
        let mut run = Self { settings, identity, variables, state, warmed, rows, acceptance_sum: 0.0, divergences: 0 };
        // The sums are formed in the order of the draws, so that they get the same bits as before.
        for row in run.rows.iter() {
            let (acceptance, divergences) = acceptance_and_divergence(&run.settings.sampler, row);
            run.acceptance_sum += acceptance;
            run.divergences += divergences;
        }
        run
    }

    /// Compares a target with that of this run: model, prior, data, kernel, and the bits of the log density of each
    /// chain's point. The inner error names the difference. Errors: the target's errors.
    pub(crate) fn check_target(&self, target: &mut dyn Target) -> Result<std::result::Result<(), String>> {
        let (points, saved) = self.state.points();
        if points.iter().any(|p| p.len() != target.dim()) || self.variables != target.variables() {
            return Ok(Err(format!("it was sampled from another model ({})", self.identity.model)));
        }
        let differs = |what: &str, here: &str, there: &str| Err(format!("it was made with {what} {there}, not {here}"));
        let before = target.identity();
        for (what, here, there) in [
            ("the model", &before.model, &self.identity.model),
            ("the prior", &before.prior, &self.identity.prior),
            ("the data", &before.data, &self.identity.data),
        ] {
            if here != there {
                return Ok(differs(what, here, there));
            }
        }
        let values = evaluate(&self.settings, target, &self.state.reference(), &points)?;
        let after = target.identity();
        if after.kernel != self.identity.kernel {
            return Ok(differs("the kernel", &after.kernel, &self.identity.kernel));
        }
        if let Some(c) = (0..saved.len()).find(|&c| values[c].to_bits() != saved[c].to_bits()) {
            return Ok(Err(format!(
                "chain {c} (counted from 0) was at log density {}, which is {} on {}; resume the run on {}, where it was made",
                saved[c], values[c], after.device, self.identity.device
            )));
        }
        Ok(Ok(()))
    }

    /// Advances until all draws are made or `observe` breaks. `observe` is called after each iteration of warm-up and
    /// after each draw, or after each segment of several draws if [`Target::segment_steps`] asks for that.
    ///
    /// # Errors
    /// The target's errors. The run then has all earlier draws, and can be saved or advanced again.
    pub fn advance(
        &mut self,
        target: &mut dyn Target,
        mut observe: impl FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome> {
        let together = self.state.reference().point().map_or(1, |_| self.settings.chains);
        let mut team = Team::new(target, together)?;
        if self.warm_up(&mut team, &mut observe)?.is_break() {
            return Ok(Outcome::Stopped);
        }
        let thin = self.settings.thin;
        // The latest draws are recorded while the next ones are made.
        let (mut draws, mut next) = (Vec::new(), Vec::new());
        loop {
            let drawn = self.drawn() + draws.len() / self.settings.chains;
            if drawn >= self.settings.draws {
                record(&mut self.rows, &draws);
                return Ok(Outcome::Finished);
            }
            let segment = match &self.state {
                State::Metropolis(s) => team.one().segment_steps(self.settings.chains) / s.steps_per_draw(thin),
                _ => 1,
            };
            let segment = segment.max(1);
            let count = (segment - drawn % segment).min(self.settings.draws - drawn);
            let (rows, state) = (&mut self.rows, &mut self.state);
            record_beside(rows, &draws, || match state {
                State::Metropolis(s) => s.sample(&mut team, thin, count, &mut next),
                State::Ensemble(s) => s.sample(&mut team, thin, &mut next),
                State::Nuts(s) => s.sample(team.one(), thin, &mut next),
            })?;
            std::mem::swap(&mut draws, &mut next);
            self.count(&draws);
            let progress =
                Progress { draws: &draws, ..self.progress(team.one(), false, drawn + count, self.settings.draws) };
            if observe(&progress).is_break() {
                record(&mut self.rows, &draws);
                return Ok(if self.finished() { Outcome::Finished } else { Outcome::Stopped });
            }
        }
    }

    fn warm_up(
        &mut self,
        team: &mut Team<'_>,
        observe: &mut impl FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let warmup = self.settings.warmup;
        if let Sampler::Nuts { .. } = self.settings.sampler {
            let chains = self.settings.chains;
            while self.warmed < chains {
                let (chain, of) = (self.warmed, warmup.saturating_mul(chains));
                let mut progress = self.progress(team.one(), true, 0, of);
                let State::Nuts(nuts) = &mut self.state else { break };
                let mut each = |iteration: usize, evaluations: u64| {
                    progress.done = chain.saturating_mul(warmup).saturating_add(iteration);
                    progress.evaluations = evaluations;
                    observe(&progress)
                };
                if nuts.warm_up(team.one(), chain, warmup, &mut each)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                self.warmed += 1;
            }
            return Ok(ControlFlow::Continue(()));
        }
        while self.warmed < warmup {
            match &mut self.state {
                State::Metropolis(s) => s.warm_up(team, self.warmed, warmup)?,
                State::Ensemble(s) => s.warm_up(team, self.warmed, warmup)?,
                State::Nuts(_) => {}
            }
            self.warmed += 1;
            if observe(&self.progress(team.one(), true, self.warmed, warmup)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the progress after `done` iterations of warm-up, or draws, of each chain.
    fn progress(&self, target: &dyn Target, warming_up: bool, done: usize, of: usize) -> Progress<'static> {
        Progress {
            warming_up,
            done,
            of,
            evaluations: target.evaluations(),
            acceptance: self.acceptance_of(if warming_up { 0 } else { done }),
            divergences: self.divergences,
            draws: &[],
        }
    }

    fn count(&mut self, draws: &[PosteriorDraw]) {
        for draw in draws {
            let (acceptance, divergences) = acceptance_and_divergence(&self.settings.sampler, &draw.statistics);
            self.acceptance_sum += acceptance;
            self.divergences += divergences;
        }
    }

    /// Returns the evaluations of an interrupted warm-up of a NUTS chain; empty without one.
    pub(crate) fn recorded(&self) -> &[f64] {
        match &self.state {
            State::Nuts(nuts) => nuts.recorded(),
            _ => &[],
        }
    }

    /// Whether the run has work worth saving, which a resumed run need not repeat.
    pub fn has_progress(&self) -> bool {
        self.warmed > 0 || self.drawn() > 0 || !self.recorded().is_empty()
    }

    /// Returns the number of draws of each chain so far.
    pub fn drawn(&self) -> usize {
        // A segment is recorded as a whole or not at all, so all chains have equally many draws.
        self.rows.drawn()
    }

    /// Whether all draws are made.
    pub fn finished(&self) -> bool {
        self.drawn() >= self.settings.draws
    }

    /// Returns the settings of the run.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the model, prior, data and kernel of the run.
    pub fn identity(&self) -> &RunIdentity {
        &self.identity
    }

    /// Changes the number of draws, for example to make a finished run longer.
    ///
    /// # Errors
    /// [`Error::Setting`] for 0, or for fewer than have been made already.
    pub fn set_draws(&mut self, draws: usize) -> Result<()> {
        let least = self.drawn().max(1);
        if draws < least {
            return Err(Error::Setting {
                what: "the number of draws",
                value: draws.to_string(),
                remedy: format!("at least {least} are needed: that many are made already"),
            });
        }
        self.settings.draws = draws;
        Ok(())
    }

    /// Returns the mean acceptance probability of the draws so far; NaN before the first draw.
    pub fn acceptance(&self) -> f64 {
        self.acceptance_of(self.drawn())
    }

    fn acceptance_of(&self, draws: usize) -> f64 {
        self.acceptance_sum / (draws * self.settings.chains) as f64
    }

    /// Returns the number of divergent trajectories of NUTS among the draws so far. More than a few mean that a part of
    /// the posterior was not explored.
    pub fn divergences(&self) -> usize {
        self.divergences
    }

    /// Returns the draws so far of the variable (C, S, …) or the statistic (C, S) of this name; `None` for an unknown
    /// name.
    pub fn draws(&self, name: &str) -> Option<ArrayD<f64>> {
        let statistics = self.settings.sampler.statistics();
        let (mut at, mut shape) = (0, None);
        if let Some(i) = statistics.iter().position(|s| *s == name) {
            (at, shape) = (i, Some(vec![]));
        } else {
            at += statistics.len();
            for v in &self.variables {
                if v.name == name {
                    shape = Some(v.shape.clone());
                    break;
                }
                at += v.size();
            }
        }
        let shape = shape?;
        let size: usize = shape.iter().product();
        let rows = (0..self.settings.chains).flat_map(|chain| self.rows.of_chain(chain));
        let numbers: Vec<f64> = rows.flat_map(|row| row[at..at + size].iter().copied()).collect();
        let mut full = vec![self.settings.chains, self.drawn()];
        full.extend(shape);
        ArrayD::from_shape_vec(IxDyn(&full), numbers).ok()
    }
}

/// Appends the rows of draws: one of each chain, then the next one of each chain, and so on.
fn record(rows: &mut Rows, draws: &[PosteriorDraw]) {
    draws.iter().for_each(|draw| rows.push([&draw.statistics[..], &draw.parameters]));
}

/// Calls [`record`] and `make`, in parallel if there are enough draws.
fn record_beside<R>(rows: &mut Rows, draws: &[PosteriorDraw], make: impl FnOnce() -> R) -> R {
    if !is_shared_work(draws.len() * rows.width()) {
        record(rows, draws);
        return make();
    }
    // One thread records; the others do not wait for it.
    rayon::in_place_scope(|scope| {
        scope.spawn(|_| record(rows, draws));
        make()
    })
}

/// Returns the acceptance probability, and 1 for a divergent trajectory, from the statistics at the beginning of a row.
fn acceptance_and_divergence(sampler: &Sampler, row: &[f64]) -> (f64, usize) {
    let divergent = matches!(sampler, Sampler::Nuts { .. }) && row[5] > 0.0;
    (row[1], usize::from(divergent))
}
