//! Coordinates that are proposed together, and the adaptation of their proposals during warm-up.
use super::covariance::{RunningCovariance, factor};
use super::factor::Factor;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// Coordinates of a block whose proposals are correlated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    indices: Vec<usize>,
    /// L.
    factor: Factor,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Block {
    /// log s.
    log_scale: f64,
    parts: Vec<Part>,
    /// `None` after warm-up.
    adaptation: Option<Adaptation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Adaptation {
    /// The covariance of each part, over the points of the chain.
    covariances: Vec<RunningCovariance>,
    /// The smallest variance that L may have for each coordinate of each part.
    floors: Vec<Vec<f64>>,
    /// Steps since L last changed.
    steps: u64,
}

/// A change of L.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    /// Whether to estimate the covariance anew afterwards, because the chain was still on its way to the bulk of the
    /// distribution.
    pub forget: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Buffers {
    normal: Vec<f64>,
    correlated: Vec<f64>,
}

/// Returns log of 2.38/√d, the best scale for a normal target whose covariance is known (Roberts and Rosenthal 2001).
fn best_log_scale(d: usize) -> f64 {
    (2.38 / (d as f64).sqrt()).ln()
}

impl Block {
    /// Returns a block in which the coordinates within each part are correlated. `typical` is the scale of a step along
    /// each coordinate of the target.
    pub fn new(parts: &[Vec<usize>], typical: &[f64]) -> Self {
        let sd = |part: &[usize]| -> Vec<f64> { part.iter().map(|&i| typical[i]).collect() };
        let adaptation = Adaptation {
            covariances: parts.iter().map(|p| RunningCovariance::new(p.len())).collect(),
            floors: parts.iter().map(|p| sd(p).into_iter().map(|s| 1e-4 * s * s).collect()).collect(),
            steps: 0,
        };
        let dim = parts.iter().map(Vec::len).sum();
        let parts = parts.iter().map(|p| Part { indices: p.clone(), factor: Factor::diagonal(&sd(p)) }).collect();
        Self { log_scale: best_log_scale(dim), parts, adaptation: Some(adaptation) }
    }

    fn dim(&self) -> usize {
        self.parts.iter().map(|p| p.indices.len()).sum()
    }

    /// Returns the scale s of the proposals.
    pub fn scale(&self) -> f64 {
        self.log_scale.exp()
    }

    /// Draws the increments s L z of the coordinates; they are 0 outside of the block.
    pub fn propose(&self, rng: &mut ChaCha8Rng, increments: &mut [f64], buffers: &mut Buffers) {
        let scale = self.scale();
        increments.fill(0.0);
        for part in &self.parts {
            let n = part.indices.len();
            buffers.normal.clear();
            buffers.normal.extend((0..n).map(|_| scale * Distribution::<f64>::sample(&StandardNormal, rng)));
            buffers.correlated.resize(n, 0.0);
            part.factor.times(&buffers.normal, &mut buffers.correlated);
            for (&i, step) in part.indices.iter().zip(&buffers.correlated) {
                increments[i] = *step;
            }
        }
    }

    /// Adapts the block after a step of warm-up with this acceptance probability, which ended at `point`.
    pub fn adapt(&mut self, point: &[f64], acceptance: f64, change: Option<Change>, buffers: &mut Buffers) {
        let dim = self.dim();
        let Some(a) = &mut self.adaptation else { return };
        a.steps = a.steps.saturating_add(1);
        let goal = 0.234 + 0.206 / dim as f64;
        self.log_scale += (4.0 * (a.steps as f64).powf(-0.7)).min(1.0) * (acceptance - goal);
        for (part, covariance) in self.parts.iter().zip(&mut a.covariances) {
            covariance.add(part.indices.iter().map(|&i| point[i]), &mut buffers.normal);
        }
        let Some(Change { forget }) = change else { return };
        for ((part, covariance), floors) in self.parts.iter_mut().zip(&mut a.covariances).zip(&a.floors) {
            let n = part.indices.len();
            // Steps of a random walk are worth about 1/(4 dim) as many independent points. If these are few for the
            // number of coordinates, the correlations are shrunk.
            let worth = covariance.count() as f64 / (4 * dim) as f64;
            let shrinkage = worth / (worth + n as f64);
            if let Some(l) = covariance.covariance().and_then(|c| factor(&c, n, shrinkage, floors)) {
                part.factor = l;
            }
            if forget {
                *covariance = RunningCovariance::new(n);
            }
        }
        self.log_scale = best_log_scale(dim);
        a.steps = 0;
    }

    pub fn end_warm_up(&mut self) {
        self.adaptation = None;
    }

    /// Whether a block that was read from a file can continue in a target of `dim` coordinates.
    pub fn fits_together(&self, dim: usize) -> bool {
        let parts = self.parts.iter();
        let parts_fit = { parts }.all(|p| {
            let n = p.indices.len();
            n > 0 && n <= dim && p.indices.iter().all(|&i| i < dim) && p.factor.n() == n
        });
        let adaptation_fits = self.adaptation.as_ref().is_none_or(|a| {
            let parts = self.parts.iter().zip(&a.covariances).zip(&a.floors);
            (a.covariances.len(), a.floors.len()) == (self.parts.len(), self.parts.len()) && { parts }
                .all(|((p, c), f)| c.is_of(p.indices.len()) && f.len() == p.indices.len())
        });
        !self.parts.is_empty() && parts_fit && adaptation_fits
    }
}
