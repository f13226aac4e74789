//! The chunks into which sequences are divided, and the probabilities at their ends. Nothing here calls CUDA.
use gmm_core::contract::markov::MarkovChain;
use gmm_kernels::chain::{LEAST, WHOLE};
use rayon::prelude::*;
use std::ops::Range;

/// Least and most rows of a chunk.
const SHORTEST: usize = 128;
const LONGEST: usize = 4096;

/// Returns the rows of a chunk, for N rows in all. It grows with √N, so that neither the host, which goes through the
/// chunks, nor the device, which goes through a chunk's rows, waits long for the other.
pub fn chunk_rows(n: usize) -> usize {
    (n.isqrt() / 2).next_power_of_two().clamp(SHORTEST, LONGEST)
}

/// Sequences in chunks.
#[derive(Default)]
pub struct Chunks {
    /// The chunks in order, four numbers each: see [`gmm_kernels::chain::CHUNK`].
    pub all: Vec<u32>,
    /// Those of sequences with several chunks, whose numbers here are the places of their ends.
    pub divided: Vec<u32>,
    /// The first chunk of each unit, and the number of chunks.
    pub units: Vec<u32>,
    /// The weight of each chunk's sequence.
    pub weights: Vec<f64>,
    /// The chunks of each sequence.
    pub sequences: Vec<Range<usize>>,
    /// The divided chunks of each sequence that has several.
    long: Vec<Range<usize>>,
}

impl Chunks {
    /// Divides sequences into chunks of `rows` rows, and units of as many rows or a little more.
    pub fn new(chain: &MarkovChain<'_>, rows: usize) -> Self {
        let mut chunks = Self { units: vec![0], ..Self::default() };
        let (mut first, mut of_unit) = (0, 0);
        for (s, length) in chain.lengths.iter().enumerate() {
            let (before, long) = (chunks.weights.len(), chunks.divided.len() / 4);
            for start in (0..*length).step_by(rows) {
                let end = (*length).min(start + rows);
                let is_whole = *length <= rows;
                let ends = if is_whole { WHOLE } else { (chunks.divided.len() / 4) as u32 };
                let chunk = [(first + start) as u32, (first + end) as u32, ends, u32::from(start == 0)];
                chunks.all.extend(chunk);
                chunks.divided.extend(chunk.iter().filter(|_| !is_whole));
                chunks.weights.push(chain.weights.map_or(1.0, |weights| weights[s]));
                of_unit += end - start;
                if of_unit >= rows {
                    chunks.units.push(chunks.weights.len() as u32);
                    of_unit = 0;
                }
            }
            chunks.sequences.push(before..chunks.weights.len());
            if *length > rows {
                chunks.long.push(long..chunks.divided.len() / 4);
            }
            first += length;
        }
        if of_unit > 0 {
            chunks.units.push(chunks.weights.len() as u32);
        }
        chunks
    }

    /// Returns the number of chunks with ends.
    pub fn n_divided(&self) -> usize {
        self.divided.len() / 4
    }

    /// Writes the ends (divided chunks, 2, C) from the chunks' matrices (divided chunks, C, C) and powers (divided
    /// chunks, C): see [`gmm_kernels::chain::posteriors`]. Returns whether no probability was lost.
    pub fn ends(&self, matrices: &[f64], powers: &[f64], capacity: usize, watched: bool, ends: &mut [f64]) -> bool {
        let mut rest = ends;
        let mut parts = Vec::with_capacity(self.long.len());
        for range in &self.long {
            let (part, later) = rest.split_at_mut(range.len() * 2 * capacity);
            rest = later;
            let matrices = &matrices[range.start * capacity * capacity..range.end * capacity * capacity];
            parts.push((Matrices { matrices, powers: &powers[range.start * capacity..range.end * capacity] }, part));
        }
        let of_sequence = |(matrices, ends): (Matrices<'_>, &mut [f64])| {
            let lost = matrices.entries(capacity, watched, ends).is_none();
            !lost && matrices.exits(capacity, ends).is_some()
        };
        parts.into_par_iter().all(of_sequence)
    }
}

/// The matrices of one sequence.
struct Matrices<'a> {
    matrices: &'a [f64],
    powers: &'a [f64],
}

impl Matrices<'_> {
    /// Writes the entry of each chunk but the first.
    fn entries(&self, capacity: usize, watched: bool, ends: &mut [f64]) -> Option<()> {
        let mut last = vec![0.0; capacity];
        // All rows of the first matrix are equal.
        last[0] = 1.0;
        let chunks = self.matrices.chunks_exact(capacity * capacity).zip(self.powers.chunks_exact(capacity));
        for ((matrix, powers), entry) in chunks.zip(ends.chunks_exact_mut(2 * capacity).skip(1)) {
            let most = largest(last.iter().zip(powers).map(|(v, power)| (*v, *power)))?;
            let mut next = vec![0.0; capacity];
            for ((v, power), row) in last.iter().zip(powers).zip(matrix.chunks_exact(capacity)) {
                let share = scaled(*v, power - most);
                if watched && *v > 0.0 && share < LEAST && row.iter().any(|v| *v > 0.0) {
                    return None;
                }
                next.iter_mut().zip(row).for_each(|(next, v)| *next += share * v);
            }
            let sum: f64 = next.iter().sum();
            let lost = |v: &f64| watched && *v > 0.0 && v / sum < LEAST;
            if !(sum.is_finite() && sum > LEAST) || next.iter().any(lost) {
                return None;
            }
            next.iter_mut().for_each(|v| *v /= sum);
            entry[..capacity].copy_from_slice(&next);
            last = next;
        }
        Some(())
    }

    /// Writes the exit of each chunk: with the next one's entry it gives a sum of one, so that no number is lost unless
    /// it is negligible.
    fn exits(&self, capacity: usize, ends: &mut [f64]) -> Option<()> {
        let mut exit = vec![1.0; capacity];
        let chunks = self.matrices.chunks_exact(capacity * capacity).zip(self.powers.chunks_exact(capacity));
        for ((matrix, powers), end) in chunks.zip(ends.chunks_exact_mut(2 * capacity)).rev() {
            end[capacity..].copy_from_slice(&exit);
            let product = |row: &[f64]| row.iter().zip(&exit).map(|(v, exit)| v * exit).sum::<f64>();
            let products: Vec<f64> = matrix.chunks_exact(capacity).map(product).collect();
            let entry = &end[..capacity];
            if entry.iter().all(|v| *v == 0.0) {
                // The first chunk.
                break;
            }
            if entry.iter().zip(powers).any(|(entry, power)| *entry > 0.0 && power.is_nan()) {
                return None;
            }
            let exponent = |((entry, v), power): ((&f64, &f64), &f64)| (*entry, exponent(*v) + power);
            let positive = entry.iter().zip(&products).zip(powers).filter(|((_, v), _)| **v > 0.0);
            let most = largest(positive.map(exponent))?;
            let mut sum = 0.0;
            for ((next, entry), (v, power)) in exit.iter_mut().zip(entry).zip(products.iter().zip(powers)) {
                *next = if *entry > 0.0 { scaled(*v, power - most) } else { 0.0 };
                sum += *next * entry;
            }
            if !(sum.is_finite() && sum > 0.0) {
                return None;
            }
            exit.iter_mut().for_each(|v| *v /= sum);
        }
        Some(())
    }
}

/// Returns the largest exponent of v·2^power among numbers (v, power) with v > 0; `None` if a power is NaN, or for none.
fn largest(numbers: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let mut largest = f64::NEG_INFINITY;
    for (v, power) in numbers.filter(|(v, _)| *v > 0.0) {
        if power.is_nan() {
            return None;
        }
        largest = largest.max(exponent(v) + power);
    }
    (largest > f64::NEG_INFINITY).then_some(largest)
}

/// Returns the exponent of a number that is not negative.
fn exponent(v: f64) -> f64 {
    (v.to_bits() >> 52) as f64 - 1023.0
}

/// Returns v·2^power for an integer power; 0 for v = 0.
fn scaled(v: f64, power: f64) -> f64 {
    if v == 0.0 {
        return 0.0;
    }
    let power = power.clamp(-2000.0, 2000.0) as i64;
    let of = |power: i64| f64::from_bits(((1023 + power) as u64) << 52);
    v * of(power / 2) * of(power - power / 2)
}
