//! A chunk of the rows of one sequence, and the probabilities at its ends.
use crate::emissions::Emissions;
use crate::lattice::{self, Backward, Transitions};
use crate::logs;
use gmm_host::linalg::vectorised;
use gmm_host::{Interrupt, Result, Samples};
use rayon::prelude::*;
use std::ops::Range;

/// The rows of a chunk: its results stay in a core's cache.
pub(crate) const CHUNK: usize = 1024;

/// The number of states up to which the chunks of a long sequence are joined by matrices (K, K), one for each chunk:
/// K times the work of one pass over the rows, but all chunks at once.
const FEW_STATES: usize = 8;

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

/// The arrays of one chunk after another.
#[derive(Default)]
pub(crate) struct Room {
    /// log densities of the components, or their responsibilities (rows, K·M).
    components: Vec<f64>,
    /// log densities of the states (rows, stride), with −∞ after the last.
    logs: Vec<f64>,
    /// e^(logs − the row's largest) (rows, stride).
    scaled: Vec<f64>,
    /// The largest log density of each row.
    largest: Vec<f64>,
    /// p(state | rows so far), or its logarithm if not `is_scaled`; after `backward` p(state | all rows) (rows, stride).
    alpha: Vec<f64>,
    /// Σ p(i, j | rows) / aᵢⱼ (K, stride).
    pairs: Vec<f64>,
    is_scaled: bool,
}

impl Room {
    /// Computes the densities of rows.
    pub fn load(&mut self, chain: &Chain<'_>, samples: &Samples<'_>, rows: Range<usize>) {
        let (n, stride) = (rows.len(), chain.transitions.stride);
        self.components.resize(n * chain.emissions.n_components(), 0.0);
        self.logs.resize(n * stride, f64::NEG_INFINITY);
        self.largest.resize(n, 0.0);
        self.alpha.resize(n * stride, 0.0);
        chain.emissions.components(samples, rows, &mut self.components);
        chain.emissions.states(&self.components, stride, &mut self.logs);
        if chain.transitions.can_be_scaled() {
            self.scaled.resize(n * stride, 0.0);
            let Self { logs, scaled, largest, .. } = self;
            vectorised(
                #[inline(always)]
                || lattice::exponentials(logs, stride, scaled, largest),
            );
        }
    }

    /// Returns log p(rows), given the log probabilities of the states in the first row (K,).
    pub fn forward(&mut self, chain: &Chain<'_>, prior: &[f64]) -> f64 {
        let transitions = &chain.transitions;
        let Self { logs, scaled, largest, alpha, .. } = self;
        let first: Vec<f64> = prior.iter().zip(&*logs).map(|(prior, log)| prior + log).collect();
        if transitions.can_be_scaled() {
            let total = vectorised(
                #[inline(always)]
                || lattice::forward(transitions, &first, scaled, alpha),
            );
            if let Some(total) = total {
                self.is_scaled = true;
                return total + largest[1..].iter().sum::<f64>();
            }
        }
        self.is_scaled = false;
        logs::forward(transitions, &first, logs, alpha)
    }

    /// Returns log p(state | rows so far) of the last row (K,), after `forward`.
    pub fn last(&self, chain: &Chain<'_>) -> Vec<f64> {
        let stride = chain.transitions.stride;
        let row = &self.alpha[self.alpha.len() - stride..][..chain.n_states()];
        row.iter().map(|v| if self.is_scaled { v.ln() } else { *v }).collect()
    }

    /// Computes p(state | all rows) after `forward` from `prior`. `ends` has the log probabilities at the chunk's ends.
    pub fn backward(&mut self, chain: &Chain<'_>, prior: &[f64], ends: Ends<'_>, weight: f64) {
        let transitions = &chain.transitions;
        let (k, stride) = (transitions.n_states, transitions.stride);
        self.pairs.clear();
        self.pairs.resize(k * stride, 0.0);
        let mut beta = vec![0.0; stride];
        if self.is_scaled {
            lattice::shares(ends.exit, &mut beta[..k]);
            let entry = ends.entry.map(|entry| {
                let mut shares = vec![0.0; stride];
                lattice::shares(entry, &mut shares[..k]);
                shares
            });
            let Self { scaled, alpha, pairs, .. } = self;
            let mut sums = Backward { weight, entry: entry.as_deref(), pairs };
            let done = vectorised(
                #[inline(always)]
                || lattice::backward(transitions, &mut beta, scaled, alpha, &mut sums),
            );
            if done.is_some() && (transitions.are_all_possible() || representable(&ends, k)) {
                return;
            }
            self.pairs.fill(0.0);
            self.is_scaled = false;
            let first: Vec<f64> = prior.iter().zip(&self.logs).map(|(prior, log)| prior + log).collect();
            logs::forward(transitions, &first, &self.logs, &mut self.alpha);
        }
        beta[..k].copy_from_slice(ends.exit);
        let mut sums = Backward { weight, entry: ends.entry, pairs: &mut self.pairs };
        logs::backward(transitions, &mut beta, &self.logs, &mut self.alpha, &mut sums);
    }

    /// Returns log p(these and later rows | state of the row before) up to a constant (K,), given the same of the next
    /// chunk.
    fn only_back(&self, chain: &Chain<'_>, exit: &[f64]) -> Vec<f64> {
        let transitions = &chain.transitions;
        let k = transitions.n_states;
        let mut beta = vec![0.0; transitions.stride];
        let is_narrow = transitions.are_all_possible() || representable(&Ends { entry: None, exit }, k);
        if transitions.can_be_scaled() && is_narrow {
            lattice::shares(exit, &mut beta[..k]);
            let done = vectorised(
                #[inline(always)]
                || lattice::only_back(transitions, &mut beta, &self.scaled),
            );
            if done.is_some() {
                return beta[..k].iter().map(|v| v.ln()).collect();
            }
        }
        beta[..k].copy_from_slice(exit);
        logs::only_back(transitions, &mut beta, &self.logs);
        beta.truncate(k);
        beta
    }

    /// Returns p(state | all rows) (rows, stride), after `backward`.
    pub fn gamma(&self) -> &[f64] {
        &self.alpha
    }

    /// Returns Σ p(i, j | rows) / aᵢⱼ (K, stride), after `backward`.
    pub fn pairs(&self) -> &[f64] {
        &self.pairs
    }

    /// Returns p(component | all rows) (rows, K·M), after `backward`.
    pub fn responsibilities(&mut self, chain: &Chain<'_>) -> &[f64] {
        let stride = chain.transitions.stride;
        chain.emissions.responsibilities(&mut self.components, &self.logs, &self.alpha, stride);
        &self.components
    }
}

/// Whether the probabilities at the ends of a chunk differ by less than the range of scaled numbers.
fn representable(ends: &Ends<'_>, k: usize) -> bool {
    const RANGE: f64 = 300.0;
    let narrow = |logs: &[f64]| {
        let most = logs[..k].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs[..k].iter().all(|v| *v == f64::NEG_INFINITY || most - v < RANGE)
    };
    narrow(ends.exit) && ends.entry.is_none_or(narrow)
}

/// Log probabilities at the ends of a chunk, up to a constant.
pub(crate) struct Ends<'a> {
    /// log p(state | rows so far) of the row before the first (K,).
    pub entry: Option<&'a [f64]>,
    /// log p(later rows | state) of the last row (K,).
    pub exit: &'a [f64],
}

/// The log probabilities between the chunks of a sequence.
pub(crate) struct Boundaries {
    pub log_likelihood: f64,
    /// log p(state | rows so far) of the last row of each chunk (K,).
    pub entries: Vec<Vec<f64>>,
    /// log p(later rows | state) of the last row of each chunk (K,).
    pub exits: Vec<Vec<f64>>,
}

impl Boundaries {
    /// Computes them for the `rows` of a sequence, without exits unless `both`. `alone` is a sequence with a good part
    /// of all rows.
    pub fn new(
        chain: &Chain<'_>,
        samples: &Samples<'_>,
        rows: &Range<usize>,
        chunk: usize,
        alone: bool,
        both: bool,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let chunks: Vec<Range<usize>> = chunks(rows, chunk).collect();
        if alone && chain.n_states() <= FEW_STATES {
            return Self::by_matrices(chain, samples, &chunks, interrupt);
        }
        let onwards = || {
            let (mut room, mut total, mut entries) = (Room::default(), 0.0, Vec::new());
            let mut prior = chain.start.clone();
            for rows in &chunks {
                interrupt.check()?;
                room.load(chain, samples, rows.clone());
                total += room.forward(chain, &prior);
                if total == f64::NEG_INFINITY {
                    break;
                }
                let last = room.last(chain);
                prior = logs::predict(&chain.transitions, &last);
                entries.push(last);
            }
            Result::Ok((total, entries))
        };
        let backwards = || {
            let (mut room, mut exits) = (Room::default(), vec![vec![0.0; chain.n_states()]]);
            for rows in chunks.iter().skip(usize::from(both)).rev().filter(|_| both) {
                interrupt.check()?;
                room.load(chain, samples, rows.clone());
                let exit = room.only_back(chain, &exits[exits.len() - 1]);
                exits.push(exit);
            }
            exits.reverse();
            Result::Ok(exits)
        };
        let (onwards, exits) = rayon::join(onwards, backwards);
        let (log_likelihood, entries) = onwards?;
        Ok(Self { log_likelihood, entries, exits: exits? })
    }

    /// As [`new`](Self::new), by log p(rows, last state | state before) of each chunk.
    fn by_matrices(
        chain: &Chain<'_>,
        samples: &Samples<'_>,
        chunks: &[Range<usize>],
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let k = chain.n_states();
        let from = |room: &mut Room, prior: &[f64]| {
            let total = room.forward(chain, prior);
            let row = if total == f64::NEG_INFINITY { vec![total; k] } else { room.last(chain) };
            row.into_iter().map(|v| v + total).collect::<Vec<f64>>()
        };
        let matrix = |room: &mut Room, (c, rows): (usize, &Range<usize>)| {
            interrupt.check()?;
            room.load(chain, samples, rows.clone());
            let stride = chain.transitions.stride;
            Ok(match c {
                0 => vec![from(room, &chain.start)],
                _ => chain.transitions.logs.chunks_exact(stride).map(|row| from(room, &row[..k])).collect(),
            })
        };
        let matrices: Vec<Vec<Vec<f64>>> =
            chunks.par_iter().enumerate().map_init(Room::default, |room, c| matrix(room, c)).collect::<Result<_>>()?;
        let (mut total, mut entries) = (0.0, Vec::new());
        let mut last = vec![0.0];
        for matrix in &matrices {
            let to = |j: usize| logs::log_sum(last.iter().zip(matrix).map(|(last, row)| last + row[j]));
            let mut next: Vec<f64> = (0..k).map(to).collect();
            let log = logs::log_sum(next.iter().copied());
            total += log;
            if log == f64::NEG_INFINITY {
                break;
            }
            next.iter_mut().for_each(|v| *v -= log);
            entries.push(next.clone());
            last = next;
        }
        let mut exits = vec![vec![0.0; k]];
        for matrix in matrices[1..].iter().rev() {
            let later = &exits[exits.len() - 1];
            let of_row = |row: &Vec<f64>| logs::log_sum(row.iter().zip(later).map(|(v, later)| v + later));
            let mut exit: Vec<f64> = matrix.iter().map(of_row).collect();
            let most = exit.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if most > f64::NEG_INFINITY {
                exit.iter_mut().for_each(|v| *v -= most);
            }
            exits.push(exit);
        }
        exits.reverse();
        Ok(Self { log_likelihood: total, entries, exits })
    }
}

/// Returns the chunks of a sequence.
pub(crate) fn chunks(rows: &Range<usize>, chunk: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = rows.end;
    rows.clone().step_by(chunk).map(move |start| start..end.min(start + chunk))
}
