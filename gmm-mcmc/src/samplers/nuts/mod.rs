//! The No-U-Turn sampler (Hoffman and Gelman 2014), by the crate `nuts-rs`.
//!
//! `nuts-rs` adapts the step size and a diagonal metric during warm-up. After warm-up both are fixed, and each
//! trajectory is a `nuts-rs` chain of length one. It depends only on the point, the step size, the metric and the
//! generator, which are saved.
//!
//! The state of `nuts-rs` within a warm-up cannot be saved. Instead, all log densities and gradients of the warm-up are
//! recorded. An interrupted warm-up is repeated from its beginning with the recorded values, which gives the same bits,
//! and evaluates the density again where the record ends.
mod density;

use super::chain::{ChainStart, PosteriorDraw, cannot_start};
use crate::error::{Error, Result};
use crate::rng;
use crate::target::Target;
use density::{Density, Evaluated, Record};
use nuts_rs::{
    Chain, CpuMath, DiagNutsSettings, FlowNutsSettings, KineticEnergyKind, Settings as _, StepSizeAdaptMethod,
};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Nuts {
    chains: Vec<NutsChain>,
    target_accept: f64,
    max_depth: u64,
    /// The evaluations of a chain's unfinished warm-up, each the log density and then the gradient (1 + dim numbers).
    #[serde(skip)]
    recorded: Vec<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NutsChain {
    point: Vec<f64>,
    log_density: f64,
    #[serde(with = "rng")]
    rng: ChaCha8Rng,
    /// The result of the warm-up; `None` before its end.
    tuned: Option<Tuned>,
    /// The last evaluation, if it was at the chain's point: the next trajectory begins with it.
    #[serde(skip)]
    known: Option<Evaluated>,
}

/// The step size, and the diagonal metric as a scale of each coordinate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tuned {
    pub step_size: f64,
    pub scale: Vec<f64>,
}

impl Nuts {
    pub fn new(starts: Vec<ChainStart>, target_accept: f64, max_depth: u64) -> Self {
        let chain = |ChainStart { point, log_density, rng }: ChainStart| NutsChain {
            point,
            log_density,
            rng,
            tuned: None,
            known: None,
        };
        Self { chains: starts.into_iter().map(chain).collect(), target_accept, max_depth, recorded: Vec::new() }
    }

    /// Makes the whole warm-up of one chain. `observe` is called after each iteration with the number of iterations so
    /// far and the target's count of evaluations. If it breaks, or after an error, the chain is as before the warm-up,
    /// and the next call repeats the warm-up with the recorded evaluations. Errors: the target's errors;
    /// [`Error::Start`] if NUTS cannot begin at the chain's point.
    pub fn warm_up(
        &mut self,
        target: &mut dyn Target,
        chain: usize,
        warmup: usize,
        observe: &mut dyn FnMut(usize, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut settings = DiagNutsSettings {
            num_tune: warmup as u64,
            maxdepth: self.max_depth,
            gradient_clipping: None,
            ..Default::default()
        };
        settings.adapt_options.mass_matrix_options.store_mass_matrix = true;
        settings.adapt_options.step_size_settings.target_accept = self.target_accept;
        settings.adapt_options.step_size_settings.jitter = None;
        let state = &mut self.chains[chain];
        let mut rng = state.rng.clone();
        let failure = RefCell::new(None);
        let why = |e: String| failure.take().unwrap_or(Error::Nuts { chain, problem: e });
        let (dim, evaluations) = (target.dim(), Cell::new(target.evaluations()));
        let density = Density {
            target,
            failure: &failure,
            known: None,
            record: Some(Record { numbers: &mut self.recorded, read: 0 }),
            scale: &[],
            evaluations: &evaluations,
        };
        let mut nuts =
            settings.new_chain(chain as u64, CpuMath::new(density), &mut rng).map_err(|e| why(format!("{e:#}")))?;
        if let Err(e) = nuts.set_position(&state.point) {
            drop(nuts);
            return Err(match failure.take() {
                Some(failure) => failure,
                None => cannot_start(target, chain, &state.point, &format!("NUTS cannot begin there ({e:#})"))?,
            });
        }
        let (mut scale, mut point, mut log_density, mut step_size) = (vec![1.0; dim], Vec::new(), f64::NAN, 0.0);
        for iteration in 0..warmup {
            let (draw, _, stats, progress) = nuts.expanded_draw().map_err(|e| why(format!("{e:#}")))?;
            if let Some(s) = stats.hamiltonian.transformation.mass_matrix_inv {
                scale = s;
            }
            (point, log_density, step_size) = (draw.into_vec(), stats.point.logp, progress.step_size);
            if observe(iteration + 1, evaluations.get()).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        (state.point, state.log_density, state.rng) = (point, log_density, rng);
        state.tuned = Some(Tuned { step_size, scale });
        drop(nuts);
        self.recorded = Vec::new();
        Ok(ControlFlow::Continue(()))
    }

    /// Makes one draw of each chain, after `thin` trajectories, in place of those in `draws`. After an error the chains
    /// are unchanged.
    pub fn sample(&mut self, target: &mut dyn Target, thin: usize, draws: &mut Vec<PosteriorDraw>) -> Result<()> {
        let before = self.chains.clone();
        draws.clear();
        for c in 0..self.chains.len() {
            let mut statistics = Vec::new();
            for _ in 0..thin {
                match self.trajectory(target, c) {
                    Ok(s) => statistics = s,
                    Err(e) => {
                        self.chains = before;
                        return Err(e);
                    }
                }
            }
            draws.push(PosteriorDraw::new(c, self.chains[c].point.clone(), statistics, target));
        }
        Ok(())
    }

    /// Moves a chain along one trajectory to its new point. Returns the statistics of the draw.
    fn trajectory(&mut self, target: &mut dyn Target, chain: usize) -> Result<Vec<f64>> {
        let state = &mut self.chains[chain];
        let not_tuned = || Error::Nuts { chain, problem: "the warm-up has not been run".into() };
        let tuned = state.tuned.as_ref().ok_or_else(not_tuned)?;
        let mut settings = FlowNutsSettings {
            num_tune: 0,
            maxdepth: self.max_depth,
            // The default of these settings is for coordinates in which the target is nearly a standard normal.
            trajectory_kind: KineticEnergyKind::Euclidean,
            gradient_clipping: None,
            store_gradient: true,
            ..Default::default()
        };
        settings.adapt_options.step_size_settings.adapt_options.method = StepSizeAdaptMethod::Fixed(tuned.step_size);
        settings.adapt_options.step_size_settings.jitter = None;
        let failure = RefCell::new(None);
        let why = |e: String| failure.take().unwrap_or(Error::Nuts { chain, problem: e });
        let (known, evaluations) = (state.known.take(), Cell::new(0));
        let scale = &tuned.scale;
        let density = Density { target, failure: &failure, known, record: None, scale, evaluations: &evaluations };
        let mut nuts = settings
            .new_chain(chain as u64, CpuMath::new(density), &mut state.rng)
            .map_err(|e| why(format!("{e:#}")))?;
        nuts.set_position(&state.point).map_err(|e| why(format!("{e:#}")))?;
        let (draw, _, stats, progress) = nuts.expanded_draw().map_err(|e| why(format!("{e:#}")))?;
        (state.point, state.log_density) = (draw.into_vec(), stats.point.logp);
        state.known = stats.point.gradient.map(|gradient| Evaluated {
            point: state.point.clone(),
            log_density: stats.point.logp,
            gradient,
        });
        Ok(vec![
            stats.point.logp,
            stats.adapt.step_size.mean_tree_accept,
            tuned.step_size,
            stats.depth as f64,
            stats.adapt.step_size.n_steps as f64,
            f64::from(u8::from(progress.diverging)),
            stats.point.energy,
        ])
    }

    /// Returns the evaluations of a chain's interrupted warm-up; empty without one.
    pub fn recorded(&self) -> &[f64] {
        &self.recorded
    }

    /// Sets the evaluations for the next warm-up to repeat, as returned by [`recorded`](Self::recorded).
    pub fn set_recorded(&mut self, recorded: Vec<f64>) {
        self.recorded = recorded;
    }

    /// Returns the step size and the metric of a chain; `None` before the end of its warm-up.
    pub fn tuned(&self, chain: usize) -> Option<&Tuned> {
        self.chains[chain].tuned.as_ref()
    }

    /// Whether a state that was read from a file can continue with these settings.
    pub fn fits_together(&self, dim: usize, target_accept: f64, max_depth: u64) -> bool {
        let usable = |v: &f64| v.is_finite() && *v > 0.0;
        let tuned = self.chains.iter().filter_map(|c| c.tuned.as_ref());
        (self.target_accept, self.max_depth) == (target_accept, max_depth) && { tuned }
            .all(|t| usable(&t.step_size) && t.scale.len() == dim && t.scale.iter().all(usable))
    }

    /// Returns the chains' points, and the log densities there.
    pub fn points(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.chains.iter().map(|c| (c.point.as_slice(), c.log_density))
    }
}
