//! What the sampler needs to know about the data besides their likelihood.
use gmm_host::{Samples, View};
use ndarray::{ArrayView1, ArrayView2};
use sha2::{Digest, Sha256};

/// The shape, the moments (for default priors) and the hash (so that a run resumes only on its own data) of a data
/// set, sample weights included.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSummary {
    /// N.
    pub n_samples: usize,
    /// D.
    pub n_features: usize,
    /// Σᵢ wᵢ; N where the samples have no weights.
    pub total_weight: f64,
    /// Mean of each column (D,).
    pub mean: Vec<f64>,
    /// Standard deviation of each column (D,), with divisor Σᵢ wᵢ.
    pub std: Vec<f64>,
    /// SHA-256, in hexadecimal, of the element type, the shape, the values in row order and the weights (if any), all
    /// little-endian.
    pub hash: String,
}

impl DataSummary {
    /// Reads the samples twice for the moments (float64, about the mean) and once for the hash.
    pub fn new(samples: &Samples<'_>) -> Self {
        match samples.view() {
            View::F32(x) => Self::of(x, samples.weights(), "f32", f64::from, |v, out| out.extend(v.to_le_bytes())),
            View::F64(x) => Self::of(x, samples.weights(), "f64", |v| v, |v, out| out.extend(v.to_le_bytes())),
        }
    }

    fn of<T: Copy>(
        x: ArrayView2<'_, T>,
        weights: Option<ArrayView1<'_, f64>>,
        name: &str,
        wide: impl Fn(T) -> f64,
        bytes: impl Fn(T, &mut Vec<u8>),
    ) -> Self {
        let (n, d) = x.dim();
        let weight = |i: usize| weights.map_or(1.0, |w| w[i]);
        let total_weight: f64 = (0..n).map(weight).sum();
        // Divided before the sum, so that the largest finite values do not overflow it.
        let over_columns = |term: &dyn Fn(usize, T) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0; d];
            for (i, row) in x.outer_iter().enumerate() {
                let share = weight(i) / total_weight;
                for (j, &v) in row.iter().enumerate() {
                    sums[j] += term(j, v) * share;
                }
            }
            sums
        };
        let mean = over_columns(&|_, v| wide(v));
        let std = over_columns(&|j, v| (wide(v) - mean[j]).powi(2)).into_iter().map(f64::sqrt).collect();

        let mut hash = Sha256::new();
        hash.update(name);
        hash.update((n as u64).to_le_bytes());
        hash.update((d as u64).to_le_bytes());
        let mut buffer = Vec::with_capacity(d * 8);
        for row in x.outer_iter() {
            buffer.clear();
            row.iter().for_each(|&v| bytes(v, &mut buffer));
            hash.update(&buffer);
        }
        for w in weights.iter().flatten() {
            hash.update(w.to_le_bytes());
        }
        let hash = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        Self { n_samples: n, n_features: d, total_weight, mean, std, hash }
    }
}
