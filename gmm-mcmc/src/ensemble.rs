//! The affine-invariant ensemble sampler, with half of the walkers at a time (Foreman-Mackey and others 2013), so that
//! each half is one batch.
//!
//! A walker of the moving half is either stretched along the line to a walker of the other half (Goodman and Weare 2010),
//! or moved by a multiple of the difference of two walkers of the other half (ter Braak 2006). Stretches alone
//! mix poorly in more than a few dozen dimensions (Huijser, Goodman and Brewer 2015).
//!
//! Each walker is recorded as a chain, as ArviZ does it. Walkers of one ensemble are not quite independent; R-hat and
//! effective sample sizes over them are the field's custom, not a theorem.
use crate::sampler::{Draw, Starts};
use crate::target::Target;
use crate::{Result, rng};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// Share of the moves that are stretches; the others are differences.
const STRETCHES: f64 = 0.2;
/// Share of the differences that are taken whole, which leads from one mode to another where walkers are in both.
const JUMPS: f64 = 0.05;
/// Relative standard deviation of the factor of the other differences, so that not only a grid is proposed.
const JITTER: f64 = 0.1;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Walker {
    point: Vec<f64>,
    log_density: f64,
    #[serde(with = "rng")]
    rng: ChaCha8Rng,
    /// Sum of the acceptance probabilities since the last draw.
    accepted: f64,
}

/// An even number of walkers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ensemble {
    walkers: Vec<Walker>,
    /// a > 1: stretches are between 1/a and a.
    stretch: f64,
}

impl Ensemble {
    pub fn new(starts: Starts, stretch: f64) -> Self {
        let walker = |(point, log_density, rng)| Walker { point, log_density, rng, accepted: 0.0 };
        Self { walkers: starts.into_iter().map(walker).collect(), stretch }
    }

    /// One iteration: both halves. On an error the walkers are where they were.
    pub fn advance(&mut self, target: &mut dyn Target) -> Result<()> {
        let before = self.walkers.clone();
        let result = (0..2).try_for_each(|half| self.move_half(half, target));
        if result.is_err() {
            self.walkers = before;
        }
        result
    }

    fn move_half(&mut self, half: usize, target: &mut dyn Target) -> Result<()> {
        let dim = target.dim();
        let middle = self.walkers.len() / 2;
        let (first, second) = self.walkers.split_at_mut(middle);
        let (moving, still) = if half == 0 { (first, second) } else { (second, first) };
        let mut proposals = Vec::with_capacity(moving.len() * dim);
        let mut log_volumes = Vec::with_capacity(moving.len());
        let pairs = 2.38 / (2.0 * dim as f64).sqrt();
        for walker in moving.iter_mut() {
            let Walker { point, rng, .. } = walker;
            if rng.random::<f64>() < STRETCHES {
                let partner = &still[rng.random_range(0..still.len())].point;
                // Density ∝ 1/√z on [1/a, a], by inversion.
                let z = ((self.stretch - 1.0) * rng.random::<f64>() + 1.0).powi(2) / self.stretch;
                proposals.extend(partner.iter().zip(&*point).map(|(p, w)| p + z * (w - p)));
                log_volumes.push((dim as f64 - 1.0) * z.ln());
            } else {
                let first = rng.random_range(0..still.len());
                // Any other.
                let second = (first + rng.random_range(1..still.len())) % still.len();
                let (first, second) = (&still[first].point, &still[second].point);
                let noise: f64 = StandardNormal.sample(rng);
                let factor = if rng.random::<f64>() < JUMPS { 1.0 } else { pairs * (1.0 + JITTER * noise) };
                proposals.extend(point.iter().zip(first).zip(second).map(|((w, a), b)| w + factor * (a - b)));
                log_volumes.push(0.0);
            }
        }
        let mut log_densities = vec![0.0; moving.len()];
        target.log_density_batch(&proposals, &mut log_densities)?;
        for (i, walker) in moving.iter_mut().enumerate() {
            let acceptance = (log_volumes[i] + log_densities[i] - walker.log_density).min(0.0).exp();
            walker.accepted += acceptance;
            if walker.rng.random::<f64>() < acceptance {
                walker.point.copy_from_slice(&proposals[i * dim..(i + 1) * dim]);
                walker.log_density = log_densities[i];
            }
        }
        Ok(())
    }

    /// One draw of each walker after `thin` iterations. On an error nothing is kept.
    pub fn sample(&mut self, target: &mut dyn Target, thin: usize, kept: &mut Vec<Draw>) -> Result<()> {
        let before = self.walkers.clone();
        self.walkers.iter_mut().for_each(|w| w.accepted = 0.0);
        for _ in 0..thin {
            if let Err(e) = self.advance(target) {
                self.walkers = before;
                return Err(e);
            }
        }
        kept.extend(self.walkers.iter().enumerate().map(|(chain, w)| Draw {
            chain,
            point: w.point.clone(),
            statistics: vec![w.log_density, w.accepted / thin as f64],
        }));
        Ok(())
    }

    /// Where the walkers are, and the log densities there.
    pub fn positions(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.walkers.iter().map(|c| (c.point.as_slice(), c.log_density))
    }
}
