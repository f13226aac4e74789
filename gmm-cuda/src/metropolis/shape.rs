//! The shape of a launch of `metropolis`.
use crate::device::gpu::Limits;
use gmm_core::contract::metropolis::MetropolisTarget;
use gmm_kernels::data::QUAD;
use gmm_kernels::metropolis::{self, MIN_BLOCK};
use gmm_kernels::simt::WARP;
use std::fmt;
use std::str::FromStr;

/// Most threads of a block, with which each has the registers that the kernel needs.
const MAX_BLOCK: u32 = 512;
/// The share of the L2 cache for samples.
const CACHED: f64 = 0.6;
pub const NAME: &str = "metropolis";

/// The shape of a launch. The bits of a log density depend only on blocks and threads.
///
/// Its text form is `metropolis:BLOCKxBLOCKS/RESIDENT:CACHED`, for example `metropolis:512x132/1:28`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub block: u32,
    /// Blocks, one on each multiprocessor.
    pub blocks: u32,
    /// Rounds of a block's samples that stay in shared memory, which has one more place for the others to pass.
    pub resident: u32,
    /// Megabytes (10⁶) of the other samples to keep in the L2 cache.
    pub cached: u32,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME}:{}x{}/{}:{}", self.block, self.blocks, self.resident, self.cached)
    }
}

impl FromStr for Shape {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let rest = text.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':')).ok_or(())?;
        let (launch, cached) = rest.split_once(':').ok_or(())?;
        let (grid, resident) = launch.split_once('/').ok_or(())?;
        let (block, blocks) = grid.split_once('x').ok_or(())?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        let shape = Self {
            block: number(block)?,
            blocks: number(blocks)?,
            resident: number(resident)?,
            cached: number(cached)?,
        };
        let threads = (MIN_BLOCK..=MAX_BLOCK).contains(&shape.block) && shape.block.is_multiple_of(WARP);
        if threads && shape.blocks > 0 && shape.resident < 1 << 16 { Ok(shape) } else { Err(()) }
    }
}

impl Shape {
    /// Returns a block for each multiprocessor, or each 128 quads if fewer, and as many resident rounds as fit.
    pub fn new(n: usize, target: &MetropolisTarget, limits: &Limits) -> Self {
        let d = target.n_features;
        let quads = n.div_ceil(QUAD) as u32;
        let blocks = quads.div_ceil(MIN_BLOCK).min(limits.multiprocessors);
        let share = quads.div_ceil(blocks);
        let fit = |block: u32| {
            let fits =
                |rounds: &u32| metropolis::shared_bytes(d, target.dim(), block, *rounds) <= limits.shared_per_block;
            (1..=share.div_ceil(block)).take_while(fits).last()
        };
        let mut block = share.next_multiple_of(WARP).clamp(MIN_BLOCK, MAX_BLOCK);
        while block > MIN_BLOCK && fit(block).is_none() {
            block -= WARP;
        }
        let resident = fit(block).unwrap_or(1) - 1;
        Self { block, blocks, resident, cached: (CACHED * limits.l2 as f64 / 1e6) as u32 }
    }

    pub fn shared_bytes(&self, target: &MetropolisTarget) -> usize {
        metropolis::shared_bytes(target.n_features, target.dim(), self.block, self.resident + 1)
    }

    /// Returns the quads of a block in shared memory or the L2 cache; the rest are read from memory in each step.
    pub fn cached_quads(&self, d: usize) -> u32 {
        let cached = self.cached as usize * 1_000_000 / (d * QUAD * size_of::<f32>()) / self.blocks as usize;
        (self.resident as usize * self.block as usize + cached).min(u32::MAX as usize) as u32
    }

    /// Returns the limit of registers with which a block fits a multiprocessor.
    pub fn max_registers(&self) -> Option<u32> {
        let registers = (1 << 16) / self.block / 8 * 8;
        (registers < 255).then_some(registers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::tests::H200;
    use gmm_core::contract::metropolis::MetropolisPrior;

    fn target(k: usize, d: usize) -> MetropolisTarget {
        let prior = MetropolisPrior {
            concentration: vec![1.0; k],
            location: vec![0.0; k * d],
            precision: vec![1.0; k * d],
            scaled_precision: vec![0.0; k * d],
            by_log_scale: vec![1.0; k * d],
            by_variance: vec![1.0; k * d],
            by_precision: vec![0.0; k * d],
            constant: 0.0,
        };
        MetropolisTarget { n_components: k, n_features: d, spherical: false, prior }
    }

    #[test]
    fn a_shape_survives_its_text() {
        for text in ["metropolis:512x132/1:28", "metropolis:128x1/0:0"] {
            assert_eq!(text.parse::<Shape>().unwrap().to_string(), text);
        }
        for text in [
            "metropolis",
            "metropolis:",
            "metropolis:64x1/0:0",
            "metropolis:130x1/0:0",
            "metropolis:1024x1/0:0",
            "metropolis:128x0/0:0",
            "metropolis:128x1:0",
        ] {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_shape_uses_the_device_and_stays_within_it() {
        let small = Limits { shared_per_block: 99 << 10, multiprocessors: 20, ..H200 };
        for limits in [H200, small] {
            for n in [1, 100, 10_000, 70_000, 500_000, 1_000_000, 100_000_000] {
                for (k, d) in [(1, 1), (3, 2), (8, 13), (8, 16)] {
                    let target = target(k, d);
                    let shape = Shape::new(n, &target, &limits);
                    assert!(shape.blocks <= limits.multiprocessors && shape.block <= MAX_BLOCK, "{shape}");
                    assert!(shape.shared_bytes(&target) <= limits.shared_per_block, "{shape}");
                    assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
                }
            }
        }
        let shape = |n| Shape::new(n, &target(8, 13), &H200).to_string();
        assert_eq!(shape(100), "metropolis:128x1/0:37");
        assert_eq!(shape(10_000), "metropolis:128x20/0:37");
        // 2 · 512 of a block's 1894 quads are in shared memory, half of them permanently.
        assert_eq!(shape(1_000_000), "metropolis:512x132/1:37");
    }
}
