//! The No-U-Turn sampler (Hoffman and Gelman 2014), by the crate `nuts-rs`.
//!
//! `nuts-rs` adapts step size and a diagonal metric during warm-up. After it both are fixed, and every draw is a chain
//! of its own of length one: a pure function of the point, the step size, the metric and the generator, all of which can
//! be saved. The state of a warm-up cannot be; but every density and gradient that it was given can, so that an interrupted
//! warm-up starts again from its beginning with the recorded values, and goes on where these end, to the same bits.
use crate::sampler::{Draw, Starts, cannot_start};
use crate::target::Target;
use crate::{Error, Result, rng};
use nuts_rs::{
    Chain, CpuLogpFunc, CpuMath, CpuMathError, DiagNutsSettings, FlowNutsSettings, HasDims, KineticEnergyKind,
    LogpError, Settings as _, StepSizeAdaptMethod,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// NUTS chains.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Nuts {
    chains: Vec<NutsChain>,
    target_accept: f64,
    max_depth: u64,
    /// The log density and the gradient (1 + dim numbers) of each evaluation that the unfinished warm-up of a chain has made.
    #[serde(skip)]
    recorded: Vec<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NutsChain {
    point: Vec<f64>,
    log_density: f64,
    #[serde(with = "rng")]
    rng: ChaCha8Rng,
    /// What warm-up found.
    tuned: Option<Tuned>,
    /// Log density and gradient at the point, if known.
    #[serde(skip)]
    known: Option<Known>,
}

/// Step size, and the metric as a scale of each coordinate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tuned {
    pub step_size: f64,
    pub scale: Vec<f64>,
}

#[derive(Debug, Clone)]
struct Known {
    point: Vec<f64>,
    log_density: f64,
    gradient: Vec<f64>,
}

impl Nuts {
    pub fn new(starts: Starts, target_accept: f64, max_depth: u64) -> Self {
        let chain = |(point, log_density, rng)| NutsChain { point, log_density, rng, tuned: None, known: None };
        Self { chains: starts.into_iter().map(chain).collect(), target_accept, max_depth, recorded: Vec::new() }
    }

    /// The whole warm-up of chain `chain`. If `observe`, called after each iteration with the number of iterations and of
    /// evaluations, breaks, or on an error, the chain
    /// is as if it had not begun, but that the next call need not evaluate again what was evaluated so far.
    ///
    /// # Errors
    /// What the target fails with; [`Error::Start`] where NUTS cannot begin at the chain's point.
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

    /// One draw of each chain after `thin` trajectories. On an error nothing is kept and the chains are where they were.
    pub fn sample(&mut self, target: &mut dyn Target, thin: usize, kept: &mut Vec<Draw>) -> Result<()> {
        let (before, length) = (self.chains.clone(), kept.len());
        for c in 0..self.chains.len() {
            let mut statistics = Vec::new();
            for _ in 0..thin {
                match self.trajectory(target, c) {
                    Ok(s) => statistics = s,
                    Err(e) => {
                        self.chains = before;
                        kept.truncate(length);
                        return Err(e);
                    }
                }
            }
            kept.push(Draw { chain: c, point: self.chains[c].point.clone(), statistics });
        }
        Ok(())
    }

    fn trajectory(&mut self, target: &mut dyn Target, chain: usize) -> Result<Vec<f64>> {
        let state = &mut self.chains[chain];
        let not_tuned = || Error::Nuts { chain, problem: "the warm-up has not been run".into() };
        let tuned = state.tuned.as_ref().ok_or_else(not_tuned)?;
        let mut settings = FlowNutsSettings {
            num_tune: 0,
            maxdepth: self.max_depth,
            // Not the default here, which is made for a space in which the target is nearly a standard normal.
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
        state.known = stats.point.gradient.map(|gradient| Known {
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

    /// What the unfinished warm-up of a chain has evaluated; nothing between warm-ups.
    pub fn recorded(&self) -> &[f64] {
        &self.recorded
    }

    /// Puts back what [`recorded`](Self::recorded) gave.
    pub fn set_recorded(&mut self, recorded: Vec<f64>) {
        self.recorded = recorded;
    }

    /// What warm-up found for a chain.
    pub fn tuned(&self, chain: usize) -> Option<&Tuned> {
        self.chains[chain].tuned.as_ref()
    }

    /// Where the chains are, and the log densities there.
    pub fn positions(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.chains.iter().map(|c| (c.point.as_slice(), c.log_density))
    }
}

/// A target as `nuts-rs` wants it. The scale, if there is one, is the metric: trajectories run in θ/scale.
struct Density<'a> {
    target: &'a mut dyn Target,
    /// The error that stopped the sampler, which `nuts-rs` would turn into text.
    failure: &'a RefCell<Option<Error>>,
    known: Option<Known>,
    record: Option<Record<'a>>,
    scale: &'a [f64],
    /// The target's count, for whoever cannot ask it because the sampler holds it.
    evaluations: &'a Cell<u64>,
}

/// Values that are read before anything is evaluated, and to which evaluations are added.
struct Record<'a> {
    numbers: &'a mut Vec<f64>,
    /// How many were read.
    read: usize,
}

#[derive(Debug, thiserror::Error)]
enum DensityError {
    #[error("no density here")]
    Impossible,
    #[error("the evaluation failed")]
    Failed,
}

impl LogpError for DensityError {
    fn is_recoverable(&self) -> bool {
        matches!(self, Self::Impossible)
    }
}

impl HasDims for Density<'_> {
    fn dim_sizes(&self) -> HashMap<String, u64> {
        HashMap::from([("unconstrained_parameter".into(), self.target.dim() as u64)])
    }
}

impl Density<'_> {
    fn scaled(&self, gradient: &[f64], scaled: &mut [f64]) {
        scaled.iter_mut().zip(gradient).zip(self.scale).for_each(|((s, g), scale)| *s = g * scale);
    }
}

impl CpuLogpFunc for Density<'_> {
    type LogpError = DensityError;
    type FlowParameters = ();
    type ExpandedVector = Vec<f64>;

    fn dim(&self) -> usize {
        self.target.dim()
    }

    fn logp(&mut self, position: &[f64], gradient: &mut [f64]) -> Result<f64, DensityError> {
        if let Some(known) = self.known.as_ref().filter(|k| k.point == position) {
            gradient.copy_from_slice(&known.gradient);
            return Ok(known.log_density);
        }
        let value = match &mut self.record {
            Some(record) if record.read < record.numbers.len() => {
                let numbers = &record.numbers[record.read..record.read + 1 + gradient.len()];
                gradient.copy_from_slice(&numbers[1..]);
                Ok(numbers[0])
            }
            _ => self.target.log_density_gradient(position, gradient),
        };
        self.evaluations.set(self.target.evaluations());
        if let (Some(record), Ok(v)) = (&mut self.record, &value) {
            if record.read == record.numbers.len() {
                record.numbers.push(*v);
                record.numbers.extend_from_slice(gradient);
            }
            record.read += 1 + gradient.len();
        }
        match value {
            Ok(v) if v.is_finite() && gradient.iter().all(|g| g.is_finite()) => Ok(v),
            Ok(_) => Err(DensityError::Impossible),
            Err(e) => {
                self.failure.replace(Some(e));
                Err(DensityError::Failed)
            }
        }
    }

    fn expand_vector<R: Rng + ?Sized>(&mut self, _: &mut R, _: &[f64]) -> Result<Vec<f64>, CpuMathError> {
        Ok(Vec::new())
    }

    fn inv_transform_normalize(
        &mut self,
        _: &(),
        position: &[f64],
        gradient: &[f64],
        scaled_position: &mut [f64],
        scaled_gradient: &mut [f64],
    ) -> Result<f64, DensityError> {
        scaled_position.iter_mut().zip(position).zip(self.scale).for_each(|((s, p), scale)| *s = p / scale);
        self.scaled(gradient, scaled_gradient);
        Ok(0.0)
    }

    fn init_from_untransformed_position(
        &mut self,
        _: &(),
        position: &[f64],
        gradient: &mut [f64],
        scaled_position: &mut [f64],
        scaled_gradient: &mut [f64],
        _: Option<f64>,
    ) -> Result<(f64, f64), DensityError> {
        let log_density = self.logp(position, gradient)?;
        self.inv_transform_normalize(&(), position, gradient, scaled_position, scaled_gradient)?;
        Ok((log_density, 0.0))
    }

    fn init_from_transformed_position(
        &mut self,
        _: &(),
        position: &mut [f64],
        gradient: &mut [f64],
        scaled_position: &[f64],
        scaled_gradient: &mut [f64],
        _: Option<f64>,
    ) -> Result<(f64, f64), DensityError> {
        position.iter_mut().zip(scaled_position).zip(self.scale).for_each(|((p, s), scale)| *p = s * scale);
        let log_density = self.logp(position, gradient)?;
        self.scaled(gradient, scaled_gradient);
        Ok((log_density, 0.0))
    }

    fn init_transformation<R: Rng + ?Sized>(
        &mut self,
        _: &mut R,
        _: &[f64],
        _: &[f64],
        _: u64,
    ) -> Result<(), DensityError> {
        Ok(())
    }

    fn new_transformation<R: Rng + ?Sized>(&mut self, _: &mut R, _: usize, _: u64) -> Result<(), DensityError> {
        Ok(())
    }

    fn transformation_id(&self, _: &()) -> Result<i64, DensityError> {
        Ok(0)
    }
}
