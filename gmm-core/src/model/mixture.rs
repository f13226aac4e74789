//! The mixture, whose parameters are checked on construction.
use super::covariance_model::CovarianceModel;
use super::covariances::{CovarianceType, Covariances, bad_component};
use super::linalg;
use super::uniform::UniformDensity;
use crate::compensated::log_softmax;
use crate::error::{Error, Result};
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};
use std::borrow::Cow;

/// The largest deviation of the weights' sum from one. Weights rounded to float32 pass; weights are never rescaled.
pub const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// The largest |Σᵢⱼ − Σⱼᵢ|, in units of √(Σᵢᵢ·Σⱼⱼ). A product formed in float32 passes; its lower triangle counts.
pub const SYMMETRY_TOLERANCE: f64 = 1e-6;

/// A Gaussian mixture p(x) = Σₖ πₖ N(x; μₖ, Σₖ) with K components over D features.
///
/// Every value is usable: every parameter finite, every variance positive and normal (not denormal), every matrix
/// symmetric (within [`SYMMETRY_TOLERANCE`]) and positive definite, and the weights not negative with sum one (within
/// [`WEIGHT_SUM_TOLERANCE`]). A weight of zero is legal; its component contributes nothing.
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
    model: CovarianceModel,
    /// The Cholesky factors of the precisions, for types with matrices.
    factor: Option<Covariances>,
    /// The logarithms of the weights (K,), if some are too small: those weights hold the smallest normal number.
    log_weights: Option<Array1<f64>>,
    /// The noise, if the last component is one.
    noise: Option<UniformDensity>,
    of_measurements: bool,
}

impl Mixture {
    /// Checks the parameters: `weights` (K,), `means` (K, D), `covariances` in their type's shape.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] (also for K or D zero), [`Error::BadComponent`] (not finite, a negative weight, a
    /// variance that is zero, negative or denormal), [`Error::WeightSum`], [`Error::NotSymmetric`],
    /// [`Error::NotPositiveDefinite`].
    pub fn new(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let (k, d) = means.dim();
        check_weights_and_means(&weights, &means)?;
        covariances.check_shape("covariances", k, d)?;
        for (component, matrix) in covariances.matrices() {
            check_symmetric(matrix, component)?;
        }
        Self::of_symmetric(weights, means, covariances)
    }

    /// As [`new`](Self::new), of covariances that are symmetric and have the shape.
    pub(crate) fn of_symmetric(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let factor = covariances.checked_factor()?;
        Self::from_parts(weights, means, covariances, factor)
    }

    /// Builds a mixture from precisions in their type's shape, as scikit-learn's `precisions_init`.
    ///
    /// # Errors
    /// As [`new`](Self::new); an error about a matrix concerns the precision or its inverse.
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

    /// Builds a mixture from checked covariances and the `factor` that `Covariances::factorise` returned for them.
    pub fn from_parts(
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
        factor: Option<Covariances>,
    ) -> Result<Self> {
        check_weights_and_means(&weights, &means)?;
        let model = covariances.covariance_type().into();
        let (noise, of_measurements) = (None, false);
        Ok(Self { weights, means, covariances, model, factor, log_weights: None, noise, of_measurements })
    }

    /// Declares the model of the covariances, which are taken to satisfy its constraints. M-steps keep it, and
    /// [`n_parameters`](Self::n_parameters) counts by it.
    ///
    /// # Errors
    /// [`Error::WrongCovarianceType`] for a model of another form.
    pub fn with_covariance_model(mut self, model: CovarianceModel) -> Result<Self> {
        // With noise each Gaussian has its own copy of a tied covariance.
        let form = match model.form() {
            CovarianceType::Tied if self.noise.is_some() => CovarianceType::Full,
            form => form,
        };
        if form != self.covariance_type() {
            let (what, expected, got) = ("the covariances", model.form().name(), self.covariance_type().name());
            return Err(Error::WrongCovarianceType { what, expected, got });
        }
        self.model = model;
        Ok(self)
    }

    /// Declares the mixture the density of measurements, with their noise: evaluators of samples with
    /// [noise](crate::data::noise::Noise) then leave the noise out. The start of a fit seeks centres so.
    #[must_use]
    pub fn of_measurements(self) -> Self {
        Self { of_measurements: true, ..self }
    }

    /// Whether the mixture is the density of measurements.
    pub fn is_of_measurements(&self) -> bool {
        self.of_measurements
    }

    /// Replaces the weights by normalised ones, given their logarithms (K,) up to a constant; also returns the
    /// logarithm of the sum of the given weights. Fails for NaN or +∞, if all are −∞, and for a wrong number.
    pub(crate) fn with_log_weights(mut self, mut log_weights: Array1<f64>) -> Result<(Self, f64)> {
        let k = self.n_components();
        if log_weights.len() != k {
            let got = vec![log_weights.len()];
            return Err(Error::ShapeMismatch { what: "logarithms of weights", expected: vec![k], got });
        }
        let any = log_weights.iter().any(|v| *v > f64::NEG_INFINITY);
        let usable = |v: f64| v < f64::INFINITY && any;
        if let Some((component, &value)) = log_weights.iter().enumerate().find(|(_, v)| !usable(**v)) {
            let remedy = "NaN and +∞ are not allowed, and one must be finite";
            return Err(bad_component("logarithm of the weight".into(), component, value, remedy));
        }
        let total = log_softmax(log_weights.as_slice_mut().unwrap_or_default());
        let least = f64::MIN_POSITIVE;
        self.weights = log_weights.mapv(|v| if v == f64::NEG_INFINITY { 0.0 } else { v.exp_e().max(least) });
        let too_small = log_weights.iter().any(|v| v.is_finite() && *v < least.log_e());
        self.log_weights = too_small.then_some(log_weights);
        Ok((self, total))
    }

    /// Declares the last component to be noise, or none.
    pub(crate) fn with_noise_of(mut self, noise: Option<UniformDensity>) -> Self {
        self.noise = noise;
        self
    }

    /// Returns the noise, if the last component is one.
    pub fn noise(&self) -> Option<&UniformDensity> {
        self.noise.as_ref()
    }

    /// Returns a mixture of the same weights.
    pub(crate) fn with_parts(&self, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let parts = Self::of_symmetric(self.weights.clone(), means, covariances)?;
        Ok(Self { log_weights: self.log_weights.clone(), ..parts })
    }

    pub(crate) fn permuted(&self, order: &[usize]) -> Self {
        Self {
            weights: self.weights.select(Axis(0), order),
            means: self.means.select(Axis(0), order),
            covariances: self.covariances.select(order),
            model: self.model,
            factor: self.factor.as_ref().map(|factor| factor.select(order)),
            log_weights: self.log_weights.as_ref().map(|v| v.select(Axis(0), order)),
            // The noise is the last component, or left out.
            noise: self.noise.clone().filter(|_| order.last() == Some(&(self.n_components() - 1))),
            of_measurements: self.of_measurements,
        }
    }

    /// Returns the first components alone, with weights of sum 1, or equal ones if all are zero, and a tied covariance
    /// in its own form.
    pub(crate) fn first(&self, n: usize) -> Self {
        let mut first = self.permuted(&Vec::from_iter(0..n));
        let sum = first.weights.sum();
        first.weights.map_inplace(|v| *v = if sum > 0.0 { *v / sum } else { 1.0 / n as f64 });
        first.log_weights = None;
        if self.model == CovarianceModel::EEE {
            let shared = |covariances| match covariances {
                Covariances::Full(v) => Covariances::Tied(v.index_axis_move(Axis(0), 0)),
                other => other,
            };
            (first.covariances, first.factor) = (shared(first.covariances), first.factor.map(shared));
        }
        first
    }

    /// Returns the logarithm of a component's weight; −∞ for a weight of zero.
    pub(crate) fn log_weight(&self, c: usize) -> f64 {
        self.log_weights.as_ref().map_or_else(|| self.weights[c].log_e(), |v| v[c])
    }

    /// Returns log₂ of a component's weight; −∞ for a weight of zero.
    pub fn log2_weight(&self, c: usize) -> f64 {
        self.log_weights.as_ref().map_or_else(|| self.weights[c].log_2(), |v| v[c] * std::f64::consts::LOG2_E)
    }

    /// Copies the covariance of component `c` (or the tied one) from `other`, which has the same shape.
    pub(crate) fn copy_covariance(&mut self, c: usize, other: &Self) {
        self.covariances.copy_component(c, &other.covariances);
        if let (Some(factor), Some(other)) = (&mut self.factor, &other.factor) {
            factor.copy_component(c, other);
        }
    }

    /// Returns K, the number of components.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// Returns D, the number of features.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// Returns the number of numbers a pass over all components' covariances visits.
    pub fn n_numbers(&self) -> usize {
        let (k, d) = self.means.dim();
        k * d * if self.covariance_type().has_matrices() { d } else { 1 }
    }

    /// Returns the weights π (K,).
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
    }

    /// Returns all means in one vector (K·D,), to compare adapted mixtures (Campbell, Sturim and Reynolds 2006).
    pub fn supervector(&self) -> Array1<f64> {
        self.means.iter().copied().collect()
    }

    /// Returns the means μ (K, D).
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// Returns the covariances in their type's shape.
    pub fn covariances(&self) -> &Covariances {
        &self.covariances
    }

    /// Returns the covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.covariances.covariance_type()
    }

    /// Returns the model of the covariances, by default the least constrained of their type.
    pub fn covariance_model(&self) -> CovarianceModel {
        self.model
    }

    /// Returns scikit-learn's `precisions_cholesky_`, in the covariances' shape: upper triangular matrices U with Σ⁻¹ =
    /// U·Uᵀ (`full`, `tied`; computed once, on construction), or 1/σ (`diag`, `spherical`).
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

    /// Returns the Cholesky factors of the precisions, for types with matrices (`full`, `tied`).
    pub fn factor(&self) -> Option<&Covariances> {
        self.factor.as_ref()
    }

    /// Returns the Cholesky factor (D, D) of a component's precision, for types with matrices.
    pub fn factor_of(&self, c: usize) -> Option<ArrayView2<'_, f64>> {
        self.factor.as_ref()?.matrix(c)
    }

    /// Returns ln |Σ| of a component.
    pub fn log_det(&self, c: usize) -> f64 {
        match self.factor_of(c) {
            Some(u) => -2.0 * u.diag().iter().map(|v| v.log_e()).sum::<f64>(),
            None => (0..self.n_features()).map(|j| self.variance(c, j).log_e()).sum(),
        }
    }

    /// Returns scikit-learn's `precisions_`: Σ⁻¹ in the covariances' shape.
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

    /// Returns the number of free parameters: covariances, means, and K − 1 weights; with noise two more, its weight
    /// and its volume.
    pub fn n_parameters(&self) -> usize {
        let (k, d) = (self.n_gaussians(), self.n_features());
        let of_noise = if self.noise.is_some() { 2 } else { 0 };
        self.model.n_parameters(k, d) + k * d + k - 1 + of_noise
    }

    /// Returns the (marginal) variance of component `k` along feature `j`.
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
    use super::{CovarianceModel, Covariances, Error, Mixture, Result, UniformDensity};
    use ndarray::{Array1, Array2};

    /// The serialised form of a mixture: its parameters, without values computed from them.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Parts {
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
        /// Given where it is not that of the covariances' type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        covariance_model: Option<CovarianceModel>,
        /// That of the last component, if it is noise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noise: Option<UniformDensity>,
    }

    impl From<Mixture> for Parts {
        fn from(mixture: Mixture) -> Self {
            let Mixture { weights, means, covariances, model, noise, .. } = mixture;
            let covariance_model = (!model.is_plain() || noise.is_some()).then_some(model);
            Self { weights, means, covariances, covariance_model, noise }
        }
    }

    impl TryFrom<Parts> for Mixture {
        type Error = Error;

        fn try_from(parts: Parts) -> Result<Self> {
            let mixture = Self::new(parts.weights, parts.means, parts.covariances)?.with_noise_of(parts.noise);
            match parts.covariance_model {
                Some(model) => mixture.with_covariance_model(model),
                None => Ok(mixture),
            }
        }
    }
}
