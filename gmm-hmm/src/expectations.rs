//! The E-step: what is expected of the states, given the rows.
use crate::chunks::{Boundaries, CHUNK, Chain, Ends, Piece, Room, chunks};
use crate::error::{Error, Result};
use crate::lattice::{PARTS, sum};
use crate::moments::Moments;
use crate::sequences::Sequences;
use gmm_host::{CentredSums, Interrupt, MarkovChain, MarkovSums, Mixture, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, s};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The segments that are computed side by side.
const SIDE_BY_SIDE: usize = PARTS;

/// The rows that a thread takes at a time.
const UNIT: usize = 4096;

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

    /// Returns the sums times a factor.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            log_likelihood: self.log_likelihood * factor,
            start: self.start * factor,
            transitions: self.transitions * factor,
            statistics: self.statistics.scaled(factor),
        }
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

/// Parts of the log-likelihoods of sequences, with their numbers, and sums over their rows.
type OfUnit<'a> = (Vec<(usize, f64)>, Option<Sums<'a>>);

/// Sums over some rows.
struct Sums<'a> {
    log_likelihood: f64,
    weight: f64,
    start: Vec<f64>,
    /// Without the factors aᵢⱼ (K, K).
    pairs: Vec<f64>,
    /// With them, of other pieces (K, K).
    counts: Vec<f64>,
    moments: Moments<'a>,
}

/// A sequence, or a chunk of one.
struct Segment<'a> {
    sequence: usize,
    rows: Range<usize>,
    ends: Ends<'a>,
}

/// The numbers of the segments that a thread takes at a time, by pieces side by side.
type Unit = Vec<Range<usize>>;

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

/// Returns the sums computed on the device of the sequences; `None` if there is none, or where the CPU must compute.
/// `of_states`: π (K,), a (K, K), and numbers to add to the log densities of the states (K,), or none.
pub(crate) fn on_device(
    emissions: &Mixture,
    of_states: (ArrayView1<'_, f64>, ArrayView2<'_, f64>, &[f64]),
    sequences: &Sequences<'_>,
) -> Result<Option<MarkovSums>> {
    let Some(device) = sequences.device() else { return Ok(None) };
    let (start, transitions, offsets) = of_states;
    let lengths: Vec<usize> = (0..sequences.len()).map(|s| sequences.rows(s).len()).collect();
    let weights = sequences.weights();
    let chain = MarkovChain { emissions, offsets, start, transitions, lengths: &lengths, weights };
    device.expectations(&chain)
}

impl From<MarkovSums> for Expectations {
    fn from(MarkovSums { start, transitions, statistics, .. }: MarkovSums) -> Self {
        Self { log_likelihood: statistics.log_likelihood(), start, transitions, statistics }
    }
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
        let boundaries = (0..sequences.len()).into_par_iter().map(|sequence| {
            let rows = sequences.rows(sequence);
            if rows.len() <= self.chunk {
                return Ok(None);
            }
            let found = Boundaries::new(self.chain, sequences.samples(), &rows, self.chunk, &interrupt)?;
            self.check(sequence, if found.is_some() { 0.0 } else { f64::NEG_INFINITY })?;
            Ok(found)
        });
        let boundaries: Vec<Option<Boundaries>> = boundaries.collect::<Result<_>>()?;
        let mut posteriors = match self.wanted {
            Wanted::Posteriors => {
                let shape = [n_samples, k];
                gmm_host::memory::check("the probabilities of the states", &shape, 8, "take fewer rows at a time")?;
                Array2::zeros((n_samples, k))
            }
            _ => Array2::zeros((0, k)),
        };
        let mut scores = vec![0.0; sequences.len()];
        let last = vec![0.0; k];
        let segments = self.segments(&boundaries, &last, &mut scores);
        let mut rest = posteriors.as_slice_mut().unwrap_or_default();
        let mut row = 0;
        let mut slots: Vec<Mutex<&mut [f64]>> = Vec::new();
        for segment in &segments {
            let _ = rest.split_off_mut(..(segment.rows.start - row) * k);
            slots.push(Mutex::new(rest.split_off_mut(..segment.rows.len() * k).unwrap_or_default()));
            row = segment.rows.end;
        }
        let mut total: Option<Sums<'p>> = None;
        // So many at a time that their sums fit into 256 MB.
        let at_once = match self.wanted {
            Wanted::Sums(centres) => {
                let form = self.chain.emissions.mixture.covariance_type();
                ((1 << 25) / (Moments::size(centres, form) + k * k)).clamp(4, 1 << 12)
            }
            _ => 1 << 12,
        };
        let (order, units) = units(&segments);
        for units in units.chunks(at_once) {
            let of_units = units.par_iter().map_init(Room::default, |room, unit| {
                interrupt.check()?;
                let mut results = (Vec::new(), self.no_sums());
                for numbers in unit {
                    let of_pieces = &order[numbers.clone()];
                    match of_pieces.len() {
                        1 => self.side_by_side::<1>(&segments, of_pieces, room, &slots, &mut results)?,
                        _ => self.side_by_side::<SIDE_BY_SIDE>(&segments, of_pieces, room, &slots, &mut results)?,
                    }
                }
                if let Some(sums) = &mut results.1 {
                    sums.moments.add_up();
                }
                Ok(results)
            });
            let of_units: Vec<OfUnit<'p>> = of_units.collect::<Result<_>>()?;
            for (of_unit, sums) in of_units {
                of_unit.into_iter().for_each(|(sequence, score)| scores[sequence] += score);
                match (&mut total, sums) {
                    (Some(total), Some(sums)) => total.merge(&sums),
                    (total, sums) => *total = total.take().or(sums),
                }
            }
        }
        if posteriors.nrows() > 0 {
            for s in (0..sequences.len()).filter(|s| scores[*s] == f64::NEG_INFINITY) {
                posteriors.slice_mut(s![sequences.rows(s), ..]).fill(0.0);
            }
        }
        let sums = total.map(|total| self.finish(total, &scores));
        Ok(Results { scores, posteriors, sums })
    }

    /// Returns the segments in the order of their rows, without those of sequences whose probability is known to be 0.
    fn segments<'a>(
        &self,
        boundaries: &'a [Option<Boundaries>],
        last: &'a [f64],
        scores: &mut [f64],
    ) -> Vec<Segment<'a>> {
        let mut segments = Vec::new();
        for (sequence, boundaries) in boundaries.iter().enumerate() {
            let rows = self.sequences.rows(sequence);
            match boundaries {
                Some(Boundaries { entries, exits }) => {
                    let entries = std::iter::once(None).chain(entries.iter().map(|entry| Some(&entry[..])));
                    for ((rows, entry), exit) in chunks(&rows, self.chunk).zip(entries).zip(exits) {
                        segments.push(Segment { sequence, rows, ends: Ends { entry, exit } });
                    }
                }
                None if rows.len() > self.chunk => scores[sequence] = f64::NEG_INFINITY,
                None => segments.push(Segment { sequence, rows, ends: Ends { entry: None, exit: last } }),
            }
        }
        segments
    }

    /// Computes the results of up to L segments side by side, and adds their log p, and their sums, to `results`.
    fn side_by_side<const L: usize>(
        &self,
        segments: &[Segment<'_>],
        numbers: &[usize],
        room: &mut Room,
        posteriors: &[Mutex<&mut [f64]>],
        (scores, sums): &mut OfUnit<'p>,
    ) -> Result<()> {
        let (k, samples) = (self.chain.n_states(), self.sequences.samples());
        let rows: Vec<Range<usize>> = numbers.iter().map(|s| segments[*s].rows.clone()).collect();
        let piece = |s: &usize| {
            let Segment { sequence, rows, ends } = &segments[*s];
            let weight = if sums.is_some() { self.sequences.weight(*sequence) } else { 1.0 };
            Piece { rows: rows.clone(), ends: *ends, weight }
        };
        let pieces: Vec<Piece<'_>> = numbers.iter().map(piece).collect();
        room.load::<L>(self.chain, samples, &rows);
        let logs: [f64; L] = room.forward(self.chain, samples, &pieces);
        for (s, log) in numbers.iter().zip(logs) {
            self.check(segments[*s].sequence, log)?;
            scores.push((segments[*s].sequence, log));
        }
        if matches!(self.wanted, Wanted::Scores) {
            return Ok(());
        }
        room.backward(self.chain, &pieces, &logs);
        let Some(sums) = sums else {
            for (l, s) in numbers.iter().enumerate() {
                let mut out = posteriors[*s].lock().unwrap_or_else(PoisonError::into_inner);
                for (t, out) in out.chunks_exact_mut(k).enumerate() {
                    out.iter_mut().zip(room.gamma::<L>(k, l, t)).for_each(|(out, v)| *out = v);
                }
            }
            return Ok(());
        };
        for (l, piece) in pieces.iter().enumerate() {
            if piece.ends.entry.is_none() {
                sums.start.iter_mut().zip(room.gamma::<L>(k, l, 0)).for_each(|(sum, v)| *sum += v);
            }
            sums.weight += piece.weight * piece.rows.len() as f64;
        }
        let (pairs, counts) = room.pairs();
        sums.pairs.iter_mut().zip(pairs).for_each(|(sums, v)| *sums += sum(v));
        sums.counts.iter_mut().zip(counts).for_each(|(sum, v)| *sum += v);
        let (rows, r) = room.responsibilities(self.chain);
        sums.moments.add(self.chain.emissions.mixture, samples, rows, r)
    }

    fn no_sums(&self) -> Option<Sums<'p>> {
        let Wanted::Sums(centres) = self.wanted else { return None };
        let Chain { transitions, emissions, .. } = self.chain;
        let k = transitions.n_states;
        let moments = Moments::new(centres, emissions.mixture.covariance_type());
        let (start, pairs, counts) = (vec![0.0; k], vec![0.0; k * k], vec![0.0; k * k]);
        Some(Sums { log_likelihood: 0.0, weight: 0.0, start, pairs, counts, moments })
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
        let pair = |(i, j)| match transitions.forward[i * stride + j] {
            0.0 => 0.0,
            probability => probability * total.pairs[i * k + j] + total.counts[i * k + j],
        };
        let pairs = Array2::from_shape_fn((k, k), pair);
        (total.moments.into_sums(total.weight, total.log_likelihood), total.start.into(), pairs)
    }
}

impl Sums<'_> {
    fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.start.iter_mut().zip(&other.start).for_each(|(sum, v)| *sum += v);
        self.pairs.iter_mut().zip(&other.pairs).for_each(|(sum, v)| *sum += v);
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, v)| *sum += v);
        self.moments.merge(&other.moments);
    }
}

/// Returns the segments' numbers from the longest to the shortest, and the units: neighbours in this order that have
/// [`UNIT`] rows, side by side if their lengths are similar, so that no thread computes much for missing rows.
fn units(segments: &[Segment<'_>]) -> (Vec<usize>, Vec<Unit>) {
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|s| std::cmp::Reverse(segments[*s].rows.len()));
    let (mut units, mut unit, mut n_rows, mut first) = (Vec::new(), Unit::new(), 0, 0);
    while first < order.len() {
        let together = &order[first..order.len().min(first + SIDE_BY_SIDE)];
        let rows: usize = together.iter().map(|s| segments[*s].rows.len()).sum();
        let longest = segments[together[0]].rows.len();
        let n = if 3 * rows >= SIDE_BY_SIDE * longest { together.len() } else { 1 };
        unit.push(first..first + n);
        n_rows += if n > 1 { rows } else { longest };
        first += n;
        if n_rows >= UNIT || first == order.len() {
            units.push(std::mem::take(&mut unit));
            n_rows = 0;
        }
    }
    (order, units)
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
