//! Covariances as volume, shape and orientation: Σ = λ·D·A·Dᵀ with |A| = 1.
use super::covariances::Covariances;
use super::mixture::Mixture;
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis};

/// The parts of a mixture's covariances (Banfield and Raftery 1993).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Decomposition {
    /// λ (K,): the D-th root of each covariance's determinant.
    pub volumes: Array1<f64>,
    /// The diagonals of A (K, D), of product one: in the order of the features for covariances without
    /// matrices, in one order for axes that components share, and otherwise descending.
    pub shapes: Array2<f64>,
    /// D (K, D, D): the axes as columns.
    pub orientations: Array3<f64>,
}

impl Mixture {
    /// Returns the volumes, shapes and orientations of the covariances of K Gaussians.
    pub fn decomposition(&self) -> Decomposition {
        let (k, d) = (self.n_gaussians(), self.n_features());
        let mut orientations = Array3::zeros((k, d, d));
        let mut variances = Array2::zeros((k, d));
        let common = (self.covariance_model().has_common_axes()).then(|| self.common_axes());
        for c in 0..k {
            let (values, axes) = match (&common, self.factor().is_some()) {
                (_, false) => ((0..d).map(|j| self.variance(c, j)).collect(), Array2::eye(d)),
                (Some(axes), true) => (variances_along(self.matrix(c).view(), axes), axes.clone()),
                (None, true) => eigen(self.matrix(c).view()),
            };
            variances.row_mut(c).assign(&values);
            orientations.index_axis_mut(Axis(0), c).assign(&axes);
        }
        let volumes = variances.map_axis(Axis(1), |row| geometric_mean(row.iter()));
        Decomposition { shapes: variances / volumes.view().insert_axis(Axis(1)), volumes, orientations }
    }

    /// Returns the covariance (D, D) of a component.
    pub fn matrix(&self, c: usize) -> Array2<f64> {
        match self.covariances() {
            Covariances::Full(v) => v.index_axis(Axis(0), c).to_owned(),
            Covariances::Tied(v) => v.clone(),
            _ => Array2::from_diag(&Array1::from_shape_fn(self.n_features(), |j| self.variance(c, j))),
        }
    }

    /// Returns whether all components are spheres.
    pub(crate) fn is_round(&self) -> bool {
        let d = self.n_features();
        let round = |c: usize| {
            self.matrix(c).indexed_iter().all(|((i, j), v)| *v == if i == j { self.variance(c, 0) } else { 0.0 })
        };
        d > 0 && (0..self.n_gaussians()).all(round)
    }

    /// Returns the axes (D, D) that all components share, as columns: those of a sum with unequal shares, so that
    /// directions that differ in a component differ in the sum.
    pub(crate) fn common_axes(&self) -> Array2<f64> {
        let d = self.n_features();
        let mut sum = Array2::zeros((d, d));
        for c in 0..self.n_gaussians() {
            let matrix = self.matrix(c);
            let share = (1.0 + c as f64).sqrt() / matrix.diag().sum();
            sum.scaled_add(share, &matrix);
        }
        eigen(sum.view()).1
    }
}

/// Returns the diagonal of DᵀΣD (D,): the variances along the axes D.
pub(crate) fn variances_along(matrix: ArrayView2<'_, f64>, axes: &Array2<f64>) -> Array1<f64> {
    (matrix.dot(axes) * axes).sum_axis(Axis(0))
}

/// Returns the eigenvalues (D,), descending, and the eigenvectors (D, D), as columns, of a symmetric matrix, of which
/// only the lower triangle is read; NaN if they are not found.
pub fn eigen(matrix: ArrayView2<'_, f64>) -> (Array1<f64>, Array2<f64>) {
    let d = matrix.nrows();
    let symmetric = faer::Mat::from_fn(d, d, |i, j| matrix[[i.max(j), i.min(j)]]);
    match symmetric.self_adjoint_eigen(faer::Side::Lower) {
        Ok(found) => (
            Array1::from_shape_fn(d, |j| found.S()[d - 1 - j]),
            Array2::from_shape_fn((d, d), |(i, j)| found.U()[(i, d - 1 - j)]),
        ),
        Err(_) => (Array1::from_elem(d, f64::NAN), Array2::from_elem((d, d), f64::NAN)),
    }
}

/// Returns the D-th root of the product of D numbers; NaN if one is negative.
pub(crate) fn geometric_mean<'a>(numbers: impl ExactSizeIterator<Item = &'a f64>) -> f64 {
    let d = numbers.len() as f64;
    (numbers.map(|v| v.ln()).sum::<f64>() / d).exp()
}

/// Returns the symmetric matrix D·diag(v)·Dᵀ.
pub(crate) fn composed(axes: ArrayView2<'_, f64>, variances: &Array1<f64>) -> Array2<f64> {
    let product = (&axes * variances).dot(&axes.t());
    // Symmetric to the bit.
    Array2::from_shape_fn(product.dim(), |(i, j)| product[[i.max(j), i.min(j)]])
}
