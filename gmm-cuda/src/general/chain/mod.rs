//! The E-step of a hidden Markov model of up to [`MAX_STATES`] states over resident samples: `density` once, then
//! `chain_products` and `chain_posteriors`, and `accumulate` with the posteriors as responsibilities.
mod chunks;
mod launches;
pub(super) mod memory;

use super::layout::GeneralLayout;
use super::results::{Piece, Shape};
use super::{General, Ready, posterior_blocks};
use crate::device::layout::stride;
use crate::device::memory::{Numbers, enlarge, sections, zeroed};
use crate::device::mismatch;
use crate::device::place::Element;
use crate::device::samples::{Chunk, DeviceSamples};
use crate::estep::reduce_slices::ReduceSlices;
use crate::likelihood::{ReduceSets, Totals};
use chunks::{Chunks, chunk_rows};
use gmm_core::contract::markov::{MarkovChain, MarkovSums};
use gmm_core::error::Result;
use gmm_core::precision::Precision;
use gmm_core::statistics::{CentredSums, Statistics};
use gmm_kernels::chain::{MAX_STATES, capacity, parameters, posteriors};
use gmm_kernels::entries;
use gmm_kernels::general::accumulate;
use launches::{ChainNumbers, Posteriors, Products};
use memory::Chains;
use ndarray::{Array1, Array2};
use std::f64::consts::LN_2;

/// The least probability of a transition that does not underflow together with one of [`gmm_kernels::chain::LEAST`].
const POSSIBLE: f64 = 1e-150;

/// The sums over all rows besides the moments.
struct Found {
    /// log p of each sequence (S,).
    log_likelihoods: Vec<f64>,
    start: Array1<f64>,
    transitions: Array2<f64>,
}

impl Chains {
    /// Replaces the exponents by the posteriors. Returns `None` if a probability was lost.
    fn run<T: Element>(
        &mut self,
        general: &General<T>,
        piece: Piece<'_, T>,
        chain: &MarkovChain<'_>,
        chunks: &Chunks,
    ) -> Result<Option<Found>> {
        let (stream, k, c) = (piece.stream, piece.layout.k, capacity(piece.layout.k));
        let [of_chain, weights] = sections([parameters(c), chunks.weights.len()]);
        let [all, divided, units] = sections([chunks.all.len(), chunks.divided.len(), chunks.units.len()]);
        let watched = chain.transitions.iter().any(|v| *v < POSSIBLE);
        self.numbers.send(stream)?.wait()?;
        self.chunks.send(stream)?.wait()?;
        let n = chunks.n_divided();
        if n > 0 {
            let launch = Products {
                chain: self.numbers_of(general, piece, watched, of_chain.clone())?,
                chunks: self.chunks.device().part(divided)?,
                n,
                matrices: Numbers::of(&self.matrices),
                powers: Numbers::of(&self.powers),
            };
            let kernel = piece.gpu.kernel(&entries::chain_products(k), None)?;
            stream.launch(kernel, launch.grid(), launch)?.wait()?;
            let (mut matrices, mut powers) = (vec![0.0; n * c * c], vec![0.0; n * c]);
            stream.read(&self.matrices, &mut matrices)?;
            stream.read(&self.powers, &mut powers)?;
            let mut all_kept = false;
            self.ends.fill(n * 2 * c, |ends| {
                ends.fill(0.0);
                all_kept = chunks.ends(&matrices, &powers, c, watched, ends);
            })?;
            if !all_kept {
                return Ok(None);
            }
            self.ends.send(stream)?.wait()?;
        }
        let (rows, n_units) = (piece.columns.n(), chunks.units.len() - 1);
        let launch = Posteriors {
            chain: self.numbers_of(general, piece, watched, of_chain)?,
            chunks: self.chunks.device().part(all)?,
            n_chunks: chunks.weights.len(),
            units: self.chunks.device().part(units)?,
            n: n_units,
            weights: self.numbers.device().part(weights)?,
            ends: self.ends.device(),
            n_divided: n,
            rows,
            alpha: Numbers::of(&self.alpha),
            scales: Numbers::of(&self.scales),
            log2: Numbers::of(&self.log2),
            sums: Numbers::of(&self.sums),
        };
        let kernel = piece.gpu.kernel(&entries::chain_posteriors(k), None)?;
        let running = stream.launch(kernel, launch.grid(), launch)?.borrowed();
        let (sums, totals) = (Numbers::of(&self.sums), Numbers::of(&self.totals));
        let launch = ReduceSlices { sums, slices: n_units, count: posteriors::sums(c), totals };
        let kernel = piece.gpu.kernel(&entries::reduce_slices(), None)?;
        running.followed_by(stream.launch(kernel, launch.grid(), launch)?.borrowed()).wait()?;
        let (mut log2, mut totals) = (vec![0.0; chunks.weights.len()], vec![0.0; posteriors::sums(c)]);
        stream.read(&self.log2, &mut log2)?;
        if log2.iter().any(|v| v.is_nan()) {
            return Ok(None);
        }
        stream.read(&self.totals, &mut totals)?;
        let transitions = Array2::from_shape_fn((k, k), |(i, j)| chain.transitions[[i, j]] * totals[j * c + i]);
        Ok(Some(Found {
            log_likelihoods: chunks.sequences.iter().map(|range| log2[range.clone()].iter().sum()).collect(),
            start: Array1::from_shape_fn(k, |i| totals[c * c + i]),
            transitions,
        }))
    }

    fn numbers_of<'a, T: Element>(
        &'a self,
        general: &'a General<T>,
        piece: Piece<'_, T>,
        watched: bool,
        parameters: std::ops::Range<usize>,
    ) -> Result<ChainNumbers<'a, T>> {
        let parameters = self.numbers.device().part(parameters)?;
        let (q, stride) = (Numbers::of(&general.q), piece.shape.piece);
        Ok(ChainNumbers { q, stride, k: piece.layout.k, watched, parameters })
    }
}

/// Checks that the parts fit together and the data.
fn check(chain: &MarkovChain<'_>, n: usize) -> Result<()> {
    let k = chain.emissions.n_components();
    let pairs = chain.transitions.shape();
    if chain.start.len() != k || pairs != [k, k] {
        return Err(mismatch("the probabilities of a chain's states", vec![k, k], vec![chain.start.len(), pairs[1]]));
    }
    let sum = chain.lengths.iter().fold(0_usize, |sum, length| sum.saturating_add(*length));
    if sum != n || chain.lengths.contains(&0) {
        return Err(mismatch("the lengths of a chain's sequences", vec![n], vec![sum]));
    }
    match chain.weights {
        Some(weights) if weights.len() != chain.lengths.len() => {
            let (expected, got) = (vec![chain.lengths.len()], vec![weights.len()]);
            Err(mismatch("the weights of a chain's sequences", expected, got))
        }
        _ => Ok(()),
    }
}

impl<T: Element> General<T> {
    /// See [`Markov::expectations`](gmm_core::contract::markov::Markov::expectations).
    pub fn expectations(&mut self, data: &mut DeviceSamples<T>, chain: &MarkovChain<'_>) -> Result<Option<MarkovSums>> {
        let (n, mixture) = (data.n(), chain.emissions);
        check(chain, n)?;
        let k = mixture.n_components();
        let can = k <= MAX_STATES && n <= u32::MAX as usize && data.is_resident() && !data.gaps();
        if !can || mixture.weights().iter().any(|w| *w <= 0.0) {
            return Ok(None);
        }
        let mut ready = Ready::new(mixture, data)?;
        ready.gpu.enter()?;
        let piece = stride(n);
        let bytes = k * piece * size_of::<T>() + n * (capacity(k) * size_of::<f64>() + size_of::<u32>());
        if self.q.len() < k * piece && bytes > ready.gpu.free_memory()? {
            return Ok(None);
        }
        let mut chains = match self.chains.take() {
            Some(chains) => chains,
            None => Chains::new()?,
        };
        let result = self.of_chain(&mut chains, data, &mut ready, chain);
        self.chains = Some(chains);
        result
    }

    fn of_chain(
        &mut self,
        chains: &mut Chains,
        data: &DeviceSamples<T>,
        ready: &mut Ready<'_, T>,
        chain: &MarkovChain<'_>,
    ) -> Result<Option<MarkovSums>> {
        let (n, mixture) = (data.n(), chain.emissions);
        let chunks = Chunks::new(chain, chunk_rows(n));
        // The weights of the mixture do not count.
        let weights = ready.parameters.weight.iter().zip(mixture.weights());
        let offsets: Vec<f64> = weights
            .map(|(w, of_mixture)| {
                let w: f64 = (*w).into();
                w.log2() - of_mixture.log2()
            })
            .collect();
        chains.prepare(chain, &chunks, &offsets)?;
        let shape = self.room(data, ready)?;
        let Chunk { pass, columns, started } = data.chunk(0)?;
        started.wait()?;
        let piece = Piece { gpu: ready.gpu, stream: &pass.stream, columns, layout: ready.layout, shape, done: 0 };
        self.density(piece)?.wait()?;
        let Some(mut found) = chains.run(self, piece, chain, &chunks)? else { return Ok(None) };
        for (log, length) in found.log_likelihoods.iter_mut().zip(chain.lengths) {
            *log = LN_2 * (*log + *length as f64 * ready.parameters.offset);
        }
        let weight = |s: usize| chain.weights.map_or(1.0, |weights| weights[s]);
        let weighted = |of: &dyn Fn(usize) -> f64| (0..chain.lengths.len()).map(|s| weight(s) * of(s)).sum::<f64>();
        let moments = |general: &Self, ready: &Ready<'_, T>| -> Result<CentredSums> {
            let mut sums = general.moments(data, ready, piece)?;
            sums.weight = weighted(&|s| chain.lengths[s] as f64);
            sums.log_likelihood = weighted(&|s| found.log_likelihoods[s]);
            Ok(sums)
        };
        let mut sums = moments(self, ready)?;
        if T::PRECISION == Precision::Float64 && sums.cancel(mixture) {
            let frame = data.frame();
            let centre = |((_, j), mean): ((usize, usize), &f64)| T::from_f64(frame.apply(j, *mean));
            ready.centres = sums.new_centres().indexed_iter().map(centre).collect();
            self.write(data, ready)?;
            sums = moments(self, ready)?;
        }
        let statistics = Statistics::from_centred_sums(sums)?;
        let Found { log_likelihoods, start, transitions } = found;
        Ok(Some(MarkovSums { log_likelihoods, start, transitions, statistics }))
    }

    /// Allocates the memory for all samples as one piece, and sends the parameters.
    fn room(&mut self, data: &DeviceSamples<T>, ready: &Ready<'_, T>) -> Result<Shape> {
        let GeneralLayout { k, d, full, .. } = ready.layout;
        let (piece, limits) = (stride(data.n()), &data.gpu().limits);
        let slices = super::launches::accumulate_slices::<T>(&ready.layout, limits, piece.div_ceil(super::MIN_SLICE));
        let values = accumulate::values(k, d, full);
        enlarge(&mut self.partials, values * slices)?;
        enlarge(&mut self.sums, values)?;
        if self.q.len() < k * piece {
            self.q = zeroed(k * piece)?;
        }
        self.write(data, ready)?;
        Ok(Shape { piece, posterior_blocks: posterior_blocks(piece, k, limits.multiprocessors), slices })
    }

    /// Returns the moments with the posteriors in the place of responsibilities.
    fn moments(&self, data: &DeviceSamples<T>, ready: &Ready<'_, T>, piece: Piece<'_, T>) -> Result<CentredSums> {
        let GeneralLayout { k, d, full, .. } = ready.layout;
        let count = accumulate::values(k, d, full);
        let running = self.accumulate(piece)?;
        let totals = Totals::Device(Numbers::of(&self.sums));
        let launch = ReduceSets { partials: Numbers::of(&self.partials), count: piece.shape.slices, totals };
        let kernel = piece.gpu.kernel(&entries::reduce_sets(), None)?;
        running.followed_by(piece.stream.launch(kernel, launch.grid(count), launch)?.borrowed()).wait()?;
        let mut values = vec![0.0; count];
        piece.stream.read(&self.sums, &mut values)?;
        Ok(ready.layout.centred_sums(&values, 1.0, ready.mixture, &ready.centres, data.frame()))
    }
}
