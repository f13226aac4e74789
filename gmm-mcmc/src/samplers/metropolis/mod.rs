//! Random-walk Metropolis, adapted during warm-up, in one block or component by component.
//!
//! The proposal of a block is x + s L z with z standard normal. During warm-up L Lᵀ follows the covariance of the chain
//! (Haario, Saksman and Tamminen 2001), and the scale s is steered towards an acceptance of 0.234 + 0.206/d, which is
//! 0.44 for d = 1 (Roberts and Rosenthal 2001; Andrieu and Thoms 2008). After warm-up neither changes, so the chain is
//! Markov.
mod block;
mod chain;
mod covariance;
mod factor;
mod steps;

use super::chain::{ChainStart, PosteriorDraw};
use super::reference::Reference;
use super::team::Team;
use crate::error::Result;
use block::{Block, Buffers, Change};
use chain::MetropolisChain;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use steps::{SamplerSteps, sample_by_target};

/// Up to this many coordinates, a single block adapts to all correlations. With more, their estimates would need a
/// longer warm-up than usual, and a step would take longer than a likelihood of moderate size.
const MOST_CORRELATED: usize = 64;

/// The times at which L changes, as fractions of the warm-up. After the last change only the scale adapts.
const CHANGES: [f64; 6] = [0.1, 0.2, 0.35, 0.5, 0.65, 0.8];

/// All chains of a run by random-walk Metropolis, which advance together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Metropolis {
    chains: Vec<MetropolisChain>,
    reference: Reference,
}

impl Metropolis {
    /// Returns chains at the given starts; `typical` is the scale of a step along each coordinate.
    ///
    /// `parts` are the target's blocks of coordinates. With `by_component` each is a block. Otherwise, there is one
    /// block, which correlates all coordinates if there are at most [`MOST_CORRELATED`], and else those within each
    /// part.
    pub fn new(
        starts: Vec<ChainStart>,
        parts: &[Vec<usize>],
        by_component: bool,
        typical: &[f64],
        reference: Reference,
    ) -> Self {
        let blocks: Vec<Block> = if by_component {
            parts.iter().map(|p| Block::new(std::slice::from_ref(p), typical)).collect()
        } else if typical.len() <= MOST_CORRELATED {
            vec![Block::new(&[(0..typical.len()).collect()], typical)]
        } else {
            vec![Block::new(parts, typical)]
        };
        let chain = |ChainStart { point, log_density, rng }: ChainStart| MetropolisChain {
            point,
            log_density,
            rng,
            blocks: blocks.clone(),
        };
        Self { chains: starts.into_iter().map(chain).collect(), reference }
    }

    /// Makes iteration `iteration` of `warmup`, one step in each block. After an error the chains are unchanged.
    pub fn warm_up(&mut self, team: &mut Team<'_>, iteration: usize, warmup: usize) -> Result<()> {
        if self.reference.is_due(iteration, warmup) {
            let renewed = self.reference.renew(team.one(), self.chains.iter().map(|c| c.point.as_slice()))?;
            self.chains.iter_mut().zip(renewed).for_each(|(c, v)| c.log_density = v);
        }
        let before = self.positions();
        let (reference, blocks) = (&self.reference, self.chains[0].blocks.len());
        // The acceptance probabilities of each chain in each block.
        let stepped = team.divide(&mut self.chains, |_, chains, target| {
            let (mut steps, mut acceptance) = (SamplerSteps::default(), vec![0.0; chains.len() * blocks]);
            for block in 0..blocks {
                let of_block = steps.step(chains, block, reference, target)?;
                acceptance.iter_mut().skip(block).step_by(blocks).zip(of_block).for_each(|(to, a)| *to = *a);
            }
            Ok(acceptance)
        });
        let acceptance = match stepped {
            Ok(acceptance) => acceptance.concat(),
            Err(e) => {
                self.go_back(before);
                return Err(e);
            }
        };
        let is_at = |f: f64| (f * warmup as f64) as usize == iteration + 1;
        let change = CHANGES.iter().any(|&f| is_at(f)).then_some(Change { forget: is_at(CHANGES[0]) });
        let last = iteration + 1 == warmup;
        let adapted = team.divide(&mut self.chains, |first, chains, _| {
            let mut buffers = Buffers::default();
            for (chain, acceptance) in chains.iter_mut().zip(acceptance[first * blocks..].chunks_exact(blocks)) {
                for (block, acceptance) in chain.blocks.iter_mut().zip(acceptance) {
                    block.adapt(&chain.point, *acceptance, change, &mut buffers);
                    if last {
                        block.end_warm_up();
                    }
                }
            }
            Ok(())
        });
        adapted.map(drop)
    }

    /// Makes `draws` draws of each chain, one every `thin` iterations, in place of those in `draws`: one of each chain,
    /// then the next one of each. After an error the chains are unchanged.
    pub fn sample(
        &mut self,
        team: &mut Team<'_>,
        thin: usize,
        count: usize,
        draws: &mut Vec<PosteriorDraw>,
    ) -> Result<()> {
        let before = self.positions();
        draws.clear();
        match self.sample_by_chain(team, thin, count) {
            Ok(by_chain) => {
                let mut by_chain: Vec<_> = by_chain.into_iter().map(Vec::into_iter).collect();
                for _ in 0..count {
                    draws.extend(by_chain.iter_mut().filter_map(Iterator::next));
                }
                Ok(())
            }
            Err(e) => {
                self.go_back(before);
                Err(e)
            }
        }
    }

    /// Makes the next draws of each chain: without a reference by the target for the chains it accepts, and for the
    /// rest by the sampler.
    fn sample_by_chain(&mut self, team: &mut Team<'_>, thin: usize, draws: usize) -> Result<Vec<Vec<PosteriorDraw>>> {
        let steps_per_draw = self.steps_per_draw(thin);
        let mut by_chain = Vec::with_capacity(self.chains.len());
        let one_by_one = if self.reference.point().is_some() { &mut [] } else { &mut self.chains[..] };
        for (c, chain) in one_by_one.iter_mut().enumerate() {
            match sample_by_target(chain, c, steps_per_draw, draws, team.one())? {
                Some(draws) => by_chain.push(draws),
                None => break,
            }
        }
        let first = by_chain.len();
        let reference = &self.reference;
        let others = team.divide(&mut self.chains[first..], |behind, chains, target| {
            SamplerSteps::default().sample(chains, first + behind, thin, draws, reference, target)
        })?;
        by_chain.extend(others.into_iter().flatten());
        Ok(by_chain)
    }

    /// Returns the steps for each draw: one in each block for each of `thin` iterations.
    pub fn steps_per_draw(&self, thin: usize) -> usize {
        thin.saturating_mul(self.chains[0].blocks.len())
    }

    fn positions(&self) -> Vec<(Vec<f64>, f64, ChaCha8Rng)> {
        self.chains.iter().map(|c| (c.point.clone(), c.log_density, c.rng.clone())).collect()
    }

    fn go_back(&mut self, positions: Vec<(Vec<f64>, f64, ChaCha8Rng)>) {
        for (chain, (point, log_density, rng)) in self.chains.iter_mut().zip(positions) {
            (chain.point, chain.log_density, chain.rng) = (point, log_density, rng);
        }
    }

    /// Returns the scale of the proposals of a chain in each block.
    pub fn scales(&self, chain: usize) -> Vec<f64> {
        self.chains[chain].blocks.iter().map(Block::scale).collect()
    }

    /// Whether a state that was read from a file can continue in a target of `dim` coordinates.
    pub fn fits_together(&self, dim: usize) -> bool {
        let blocks = self.chains[0].blocks.len();
        blocks > 0
            && self.chains.iter().all(|c| c.blocks.len() == blocks && c.blocks.iter().all(|b| b.fits_together(dim)))
    }

    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Returns the chains' points, and the log densities there.
    pub fn points(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.chains.iter().map(|c| (c.point.as_slice(), c.log_density))
    }
}
