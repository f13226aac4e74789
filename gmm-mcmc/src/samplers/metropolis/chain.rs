use super::block::{Block, Buffers};
use crate::rng;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MetropolisChain {
    /// The point of the chain (dim,).
    pub point: Vec<f64>,
    pub log_density: f64,
    #[serde(with = "rng")]
    pub rng: ChaCha8Rng,
    /// The blocks of coordinates, which are updated one after another.
    pub blocks: Vec<Block>,
}

impl MetropolisChain {
    /// Draws the increments of the coordinates for the next step in a block. They do not depend on the chain's point,
    /// so several steps can be drawn before the first is decided.
    pub fn propose(&mut self, block: usize, increments: &mut [f64], buffers: &mut Buffers) {
        self.blocks[block].propose(&mut self.rng, increments, buffers);
    }

    /// Draws the logarithm of a uniform number that decides a step. Each step takes one, accepted or not.
    pub fn log_uniform(&mut self) -> f64 {
        self.rng.random::<f64>().ln()
    }

    /// Accepts or rejects the proposal at these increments with this log density. Returns the acceptance probability.
    pub fn decide(&mut self, increments: &[f64], log_uniform: f64, log_density: f64) -> f64 {
        let log_ratio = log_density - self.log_density;
        // The comparison is strict, so that a proposal of density 0 is never accepted.
        if log_uniform < log_ratio {
            self.point.iter_mut().zip(increments).for_each(|(x, z)| *x += z);
            self.log_density = log_density;
        }
        log_ratio.min(0.0).exp()
    }

    /// Returns the chain's point and the statistics of a draw there. `acceptance` is the mean acceptance
    /// probability since the last draw.
    pub fn point_and_statistics(&self, acceptance: f64) -> (Vec<f64>, Vec<f64>) {
        (self.point.clone(), vec![self.log_density, acceptance])
    }
}
