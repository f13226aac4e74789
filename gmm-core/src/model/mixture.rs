//! The mixture and its parameters, checked once, on construction.
use super::covariances::{CovarianceType, Covariances, bad_component};
use super::linalg;
use crate::compensated::log_softmax;
use crate::error::{Error, Result};
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};
use std::borrow::Cow;

/// How far the sum of the weights may be from one. Weights rounded to float32 pass; the weights are
/// evaluated as they are given, never rescaled.
pub const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// How far |Σᵢⱼ − Σⱼᵢ| may be from zero, in units of √(Σᵢᵢ·Σⱼⱼ). A product formed in float32
/// passes; the lower triangle is then the one that counts.
pub const SYMMETRY_TOLERANCE: f64 = 1e-6;

/// A Gaussian mixture p(x) = Σₖ πₖ N(x; μₖ, Σₖ) with K components over D features.
///
/// A value of this type is always usable: every parameter finite, every variance positive and
/// normal (not denormal), every matrix symmetric (within [`SYMMETRY_TOLERANCE`]) and positive
/// definite, weights not negative with sum one (within [`WEIGHT_SUM_TOLERANCE`]). A weight of zero
/// is legal, its component contributes nothing.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "serialised::Parts", into = "serialised::Parts")
)]
pub struct Mixture {
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
    /// The Cholesky factors of the precisions, for the types that have matrices.
    factor: Option<Covariances>,
    /// The logarithms of the weights (K,), where some are too small for a number: such a weight is
    /// then the smallest normal one.
    log_weights: Option<Array1<f64>>,
}

impl Mixture {
    /// Checks the parameters: `weights` (K,), `means` (K, D), `covariances` in their type's shape.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] (also for K or D zero), [`Error::BadComponent`] (not finite, a
    /// negative weight, a variance that is zero, negative or denormal), [`Error::WeightSum`],
    /// [`Error::NotSymmetric`], [`Error::NotPositiveDefinite`].
    pub fn new(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let (k, d) = means.dim();
        check_weights_and_means(&weights, &means)?;
        covariances.check_shape("covariances", k, d)?;
        match &covariances {
            Covariances::Full(v) => {
                for (component, matrix) in v.outer_iter().enumerate() {
                    check_symmetric(matrix, Some(component))?;
                }
            }
            Covariances::Tied(v) => check_symmetric(v.view(), None)?,
            Covariances::Diag(_) | Covariances::Spherical(_) => {}
        }
        let (factor, failures) = covariances.factorise();
        match failures.into_iter().next() {
            Some(failure) => Err(failure),
            None => Ok(Self { weights, means, covariances, factor, log_weights: None }),
        }
    }

    /// From precisions (inverse covariances) in their type's shape, as scikit-learn's
    /// `precisions_init`.
    ///
    /// # Errors
    /// As [`new`](Self::new); an error about a matrix is then about the precision, or about the
    /// covariance that is its inverse.
    pub fn from_precisions(weights: Array1<f64>, means: Array2<f64>, precisions: Covariances) -> Result<Self> {
        let (k, d) = means.dim();
        precisions.check_shape("precisions", k, d)?;
        let inverse = |matrix: ArrayView2<'_, f64>, component| {
            check_symmetric(matrix, component)?;
            linalg::inverse(matrix).map_err(|pivot| Error::NotPositiveDefinite { component, pivot })
        };
        let covariances = match precisions {
            Covariances::Full(mut v) => {
                for (component, mut matrix) in v.outer_iter_mut().enumerate() {
                    let sigma = inverse(matrix.view(), Some(component))?;
                    matrix.assign(&sigma);
                }
                Covariances::Full(v)
            }
            Covariances::Tied(v) => Covariances::Tied(inverse(v.view(), None)?),
            mut diagonal => {
                diagonal.map_inplace(|v| *v = 1.0 / *v);
                diagonal
            }
        };
        Self::new(weights, means, covariances)
    }

    /// Puts together parameters whose covariances were checked; `factor` comes from
    /// `Covariances::factorise`.
    pub fn from_parts(
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
        factor: Option<Covariances>,
    ) -> Result<Self> {
        check_weights_and_means(&weights, &means)?;
        Ok(Self { weights, means, covariances, factor, log_weights: None })
    }

    /// With other weights, whose logarithms (K,) are given up to a constant; also gives that: the
    /// logarithm of what the given weights sum to.
    ///
    /// # Errors
    /// [`Error::BadComponent`] for a logarithm that is not a number or +∞, or if all are −∞;
    /// [`Error::ShapeMismatch`].
    pub(crate) fn with_log_weights(mut self, mut log_weights: Array1<f64>) -> Result<(Self, f64)> {
        let k = self.n_components();
        if log_weights.len() != k {
            let got = vec![log_weights.len()];
            return Err(Error::ShapeMismatch { what: "logarithms of weights", expected: vec![k], got });
        }
        let any = log_weights.iter().any(|v| *v > f64::NEG_INFINITY);
        let usable = |v: f64| v < f64::INFINITY && any;
        if let Some((component, &value)) = log_weights.iter().enumerate().find(|(_, v)| !usable(**v)) {
            let remedy = "they must be numbers, and one of them finite";
            return Err(bad_component("logarithm of the weight".into(), component, value, remedy));
        }
        let total = log_softmax(log_weights.as_slice_mut().unwrap_or_default());
        let least = f64::MIN_POSITIVE;
        self.weights = log_weights.mapv(|v| if v == f64::NEG_INFINITY { 0.0 } else { v.exp_e().max(least) });
        let too_small = log_weights.iter().any(|v| v.is_finite() && *v < least.log_e());
        self.log_weights = too_small.then_some(log_weights);
        Ok((self, total))
    }

    /// The same weights for components of other covariances and means.
    pub(crate) fn with_weights_of(mut self, other: &Self) -> Self {
        self.log_weights.clone_from(&other.log_weights);
        self.weights.clone_from(&other.weights);
        self
    }

    /// The same mixture with its components in another order, a permutation.
    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        Self {
            weights: self.weights.select(Axis(0), order),
            means: self.means.select(Axis(0), order),
            covariances: self.covariances.select(order),
            factor: self.factor.as_ref().map(|factor| factor.select(order)),
            log_weights: self.log_weights.as_ref().map(|v| v.select(Axis(0), order)),
        }
    }

    /// The logarithm of a component's weight; −∞ where that is zero.
    pub(crate) fn log_weight(&self, c: usize) -> f64 {
        self.log_weights.as_ref().map_or_else(|| self.weights[c].log_e(), |v| v[c])
    }

    /// log₂ of a component's weight; −∞ where that is zero.
    pub fn log2_weight(&self, c: usize) -> f64 {
        self.log_weights.as_ref().map_or_else(|| self.weights[c].log_2(), |v| v[c] * std::f64::consts::LOG2_E)
    }

    /// Takes the covariance of component `c` (that of all, if it is tied) from `other`, which has
    /// the same shape.
    pub(crate) fn copy_covariance(&mut self, c: usize, other: &Self) {
        self.covariances.copy_component(c, &other.covariances);
        if let (Some(factor), Some(other)) = (&mut self.factor, &other.factor) {
            factor.copy_component(c, other);
        }
    }

    /// K, the number of components.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// D, the number of features.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// How many numbers are gone through where each component's covariance is.
    pub fn n_numbers(&self) -> usize {
        let (k, d) = self.means.dim();
        k * d * if self.covariance_type().has_matrices() { d } else { 1 }
    }

    /// Weights π (K,).
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
    }

    /// The means of all components after each other (K·D,), by which adapted mixtures are compared
    /// (Campbell, Sturim and Reynolds 2006).
    pub fn supervector(&self) -> Array1<f64> {
        self.means.iter().copied().collect()
    }

    /// Means μ (K, D).
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// Covariances in their type's shape.
    pub fn covariances(&self) -> &Covariances {
        &self.covariances
    }

    /// The type of the covariances.
    pub fn covariance_type(&self) -> CovarianceType {
        self.covariances.covariance_type()
    }

    /// scikit-learn's `precisions_cholesky_`, in the covariances' shape: upper triangular matrices
    /// U with Σ⁻¹ = U·Uᵀ (`full`, `tied`; computed once, on construction), or 1/σ (`diag`,
    /// `spherical`).
    pub fn precisions_cholesky(&self) -> Cow<'_, Covariances> {
        match &self.factor {
            Some(factor) => Cow::Borrowed(factor),
            None => {
                let mut v = self.covariances.clone();
                v.map_inplace(|v| *v = 1.0 / v.sqrt());
                Cow::Owned(v)
            }
        }
    }

    /// The Cholesky factors of the precisions where the type has matrices (`full`, `tied`).
    pub fn factor(&self) -> Option<&Covariances> {
        self.factor.as_ref()
    }

    /// The Cholesky factor (D, D) of a component's precision, where the type has matrices.
    pub fn factor_of(&self, c: usize) -> Option<ArrayView2<'_, f64>> {
        match self.factor.as_ref()? {
            Covariances::Full(u) => Some(u.index_axis(Axis(0), c)),
            Covariances::Tied(u) => Some(u.view()),
            Covariances::Diag(_) | Covariances::Spherical(_) => None,
        }
    }

    /// ln |Σ| of a component.
    pub fn log_det(&self, c: usize) -> f64 {
        match self.factor_of(c) {
            Some(u) => -2.0 * u.diag().iter().map(|v| v.log_e()).sum::<f64>(),
            None => (0..self.n_features()).map(|j| self.variance(c, j).log_e()).sum(),
        }
    }

    /// scikit-learn's `precisions_`: Σ⁻¹ in the covariances' shape.
    pub fn precisions(&self) -> Covariances {
        match &self.factor {
            Some(Covariances::Full(u)) => {
                let mut precisions = Array3::zeros(u.raw_dim());
                for (u, mut p) in u.outer_iter().zip(precisions.outer_iter_mut()) {
                    p.assign(&linalg::gram(u));
                }
                Covariances::Full(precisions)
            }
            Some(Covariances::Tied(u)) => Covariances::Tied(linalg::gram(u.view())),
            _ => {
                let mut v = self.covariances.clone();
                v.map_inplace(|v| *v = 1.0 / *v);
                v
            }
        }
    }

    /// The number of free parameters: of the covariances, of the means, and K − 1 weights.
    pub fn n_parameters(&self) -> usize {
        let (k, d) = self.means.dim();
        let covariances = match self.covariance_type() {
            CovarianceType::Full => k * d * (d + 1) / 2,
            CovarianceType::Tied => d * (d + 1) / 2,
            CovarianceType::Diag => k * d,
            CovarianceType::Spherical => k,
        };
        covariances + k * d + k - 1
    }

    /// The variance of component `k` along feature `j`: the marginal one, if the type has matrices.
    ///
    /// # Panics
    /// If there is no such component or feature.
    pub fn variance(&self, k: usize, j: usize) -> f64 {
        self.covariances.variance(k, j)
    }
}

fn check_weights_and_means(weights: &Array1<f64>, means: &Array2<f64>) -> Result<()> {
    let (k, d) = means.dim();
    if k == 0 || d == 0 {
        return Err(Error::ShapeMismatch { what: "means", expected: vec![k.max(1), d.max(1)], got: vec![k, d] });
    }
    if weights.len() != k {
        return Err(Error::ShapeMismatch { what: "weights", expected: vec![k], got: vec![weights.len()] });
    }
    for (component, &value) in weights.iter().enumerate() {
        if !value.is_finite() || value < 0.0 {
            return Err(bad_component("weight".into(), component, value, "weights must be finite and not negative"));
        }
    }
    let sum = weights.sum();
    if (sum - 1.0).abs() > WEIGHT_SUM_TOLERANCE {
        return Err(Error::WeightSum { sum, tolerance: WEIGHT_SUM_TOLERANCE });
    }
    if linalg::all(&linalg::row_major(means.view()), f64::is_finite) {
        return Ok(());
    }
    match means.indexed_iter().find(|(_, value)| !value.is_finite()) {
        None => Ok(()),
        Some(((component, j), &value)) => {
            Err(bad_component(format!("mean in column {j}"), component, value, "means must be finite"))
        }
    }
}

/// Checks that a matrix is finite and symmetric.
pub(crate) fn check_symmetric(matrix: ArrayView2<'_, f64>, component: Option<usize>) -> Result<()> {
    if let Some(((i, j), &value)) = matrix.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let what = format!("covariance at row {i}, column {j}");
        return Err(bad_component(what, component.unwrap_or(0), value, "covariances must be finite"));
    }
    for i in 0..matrix.nrows() {
        for j in i + 1..matrix.nrows() {
            let (upper, lower) = (matrix[[i, j]], matrix[[j, i]]);
            let scale = || (matrix[[i, i]].abs().sqrt()) * (matrix[[j, j]].abs().sqrt());
            if upper != lower && (upper - lower).abs() > SYMMETRY_TOLERANCE * scale() {
                return Err(Error::NotSymmetric { component, row: i, column: j, upper, lower });
            }
        }
    }
    Ok(())
}

#[cfg(feature = "serde")]
mod serialised {
    use super::{Covariances, Error, Mixture, Result};
    use ndarray::{Array1, Array2};

    /// What a mixture is serialised as: its parameters, without what is computed from them.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Parts {
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    }

    impl From<Mixture> for Parts {
        fn from(mixture: Mixture) -> Self {
            Self { weights: mixture.weights, means: mixture.means, covariances: mixture.covariances }
        }
    }

    impl TryFrom<Parts> for Mixture {
        type Error = Error;

        fn try_from(parts: Parts) -> Result<Self> {
            Self::new(parts.weights, parts.means, parts.covariances)
        }
    }
}
