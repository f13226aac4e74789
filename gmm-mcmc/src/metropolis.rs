//! Random-walk Metropolis, adapted during warm-up, in one block or component by component.
//!
//! The proposal of a block is x + s L z with z standard normal. During warm-up L Lᵀ follows the covariance of the
//! chain (Haario, Saksman and Tamminen 2001), and the scale s is steered towards an
//! acceptance of 0.234 + 0.206/d, which is 0.44 for d = 1 (Roberts and Rosenthal 2001; Andrieu and Thoms 2008). After
//! warm-up neither changes, so that the chain is Markov.
use crate::linalg::{Welford, cholesky, lower_times, pack, unpack};
use crate::posterior::PARALLEL;
use crate::sampler::{Draw, Starts};
use crate::target::Target;
use crate::walk::Walk;
use crate::{Result, rng};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Up to so many coordinates one-block sampling adapts to all correlations. Beyond, an estimate of them all would need a
/// warm-up longer than most, and a step more time than a likelihood of moderate size.
const DENSE: usize = 64;

/// When L changes, as fractions of the warm-up; after the last only the scale adapts.
const CHANGES: [f64; 6] = [0.1, 0.2, 0.35, 0.5, 0.65, 0.8];

/// One chain of a [`Walk`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WalkChain {
    /// Where the chain is (dim,).
    pub point: Vec<f64>,
    /// The log density there.
    pub log_density: f64,
    /// The chain's own generator.
    #[serde(with = "rng")]
    pub rng: ChaCha8Rng,
    blocks: Vec<Block>,
}

impl WalkChain {
    /// Number of blocks: steps of a sweep over all coordinates.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The next step in a block: the increments of the coordinates, 0 outside of the block. They do not depend on where
    /// the chain is.
    pub fn increments(&mut self, block: usize, increments: &mut [f64], buffers: &mut Buffers) {
        let block = &self.blocks[block];
        let scale = block.log_scale.exp();
        increments.fill(0.0);
        for part in &block.parts {
            let n = part.indices.len();
            buffers.z.clear();
            buffers.z.extend((0..n).map(|_| scale * Distribution::<f64>::sample(&StandardNormal, &mut self.rng)));
            buffers.step.resize(n, 0.0);
            lower_times(&part.factor, &buffers.z, &mut buffers.step);
            for (&i, step) in part.indices.iter().zip(&buffers.step) {
                increments[i] = *step;
            }
        }
    }

    /// The logarithm of a uniform number: one a step, accepted or not.
    pub fn log_uniform(&mut self) -> f64 {
        self.rng.random::<f64>().ln()
    }

    /// Accepts or rejects the proposal with these increments; returns the probability of acceptance.
    pub fn decide(&mut self, increments: &[f64], log_u: f64, log_density: f64) -> f64 {
        let log_ratio = log_density - self.log_density;
        // Strictly below, so that what is impossible is never accepted.
        if log_u < log_ratio {
            self.point.iter_mut().zip(increments).for_each(|(x, z)| *x += z);
            self.log_density = log_density;
        }
        log_ratio.min(0.0).exp()
    }

    /// Where the chain is as draw of chain `c`, with the mean acceptance probability since the last.
    pub fn draw(&self, c: usize, acceptance: f64) -> Draw {
        Draw { chain: c, point: self.point.clone(), statistics: vec![self.log_density, acceptance] }
    }
}

/// Coordinates whose steps are correlated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    /// Which coordinates.
    indices: Vec<usize>,
    /// The lower triangle L, row by row (i + 1 numbers in row i).
    factor: Vec<f64>,
}

/// Coordinates that are proposed together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Block {
    /// log s.
    log_scale: f64,
    parts: Vec<Part>,
    /// Only during warm-up.
    adaptation: Option<Adaptation>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Adaptation {
    /// Of each part.
    covariances: Vec<Welford>,
    /// Variances below which a covariance is not taken seriously, of each part.
    floors: Vec<Vec<f64>>,
    /// Steps since the last change of L.
    steps: u64,
}

/// log of 2.38/√d, the best scale for a normal target whose covariance is known (Roberts and Rosenthal 2001).
fn best_log_scale(d: usize) -> f64 {
    (2.38 / (d as f64).sqrt()).ln()
}

impl Block {
    /// A block of which the coordinates within each part are correlated.
    fn new(parts: &[Vec<usize>], typical: &[f64]) -> Self {
        let sd = |part: &[usize]| -> Vec<f64> { part.iter().map(|&i| typical[i]).collect() };
        let factor = |sd: Vec<f64>| (0..sd.len()).flat_map(|i| std::iter::repeat_n(0.0, i).chain([sd[i]])).collect();
        let adaptation = Adaptation {
            covariances: parts.iter().map(|p| Welford::new(p.len())).collect(),
            floors: parts.iter().map(|p| sd(p).into_iter().map(|s| 1e-4 * s * s).collect()).collect(),
            steps: 0,
        };
        let dim = parts.iter().map(Vec::len).sum();
        let parts = parts.iter().map(|p| Part { indices: p.clone(), factor: factor(sd(p)) }).collect();
        Self { log_scale: best_log_scale(dim), parts, adaptation: Some(adaptation) }
    }

    fn dim(&self) -> usize {
        self.parts.iter().map(|p| p.indices.len()).sum()
    }

    /// After a step of warm-up with this acceptance probability. `change`: L changes now, and (if true) what was seen so
    /// far, on the way to the bulk of the distribution, is forgotten after.
    fn adapt(&mut self, point: &[f64], acceptance: f64, change: Option<bool>, buffer: &mut Vec<f64>) {
        let dim = self.dim();
        let Some(a) = &mut self.adaptation else { return };
        a.steps += 1;
        let goal = 0.234 + 0.206 / dim as f64;
        self.log_scale += (4.0 * (a.steps as f64).powf(-0.7)).min(1.0) * (acceptance - goal);
        for (part, covariance) in self.parts.iter().zip(&mut a.covariances) {
            covariance.add(part.indices.iter().map(|&i| point[i]), buffer);
        }
        let Some(forget) = change else { return };
        for ((part, covariance), floor) in self.parts.iter_mut().zip(&mut a.covariances).zip(&a.floors) {
            let n = part.indices.len();
            // A walk of so many steps is worth about 1/(4 dim) as many independent points; where these are few for the
            // number of coordinates, the correlations are shrunk.
            let worth = covariance.count as f64 / (4 * dim) as f64;
            let keep = worth / (worth + n as f64);
            let factor = covariance.covariance().and_then(|packed| {
                let mut full = unpack(&packed, n);
                for i in 0..n {
                    full[i * n..i * n + i].iter_mut().for_each(|c| *c *= keep);
                    full[i * n + i] = full[i * n + i].max(floor[i]);
                }
                cholesky(full, n)
            });
            if let Some(factor) = factor {
                part.factor = pack(&factor, n);
            }
            if forget {
                *covariance = Welford::new(n);
            }
        }
        self.log_scale = best_log_scale(dim);
        a.steps = 0;
    }
}

/// Memory of the steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scratch {
    /// C × dim.
    increments: Vec<f64>,
    /// C × dim.
    proposals: Vec<f64>,
    /// (C,)
    log_densities: Vec<f64>,
    /// Acceptance probability of the last step (C,).
    acceptance: Vec<f64>,
    /// Their sum since the last draw (C,).
    pub accepted: Vec<f64>,
    buffers: Buffers,
}

/// Memory of one proposal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Buffers {
    z: Vec<f64>,
    step: Vec<f64>,
}

impl Scratch {
    fn new(chains: usize, dim: usize) -> Self {
        Self {
            increments: vec![0.0; chains * dim],
            proposals: vec![0.0; chains * dim],
            log_densities: vec![0.0; chains],
            acceptance: vec![0.0; chains],
            accepted: vec![0.0; chains],
            ..Self::default()
        }
    }

    /// One Metropolis step of all chains in one block.
    pub fn step<T: Target + ?Sized>(&mut self, chains: &mut [WalkChain], block: usize, target: &mut T) -> Result<()> {
        let dim = target.dim();
        let propose = |buffers: &mut Buffers, chain: &mut WalkChain, increments: &mut [f64], proposal: &mut [f64]| {
            chain.increments(block, increments, buffers);
            for ((p, x), z) in proposal.iter_mut().zip(&chain.point).zip(increments.iter()) {
                *p = x + z;
            }
        };
        if chains.len() * dim < PARALLEL {
            let places = self.increments.chunks_exact_mut(dim).zip(self.proposals.chunks_exact_mut(dim));
            for (chain, (increments, proposal)) in chains.iter_mut().zip(places) {
                propose(&mut self.buffers, chain, increments, proposal);
            }
        } else {
            // Each chain has its own numbers, so that threads change nothing.
            let places = self.increments.par_chunks_exact_mut(dim).zip(self.proposals.par_chunks_exact_mut(dim));
            chains.par_iter_mut().zip(places).for_each_init(Buffers::default, |buffers, (chain, place)| {
                propose(buffers, chain, place.0, place.1);
            });
        }
        target.walk_densities(&self.proposals, &mut self.log_densities)?;
        for (c, (chain, increments)) in chains.iter_mut().zip(self.increments.chunks_exact(dim)).enumerate() {
            let log_u = chain.log_uniform();
            self.acceptance[c] = chain.decide(increments, log_u, self.log_densities[c]);
        }
        Ok(())
    }

    pub fn sum_acceptance(&mut self) {
        self.accepted.iter_mut().zip(&self.acceptance).for_each(|(sum, a)| *sum += a);
    }
}

/// Metropolis chains that advance together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Metropolis {
    chains: Vec<WalkChain>,
    #[serde(skip)]
    scratch: Scratch,
}

impl Metropolis {
    /// Chains at the given points, with their generators; `typical` is the scale of a step along each coordinate.
    ///
    /// `parts` are the target's blocks: each a block of its own `by_component`; else one block, whose covariance is dense
    /// up to [`DENSE`] coordinates and beyond that within each part.
    pub fn new(starts: Starts, parts: &[Vec<usize>], by_component: bool, typical: &[f64]) -> Self {
        let blocks = if by_component {
            parts.iter().map(|p| Block::new(std::slice::from_ref(p), typical)).collect()
        } else if typical.len() <= DENSE {
            vec![Block::new(&[(0..typical.len()).collect()], typical)]
        } else {
            vec![Block::new(parts, typical)]
        };
        let chain = |(point, log_density, rng)| WalkChain { point, log_density, rng, blocks: blocks.clone() };
        Self { chains: starts.into_iter().map(chain).collect(), scratch: Scratch::default() }
    }

    fn prepare(&mut self) {
        let (chains, dim) = (self.chains.len(), self.chains[0].point.len());
        if self.scratch.proposals.len() != chains * dim {
            self.scratch = Scratch::new(chains, dim);
        }
    }

    /// Iteration `iteration` of `warmup`: a step in every block. On an error the chains are where they were.
    pub fn warm_up(&mut self, target: &mut dyn Target, iteration: usize, warmup: usize) -> Result<()> {
        self.prepare();
        let before = self.position();
        let blocks = self.chains[0].blocks.len();
        let mut acceptance = Vec::with_capacity(blocks * self.chains.len());
        for block in 0..blocks {
            if let Err(e) = self.scratch.step(&mut self.chains, block, target) {
                self.go_back(before);
                return Err(e);
            }
            acceptance.extend_from_slice(&self.scratch.acceptance);
        }
        let is_at = |f: f64| (f * warmup as f64) as usize == iteration + 1;
        let change = CHANGES.iter().any(|&f| is_at(f)).then_some(is_at(CHANGES[0]));
        let last = iteration + 1 == warmup;
        let n = self.chains.len();
        for (c, chain) in self.chains.iter_mut().enumerate() {
            for (b, block) in chain.blocks.iter_mut().enumerate() {
                block.adapt(&chain.point, acceptance[b * n + c], change, &mut self.scratch.buffers.z);
                if last {
                    block.adaptation = None;
                }
            }
        }
        Ok(())
    }

    /// `draws` draws of each chain, every `thin`th. On an error nothing is kept and the chains are where they were.
    pub fn sample(&mut self, target: &mut dyn Target, thin: usize, draws: usize, kept: &mut Vec<Draw>) -> Result<()> {
        self.prepare();
        let (before, length) = (self.position(), kept.len());
        let result = target.metropolis(&mut Walk::new(&mut self.chains, thin, draws, &mut self.scratch, kept));
        if result.is_err() {
            kept.truncate(length);
            self.go_back(before);
        }
        result
    }

    /// Steps for each draw.
    pub fn steps_per_draw(&self, thin: usize) -> usize {
        thin * self.chains[0].blocks()
    }

    fn position(&self) -> Vec<(Vec<f64>, f64, ChaCha8Rng)> {
        self.chains.iter().map(|c| (c.point.clone(), c.log_density, c.rng.clone())).collect()
    }

    fn go_back(&mut self, position: Vec<(Vec<f64>, f64, ChaCha8Rng)>) {
        for (chain, (point, log_density, rng)) in self.chains.iter_mut().zip(position) {
            (chain.point, chain.log_density, chain.rng) = (point, log_density, rng);
        }
    }

    /// The scale of the proposals of a chain, one for each block.
    pub fn scales(&self, chain: usize) -> Vec<f64> {
        self.chains[chain].blocks.iter().map(|b| b.log_scale.exp()).collect()
    }

    /// Where the chains are, and the log densities there.
    pub fn positions(&self) -> impl Iterator<Item = (&[f64], f64)> {
        self.chains.iter().map(|c| (c.point.as_slice(), c.log_density))
    }
}
