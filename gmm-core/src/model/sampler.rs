//! Drawing samples from a mixture.
use super::linalg;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::model::mixture::Mixture;
use crate::reproducible::{Functions, Reproducible};
use ndarray::{Array2, Axis};
use rand::distr::weighted::WeightedIndex;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// A number of the standard normal distribution; under [`Reproducible`] by Box and Muller (1958), of
/// functions that have the same bits everywhere.
pub(crate) fn standard_normal(rng: &mut impl Rng) -> f64 {
    if !Reproducible::is_on() {
        return rng.sample(StandardNormal);
    }
    // Of numbers from 0 to below 1, so that the logarithm is finite.
    let (radius, angle) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * radius.log_e()).sqrt() * libm::cos(std::f64::consts::TAU * angle)
}

/// A stream of samples that depends on the seed alone, not on how many samples are drawn at a time.
#[derive(Debug, Clone)]
pub struct MixtureSampler<'a> {
    mixture: &'a Mixture,
    component: WeightedIndex<f64>,
    /// L with Σ = L·Lᵀ per component, or once if `tied`; empty for types without matrices.
    lower: Vec<Array2<f64>>,
    rng: ChaCha8Rng,
}

impl Mixture {
    /// Returns a source of samples from this mixture.
    ///
    /// # Errors
    /// [`Error::WeightSum`] if all weights are zero, which a checked mixture rules out.
    pub fn sampler(&self, seed: u64) -> Result<MixtureSampler<'_>> {
        let component =
            WeightedIndex::new(self.weights()).map_err(|_| Error::WeightSum { sum: 0.0, tolerance: 0.0 })?;
        let factor = |(component, matrix)| {
            linalg::cholesky(matrix).map_err(|pivot| Error::NotPositiveDefinite { component, pivot })
        };
        let lower = self.covariances().matrices().into_iter().map(factor).collect::<Result<_>>()?;
        Ok(MixtureSampler { mixture: self, component, lower, rng: ChaCha8Rng::seed_from_u64(seed) })
    }

    /// Draws N independent samples (N, D) and their components (N,); noise within its bounds. The same seed gives the same bits. Unlike
    /// scikit-learn's, the samples are not sorted by component.
    ///
    /// # Errors
    /// As [`sampler`](Self::sampler); [`Error::Memory`].
    pub fn sample(&self, n_samples: usize, seed: u64) -> Result<(Array2<f64>, Vec<usize>)> {
        self.sampler(seed)?.draw(n_samples)
    }
}

impl MixtureSampler<'_> {
    /// Draws the next N samples (N, D) and their components (N,).
    ///
    /// # Errors
    /// [`Error::Memory`] if they do not fit.
    pub fn draw(&mut self, n_samples: usize) -> Result<(Array2<f64>, Vec<usize>)> {
        let d = self.mixture.n_features();
        // The component adds one number to each sample.
        memory::check(
            "the samples and their components",
            &[n_samples, d + 1],
            size_of::<f64>(),
            "draw fewer at a time",
        )?;
        let mut x = Array2::zeros((n_samples, d));
        let mut labels = Vec::with_capacity(n_samples);
        let mut z = vec![0.0; d];
        let interrupt = Interrupt::current();
        for mut row in x.outer_iter_mut() {
            interrupt.check()?;
            let c = self.rng.sample(&self.component);
            if let Some(noise) = self.mixture.noise().filter(|_| self.mixture.is_noise(c)) {
                let bounds = noise.lower.iter().zip(&noise.upper);
                row.iter_mut().zip(bounds).for_each(|(v, (a, b))| *v = a + (b - a) * self.rng.random::<f64>());
                labels.push(c);
                continue;
            }
            z.fill_with(|| standard_normal(&mut self.rng));
            row.assign(&self.mixture.means().index_axis(Axis(0), c));
            match self.lower.get(c.min(self.lower.len().saturating_sub(1))) {
                Some(lower) => {
                    for (i, v) in row.iter_mut().enumerate() {
                        *v += (0..=i).map(|j| lower[[i, j]] * z[j]).sum::<f64>();
                    }
                }
                None => row.iter_mut().enumerate().for_each(|(j, v)| *v += self.mixture.variance(c, j).sqrt() * z[j]),
            }
            labels.push(c);
        }
        Ok((x, labels))
    }
}
