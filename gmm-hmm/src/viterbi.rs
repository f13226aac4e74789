//! The most probable path of states (Viterbi 1967).
use crate::chunks::{CHUNK, Chain, chunks};
use crate::error::Result;
use crate::sequences::Sequences;
use gmm_host::linalg::vectorised;
use gmm_host::{Interrupt, Samples};
use rayon::prelude::*;
use std::ops::Range;

/// Rows whose densities are computed on all threads before their states.
const AHEAD: usize = 32 * CHUNK;

/// Returns the log probability of the path of each sequence and its rows (S,), and the states of all rows (N,). The
/// states of an impossible sequence are 0.
pub(crate) fn viterbi(chain: &Chain<'_>, sequences: &Sequences<'_>) -> Result<(Vec<f64>, Vec<usize>)> {
    let mut states = vec![0; sequences.samples().n_samples()];
    let mut rest = &mut states[..];
    let each: Vec<(Range<usize>, &mut [usize])> = (0..sequences.len())
        .map(|s| {
            let rows = sequences.rows(s);
            let of_sequence = rest.split_off_mut(..rows.len()).unwrap_or_default();
            (rows, of_sequence)
        })
        .collect();
    let interrupt = Interrupt::current();
    let path = |(rows, states): (Range<usize>, &mut [usize])| {
        interrupt.check()?;
        match chain.n_states() <= 1 << 8 {
            true => path::<u8>(chain, sequences.samples(), rows, states, &interrupt),
            false => path::<u32>(chain, sequences.samples(), rows, states, &interrupt),
        }
    };
    let scores = each.into_par_iter().map(path).collect::<Result<_>>()?;
    Ok((scores, states))
}

/// Returns log p(rows, states) of each sequence (S,) for the states of all rows (N,), which are below K.
pub(crate) fn of_paths(chain: &Chain<'_>, sequences: &Sequences<'_>, states: &[usize]) -> Result<Vec<f64>> {
    let (k, stride) = (chain.n_states(), chain.transitions.stride);
    let interrupt = Interrupt::current();
    let of_sequence = |s: usize| {
        let rows = sequences.rows(s);
        let (mut total, mut before) = (chain.start[states[rows.start]], None);
        for rows in chunks(&rows, CHUNK) {
            interrupt.check()?;
            let mut logs = vec![0.0; rows.len() * k];
            chain.emissions.logs(sequences.samples(), rows.clone(), k, &mut logs);
            for (state, logs) in states[rows].iter().zip(logs.chunks_exact(k)) {
                total +=
                    logs[*state] + before.map_or(0.0, |before: usize| chain.transitions.logs[before * stride + state]);
                before = Some(*state);
            }
        }
        Ok(total)
    };
    (0..sequences.len()).into_par_iter().map(of_sequence).collect()
}

/// The number of a state.
trait State: Copy + Default + Send + Into<u32> {
    fn of(state: u64) -> Self;
}

impl State for u8 {
    fn of(state: u64) -> Self {
        state as Self
    }
}

impl State for u32 {
    fn of(state: u64) -> Self {
        state as Self
    }
}

fn path<S: State>(
    chain: &Chain<'_>,
    samples: &Samples<'_>,
    rows: Range<usize>,
    states: &mut [usize],
    interrupt: &Interrupt,
) -> Result<f64> {
    let (k, stride) = (chain.n_states(), chain.transitions.stride);
    gmm_host::memory::check(
        "the predecessors of the states",
        &[rows.len(), stride],
        size_of::<S>(),
        "decode shorter sequences",
    )?;
    let mut before = vec![S::default(); rows.len() * stride];
    let mut best = vec![f64::NEG_INFINITY; stride];
    best[..k].copy_from_slice(&chain.start);
    let mut logs = vec![f64::NEG_INFINITY; AHEAD.min(rows.len()) * stride];
    for (start, before) in rows.clone().step_by(AHEAD).zip(before.chunks_mut(AHEAD * stride)) {
        interrupt.check()?;
        let n = before.len() / stride;
        let logs = &mut logs[..n * stride];
        let of_chunk = |(c, logs): (usize, &mut [f64])| {
            let first = start + c * CHUNK;
            chain.emissions.logs(samples, first..first + logs.len() / stride, stride, logs);
        };
        match n > CHUNK {
            true => logs.par_chunks_mut(CHUNK * stride).enumerate().for_each(of_chunk),
            false => of_chunk((0, &mut *logs)),
        }
        let at_start = start == rows.start;
        vectorised(
            #[inline(always)]
            || onwards(chain, at_start, logs, &mut best, before),
        );
    }
    let last = best[..k].iter().enumerate().fold(0, |last, (j, v)| if *v > best[last] { j } else { last });
    if best[last] == f64::NEG_INFINITY {
        return Ok(best[last]);
    }
    let mut state = last;
    for (out, before) in states.iter_mut().zip(before.chunks_exact(stride)).rev() {
        *out = state;
        let earlier: u32 = before[state].into();
        state = earlier as usize;
    }
    Ok(best[last])
}

/// Moves the log probabilities of the best paths to each state (stride,) over some rows, and writes the states before.
#[inline(always)]
fn onwards<S: State>(chain: &Chain<'_>, at_start: bool, logs: &[f64], best: &mut [f64], before: &mut [S]) {
    const WIDTH: usize = 8;
    let (k, stride) = (chain.transitions.n_states, chain.transitions.stride);
    let mut from = best.to_vec();
    for (t, (log, before)) in logs.chunks_exact(stride).zip(before.chunks_exact_mut(stride)).enumerate() {
        if at_start && t == 0 {
            best.iter_mut().zip(log).for_each(|(best, log)| *best += log);
            continue;
        }
        from.copy_from_slice(best);
        for block in 0..stride / WIDTH {
            let columns = block * WIDTH..(block + 1) * WIDTH;
            let (mut most, mut arg) = ([f64::NEG_INFINITY; WIDTH], [0_u64; WIDTH]);
            for (i, (from, row)) in from[..k].iter().zip(chain.transitions.logs.chunks_exact(stride)).enumerate() {
                let row = &row[columns.clone()];
                for l in 0..WIDTH {
                    let v = from + row[l];
                    let better = v >= most[l];
                    most[l] = if better { v } else { most[l] };
                    arg[l] = if better { i as u64 } else { arg[l] };
                }
            }
            for l in 0..WIDTH {
                best[columns.start + l] = most[l] + log[columns.start + l];
                before[columns.start + l] = S::of(arg[l]);
            }
        }
    }
}
