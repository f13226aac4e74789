//! The E-step: what is expected of the states, given the rows.
use crate::chunks::{Boundaries, CHUNK, Chain, Ends, Room, chunks};
use crate::error::{Error, Result};
use crate::logs;
use crate::moments::Moments;
use crate::sequences::Sequences;
use gmm_host::{CentredSums, Interrupt, MarkovChain, MarkovSums, Mixture, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};
use rayon::prelude::*;
use std::ops::Range;

/// The sums of an E-step over sequences, which add up over other sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectations {
    /// Σ w·log p(sequence).
    pub log_likelihood: f64,
    /// The expected number of sequences that start in each state (K,).
    pub start: Array1<f64>,
    /// The expected number of transitions between states (K, K).
    pub transitions: Array2<f64>,
    /// The statistics of the emissions' mixture.
    pub statistics: Statistics,
}

impl Expectations {
    /// Adds the sums of other sequences under the same model.
    ///
    /// # Errors
    /// As [`Statistics::merge`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.statistics.merge(&other.statistics)?;
        self.log_likelihood += other.log_likelihood;
        self.start += &other.start;
        self.transitions += &other.transitions;
        Ok(())
    }
}

/// The results that a pass over the rows computes besides log-likelihoods.
#[derive(Clone, Copy)]
pub(crate) enum Wanted<'a> {
    /// None.
    Scores,
    /// p(state | sequence) of each row.
    Posteriors,
    /// Sums around these centres (K·M, D).
    Sums(ArrayView2<'a, f64>),
}

/// Sums over some rows.
struct Sums<'a> {
    log_likelihood: f64,
    weight: f64,
    start: Vec<f64>,
    /// (K, stride), without the factors aᵢⱼ.
    pairs: Vec<f64>,
    moments: Moments<'a>,
}

/// Rows that a thread takes at a time.
enum Unit {
    /// Whole sequences.
    Sequences(Range<usize>),
    /// A chunk of a sequence: the number of the sequence among those with chunks, and of the chunk.
    Chunk(usize, usize),
}

/// A sequence of several chunks.
struct Long {
    sequence: usize,
    boundaries: Boundaries,
}

struct Pass<'p, 's> {
    chain: &'p Chain<'p>,
    sequences: &'p Sequences<'s>,
    chunk: usize,
    wanted: Wanted<'p>,
}

/// The results of a pass.
pub(crate) struct Results {
    /// log p of each sequence (S,).
    pub scores: Vec<f64>,
    /// (N, K), or (0, K) if not wanted.
    pub posteriors: Array2<f64>,
    pub sums: Option<(CentredSums, Array1<f64>, Array2<f64>)>,
}

/// Returns the expectations under the parameters of `chain`.
pub(crate) fn expectations(chain: &Chain<'_>, sequences: &Sequences<'_>, chunk: usize) -> Result<Expectations> {
    let mixture = chain.emissions.mixture;
    let mut centres = mixture.means().to_owned();
    loop {
        let wanted = Wanted::Sums(centres.view());
        let Some((sums, start, transitions)) = Pass { chain, sequences, chunk, wanted }.run()?.sums else {
            unreachable!("a pass returns what is wanted")
        };
        let moved = sums.new_centres();
        // Once: the new centres are the means.
        if centres == mixture.means() && sums.cancel(mixture) {
            centres = moved;
            continue;
        }
        let log_likelihood = sums.log_likelihood;
        let statistics = Statistics::from_centred_sums(sums)?;
        return Ok(Expectations { log_likelihood, start, transitions, statistics });
    }
}

/// Returns the expectations under a model with a component for each state, computed on the device of the sequences;
/// `None` if there is none, or where the CPU must compute them.
pub(crate) fn on_device(
    emissions: &Mixture,
    start: ArrayView1<'_, f64>,
    transitions: ArrayView2<'_, f64>,
    sequences: &Sequences<'_>,
) -> Result<Option<Expectations>> {
    let Some(device) = sequences.device() else { return Ok(None) };
    let lengths: Vec<usize> = (0..sequences.len()).map(|s| sequences.rows(s).len()).collect();
    let chain = MarkovChain { emissions, start, transitions, lengths: &lengths, weights: sequences.weights() };
    Ok(device.expectations(&chain)?.map(|MarkovSums { start, transitions, statistics, .. }| Expectations {
        log_likelihood: statistics.log_likelihood(),
        start,
        transitions,
        statistics,
    }))
}

/// Returns log p of each sequence (S,), and p(state | sequence) of each row (N, K) if wanted; zeros for an impossible
/// sequence.
pub(crate) fn scores(chain: &Chain<'_>, sequences: &Sequences<'_>, posteriors: bool) -> Result<Results> {
    let wanted = if posteriors { Wanted::Posteriors } else { Wanted::Scores };
    Pass { chain, sequences, chunk: CHUNK, wanted }.run()
}

impl<'p> Pass<'p, '_> {
    fn run(&self) -> Result<Results> {
        let (k, sequences) = (self.chain.n_states(), self.sequences);
        let n_samples = sequences.samples().n_samples();
        let interrupt = Interrupt::current();
        let longs: Vec<usize> = (0..sequences.len()).filter(|&s| sequences.rows(s).len() > self.chunk).collect();
        let alone = |rows: &Range<usize>| rows.len() > n_samples / 64;
        let longs: Vec<Long> = longs
            .into_par_iter()
            .map(|sequence| {
                let rows = sequences.rows(sequence);
                let both = !matches!(self.wanted, Wanted::Scores);
                let (chain, samples) = (self.chain, sequences.samples());
                let boundaries = Boundaries::new(chain, samples, &rows, self.chunk, alone(&rows), both, &interrupt)?;
                self.check(sequence, boundaries.log_likelihood)?;
                Ok(Long { sequence, boundaries })
            })
            .collect::<Result<_>>()?;
        let mut scores = vec![0.0; sequences.len()];
        longs.iter().for_each(|long| scores[long.sequence] = long.boundaries.log_likelihood);
        let units = self.units(&longs);
        let mut posteriors = match self.wanted {
            Wanted::Posteriors => {
                let shape = [n_samples, k];
                gmm_host::memory::check("the probabilities of the states", &shape, 8, "take fewer rows at a time")?;
                Array2::zeros((n_samples, k))
            }
            _ => Array2::zeros((0, k)),
        };
        let mut rest = posteriors.as_slice_mut().unwrap_or_default();
        let mut total: Option<Sums<'p>> = None;
        // So many at a time that their sums fit into 256 MB.
        let at_once = match self.wanted {
            Wanted::Sums(centres) => {
                let form = self.chain.emissions.mixture.covariance_type();
                ((1 << 25) / Moments::size(centres, form)).clamp(4, 1 << 12)
            }
            _ => 1 << 12,
        };
        for units in units.chunks(at_once) {
            let with_room: Vec<(&Unit, &mut [f64])> = units
                .iter()
                .map(|unit| {
                    let length = if rest.is_empty() { 0 } else { self.rows(&longs, unit).len() * k };
                    (unit, rest.split_off_mut(..length).unwrap_or_default())
                })
                .collect();
            let of_units: Vec<(Vec<f64>, Option<Sums<'p>>)> = with_room
                .into_par_iter()
                .map_init(Room::default, |room, (unit, posteriors)| {
                    interrupt.check()?;
                    self.unit(&longs, unit, room, posteriors)
                })
                .collect::<Result<_>>()?;
            for (unit, (of_unit, sums)) in units.iter().zip(of_units) {
                if let Unit::Sequences(range) = unit {
                    scores[range.clone()].copy_from_slice(&of_unit);
                }
                match (&mut total, sums) {
                    (Some(total), Some(sums)) => total.merge(&sums),
                    (total, sums) => *total = total.take().or(sums),
                }
            }
        }
        let sums = total.map(|total| self.finish(total, &scores));
        Ok(Results { scores, posteriors, sums })
    }

    /// Returns the units, in the order of their rows.
    fn units(&self, longs: &[Long]) -> Vec<Unit> {
        let mut units = Vec::new();
        let (mut first, mut rows) = (0, 0);
        let mut longs = longs.iter().enumerate().peekable();
        for s in 0..self.sequences.len() {
            if let Some((l, long)) = longs.next_if(|(_, long)| long.sequence == s) {
                units.extend((first < s).then_some(Unit::Sequences(first..s)));
                let n_chunks = chunks(&self.sequences.rows(long.sequence), self.chunk).count();
                if !matches!(self.wanted, Wanted::Scores) {
                    units.extend((0..n_chunks).map(|c| Unit::Chunk(l, c)));
                }
                (first, rows) = (s + 1, 0);
                continue;
            }
            rows += self.sequences.rows(s).len();
            if rows >= self.chunk {
                units.push(Unit::Sequences(first..s + 1));
                (first, rows) = (s + 1, 0);
            }
        }
        units.extend((first < self.sequences.len()).then(|| Unit::Sequences(first..self.sequences.len())));
        units
    }

    fn rows(&self, longs: &[Long], unit: &Unit) -> Range<usize> {
        match unit {
            Unit::Sequences(range) => self.sequences.rows(range.start).start..self.sequences.rows(range.end - 1).end,
            Unit::Chunk(long, c) => {
                let rows = self.sequences.rows(longs[*long].sequence);
                let start = rows.start + c * self.chunk;
                start..rows.end.min(start + self.chunk)
            }
        }
    }

    fn unit(
        &self,
        longs: &[Long],
        unit: &Unit,
        room: &mut Room,
        posteriors: &mut [f64],
    ) -> Result<(Vec<f64>, Option<Sums<'p>>)> {
        let mut sums = self.no_sums();
        let (k, mut rest, mut scores) = (self.chain.n_states(), posteriors, Vec::new());
        match unit {
            Unit::Chunk(long, c) => {
                let Long { sequence, boundaries } = &longs[*long];
                if boundaries.log_likelihood > f64::NEG_INFINITY {
                    let entry = c.checked_sub(1).map(|c| &boundaries.entries[c][..]);
                    let ends = Ends { entry, exit: &boundaries.exits[*c] };
                    self.rows_of(*sequence, self.rows(longs, unit), ends, room, rest, &mut sums)?;
                }
            }
            Unit::Sequences(range) => {
                let exit = vec![0.0; k];
                for s in range.clone() {
                    let rows = self.sequences.rows(s);
                    let length = if rest.is_empty() { 0 } else { rows.len() * k };
                    let of_sequence = rest.split_off_mut(..length).unwrap_or_default();
                    let ends = Ends { entry: None, exit: &exit };
                    let score = self.rows_of(s, rows, ends, room, of_sequence, &mut sums)?;
                    self.check(s, score)?;
                    scores.push(score);
                }
            }
        }
        Ok((scores, sums))
    }

    /// Computes the results of the rows of a chunk, or of a whole sequence, and returns log p of them.
    fn rows_of(
        &self,
        sequence: usize,
        rows: Range<usize>,
        ends: Ends<'_>,
        room: &mut Room,
        posteriors: &mut [f64],
        sums: &mut Option<Sums<'p>>,
    ) -> Result<f64> {
        let Chain { start, transitions, emissions } = self.chain;
        let (k, stride) = (transitions.n_states, transitions.stride);
        let weight = self.sequences.weight(sequence);
        let samples = self.sequences.samples();
        room.load(self.chain, samples, rows.clone());
        let prior = ends.entry.map_or_else(|| start.clone(), |entry| logs::predict(transitions, entry));
        let score = room.forward(self.chain, &prior);
        if matches!(self.wanted, Wanted::Scores) || score == f64::NEG_INFINITY || weight == 0.0 && sums.is_some() {
            return Ok(score);
        }
        let is_first = ends.entry.is_none();
        room.backward(self.chain, &prior, ends, weight);
        for (out, gamma) in posteriors.chunks_exact_mut(k).zip(room.gamma().chunks_exact(stride)) {
            out.copy_from_slice(&gamma[..k]);
        }
        if let Some(sums) = sums {
            if is_first {
                sums.start.iter_mut().zip(room.gamma()).for_each(|(sum, gamma)| *sum += weight * gamma);
            }
            sums.pairs.iter_mut().zip(room.pairs()).for_each(|(sum, v)| *sum += v);
            sums.weight += weight * rows.len() as f64;
            sums.moments.add(emissions.mixture, samples, rows, room.responsibilities(self.chain), weight)?;
        }
        Ok(score)
    }

    fn no_sums(&self) -> Option<Sums<'p>> {
        let Wanted::Sums(centres) = self.wanted else { return None };
        let Chain { transitions, emissions, .. } = self.chain;
        let (k, stride) = (transitions.n_states, transitions.stride);
        let moments = Moments::new(centres, emissions.mixture.covariance_type());
        Some(Sums { log_likelihood: 0.0, weight: 0.0, start: vec![0.0; k], pairs: vec![0.0; k * stride], moments })
    }

    /// An impossible sequence has no expectations.
    fn check(&self, sequence: usize, score: f64) -> Result<()> {
        let sums = matches!(self.wanted, Wanted::Sums(_)) && self.sequences.weight(sequence) > 0.0;
        match sums && score == f64::NEG_INFINITY {
            true => Err(Error::ImpossibleSequence { sequence }),
            false => Ok(()),
        }
    }

    fn finish(&self, mut total: Sums<'_>, scores: &[f64]) -> (CentredSums, Array1<f64>, Array2<f64>) {
        let transitions = &self.chain.transitions;
        let (k, stride) = (transitions.n_states, transitions.stride);
        let weighted = |(s, score): (usize, &f64)| match self.sequences.weight(s) {
            0.0 => 0.0,
            weight => weight * score,
        };
        total.log_likelihood = scores.iter().enumerate().map(weighted).sum();
        let pairs =
            Array2::from_shape_fn((k, k), |(i, j)| transitions.forward[i * stride + j] * total.pairs[i * stride + j]);
        (total.moments.into_sums(total.weight, total.log_likelihood), total.start.into(), pairs)
    }
}

impl Sums<'_> {
    fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.start.iter_mut().zip(&other.start).for_each(|(sum, v)| *sum += v);
        self.pairs.iter_mut().zip(&other.pairs).for_each(|(sum, v)| *sum += v);
        self.moments.merge(&other.moments);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HiddenMarkov;
    use gmm_host::{CovarianceModel, Samples};

    /// Chunks of any size have the results of the whole, with transitions of all kinds, for few states (whose chunks
    /// matrices join) and for many.
    #[test]
    fn chunks_are_the_whole() {
        for k in [3, 11] {
            let x = Array2::from_shape_fn((500, 2), |(i, j)| {
                ((i * i + 3 * j) % 101) as f64 * 0.1 + (i / 40 % 3) as f64 * 5.0
            });
            let samples = Samples::from_f64(x.view()).unwrap();
            let sequences = Sequences::new(samples, &[450, 1, 49]).unwrap();
            let start = HiddenMarkov::start(k, CovarianceModel::VVI, &sequences, 0).unwrap();
            let left_right = Array2::from_shape_fn((k, k), |(i, j)| match j.checked_sub(i) {
                Some(0) if i + 1 == k => 1.0,
                Some(0 | 1) => 0.5,
                _ => 0.0,
            });
            let narrow = {
                let mut covariances = start.emissions().covariances().clone();
                covariances.map_inplace(|v| *v *= 1e-3);
                Mixture::new(start.emissions().weights().to_owned(), start.emissions().means().to_owned(), covariances)
                    .unwrap()
            };
            for (transmat, emissions) in [
                (start.transmat().to_owned(), start.emissions()),
                (start.transmat().to_owned(), &narrow),
                (left_right.clone(), start.emissions()),
                (left_right, &narrow),
            ] {
                let model = HiddenMarkov::new(start.startprob().to_owned(), transmat, emissions.clone()).unwrap();
                let chain = model.chain(&sequences).unwrap();
                let whole = expectations(&chain, &sequences, 1000).unwrap();
                for chunk in [1, 2, 7, 64, 449] {
                    let got = expectations(&chain, &sequences, chunk).unwrap();
                    let near = |what: &str, got: f64, want: f64| {
                        let tolerance = 1e-12 * want.abs().max(1.0) * 10.0;
                        assert!((got - want).abs() <= tolerance, "K={k} chunk {chunk}, {what}: {got} for {want}");
                    };
                    near("log-likelihood", got.log_likelihood, whole.log_likelihood);
                    got.start.iter().zip(&whole.start).for_each(|(got, want)| near("start", *got, *want));
                    got.transitions
                        .iter()
                        .zip(&whole.transitions)
                        .for_each(|(got, want)| near("transition", *got, *want));
                    let scatter = got.statistics.scatter().iter().zip(whole.statistics.scatter().iter());
                    scatter.for_each(|(got, want)| near("scatter", got, want));
                    let wanted = Wanted::Posteriors;
                    let of =
                        |chunk| Pass { chain: &chain, sequences: &sequences, chunk, wanted }.run().unwrap().posteriors;
                    of(chunk).iter().zip(&of(1000)).for_each(|(got, want)| near("posterior", *got, *want));
                }
            }
        }
    }

    /// The bits do not depend on the number of threads.
    #[test]
    fn threads_do_not_matter() {
        let x =
            Array2::from_shape_fn((9000, 3), |(i, j)| ((i * i + 3 * j) % 101) as f64 * 0.1 + (i / 40 % 3) as f64 * 5.0);
        let sequences = Sequences::new(Samples::from_f64(x.view()).unwrap(), &[5000, 1000, 2000, 1000]).unwrap();
        let model = HiddenMarkov::start(4, CovarianceModel::VVV, &sequences, 0).unwrap();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| (model.expectations(&sequences).unwrap(), model.forward_backward(&sequences).unwrap()))
        };
        let one = on(1);
        assert!(on(2) == one && on(5) == one);
    }
}
