//! The prior distribution of a mixture's parameters.
use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::check_symmetric;
use ndarray::{Array1, Array2};

/// The prior distribution of the weights, with scikit-learn's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum WeightConcentrationPriorType {
    /// A Dirichlet process, by stick-breaking: component k takes the share vₖ of the rest that the components before it
    /// leave, with vₖ ~ Beta(1, γ). The components are ordered, and for small γ few of them have weight.
    #[default]
    DirichletProcess,
    /// π ~ Dirichlet(γ, …, γ): the components are exchangeable.
    DirichletDistribution,
}

impl WeightConcentrationPriorType {
    /// Both types.
    pub const ALL: [Self; 2] = [Self::DirichletProcess, Self::DirichletDistribution];

    /// Returns scikit-learn's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::DirichletProcess => "dirichlet_process",
            Self::DirichletDistribution => "dirichlet_distribution",
        }
    }
}

impl std::str::FromStr for WeightConcentrationPriorType {
    type Err = Error;

    /// Parses scikit-learn's name, also with hyphens.
    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name.replace('-', "_"));
        let (value, remedy) = (format!("`{name}`"), "use dirichlet_process or dirichlet_distribution");
        known.ok_or(Error::BadParameter { name: "weight_concentration_prior_type", value, remedy })
    }
}

impl std::fmt::Display for WeightConcentrationPriorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The prior distribution of a mixture's parameters: π with the concentration γ, and for each component a precision
/// matrix Λ ~ Wishart(W₀, ν₀) and a mean μ | Λ ~ N(m₀, (β₀·Λ)⁻¹).
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct VariationalPrior {
    /// The distribution of the weights.
    pub weight_concentration_type: WeightConcentrationPriorType,
    /// γ, above 0.
    pub weight_concentration: f64,
    /// β₀, above 0.
    pub mean_precision: f64,
    /// m₀ (D,).
    pub mean: Array1<f64>,
    /// ν₀, above D − 1.
    pub degrees_of_freedom: f64,
    /// W₀⁻¹, in the covariance type's shape for one component: (1, D, D), (D, D), (1, D) or (1,).
    pub covariance: Covariances,
}

impl VariationalPrior {
    /// Builds a prior from its parameters.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a number out of range or not finite; [`Error::ShapeMismatch`],
    /// [`Error::NotSymmetric`].
    pub fn new(
        weight_concentration_type: WeightConcentrationPriorType,
        weight_concentration: f64,
        mean_precision: f64,
        mean: Array1<f64>,
        degrees_of_freedom: f64,
        covariance: Covariances,
    ) -> Result<Self> {
        check_positive("weight_concentration_prior", weight_concentration)?;
        check_positive("mean_precision_prior", mean_precision)?;
        check_degrees_of_freedom(degrees_of_freedom, mean.len())?;
        covariance.check_shape("covariance_prior", 1, mean.len())?;
        let bad =
            |name, value: f64| Error::BadParameter { name, value: value.to_string(), remedy: "it must be finite" };
        if let Some(value) = mean.iter().find(|v| !v.is_finite()) {
            return Err(bad("mean_prior", *value));
        }
        if let Some(value) = covariance.iter().find(|v| !v.is_finite()) {
            return Err(bad("covariance_prior", value));
        }
        if let Some(value) = (0..mean.len()).map(|j| covariance.variance(0, j)).find(|v| *v < 0.0) {
            let remedy = "variances must not be negative";
            return Err(Error::BadParameter { name: "covariance_prior", value: value.to_string(), remedy });
        }
        covariance.matrix(0).map_or(Ok(()), |matrix| check_symmetric(matrix, None))?;
        Ok(Self {
            weight_concentration_type,
            weight_concentration,
            mean_precision,
            mean,
            degrees_of_freedom,
            covariance,
        })
    }

    /// Returns the covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.covariance.covariance_type()
    }

    /// Returns D.
    pub fn n_features(&self) -> usize {
        self.mean.len()
    }

    /// Returns the parameters of the posterior distribution of the weights, from the number of samples of each
    /// component: two per Beta distribution (2, K), or those of the Dirichlet distribution (1, K).
    pub(super) fn weight_concentration_of(&self, counts: &Array1<f64>) -> Array2<f64> {
        let (k, gamma) = (counts.len(), self.weight_concentration);
        match self.weight_concentration_type {
            WeightConcentrationPriorType::DirichletDistribution => {
                Array2::from_shape_fn((1, k), |(_, c)| gamma + counts[c])
            }
            WeightConcentrationPriorType::DirichletProcess => {
                let mut sticks = Array2::zeros((2, k));
                let mut behind = 0.0;
                for c in (0..k).rev() {
                    sticks[[0, c]] = 1.0 + counts[c];
                    sticks[[1, c]] = gamma + behind;
                    behind += counts[c];
                }
                sticks
            }
        }
    }
}

/// Checks that a parameter is finite and above 0.
pub fn check_positive(name: &'static str, value: f64) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::BadParameter { name, value: value.to_string(), remedy: "it must be positive and finite" })
}

/// Checks that the degrees of freedom are above D − 1.
pub fn check_degrees_of_freedom(value: f64, n_features: usize) -> Result<()> {
    if value > n_features as f64 - 1.0 && value.is_finite() {
        return Ok(());
    }
    let remedy = "it must be above the number of features less one, and finite";
    Err(Error::BadParameter { name: "degrees_of_freedom_prior", value: value.to_string(), remedy })
}
