//! The noise of measured samples, checked once.
use super::array::Array;
use crate::error::{Error, Result};
use crate::model::mixture::SYMMETRY_TOLERANCE;
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis, Ix1, Ix2, Ix3, Slice};
use std::ops::Range;
use std::sync::Arc;

/// Matrices with at least so many rows each are evaluated by group, as samples with one noise for all.
const LARGE_GROUP: usize = 256;

/// The noise of samples that are measurements: xᵢ = Rᵢ·vᵢ + eᵢ with eᵢ ~ N(0, Sᵢ), where the true values vᵢ (D,) have
/// the density of a mixture (extreme deconvolution: Bovy, Hogg and Roweis 2011). Without a projection, Rᵢ is the
/// identity.
///
/// Scores, responsibilities and statistics of [`Samples`](super::samples::Samples) with noise are exact: the likelihood
/// of a component is N(xᵢ; Rᵢμ, RᵢΣRᵢᵀ + Sᵢ), and the statistics are those of the true values given the measurements.
///
/// ```
/// use gmm_host::{GaussianMixtureParams, Noise, Samples};
/// use ndarray::{Array2, Array3};
///
/// let x = Array2::from_shape_fn((200, 1), |(i, _)| f64::from(2 * (i as i32 % 2) - 1));
/// let noise = Noise::variances(Array2::from_elem((200, 1), 0.75).into_shared())?;
/// let fit = GaussianMixtureParams::new(1).tol(1e-9).fit(Samples::from_f64(x.view())?.with_noise(noise)?)?;
/// // Of the variance 1 of the measurements, 0.75 is noise; EM ends near the rest.
/// assert!((fit.mixture.variance(0, 0) - 0.25).abs() < 1e-3);
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Noise<'a> {
    covariances: Covariances<'a>,
    projection: Option<Array<'a, f64, Ix3>>,
}

#[derive(Debug, Clone)]
enum Covariances<'a> {
    /// Matrices (J, C, C), and the number of that of each sample (N,), or one for all.
    Few(Arc<Array3<f64>>, Option<Array<'a, usize, Ix1>>),
    /// Variances (N, C).
    Variances(Array<'a, f64, Ix2>),
    /// Matrices (N, C, C).
    Matrices(Array<'a, f64, Ix3>),
}

impl<'a> Noise<'a> {
    /// Checks one covariance (C, C) for all samples of C columns. A lower triangle counts.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::BadNoise`] for a matrix that is no covariance.
    pub fn common(covariance: Array2<f64>) -> Result<Self> {
        check_matrices(covariance.view().insert_axis(Axis(0)), |_| "the noise of all samples".into())?;
        Ok(Self::of(Covariances::Few(Arc::new(covariance.insert_axis(Axis(0))), None)))
    }

    /// Checks J covariances (J, C, C), and takes the number of the one of each sample (N,).
    ///
    /// # Errors
    /// As [`common`](Self::common); [`Error::NoSuchRow`] for a number not below J.
    pub fn of_groups(covariances: Array3<f64>, of_sample: Vec<usize>) -> Result<Self> {
        check_matrices(covariances.view(), |group| format!("the noise of group {group} (counted from 0)"))?;
        if let Some(&row) = of_sample.iter().find(|group| **group >= covariances.len_of(Axis(0))) {
            return Err(Error::NoSuchRow { row, n_samples: covariances.len_of(Axis(0)) });
        }
        let of_sample = Array::Shared(ndarray::Array1::from(of_sample).into_shared());
        Ok(Self::of(Covariances::Few(Arc::new(covariances), Some(of_sample))))
    }

    /// Checks a variance for each value (N, C).
    ///
    /// # Errors
    /// [`Error::BadNoise`] for one that is negative or not finite.
    pub fn variances(variances: impl Into<Array<'a, f64, Ix2>>) -> Result<Self> {
        let variances = variances.into();
        let bad = variances.view().indexed_iter().find(|(_, v)| !(v.is_finite() && **v >= 0.0)).map(|(at, v)| (at, *v));
        if let Some(((row, column), v)) = bad {
            return Err(bad_noise(of_row(row), format!("has the variance {v} in column {column}")));
        }
        Ok(Self::of(Covariances::Variances(variances)))
    }

    /// Checks a covariance for each sample (N, C, C). A lower triangle counts.
    ///
    /// # Errors
    /// As [`common`](Self::common).
    pub fn covariances(covariances: impl Into<Array<'a, f64, Ix3>>) -> Result<Self> {
        let covariances = covariances.into();
        check_matrices(covariances.view(), of_row)?;
        Ok(Self::of(Covariances::Matrices(covariances)))
    }

    fn of(covariances: Covariances<'a>) -> Self {
        Self { covariances, projection: None }
    }

    /// Gives each sample the matrix (C, D) that projects its true values to its columns: (N, C, D) in all.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::BadNoise`] for a number that is not finite.
    pub fn projected(self, projection: impl Into<Array<'a, f64, Ix3>>) -> Result<Self> {
        let projection = projection.into();
        let (n, c, d) = projection.view().dim();
        if c != self.n_columns() || d == 0 {
            let (expected, got) = (vec![n, self.n_columns(), d.max(1)], vec![n, c, d]);
            return Err(Error::ShapeMismatch { what: "the projection", expected, got });
        }
        let not_finite = |v: ArrayView2<'_, f64>| v.iter().any(|v| !v.is_finite());
        if let Some(row) = projection.view().outer_iter().position(not_finite) {
            return Err(bad_noise(format!("the projection of row {row} (counted from 0)"), NOT_FINITE.into()));
        }
        Ok(Self { projection: Some(projection), ..self })
    }

    /// Checks the number of the samples and of their columns.
    pub(super) fn check(&self, n: usize, columns: usize) -> Result<()> {
        let c = self.n_columns();
        if let Some(rows) = self.n_samples().filter(|rows| *rows != n) {
            return Err(Error::ShapeMismatch { what: "the noise", expected: vec![n, columns], got: vec![rows, c] });
        }
        if c != columns {
            return Err(Error::ShapeMismatch { what: "a sample's noise", expected: vec![columns; 2], got: vec![c; 2] });
        }
        match self.projection.as_ref().map(|projection| projection.view().dim()) {
            Some((rows, c, d)) if rows != n => {
                Err(Error::ShapeMismatch { what: "the projection", expected: vec![n, c, d], got: vec![rows, c, d] })
            }
            _ => Ok(()),
        }
    }

    /// Returns N; `None` for one covariance for all.
    fn n_samples(&self) -> Option<usize> {
        match &self.covariances {
            Covariances::Few(_, of_sample) => of_sample.as_ref().map(|groups| groups.view().len()),
            Covariances::Variances(v) => Some(v.view().nrows()),
            Covariances::Matrices(v) => Some(v.view().len_of(Axis(0))),
        }
    }

    /// Returns C, the number of the samples' columns.
    pub fn n_columns(&self) -> usize {
        match &self.covariances {
            Covariances::Few(v, _) => v.len_of(Axis(1)),
            Covariances::Variances(v) => v.view().ncols(),
            Covariances::Matrices(v) => v.view().len_of(Axis(1)),
        }
    }

    /// Returns D, the number of the true values of a sample.
    pub fn n_features(&self) -> usize {
        self.projection.as_ref().map_or(self.n_columns(), |projection| projection.view().len_of(Axis(2)))
    }

    /// Returns the matrices (J, C, C) if many samples share each, and the matrix of each sample, if there are several.
    pub(crate) fn groups(&self, n: usize) -> Option<(&Array3<f64>, Option<Vec<usize>>)> {
        match &self.covariances {
            Covariances::Few(v, of_sample) if self.projection.is_none() => {
                let large = v.len_of(Axis(0)).saturating_mul(LARGE_GROUP) <= n;
                let groups = of_sample.as_ref().map(|groups| groups.view().to_vec());
                (groups.is_none() || large).then_some((v, groups))
            }
            _ => None,
        }
    }

    /// Returns the places of a lower triangle, row by row, that hold a sample's noise; only those of the diagonal for
    /// variances.
    pub fn entries(&self) -> Vec<(usize, usize)> {
        let is_diagonal = matches!(self.covariances, Covariances::Variances(_));
        (0..self.n_columns()).flat_map(|i| (if is_diagonal { i } else { 0 }..=i).map(move |j| (i, j))).collect()
    }

    /// Returns the covariance of the noise in two columns of a row.
    #[inline]
    pub fn at(&self, row: usize, i: usize, j: usize) -> f64 {
        let (i, j) = (i.max(j), i.min(j));
        match &self.covariances {
            Covariances::Few(v, of_sample) => v[[of_sample.as_ref().map_or(0, |groups| groups.view()[row]), i, j]],
            Covariances::Variances(v) if i == j => v.view()[[row, i]],
            Covariances::Variances(_) => 0.0,
            Covariances::Matrices(v) => v.view()[[row, i, j]],
        }
    }

    /// Writes the lower triangle of the noise of a row in some columns, row by row.
    #[inline]
    pub(crate) fn write(&self, row: usize, columns: &[usize], out: &mut [f64]) {
        fn copy(v: &ArrayView2<'_, f64>, columns: &[usize], out: &mut [f64]) {
            let mut at = 0;
            for (i, &a) in columns.iter().enumerate() {
                for &b in &columns[..=i] {
                    out[at] = v[[a, b]];
                    at += 1;
                }
            }
        }
        match &self.covariances {
            Covariances::Few(v, of_sample) => {
                let group = of_sample.as_ref().map_or(0, |groups| groups.view()[row]);
                copy(&v.index_axis(Axis(0), group), columns, out);
            }
            Covariances::Variances(v) => {
                out.fill(0.0);
                let of_row = v.view();
                columns.iter().enumerate().for_each(|(i, &a)| out[i * (i + 3) / 2] = of_row[[row, a]]);
            }
            Covariances::Matrices(v) => copy(&v.view().index_axis(Axis(0), row), columns, out),
        }
    }

    /// Returns the projection (C, D) of a row, if there is one.
    pub(crate) fn projection(&self, row: usize) -> Option<ArrayView2<'_, f64>> {
        self.projection.as_ref().map(|projection| projection.view().index_axis_move(Axis(0), row))
    }

    /// Whether true values have projections.
    pub fn is_projected(&self) -> bool {
        self.projection.is_some()
    }

    /// Returns the noise of samples whose columns are divided by `scale`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for projections, whose columns are not those of the true values.
    pub fn scaled<'b>(&self, scale: &[f64]) -> Result<Noise<'b>> {
        if self.is_projected() {
            return Err(Error::Unsupported {
                what: "standardisation of projected samples".into(),
                backend: "a fit",
                remedy: "scale the true values, and multiply the projections by the scales",
            });
        }
        let matrices = |v: ArrayView3<'_, f64>| {
            let mut v = v.to_owned();
            v.indexed_iter_mut().for_each(|((_, i, j), v)| *v /= scale[i] * scale[j]);
            v
        };
        let covariances = match &self.covariances {
            Covariances::Few(v, of_sample) => {
                let of_sample = of_sample.as_ref().map(|groups| Array::Shared(groups.view().to_shared()));
                Covariances::Few(Arc::new(matrices(v.view())), of_sample)
            }
            Covariances::Variances(v) => {
                let mut v = v.view().to_owned();
                v.indexed_iter_mut().for_each(|((_, j), v)| *v /= scale[j] * scale[j]);
                Covariances::Variances(Array::Shared(v.into_shared()))
            }
            Covariances::Matrices(v) => Covariances::Matrices(Array::Shared(matrices(v.view()).into_shared())),
        };
        Ok(Noise::of(covariances))
    }

    /// Returns the noise of a range of the samples.
    ///
    /// # Panics
    /// If the range ends past the last sample.
    #[must_use]
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let mut part = self.clone();
        match &mut part.covariances {
            Covariances::Few(_, of_sample) => of_sample.iter_mut().for_each(|v| v.select_rows(rows.clone())),
            Covariances::Variances(v) => v.select_rows(rows.clone()),
            Covariances::Matrices(v) => v.select_rows(rows.clone()),
        }
        part.projection.iter_mut().for_each(|v| v.select_rows(rows.clone()));
        part
    }

    /// Copies the noise of some samples.
    pub(super) fn select<'b>(&self, rows: &[usize]) -> Noise<'b> {
        let matrices = |v: &Array<'_, f64, Ix3>| Array::Shared(v.view().select(Axis(0), rows).into_shared());
        let covariances = match &self.covariances {
            Covariances::Few(v, of_sample) => {
                let select = |v: &Array<'_, usize, Ix1>| Array::Shared(v.view().select(Axis(0), rows).into_shared());
                Covariances::Few(Arc::clone(v), of_sample.as_ref().map(select))
            }
            Covariances::Variances(v) => {
                Covariances::Variances(Array::Shared(v.view().select(Axis(0), rows).into_shared()))
            }
            Covariances::Matrices(v) => Covariances::Matrices(matrices(v)),
        };
        Noise { covariances, projection: self.projection.as_ref().map(matrices) }
    }

    /// Returns all numbers in order, by which the noise is recognised.
    pub fn numbers(&self) -> Vec<f64> {
        let mut numbers: Vec<f64> = match &self.covariances {
            Covariances::Few(v, of_sample) => {
                let groups = of_sample.iter().flat_map(|groups| groups.view().to_vec());
                v.iter().copied().chain(groups.map(|group| group as f64)).collect()
            }
            Covariances::Variances(v) => v.view().iter().copied().collect(),
            Covariances::Matrices(v) => v.view().iter().copied().collect(),
        };
        numbers.extend(self.projection.iter().flat_map(|v| v.view().iter().copied().collect::<Vec<_>>()));
        numbers
    }

    /// Returns the same noise, borrowed from this one or shared with it.
    pub fn reborrow(&self) -> Noise<'_> {
        let covariances = match &self.covariances {
            Covariances::Few(v, of_sample) => {
                Covariances::Few(Arc::clone(v), of_sample.as_ref().map(|groups| groups.reborrow()))
            }
            Covariances::Variances(v) => Covariances::Variances(v.reborrow()),
            Covariances::Matrices(v) => Covariances::Matrices(v.reborrow()),
        };
        Noise { covariances, projection: self.projection.as_ref().map(Array::reborrow) }
    }
}

const NOT_FINITE: &str = "holds a number that is not finite";

fn bad_noise(what: String, problem: String) -> Error {
    Error::BadNoise { what, problem }
}

fn of_row(row: usize) -> String {
    format!("the noise of row {row} (counted from 0)")
}

/// Checks that matrices (J, C, C) are covariances, perhaps singular ones.
fn check_matrices(matrices: ArrayView3<'_, f64>, name: impl Fn(usize) -> String + Sync) -> Result<()> {
    let (n, rows, columns) = matrices.dim();
    if rows != columns || rows == 0 {
        let (expected, got) = (vec![n, rows.max(1), rows.max(1)], vec![n, rows, columns]);
        return Err(Error::ShapeMismatch { what: "the noise", expected, got });
    }
    const PIECE: usize = 1024;
    let pieces: Vec<Range<usize>> = (0..n).step_by(PIECE).map(|start| start..n.min(start + PIECE)).collect();
    let problem = |piece: Range<usize>| {
        let mut factor = vec![0.0; rows * rows];
        let part = matrices.slice_axis(Axis(0), Slice::from(piece.clone()));
        part.outer_iter().zip(piece).find_map(|(v, at)| problem_of(v, &mut factor).map(|problem| (at, problem)))
    };
    match pieces.into_par_iter().find_map_first(problem) {
        Some((at, problem)) => Err(bad_noise(name(at), problem)),
        None => Ok(()),
    }
}

/// Returns what keeps a matrix from being a covariance, by a factorisation L·diag(d)·Lᵀ in `factor` (C, C).
fn problem_of(matrix: ArrayView2<'_, f64>, factor: &mut [f64]) -> Option<String> {
    let c = matrix.nrows();
    let size = |i: usize, j: usize| (matrix[[i, i]] * matrix[[j, j]]).max(0.0).sqrt();
    if matrix.iter().any(|v| !v.is_finite()) {
        return Some(NOT_FINITE.into());
    }
    for i in 0..c {
        for j in 0..i {
            if (matrix[[i, j]] - matrix[[j, i]]).abs() > SYMMETRY_TOLERANCE * size(i, j) {
                return Some(format!("is not symmetric at ({i}, {j}); average it with its transpose"));
            }
            factor[i * c + j] = matrix[[i, j]];
        }
        factor[i * c + i] = matrix[[i, i]];
    }
    for j in 0..c {
        let (pivot, variance) = (factor[j * c + j], matrix[[j, j]]);
        if pivot < -SYMMETRY_TOLERANCE * variance.abs() || variance < 0.0 {
            return Some(format!("is not a covariance: it is not positive semidefinite (column {j})"));
        }
        let is_zero = pivot <= SYMMETRY_TOLERANCE * variance;
        for i in j + 1..c {
            let v = factor[i * c + j];
            if is_zero && v.abs() > SYMMETRY_TOLERANCE.sqrt() * size(i, j) {
                return Some(format!("is not a covariance: it is not positive semidefinite (column {i})"));
            }
            let share = if is_zero { 0.0 } else { v / pivot };
            for k in j + 1..=i {
                factor[i * c + k] -= share * factor[k * c + j];
            }
        }
    }
    None
}
