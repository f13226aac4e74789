//! A segment of random-walk Metropolis after warm-up, done by the host or by a backend that walks by itself.
use crate::Result;
use crate::metropolis::{Buffers, Scratch, WalkChain};
use crate::sampler::Draw;
use crate::target::Target;
use gmm_host::MetropolisSteps;

/// A segment of Metropolis after warm-up, as a [`Target`] is asked to run it.
pub struct Walk<'a> {
    chains: &'a mut [WalkChain],
    /// Steps for each draw.
    thin: usize,
    /// Draws of each chain.
    draws: usize,
    scratch: &'a mut Scratch,
    kept: &'a mut Vec<Draw>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        chains: &'a mut [WalkChain],
        thin: usize,
        draws: usize,
        scratch: &'a mut Scratch,
        kept: &'a mut Vec<Draw>,
    ) -> Self {
        Self { chains, thin, draws, scratch, kept }
    }

    /// Number of chains.
    pub fn chains(&self) -> usize {
        self.chains.len()
    }

    /// Steps of each chain: of every block of coordinates in turn, for every draw.
    pub fn steps(&self) -> usize {
        self.draws * self.thin * self.chains[0].blocks()
    }

    /// Where a chain is.
    pub fn point(&self, chain: usize) -> &[f64] {
        &self.chains[chain].point
    }

    /// Runs the segment on the host: a batch of the chains' proposals for each step.
    pub fn run<T: Target + ?Sized>(&mut self, target: &mut T) -> Result<()> {
        let blocks = self.chains[0].blocks();
        for _ in 0..self.draws {
            self.scratch.accepted.fill(0.0);
            for _ in 0..self.thin {
                for block in 0..blocks {
                    self.scratch.step(self.chains, block, target)?;
                    self.scratch.sum_acceptance();
                }
            }
            for (c, chain) in self.chains.iter().enumerate() {
                self.kept.push(chain.draw(c, self.scratch.accepted[c] / (self.thin * blocks) as f64));
            }
        }
        Ok(())
    }

    /// Runs the segment chain by chain: `walk` takes a chain from its point and its log density through all of the steps.
    /// They are the very steps of [`Self::run`].
    pub fn each_chain(
        &mut self,
        mut walk: impl FnMut(&[f64], f64, &mut dyn MetropolisSteps) -> Result<()>,
    ) -> Result<()> {
        let (steps, per_draw) = (self.steps(), self.thin * self.chains[0].blocks());
        let mut all = Vec::with_capacity(self.chains.len());
        for (c, chain) in self.chains.iter_mut().enumerate() {
            let mut steps = ChainSteps {
                c,
                chain,
                left: steps,
                per_draw,
                block: 0,
                seen: 0,
                accepted: 0.0,
                kept: vec![],
                buffers: Buffers::default(),
            };
            while steps.left > 0 {
                let (point, log_density) = (steps.chain.point.clone(), steps.chain.log_density);
                walk(&point, log_density, &mut steps)?;
            }
            all.push(steps.kept.into_iter());
        }
        // In the order in which the host would have made them.
        for _ in 0..self.draws {
            self.kept.extend(all.iter_mut().filter_map(Iterator::next));
        }
        Ok(())
    }
}

/// The steps of one chain.
struct ChainSteps<'a> {
    c: usize,
    chain: &'a mut WalkChain,
    /// Steps to be proposed.
    left: usize,
    /// Steps for each draw.
    per_draw: usize,
    /// The block of the next step to be proposed.
    block: usize,
    /// Steps since the last draw.
    seen: usize,
    /// Sum of their acceptance probabilities.
    accepted: f64,
    kept: Vec<Draw>,
    buffers: Buffers,
}

/// Numbers of a step.
fn width(dim: usize) -> usize {
    (dim + 1).next_multiple_of(2)
}

impl MetropolisSteps for ChainSteps<'_> {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let dim = self.chain.point.len();
        let count = self.left.min(rows.len() / width(dim));
        for row in rows.chunks_exact_mut(width(dim)).take(count) {
            self.chain.increments(self.block, &mut row[..dim], &mut self.buffers);
            row[dim] = self.chain.log_uniform();
            self.block = (self.block + 1) % self.chain.blocks();
        }
        self.left -= count;
        count
    }

    fn record(&mut self, rows: &[f64], log_densities: &[f64]) {
        let dim = self.chain.point.len();
        for (row, &log_density) in rows.chunks_exact(width(dim)).zip(log_densities) {
            self.accepted += self.chain.decide(&row[..dim], row[dim], log_density);
            self.seen += 1;
            if self.seen == self.per_draw {
                self.kept.push(self.chain.draw(self.c, self.accepted / self.per_draw as f64));
                (self.seen, self.accepted) = (0, 0.0);
            }
        }
    }
}
