//! Compensated sums: the rounding errors of the additions are summed as well.

/// Neumaier's compensated sum (1974): error independent of the number of terms.
pub fn neumaier_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = (0.0, 0.0);
    values.into_iter().for_each(|v| add(&mut sum, v));
    total(sum)
}

/// A sum with its rounding errors; they are not numbers where the sum is infinite.
fn total((sum, low): (f64, f64)) -> f64 {
    if sum.is_infinite() { sum } else { sum + low }
}

/// Adds to a sum, and to the rounding errors of its additions.
fn add((sum, low): &mut (f64, f64), v: f64) {
    let t = *sum + v;
    *low += if sum.abs() >= v.abs() { (*sum - t) + v } else { (v - t) + *sum };
    *sum = t;
}

/// Several compensated sums, by number.
pub(crate) struct Sums(Vec<(f64, f64)>);

impl Sums {
    pub fn new(n: usize) -> Self {
        Self(vec![(0.0, 0.0); n])
    }

    pub fn add(&mut self, i: usize, v: f64) {
        add(&mut self.0[i], v);
    }

    /// Adds r·vvᵀ to the square matrix that begins at `at`.
    pub fn add_outer(&mut self, at: usize, r: f64, v: &[f64]) {
        for (i, a) in v.iter().enumerate() {
            for (j, b) in v.iter().enumerate() {
                // A responsibility of zero times a square that overflows is not a number.
                self.add(at + i * v.len() + j, r * a * b);
            }
        }
    }

    pub fn totals(self) -> Vec<f64> {
        self.0.into_iter().map(total).collect()
    }
}

/// log Σ exp(v), with the maximum taken out so that nothing overflows and a far sample keeps its
/// finite value.
pub(crate) fn log_sum_exp(v: &[f64]) -> f64 {
    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_infinite() {
        return max;
    }
    max + v.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}
