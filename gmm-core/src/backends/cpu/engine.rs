//! Threads, chunks, and sums over chunks, for one element type.
mod segments;

use super::buffer::Zeros;
use super::estep;
use super::few;
use super::kernel::{Chunk, PerSample, Scratch, Total};
use super::leading::leading_rows;
use super::moments::{Layout, SegmentSums, Sums};
use super::posterior::{FAR, Labels, Responsibilities};
use super::real::Real;
use super::resident::Resident;
use super::threads::Threads;
use crate::backends::device_parameters::{Deviations, DeviceParameters};
use crate::backends::enough_digits::FramedEvaluator;
use crate::compensated::{neumaier_sum, softmax};
use crate::contract::evaluator::{
    DataFacts, Description, Evaluator, check_features, labels_from_afar, most_probable, responsibilities,
    responsibilities_from_afar, unreachable_sample,
};
use crate::data::frame::Frame;
use crate::data::samples::{Rows, Samples};
use crate::data::weights::weight_scale;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::model::linalg::row_major;
use crate::model::mixture::Mixture;
use crate::precision::Precision;
use crate::simd::isa::Isa;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use std::f64::consts::LN_2;
use std::sync::Arc;

/// The calling thread does work of fewer fused multiply-adds: that is faster than waking other threads.
const SERIAL_WORK: usize = 1 << 21;

/// Evaluates resident samples; a clone shares them.
#[derive(Debug, Clone)]
pub(super) struct Engine<'a, T> {
    samples: Samples<'a>,
    data: Arc<Resident<T>>,
    deviations: Deviations,
    /// The samples' weights over `weight_scale`, a power of two that brings the largest to about one.
    weights: Option<Arc<[f64]>>,
    weight_scale: f64,
    /// The weight of the samples with a value in each column (D,), if values are missing.
    observed: Option<Arc<[f64]>>,
    isa: Isa,
    threads: Threads,
    n_threads: usize,
    /// Reused room for the chunks' results.
    partial: Vec<f64>,
    spare: Spare<T>,
}

/// The memory of an E-step, kept for the next one: new pages would take a good part of its time. A clone has none.
#[derive(Debug)]
struct Spare<T> {
    sums: Vec<Sums<T>>,
    segments: Vec<SegmentSums<T>>,
    matrices: Option<Zeros<f64>>,
}

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self { sums: Vec::new(), segments: Vec::new(), matrices: None }
    }
}

impl<T> Clone for Spare<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<'a, T: Real> Engine<'a, T> {
    /// With [`Deviations::AroundMeans`], the samples keep all digits, in a frame that changes nothing.
    pub fn new(samples: Samples<'a>, deviations: Deviations, threads: Threads, isa: Isa) -> Self {
        let n_threads = threads.count();
        let data = threads.install(|| Resident::new(&samples, deviations.frame(&samples), isa));
        let weight_scale = samples.weights().map_or(1.0, weight_scale);
        let weights = samples.weights().map(|w| w.iter().map(|w| w / weight_scale).collect());
        let observed = samples.missing().is_some().then(|| samples.observed_weights().into());
        let data = Arc::new(data);
        Self {
            samples,
            data,
            deviations,
            weights,
            weight_scale,
            observed,
            isa,
            threads,
            n_threads,
            partial: Vec::new(),
            spare: Spare::default(),
        }
    }

    /// Returns the mixture's parameters for these samples; diagonal or spherical if values are missing.
    fn parameters(&self, mixture: &Mixture) -> Result<DeviceParameters<T>> {
        match &self.observed {
            // Diagonals take a third of the time of matrices.
            None if mixture.n_features() == 1 => DeviceParameters::new(mixture, &self.data.frame, self.deviations),
            None => DeviceParameters::with_matrices(mixture, &self.data.frame, self.deviations),
            Some(observed) => {
                let parameters = DeviceParameters::with_gaps(mixture, &self.data.frame, self.deviations)?;
                Ok(parameters.with_mean_offset(observed, self.samples.total_weight()))
            }
        }
    }

    /// Runs `work` on each piece of `out` of `size` elements, with the piece's number; on all threads, if worthwhile
    /// for `cost` multiply-adds a sample.
    fn for_each_piece<A: Send>(
        &self,
        out: &mut [A],
        size: usize,
        cost: usize,
        work: impl Fn(usize, &mut [A]) + Sync,
    ) -> Result<()> {
        self.in_pieces(out, size, self.data.n.saturating_mul(cost), work)
    }

    /// As [`for_each_piece`](Self::for_each_piece), for `cost` multiply-adds in all.
    fn in_pieces<A: Send>(
        &self,
        out: &mut [A],
        size: usize,
        cost: usize,
        work: impl Fn(usize, &mut [A]) + Sync,
    ) -> Result<()> {
        let interrupt = Interrupt::current();
        let piece = |(c, out): (usize, &mut [A])| {
            interrupt.check()?;
            work(c, out);
            Ok(())
        };
        if self.n_threads == 1 || cost < SERIAL_WORK {
            return out.chunks_mut(size).enumerate().try_for_each(piece);
        }
        self.threads.install(|| out.par_chunks_mut(size).enumerate().try_for_each(piece))
    }

    /// Runs `work` on each chunk of samples and its part of `out`, `each` elements per sample.
    fn for_each_sample<A: Send>(
        &self,
        mixture: &Mixture,
        out: &mut [A],
        each: usize,
        work: impl Fn(Isa, Chunk<'_, T>, &mut [A]) + Sync,
    ) -> Result<()> {
        check_features(mixture, self.data.d)?;
        let parameters = self.parameters(mixture)?;
        let leading = leading_rows(&parameters);
        let cost = parameters.cost() + 8 * parameters.n_components + 64;
        self.for_each_piece(out, self.data.chunk * each, cost, |c, out| {
            let (x, samples) = self.data.chunk(c);
            let mut scratch = Scratch::new(parameters.n_components, self.data.d);
            let chunk = Chunk { x, n: samples.len(), parameters: &parameters, leading, scratch: &mut scratch };
            work(self.isa, chunk, out);
        })
    }

    /// Returns log πₖ N(x; μₖ, Σₖ) (N, K) if there are too few samples to lay out the mixture.
    fn few(&self, mixture: &Mixture) -> Result<Option<Array2<f64>>> {
        check_features(mixture, self.data.d)?;
        if self.observed.is_some() || !few::are_few(self.data.n, mixture) {
            return Ok(None);
        }
        let in_threads = self.n_threads > 1;
        Ok(self.threads.install(|| few::log_densities(&self.samples, mixture, in_threads)))
    }

    /// Returns the total of log₂ p − offset over chunk `c`, each sample times its weight.
    fn chunk_total(
        &self,
        c: usize,
        parameters: &DeviceParameters<T>,
        leading: Option<usize>,
        scratch: &mut Scratch<T>,
    ) -> f64 {
        let (x, samples) = self.data.chunk(c);
        let chunk = Chunk { x, n: samples.len(), parameters, leading, scratch };
        match &self.weights {
            None => self.isa.run(Total(chunk)),
            Some(weights) => {
                let mut log2 = vec![0.0; samples.len()];
                self.isa.run(PerSample { chunk, out: &mut log2 });
                // A sample without weight does not count, even if its log-likelihood is not finite.
                let weighted = log2.iter().zip(&weights[samples]).filter(|(_, w)| **w > 0.0);
                neumaier_sum(weighted.map(|(v, w)| v * w))
            }
        }
    }
}

impl<T: Real> FramedEvaluator for Engine<'_, T> {
    const PRECISION: Precision = T::PRECISION;

    fn frame(&self) -> &Frame {
        &self.data.frame
    }

    fn shared(&self) -> Result<Self> {
        Ok(self.clone())
    }

    fn holds_moments(&self, mixture: &Mixture) -> bool {
        // The squared deviations of a few thousand samples are then far from the ends of the type's range.
        let deviations = match Self::PRECISION {
            Precision::Float32 => 1e-12..=1e12,
            Precision::Float64 => 1e-140..=1e140,
        };
        let scales = self.data.frame.scale.iter().enumerate();
        let mut counted = (0..mixture.n_components()).filter(|&c| mixture.weights()[c] > 0.0);
        let of_component =
            |c: usize| scales.clone().all(|(j, scale)| deviations.contains(&(mixture.variance(c, j).sqrt() * scale)));
        counted.all(of_component)
    }
}

impl<T: Real> Evaluator for Engine<'_, T> {
    fn data(&self) -> DataFacts<'_> {
        DataFacts::from(&self.samples)
    }

    fn describe(&self) -> Description {
        let (threads, isa) = (self.n_threads, self.isa.name());
        let plural = if threads == 1 { "" } else { "s" };
        let around = self.deviations.description();
        Description::new(format!("cpu ({threads} thread{plural}, {isa}, {}{around})", T::NAME), isa)
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        if let Some(log_p) = self.few(mixture)? {
            let (scores, weights) = (few::log_sums(&log_p), self.samples.weights());
            let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
            return Ok(neumaier_sum(scores.iter().enumerate().map(|(row, score)| weight(row) * score)));
        }
        self.log_likelihood_batch(std::slice::from_ref(mixture)).map(|totals| totals[0])
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let mut parameters = Vec::with_capacity(mixtures.len());
        for mixture in mixtures {
            check_features(mixture, self.data.d)?;
            let one = self.parameters(mixture)?;
            parameters.push((leading_rows(&one), one));
        }
        if parameters.is_empty() {
            return Ok(Vec::new());
        }
        let most_components = parameters.iter().map(|(_, p)| p.n_components).max().unwrap_or(1);
        let cost = parameters.iter().map(|(_, p)| p.cost() + 8 * p.n_components).sum();
        let mut partial = std::mem::take(&mut self.partial);
        partial.resize(self.data.n_chunks() * parameters.len(), 0.0);
        self.for_each_piece(&mut partial, parameters.len(), cost, |c, totals| {
            let mut scratch = Scratch::new(most_components, self.data.d);
            for (total, (leading, parameters)) in totals.iter_mut().zip(&parameters) {
                *total = self.chunk_total(c, parameters, *leading, &mut scratch);
            }
        })?;
        let totals = parameters.iter().enumerate().map(|(i, (_, p))| {
            let log2 = neumaier_sum(partial.iter().skip(i).step_by(parameters.len()).copied());
            (self.samples.total_weight() * p.offset + log2 * self.weight_scale) * LN_2
        });
        let totals = totals.collect();
        self.partial = partial;
        Ok(totals)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        if let Some(log_p) = self.few(mixture)? {
            return Ok(few::log_sums(&log_p));
        }
        let mut out = vec![0.0; self.data.n];
        self.for_each_sample(mixture, &mut out, 1, |isa, chunk, out| {
            let parameters = chunk.parameters;
            let (x, d) = (chunk.x, self.data.d);
            isa.run(PerSample { chunk, out: &mut *out });
            out.iter_mut().for_each(|v| *v += parameters.offset);
            if let Some(gaps) = &parameters.gaps {
                for (block, out) in x.chunks_exact(d * self.data.lanes).zip(out.chunks_mut(self.data.lanes)) {
                    for (lane, v) in out.iter_mut().enumerate() {
                        let values = block[lane..].iter().step_by(self.data.lanes);
                        let seen = values.map(|&v| !Into::<f64>::into(v).is_nan());
                        // Without observed values the result is exact.
                        let nothing = seen.clone().all(|seen| !seen);
                        let offsets = seen.zip(&gaps.offsets).map(|(seen, offset)| if seen { *offset } else { 0.0 });
                        let offset: f64 = offsets.sum();
                        *v = if nothing { 0.0 } else { *v + (offset - gaps.mean) };
                    }
                }
            }
            out.iter_mut().for_each(|v| *v *= LN_2);
        })?;
        Ok(Array1::from_vec(out))
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.data.d)?;
        let parameters = self.parameters(mixture)?;
        let around_means = self.deviations == Deviations::AroundMeans;
        let near_zero = || !around_means && estep::is_near_zero(mixture, &parameters, &self.data.frame);
        let layout = Layout::new(&parameters, self.data.lanes, near_zero);
        let centres = match layout.around_zero {
            true => Array2::zeros(mixture.means().dim()),
            false => estep::means(mixture, &parameters, &self.data.frame),
        };
        let mut sums = self.sums(mixture, &parameters, layout, centres)?;
        if sums.log_likelihood == f64::NEG_INFINITY {
            let scores = self.score_samples(mixture)?;
            return Err(unreachable_sample(&scores, self.samples.weights()));
        }
        if T::PRECISION == Precision::Float64 && sums.cancel(mixture) {
            let centres = sums.new_centres();
            let centres = Array2::from_shape_fn(centres.dim(), |(c, j)| self.data.frame.apply(j, centres[[c, j]]));
            let layout = Layout::new(&parameters, self.data.lanes, || false);
            sums = self.sums(mixture, &parameters, layout, centres)?;
        }
        Statistics::from_centred_sums(sums)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        self.samples.select(rows)
    }

    fn predict(&mut self, mixture: &Mixture) -> Result<Vec<usize>> {
        if let Some(log_p) = self.few(mixture)? {
            return Ok(log_p.outer_iter().map(|row| most_probable(&row_major(row))).collect());
        }
        let mut out = vec![0; self.data.n];
        self.for_each_sample(mixture, &mut out, 1, |isa, chunk, out| isa.run(Labels { chunk, out }))?;
        let far: Vec<usize> = (0..out.len()).filter(|&row| out[row] == FAR).collect();
        labels_from_afar(&mut out, &far, mixture, |rows| self.samples.select(rows))?;
        Ok(out)
    }

    fn predict_proba(&mut self, mixture: &Mixture) -> Result<Array2<f64>> {
        if let Some(mut shares) = self.few(mixture)? {
            shares.as_slice_mut().unwrap_or_default().chunks_exact_mut(mixture.n_components()).for_each(|row| {
                softmax(row);
            });
            return Ok(shares);
        }
        let k = mixture.n_components();
        let mut out = responsibilities(self.data.n, k)?;
        let flat = out.as_slice_mut().unwrap_or_default();
        self.for_each_sample(mixture, flat, k, |isa, chunk, out| isa.run(Responsibilities { chunk, out }))?;
        responsibilities_from_afar(&mut out, mixture, |rows| self.samples.select(rows))?;
        Ok(out)
    }
}
