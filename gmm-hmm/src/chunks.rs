//! Pieces of sequences side by side, and the probabilities at their ends.
use crate::emissions::Emissions;
use crate::lattice::{self, Backward, PARTS, Transitions};
use crate::logs;
use crate::tile::{LANES, Lanes, NO_ROW};
use gmm_host::linalg::vectorised;
use gmm_host::{Interrupt, Result, Samples};
use rayon::prelude::*;
use std::ops::Range;

/// The rows of a chunk.
pub(crate) const CHUNK: usize = 1024;

/// Tiles whose densities are computed at once.
pub(crate) const BLOCK: usize = 32;

/// The number of states up to which the ends of chunks are sought in the rows around them, with K times the work of
/// the recursions over these rows.
const FEW_STATES: usize = 64;

/// The largest relative difference between the rows of a matrix of rank one. Further rows never make it larger
/// (Birkhoff 1957).
const RANK_ONE: f64 = 1e-14;

/// The numbers of an E-step. Start and transitions may sum to less than one.
pub(crate) struct Chain<'a> {
    /// log π (K,).
    pub start: Vec<f64>,
    pub transitions: Transitions,
    pub emissions: Emissions<'a>,
}

impl Chain<'_> {
    pub fn n_states(&self) -> usize {
        self.transitions.n_states
    }
}

/// A part of a sequence: all of it, or a chunk.
pub(crate) struct Piece<'a> {
    pub rows: Range<usize>,
    pub ends: Ends<'a>,
    /// Multiplied with its results.
    pub weight: f64,
}

/// The arrays of some pieces side by side: tiles of [`LANES`] numbers, as [`lattice`] has them.
#[derive(Default)]
pub(crate) struct Room {
    /// The rows of the tiles.
    rows: Vec<usize>,
    /// p(component | state), or the components' responsibilities (tiles, K·M), if M > 1.
    components: Vec<Lanes>,
    /// e^(log density of the state − the row's largest) (tiles, K).
    scaled: Vec<Lanes>,
    /// The largest log density of each row (tiles,).
    largest: Vec<Lanes>,
    /// p(state | rows so far); after `backward` p(state | all rows) times the weight (tiles, K).
    alpha: Vec<Lanes>,
    /// Σ p(i, j | rows) / aᵢⱼ, in parts (K, K).
    pairs: Vec<[f64; PARTS]>,
    /// Σ p(i, j | rows) of the pieces in logarithms, whose aᵢⱼ may be too small to divide by (K, K).
    counts: Vec<f64>,
    /// The places of pieces whose scaled probabilities underflow, with their log densities and log p(state | rows so
    /// far) (rows, stride).
    in_logs: Vec<(usize, Vec<f64>, Vec<f64>)>,
}

impl Room {
    /// Computes the densities of up to L pieces.
    pub fn load<const L: usize>(&mut self, chain: &Chain<'_>, samples: &Samples<'_>, pieces: &[Range<usize>]) {
        let longest = pieces.iter().map(Range::len).max().unwrap_or_default();
        let n_tiles = (longest * L).div_ceil(LANES);
        let row =
            |i: usize| pieces.get(i % L).filter(|rows| i / L < rows.len()).map_or(NO_ROW, |rows| rows.start + i / L);
        self.rows.clear();
        self.rows.extend((0..n_tiles * LANES).map(row));
        let (k, n) = (chain.n_states(), chain.emissions.n_components());
        self.scaled.resize(n_tiles * k, [0.0; LANES]);
        self.alpha.resize(n_tiles * k, [0.0; LANES]);
        self.largest.resize(n_tiles, [0.0; LANES]);
        self.components.resize(if n > k { n_tiles * n } else { 0 }, [0.0; LANES]);
        let blocks = self.rows.chunks(BLOCK * LANES).zip(self.scaled.chunks_mut(BLOCK * k));
        let mut components = self.components.chunks_mut(BLOCK * n);
        for ((rows, scaled), largest) in blocks.zip(self.largest.chunks_mut(BLOCK)) {
            let mut components = components.next();
            chain.emissions.components(samples, rows, components.as_deref_mut().unwrap_or(&mut *scaled));
            vectorised(
                #[inline(always)]
                || {
                    for (tile, (scaled, largest)) in scaled.chunks_exact_mut(k).zip(largest).enumerate() {
                        if let Some(components) = &mut components {
                            chain.emissions.states(&mut components[tile * n..][..n], scaled);
                        }
                        *largest = lattice::exponentials(scaled);
                    }
                },
            );
        }
    }

    /// Returns log p(rows) of each piece that is loaded.
    pub fn forward<const L: usize>(
        &mut self,
        chain: &Chain<'_>,
        samples: &Samples<'_>,
        pieces: &[Piece<'_>],
    ) -> [f64; L] {
        let transitions = &chain.transitions;
        let (k, stride) = (chain.n_states(), transitions.stride);
        let mut row = vec![[1.0 / k as f64; L]; k];
        let (mut lengths, mut wide) = ([0; L], [false; L]);
        for (l, piece) in pieces.iter().enumerate() {
            lengths[l] = piece.rows.len();
            wide[l] = !transitions.can_be_scaled() || !transitions.are_all_possible() && !piece.ends.representable();
            row.iter_mut().zip(piece.prior(chain)).for_each(|(row, prior)| row[l] = prior.exp());
        }
        let Self { scaled, largest, alpha, in_logs, .. } = self;
        let (mut logs, lost) = vectorised(
            #[inline(always)]
            || lattice::forward(transitions, &lengths, &mut row, scaled, alpha),
        );
        in_logs.clear();
        for (l, piece) in pieces.iter().enumerate() {
            if lost[l] || wide[l] {
                let n = piece.rows.len();
                let (mut densities, mut alpha) = (vec![f64::NEG_INFINITY; n * stride], vec![0.0; n * stride]);
                chain.emissions.logs(samples, piece.rows.clone(), stride, &mut densities);
                let first: Vec<f64> =
                    piece.prior(chain).iter().zip(&densities).map(|(prior, log)| prior + log).collect();
                logs[l] = logs::forward(transitions, &first, &densities, &mut alpha);
                in_logs.push((l, densities, alpha));
            } else {
                logs[l] += (0..piece.rows.len()).map(|t| largest[t * L / LANES][t * L % LANES + l]).sum::<f64>();
            }
        }
        logs
    }

    /// Returns log p(state | rows so far) of the last row of a piece alone (K,), after `forward`.
    fn last(&self, chain: &Chain<'_>, n: usize) -> Vec<f64> {
        let (k, stride) = (chain.n_states(), chain.transitions.stride);
        match self.in_logs.first() {
            Some((_, _, alpha)) => alpha[(n - 1) * stride..][..k].to_vec(),
            None => (0..k).map(|i| self.alpha[(n - 1) / LANES * k + i][(n - 1) % LANES].ln()).collect(),
        }
    }

    /// Computes p(state | all rows) after `forward`, which returned `logs`. A piece of probability 0 has zeros.
    pub fn backward<const L: usize>(&mut self, chain: &Chain<'_>, pieces: &[Piece<'_>], logs: &[f64; L]) {
        let transitions = &chain.transitions;
        let (k, stride) = (chain.n_states(), transitions.stride);
        let (mut lengths, mut weights) = ([0; L], [0.0; L]);
        let (mut entry, mut exit) = (vec![[0.0; L]; k], vec![[0.0; L]; k]);
        for (l, piece) in pieces.iter().enumerate() {
            weights[l] = piece.weight;
            // A sequence without weight may be impossible; then the ends of its chunks are not probabilities.
            if piece.weight == 0.0 || self.in_logs.iter().any(|(lane, ..)| *lane == l) {
                continue;
            }
            lengths[l] = piece.rows.len();
            for (logs, to) in [(piece.ends.entry, &mut entry), (Some(piece.ends.exit), &mut exit)] {
                let mut of_piece = vec![0.0; k];
                lattice::shares(logs.unwrap_or_default(), &mut of_piece);
                to.iter_mut().zip(of_piece).for_each(|(to, v)| to[l] = v);
            }
        }
        self.pairs.clear();
        self.pairs.resize(k * k, [0.0; PARTS]);
        self.counts.clear();
        self.counts.resize(k * k, 0.0);
        let Self { scaled, alpha, pairs, counts, in_logs, .. } = self;
        let mut sums = Backward { lengths, weights, entry: &entry, exit: &exit, pairs };
        vectorised(
            #[inline(always)]
            || lattice::backward(transitions, scaled, alpha, &mut sums),
        );
        let possible = |l: usize| logs[l] > f64::NEG_INFINITY && pieces[l].weight > 0.0;
        for (l, densities, of_piece) in in_logs.iter_mut().filter(|(l, ..)| possible(*l)) {
            let piece = &pieces[*l];
            let (mut beta, mut of_pairs) = (vec![0.0; stride], vec![0.0; k * stride]);
            beta[..k].copy_from_slice(piece.ends.exit);
            logs::backward(transitions, &mut beta, densities, of_piece, piece.ends.entry, &mut of_pairs);
            for (counts, of_pairs) in counts.chunks_exact_mut(k).zip(of_pairs.chunks_exact(stride)) {
                counts.iter_mut().zip(of_pairs).for_each(|(count, v)| *count += piece.weight * v);
            }
            for (t, gamma) in of_piece.chunks_exact(stride).enumerate() {
                let tile = &mut alpha[t * L / LANES * k..][..k];
                tile.iter_mut().zip(gamma).for_each(|(tile, v)| tile[t * L % LANES + *l] = piece.weight * v);
            }
        }
    }

    /// Returns the probabilities of the states in row t of the piece in place l, after `backward`.
    pub fn gamma<const L: usize>(&self, k: usize, l: usize, t: usize) -> impl Iterator<Item = f64> {
        self.alpha[t * L / LANES * k..][..k].iter().map(move |tile| tile[t * L % LANES + l])
    }

    /// Returns Σ p(i, j | rows) / aᵢⱼ in parts (K, K) and, of other pieces, Σ p(i, j | rows) (K, K), after `backward`.
    pub fn pairs(&self) -> (&[[f64; PARTS]], &[f64]) {
        (&self.pairs, &self.counts)
    }

    /// Returns the rows of the tiles, and p(component | all rows) (tiles, K·M), after `backward`.
    pub fn responsibilities(&mut self, chain: &Chain<'_>) -> (&[usize], &[Lanes]) {
        let (k, n) = (chain.n_states(), chain.emissions.n_components());
        if n == k {
            return (&self.rows, &self.alpha);
        }
        for (of_state, gamma) in self.components.chunks_exact_mut(n / k).zip(&self.alpha) {
            for v in of_state {
                v.iter_mut().zip(gamma).for_each(|(v, gamma)| *v *= gamma);
            }
        }
        (&self.rows, &self.components)
    }

    /// Returns log p(these and later rows | state of the row before) of loaded `rows` up to a constant (K,), given the
    /// same of the next chunk.
    fn only_back(&self, chain: &Chain<'_>, samples: &Samples<'_>, rows: &Range<usize>, exit: &[f64]) -> Vec<f64> {
        let transitions = &chain.transitions;
        let (k, stride) = (transitions.n_states, transitions.stride);
        let mut beta = vec![0.0; stride];
        let is_narrow = transitions.are_all_possible() || Ends { entry: None, exit }.representable();
        if transitions.can_be_scaled() && is_narrow {
            lattice::shares(exit, &mut beta[..k]);
            let done = vectorised(
                #[inline(always)]
                || lattice::only_back(transitions, beta[..k].as_chunks_mut::<1>().0, &self.scaled, rows.len()),
            );
            if done.is_some() {
                return beta[..k].iter().map(|v| v.ln()).collect();
            }
        }
        let mut densities = vec![f64::NEG_INFINITY; rows.len() * stride];
        chain.emissions.logs(samples, rows.clone(), stride, &mut densities);
        beta[..k].copy_from_slice(exit);
        logs::only_back(transitions, &mut beta, &densities);
        beta.truncate(k);
        beta
    }

    /// Returns the log probabilities at the end of row `at` − 1 of a sequence, as [`Ends`] of the pieces before and
    /// after, if `width` rows on either side determine them: the rows' matrix (K, K) of p(rows, last state | state
    /// before) is then of rank one, in the precision of its numbers, and whatever precedes it does not matter.
    fn between(
        &mut self,
        chain: &Chain<'_>,
        samples: &Samples<'_>,
        of_sequence: &Range<usize>,
        at: usize,
        width: usize,
    ) -> Option<(Vec<f64>, Vec<f64>)> {
        let rows = of_sequence.start.max(at.saturating_sub(width))..of_sequence.end.min(at + width);
        let first = at - rows.start;
        self.load::<1>(chain, samples, std::slice::from_ref(&rows));
        let (_, before, equal) = self.matrix(chain, 0..first, rows.start == of_sequence.start)?;
        let (after, _, equal_after) = self.matrix(chain, first..rows.len(), false)?;
        let known = equal && (equal_after || rows.end == of_sequence.end);
        known.then(|| (before.iter().map(|v| v.ln()).collect(), after))
    }

    /// Returns log p(rows | state before) (K,) without the rows' largest densities, p(last state | rows) (K,) and
    /// whether the state before does not change the latter. It is the start of the sequence if `at_start`.
    fn matrix(&self, chain: &Chain<'_>, rows: Range<usize>, at_start: bool) -> Option<(Vec<f64>, Vec<f64>, bool)> {
        const L: usize = PARTS;
        let transitions = &chain.transitions;
        let (k, last) = (chain.n_states(), (rows.len() - 1) * L);
        let n_tiles = (rows.len() * L).div_ceil(LANES);
        let (mut totals, mut of_last, mut equal) = (Vec::new(), Vec::new(), true);
        let (mut scaled, mut alpha) = (vec![[0.0; LANES]; n_tiles * k], vec![[0.0; LANES]; n_tiles * k]);
        let start: Vec<f64> = chain.start.iter().map(|v| v.exp()).collect();
        for first in (0..if at_start { 1 } else { k }).step_by(L) {
            for t in 0..rows.len() {
                let (from, to) = (rows.start + t, t * L);
                let states = self.scaled[from / LANES * k..].iter().zip(&mut scaled[to / LANES * k..]).take(k);
                states.for_each(|(from_tile, tile)| tile[to % LANES..][..L].fill(from_tile[from % LANES]));
            }
            let n_states = if at_start { 1 } else { L.min(k - first) };
            let mut lengths = [0; L];
            lengths[..n_states].fill(rows.len());
            let of_state =
                |l: usize| if at_start { &start[..] } else { &transitions.forward[(first + l) * transitions.stride..] };
            let mut row: Vec<[f64; L]> =
                (0..k).map(|j| std::array::from_fn(|l| if l < n_states { of_state(l)[j] } else { 1.0 })).collect();
            let (logs, lost) = vectorised(
                #[inline(always)]
                || lattice::forward(transitions, &lengths, &mut row, &mut scaled, &mut alpha),
            );
            if lost.contains(&true) {
                return None;
            }
            totals.extend(&logs[..n_states]);
            let of_tile = || alpha[last / LANES * k..].iter().take(k);
            if first == 0 {
                of_last = of_tile().map(|tile| tile[last % LANES]).collect();
            }
            equal &= of_tile().zip(&of_last).all(|(tile, v)| {
                tile[last % LANES..][..n_states].iter().all(|other| (other - v).abs() <= RANK_ONE * v)
            });
        }
        Some((totals, of_last, equal))
    }
}

impl Piece<'_> {
    /// Returns the log probabilities of the states in the first row (K,).
    fn prior(&self, chain: &Chain<'_>) -> Vec<f64> {
        self.ends.entry.map_or_else(|| chain.start.clone(), |entry| logs::predict(&chain.transitions, entry))
    }
}

/// Log probabilities at the ends of a chunk, up to a constant.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// log p(state | rows so far) of the row before the first (K,).
    pub entry: Option<&'a [f64]>,
    /// log p(later rows | state) of the last row (K,).
    pub exit: &'a [f64],
}

impl Ends<'_> {
    /// Whether the probabilities differ by less than the range of scaled numbers.
    fn representable(&self) -> bool {
        const RANGE: f64 = 300.0;
        let narrow = |logs: &[f64]| {
            let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            logs.iter().all(|v| *v == f64::NEG_INFINITY || most - v < RANGE)
        };
        narrow(self.exit) && self.entry.is_none_or(narrow)
    }
}

/// The log probabilities between the chunks of a sequence.
pub(crate) struct Boundaries {
    /// log p(state | rows so far) of the last row of each chunk but the last (K,).
    pub entries: Vec<Vec<f64>>,
    /// log p(later rows | state) of the last row of each chunk (K,).
    pub exits: Vec<Vec<f64>>,
}

impl Boundaries {
    /// Computes them for the `rows` of a sequence: from some rows around each where these determine them, and from the
    /// whole chunks, one after another, where not. Returns `None` for a sequence of probability 0, unless its chunks show that.
    pub fn new(
        chain: &Chain<'_>,
        samples: &Samples<'_>,
        rows: &Range<usize>,
        chunk: usize,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>> {
        let k = chain.n_states();
        let chunks: Vec<Range<usize>> = chunks(rows, chunk).collect();
        let widths: &[usize] = if k <= PARTS { &[16, 64, 256] } else { &[16] };
        let between = |room: &mut Room, chunk: &Range<usize>| {
            interrupt.check()?;
            Result::Ok(widths.iter().find_map(|width| room.between(chain, samples, rows, chunk.start, *width)))
        };
        let between =
            |chunks: &[Range<usize>]| chunks.par_iter().map_init(Room::default, between).collect::<Result<Vec<_>>>();
        let mut known = vec![None; chunks.len() - 1];
        if k <= FEW_STATES && chain.transitions.can_be_scaled() {
            // Where none of the first is determined, the others probably are not.
            let first = between(&chunks[1..][..known.len().min(4)])?;
            if first.iter().any(Option::is_some) {
                known = between(&chunks[1..])?;
            }
        }
        let onwards = || {
            let (mut room, mut entries) = (Room::default(), Vec::<Vec<f64>>::new());
            let exit = vec![0.0; k];
            for (rows, known) in chunks.iter().zip(&known) {
                interrupt.check()?;
                if let Some((entry, _)) = known {
                    entries.push(entry.clone());
                    continue;
                }
                room.load::<1>(chain, samples, std::slice::from_ref(rows));
                let ends = Ends { entry: entries.last().map(|entry| &entry[..]), exit: &exit };
                let piece = Piece { rows: rows.clone(), ends, weight: 1.0 };
                let [log] = room.forward::<1>(chain, samples, &[piece]);
                if log == f64::NEG_INFINITY {
                    return Ok(None);
                }
                entries.push(room.last(chain, rows.len()));
            }
            Result::Ok(Some(entries))
        };
        let backwards = || {
            let (mut room, mut exits) = (Room::default(), vec![vec![0.0; k]]);
            for (rows, known) in chunks[1..].iter().zip(&known).rev() {
                interrupt.check()?;
                let exit = match known {
                    Some((_, exit)) => exit.clone(),
                    None => {
                        room.load::<1>(chain, samples, std::slice::from_ref(rows));
                        room.only_back(chain, samples, rows, &exits[exits.len() - 1])
                    }
                };
                exits.push(exit);
            }
            exits.reverse();
            Result::Ok(exits)
        };
        let (entries, exits) = rayon::join(onwards, backwards);
        let exits = exits?;
        Ok(entries?.map(|entries| Self { entries, exits }))
    }
}

/// Returns the chunks of a sequence.
pub(crate) fn chunks(rows: &Range<usize>, chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = rows.end;
    rows.clone().step_by(chunk).map(move |start| start..end.min(start + chunk))
}
