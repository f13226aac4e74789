//! The prior of a given model over a given data set, with a value for every parameter, including omitted and shared
//! ones.
use super::prior::{CorrelationsPrior, MeansPrior, Prior, ScalesPrior, Values, WeightsPrior};
use crate::data::DataSummary;
use crate::error::{Error, Result};
use gmm_host::{CovarianceType, MetropolisPrior};
use libm::lgamma;

/// The distribution of the K·S scales (S = D, or 1 for `spherical`).
#[derive(Debug, Clone)]
pub(crate) enum ScaleDistribution {
    HalfNormal(Vec<f64>),
    InverseGamma(Vec<f64>, Vec<f64>),
}

/// A prior for a given model, with one value for each of the K·D means and the K·S scales.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedPrior {
    /// The terms of the log density over the coordinates θ, except those of the correlations.
    pub terms: MetropolisPrior,
    /// The distribution of the scales, for draws.
    pub scales: ScaleDistribution,
    pub lkj_shape: f64,
}

const LN_TAU: f64 = 1.837_877_066_409_345_5;

impl ResolvedPrior {
    /// Resolves the prior of K components of this covariance type over this data. Errors: [`Error::Prior`]: a wrong
    /// shape, or a value out of range.
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
            None => default_from_data(data.std.repeat(k), d, what)?,
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
        let scales = match &prior.scales {
            ScalesPrior::HalfNormal { scale: Some(v) } => {
                ScaleDistribution::HalfNormal(fill(v, "scale of the scales")?)
            }
            ScalesPrior::HalfNormal { scale: None } => ScaleDistribution::HalfNormal(if spherical {
                let mean_square = data.std.iter().map(|s| s * s).sum::<f64>() / d as f64;
                default_from_data(vec![mean_square.sqrt(); k], 1, "scale of the scales")?
            } else {
                default_from_data(data.std.repeat(k), d, "scale of the scales")?
            }),
            ScalesPrior::InverseGamma { shape, scale } => ScaleDistribution::InverseGamma(
                fill(shape, "shape of the scales")?,
                fill(scale, "scale of the scales")?,
            ),
        };
        let (mut by_log_scale, by_variance, by_precision): (Vec<f64>, Vec<f64>, Vec<f64>) = match &scales {
            // Terms of the density of σ times the Jacobian of σ = e^u.
            ScaleDistribution::HalfNormal(s) => {
                // The density of each half-normal has the factor 2 / (s √(2π)).
                log_norm += s.iter().map(|s| std::f64::consts::LN_2 - s.ln() - 0.5 * LN_TAU).sum::<f64>();
                (vec![1.0; s.len()], s.iter().map(|s| 0.5 * s.powi(-2)).collect(), vec![0.0; s.len()])
            }
            // Terms of (σ²)^(−a−1) exp(−b/σ²) times the Jacobian of σ² = e^(2u).
            ScaleDistribution::InverseGamma(a, b) => {
                // Each density has the factor b^a / Γ(a), and 2 from d(σ²)/d(log σ) = 2σ².
                let each = a.iter().zip(b).map(|(a, b)| a * b.ln() - lgamma(*a) + std::f64::consts::LN_2);
                log_norm += each.sum::<f64>();
                (a.iter().map(|a| -2.0 * a).collect(), vec![0.0; a.len()], b.clone())
            }
        };
        // The density of a mean whose standard deviation is proportional to σ has the factor 1/σ.
        for (i, kappa) in scaled_precision.iter().enumerate() {
            by_log_scale[if spherical { i / d } else { i }] -= if *kappa > 0.0 { 1.0 } else { 0.0 };
        }

        let CorrelationsPrior::Lkj { shape: lkj_shape } = prior.correlations;
        positive(vec![lkj_shape], 1, "shape of the correlations")?;
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
        Ok(Self { terms, scales, lkj_shape })
    }

    /// Whether all components have the same prior, so that exchanging their labels does not change the density.
    pub fn exchangeable(&self, k: usize) -> bool {
        let same = |v: &Vec<f64>| v.chunks(v.len() / k).all(|c| c == &v[..v.len() / k]);
        let t = &self.terms;
        [&t.concentration, &t.location, &t.precision, &t.scaled_precision].into_iter().all(same)
            && [&t.by_log_scale, &t.by_variance, &t.by_precision].into_iter().all(same)
    }
}

/// Returns `len` numbers from one number or a list of `len`; `symbol` names `len` in the error.
fn fill_list(v: &Values, len: usize, symbol: &str, what: &str) -> Result<Vec<f64>> {
    match v {
        Values::One(x) => Ok(vec![*x; len]),
        Values::Each(x) if x.len() == len => Ok(x.clone()),
        Values::Each(x) => {
            wrong_shape(what, format!("{} values", x.len()), format!("one number or {symbol} = {len} of them"))
        }
        Values::Table(_) => wrong_shape(what, "a table".into(), format!("one number or {symbol} = {len} of them")),
    }
}

/// Returns K·D numbers from one number, a list of D, or a table of K rows of D numbers.
fn fill_table(v: &Values, k: usize, d: usize, what: &str) -> Result<Vec<f64>> {
    match v {
        Values::One(x) => Ok(vec![*x; k * d]),
        Values::Each(x) if x.len() == d => Ok(x.repeat(k)),
        Values::Table(rows) if rows.len() == k && rows.iter().all(|r| r.len() == d) => Ok(rows.concat()),
        Values::Each(x) => wrong_shape(
            what,
            format!("{} values", x.len()),
            format!("one number, D = {d} of them, or K × D = {k} × {d}"),
        ),
        Values::Table(rows) => {
            let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
            wrong_shape(
                what,
                format!("rows of {lengths:?} values"),
                format!("one number, D = {d} of them, or K × D = {k} × {d}"),
            )
        }
    }
}

/// Returns the error of a parameter `what` that is `got` instead of `needed`.
fn wrong_shape<T>(what: &str, got: String, needed: String) -> Result<T> {
    Err(Error::Prior { what: what.into(), problem: format!("expected {needed}, got {got}") })
}

/// Checks that all numbers are good, and names component and column of the first bad one. Each component has `columns`
/// of the numbers; a single column is not named.
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
    // The density uses the square and its inverse, so both must be normal numbers.
    check(
        v,
        columns,
        what,
        |x| x > 0.0 && (x * x).is_normal() && (x * x).recip().is_normal(),
        "a positive finite number",
    )
}

/// Checks default scales, which are standard deviations of the data's columns. That of a constant column is 0 and
/// unusable.
fn default_from_data(v: Vec<f64>, columns: usize, what: &str) -> Result<Vec<f64>> {
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
