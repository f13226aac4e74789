//! Covariances as volume, shape and orientation: Σ = λ·D·A·Dᵀ with |A| = 1.
use super::linalg::row_major;
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
        let diagonal = || Array2::from_diag(&Array1::from_shape_fn(self.n_features(), |j| self.variance(c, j)));
        self.covariances().matrix(c).map_or_else(diagonal, |matrix| matrix.to_owned())
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

/// The most rows of a matrix that is decomposed faster by plane rotations.
const SMALL: usize = 16;

/// Scales vectors (D, D), the rows, to a magnitude near 1, and turns them in pairs until all are orthogonal (Hestenes
/// 1958). Returns the same turns of the unit vectors, and the scale: for the columns of a matrix A, now those of A·V over
/// the scale, the columns of V.
fn orthogonalise(vectors: &mut [f64], d: usize) -> (Vec<f64>, f64) {
    /// The most rounds; some six are enough.
    const ROUNDS: usize = 30;
    let largest = vectors.iter().fold(0.0, |most: f64, v| v.abs().max(most));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    vectors.iter_mut().for_each(|v| *v /= scale);
    let mut turns = vec![0.0; d * d];
    turns.iter_mut().step_by(d + 1).for_each(|v| *v = 1.0);
    let turn = |rows: &mut [f64], (p, q): (usize, usize), (cos, sin): (f64, f64)| {
        let (before, after) = rows.split_at_mut(q * d);
        for (a, b) in before[p * d..(p + 1) * d].iter_mut().zip(&mut after[..d]) {
            (*a, *b) = (cos * *a - sin * *b, sin * *a + cos * *b);
        }
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for _ in 0..ROUNDS {
        let mut turned = false;
        for (p, q) in (1..d).flat_map(|q| (0..q).map(move |p| (p, q))) {
            let (a, b) = (&vectors[p * d..(p + 1) * d], &vectors[q * d..(q + 1) * d]);
            let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
            if ab.abs() > d as f64 * f64::EPSILON * (aa * bb).sqrt() {
                turned = true;
                let half = (bb - aa) / (2.0 * ab);
                let tan = half.signum() / (half.abs() + (1.0 + half * half).sqrt());
                let cos = (1.0 + tan * tan).sqrt().recip();
                turn(vectors, (p, q), (cos, cos * tan));
                turn(&mut turns, (p, q), (cos, cos * tan));
            }
        }
        if !turned {
            break;
        }
    }
    (turns, scale)
}

/// Returns the least |A − B·Q|² over orthogonal Q, for square matrices: with the singular value decomposition Bᵀ·A =
/// U·S·Vᵀ, that of Q = U·Vᵀ (Schönemann 1966). `None` if the decomposition fails, as for numbers that are not finite.
pub(crate) fn squared_distance_up_to_rotation(a: &Array2<f64>, b: &Array2<f64>) -> Option<f64> {
    let rotation = nearest_rotation(&b.t().dot(a))?;
    Some((a - &b.dot(&rotation)).mapv(|v| v * v).sum())
}

/// Returns U·Vᵀ (D, D) of the singular value decomposition U·S·Vᵀ: the nearest orthogonal matrix. None if it is not
/// found, as for numbers that are not finite.
pub(crate) fn nearest_rotation(matrix: &Array2<f64>) -> Option<Array2<f64>> {
    let d = matrix.nrows();
    if d <= SMALL {
        let mut left = row_major(matrix.t()).into_owned();
        let right = orthogonalise(&mut left, d).0;
        let lengths: Vec<f64> = left.chunks_exact(d).map(|v| v.iter().map(|v| v * v).sum::<f64>().sqrt()).collect();
        // A singular matrix leaves a direction open.
        if lengths.iter().all(|v| *v > f64::EPSILON) {
            let of = |i, j| (0..d).map(|l| left[l * d + i] / lengths[l] * right[l * d + j]).sum();
            return Some(Array2::from_shape_fn((d, d), |(i, j)| of(i, j)));
        }
    }
    let svd = faer::Mat::from_fn(d, d, |i, j| matrix[[i, j]]).svd().ok()?;
    let rotation = svd.U() * svd.V().transpose();
    Some(Array2::from_shape_fn((d, d), |(i, j)| rotation[(i, j)]))
}

/// Returns the eigenvalues (D,), descending, and the eigenvectors (D, D), as columns, of a positive semidefinite matrix,
/// of which only the lower triangle is read; NaN if they are not found.
pub fn eigen(matrix: ArrayView2<'_, f64>) -> (Array1<f64>, Array2<f64>) {
    let d = matrix.nrows();
    if d <= SMALL {
        let mut along: Vec<f64> = (0..d * d).map(|at| matrix[[(at / d).max(at % d), (at / d).min(at % d)]]).collect();
        let (axes, scale) = orthogonalise(&mut along, d);
        let pairs = along.chunks_exact(d).zip(axes.chunks_exact(d));
        let values: Vec<f64> = pairs.map(|(a, v)| scale * a.iter().zip(v).map(|(a, v)| a * v).sum::<f64>()).collect();
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
        let vectors = Array2::from_shape_fn((d, d), |(i, j)| axes[order[j] * d + i]);
        return (order.iter().map(|j| values[*j]).collect(), vectors);
    }
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
