//! The recursions over a chunk of rows with logarithms of probabilities, where scaled ones would underflow.
use crate::lattice::Transitions;
use crate::tile::exp;
use gmm_core::reproducible::Functions;

/// Sums below it may lack terms that underflowed.
const SURE: f64 = 1e-250;

/// Returns log Σ exp of the values.
pub(crate) fn log_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
    match most == f64::NEG_INFINITY {
        true => most,
        false => most + values.map(|v| (v - most).exp_e()).sum::<f64>().log_e(),
    }
}

/// Writes log Σᵢ exp(fromᵢ)·matrixᵢⱼ: with an exponential for each i, and one for each pair only where that
/// underflows. `of_pair` returns log matrixᵢⱼ.
fn multiply(from: &[f64], matrix: &[f64], stride: usize, of_pair: impl Fn(usize, usize) -> f64, to: &mut [f64]) {
    let most = from.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        to.fill(most);
        return;
    }
    to.fill(0.0);
    for (from, row) in from.iter().zip(matrix.chunks_exact(stride)) {
        let share = (from - most).exp_e();
        to.iter_mut().zip(row).for_each(|(to, v)| *to += share * v);
    }
    for (j, to) in to.iter_mut().enumerate() {
        *to = match *to >= SURE {
            true => most + to.log_e(),
            false => log_sum(from.iter().enumerate().map(|(i, from)| from + of_pair(i, j))),
        };
    }
}

/// Returns log Σᵢ exp(fromᵢ)·aᵢⱼ, the states' log probabilities in the next row (K,).
pub(crate) fn predict(transitions: &Transitions, from: &[f64]) -> Vec<f64> {
    let (k, stride) = (transitions.n_states, transitions.stride);
    let mut to = vec![0.0; k];
    multiply(&from[..k], &transitions.forward, stride, |i, j| transitions.logs[i * stride + j], &mut to);
    to
}

/// As [`lattice::forward`](super::lattice::forward), but writes logarithms into `alpha` (rows, stride), from the log
/// densities `logs`. Returns log p(rows), −∞ if they are impossible.
pub(crate) fn forward(transitions: &Transitions, first: &[f64], logs: &[f64], alpha: &mut [f64]) -> f64 {
    let (k, stride) = (transitions.n_states, transitions.stride);
    let mut total = 0.0;
    for (t, log) in logs.chunks_exact(stride).enumerate() {
        let (before, row) = alpha.split_at_mut(t * stride);
        let row = &mut row[..k];
        match t {
            0 => row.copy_from_slice(first),
            _ => {
                let before = &before[(t - 1) * stride..][..k];
                multiply(before, &transitions.forward, stride, |i, j| transitions.logs[i * stride + j], row);
                row.iter_mut().zip(log).for_each(|(v, log)| *v += log);
            }
        }
        let log = log_sum(row.iter().copied());
        if log == f64::NEG_INFINITY {
            return log;
        }
        row.iter_mut().for_each(|v| *v -= log);
        total += log;
    }
    total
}

/// As [`lattice::backward`](super::lattice::backward), with the logarithms of [`forward`] in `alpha`,
/// logarithms in `beta` (stride,) and in `entry` (K,), log p(state | rows so far) of the row before the first, if there
/// is one. Writes p(state | all rows), not its logarithm, and adds up p(i, j | rows) over pairs of rows (K, stride).
pub(crate) fn backward(
    transitions: &Transitions,
    beta: &mut [f64],
    logs: &[f64],
    alpha: &mut [f64],
    entry: Option<&[f64]>,
    pairs: &mut [f64],
) {
    let (k, stride) = (transitions.n_states, transitions.stride);
    let mut weighted = vec![0.0; k];
    for (t, log) in logs.chunks_exact(stride).enumerate().rev() {
        let (before, rows) = alpha.split_at_mut(t * stride);
        let row = &mut rows[..stride];
        row[..k].iter_mut().zip(&*beta).for_each(|(v, beta)| *v += beta);
        let norm = log_sum(row[..k].iter().copied());
        row[..k].iter_mut().for_each(|v| *v = (*v - norm).exp_e());
        row[k..].fill(0.0);
        step_back(transitions, beta, log, &mut weighted);
        let before = match t {
            0 => entry,
            _ => Some(&before[(t - 1) * stride..]),
        };
        if let Some(before) = before {
            let norm = log_sum(before[..k].iter().zip(&*beta).map(|(v, beta)| v + beta));
            let rows = pairs.chunks_exact_mut(stride).zip(transitions.logs.chunks_exact(stride));
            for (before, (pairs, of_pair)) in before[..k].iter().zip(rows) {
                for ((pairs, of_pair), v) in pairs.iter_mut().zip(of_pair).zip(&weighted) {
                    *pairs += exp((before - norm + v + of_pair).min(0.0));
                }
            }
        }
    }
}

/// As `step_back` of [`lattice`](super::lattice), with logarithms.
fn step_back(transitions: &Transitions, beta: &mut [f64], log: &[f64], weighted: &mut [f64]) {
    let (k, stride) = (transitions.n_states, transitions.stride);
    weighted.iter_mut().zip(log).zip(&*beta).for_each(|((v, log), beta)| *v = log + beta);
    let most = weighted.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most > f64::NEG_INFINITY {
        weighted.iter_mut().for_each(|v| *v -= most);
    }
    multiply(weighted, &transitions.backward, stride, |j, i| transitions.logs[i * stride + j], &mut beta[..k]);
}

/// As [`backward`], without the rows' results.
pub(crate) fn only_back(transitions: &Transitions, beta: &mut [f64], logs: &[f64]) {
    let mut weighted = vec![0.0; transitions.n_states];
    logs.chunks_exact(transitions.stride).rev().for_each(|log| step_back(transitions, beta, log, &mut weighted));
}
