//! The memory of the chain's kernels.
use super::chunks::Chunks;
use super::launches::warps;
use crate::device::memory::{allocate, enlarge, sections};
use crate::device::stream::Stream;
use crate::device::workspace::Upload;
use gmm_core::contract::markov::MarkovChain;
use gmm_core::error::Result;
use gmm_driver::DeviceBuffer;
use gmm_kernels::chain::{capacity, parameters, posteriors};
use ndarray::Array2;

/// Parameters, chunks, and the kernels' results.
#[derive(Debug)]
pub struct Chains {
    pub chunks: Chunks,
    /// The numbers of values in each column of each sequence (S, D), if values are missing.
    pub observed: Option<Array2<f64>>,
    /// Those of the chain, and the offsets of components.
    pub parameters: Upload<f64>,
    /// The weights of chunks.
    pub weights: Upload<f64>,
    /// The chunks, and the units.
    pub numbers: Upload<u32>,
    pub ends: DeviceBuffer<f64>,
    pub alpha: DeviceBuffer<f64>,
    pub scales: DeviceBuffer<u32>,
    pub log2: DeviceBuffer<f64>,
    pub sums: DeviceBuffer<f64>,
    pub totals: DeviceBuffer<f64>,
}

impl Chains {
    pub fn new() -> Result<Self> {
        Ok(Self {
            chunks: Chunks::default(),
            observed: None,
            parameters: Upload::new()?,
            weights: Upload::new()?,
            numbers: Upload::new()?,
            ends: allocate(1)?,
            alpha: allocate(1)?,
            scales: allocate(1)?,
            log2: allocate(1)?,
            sums: allocate(1)?,
            totals: allocate(1)?,
        })
    }

    /// Makes room for the chain, sends its chunks if they are not there, and writes its parameters. `offsets`: log₂ of
    /// the factors of the densities (K·M,).
    pub fn prepare(&mut self, stream: &Stream, chain: &MarkovChain<'_>, offsets: &[f64]) -> Result<()> {
        let (k, c) = (chain.start.len(), capacity(chain.start.len()));
        if !self.chunks.are_of(chain, c) {
            self.chunks = Chunks::default();
            self.observed = None;
            let (chunks, n) = (Chunks::new(chain, c), chain.lengths.iter().sum::<usize>());
            let (n_chunks, n_units) = (chunks.weights.len(), chunks.units.len() - 1);
            enlarge(&mut self.ends, n_chunks * 2 * c)?;
            enlarge(&mut self.alpha, n * c)?;
            enlarge(&mut self.scales, n)?;
            enlarge(&mut self.log2, n_chunks)?;
            enlarge(&mut self.sums, warps(n_units, c) * posteriors::sums(c))?;
            enlarge(&mut self.totals, posteriors::sums(c))?;
            self.weights.fill(n_chunks, |to| to.copy_from_slice(&chunks.weights))?;
            let [all, units] = sections([chunks.all.len(), chunks.units.len()]);
            self.numbers.fill(units.end, |to| {
                to[all].copy_from_slice(&chunks.all);
                to[units].copy_from_slice(&chunks.units);
            })?;
            self.weights.send(stream)?.followed_by(self.numbers.send(stream)?).wait()?;
            self.chunks = chunks;
        }
        let [of_chain, of_components] = sections([parameters(c), offsets.len()]);
        self.parameters.fill(of_components.end, |to| {
            to[of_components].copy_from_slice(offsets);
            let to = &mut to[of_chain];
            to.fill(0.0);
            // `chain_states` adds those of mixtures.
            if offsets.len() == k {
                to[..k].copy_from_slice(offsets);
            }
            to[c..].iter_mut().zip(chain.start).for_each(|(to, v)| *to = *v);
            for ((i, j), v) in chain.transitions.indexed_iter() {
                to[2 * c + i * c + j] = *v;
                to[2 * c + c * c + j * c + i] = *v;
            }
        })
    }
}
