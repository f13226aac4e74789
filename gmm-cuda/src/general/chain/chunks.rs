//! The chunks into which sequences are divided. Nothing here calls CUDA.
use gmm_core::contract::markov::MarkovChain;
use std::ops::Range;

/// Least and most rows of a chunk: `chain_ends` visits some fifty rows for each end, and a group visits its rows one
/// after the other.
const SHORTEST: usize = 128;
const LONGEST: usize = 384;
/// Lanes that chunks occupy between these bounds: twelve warps on each multiprocessor of an H100.
const LANES: usize = 50_000;

/// Sequences in chunks.
#[derive(Debug, Default)]
pub struct Chunks {
    /// The lengths and weights of the sequences, and the lanes of a group.
    of: (Vec<usize>, Option<Vec<f64>>, usize),
    /// The chunks in order, four numbers each: see [`gmm_kernels::chain::CHUNK`].
    pub all: Vec<u32>,
    /// The first chunk of each unit, and the number of chunks.
    pub units: Vec<u32>,
    /// The weight of each chunk's sequence.
    pub weights: Vec<f64>,
    /// The chunks of each sequence.
    pub sequences: Vec<Range<usize>>,
}

impl Chunks {
    /// Divides sequences into equal chunks for groups of `capacity` lanes, and into units of half as many
    /// rows or more.
    pub fn new(chain: &MarkovChain<'_>, capacity: usize) -> Self {
        let n: usize = chain.lengths.iter().sum();
        let rows = (n * capacity / LANES).clamp(SHORTEST, LONGEST);
        let of = (chain.lengths.to_vec(), chain.weights.map(<[f64]>::to_vec), capacity);
        let mut chunks = Self { of, units: vec![0], ..Self::default() };
        let (mut first, mut of_unit) = (0, 0);
        for (s, length) in chain.lengths.iter().enumerate() {
            let before = chunks.weights.len();
            let of_chunk = length.div_ceil(length.div_ceil(rows));
            for start in (0..*length).step_by(of_chunk) {
                let end = (*length).min(start + of_chunk);
                chunks.all.extend([first + start, first + end, first, first + length].map(|row| row as u32));
                chunks.weights.push(chain.weights.map_or(1.0, |weights| weights[s]));
                of_unit += end - start;
                if 2 * of_unit >= rows {
                    chunks.units.push(chunks.weights.len() as u32);
                    of_unit = 0;
                }
            }
            chunks.sequences.push(before..chunks.weights.len());
            first += length;
        }
        if of_unit > 0 {
            chunks.units.push(chunks.weights.len() as u32);
        }
        chunks
    }

    /// Returns whether [`Self::new`] would return these.
    pub fn are_of(&self, chain: &MarkovChain<'_>, capacity: usize) -> bool {
        let (lengths, weights, of) = &self.of;
        lengths == chain.lengths && weights.as_deref() == chain.weights && *of == capacity
    }

    /// Returns whether a sequence has several chunks.
    pub fn have_ends(&self) -> bool {
        self.weights.len() > self.sequences.len()
    }
}
