//! The sufficient statistics of an E-step, and the M-step.
pub mod freeze;
pub mod prior;
pub mod sums;
pub mod update;

use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
pub use sums::CentredSums;
pub use update::Update;

/// The number added to every count before a division, as in scikit-learn (10·ε); see [`Statistics::update`].
pub const COUNT_FLOOR: f64 = 10.0 * f64::EPSILON;

/// The sufficient statistics of a mixture over some samples. A pass over a chunk of data makes them; chunks merge in
/// any grouping; the M-step turns them into parameters.
///
/// With responsibilities rᵢₖ (times the sample weights): counts Nₖ = Σᵢ rᵢₖ, means x̄ₖ = Σᵢ rᵢₖ xᵢ / Nₖ, and the
/// scatter around x̄ₖ in the shape of the covariance type: `full` Σᵢ rᵢₖ (xᵢ−x̄ₖ)(xᵢ−x̄ₖ)ᵀ, `tied` its sum over k,
/// `diag` its diagonals, `spherical` its traces (sums over the features, not means).
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    weight: f64,
    log_likelihood: f64,
    counts: Array1<f64>,
    means: Array2<f64>,
    scatter: Covariances,
}

impl Statistics {
    /// Returns the statistics of no samples, the neutral element of [`merge`](Self::merge).
    pub fn empty(covariance_type: CovarianceType, n_components: usize, n_features: usize) -> Self {
        Self {
            weight: 0.0,
            log_likelihood: 0.0,
            counts: Array1::zeros(n_components),
            means: Array2::zeros((n_components, n_features)),
            scatter: Covariances::zeros(covariance_type, n_components, n_features),
        }
    }

    /// Returns the expected statistics of `samples` samples from each component.
    pub fn of_mixture(mixture: &Mixture, samples: f64) -> Self {
        let (k, d) = mixture.means().dim();
        let factor = match mixture.covariance_type() {
            CovarianceType::Tied => samples * k as f64,
            CovarianceType::Spherical => samples * d as f64,
            CovarianceType::Full | CovarianceType::Diag => samples,
        };
        let mut scatter = mixture.covariances().clone();
        scatter.map_inplace(|v| *v *= factor);
        let counts = Array1::from_elem(k, samples);
        Self { weight: counts.sum(), log_likelihood: 0.0, counts, means: mixture.means().to_owned(), scatter }
    }

    /// Returns the total weight of the samples (their number, without sample weights).
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Returns Σᵢ wᵢ log p(xᵢ) under the mixture of the E-step.
    pub fn log_likelihood(&self) -> f64 {
        self.log_likelihood
    }

    /// Returns the mean log-likelihood of a sample: scikit-learn's `lower_bound_`.
    pub fn lower_bound(&self) -> f64 {
        self.log_likelihood / self.weight
    }

    /// Returns Nₖ (K,).
    pub fn counts(&self) -> ArrayView1<'_, f64> {
        self.counts.view()
    }

    /// Returns x̄ₖ (K, D); meaningless where the count is zero.
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// Returns the scatter, in the shape of the covariance type.
    pub fn scatter(&self) -> &Covariances {
        &self.scatter
    }

    /// Returns the scatter in its own memory, which an M-step reuses for the covariances.
    pub(crate) fn into_scatter(self) -> Covariances {
        self.scatter
    }

    /// Returns the covariance type of the mixture and of the scatter.
    pub fn covariance_type(&self) -> CovarianceType {
        self.scatter.covariance_type()
    }

    /// Returns K.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// Adds the statistics of other samples under the same mixture, by the pairwise formula of Chan, Golub and LeVeque
    /// (1979). Moments are never moved to the origin, so nothing cancels.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if K or D differ, [`Error::WrongCovarianceType`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let (k, d) = self.means.dim();
        if other.means.dim() != (k, d) {
            let got = other.means.shape().to_vec();
            return Err(Error::ShapeMismatch { what: "statistics to be merged", expected: vec![k, d], got });
        }
        other.scatter.check_type("statistics to be merged", self.covariance_type(), k, d)?;
        match (&mut self.scatter, &other.scatter) {
            (Covariances::Full(a), Covariances::Full(b)) => *a += b,
            (Covariances::Tied(a), Covariances::Tied(b)) | (Covariances::Diag(a), Covariances::Diag(b)) => *a += b,
            (Covariances::Spherical(a), Covariances::Spherical(b)) => *a += b,
            _ => {}
        }
        let mut delta = vec![0.0; d];
        for c in 0..k {
            let (a, b) = (self.counts[c], other.counts[c]);
            if b == 0.0 {
                continue;
            }
            if a == 0.0 {
                self.means.row_mut(c).assign(&other.means.row(c));
            } else {
                let share = b / (a + b);
                for ((delta, mean), other) in delta.iter_mut().zip(self.means.row_mut(c)).zip(other.means.row(c)) {
                    *delta = other - *mean;
                    *mean += *delta * share;
                }
                self.scatter.add_outer(c, a * share, &delta);
            }
            self.counts[c] = a + b;
        }
        self.weight += other.weight;
        self.log_likelihood += other.log_likelihood;
        Ok(())
    }

    /// Embeds these statistics of a part of `mixture` in all its components. Only the part's `components`, with weights
    /// rescaled to sum one, can have generated the samples; exp(`log_share`) is the sum of their weights in `mixture`.
    pub(crate) fn as_part_of(&self, mixture: &Mixture, components: &[usize], log_share: f64) -> Self {
        let (k, d) = mixture.means().dim();
        let mut counts = Array1::zeros(k);
        let mut means = mixture.means().to_owned();
        let mut scatter = Covariances::zeros(self.covariance_type(), k, d);
        for (of_part, &c) in components.iter().enumerate() {
            counts[c] = self.counts[of_part];
            means.row_mut(c).assign(&self.means.row(of_part));
            scatter.copy_component_from(c, &self.scatter, of_part);
        }
        let log_likelihood = self.log_likelihood + self.weight * log_share;
        Self { weight: self.weight, log_likelihood, counts, means, scatter }
    }

    /// Returns the statistics with every sample weight multiplied by `factor` (not negative).
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.weight *= factor;
        self.log_likelihood *= factor;
        self.counts *= factor;
        self.scatter.map_inplace(|v| *v *= factor);
        self
    }

    /// Adds variances (K, D) to the samples of each component; (1, D) applies to all components.
    pub fn with_variances(mut self, added: ArrayView2<'_, f64>) -> Self {
        for (c, &count) in self.counts.iter().enumerate() {
            let added = added.row(c.min(added.nrows() - 1));
            match &mut self.scatter {
                Covariances::Full(v) => v.index_axis_mut(Axis(0), c).diag_mut().scaled_add(count, &added),
                Covariances::Tied(v) => v.diag_mut().scaled_add(count, &added),
                Covariances::Diag(v) => v.row_mut(c).scaled_add(count, &added),
                Covariances::Spherical(v) => v[c] += count * added.sum(),
            }
        }
        self
    }
}
