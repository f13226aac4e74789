//! Targets that evaluate the chains of a run in parallel.
use crate::error::Result;
use crate::target::Target;
use rayon::prelude::*;

/// The least number of chains for a share of the target: with fewer, a GPU takes longer for each. 64 chains by 3, 4 and
/// 5 shares took 7.9, 6.3 and 7.6 µs an evaluation (N = 10⁶, D = 13, K = 8, H200, 2026-11-24).
const CHAINS_OF_A_SHARE: usize = 16;

/// The evaluators of a sampler: the target, or several shares of it, each for some of the chains.
pub(crate) enum Team<'t> {
    One(&'t mut dyn Target),
    Shares(Vec<Box<dyn Target + Send + 't>>),
}

impl<'t> Team<'t> {
    /// Returns a team for `chains` chains, which are all evaluated together.
    pub fn new(target: &'t mut dyn Target, chains: usize) -> Result<Self> {
        let count = target.useful_shares().min(chains / CHAINS_OF_A_SHARE);
        if count < 2 {
            return Ok(Self::One(target));
        }
        Ok(Self::Shares((0..count).map(|_| target.share()).collect::<Result<_>>()?))
    }

    /// Returns one of the evaluators, for undivided work.
    pub fn one(&mut self) -> &mut dyn Target {
        match self {
            Self::One(target) => *target,
            Self::Shares(shares) => shares[0].as_mut(),
        }
    }

    /// Divides chains between the evaluators. `work` gets the index of its first chain, its chains, and their
    /// evaluator. Returns the results of `work` in the order of the chains.
    pub fn divide<C: Send, R: Send>(
        &mut self,
        chains: &mut [C],
        work: impl Fn(usize, &mut [C], &mut dyn Target) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        match self {
            Self::One(target) => Ok(vec![work(0, chains, *target)?]),
            Self::Shares(shares) => {
                let size = chains.len().div_ceil(shares.len()).max(1);
                let parts = chains.par_chunks_mut(size).zip(shares.par_iter_mut()).with_max_len(1).enumerate();
                parts.map(|(i, (chains, share))| work(i * size, chains, share.as_mut())).collect()
            }
        }
    }
}
