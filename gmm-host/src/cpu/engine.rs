//! Threads, chunks, and the sum over the chunks, for one element type.
use super::isa::Isa;
use super::kernel::{Chunk, PerSample, Total, scratch};
use super::real::Real;
use super::resident::Resident;
use crate::evaluator::{check_features, check_rows};
use crate::packed::Packed;
use crate::reference::neumaier_sum;
use crate::{Description, Error, Evaluator, Mixture, Result, Rows, Samples, Statistics};
use ndarray::{Array1, Array2, ArrayView2};
use rayon::ThreadPool;
use rayon::prelude::*;
use std::f64::consts::LN_2;

/// Work below this many fused multiply-adds of single elements is done by the calling thread: about the time that
/// waking the others takes.
const SERIAL_WORK: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Engine<T> {
    data: Resident<T>,
    weights: Option<Vec<f64>>,
    total_weight: f64,
    isa: Isa,
    /// rayon's own, if none.
    pool: Option<ThreadPool>,
    n_threads: usize,
    /// The chunks' results, kept from call to call.
    partial: Vec<f64>,
}

impl<T: Real> Engine<T> {
    pub fn new(x: ArrayView2<'_, T>, samples: &Samples<'_>, pool: Option<ThreadPool>, isa: Isa) -> Self {
        let n_threads = pool.as_ref().map_or_else(rayon::current_num_threads, ThreadPool::current_num_threads);
        let data = match &pool {
            Some(pool) => pool.install(|| Resident::new(x, isa)),
            None => Resident::new(x, isa),
        };
        let weights = samples.weights().map(|w| w.to_vec());
        Self { data, weights, total_weight: samples.total_weight(), isa, pool, n_threads, partial: Vec::new() }
    }

    /// Runs `work` on each piece of `out` of `size` elements, with the piece's number; in parallel where that pays.
    fn for_each_piece<A: Send>(
        &self,
        out: &mut [A],
        size: usize,
        n_parameters: usize,
        work: impl Fn(usize, &mut [A]) + Sync,
    ) {
        let serial = self.n_threads == 1 || self.data.n.saturating_mul(n_parameters) < SERIAL_WORK;
        if serial {
            return out.chunks_mut(size).enumerate().for_each(|(c, out)| work(c, out));
        }
        let mut parallel = || out.par_chunks_mut(size).enumerate().for_each(|(c, out)| work(c, out));
        match &self.pool {
            Some(pool) => pool.install(parallel),
            None => parallel(),
        }
    }

    /// Total of log₂ p − offset over chunk `c`, each sample times its weight.
    fn chunk_total(&self, c: usize, packed: &Packed<T>, scratch: &mut [T]) -> f64 {
        let (x, samples) = self.data.chunk(c);
        let chunk = Chunk { x, n: samples.len(), packed, scratch };
        match &self.weights {
            None => self.isa.run(Total(chunk)),
            Some(weights) => {
                let mut log2 = vec![0.0; samples.len()];
                self.isa.run(PerSample { chunk, out: &mut log2 });
                neumaier_sum(log2.iter().zip(&weights[samples]).map(|(v, w)| v * w))
            }
        }
    }
}

impl<T: Real> Evaluator for Engine<T> {
    fn n_samples(&self) -> usize {
        self.data.n
    }

    fn n_features(&self) -> usize {
        self.data.d
    }

    fn total_weight(&self) -> f64 {
        self.total_weight
    }

    fn describe(&self) -> Description {
        let (threads, isa) = (self.n_threads, self.isa.name());
        let plural = if threads == 1 { "" } else { "s" };
        Description { device: format!("cpu ({threads} thread{plural}, {isa}, {})", T::NAME), kernel: isa.into() }
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        self.log_likelihood_batch(std::slice::from_ref(mixture)).map(|totals| totals[0])
    }

    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let mut packed = Vec::with_capacity(mixtures.len());
        for mixture in mixtures {
            check_features(mixture, self.data.d)?;
            packed.push(Packed::<T>::new(mixture, &self.data.frame)?);
        }
        if packed.is_empty() {
            return Ok(Vec::new());
        }
        let largest = packed.iter().map(|p| p.n_components).max().unwrap_or(1);
        let work = packed.iter().map(|p| 2 * p.scale.len() + 8 * p.n_components).sum();
        let mut partial = std::mem::take(&mut self.partial);
        partial.resize(self.data.n_chunks() * packed.len(), 0.0);
        self.for_each_piece(&mut partial, packed.len(), work, |c, totals| {
            let mut scratch = scratch(largest);
            for (total, packed) in totals.iter_mut().zip(&packed) {
                *total = self.chunk_total(c, packed, &mut scratch);
            }
        });
        let totals = packed.iter().enumerate().map(|(i, p)| {
            let log2 = neumaier_sum(partial.iter().skip(i).step_by(packed.len()).copied());
            (self.total_weight * p.offset + log2) * LN_2
        });
        let totals = totals.collect();
        self.partial = partial;
        Ok(totals)
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        check_features(mixture, self.data.d)?;
        let packed = Packed::<T>::new(mixture, &self.data.frame)?;
        let mut out = vec![0.0; self.data.n];
        let work = 2 * packed.scale.len() + 8 * packed.n_components + 64;
        self.for_each_piece(&mut out, self.data.chunk, work, |c, out| {
            let (x, samples) = self.data.chunk(c);
            let mut scratch = scratch(packed.n_components);
            let chunk = Chunk { x, n: samples.len(), packed: &packed, scratch: &mut scratch };
            self.isa.run(PerSample { chunk, out: &mut *out });
            out.iter_mut().for_each(|v| *v = (*v + packed.offset) * LN_2);
        });
        Ok(Array1::from_vec(out))
    }

    fn statistics(&mut self, _: &Mixture) -> Result<Statistics> {
        Err(Error::Unsupported {
            what: "an E-step".into(),
            backend: "the CPU backend",
            remedy: "use the device `reference`",
        })
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.data.n)?;
        let x = Array2::from_shape_fn((rows.len(), self.data.d), |(r, j)| self.data.value(rows[r], j));
        let weights = rows.iter().map(|&row| self.weights.as_ref().map_or(1.0, |w| w[row])).collect();
        Ok(Rows { x, weights })
    }
}
