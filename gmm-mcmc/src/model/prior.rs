//! Priors as the user states them.
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// A parameter of a prior: one number, one for each column (or component), or one for each component and column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Values {
    /// The same number everywhere.
    One(f64),
    /// (D,): by column; for weights and spherical scales (K,): by component.
    Each(Vec<f64>),
    /// (K, D): by component and column.
    Table(Vec<Vec<f64>>),
}

impl From<f64> for Values {
    fn from(v: f64) -> Self {
        Self::One(v)
    }
}

/// The prior of the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum WeightsPrior {
    /// π ~ Dirichlet(α).
    Dirichlet {
        /// α > 0: a number or (K,).
        concentration: Values,
    },
}

/// The prior of the means. The default location is the mean of the data's column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum MeansPrior {
    /// μₖⱼ ~ N(location, scale²), independently.
    Normal {
        /// A number, (D,) or (K, D).
        #[serde(default)]
        location: Option<Values>,
        /// Standard deviation > 0: a number, (D,) or (K, D). Default: the standard deviation of the data's column.
        #[serde(default)]
        scale: Option<Values>,
    },
    /// μₖⱼ | σ²ₖⱼ ~ N(location, σ²ₖⱼ / precision), which with inverse-gamma scales is the conjugate prior. Not
    /// available for `full` covariances.
    ScaledNormal {
        /// A number, (D,) or (K, D).
        #[serde(default)]
        location: Option<Values>,
        /// Number of prior observations > 0: a number, (D,) or (K, D).
        precision: Values,
    },
}

/// The prior of the scales: the standard deviations σ of `diag`, of `spherical`, and of the marginals of `full`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ScalesPrior {
    /// σ ~ |N(0, scale²)|.
    HalfNormal {
        /// Scale > 0: a number, (D,) or (K, D); for `spherical` a number or (K,). Default: the standard deviation of
        /// the data's column (for `spherical` its root mean square over the columns).
        #[serde(default)]
        scale: Option<Values>,
    },
    /// The variance σ² ~ InverseGamma(shape, scale), with density ∝ (σ²)^(−shape−1) exp(−scale/σ²).
    InverseGamma {
        /// Shape > 0, with as many numbers as for the half-normal.
        shape: Values,
        /// Scale > 0, with as many numbers as for the half-normal.
        scale: Values,
    },
}

/// The prior of the correlations of `full` covariances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum CorrelationsPrior {
    /// Correlation matrix ~ LKJ(shape) (Lewandowski, Kurowicka and Joe 2009): density ∝ det^(shape−1).
    Lkj {
        /// Shape > 0; 1 is the uniform distribution over correlation matrices.
        shape: f64,
    },
}

/// The prior of a mixture. The default is Dirichlet(1) for the weights, normal with the mean and the standard deviation
/// of the data's columns for the means, half-normal with that standard deviation for the scales, and LKJ(1) for the
/// correlations. It is weakly informative: clusters lie within the data and are not much wider than them.
///
/// ```
/// let prior = gmm_mcmc::Prior::from_json(
///     r#"{"weights": {"dirichlet": {"concentration": 2.0}},
///         "means": {"normal": {"location": [0.0, 1.0], "scale": 10.0}},
///         "scales": {"inverse_gamma": {"shape": 3.0, "scale": 2.0}}}"#,
/// )?;
/// # assert_ne!(prior, gmm_mcmc::Prior::default());
///
/// // The same part by part:
/// use gmm_mcmc::{MeansPrior, Prior, ScalesPrior, Values, WeightsPrior};
/// let same = Prior::default()
///     .weights(WeightsPrior::Dirichlet { concentration: 2.0.into() })
///     .means(MeansPrior::Normal { location: Some(Values::Each(vec![0.0, 1.0])), scale: Some(10.0.into()) })
///     .scales(ScalesPrior::InverseGamma { shape: 3.0.into(), scale: 2.0.into() });
/// assert_eq!(prior, same);
/// # Ok::<(), gmm_mcmc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Prior {
    /// The prior of the weights.
    pub weights: WeightsPrior,
    /// The prior of the means.
    pub means: MeansPrior,
    /// The prior of the standard deviations.
    pub scales: ScalesPrior,
    /// The prior of the correlations, for `full` covariances only.
    pub correlations: CorrelationsPrior,
}

impl Default for Prior {
    fn default() -> Self {
        Self {
            weights: WeightsPrior::Dirichlet { concentration: 1.0.into() },
            means: MeansPrior::Normal { location: None, scale: None },
            scales: ScalesPrior::HalfNormal { scale: None },
            correlations: CorrelationsPrior::Lkj { shape: 1.0 },
        }
    }
}

impl Prior {
    /// Replaces the prior of the weights.
    pub fn weights(self, weights: WeightsPrior) -> Self {
        Self { weights, ..self }
    }

    /// Replaces the prior of the means.
    pub fn means(self, means: MeansPrior) -> Self {
        Self { means, ..self }
    }

    /// Replaces the prior of the scales.
    pub fn scales(self, scales: ScalesPrior) -> Self {
        Self { scales, ..self }
    }

    /// Replaces the prior of the correlations.
    pub fn correlations(self, correlations: CorrelationsPrior) -> Self {
        Self { correlations, ..self }
    }

    /// Reads a prior from JSON. Missing parts have their defaults. Values are checked by
    /// [`PosteriorModel`](crate::PosteriorModel), because their shapes depend on the model.
    ///
    /// # Errors
    /// [`Error::PriorSyntax`], with line and column.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(Error::PriorSyntax)
    }
}
