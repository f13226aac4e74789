//! Compensated sums, which also sum the rounding errors of their additions.
use crate::reproducible::Functions;

/// Returns Neumaier's compensated sum (1974), whose error does not grow with the number of terms.
pub fn neumaier_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = (0.0, 0.0);
    values.into_iter().for_each(|v| add(&mut sum, v));
    total(sum)
}

/// Adds the rounding errors to a sum, unless it is infinite and they are NaN.
fn total((sum, low): (f64, f64)) -> f64 {
    if sum.is_infinite() { sum } else { sum + low }
}

/// Adds a value to a sum, and its rounding error to `low`.
fn add((sum, low): &mut (f64, f64), v: f64) {
    let t = *sum + v;
    *low += if sum.abs() >= v.abs() { (*sum - t) + v } else { (v - t) + *sum };
    *sum = t;
}

/// Several compensated sums.
pub struct Sums(Vec<(f64, f64)>);

impl Sums {
    /// Returns `n` sums of 0.
    pub fn new(n: usize) -> Self {
        Self(vec![(0.0, 0.0); n])
    }

    /// Adds a value to sum `i`.
    pub fn add(&mut self, i: usize, v: f64) {
        add(&mut self.0[i], v);
    }

    /// Adds r·vvᵀ to the square matrix that begins at `at`.
    pub fn add_outer(&mut self, at: usize, r: f64, v: &[f64]) {
        for (i, a) in v.iter().enumerate() {
            for (j, b) in v.iter().enumerate() {
                // (r * a) * b: r = 0 stays zero even if a * b overflows.
                self.add(at + i * v.len() + j, r * a * b);
            }
        }
    }

    /// Returns the sums.
    pub fn totals(self) -> Vec<f64> {
        self.0.into_iter().map(total).collect()
    }
}

/// Returns log Σ exp(v), with the maximum taken out, so nothing overflows and a far sample keeps its finite value.
pub(crate) fn log_sum_exp(v: &[f64]) -> f64 {
    let (max, log_sum) = around_largest(v);
    max + log_sum
}

/// Subtracts log Σ exp(v) from the logarithms `v`, so that their exponentials sum to one, and returns it. Subtracting
/// the maximum first keeps log 2 from vanishing beside large logarithms.
pub(crate) fn log_softmax(v: &mut [f64]) -> f64 {
    let (max, log_sum) = around_largest(v);
    v.iter_mut().for_each(|v| *v = (*v - max) - log_sum);
    max + log_sum
}

/// Replaces logarithms by the shares exp(v) / Σ exp(v), and returns log Σ exp(v).
pub(crate) fn softmax(v: &mut [f64]) -> f64 {
    let log_sum = log_softmax(v);
    v.iter_mut().for_each(|v| *v = v.exp_e());
    log_sum
}

/// Returns the largest logarithm, and log Σ exp(v − largest) (0 if the largest is infinite).
fn around_largest(v: &[f64]) -> (f64, f64) {
    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match max.is_infinite() {
        true => (max, 0.0),
        false => (max, v.iter().map(|x| (x - max).exp_e()).sum::<f64>().log_e()),
    }
}
