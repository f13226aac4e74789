//! The mixture and its parameters, checked once, on construction.
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

/// How far the sum of the weights may be from one. Weights rounded to float32 pass; the weights are evaluated as
/// they are given, never rescaled.
pub const WEIGHT_SUM_TOLERANCE: f64 = 1e-6;

/// The shape of the covariances, with scikit-learn's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CovarianceType {
    /// A variance for each component and feature: (K, D).
    Diag,
    /// A variance for each component: (K,).
    Spherical,
}

impl CovarianceType {
    /// scikit-learn's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Diag => "diag",
            Self::Spherical => "spherical",
        }
    }
}

impl std::fmt::Display for CovarianceType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The covariances of a mixture, in scikit-learn's shapes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Covariances {
    /// Variances (K, D).
    Diag(Array2<f64>),
    /// Variances (K,).
    Spherical(Array1<f64>),
}

impl Covariances {
    /// Which type they are of.
    pub fn covariance_type(&self) -> CovarianceType {
        match self {
            Self::Diag(_) => CovarianceType::Diag,
            Self::Spherical(_) => CovarianceType::Spherical,
        }
    }
}

/// A Gaussian mixture p(x) = Σₖ πₖ N(x; μₖ, Σₖ) with K components over D features.
///
/// A value of this type is always usable: every parameter finite, every variance positive and normal (not
/// denormal), weights in \[0, 1\] with sum one (within [`WEIGHT_SUM_TOLERANCE`]). A weight of zero is legal, its
/// component contributes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    weights: Array1<f64>,
    means: Array2<f64>,
    covariances: Covariances,
}

impl Mixture {
    /// Checks the parameters: `weights` (K,), `means` (K, D), `covariances` in their type's shape.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::EmptyData`] (K or D zero), [`Error::BadComponent`] (not finite, a negative weight, a
    /// variance that is zero, negative or denormal), [`Error::WeightSum`].
    pub fn new(weights: Array1<f64>, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let (k, d) = means.dim();
        if k == 0 || d == 0 {
            return Err(Error::ShapeMismatch { what: "means", expected: vec![k.max(1), d.max(1)], got: vec![k, d] });
        }
        if weights.len() != k {
            return Err(Error::ShapeMismatch { what: "weights", expected: vec![k], got: vec![weights.len()] });
        }
        let got = match &covariances {
            Covariances::Diag(v) => (vec![k, d], v.shape().to_vec()),
            Covariances::Spherical(v) => (vec![k], v.shape().to_vec()),
        };
        if got.0 != got.1 {
            return Err(Error::ShapeMismatch { what: "covariances", expected: got.0, got: got.1 });
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
        const VARIANCE: &str =
            "variances must be finite, positive and not denormal; was a column constant? add reg_covar";
        match &covariances {
            Covariances::Diag(v) => {
                if let Some(((k, j), &x)) = v.indexed_iter().find(|(_, x)| !(x.is_normal() && **x > 0.0)) {
                    return Err(bad(format!("variance in column {j}"), k, x, VARIANCE));
                }
            }
            Covariances::Spherical(v) => {
                if let Some((k, &x)) = v.indexed_iter().find(|(_, x)| !(x.is_normal() && **x > 0.0)) {
                    return Err(bad("variance".into(), k, x, VARIANCE));
                }
            }
        }
        Ok(Self { weights, means, covariances })
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

    /// Variance of component `k` along feature `j`.
    pub(crate) fn variance(&self, k: usize, j: usize) -> f64 {
        match &self.covariances {
            Covariances::Diag(v) => v[[k, j]],
            Covariances::Spherical(v) => v[k],
        }
    }
}

fn bad(what: String, component: usize, value: f64, remedy: &'static str) -> Error {
    Error::BadComponent { what, component, value, remedy }
}
