//! The recursions over a chunk of rows, with probabilities scaled to sum one.
//!
//! A state whose scaled probability underflows is lost. If every transition is possible, the other states outweigh it
//! by far. Otherwise, the lost state can be the only one that explains later rows, so [`forward`] and [`backward`] stop,
//! and [`logs`](super::logs) takes over.
use crate::tile::exp;
use gmm_core::reproducible::Functions;
use ndarray::Array2;

/// The least probability of a transition that does not underflow together with a probability of [`LEAST`].
const POSSIBLE: f64 = 1e-150;

/// The least scaled probability, unless every transition is possible: two of them multiply without underflow.
const LEAST: f64 = 1e-140;

/// The numbers that the recursions add side by side.
const WIDTH: usize = 8;

/// The probabilities of transitions, in rows of a multiple of [`WIDTH`] numbers.
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
        let stride = n_states.next_multiple_of(WIDTH);
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

    /// Whether all probabilities of a row that scaling leaves are large enough. `before` holds those without the row's
    /// density, whose zeros are exact.
    #[inline(always)]
    fn suffice(&self, before: &[f64], after: &[f64]) -> bool {
        let mut lost = false;
        for (before, after) in before.iter().zip(after) {
            lost |= *before > 0.0 && *after < LEAST;
        }
        self.kind == Kind::AllPossible || !lost
    }
}

/// Writes e^(logs − the row's largest) for rows of `stride` numbers, and the largest ones. The last numbers of a row
/// are −∞.
pub(crate) fn exponentials(logs: &[f64], stride: usize, out: &mut [f64], largest: &mut [f64]) {
    for ((logs, out), largest) in logs.chunks_exact(stride).zip(out.chunks_exact_mut(stride)).zip(largest) {
        let mut most = f64::NEG_INFINITY;
        for v in logs {
            most = if *v > most { *v } else { most };
        }
        *largest = most;
        let shift = if most > f64::NEG_INFINITY { most } else { 0.0 };
        out.iter_mut().zip(logs).for_each(|(out, v)| *out = exp(v - shift));
    }
}

/// Writes Σᵢ fromᵢ·matrixᵢⱼ for rows of `matrix` of a multiple of [`WIDTH`] numbers.
#[inline(always)]
pub(crate) fn multiply(from: &[f64], matrix: &[f64], to: &mut [f64]) {
    let stride = to.len();
    let (blocks, _) = to.as_chunks_mut::<WIDTH>();
    for (b, to) in blocks.iter_mut().enumerate() {
        // Two sums, of which neither waits for the other.
        let mut sums = [[0.0; WIDTH]; 2];
        for (from, rows) in from.chunks(2).zip(matrix.chunks(2 * stride)) {
            for (sum, (from, row)) in sums.iter_mut().zip(from.iter().zip(rows.chunks_exact(stride))) {
                let row = &row[b * WIDTH..][..WIDTH];
                sum.iter_mut().zip(row).for_each(|(sum, v)| *sum += from * v);
            }
        }
        to.iter_mut().enumerate().for_each(|(l, to)| *to = sums[0][l] + sums[1][l]);
    }
}

/// Returns the sum of a multiple of [`WIDTH`] numbers.
#[inline(always)]
pub(crate) fn sum(row: &[f64]) -> f64 {
    let mut lanes = [0.0; WIDTH];
    for row in row.as_chunks::<WIDTH>().0 {
        lanes.iter_mut().zip(row).for_each(|(lane, v)| *lane += v);
    }
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
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

/// log Π v of numbers that are not too small, with few logarithms.
struct Product {
    product: f64,
    log: f64,
}

impl Product {
    #[inline(always)]
    fn multiply(&mut self, v: f64) {
        self.product *= v;
        if !(1e-120..1e120).contains(&self.product) {
            self.log += self.product.log_e();
            self.product = 1.0;
        }
    }
}

/// Writes p(state | rows so far) for each row of `emissions` (rows, stride) into `alpha`. `first` (K,) holds the log
/// probabilities of the states and densities of the first row. Returns log p(rows) without the rows' largest densities,
/// or `None` if a probability became too small.
#[inline(always)]
pub(crate) fn forward(transitions: &Transitions, first: &[f64], emissions: &[f64], alpha: &mut [f64]) -> Option<f64> {
    let (k, stride) = (transitions.n_states, transitions.stride);
    let start = shares(first, &mut alpha[..stride][..k]);
    let lost = |(log, v): (&f64, &f64)| *log > f64::NEG_INFINITY && *v < LEAST;
    alpha[k..stride].fill(0.0);
    if start == f64::NEG_INFINITY || transitions.kind != Kind::AllPossible && first.iter().zip(&*alpha).any(lost) {
        return None;
    }
    let mut total = Product { product: 1.0, log: start };
    for (t, emission) in emissions.chunks_exact(stride).enumerate().skip(1) {
        let (before, row) = alpha[(t - 1) * stride..][..2 * stride].split_at_mut(stride);
        multiply(&before[..k], &transitions.forward, row);
        let mut lost = false;
        for (v, emission) in row.iter_mut().zip(emission) {
            let predicted = *v;
            *v *= emission;
            lost |= predicted > 0.0 && *v < LEAST;
        }
        let c = sum(row);
        if c.is_nan() || c <= LEAST || lost && transitions.kind != Kind::AllPossible {
            return None;
        }
        let scale = 1.0 / c;
        row.iter_mut().for_each(|v| *v *= scale);
        total.multiply(c);
    }
    Some(total.log + total.product.log_e())
}

/// The sums of the backward recursion.
pub(crate) struct Backward<'a> {
    /// Multiplied with the sums.
    pub weight: f64,
    /// p(state | rows so far) of the row before the first, if there is one (stride,).
    pub entry: Option<&'a [f64]>,
    /// Σ over pairs of rows of p(i, j | rows) / aᵢⱼ (K, stride).
    pub pairs: &'a mut [f64],
}

/// Replaces p(state | rows so far) in `alpha` by p(state | all rows), and adds up the pairs. `beta` (stride,) holds
/// p(later rows | state of the last row) up to a factor, and afterwards that of the row before the first. Returns
/// `None` if a probability became too small.
#[inline(always)]
pub(crate) fn backward(
    transitions: &Transitions,
    beta: &mut [f64],
    emissions: &[f64],
    alpha: &mut [f64],
    sums: &mut Backward<'_>,
) -> Option<()> {
    let (k, stride) = (transitions.n_states, transitions.stride);
    let mut weighted = vec![0.0; stride];
    for t in (0..emissions.len() / stride).rev() {
        let (before, rows) = alpha.split_at_mut(t * stride);
        let row = &mut rows[..stride];
        row.iter_mut().zip(&*beta).for_each(|(v, beta)| *v *= beta);
        let scale = 1.0 / sum(row);
        row.iter_mut().for_each(|v| *v *= scale);
        step_back(transitions, beta, &emissions[t * stride..][..stride], &mut weighted)?;
        let before = match t {
            0 => sums.entry,
            _ => Some(&before[(t - 1) * stride..]),
        };
        if let Some(before) = before {
            let norm: f64 = before.iter().zip(&*beta).map(|(v, beta)| v * beta).sum();
            let scale = sums.weight / norm;
            for (before, pairs) in before[..k].iter().zip(sums.pairs.chunks_exact_mut(stride)) {
                let share = before * scale;
                pairs.iter_mut().zip(&weighted).for_each(|(pairs, v)| *pairs += share * v);
            }
        }
    }
    Some(())
}

/// Moves p(later rows | state) from a row to the one before, up to a factor. Writes its products with the row's
/// densities, by the same factor.
#[inline(always)]
fn step_back(transitions: &Transitions, beta: &mut [f64], emission: &[f64], weighted: &mut [f64]) -> Option<()> {
    let k = transitions.n_states;
    weighted.iter_mut().zip(emission).zip(&*beta).for_each(|((v, emission), beta)| *v = emission * beta);
    let c = sum(weighted);
    let scale = 1.0 / c;
    weighted.iter_mut().for_each(|v| *v *= scale);
    if c.is_nan() || c <= LEAST || !transitions.suffice(beta, weighted) {
        return None;
    }
    multiply(&weighted[..k], &transitions.backward, beta);
    Some(())
}

/// As [`backward`], without the rows' results.
#[inline(always)]
pub(crate) fn only_back(transitions: &Transitions, beta: &mut [f64], emissions: &[f64]) -> Option<()> {
    let mut weighted = vec![0.0; transitions.stride];
    for emission in emissions.chunks_exact(transitions.stride).rev() {
        step_back(transitions, beta, emission, &mut weighted)?;
    }
    Some(())
}
