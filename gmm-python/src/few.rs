//! A few samples under a mixture of large matrices, straight from the attributes of an estimator.
//!
//! To check whether a mixture is still that of the attributes, and to lay out its parameters for
//! the engine, takes several passes over the matrices; what is asked about a few samples takes one.
use crate::arrays::{Matrix, numbers, plain, view};
use crate::threads::compute;
use gaussmix::linalg::{sum_of, vectorised};
use gaussmix::model::{CovarianceType, WEIGHT_SUM_TOLERANCE};
use ndarray::{Array1, Array2, ArrayView2, Axis, Ix1, Ix2};
use numpy::{Element, IntoPyArray, PyArray1, PyArray2, PyArrayDyn};
use pyo3::prelude::*;
use rayon::prelude::*;

/// The most samples that count as few.
const MOST_SAMPLES: usize = 16;
/// The least numbers of all matrices that count as many.
const LEAST_NUMBERS: usize = 1 << 16;
/// Multiply-adds that are worth the waking of other threads.
const SHARED_WORK: usize = 1 << 18;

/// Means (K, D), a number type's factors U of precisions U·Uᵀ one after the other (K of them, or
/// the one of all), and samples (N, D).
struct Parts<'a, T> {
    x: ArrayView2<'a, f64>,
    means: ArrayView2<'a, f64>,
    factors: &'a [T],
}

impl<T: Copy + Into<f64> + Sync> Parts<'_, T> {
    /// −½ |Uᵀ(x − μ)|² + log |U| of component `c` for each sample, if U is upper triangular with a
    /// positive diagonal.
    fn component(&self, c: usize, log_p: &mut [f64]) -> Option<()> {
        let d = self.means.ncols();
        let matrix = d * d;
        let first = if self.factors.len() == matrix { 0 } else { c * matrix };
        let factor = &self.factors[first..][..matrix];
        let differences = &self.x - &self.means.row(c);
        let differences = differences.as_slice()?;
        let mut y = vec![0.0; differences.len()];
        let (triangular, log_det) = vectorised(
            #[inline(always)]
            || {
                let (mut triangular, mut log_det) = (true, 0.0);
                for (i, row) in factor.chunks_exact(d).enumerate() {
                    let (below, row) = row.split_at(i);
                    triangular &= below.iter().fold(true, |zero, &u| zero & (u.into() == 0.0));
                    let diagonal: f64 = row[0].into();
                    log_det += diagonal.ln();
                    for (y, differences) in y.chunks_exact_mut(d).zip(differences.chunks_exact(d)) {
                        let difference = differences[i];
                        y[i..].iter_mut().zip(row).for_each(|(y, &u)| *y += difference * u.into());
                    }
                }
                (triangular, log_det)
            },
        );
        for (log_p, y) in log_p.iter_mut().zip(y.chunks_exact(d)) {
            *log_p = log_det - 0.5 * sum_of([y], |[y]| y * y);
        }
        triangular.then_some(())
    }

    /// log πₖ N(x; μₖ, Σₖ) (N, K), and the logarithms of their sums (N,); nothing where one is not
    /// a finite number.
    fn log_densities(&self, weights: &Array1<f64>) -> Option<(Array2<f64>, Array1<f64>)> {
        let ((n, d), k) = (self.x.dim(), weights.len());
        let mut by_component = Array2::zeros((k, n));
        let one = |(c, log_p): (usize, &mut [f64])| self.component(c, log_p);
        let rows = by_component.as_slice_mut()?;
        if k > 1 && n * self.factors.len() >= SHARED_WORK {
            rows.par_chunks_exact_mut(n).enumerate().map(one).collect::<Option<()>>()?;
        } else {
            rows.chunks_exact_mut(n).enumerate().map(one).collect::<Option<()>>()?;
        }
        let constant = 0.5 * d as f64 * std::f64::consts::TAU.ln();
        for (mut row, weight) in by_component.outer_iter_mut().zip(weights) {
            if !row.iter().all(|v| v.is_finite()) {
                return None;
            }
            row += weight.ln() - constant;
        }
        let log_p = by_component.reversed_axes().as_standard_layout().into_owned();
        let sums = log_p.map_axis(Axis(1), |row| {
            let most = row.fold(f64::NEG_INFINITY, |most: f64, v| most.max(*v));
            most + row.fold(0.0, |sum, v| sum + (v - most).exp()).ln()
        });
        Some((log_p, sums))
    }
}

/// The factors by rows, if they lie so in memory and have the shape.
fn with_factors<T: Element, R>(
    factors: &Bound<'_, PyArrayDyn<T>>,
    shape: &[usize],
    work: impl FnOnce(&[T]) -> PyResult<Option<R>>,
) -> PyResult<Option<R>> {
    let factors = plain(factors)?;
    let factors = view(&factors);
    if factors.shape() != shape {
        return Ok(None);
    }
    factors.as_slice().map_or(Ok(None), work)
}

type Densities<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>);

/// The logarithms of weight times density (N, K) and of the sums of these (N,), in float64, of a
/// few samples; None where they are not few, where the engine is as fast, and where the engine has
/// to say what is wrong.
#[pyfunction]
pub fn few_log_densities<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    weights: &Bound<'py, PyAny>,
    means: &Bound<'py, PyAny>,
    precisions_cholesky: &Bound<'py, PyAny>,
    covariance_type: &str,
) -> PyResult<Option<Densities<'py>>> {
    let covariance_type: CovarianceType = crate::arrays::covariance_type(covariance_type)?;
    let x = Matrix::new(x)?;
    let (n, d) = match &x {
        Matrix::F32(x) => view(x).dim(),
        Matrix::F64(x) => view(x).dim(),
    };
    if n == 0 || n > MOST_SAMPLES || !matches!(covariance_type, CovarianceType::Full | CovarianceType::Tied) {
        return Ok(None);
    }
    let (weights, means) = (numbers(weights)?, numbers(means)?);
    let (Ok(weights), Ok(means)) = (weights.into_dimensionality::<Ix1>(), means.into_dimensionality::<Ix2>()) else {
        return Ok(None);
    };
    let k = weights.len();
    let shape = covariance_type.shape(k, d);
    // What each component reads, also where all read the same matrix.
    let is_large = k.saturating_mul(d).saturating_mul(d) >= LEAST_NUMBERS;
    let sound = weights.iter().all(|w| *w >= 0.0) && (weights.sum() - 1.0).abs() <= WEIGHT_SUM_TOLERANCE;
    if !is_large || !sound || means.dim() != (k, d) || !means.iter().all(|v| v.is_finite()) {
        return Ok(None);
    }
    let x = match &x {
        Matrix::F32(x) => view(x).mapv(f64::from),
        Matrix::F64(x) => view(x).as_standard_layout().into_owned(),
    };
    let (x, means) = (x.view(), means.view());
    let found = if let Ok(factors) = precisions_cholesky.cast::<PyArrayDyn<f64>>() {
        with_factors(factors, &shape, |factors| compute(py, || Parts { x, means, factors }.log_densities(&weights)))?
    } else if let Ok(factors) = precisions_cholesky.cast::<PyArrayDyn<f32>>() {
        with_factors(factors, &shape, |factors| compute(py, || Parts { x, means, factors }.log_densities(&weights)))?
    } else {
        None
    };
    Ok(found.map(|(log_p, sums)| (log_p.into_pyarray(py), sums.into_pyarray(py))))
}
