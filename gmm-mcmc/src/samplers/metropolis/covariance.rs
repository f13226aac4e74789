//! Covariance matrices of a chain, as lower triangles row by row (i + 1 numbers in row i).
use super::factor::Factor;
use gmm_host::linalg::vectorised;
use nalgebra::{Cholesky, DMatrix};
use serde::{Deserialize, Serialize};

/// Returns the Cholesky factor of a covariance matrix, after multiplying its correlations by `shrinkage` and raising
/// its variances to the floors; `None` if the result is not positive definite.
pub(super) fn factor(covariance: &[f64], n: usize, shrinkage: f64, floors: &[f64]) -> Option<Factor> {
    let mut full = DMatrix::zeros(n, n);
    let mut numbers = covariance.iter();
    for i in 0..n {
        for (j, v) in (0..=i).zip(&mut numbers) {
            full[(i, j)] = if j < i { v * shrinkage } else { v.max(floors[i]) };
        }
    }
    let l = Cholesky::new(full)?.unpack();
    // A factor of numbers near the largest or the smallest of float64 is useless.
    let usable = l.iter().all(|v| v.is_finite()) && (0..n).all(|i| l[(i, i)].is_normal());
    usable.then(|| Factor::new(n, |i, j| l[(i, j)]))
}

/// The mean and the covariance of points that are added one by one (Welford 1962).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunningCovariance {
    count: u64,
    mean: Vec<f64>,
    /// Σ (x − mean)(x − mean)ᵀ.
    scatter: Vec<f64>,
}

impl RunningCovariance {
    /// Returns the state before the first point; points have `n` coordinates.
    pub fn new(n: usize) -> Self {
        Self { count: 0, mean: vec![0.0; n], scatter: vec![0.0; n * (n + 1) / 2] }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the points have `n` coordinates, and the parts fit together.
    pub fn is_of(&self, n: usize) -> bool {
        (self.mean.len(), self.scatter.len()) == (n, n * (n + 1) / 2)
    }

    /// Adds a point; `delta` is memory that is overwritten.
    pub fn add(&mut self, x: impl Iterator<Item = f64>, delta: &mut Vec<f64>) {
        self.count = self.count.saturating_add(1);
        let n = self.count as f64;
        delta.clear();
        delta.extend(x.zip(&mut self.mean).map(|(x, mean)| {
            let delta = x - *mean;
            *mean += delta / n;
            delta
        }));
        vectorised(
            #[inline(always)]
            || {
                let mut at = 0;
                for (i, &d) in delta.iter().enumerate() {
                    let factor = d * (n - 1.0) / n;
                    for (s, d) in self.scatter[at..at + i + 1].iter_mut().zip(delta.iter()) {
                        *s += factor * d;
                    }
                    at += i + 1;
                }
            },
        );
    }

    /// Returns the covariance; `None` for fewer than two points.
    pub fn covariance(&self) -> Option<Vec<f64>> {
        (self.count > 1).then(|| self.scatter.iter().map(|s| s / (self.count - 1) as f64).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_gives_back_the_matrix() {
        let n = 23;
        let b: Vec<f64> = (0..n * n).map(|i| ((i * 37 % 101) as f64 / 50.0 - 1.0).sin()).collect();
        let row = |i: usize| &b[i * n..(i + 1) * n];
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let a = |i: usize, j: usize| dot(row(i), row(j)) + if i == j { 1.0 } else { 0.0 };
        let triangle: Vec<f64> = (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|(i, j)| a(i, j)).collect();
        for (shrinkage, floor) in [(1.0, 0.0), (0.4, 12.0)] {
            let l = factor(&triangle, n, shrinkage, &vec![floor; n]).unwrap();
            let rows = Vec::from(l.clone());
            // L times row j of L, which is column j of Lᵀ, is column j of the matrix.
            for j in 0..n {
                let start = j * (j + 1) / 2;
                let mut z = rows[start..start + j + 1].to_vec();
                z.resize(n, 0.0);
                let mut column = vec![0.0; n];
                l.times(&z, &mut column);
                for (i, got) in column.iter().enumerate() {
                    let expected = if i == j { a(i, i).max(floor) } else { shrinkage * a(i, j) };
                    // A few dozen roundings of numbers below 30.
                    assert!((got - expected).abs() < 1e-12, "{i} {j}: {got} {expected}");
                }
            }
        }
        // Not positive definite, not finite, and too small to have normal square roots.
        assert_eq!(factor(&[1.0, 2.0, 1.0], 2, 1.0, &[0.0; 2]), None);
        assert_eq!(factor(&[1.0, f64::NAN, 1.0], 2, 1.0, &[0.0; 2]), None);
        assert_eq!(factor(&[f64::INFINITY], 1, 1.0, &[0.0]), None);
        assert_eq!(factor(&[0.0], 1, 1.0, &[0.0]), None);
    }

    #[test]
    fn running_covariance_is_the_covariance() {
        let x: Vec<[f64; 2]> =
            (0..50).map(|i| [1e3 + (i as f64).sin(), (i as f64).cos() * 2.0 + (i as f64).sin()]).collect();
        let mut w = RunningCovariance::new(2);
        assert!(w.covariance().is_none());
        for x in &x {
            w.add(x.iter().copied(), &mut Vec::new());
        }
        let mean = |j: usize| x.iter().map(|x| x[j]).sum::<f64>() / 50.0;
        let cov = |i: usize, j: usize| x.iter().map(|x| (x[i] - mean(i)) * (x[j] - mean(j))).sum::<f64>() / 49.0;
        let got = w.covariance().unwrap();
        for (got, want) in got.iter().zip([cov(0, 0), cov(1, 0), cov(1, 1)]) {
            // Deviations of order 1 about 10³: about 10⁻¹³ each.
            assert!((got - want).abs() < 1e-11);
        }
    }
}
