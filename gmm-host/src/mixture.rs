//! The mixture and its parameters, checked once, on construction.
use crate::{Error, Result, linalg};
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis};
use std::borrow::Cow;

/// How far the sum of the weights may be from one. Weights rounded to float32 pass; the weights are evaluated as
/// they are given, never rescaled.
pub const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// How far |Σᵢⱼ − Σⱼᵢ| may be from zero, in units of √(Σᵢᵢ·Σⱼⱼ). A product formed in float32 passes; the lower
/// triangle is then the one that counts.
pub const SYMMETRY_TOLERANCE: f64 = 1e-6;

/// The shape of the covariances, with scikit-learn's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CovarianceType {
    /// A covariance matrix for each component: (K, D, D).
    Full,
    /// One covariance matrix for all components: (D, D).
    Tied,
    /// A variance for each component and feature: (K, D).
    Diag,
    /// A variance for each component: (K,).
    Spherical,
}

impl CovarianceType {
    /// All types, the richest first.
    pub const ALL: [Self; 4] = [Self::Full, Self::Tied, Self::Diag, Self::Spherical];

    /// scikit-learn's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tied => "tied",
            Self::Diag => "diag",
            Self::Spherical => "spherical",
        }
    }

    /// The shape that covariances of this type have for K components over D features.
    pub fn shape(self, n_components: usize, n_features: usize) -> Vec<usize> {
        let (k, d) = (n_components, n_features);
        match self {
            Self::Full => vec![k, d, d],
            Self::Tied => vec![d, d],
            Self::Diag => vec![k, d],
            Self::Spherical => vec![k],
        }
    }
}

impl std::str::FromStr for CovarianceType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|t| t.name() == name);
        known.ok_or_else(|| Error::UnknownCovarianceType { name: name.into() })
    }
}

impl std::fmt::Display for CovarianceType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The covariances of a mixture in scikit-learn's shapes, or anything else that has them: precisions, their
/// Cholesky factors, scatter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Covariances {
    /// Matrices (K, D, D).
    Full(Array3<f64>),
    /// One matrix (D, D).
    Tied(Array2<f64>),
    /// Variances (K, D).
    Diag(Array2<f64>),
    /// Variances (K,).
    Spherical(Array1<f64>),
}

impl Covariances {
    /// Which type they are of.
    pub fn covariance_type(&self) -> CovarianceType {
        match self {
            Self::Full(_) => CovarianceType::Full,
            Self::Tied(_) => CovarianceType::Tied,
            Self::Diag(_) => CovarianceType::Diag,
            Self::Spherical(_) => CovarianceType::Spherical,
        }
    }

    /// Zeros in the shape of a type.
    pub fn zeros(covariance_type: CovarianceType, n_components: usize, n_features: usize) -> Self {
        let (k, d) = (n_components, n_features);
        match covariance_type {
            CovarianceType::Full => Self::Full(Array3::zeros((k, d, d))),
            CovarianceType::Tied => Self::Tied(Array2::zeros((d, d))),
            CovarianceType::Diag => Self::Diag(Array2::zeros((k, d))),
            CovarianceType::Spherical => Self::Spherical(Array1::zeros(k)),
        }
    }

    /// Numbers in row-major order, as [`iter`](Self::iter) gives them, in the shape of a type.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where there are more or fewer numbers than the shape takes.
    pub fn from_vec(
        covariance_type: CovarianceType,
        n_components: usize,
        n_features: usize,
        values: Vec<f64>,
    ) -> Result<Self> {
        let (k, d, got) = (n_components, n_features, values.len());
        let made = match covariance_type {
            CovarianceType::Full => Array3::from_shape_vec((k, d, d), values).map(Self::Full),
            CovarianceType::Tied => Array2::from_shape_vec((d, d), values).map(Self::Tied),
            CovarianceType::Diag => Array2::from_shape_vec((k, d), values).map(Self::Diag),
            CovarianceType::Spherical => Array1::from_shape_vec(k, values).map(Self::Spherical),
        };
        made.map_err(|_| Error::ShapeMismatch {
            what: "covariances",
            expected: covariance_type.shape(k, d),
            got: vec![got],
        })
    }

    /// The same variance for every component and feature.
    pub(crate) fn isotropic(covariance_type: CovarianceType, k: usize, d: usize, variance: f64) -> Self {
        let mut covariances = Self::zeros(covariance_type, k, d);
        match &mut covariances {
            Self::Full(v) => v.outer_iter_mut().for_each(|mut m| m.diag_mut().fill(variance)),
            Self::Tied(v) => v.diag_mut().fill(variance),
            Self::Diag(v) => v.fill(variance),
            Self::Spherical(v) => v.fill(variance),
        }
        covariances
    }

    /// The shape of the array.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Full(v) => v.shape(),
            Self::Tied(v) | Self::Diag(v) => v.shape(),
            Self::Spherical(v) => v.shape(),
        }
    }

    /// The numbers in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        let view = match self {
            Self::Full(v) => v.view().into_dyn(),
            Self::Tied(v) | Self::Diag(v) => v.view().into_dyn(),
            Self::Spherical(v) => v.view().into_dyn(),
        };
        view.into_iter().copied()
    }

    /// Applies a function to every number.
    pub(crate) fn map_inplace(&mut self, f: impl Fn(&mut f64)) {
        match self {
            Self::Full(v) => v.map_inplace(f),
            Self::Tied(v) | Self::Diag(v) => v.map_inplace(f),
            Self::Spherical(v) => v.map_inplace(f),
        }
    }

    pub(crate) fn check_shape(&self, what: &'static str, n_components: usize, n_features: usize) -> Result<()> {
        let expected = self.covariance_type().shape(n_components, n_features);
        if self.shape() == expected {
            return Ok(());
        }
        Err(Error::ShapeMismatch { what, expected, got: self.shape().to_vec() })
    }

    /// The check for a type and a shape that are given.
    pub(crate) fn check_type(&self, what: &'static str, wanted: CovarianceType, k: usize, d: usize) -> Result<()> {
        let got = self.covariance_type();
        if got != wanted {
            return Err(Error::WrongCovarianceType { what, expected: wanted, got });
        }
        self.check_shape(what, k, d)
    }

    /// The parts of `self` that belong to component `k`, from `other` of the same shape (all, where it is tied).
    pub(crate) fn copy_component(&mut self, k: usize, other: &Self) {
        match (self, other) {
            (Self::Full(a), Self::Full(b)) => a.index_axis_mut(Axis(0), k).assign(&b.index_axis(Axis(0), k)),
            (Self::Tied(a), Self::Tied(b)) => a.assign(b),
            (Self::Diag(a), Self::Diag(b)) => a.row_mut(k).assign(&b.row(k)),
            (Self::Spherical(a), Self::Spherical(b)) => a[k] = b[k],
            _ => debug_assert!(false, "covariances of different types"),
        }
    }

    /// The Cholesky factors of the precisions, and what failed; a component that failed has a factor of zeros.
    /// Diagonal types have no factor to keep and are only checked.
    pub(crate) fn factorise(&self) -> (Option<Self>, Vec<Error>) {
        const VARIANCE: &str =
            "variances must be finite, positive and not denormal; was a column constant? add reg_covar";
        let usable = |v: f64| v.is_normal() && v > 0.0;
        let mut failures = Vec::new();
        match self {
            Self::Full(v) => {
                let mut u = Array3::zeros(v.raw_dim());
                let one = |(component, (sigma, mut u)): (usize, (ArrayView2<f64>, ndarray::ArrayViewMut2<f64>))| {
                    match linalg::precision_cholesky(sigma) {
                        Ok(factor) => {
                            u.assign(&factor);
                            None
                        }
                        Err(pivot) => Some(Error::NotPositiveDefinite { component: Some(component), pivot }),
                    }
                };
                let d = v.len_of(Axis(1));
                // Below some tens of microseconds, waking the threads costs more than they save.
                if v.len() * d > 1 << 17 {
                    let pairs = v.axis_iter(Axis(0)).into_par_iter().zip(u.axis_iter_mut(Axis(0)));
                    failures = pairs.enumerate().filter_map(one).collect();
                } else {
                    failures.extend(v.outer_iter().zip(u.outer_iter_mut()).enumerate().filter_map(one));
                }
                return (Some(Self::Full(u)), failures);
            }
            Self::Tied(v) => match linalg::precision_cholesky(v.view()) {
                Ok(u) => return (Some(Self::Tied(u)), failures),
                Err(pivot) => {
                    failures.push(Error::NotPositiveDefinite { component: None, pivot });
                    return (Some(Self::Tied(Array2::zeros(v.raw_dim()))), failures);
                }
            },
            Self::Diag(v) => {
                for (component, row) in v.outer_iter().enumerate() {
                    if let Some((j, &value)) = row.iter().enumerate().find(|(_, v)| !usable(**v)) {
                        failures.push(bad(format!("variance in column {j}"), component, value, VARIANCE));
                    }
                }
            }
            Self::Spherical(v) => {
                let unusable = v.iter().enumerate().filter(|(_, v)| !usable(**v));
                failures.extend(unusable.map(|(component, &value)| bad("variance".into(), component, value, VARIANCE)));
            }
        }
        (None, failures)
    }
}

/// A Gaussian mixture p(x) = Σₖ πₖ N(x; μₖ, Σₖ) with K components over D features.
///
/// A value of this type is always usable: every parameter finite, every variance positive and normal (not
/// denormal), every matrix symmetric (within [`SYMMETRY_TOLERANCE`]) and positive definite, weights not negative with
/// sum one (within [`WEIGHT_SUM_TOLERANCE`]). A weight of zero is legal, its component contributes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
    /// The Cholesky factors of the precisions, for the types that have matrices.
    factor: Option<Covariances>,
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
            None => Ok(Self { weights, means, covariances, factor }),
        }
    }

    /// From precisions (inverse covariances) in their type's shape, as scikit-learn's `precisions_init`.
    ///
    /// # Errors
    /// As [`new`](Self::new); a message about a matrix then speaks of the precision, or of the covariance that it
    /// gives.
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

    /// Puts together parts that were checked; `factor` is what [`Covariances::factorise`] gave.
    pub(crate) fn from_parts(
        weights: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
        factor: Option<Covariances>,
    ) -> Result<Self> {
        check_weights_and_means(&weights, &means)?;
        Ok(Self { weights, means, covariances, factor })
    }

    /// K, the number of components.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// D, the number of features.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// Weights π (K,).
    pub fn weights(&self) -> ArrayView1<'_, f64> {
        self.weights.view()
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

    /// scikit-learn's `precisions_cholesky_`, in the covariances' shape: upper triangular matrices U with Σ⁻¹ = U·Uᵀ
    /// (`full`, `tied`; computed once, on construction), or 1/σ (`diag`, `spherical`).
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
    pub(crate) fn factor(&self) -> Option<&Covariances> {
        self.factor.as_ref()
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

    /// Variance of component `k` along feature `j`, where the type has no matrices (there it is the marginal one).
    pub(crate) fn variance(&self, k: usize, j: usize) -> f64 {
        match &self.covariances {
            Covariances::Full(v) => v[[k, j, j]],
            Covariances::Tied(v) => v[[j, j]],
            Covariances::Diag(v) => v[[k, j]],
            Covariances::Spherical(v) => v[k],
        }
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
            return Err(bad("weight".into(), component, value, "weights must be finite and not negative"));
        }
    }
    let sum = weights.sum();
    if (sum - 1.0).abs() > WEIGHT_SUM_TOLERANCE {
        return Err(Error::WeightSum { sum, tolerance: WEIGHT_SUM_TOLERANCE });
    }
    for ((component, j), &value) in means.indexed_iter() {
        if !value.is_finite() {
            return Err(bad(format!("mean in column {j}"), component, value, "means must be finite"));
        }
    }
    Ok(())
}

/// Checks that a matrix is finite and symmetric.
fn check_symmetric(matrix: ArrayView2<'_, f64>, component: Option<usize>) -> Result<()> {
    if let Some(((i, j), &value)) = matrix.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let what = format!("covariance at row {i}, column {j}");
        return Err(bad(what, component.unwrap_or(0), value, "covariances must be finite"));
    }
    for i in 0..matrix.nrows() {
        for j in i + 1..matrix.nrows() {
            let (upper, lower) = (matrix[[i, j]], matrix[[j, i]]);
            let scale = (matrix[[i, i]].abs().sqrt()) * (matrix[[j, j]].abs().sqrt());
            if (upper - lower).abs() > SYMMETRY_TOLERANCE * scale {
                return Err(Error::NotSymmetric { component, row: i, column: j, upper, lower });
            }
        }
    }
    Ok(())
}

fn bad(what: String, component: usize, value: f64, remedy: &'static str) -> Error {
    Error::BadComponent { what, component, value, remedy }
}
