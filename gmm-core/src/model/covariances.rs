//! The covariance types and the arrays of covariances, precisions or their factors.
use super::linalg;
use crate::error::{Error, Result};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};

/// The shape of the covariances, with scikit-learn's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
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

    /// Returns scikit-learn's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Tied => "tied",
            Self::Diag => "diag",
            Self::Spherical => "spherical",
        }
    }

    /// Returns the least number of multiply-adds for the K log densities of a sample. Quadratic terms that components
    /// share count once: all of them under `tied`, |x|² under `spherical`.
    pub fn multiply_adds(self, k: usize, d: usize) -> usize {
        let triangle = d * (d + 1) / 2;
        match self {
            Self::Full => k * (triangle + d),
            Self::Tied => k * d + triangle + d,
            Self::Diag => k * 2 * d,
            Self::Spherical => k * (d + 1) + d,
        }
    }

    /// Returns the numbers of features and components of `gmm bench map`, which also test the choice of kernels.
    pub fn grid(self) -> (&'static [usize], &'static [usize]) {
        if self.has_matrices() {
            (&[2, 8, 13, 16, 28, 64, 200], &[2, 8, 16, 32, 64, 128])
        } else {
            (&[2, 13, 32, 40, 64, 128, 256], &[2, 8, 16, 32, 64, 128, 512, 1024])
        }
    }

    /// Whether features covary, so that a missing value depends on the observed values of its sample.
    pub fn has_matrices(self) -> bool {
        matches!(self, Self::Full | Self::Tied)
    }

    /// Returns the shape of the array of covariances.
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

/// The covariances of a mixture in scikit-learn's shapes; also precisions, their Cholesky factors, and scatter.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
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
    /// Returns the covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        match self {
            Self::Full(_) => CovarianceType::Full,
            Self::Tied(_) => CovarianceType::Tied,
            Self::Diag(_) => CovarianceType::Diag,
            Self::Spherical(_) => CovarianceType::Spherical,
        }
    }

    /// Builds covariances from diagonals (K, D): for `spherical`, their traces.
    pub fn of_diagonals(covariance_type: CovarianceType, diagonals: Array2<f64>) -> Self {
        match covariance_type {
            CovarianceType::Spherical => Self::Spherical(diagonals.sum_axis(Axis(1))),
            _ => Self::Diag(diagonals),
        }
    }

    /// Builds covariances from matrices (K, D, D): for `tied`, their sum.
    pub fn of_matrices(covariance_type: CovarianceType, matrices: Array3<f64>) -> Self {
        match covariance_type {
            CovarianceType::Tied => Self::Tied(matrices.sum_axis(Axis(0))),
            _ => Self::Full(matrices),
        }
    }

    /// Returns zeros in the shape of the type.
    pub fn zeros(covariance_type: CovarianceType, n_components: usize, n_features: usize) -> Self {
        let (k, d) = (n_components, n_features);
        match covariance_type {
            CovarianceType::Full => Self::Full(Array3::zeros((k, d, d))),
            CovarianceType::Tied => Self::Tied(Array2::zeros((d, d))),
            CovarianceType::Diag => Self::Diag(Array2::zeros((k, d))),
            CovarianceType::Spherical => Self::Spherical(Array1::zeros(k)),
        }
    }

    /// Builds covariances from numbers in row-major order, the order of [`iter`](Self::iter).
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the shape takes more or fewer numbers.
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

    /// Returns the same variance for every component and feature.
    pub fn isotropic(covariance_type: CovarianceType, k: usize, d: usize, variance: f64) -> Self {
        let mut covariances = Self::zeros(covariance_type, k, d);
        match &mut covariances {
            Self::Full(v) => v.outer_iter_mut().for_each(|mut m| m.diag_mut().fill(variance)),
            Self::Tied(v) => v.diag_mut().fill(variance),
            Self::Diag(v) => v.fill(variance),
            Self::Spherical(v) => v.fill(variance),
        }
        covariances
    }

    /// Returns the shape of the array.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Full(v) => v.shape(),
            Self::Tied(v) | Self::Diag(v) => v.shape(),
            Self::Spherical(v) => v.shape(),
        }
    }

    /// Returns the numbers in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        let view = match self {
            Self::Full(v) => v.view().into_dyn(),
            Self::Tied(v) | Self::Diag(v) => v.view().into_dyn(),
            Self::Spherical(v) => v.view().into_dyn(),
        };
        view.into_iter().copied()
    }

    /// Returns the variance of component `k` along feature `j`.
    pub fn variance(&self, k: usize, j: usize) -> f64 {
        match self {
            Self::Full(v) => v[[k, j, j]],
            Self::Tied(v) => v[[j, j]],
            Self::Diag(v) => v[[k, j]],
            Self::Spherical(v) => v[k],
        }
    }

    /// Returns the matrices of a type that has them, each with its component; a tied one has none.
    pub(crate) fn matrices(&self) -> Vec<(Option<usize>, ArrayView2<'_, f64>)> {
        match self {
            Self::Full(v) => v.outer_iter().enumerate().map(|(c, matrix)| (Some(c), matrix)).collect(),
            Self::Tied(v) => vec![(None, v.view())],
            Self::Diag(_) | Self::Spherical(_) => Vec::new(),
        }
    }

    /// Returns the matrix (D, D) of a component, for types that have matrices.
    pub(crate) fn matrix(&self, c: usize) -> Option<ArrayView2<'_, f64>> {
        match self {
            Self::Full(v) => Some(v.index_axis(Axis(0), c)),
            Self::Tied(v) => Some(v.view()),
            Self::Diag(_) | Self::Spherical(_) => None,
        }
    }

    /// Adds a matrix to that of component `c`: its diagonal to variances, its trace to a spherical one.
    pub(crate) fn add_matrix(&mut self, c: usize, matrix: &Array2<f64>) {
        match self {
            Self::Full(v) => v.index_axis_mut(Axis(0), c).scaled_add(1.0, matrix),
            Self::Tied(v) => *v += matrix,
            Self::Diag(v) => v.row_mut(c).scaled_add(1.0, &matrix.diag()),
            Self::Spherical(v) => v[c] += matrix.diag().sum(),
        }
    }

    /// Applies a function to every number.
    pub fn map_inplace(&mut self, f: impl Fn(&mut f64)) {
        match self {
            Self::Full(v) => v.map_inplace(f),
            Self::Tied(v) | Self::Diag(v) => v.map_inplace(f),
            Self::Spherical(v) => v.map_inplace(f),
        }
    }

    /// Checks the shape against K components over D features.
    pub fn check_shape(&self, what: &'static str, n_components: usize, n_features: usize) -> Result<()> {
        let expected = self.covariance_type().shape(n_components, n_features);
        if self.shape() == expected {
            return Ok(());
        }
        Err(Error::ShapeMismatch { what, expected, got: self.shape().to_vec() })
    }

    /// Checks the type and the shape.
    pub fn check_type(&self, what: &'static str, wanted: CovarianceType, k: usize, d: usize) -> Result<()> {
        let got = self.covariance_type();
        if got != wanted {
            return Err(Error::WrongCovarianceType { what, expected: wanted.name(), got: got.name() });
        }
        self.check_shape(what, k, d)
    }

    /// Adds `factor`·δδᵀ to component `c`: its diagonal to variances, its trace to a spherical one.
    pub(crate) fn add_outer(&mut self, c: usize, factor: f64, delta: &[f64]) {
        let mut matrix = match self {
            Self::Full(v) => v.index_axis_mut(Axis(0), c),
            Self::Tied(v) => v.view_mut(),
            Self::Diag(v) => {
                for (v, d) in v.row_mut(c).iter_mut().zip(delta) {
                    *v += factor * d * d;
                }
                return;
            }
            Self::Spherical(v) => {
                v[c] += factor * delta.iter().map(|d| d * d).sum::<f64>();
                return;
            }
        };
        for (mut row, &a) in matrix.outer_iter_mut().zip(delta) {
            for (v, b) in row.iter_mut().zip(delta) {
                // (a * b) first keeps the result exactly symmetric.
                *v += factor * (a * b);
            }
        }
    }

    /// Copies the part of component `k` (or the tied matrix) from `other`, which has the same shape.
    pub(crate) fn copy_component(&mut self, k: usize, other: &Self) {
        self.copy_component_from(k, other, k);
    }

    /// As [`copy_component`](Self::copy_component), from component `from` of any number of components.
    pub(crate) fn copy_component_from(&mut self, k: usize, other: &Self, from: usize) {
        match (self, other) {
            (Self::Full(a), Self::Full(b)) => a.index_axis_mut(Axis(0), k).assign(&b.index_axis(Axis(0), from)),
            (Self::Tied(a), Self::Tied(b)) => a.assign(b),
            (Self::Diag(a), Self::Diag(b)) => a.row_mut(k).assign(&b.row(from)),
            (Self::Spherical(a), Self::Spherical(b)) => a[k] = b[from],
            _ => unreachable!("components are copied between covariances of one type"),
        }
    }

    /// Returns the covariances of some components, in the given order.
    pub fn select(&self, components: &[usize]) -> Self {
        match self {
            Self::Full(v) => Self::Full(v.select(Axis(0), components)),
            Self::Tied(v) => Self::Tied(v.clone()),
            Self::Diag(v) => Self::Diag(v.select(Axis(0), components)),
            Self::Spherical(v) => Self::Spherical(v.select(Axis(0), components)),
        }
    }

    /// As [`factorise`](Self::factorise), but fails with the first of the errors.
    pub(crate) fn checked_factor(&self) -> Result<Option<Self>> {
        let (factor, failures) = self.factorise();
        failures.into_iter().next().map_or(Ok(factor), Err)
    }

    /// Returns the Cholesky factors of the precisions, and the errors of components without one, whose factors stay
    /// zero. For diagonal types, only checks the variances.
    pub(crate) fn factorise(&self) -> (Option<Self>, Vec<Error>) {
        const VARIANCE: &str =
            "variances must be finite, positive and not denormal; was a column constant? add reg_covar";
        let usable = |v: f64| v.is_normal() && v > 0.0;
        let mut failures = Vec::new();
        match self {
            Self::Full(v) => {
                let mut u = Array3::zeros(v.raw_dim());
                let of_each = linalg::precision_cholesky_of_each(v.view(), &mut u).into_iter();
                failures.extend(of_each.map(|(c, pivot)| Error::NotPositiveDefinite { component: Some(c), pivot }));
                return (Some(Self::Full(u)), failures);
            }
            Self::Tied(v) => match linalg::precision_cholesky(v.view()) {
                Ok(u) => return (Some(Self::Tied(u)), failures),
                Err(pivot) => {
                    failures.push(Error::NotPositiveDefinite { component: None, pivot });
                    return (Some(Self::Tied(Array2::zeros(v.raw_dim()))), failures);
                }
            },
            Self::Diag(v) if linalg::all(&linalg::row_major(v.view()), usable) => {}
            Self::Diag(v) => {
                for (component, row) in v.outer_iter().enumerate() {
                    if let Some((j, &value)) = row.iter().enumerate().find(|(_, v)| !usable(**v)) {
                        failures.push(bad_component(format!("variance in column {j}"), component, value, VARIANCE));
                    }
                }
            }
            Self::Spherical(v) => {
                let unusable = v.iter().enumerate().filter(|(_, v)| !usable(**v));
                failures.extend(
                    unusable.map(|(component, &value)| bad_component("variance".into(), component, value, VARIANCE)),
                );
            }
        }
        (None, failures)
    }
}

pub(super) fn bad_component(what: String, component: usize, value: f64, remedy: &'static str) -> Error {
    Error::BadComponent { what, component, value, remedy }
}
