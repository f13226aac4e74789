//! Drawing samples from a mixture.
use crate::{Covariances, Error, Mixture, Result, linalg};
use ndarray::{Array2, Axis};
use rand::distr::weighted::WeightedIndex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

impl Mixture {
    /// Draws N independent samples (N, D) and the component (N,) that each came from. The same seed gives the same bits.
    ///
    /// Unlike scikit-learn's, the samples are not sorted by component.
    ///
    /// # Errors
    /// [`Error::WeightSum`] where all weights are zero (no checked mixture is such).
    pub fn sample(&self, n_samples: usize, seed: u64) -> Result<(Array2<f64>, Vec<usize>)> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (k, d) = self.means().dim();
        let component =
            WeightedIndex::new(self.weights()).map_err(|_| Error::WeightSum { sum: 0.0, tolerance: 0.0 })?;
        let factor = |m: ndarray::ArrayView2<'_, f64>, component| {
            linalg::cholesky(m).map_err(|pivot| Error::NotPositiveDefinite { component, pivot })
        };
        // x = μ + L·z with Σ = L·Lᵀ.
        let lower = match self.covariances() {
            Covariances::Full(v) => {
                (0..k).map(|c| factor(v.index_axis(Axis(0), c), Some(c))).collect::<Result<Vec<_>>>()?
            }
            Covariances::Tied(v) => vec![factor(v.view(), None)?],
            Covariances::Diag(_) | Covariances::Spherical(_) => Vec::new(),
        };
        let mut x = Array2::zeros((n_samples, d));
        let mut labels = Vec::with_capacity(n_samples);
        let mut z = vec![0.0; d];
        for mut row in x.outer_iter_mut() {
            let c = rng.sample(&component);
            z.fill_with(|| rng.sample(StandardNormal));
            row.assign(&self.means().row(c));
            match lower.get(c.min(lower.len().saturating_sub(1))) {
                Some(lower) => {
                    for (i, v) in row.iter_mut().enumerate() {
                        *v += (0..=i).map(|j| lower[(i, j)] * z[j]).sum::<f64>();
                    }
                }
                None => row.iter_mut().enumerate().for_each(|(j, v)| *v += self.variance(c, j).sqrt() * z[j]),
            }
            labels.push(c);
        }
        Ok((x, labels))
    }
}
