//! The factor of a chain's proposals.
use gmm_host::linalg::vectorised;
use serde::{Deserialize, Serialize};

/// Rows that are multiplied together.
const ROWS: usize = 8;

/// A lower triangle L (n, n).
///
/// Its product with a vector is part of every step and therefore written here instead of taken from a crate: it needs
/// no unpacked L, uses the widest SIMD of the machine, and gives the same bits on every machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub(super) struct Factor {
    n: usize,
    /// For each [`ROWS`] rows their columns, up to that of the last row's diagonal, with zeros above the diagonal and
    /// beyond row n.
    columns: Vec<[f64; ROWS]>,
}

impl Factor {
    /// Returns the triangle with these numbers; `at` is called with row i and column j ≤ i.
    pub fn new(n: usize, at: impl Fn(usize, usize) -> f64) -> Self {
        let mut columns = Vec::new();
        for first in (0..n).step_by(ROWS) {
            let row = |j: usize, i: usize| if j <= i && i < n { at(i, j) } else { 0.0 };
            columns.extend((0..n.min(first + ROWS)).map(|j| std::array::from_fn(|i| row(j, first + i))));
        }
        Self { n, columns }
    }

    pub fn diagonal(diagonal: &[f64]) -> Self {
        Self::new(diagonal.len(), |i, j| if i == j { diagonal[i] } else { 0.0 })
    }

    pub fn n(&self) -> usize {
        self.n
    }

    /// out ← L z; both (n,).
    pub fn times(&self, z: &[f64], out: &mut [f64]) {
        vectorised(
            #[inline(always)]
            || {
                let mut columns = &self.columns[..];
                for (strip, out) in out.chunks_mut(ROWS).enumerate() {
                    let (of_strip, others) = columns.split_at(self.n.min(ROWS * (strip + 1)));
                    columns = others;
                    // Two sums of each row, so that half of the products need not wait for the previous one.
                    let mut sums = [[0.0; ROWS]; 2];
                    let ((pairs, last), (z, z_last)) =
                        (of_strip.as_chunks::<2>(), z[..of_strip.len()].as_chunks::<2>());
                    for (columns, z) in pairs.iter().zip(z) {
                        for i in 0..ROWS {
                            sums[0][i] += columns[0][i] * z[0];
                            sums[1][i] += columns[1][i] * z[1];
                        }
                    }
                    for (column, z) in last.iter().zip(z_last) {
                        for i in 0..ROWS {
                            sums[0][i] += column[i] * z;
                        }
                    }
                    out.iter_mut().enumerate().for_each(|(i, out)| *out = sums[0][i] + sums[1][i]);
                }
            },
        );
    }
}

/// From consecutive rows, with i + 1 numbers in row i.
impl TryFrom<Vec<f64>> for Factor {
    type Error = &'static str;

    fn try_from(rows: Vec<f64>) -> Result<Self, Self::Error> {
        let n = (0..=rows.len()).find(|n| n * (n + 1) / 2 >= rows.len()).unwrap_or_default();
        let is_triangle = n * (n + 1) / 2 == rows.len();
        is_triangle
            .then(|| Self::new(n, |i, j| rows[i * (i + 1) / 2 + j]))
            .ok_or("a factor of proposals that is not a triangle")
    }
}

impl From<Factor> for Vec<f64> {
    /// Returns the rows in the order of `TryFrom`.
    fn from(factor: Factor) -> Self {
        let mut rows = vec![0.0; factor.n * (factor.n + 1) / 2];
        let mut columns = factor.columns.iter();
        for first in (0..factor.n).step_by(ROWS) {
            for (j, column) in (0..factor.n.min(first + ROWS)).zip(&mut columns) {
                for i in j.max(first)..factor.n.min(first + ROWS) {
                    rows[i * (i + 1) / 2 + j] = column[i - first];
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_that_of_the_rows_which_come_back_unchanged() {
        for n in 1..40 {
            let rows: Vec<f64> = (0..n * (n + 1) / 2).map(|i| ((i * 37 % 101) as f64 / 50.0 - 1.0).sin()).collect();
            let z: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).cos()).collect();
            let factor = Factor::try_from(rows.clone()).unwrap();
            let mut out = vec![f64::NAN; n];
            factor.times(&z, &mut out);
            for (i, out) in out.iter().enumerate() {
                let expected: f64 = (0..=i).map(|j| rows[i * (i + 1) / 2 + j] * z[j]).sum();
                // Up to forty roundings of numbers below one.
                assert!((out - expected).abs() < 1e-14, "n = {n}, row {i}: {out} for {expected}");
            }
            assert_eq!(Vec::from(factor), rows, "n = {n}");
        }
        assert_eq!(Vec::from(Factor::diagonal(&[2.0, 3.0, 5.0])), [2.0, 0.0, 3.0, 0.0, 0.0, 5.0]);
        assert!(Factor::try_from(vec![1.0, 2.0]).is_err());
    }
}
