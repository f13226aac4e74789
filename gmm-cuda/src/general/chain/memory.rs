//! The memory of the chain's kernels.
use super::chunks::Chunks;
use crate::device::memory::{allocate, enlarge, sections};
use crate::device::workspace::Upload;
use gmm_core::contract::markov::MarkovChain;
use gmm_core::error::Result;
use gmm_driver::DeviceBuffer;
use gmm_kernels::chain::{capacity, parameters, posteriors};

/// Parameters, chunks, and the kernels' results.
#[derive(Debug)]
pub struct Chains {
    /// The parameters, and the weights of chunks.
    pub numbers: Upload<f64>,
    /// The chunks, the divided ones, and the units.
    pub chunks: Upload<u32>,
    pub ends: Upload<f64>,
    pub matrices: DeviceBuffer<f64>,
    pub powers: DeviceBuffer<f64>,
    pub alpha: DeviceBuffer<f64>,
    pub scales: DeviceBuffer<u32>,
    pub log2: DeviceBuffer<f64>,
    pub sums: DeviceBuffer<f64>,
    pub totals: DeviceBuffer<f64>,
}

impl Chains {
    pub fn new() -> Result<Self> {
        Ok(Self {
            numbers: Upload::new()?,
            chunks: Upload::new()?,
            ends: Upload::new()?,
            matrices: allocate(1)?,
            powers: allocate(1)?,
            alpha: allocate(1)?,
            scales: allocate(1)?,
            log2: allocate(1)?,
            sums: allocate(1)?,
            totals: allocate(1)?,
        })
    }

    /// Makes room for the chain, and writes its parameters. `offsets`: log₂ of the factors of the densities (K,).
    pub fn prepare(&mut self, chain: &MarkovChain<'_>, chunks: &Chunks, offsets: &[f64]) -> Result<()> {
        let (k, n) = (offsets.len(), chain.lengths.iter().sum::<usize>());
        let c = capacity(k);
        let divided = chunks.n_divided();
        let [of_chain, weights] = sections([parameters(c), chunks.weights.len()]);
        self.numbers.fill(weights.end, |to| {
            to[of_chain.clone()].fill(0.0);
            to[..k].copy_from_slice(offsets);
            to[c..].iter_mut().zip(chain.start).for_each(|(to, v)| *to = *v);
            for ((i, j), v) in chain.transitions.indexed_iter() {
                to[2 * c + i * c + j] = *v;
                to[2 * c + c * c + j * c + i] = *v;
            }
            to[weights].copy_from_slice(&chunks.weights);
        })?;
        let [all, of_divided, units] = sections([chunks.all.len(), chunks.divided.len(), chunks.units.len()]);
        self.chunks.fill(units.end, |to| {
            to[all].copy_from_slice(&chunks.all);
            to[of_divided].copy_from_slice(&chunks.divided);
            to[units].copy_from_slice(&chunks.units);
        })?;
        enlarge(&mut self.matrices, divided * c * c)?;
        enlarge(&mut self.powers, divided * c)?;
        enlarge(&mut self.alpha, n * c)?;
        enlarge(&mut self.scales, n)?;
        enlarge(&mut self.log2, chunks.weights.len())?;
        enlarge(&mut self.sums, (chunks.units.len() - 1) * posteriors::sums(c))?;
        enlarge(&mut self.totals, posteriors::sums(c))
    }
}
