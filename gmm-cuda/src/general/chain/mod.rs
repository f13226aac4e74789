//! The E-step of a hidden Markov model of up to [`MAX_STATES`] states over resident samples: `density`,
//! `chain_ends`, `chain_posteriors`, and `accumulate` with the posteriors as responsibilities. Where states emit from
//! mixtures, `chain_states` follows `density`, and `chain_components` follows `chain_posteriors`.
mod chunks;
mod launches;
pub(super) mod memory;

use super::layout::GeneralLayout;
use super::results::{Piece, Shape};
use super::{General, Ready, posterior_blocks};
use crate::device::layout::stride;
use crate::device::memory::{Numbers, enlarge, enlarge_with_zeros, sections};
use crate::device::mismatch;
use crate::device::place::Element;
use crate::device::samples::{Chunk, DeviceSamples};
use crate::device::stream::{Running, Stream};
use crate::estep::reduce_slices::ReduceSlices;
use crate::likelihood::{ReduceSets, Totals};
use crate::missing::observed;
use crate::source::Source;
use gmm_core::contract::markov::{MarkovChain, MarkovSums};
use gmm_core::error::Result;
use gmm_core::precision::Precision;
use gmm_core::statistics::{CentredSums, Statistics};
use gmm_kernels::chain::{MAX_STATES, capacity, parameters, posteriors};
use gmm_kernels::entries;
use gmm_kernels::general::accumulate;
use launches::{ChainNumbers, Ends, Mixed, Posteriors, warps};
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
    /// Starts the launches that replace the exponents by the posteriors.
    fn start<'a, T: Element>(
        &'a self,
        general: &'a General<T>,
        piece: Piece<'a, T>,
        chain: &MarkovChain<'_>,
    ) -> Result<Running<'a, ()>> {
        let (stream, k, c) = (piece.stream, chain.start.len(), capacity(chain.start.len()));
        let [of_chain, offsets] = sections([parameters(c), piece.layout.k]);
        let of_states = Mixed {
            q: Numbers::of(&general.q),
            stride: piece.shape.piece,
            rows: piece.columns.n(),
            n_states: k,
            n_mix: piece.layout.k / k,
            offsets: self.parameters.device().part(offsets)?,
            states: Numbers::of(&general.states),
        };
        let is_mixed = of_states.n_mix > 1;
        let [all, units] = sections([self.chunks.all.len(), self.chunks.units.len()]);
        let (n, numbers) = (units.len() - 1, self.numbers.device());
        let chain = ChainNumbers {
            q: if is_mixed { of_states.states } else { of_states.q },
            stride: of_states.stride,
            k,
            watched: chain.transitions.iter().any(|v| *v < POSSIBLE),
            parameters: self.parameters.device().part(of_chain)?,
            chunks: numbers.part(all)?,
            n_chunks: self.chunks.weights.len(),
            ends: Numbers::of(&self.ends),
        };
        let mut running = self.parameters.send(stream)?;
        if is_mixed {
            let kernel = piece.gpu.kernel(&entries::chain_states(), None)?;
            running = running.followed_by(stream.launch(kernel, of_states.grid(), of_states)?.borrowed());
        }
        if self.chunks.have_ends() {
            let launch = Ends(chain);
            let kernel = piece.gpu.kernel(&entries::chain_ends(k), None)?;
            running = running.followed_by(stream.launch(kernel, launch.grid(), launch)?.borrowed());
        }
        let launch = Posteriors {
            chain,
            units: numbers.part(units)?,
            n,
            weights: self.weights.device(),
            rows: piece.columns.n(),
            alpha: Numbers::of(&self.alpha),
            scales: Numbers::of(&self.scales),
            log2: Numbers::of(&self.log2),
            sums: Numbers::of(&self.sums),
        };
        let kernel = piece.gpu.kernel(&entries::chain_posteriors(k), None)?;
        running = running.followed_by(stream.launch(kernel, launch.grid(), launch)?.borrowed());
        if is_mixed {
            let kernel = piece.gpu.kernel(&entries::chain_components(), None)?;
            running = running.followed_by(stream.launch(kernel, of_states.grid(), of_states)?.borrowed());
        }
        let (sums, totals) = (Numbers::of(&self.sums), Numbers::of(&self.totals));
        let launch = ReduceSlices { sums, slices: warps(n, c), count: posteriors::sums(c), totals };
        let kernel = piece.gpu.kernel(&entries::reduce_slices(), None)?;
        Ok(running.followed_by(stream.launch(kernel, launch.grid(), launch)?.borrowed()))
    }

    /// Returns the results of the launches; `None` if a probability was lost.
    fn found(&self, stream: &Stream, chain: &MarkovChain<'_>) -> Result<Option<Found>> {
        let (k, c) = (chain.start.len(), capacity(chain.start.len()));
        let (mut log2, mut totals) = (vec![0.0; self.chunks.weights.len()], vec![0.0; posteriors::sums(c)]);
        stream.read(&self.log2, &mut log2)?;
        if log2.iter().any(|v| v.is_nan()) {
            return Ok(None);
        }
        stream.read(&self.totals, &mut totals)?;
        let transitions = Array2::from_shape_fn((k, k), |(i, j)| chain.transitions[[i, j]] * totals[j * c + i]);
        Ok(Some(Found {
            log_likelihoods: self.chunks.sequences.iter().map(|range| log2[range.clone()].iter().sum()).collect(),
            start: Array1::from_shape_fn(k, |i| totals[c * c + i]),
            transitions,
        }))
    }
}

/// Checks that the parts fit together and the data.
fn check(chain: &MarkovChain<'_>, n: usize) -> Result<()> {
    let (k, pairs) = (chain.start.len(), chain.transitions.shape());
    if k == 0 || pairs != [k, k] || !chain.emissions.n_components().is_multiple_of(k) {
        let expected = vec![chain.emissions.n_components(), pairs[0], pairs[0]];
        return Err(mismatch("the probabilities of a chain's states", expected, vec![k, k, pairs[1]]));
    }
    if !chain.offsets.is_empty() && chain.offsets.len() != k {
        return Err(mismatch("the offsets of a chain's states", vec![k], vec![chain.offsets.len()]));
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
    pub fn expectations(
        &mut self,
        data: &mut DeviceSamples<T>,
        source: &Source<'_>,
        chain: &MarkovChain<'_>,
    ) -> Result<Option<MarkovSums>> {
        let (n, mixture) = (data.n(), chain.emissions);
        check(chain, n)?;
        let k = mixture.n_components();
        let n_states = chain.start.len();
        let can = n_states <= MAX_STATES && n <= u32::MAX as usize && data.is_resident();
        if !can || mixture.weights().iter().any(|w| *w <= 0.0) {
            return Ok(None);
        }
        let mut ready = Ready::new(mixture, data)?;
        let _entered = ready.gpu.enter()?;
        let piece = stride(n);
        let states = if k > n_states { n_states } else { 0 };
        let bytes =
            (k + states) * piece * size_of::<T>() + n * (capacity(n_states) * size_of::<f64>() + size_of::<u32>());
        if self.q.len() < k * piece && bytes > ready.gpu.free_memory()? {
            return Ok(None);
        }
        let mut chains = self.chains.take().map_or_else(Chains::new, Ok)?;
        let result = self.of_chain(&mut chains, (data, source), &mut ready, chain);
        self.chains = Some(chains);
        result
    }

    fn of_chain(
        &mut self,
        chains: &mut Chains,
        (data, source): (&DeviceSamples<T>, &Source<'_>),
        ready: &mut Ready<'_, T>,
        chain: &MarkovChain<'_>,
    ) -> Result<Option<MarkovSums>> {
        let mixture = chain.emissions;
        let n_mix = mixture.n_components() / chain.start.len();
        // Of the weights of the mixture only those within a state count.
        let of_states: Vec<f64> = mixture.weights().exact_chunks(n_mix).into_iter().map(|own| own.sum()).collect();
        let offset = |(c, w): (usize, &T)| {
            let w: f64 = (*w).into();
            w.log2() - of_states[c / n_mix].log2() + chain.offsets.get(c / n_mix).map_or(0.0, |v| v / LN_2)
        };
        let offsets: Vec<f64> = ready.parameters.weight.iter().enumerate().map(offset).collect();
        let shape = self.room(data, ready)?;
        let Chunk { pass, columns, started } = data.chunk(0)?;
        started.wait()?;
        chains.prepare(&pass.stream, chain, &offsets)?;
        let piece = Piece { gpu: ready.gpu, stream: &pass.stream, columns, layout: ready.layout, shape, done: 0 };
        if n_mix > 1 {
            enlarge_with_zeros(&mut self.states, chain.start.len() * shape.piece)?;
        }
        let running = self.density(piece)?.followed_by(chains.start(self, piece, chain)?);
        running.followed_by(self.add_up(piece)?).wait()?;
        let Some(mut found) = chains.found(&pass.stream, chain)? else { return Ok(None) };
        for (log, length) in found.log_likelihoods.iter_mut().zip(chain.lengths) {
            *log = LN_2 * (*log + *length as f64 * ready.parameters.offset);
        }
        if let Some(gaps) = &ready.parameters.gaps {
            // The parameters' offset includes the mean of the constants of observed columns.
            let observed = chains.observed.get_or_insert_with(|| observed(source, chain.lengths));
            for ((log, length), counts) in found.log_likelihoods.iter_mut().zip(chain.lengths).zip(observed.rows()) {
                let of_columns: f64 = counts.iter().zip(&gaps.offsets).map(|(count, offset)| count * offset).sum();
                *log += LN_2 * (of_columns - *length as f64 * gaps.mean);
            }
        }
        let weight = |s: usize| chain.weights.map_or(1.0, |weights| weights[s]);
        let weighted = |of: &dyn Fn(usize) -> f64| (0..chain.lengths.len()).map(|s| weight(s) * of(s)).sum::<f64>();
        let moments = |general: &Self, ready: &Ready<'_, T>| -> Result<CentredSums> {
            let mut sums = general.moments(data, ready, &pass.stream)?;
            sums.weight = weighted(&|s| chain.lengths[s] as f64);
            sums.log_likelihood = weighted(&|s| found.log_likelihoods[s]);
            Ok(sums)
        };
        let mut sums = moments(self, ready)?;
        if T::PRECISION == Precision::Float64 && sums.cancel(mixture) {
            ready.move_centres(&sums, data.frame());
            self.write(data, ready)?;
            self.add_up(piece)?.wait()?;
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
        enlarge_with_zeros(&mut self.partials, values * slices)?;
        enlarge(&mut self.sums, values)?;
        enlarge_with_zeros(&mut self.q, k * piece)?;
        self.write(data, ready)?;
        Ok(Shape { piece, posterior_blocks: posterior_blocks(piece, k, limits.multiprocessors), slices })
    }

    /// Starts the launches that compute the moments with the posteriors in the place of responsibilities.
    fn add_up<'a>(&'a self, piece: Piece<'a, T>) -> Result<Running<'a, ()>> {
        let GeneralLayout { k, d, full, .. } = piece.layout;
        let totals = Totals::Device(Numbers::of(&self.sums));
        let launch = ReduceSets { partials: Numbers::of(&self.partials), count: piece.shape.slices, totals };
        let (kernel, grid) =
            (piece.gpu.kernel(&entries::reduce_sets(), None)?, launch.grid(accumulate::values(k, d, full)));
        Ok(self.accumulate(piece)?.followed_by(piece.stream.launch(kernel, grid, launch)?.borrowed()))
    }

    /// Returns the moments after the launches.
    fn moments(&self, data: &DeviceSamples<T>, ready: &Ready<'_, T>, stream: &Stream) -> Result<CentredSums> {
        let GeneralLayout { k, d, full, .. } = ready.layout;
        let mut values = vec![0.0; accumulate::values(k, d, full)];
        stream.read(&self.sums, &mut values)?;
        Ok(ready.layout.centred_sums(&values, 1.0, ready.mixture, &ready.centres, data.frame()))
    }
}
