//! The affine-invariant ensemble sampler. Half of the walkers move at a time (Foreman-Mackey and
//! others 2013), so that the log densities of each half are one batch.
//!
//! A walker of the moving half is either stretched along the line to a walker of the other half (Goodman and Weare
//! 2010), or moved by a multiple of the difference of two walkers of the other half (ter Braak 2006). Stretches alone
//! mix poorly in more than a few dozen dimensions (Huijser, Goodman and Brewer 2015).
//!
//! Each walker is recorded as a chain, as in ArviZ. The walkers of an ensemble are not quite independent. R-hat and
//! effective sample sizes are customarily computed over them all the same, without a supporting theorem.
use super::chain::{ChainStart, PosteriorDraw};
use super::reference::Reference;
use super::team::Team;
use crate::error::Result;
use crate::rng;
use crate::target::Target;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// The share of stretches among the moves. The others are differences.
const STRETCHES: f64 = 0.2;
/// The share of difference moves by the whole difference of two walkers. Between walkers in two modes, such a move can
/// lead from one mode to the other.
const JUMPS: f64 = 0.05;
/// The relative standard deviation of the factor of the other difference moves. Without it, the proposals would lie on
/// a grid.
const JITTER: f64 = 0.1;

#[derive(Debug, Serialize, Deserialize)]
struct Walker {
    point: Vec<f64>,
    log_density: f64,
    #[serde(with = "rng")]
    rng: ChaCha8Rng,
    /// The sum of the acceptance probabilities since the last draw.
    acceptance_sum: f64,
}

impl Clone for Walker {
    fn clone(&self) -> Self {
        let Self { point, log_density, rng, acceptance_sum } = self;
        Self { point: point.clone(), log_density: *log_density, rng: rng.clone(), acceptance_sum: *acceptance_sum }
    }

    /// Reuses the memory of the point.
    fn clone_from(&mut self, other: &Self) {
        self.point.clone_from(&other.point);
        self.rng.clone_from(&other.rng);
        (self.log_density, self.acceptance_sum) = (other.log_density, other.acceptance_sum);
    }
}

/// All walkers of a run. Their number is even.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ensemble {
    walkers: Vec<Walker>,
    /// The walkers before the current operation.
    #[serde(skip)]
    before: Vec<Walker>,
    /// a > 1: a stretch multiplies a distance by a number between 1/a and a.
    stretch: f64,
    reference: Reference,
}

impl Ensemble {
    pub fn new(starts: Vec<ChainStart>, stretch: f64, reference: Reference) -> Self {
        let walker = |ChainStart { point, log_density, rng }: ChainStart| Walker {
            point,
            log_density,
            rng,
            acceptance_sum: 0.0,
        };
        let walkers = starts.into_iter().map(walker).collect();
        Self { walkers, before: Vec::new(), stretch, reference }
    }

    /// Makes iteration `iteration` of `warmup`. After an error the walkers are unchanged.
    pub fn warm_up(&mut self, team: &mut Team<'_>, iteration: usize, warmup: usize) -> Result<()> {
        if self.reference.is_due(iteration, warmup) {
            let renewed = self.reference.renew(team.one(), self.walkers.iter().map(|w| w.point.as_slice()))?;
            self.walkers.iter_mut().zip(renewed).for_each(|(w, v)| w.log_density = v);
        }
        self.advance(team, 1, &mut [])
    }

    /// Makes `iterations` iterations, each of which moves each half once. In the last one each walker fills its draw,
    /// if there are draws. After an error the walkers are unchanged.
    fn advance(&mut self, team: &mut Team<'_>, iterations: usize, draws: &mut [PosteriorDraw]) -> Result<()> {
        self.before.clone_from(&self.walkers);
        let mut advance = |iteration: usize| {
            let draws = if iteration + 1 == iterations { &mut *draws } else { &mut [] };
            (0..2).try_for_each(|half| self.move_half(half, team, iterations, draws))
        };
        let moved = (0..iterations).try_for_each(&mut advance);
        if moved.is_err() {
            std::mem::swap(&mut self.walkers, &mut self.before);
        }
        moved
    }

    /// Moves one half. Its walkers then fill their draws, if any, as the last of the given number of iterations since
    /// the previous draw.
    fn move_half(
        &mut self,
        half: usize,
        team: &mut Team<'_>,
        iterations: usize,
        draws: &mut [PosteriorDraw],
    ) -> Result<()> {
        let middle = self.walkers.len() / 2;
        let (first, second) = self.walkers.split_at_mut(middle);
        let (moving, resting) = if half == 0 { (first, second) } else { (second, first) };
        let (resting, stretch, reference) = (&*resting, self.stretch, &self.reference);
        let draws = draws.iter_mut().skip(half * middle).map(Some).chain(std::iter::repeat_with(|| None));
        let mut moving: Vec<(&mut Walker, Option<&mut PosteriorDraw>)> = moving.iter_mut().zip(draws).collect();
        let moved = team.divide(&mut moving, |first, moving, target| {
            reference.fix(target);
            move_walkers(moving, resting, stretch, target)?;
            for (i, (walker, draw)) in moving.iter_mut().enumerate() {
                if let Some(draw) = draw {
                    let statistics = [walker.log_density, walker.acceptance_sum / iterations as f64];
                    draw.fill(half * middle + first + i, &walker.point, &statistics, target);
                }
            }
            Ok(())
        });
        moved.map(drop)
    }

    /// Makes one draw of each walker, after `thin` iterations, in place of those in `draws`. After an error the walkers
    /// are unchanged.
    pub fn sample(&mut self, team: &mut Team<'_>, thin: usize, draws: &mut Vec<PosteriorDraw>) -> Result<()> {
        self.walkers.iter_mut().for_each(|w| w.acceptance_sum = 0.0);
        draws.resize_with(self.walkers.len(), PosteriorDraw::empty);
        self.advance(team, thin, draws)
    }

    /// Whether a state that was read from a file can continue with the stretch of its settings.
    pub fn fits_together(&self, stretch: f64) -> bool {
        self.stretch == stretch
    }

    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Returns the walkers' points, and the log densities there.
    pub fn points(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.walkers.iter().map(|w| (w.point.as_slice(), w.log_density))
    }
}

fn move_walkers<D>(
    moving: &mut [(&mut Walker, D)],
    resting: &[Walker],
    stretch: f64,
    target: &mut dyn Target,
) -> Result<()> {
    let dim = target.dim();
    let mut proposals = Vec::with_capacity(moving.len() * dim);
    let mut log_volumes = Vec::with_capacity(moving.len());
    // The best factor for a normal target (ter Braak 2006).
    let usual_factor = 2.38 / (2.0 * dim as f64).sqrt();
    for (walker, _) in moving.iter_mut() {
        let Walker { point, rng, .. } = &mut **walker;
        if rng.random::<f64>() < STRETCHES {
            let partner = &resting[rng.random_range(0..resting.len())].point;
            // The stretch z has a density ∝ 1/√z on [1/a, a]. It is drawn by inversion.
            let z = ((stretch - 1.0) * rng.random::<f64>() + 1.0).powi(2) / stretch;
            proposals.extend(partner.iter().zip(&*point).map(|(p, w)| p + z * (w - p)));
            log_volumes.push((dim as f64 - 1.0) * z.ln());
        } else {
            let first = rng.random_range(0..resting.len());
            // Any walker of the resting half but the first.
            let second = (first + rng.random_range(1..resting.len())) % resting.len();
            let (first, second) = (&resting[first].point, &resting[second].point);
            let noise: f64 = StandardNormal.sample(rng);
            let factor = if rng.random::<f64>() < JUMPS { 1.0 } else { usual_factor * (1.0 + JITTER * noise) };
            proposals.extend(point.iter().zip(first).zip(second).map(|((w, a), b)| w + factor * (a - b)));
            log_volumes.push(0.0);
        }
    }
    let mut log_densities = vec![0.0; moving.len()];
    target.log_density_batch(&proposals, &mut log_densities)?;
    for (i, (walker, _)) in moving.iter_mut().enumerate() {
        let acceptance = (log_volumes[i] + log_densities[i] - walker.log_density).min(0.0).exp();
        walker.acceptance_sum += acceptance;
        if walker.rng.random::<f64>() < acceptance {
            walker.point.copy_from_slice(&proposals[i * dim..(i + 1) * dim]);
            walker.log_density = log_densities[i];
        }
    }
    Ok(())
}
