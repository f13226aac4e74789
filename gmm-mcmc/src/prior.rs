//! Priors: what the user states, and what it comes to for a given shape and data set.
use crate::data::DataSummary;
use crate::{Error, Result};
use gmm_host::{CovarianceType, MetropolisPrior};
use libm::lgamma;
use serde::{Deserialize, Serialize};

/// A parameter of a prior: one number for all, one for each column (or component), or one for each component and
/// column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// The same for all.
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

/// Prior of the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WeightsPrior {
    /// π ~ Dirichlet(α).
    Dirichlet {
        /// α > 0: a number or (K,).
        concentration: Values,
    },
}

/// Prior of the means. A location left out is the mean of the data's column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MeansPrior {
    /// μₖⱼ ~ N(location, scale²), independently.
    Normal {
        /// A number, (D,) or (K, D).
        #[serde(default)]
        location: Option<Values>,
        /// Standard deviation > 0: a number, (D,) or (K, D). Left out: the standard deviation of the data's column.
        #[serde(default)]
        scale: Option<Values>,
    },
    /// μₖⱼ | σ²ₖⱼ ~ N(location, σ²ₖⱼ / precision): with inverse-gamma scales the conjugate prior. Not for `full`.
    ScaledNormal {
        /// A number, (D,) or (K, D).
        #[serde(default)]
        location: Option<Values>,
        /// Number of prior observations > 0: a number, (D,) or (K, D).
        precision: Values,
    },
}

/// Prior of the scales: the standard deviations σ of `diag`, of `spherical`, and of the marginals of `full`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ScalesPrior {
    /// σ ~ |N(0, scale²)|.
    HalfNormal {
        /// > 0: a number, (D,) or (K, D); for `spherical` a number or (K,). Left out: the standard deviation of the
        /// > data's column (for `spherical` the root mean square over the columns).
        #[serde(default)]
        scale: Option<Values>,
    },
    /// The variance σ² ~ InverseGamma(shape, scale), with density ∝ (σ²)^(−shape−1) exp(−scale/σ²).
    InverseGamma {
        /// > 0: shapes as for the half-normal.
        shape: Values,
        /// > 0: shapes as for the half-normal.
        scale: Values,
    },
}

/// Prior of the correlations of `full` covariances; the other types have none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CorrelationsPrior {
    /// Correlation matrix ~ LKJ(shape) (Lewandowski, Kurowicka and Joe 2009): density ∝ det^(shape−1).
    Lkj {
        /// > 0; 1 is uniform over correlation matrices.
        shape: f64,
    },
}

/// The prior of a mixture. The default: Dirichlet(1) on the weights; normal means with the mean and the standard
/// deviation of the data's columns; half-normal scales with that standard deviation; LKJ(1) correlations. Clusters
/// are no wider than the data, so this says little.
///
/// ```
/// let prior = gmm_mcmc::Prior::from_json(
///     r#"{"weights": {"dirichlet": {"concentration": 2.0}},
///         "means": {"normal": {"location": [0.0, 1.0], "scale": 10.0}},
///         "scales": {"inverse_gamma": {"shape": 3.0, "scale": 2.0}}}"#,
/// )?;
/// # assert_ne!(prior, gmm_mcmc::Prior::default());
/// # Ok::<(), gmm_mcmc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prior {
    /// Of the weights.
    pub weights: WeightsPrior,
    /// Of the means.
    pub means: MeansPrior,
    /// Of the standard deviations.
    pub scales: ScalesPrior,
    /// Of the correlations (`full` only).
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
    /// Reads a prior from JSON; parts left out are the default's. Values are checked when a
    /// [`Model`](crate::Model) is made, which knows the shapes.
    ///
    /// # Errors
    /// [`Error::PriorSyntax`] with line and column.
    pub fn from_json(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(Error::PriorSyntax)
    }
}

/// The prior of the scales as it is drawn from.
#[derive(Debug, Clone)]
pub(crate) enum ScaleDensity {
    /// Scale (one for each scale).
    HalfNormal(Vec<f64>),
    /// Shape and scale (one for each scale).
    InverseGamma(Vec<f64>, Vec<f64>),
}

/// A prior with every number in place: K·D for the means, K·S for the scales (S = D, or 1 for `spherical`).
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// The log density by θ, but for the correlations.
    pub terms: MetropolisPrior,
    pub scale: ScaleDensity,
    pub lkj: f64,
}

const LN_TAU: f64 = 1.837_877_066_409_345_5;

impl Resolved {
    pub fn new(prior: &Prior, k: usize, covariance_type: CovarianceType, data: &DataSummary) -> Result<Self> {
        let d = data.n_features;
        let spherical = covariance_type == CovarianceType::Spherical;
        let mut log_norm = 0.0;

        let WeightsPrior::Dirichlet { concentration } = &prior.weights;
        let concentration = positive(
            fill_list(concentration, k, "K", "concentration of the weights")?,
            1,
            "concentration of the weights",
        )?;
        log_norm += lgamma(concentration.iter().sum()) - concentration.iter().map(|&a| lgamma(a)).sum::<f64>();

        let (location, spread, what) = match &prior.means {
            MeansPrior::Normal { location, scale } => (location, scale.as_ref(), "scale of the means"),
            MeansPrior::ScaledNormal { location, precision } => (location, Some(precision), "precision of the means"),
        };
        let location = match location {
            Some(v) => finite(fill_table(v, k, d, "location of the means")?, d, "location of the means")?,
            None => data.mean.repeat(k),
        };
        let spread = match spread {
            Some(v) => positive(fill_table(v, k, d, what)?, d, what)?,
            None => of_data(data.std.repeat(k), d, what)?,
        };
        let (precision, scaled_precision) = match &prior.means {
            MeansPrior::Normal { .. } => {
                log_norm -= spread.iter().map(|s| s.ln() + 0.5 * LN_TAU).sum::<f64>();
                (spread.iter().map(|s| s.powi(-2)).collect(), vec![0.0; k * d])
            }
            MeansPrior::ScaledNormal { .. } => {
                if !matches!(covariance_type, CovarianceType::Diag | CovarianceType::Spherical) {
                    return Err(Error::Prior {
                        what: "means".into(),
                        problem: format!(
                            "scaled_normal is for diag and spherical covariances, not for {covariance_type}; use normal"
                        ),
                    });
                }
                log_norm += spread.iter().map(|kappa| 0.5 * (kappa.ln() - LN_TAU)).sum::<f64>();
                (vec![0.0; k * d], spread)
            }
        };

        let fill = |v: &Values, what: &str| {
            let v = if spherical { fill_list(v, k, "K", what)? } else { fill_table(v, k, d, what)? };
            positive(v, if spherical { 1 } else { d }, what)
        };
        let scale = match &prior.scales {
            ScalesPrior::HalfNormal { scale: Some(v) } => ScaleDensity::HalfNormal(fill(v, "scale of the scales")?),
            ScalesPrior::HalfNormal { scale: None } => ScaleDensity::HalfNormal(if spherical {
                let mean_square = data.std.iter().map(|s| s * s).sum::<f64>() / d as f64;
                of_data(vec![mean_square.sqrt(); k], 1, "scale of the scales")?
            } else {
                of_data(data.std.repeat(k), d, "scale of the scales")?
            }),
            ScalesPrior::InverseGamma { shape, scale } => {
                ScaleDensity::InverseGamma(fill(shape, "shape of the scales")?, fill(scale, "scale of the scales")?)
            }
        };
        let (mut by_log_scale, by_variance, by_precision): (Vec<f64>, Vec<f64>, Vec<f64>) = match &scale {
            // The density of σ times the Jacobian of σ = e^u.
            ScaleDensity::HalfNormal(s) => {
                // 2 / (s √(2π)) each.
                log_norm += s.iter().map(|s| std::f64::consts::LN_2 - s.ln() - 0.5 * LN_TAU).sum::<f64>();
                (vec![1.0; s.len()], s.iter().map(|s| 0.5 * s.powi(-2)).collect(), vec![0.0; s.len()])
            }
            // (σ²)^(−a−1) times the Jacobian of σ² = e^(2u), and exp(−b/σ²).
            ScaleDensity::InverseGamma(a, b) => {
                // b^a / Γ(a) each, and the 2 of d(σ²)/d(log σ) = 2σ².
                let each = a.iter().zip(b).map(|(a, b)| a * b.ln() - lgamma(*a) + std::f64::consts::LN_2);
                log_norm += each.sum::<f64>();
                (a.iter().map(|a| -2.0 * a).collect(), vec![0.0; a.len()], b.clone())
            }
        };
        // 1/σ of the density of a mean in units of σ.
        for (i, kappa) in scaled_precision.iter().enumerate() {
            by_log_scale[if spherical { i / d } else { i }] -= if *kappa > 0.0 { 1.0 } else { 0.0 };
        }

        let CorrelationsPrior::Lkj { shape: lkj } = prior.correlations;
        positive(vec![lkj], 1, "shape of the correlations")?;
        let terms = MetropolisPrior {
            concentration,
            location,
            precision,
            scaled_precision,
            by_log_scale,
            by_variance,
            by_precision,
            constant: log_norm,
        };
        Ok(Self { terms, scale, lkj })
    }

    /// Whether all components have the same prior, so that relabelling them changes nothing.
    pub fn exchangeable(&self, k: usize) -> bool {
        let same = |v: &Vec<f64>| v.chunks(v.len() / k).all(|c| c == &v[..v.len() / k]);
        let t = &self.terms;
        [&t.concentration, &t.location, &t.precision, &t.scaled_precision].into_iter().all(same)
            && [&t.by_log_scale, &t.by_variance, &t.by_precision].into_iter().all(same)
    }
}

/// A number or a list of `len` (named `symbol`) numbers.
fn fill_list(v: &Values, len: usize, symbol: &str, what: &str) -> Result<Vec<f64>> {
    match v {
        Values::One(x) => Ok(vec![*x; len]),
        Values::Each(x) if x.len() == len => Ok(x.clone()),
        Values::Each(x) => {
            shape(what, format!("{} values", x.len()), format!("one number or {symbol} = {len} of them"))
        }
        Values::Table(_) => shape(what, "a table".into(), format!("one number or {symbol} = {len} of them")),
    }
}

/// A number, a list of D, or a table of K rows of D numbers, as K·D.
fn fill_table(v: &Values, k: usize, d: usize, what: &str) -> Result<Vec<f64>> {
    match v {
        Values::One(x) => Ok(vec![*x; k * d]),
        Values::Each(x) if x.len() == d => Ok(x.repeat(k)),
        Values::Table(rows) if rows.len() == k && rows.iter().all(|r| r.len() == d) => Ok(rows.concat()),
        Values::Each(x) => {
            shape(what, format!("{} values", x.len()), format!("one number, D = {d} of them, or K × D = {k} × {d}"))
        }
        Values::Table(rows) => {
            let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
            shape(
                what,
                format!("rows of {lengths:?} values"),
                format!("one number, D = {d} of them, or K × D = {k} × {d}"),
            )
        }
    }
}

fn shape<T>(what: &str, got: String, needed: String) -> Result<T> {
    Err(Error::Prior { what: what.into(), problem: format!("{got} given where {needed} is needed") })
}

/// `columns` numbers to a component; 1 means one for each component.
fn check(v: Vec<f64>, columns: usize, what: &str, good: fn(f64) -> bool, need: &str) -> Result<Vec<f64>> {
    match v.iter().position(|&x| !good(x)) {
        None => Ok(v),
        Some(i) => {
            let place = if columns == 1 {
                format!("component {i}")
            } else {
                format!("component {}, column {}", i / columns, i % columns)
            };
            Err(Error::Prior {
                what: format!("{what}, {place} (counted from 0)"),
                problem: format!("is {}, {need} is needed", v[i]),
            })
        }
    }
}

fn positive(v: Vec<f64>, columns: usize, what: &str) -> Result<Vec<f64>> {
    // The square and its inverse are used, so both must be normal numbers.
    check(
        v,
        columns,
        what,
        |x| x > 0.0 && (x * x).is_normal() && (x * x).recip().is_normal(),
        "a positive finite number",
    )
}

/// A default taken from the data, which a constant column spoils.
fn of_data(v: Vec<f64>, columns: usize, what: &str) -> Result<Vec<f64>> {
    positive(
        v,
        columns,
        &format!(
            "{what} (by default the standard deviation of the data's column: state one, or drop a constant column)"
        ),
    )
}

fn finite(v: Vec<f64>, columns: usize, what: &str) -> Result<Vec<f64>> {
    check(v, columns, what, f64::is_finite, "a finite number")
}
