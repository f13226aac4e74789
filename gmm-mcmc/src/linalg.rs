//! The little dense linear algebra that the samplers need.

/// Lower Cholesky factor (row-major n × n, zeros above the diagonal) of a symmetric row-major matrix, of which the lower
/// triangle is read; `None` if it is not positive definite.
pub(crate) fn cholesky(mut a: Vec<f64>, n: usize) -> Option<Vec<f64>> {
    for i in 0..n {
        let (above, row) = a.split_at_mut(i * n);
        for j in 0..i {
            let other = &above[j * n..j * n + j + 1];
            row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
        }
        let pivot = row[i] - dot(&row[..i], &row[..i]);
        if !(pivot.is_normal() && pivot > 0.0) {
            return None;
        }
        row[i] = pivot.sqrt();
        row[i + 1..n].fill(0.0);
    }
    Some(a)
}

/// Σ aᵢ bᵢ in eight partial sums, which the compiler turns into SIMD.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Rows of a lower triangle laid end to end: i + 1 numbers in row i.
pub(crate) fn pack(full: &[f64], n: usize) -> Vec<f64> {
    (0..n).flat_map(|i| full[i * n..i * n + i + 1].iter().copied()).collect()
}

/// The full matrix of a packed symmetric lower triangle; the upper triangle is left zero.
pub(crate) fn unpack(packed: &[f64], n: usize) -> Vec<f64> {
    let mut full = vec![0.0; n * n];
    let mut at = 0;
    for i in 0..n {
        full[i * n..i * n + i + 1].copy_from_slice(&packed[at..at + i + 1]);
        at += i + 1;
    }
    full
}

/// out ← L z for a packed L, in the widest SIMD there is; the bits do not depend on which.
pub(crate) fn lower_times(packed: &[f64], z: &[f64], out: &mut [f64]) {
    pulp::Arch::new().dispatch(|| {
        let mut at = 0;
        for (i, out) in out.iter_mut().enumerate() {
            *out = dot(&packed[at..at + i + 1], &z[..i + 1]);
            at += i + 1;
        }
    });
}

/// Running mean and covariance (Welford 1962).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Welford {
    pub count: u64,
    mean: Vec<f64>,
    /// Σ (x − mean)(x − mean)ᵀ, packed.
    scatter: Vec<f64>,
}

impl Welford {
    pub fn new(n: usize) -> Self {
        Self { count: 0, mean: vec![0.0; n], scatter: vec![0.0; n * (n + 1) / 2] }
    }

    pub fn add(&mut self, x: impl Iterator<Item = f64>, delta: &mut Vec<f64>) {
        self.count += 1;
        let n = self.count as f64;
        delta.clear();
        delta.extend(x.zip(&mut self.mean).map(|(x, mean)| {
            let delta = x - *mean;
            *mean += delta / n;
            delta
        }));
        pulp::Arch::new().dispatch(|| {
            let mut at = 0;
            for (i, &d) in delta.iter().enumerate() {
                let factor = d * (n - 1.0) / n;
                for (s, d) in self.scatter[at..at + i + 1].iter_mut().zip(delta.iter()) {
                    *s += factor * d;
                }
                at += i + 1;
            }
        });
    }

    /// The covariance, packed; `None` of fewer than two points.
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
        let a: Vec<f64> = (0..n * n)
            .map(|i| {
                dot(&b[i / n * n..i / n * n + n], &b[i % n * n..i % n * n + n]) + if i / n == i % n { 1.0 } else { 0.0 }
            })
            .collect();
        let packed = pack(&cholesky(a.clone(), n).unwrap(), n);
        // L (Lᵀ e_j) is column j.
        for j in 0..n {
            let l = unpack(&packed, n);
            let z: Vec<f64> = (0..n).map(|i| l[j * n + i]).collect();
            let mut column = vec![0.0; n];
            lower_times(&packed, &z, &mut column);
            for i in 0..n {
                // A few dozen roundings of numbers below 30.
                assert!((column[i] - a[i * n + j]).abs() < 1e-12, "{i} {j}");
            }
        }
        assert!(cholesky(vec![1.0, 2.0, 2.0, 1.0], 2).is_none());
    }

    #[test]
    fn running_covariance_is_the_covariance() {
        let x: Vec<[f64; 2]> =
            (0..50).map(|i| [1e3 + (i as f64).sin(), (i as f64).cos() * 2.0 + (i as f64).sin()]).collect();
        let mut w = Welford::new(2);
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
