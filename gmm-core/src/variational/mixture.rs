//! The posterior distribution of a mixture's parameters, and the density of its E-step.
//!
//! q(π) is a product of Beta distributions, or a Dirichlet distribution, and each component has q(μ, Λ) = N(μ; m,
//! (β·Λ)⁻¹)·Wishart(Λ; W, ν), with the formulas of Bishop (2006, section 10.2) and of scikit-learn, which has the other
//! covariance types too. There q(Λ) is the best approximation of the posterior by Wishart distributions with a diagonal
//! W (`diag`), a multiple of the unit matrix (`spherical`), or one W for all components (`tied`), although each
//! component has its own precision a priori. So each step of the iteration raises the same bound.
use super::expectations::{expected_log_det, expected_log_weights, for_each_component, log_det_factors};
use super::prior::{VariationalPrior, WeightConcentrationPriorType};
use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};
use std::borrow::Cow;

/// The posterior distribution of a mixture's parameters, given a prior and some samples.
///
/// [`to_mixture`](Self::to_mixture) returns the mixture of the posterior means. As in scikit-learn, results about
/// samples are those of [`density`](Self::density), whose constants are expectations of logarithms.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "serialised::Parts", into = "serialised::Parts")
)]
pub struct VariationalMixture {
    pub(super) prior: VariationalPrior,
    /// (2, K) or (1, K).
    pub(super) weight_concentration: Array2<f64>,
    /// β (K,).
    pub(super) mean_precision: Array1<f64>,
    /// ν (K,).
    pub(super) degrees_of_freedom: Array1<f64>,
    /// The means m, the covariances (ν·W)⁻¹, and the weights exp E\[log …] over their sum.
    pub(super) density: Mixture,
    pub(super) log_total: f64,
    /// log |U| for each component's E\[Λ\] = U·Uᵀ (K,).
    pub(super) log_det_factors: Array1<f64>,
}

impl VariationalMixture {
    /// Builds the posterior from its parameters: `weight_concentration` (2, K), the two parameters of each Beta
    /// distribution, for a Dirichlet process, or (1, K) for a Dirichlet distribution; `mean_precision` β and
    /// `degrees_of_freedom` ν (K,), equal for all components with a tied covariance; `means` (K, D), and `covariances`
    /// (ν·W)⁻¹ in their type's shape.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::BadParameter`] for a number out of its range; as [`Mixture::new`].
    pub fn new(
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    ) -> Result<Self> {
        let (k, d) = means.dim();
        let rows = match prior.weight_concentration_type {
            WeightConcentrationPriorType::DirichletProcess => 2,
            WeightConcentrationPriorType::DirichletDistribution => 1,
        };
        let shapes = [
            ("weight_concentration", vec![rows, k], weight_concentration.shape()),
            ("mean_precision", vec![k], mean_precision.shape()),
            ("degrees_of_freedom", vec![k], degrees_of_freedom.shape()),
            ("mean_prior", vec![d], prior.mean.shape()),
        ];
        for (what, expected, got) in shapes {
            if expected != got {
                return Err(Error::ShapeMismatch { what, expected, got: got.to_vec() });
            }
        }
        covariances.check_type("covariances", prior.covariance_type(), k, d)?;
        let numbers = [
            ("weight_concentration", 0.0, weight_concentration.view().into_dyn()),
            ("mean_precision", 0.0, mean_precision.view().into_dyn()),
            ("degrees_of_freedom", d as f64 - 1.0, degrees_of_freedom.view().into_dyn()),
        ];
        for (name, least, values) in numbers {
            if let Some(value) = values.iter().find(|v| !(v.is_finite() && **v > least)) {
                let remedy =
                    "it must be finite and positive, and degrees of freedom above the number of features less one";
                return Err(Error::BadParameter { name, value: value.to_string(), remedy });
            }
        }
        if let (Covariances::Tied(_), Some(value)) =
            (&covariances, degrees_of_freedom.iter().find(|v| **v != degrees_of_freedom[0]))
        {
            let remedy = "it must be the same for all components if their covariance is tied";
            return Err(Error::BadParameter { name: "degrees_of_freedom", value: value.to_string(), remedy });
        }
        let parts = Mixture::new(uniform(k), means, covariances)?;
        Self::with_density_of(prior, weight_concentration, mean_precision, degrees_of_freedom, parts)
    }

    /// Returns the posterior with another prior, means and covariances, for example in other units.
    pub fn with(&self, prior: VariationalPrior, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let (concentration, beta) = (self.weight_concentration.clone(), self.mean_precision.clone());
        Self::new(prior, concentration, beta, self.degrees_of_freedom.clone(), means, covariances)
    }

    /// Computes the density's weights from the other parameters.
    pub(super) fn with_density_of(
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        parts: Mixture,
    ) -> Result<Self> {
        let (k, d) = parts.means().dim();
        let of_component = |c: usize| {
            let (nu, beta) = (degrees_of_freedom[c], mean_precision[c]);
            // ½·(E[log |Λ|] − log |νW|) and the trace's ½·D/β.
            0.5 * (expected_log_det(nu, d) - d as f64 * nu.log_e() - d as f64 / beta)
        };
        let log_weights =
            expected_log_weights(&weight_concentration) + Array1::from(for_each_component(k, d, of_component));
        let (density, log_total) = parts.with_log_weights(log_weights)?;
        let log_det_factors = log_det_factors(&density);
        Ok(Self {
            prior,
            weight_concentration,
            mean_precision,
            degrees_of_freedom,
            density,
            log_total,
            log_det_factors,
        })
    }

    /// Returns the prior.
    pub fn prior(&self) -> &VariationalPrior {
        &self.prior
    }

    /// Returns K.
    pub fn n_components(&self) -> usize {
        self.density.n_components()
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.density.n_features()
    }

    /// Returns the covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.density.covariance_type()
    }

    /// Returns the parameters of q(π): (2, K) for a Dirichlet process, (1, K) for a Dirichlet distribution.
    pub fn weight_concentration(&self) -> ArrayView2<'_, f64> {
        self.weight_concentration.view()
    }

    /// Returns β (K,).
    pub fn mean_precision(&self) -> ArrayView1<'_, f64> {
        self.mean_precision.view()
    }

    /// Returns ν (K,), equal for all components with a tied covariance.
    pub fn degrees_of_freedom(&self) -> ArrayView1<'_, f64> {
        self.degrees_of_freedom.view()
    }

    /// Returns E\[π\] (K,), over its sum: the sticks of a Dirichlet process leave a rest.
    pub fn weights(&self) -> Array1<f64> {
        let sums = self.weight_concentration.sum_axis(Axis(0));
        let mut left = 1.0;
        let mut weights = self.weight_concentration.row(0).to_owned();
        if let WeightConcentrationPriorType::DirichletProcess = self.prior.weight_concentration_type {
            for (c, weight) in weights.iter_mut().enumerate() {
                *weight *= left / sums[c];
                left *= self.weight_concentration[[1, c]] / sums[c];
            }
        }
        let sum = weights.sum();
        weights / sum
    }

    /// Returns the expected number of samples of each component (K,), by weight.
    pub fn expected_counts(&self) -> Array1<f64> {
        &self.mean_precision - self.prior.mean_precision
    }

    /// Whether each component is alive (K,): its expected number of samples is at least ½, so it rounds to one or more.
    /// The posterior of other components is nearly their prior.
    pub fn alive(&self) -> Vec<bool> {
        self.expected_counts().iter().map(|&count| count >= 0.5).collect()
    }

    /// Returns E\[μ\] (K, D).
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.density.means()
    }

    /// Returns E\[Λ\]⁻¹ in the covariance type's shape.
    pub fn covariances(&self) -> &Covariances {
        self.density.covariances()
    }

    /// Returns E\[Λ\], as [`Mixture::precisions`].
    pub fn precisions(&self) -> Covariances {
        self.density.precisions()
    }

    /// Returns the Cholesky factors of E\[Λ\], as [`Mixture::precisions_cholesky`].
    pub fn precisions_cholesky(&self) -> Cow<'_, Covariances> {
        self.density.precisions_cholesky()
    }

    /// Returns the mixture of the posterior means E\[π\], E\[μ\] and E\[Λ\]⁻¹.
    ///
    /// # Errors
    /// [`Error::BadComponent`] if the weights leave the range of float64.
    pub fn to_mixture(&self) -> Result<Mixture> {
        let (covariances, factor) = (self.covariances().clone(), self.density.factor().cloned());
        Mixture::from_parts(self.weights(), self.means().to_owned(), covariances, factor)
    }

    /// Returns the mixture whose responsibilities are those of samples. With [`log_total`](Self::log_total) added, its
    /// log-densities are scikit-learn's `score_samples`: log Σₖ exp E\[log πₖ + log N(x; μₖ, Λₖ⁻¹)].
    pub fn density(&self) -> &Mixture {
        &self.density
    }

    /// Returns the number to add to log-densities under [`density`](Self::density), whose weights sum to one.
    pub fn log_total(&self) -> f64 {
        self.log_total
    }
}

/// Returns K equal weights.
pub fn uniform(k: usize) -> Array1<f64> {
    Array1::from_elem(k, 1.0 / k as f64)
}

#[cfg(feature = "serde")]
mod serialised {
    use super::{Covariances, Result, VariationalMixture, VariationalPrior};
    use crate::error::Error;
    use ndarray::{Array1, Array2};

    /// The serialised form of a posterior: its parameters, without values computed from them.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Parts {
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    }

    impl From<VariationalMixture> for Parts {
        fn from(m: VariationalMixture) -> Self {
            let (means, covariances) = (m.means().to_owned(), m.covariances().clone());
            let VariationalMixture { prior, weight_concentration, mean_precision, degrees_of_freedom, .. } = m;
            Self { prior, weight_concentration, mean_precision, degrees_of_freedom, means, covariances }
        }
    }

    impl TryFrom<Parts> for VariationalMixture {
        type Error = Error;

        fn try_from(p: Parts) -> Result<Self> {
            let prior = VariationalPrior::new(
                p.prior.weight_concentration_type,
                p.prior.weight_concentration,
                p.prior.mean_precision,
                p.prior.mean,
                p.prior.degrees_of_freedom,
                p.prior.covariance,
            )?;
            let (beta, nu) = (p.mean_precision, p.degrees_of_freedom);
            Self::new(prior, p.weight_concentration, beta, nu, p.means, p.covariances)
        }
    }
}
