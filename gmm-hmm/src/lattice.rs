//! The recursions over rows, with probabilities scaled to sum one, over L sequences side by side.
//!
//! The arrays are tiles of [`LANES`] numbers for each state: the first L are those of the sequences' first rows, the
//! next L of their second rows, and so on.
//!
//! A state whose scaled probability underflows is lost. If every transition is possible, the other states outweigh it
//! by far. Otherwise, the lost state can be the only one that explains later rows, so [`forward`] reports it, and
//! [`logs`](super::logs) takes over. What [`backward`] loses is lost as well: no pair of states is more probable than
//! each of them.
use crate::tile::{LANES, Lanes, exp};
use gmm_core::reproducible::Functions;
use ndarray::Array2;

/// The least probability of a transition that does not underflow together with a probability of [`LEAST`].
const POSSIBLE: f64 = 1e-150;

/// The least scaled probability, unless every transition is possible: two of them multiply without underflow.
const LEAST: f64 = 1e-140;

/// Caps densities times probabilities of later rows, which only states of probability 0 exceed.
const MOST: f64 = 1e295;

/// Sums over tiles are kept in so many parts.
pub(crate) const PARTS: usize = 8;

/// The rows of the transitions have a multiple of so many numbers.
const STRIDE: usize = 8;

/// The probabilities of transitions, in rows of a multiple of [`STRIDE`] numbers.
pub(crate) struct Transitions {
    pub n_states: usize,
    pub stride: usize,
    /// aᵢⱼ (K, stride).
    pub forward: Vec<f64>,
    /// aⱼᵢ (K, stride).
    pub backward: Vec<f64>,
    /// log aᵢⱼ (K, stride).
    pub logs: Vec<f64>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    AllPossible,
    /// The smallest probabilities are watched.
    Watched,
    InLogarithms,
}

impl Transitions {
    /// Rows of `transitions` (K, K) may sum to less than one.
    pub fn new(transitions: &Array2<f64>) -> Self {
        let n_states = transitions.nrows();
        let stride = n_states.next_multiple_of(STRIDE);
        let padded = |at: &dyn Fn(usize, usize) -> f64, rest: f64| {
            let number = |i: usize| if i % stride < n_states { at(i / stride, i % stride) } else { rest };
            (0..n_states * stride).map(number).collect::<Vec<f64>>()
        };
        let kind = if transitions.iter().all(|v| *v >= POSSIBLE) {
            Kind::AllPossible
        } else if transitions.iter().all(|v| *v == 0.0 || *v >= POSSIBLE) {
            Kind::Watched
        } else {
            Kind::InLogarithms
        };
        Self {
            n_states,
            stride,
            forward: padded(&|i, j| transitions[[i, j]], 0.0),
            backward: padded(&|i, j| transitions[[j, i]], 0.0),
            logs: padded(&|i, j| transitions[[i, j]].log_e(), f64::NEG_INFINITY),
            kind,
        }
    }

    /// Whether the recursions over scaled probabilities can be tried.
    pub fn can_be_scaled(&self) -> bool {
        self.kind != Kind::InLogarithms
    }

    /// Whether no lost state matters.
    pub fn are_all_possible(&self) -> bool {
        self.kind == Kind::AllPossible
    }
}

/// Replaces log densities (K, LANES) by e^(logs − the largest), and returns the largest ones.
#[inline(always)]
pub(crate) fn exponentials(logs: &mut [Lanes]) -> Lanes {
    let mut most = [f64::NEG_INFINITY; LANES];
    for logs in &*logs {
        most.iter_mut().zip(logs).for_each(|(most, v)| *most = if *v > *most { *v } else { *most });
    }
    let shift = most.map(|most| if most > f64::NEG_INFINITY { most } else { 0.0 });
    for logs in logs {
        logs.iter_mut().zip(&shift).for_each(|(v, shift)| *v = exp(*v - shift));
    }
    most
}

/// Writes Σᵢ fromᵢ·matrixᵢⱼ, from the matrix (K, `stride`) and its transpose.
#[inline(always)]
fn multiply<const L: usize>(from: &[[f64; L]], [matrix, transpose]: [&[f64]; 2], stride: usize, to: &mut [[f64; L]]) {
    if L == 1 {
        for (b, to) in to.chunks_mut(STRIDE).enumerate() {
            let mut sums = [0.0; STRIDE];
            for (from, row) in from.iter().zip(matrix.chunks_exact(stride)) {
                let row = &row.as_chunks::<STRIDE>().0[b];
                sums = each(|l| sums[l] + from[0] * row[l]);
            }
            to.iter_mut().zip(sums).for_each(|(to, sum)| to[0] = sum);
        }
        return;
    }
    for (to, column) in to.iter_mut().zip(transpose.chunks_exact(stride)) {
        let mut sum = [0.0; L];
        for (from, v) in from.iter().zip(column) {
            sum = each(|l| sum[l] + from[l] * v);
        }
        *to = sum;
    }
}

/// Returns f of 0 … L − 1, always inlined, which `array::from_fn` is not.
#[inline(always)]
fn each<const L: usize>(f: impl Fn(usize) -> f64) -> [f64; L] {
    let mut values = [0.0; L];
    for (l, value) in values.iter_mut().enumerate() {
        *value = f(l);
    }
    values
}

/// Returns the L numbers of a row within a tile.
#[inline(always)]
fn of<const L: usize>(tile: &mut Lanes, row: usize) -> &mut [f64; L] {
    &mut tile.as_chunks_mut::<L>().0[row]
}

/// Returns the states' numbers, from memory: a loop over them takes one state after another. The compiler would otherwise
/// compute several states side by side, whose numbers lie apart, instead of L numbers that are neighbours.
fn numbers(k: usize) -> Vec<usize> {
    std::hint::black_box((0..k).collect())
}

/// Writes the exponentials of logarithms over their sum, and returns the logarithm of the sum.
pub(crate) fn shares(logs: &[f64], out: &mut [f64]) -> f64 {
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        out.fill(0.0);
        return most;
    }
    out.iter_mut().zip(logs).for_each(|(out, v)| *out = exp(v - most));
    let sum: f64 = out.iter().take(logs.len()).sum();
    out.iter_mut().for_each(|v| *v /= sum);
    most + sum.log_e()
}

/// Writes p(state | rows so far) into `alpha` (tiles, K), given p(state) of the first rows in `row` (K, L), and divides
/// the densities `scaled` (tiles, K) by p(row | rows before). Returns log p(rows) of each sequence without the rows'
/// largest densities, and whether a probability became too small. The sequences have `lengths` rows.
#[inline(always)]
pub(crate) fn forward<const L: usize>(
    transitions: &Transitions,
    lengths: &[usize; L],
    row: &mut [[f64; L]],
    scaled: &mut [Lanes],
    alpha: &mut [Lanes],
) -> ([f64; L], [bool; L]) {
    let k = transitions.n_states;
    let lengths = lengths.map(|length| length as f64);
    let watched = if transitions.kind == Kind::AllPossible { 0.0 } else { LEAST };
    let (mut logs, mut products, mut lost) = ([0.0; L], [1.0; L], [false; L]);
    let (mut next, states) = (vec![[0.0; L]; k], numbers(k));
    for t in 0..scaled.len() / k * (LANES / L) {
        let (tile, r) = (t * L / LANES, t % (LANES / L));
        let (scaled, alpha) = (&mut scaled[tile * k..][..k], &mut alpha[tile * k..][..k]);
        if t > 0 {
            multiply(row, [&transitions.forward, &transitions.backward], transitions.stride, &mut next);
            row.copy_from_slice(&next);
        }
        let (mut sums, mut small) = ([0.0; L], [0.0; L]);
        for &i in &states {
            let (row, scaled) = (&mut row[i], of::<L>(&mut scaled[i], r));
            let v: [f64; L] = each(|l| row[l] * scaled[l]);
            small = each(|l| if row[l] > 0.0 && v[l] < watched { 1.0 } else { small[l] });
            sums = each(|l| sums[l] + v[l]);
            *row = v;
        }
        let mut scales = [1.0; L];
        for l in 0..L {
            let is_row = (t as f64) < lengths[l];
            lost[l] |= is_row && (small[l] > 0.0 || sums[l] <= LEAST);
            let sum = if is_row && sums[l] > LEAST { sums[l] } else { 1.0 };
            products[l] *= sum;
            scales[l] = 1.0 / sum;
        }
        if products.iter().fold(false, |far, product| far | (*product < 1e-120)) {
            logs.iter_mut().zip(&products).for_each(|(log, product)| *log += product.log_e());
            products = [1.0; L];
        }
        for &i in &states {
            let (row, scaled, alpha) = (&mut row[i], of::<L>(&mut scaled[i], r), of::<L>(&mut alpha[i], r));
            *row = each(|l| row[l] * scales[l]);
            *scaled = each(|l| scaled[l] * scales[l]);
            *alpha = *row;
        }
    }
    logs.iter_mut().zip(&products).for_each(|(log, product)| *log += product.log_e());
    (logs, lost)
}

/// The ends of sequences side by side, and the sums of the backward recursion.
pub(crate) struct Backward<'a, const L: usize> {
    /// A sequence of 0 rows has no results.
    pub lengths: [usize; L],
    /// Multiplied with the results.
    pub weights: [f64; L],
    /// p(state | rows so far) of the row before the first, zeros without one (K, L).
    pub entry: &'a [[f64; L]],
    /// p(later rows | state) of the last row, up to a factor (K, L).
    pub exit: &'a [[f64; L]],
    /// Σ over pairs of rows of p(i, j | rows) / aᵢⱼ, in parts (K, K).
    pub pairs: &'a mut [[f64; PARTS]],
}

/// Replaces p(state | rows so far) in `alpha` by p(state | all rows), and adds up the pairs; `scaled` are the densities
/// that [`forward`] divided, and are lost.
#[inline(always)]
pub(crate) fn backward<const L: usize>(
    transitions: &Transitions,
    scaled: &mut [Lanes],
    alpha: &mut [Lanes],
    of_sequences: &mut Backward<'_, L>,
) {
    let k = transitions.n_states;
    let Backward { lengths, weights, entry, exit, pairs } = of_sequences;
    // p(later rows | state) of the sequences' last rows over its mean.
    let mut last = exit.to_vec();
    for (l, end) in lengths.iter().enumerate().filter_map(|(l, length)| Some((l, length.checked_sub(1)? * L + l))) {
        let norm: f64 = (0..k).map(|i| alpha[end / LANES * k + i][end % LANES] * exit[i][l]).sum();
        last.iter_mut().for_each(|last| last[l] = if norm > 0.0 { last[l] / norm } else { 0.0 });
    }
    let lengths = lengths.map(|length| length as f64);
    let (mut beta, mut weighted, mut before) = (last.clone(), vec![[0.0; L]; k], vec![[0.0; LANES]; k]);
    let states = numbers(k);
    for tile in (0..scaled.len() / k).rev() {
        let (earlier, alpha) = alpha.split_at_mut(tile * k);
        let scaled = &mut scaled[tile * k..][..k];
        for (i, before) in before.iter_mut().enumerate() {
            match tile {
                0 => before[..L].copy_from_slice(&entry[i]),
                _ => before[..L].copy_from_slice(&earlier[(tile - 1) * k + i][LANES - L..]),
            }
            before[L..].copy_from_slice(&alpha[i][..LANES - L]);
        }
        for r in (0..LANES / L).rev() {
            let t = (tile * (LANES / L) + r) as f64;
            let factors: [f64; L] = each(|l| if t < lengths[l] { weights[l] } else { 0.0 });
            for &i in &states {
                let (scaled, alpha) = (of::<L>(&mut scaled[i], r), of::<L>(&mut alpha[i], r));
                let beta: [f64; L] = each(|l| if t + 1.0 < lengths[l] { beta[i][l] } else { last[i][l] });
                let v: [f64; L] = each(|l| scaled[l] * beta[l]);
                let v: [f64; L] = each(|l| if v[l] < MOST { v[l] } else { MOST });
                *alpha = each(|l| alpha[l] * (beta[l] * factors[l]));
                *scaled = each(|l| v[l] * factors[l]);
                weighted[i] = v;
            }
            multiply(&weighted, [&transitions.backward, &transitions.forward], transitions.stride, &mut beta);
        }
        for (before, pairs) in before.iter().zip(pairs.chunks_exact_mut(k)) {
            for &j in &states {
                add_parts(&mut pairs[j], each(|l| before[l] * scaled[j][l]));
            }
        }
    }
}

/// Adds the numbers of a tile to a sum in parts.
#[inline(always)]
pub(crate) fn add_parts(sum: &mut [f64; PARTS], lanes: Lanes) {
    let (parts, _) = lanes.as_chunks::<PARTS>();
    *sum = each(|l| sum[l] + ((parts[0][l] + parts[1][l]) + (parts[2][l] + parts[3][l])));
}

/// Returns a sum that is kept in parts.
#[inline(always)]
pub(crate) fn sum(parts: &[f64; PARTS]) -> f64 {
    ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]))
}

/// Moves p(later rows | state), up to a factor, from the last of `rows` rows of one sequence to the row before the
/// first. Returns `None` if a probability became too small.
#[inline(always)]
pub(crate) fn only_back(transitions: &Transitions, beta: &mut [[f64; 1]], scaled: &[Lanes], rows: usize) -> Option<()> {
    let k = transitions.n_states;
    let mut weighted = vec![[0.0]; k];
    for t in (0..rows).rev() {
        let (mut c, mut lost) = (0.0, false);
        for (i, v) in weighted.iter_mut().enumerate() {
            v[0] = scaled[t / LANES * k + i][t % LANES] * beta[i][0];
            c += v[0];
        }
        for (v, beta) in weighted.iter_mut().zip(&*beta) {
            v[0] /= c;
            lost |= beta[0] > 0.0 && v[0] < LEAST;
        }
        if c.is_nan() || c <= LEAST || lost && transitions.kind != Kind::AllPossible {
            return None;
        }
        multiply(&weighted, [&transitions.backward, &transitions.forward], transitions.stride, beta);
    }
    Some(())
}
