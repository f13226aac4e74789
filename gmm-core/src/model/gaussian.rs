//! One normal distribution with any mean, for sums of components' covariances.
use super::linalg;
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, ArrayView1};
use std::f64::consts::TAU;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Covariance {
    Diagonal(Array1<f64>),
    Matrix(Array2<f64>),
}

impl Covariance {
    pub fn of(mixture: &Mixture, c: usize) -> Self {
        match mixture.covariances().matrix(c) {
            Some(matrix) => Self::Matrix(matrix.to_owned()),
            None => Self::Diagonal((0..mixture.n_features()).map(|j| mixture.variance(c, j)).collect()),
        }
    }

    pub fn all(mixture: &Mixture) -> Vec<Self> {
        (0..mixture.n_components()).map(|c| Self::of(mixture, c)).collect()
    }

    pub fn into_matrix(self) -> Array2<f64> {
        match self {
            Self::Diagonal(v) => Array2::from_diag(&v),
            Self::Matrix(v) => v,
        }
    }

    pub fn plus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Diagonal(a), Self::Diagonal(b)) => Self::Diagonal(a + b),
            (Self::Matrix(a), Self::Matrix(b)) => Self::Matrix(a + b),
            (Self::Matrix(m), Self::Diagonal(v)) | (Self::Diagonal(v), Self::Matrix(m)) => {
                let mut sum = m.clone();
                sum.diag_mut().zip_mut_with(v, |a, b| *a += b);
                Self::Matrix(sum)
            }
        }
    }

    /// Returns Σ·x.
    pub fn times(&self, x: &Array1<f64>) -> Array1<f64> {
        match self {
            Self::Diagonal(v) => v * x,
            Self::Matrix(v) => v.dot(x),
        }
    }

    /// Returns L with Σ = L·Lᵀ: standard deviations, or a lower triangle.
    pub fn root(&self) -> Result<Self> {
        match self {
            Self::Diagonal(v) => Ok(Self::Diagonal(v.mapv(f64::sqrt))),
            Self::Matrix(v) => linalg::cholesky(v.view())
                .map(Self::Matrix)
                .map_err(|pivot| Error::NotPositiveDefinite { component: None, pivot }),
        }
    }
}

/// A covariance with the factor of its inverse, and ln |Σ|.
#[derive(Debug, Clone)]
pub(crate) struct Gaussian {
    /// The variances; or U, upper triangular with Σ⁻¹ = U·Uᵀ.
    factor: Covariance,
    pub log_det: f64,
}

impl Gaussian {
    /// Never fails for a sum of covariances of mixtures.
    pub fn new(covariance: Covariance) -> Result<Self> {
        match covariance {
            Covariance::Diagonal(v) => {
                let log_det = v.iter().map(|v| v.log_e()).sum();
                Ok(Self { factor: Covariance::Diagonal(v), log_det })
            }
            Covariance::Matrix(v) => {
                let u = linalg::precision_cholesky(v.view());
                let u = u.map_err(|pivot| Error::NotPositiveDefinite { component: None, pivot })?;
                let log_det = -2.0 * u.diag().iter().map(|v| v.log_e()).sum::<f64>();
                Ok(Self { factor: Covariance::Matrix(u), log_det })
            }
        }
    }

    /// Returns δᵀΣ⁻¹δ.
    pub fn square(&self, delta: ArrayView1<'_, f64>) -> f64 {
        match &self.factor {
            Covariance::Diagonal(v) => delta.iter().zip(v).map(|(d, v)| d * d / v).sum(),
            Covariance::Matrix(u) => linalg::squared_length(u.view(), &linalg::row_major(delta)),
        }
    }

    /// Returns Σ⁻¹δ.
    pub fn solve(&self, delta: &Array1<f64>) -> Array1<f64> {
        match &self.factor {
            Covariance::Diagonal(v) => delta / v,
            Covariance::Matrix(u) => u.dot(&u.t().dot(delta)),
        }
    }

    /// Returns ln N(δ; 0, Σ).
    pub fn log_density(&self, delta: ArrayView1<'_, f64>) -> f64 {
        -0.5 * (self.square(delta) + self.log_det + delta.len() as f64 * TAU.log_e())
    }
}
