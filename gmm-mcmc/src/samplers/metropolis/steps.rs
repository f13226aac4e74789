//! Steps of random-walk Metropolis: by the sampler for several chains together, or by the target for one chain.
use super::block::Buffers;
use super::chain::MetropolisChain;
use crate::error::Result;
use crate::samplers::chain::PosteriorDraw;
use crate::samplers::reference::Reference;
use crate::target::{Target, is_shared_work};
use gmm_host::MetropolisSteps;
use rayon::prelude::*;

/// Steps that the sampler makes for C chains together, with one batch of log densities a step.
#[derive(Debug, Clone, Default)]
pub(super) struct SamplerSteps {
    /// C × dim.
    increments: Vec<f64>,
    /// C × dim.
    proposals: Vec<f64>,
    /// (C,).
    log_densities: Vec<f64>,
    /// The acceptance probabilities of the last step (C,).
    acceptance: Vec<f64>,
    buffers: Buffers,
}

impl SamplerSteps {
    /// Makes one step of all chains in one block. Returns their acceptance probabilities.
    pub fn step(
        &mut self,
        chains: &mut [MetropolisChain],
        block: usize,
        reference: &Reference,
        target: &mut dyn Target,
    ) -> Result<&[f64]> {
        let dim = target.dim();
        self.increments.resize(chains.len() * dim, 0.0);
        self.proposals.resize(chains.len() * dim, 0.0);
        self.log_densities.resize(chains.len(), 0.0);
        let propose =
            |buffers: &mut Buffers, chain: &mut MetropolisChain, increments: &mut [f64], proposal: &mut [f64]| {
                chain.propose(block, increments, buffers);
                for ((p, x), z) in proposal.iter_mut().zip(&chain.point).zip(increments.iter()) {
                    *p = x + z;
                }
            };
        if is_shared_work(chains.len() * dim) {
            // Each chain has its own random numbers, so the result does not depend on the number of threads.
            let places = self.increments.par_chunks_exact_mut(dim).zip(self.proposals.par_chunks_exact_mut(dim));
            chains.par_iter_mut().zip(places).for_each_init(Buffers::default, |buffers, (chain, place)| {
                propose(buffers, chain, place.0, place.1);
            });
        } else {
            let places = self.increments.chunks_exact_mut(dim).zip(self.proposals.chunks_exact_mut(dim));
            for (chain, (increments, proposal)) in chains.iter_mut().zip(places) {
                propose(&mut self.buffers, chain, increments, proposal);
            }
        }
        reference.metropolis_densities(target, &self.proposals, &mut self.log_densities)?;
        self.acceptance.clear();
        for (c, (chain, increments)) in chains.iter_mut().zip(self.increments.chunks_exact(dim)).enumerate() {
            let log_uniform = chain.log_uniform();
            self.acceptance.push(chain.decide(increments, log_uniform, self.log_densities[c]));
        }
        Ok(&self.acceptance)
    }

    /// Makes `draws` draws of each chain, one every `thin` iterations, and returns them by chain. `first` is the number
    /// of the first of these chains.
    pub fn sample(
        &mut self,
        chains: &mut [MetropolisChain],
        first: usize,
        thin: usize,
        draws: usize,
        reference: &Reference,
        target: &mut dyn Target,
    ) -> Result<Vec<Vec<PosteriorDraw>>> {
        let mut by_chain = vec![Vec::new(); chains.len()];
        let blocks = chains.first().map_or(0, |c| c.blocks.len());
        for _ in 0..draws {
            let mut acceptance_sums = vec![0.0; chains.len()];
            for _ in 0..thin {
                for block in 0..blocks {
                    let acceptance = self.step(chains, block, reference, target)?;
                    acceptance_sums.iter_mut().zip(acceptance).for_each(|(sum, a)| *sum += a);
                }
            }
            for (c, (chain, sum)) in chains.iter().zip(acceptance_sums).enumerate() {
                let (point, statistics) = chain.point_and_statistics(sum / (thin * blocks) as f64);
                by_chain[c].push(PosteriorDraw::new(first + c, point, statistics, target));
            }
        }
        Ok(by_chain)
    }
}

/// Lets the target make `draws` draws of one chain, with `steps_per_draw` steps for each. Returns `None` if the target
/// leaves the steps to the sampler.
pub(super) fn sample_by_target(
    chain: &mut MetropolisChain,
    number: usize,
    steps_per_draw: usize,
    draws: usize,
    target: &mut dyn Target,
) -> Result<Option<Vec<PosteriorDraw>>> {
    let mut steps = TargetSteps {
        chain,
        left: draws.saturating_mul(steps_per_draw),
        steps_per_draw,
        block: 0,
        since_draw: 0,
        acceptance_sum: 0.0,
        draws: Vec::new(),
        buffers: Buffers::default(),
    };
    while steps.left > 0 {
        let (point, log_density, left) = (steps.chain.point.clone(), steps.chain.log_density, steps.left);
        // A target that claims to make the steps but asks for none is treated as one that leaves them to the sampler.
        if !target.metropolis(&point, log_density, &mut steps)? || steps.left == left {
            return Ok(None);
        }
    }
    let draws = steps.draws.into_iter();
    Ok(Some(draws.map(|(point, statistics)| PosteriorDraw::new(number, point, statistics, target)).collect()))
}

/// The steps of one chain that the target makes.
struct TargetSteps<'a> {
    chain: &'a mut MetropolisChain,
    left: usize,
    steps_per_draw: usize,
    /// The block of the next step to propose.
    block: usize,
    /// Steps since the last draw.
    since_draw: usize,
    /// The sum of the acceptance probabilities of these steps.
    acceptance_sum: f64,
    draws: Vec<(Vec<f64>, Vec<f64>)>,
    buffers: Buffers,
}

/// Returns the count of numbers in the row of a step, as [`MetropolisSteps`] defines it.
fn row_width(dim: usize) -> usize {
    (dim + 1).next_multiple_of(2)
}

impl MetropolisSteps for TargetSteps<'_> {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let dim = self.chain.point.len();
        let count = self.left.min(rows.len() / row_width(dim));
        for row in rows.chunks_exact_mut(row_width(dim)).take(count) {
            self.chain.propose(self.block, &mut row[..dim], &mut self.buffers);
            row[dim] = self.chain.log_uniform();
            self.block = (self.block + 1) % self.chain.blocks.len();
        }
        self.left -= count;
        count
    }

    fn record(&mut self, rows: &[f64], log_densities: &[f64]) {
        let dim = self.chain.point.len();
        for (row, &log_density) in rows.chunks_exact(row_width(dim)).zip(log_densities) {
            self.acceptance_sum += self.chain.decide(&row[..dim], row[dim], log_density);
            self.since_draw += 1;
            if self.since_draw == self.steps_per_draw {
                self.draws.push(self.chain.point_and_statistics(self.acceptance_sum / self.steps_per_draw as f64));
                (self.since_draw, self.acceptance_sum) = (0, 0.0);
            }
        }
    }
}
