//! The linear algebra that a mixture needs beyond nalgebra's.
use nalgebra::{Cholesky, DMatrix};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

/// A pivot below this fraction of its diagonal entry is rounding noise: the matrix is singular to float64.
const SINGULAR: f64 = f64::EPSILON;

/// Rows of an inverse that are found together.
const TOGETHER: usize = 8;

/// U (D, D), upper triangular with Σ⁻¹ = U·Uᵀ: the transposed inverse of Σ's Cholesky factor. Reads only the lower
/// triangle of Σ. The error is the first pivot at which Σ is not positive definite to working precision.
pub(crate) fn precision_cholesky(covariance: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let d = covariance.nrows();
    let lower = cholesky(covariance)?;
    // L⁻¹ row by row: row i is (eᵢ − Σₗ Lᵢₗ · row l) / Lᵢᵢ over l < i; every loop runs along a row, and none over zeros. Some rows
    // together take what is above all of them, so that it is read once.
    let mut inverse = vec![0.0; d * d];
    for first in (0..d).step_by(TOGETHER) {
        let (done, rows) = inverse.split_at_mut(first * d);
        let mut rows: Vec<&mut [f64]> = rows.chunks_exact_mut(d).take(TOGETHER).collect();
        for (l, above) in done.chunks_exact(d).enumerate() {
            for (r, row) in rows.iter_mut().enumerate() {
                let factor = lower[(first + r, l)];
                row[..=l].iter_mut().zip(above).for_each(|(v, above)| *v -= factor * above);
            }
        }
        for r in 0..rows.len() {
            let i = first + r;
            let (above, row) = rows.split_at_mut(r);
            for (l, above) in (first..i).zip(above) {
                let factor = lower[(i, l)];
                row[0][..=l].iter_mut().zip(above.iter()).for_each(|(v, above)| *v -= factor * above);
            }
            row[0][i] = 1.0;
            let pivot = lower[(i, i)];
            row[0][..=i].iter_mut().for_each(|v| *v /= pivot);
        }
    }
    Ok(Array2::from_shape_fn((d, d), |(i, j)| inverse[j * d + i]))
}

/// Calls `f` with the number of each matrix of `v` (K, D, D) and the matrix; with all threads, if the matrices are large.
pub(crate) fn for_each_matrix(v: &mut Array3<f64>, f: impl Fn(usize, ArrayViewMut2<'_, f64>) + Sync) {
    // Below some tens of microseconds, waking the threads costs more than they save.
    if v.len() > 1 << 17 {
        v.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(c, matrix)| f(c, matrix));
    } else {
        v.outer_iter_mut().enumerate().for_each(|(c, matrix)| f(c, matrix));
    }
}

/// Rows of which so many numbers each are worth the waking of another thread: some ten microseconds.
pub(crate) fn at_once(numbers: usize) -> usize {
    (1 << 12) / numbers.max(1) + 1
}

/// Calls `f` for each row of two arrays of one shape, on several threads where that is worth while. Gives the error of the first row
/// that has one; the rows behind it may then be left out.
pub(crate) fn try_for_each_row<E: Send>(
    a: &mut Array2<f64>,
    b: &mut Array2<f64>,
    f: impl Fn(usize, ArrayViewMut1<'_, f64>, ArrayViewMut1<'_, f64>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let at_once = at_once(a.ncols());
    let rows = a.axis_iter_mut(Axis(0)).into_par_iter().zip(b.axis_iter_mut(Axis(0))).enumerate();
    rows.with_min_len(at_once).find_map_first(|(c, (a, b))| f(c, a, b).err()).map_or(Ok(()), Err)
}

/// The inverse (D, D) of a symmetric positive definite matrix; symmetric to the bit. Errors as [`precision_cholesky`].
pub(crate) fn inverse(matrix: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let u = precision_cholesky(matrix)?;
    Ok(gram(u.view()))
}

/// U·Uᵀ for an upper triangular U (D, D); symmetric to the bit.
pub(crate) fn gram(u: ArrayView2<'_, f64>) -> Array2<f64> {
    let d = u.nrows();
    let mut product = Array2::zeros((d, d));
    for i in 0..d {
        for j in 0..=i {
            let v: f64 = (i..d).map(|l| u[[i, l]] * u[[j, l]]).sum();
            product[[i, j]] = v;
            product[[j, i]] = v;
        }
    }
    product
}

/// Lower Cholesky factor from the lower triangle, or the first failing pivot.
pub(crate) fn cholesky(matrix: ArrayView2<'_, f64>) -> Result<DMatrix<f64>, usize> {
    let d = matrix.nrows();
    match factor(matrix, d) {
        Some(lower) => Ok(lower),
        None => {
            // A leading minor that fails makes every larger one fail: bisect for the first.
            let (mut good, mut bad) = (0, d);
            while bad - good > 1 {
                let middle = (good + bad) / 2;
                if factor(matrix, middle).is_some() {
                    good = middle;
                } else {
                    bad = middle;
                }
            }
            Err(bad - 1)
        }
    }
}

/// Factor of the leading minor of order `n`, if every pivot stands clear of rounding.
fn factor(matrix: ArrayView2<'_, f64>, n: usize) -> Option<DMatrix<f64>> {
    let lower = Cholesky::new(DMatrix::from_fn(n, n, |i, j| if j <= i { matrix[[i, j]] } else { 0.0 }))?.unpack();
    let sound = (0..n).all(|j| {
        let pivot = lower[(j, j)] * lower[(j, j)];
        pivot.is_normal() && pivot > SINGULAR * matrix[[j, j]]
    });
    sound.then_some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_factor_inverts_the_covariance() {
        let s = array![[4.0, 2.0, 0.6], [2.0, 3.0, 0.4], [0.6, 0.4, 1.5]];
        let u = precision_cholesky(s.view()).unwrap();
        assert_eq!((u[[1, 0]], u[[2, 0]], u[[2, 1]]), (0.0, 0.0, 0.0));
        let unit = u.t().dot(&s).dot(&u);
        for ((i, j), v) in unit.indexed_iter() {
            // A few roundings of numbers near one.
            assert!((v - f64::from(u8::from(i == j))).abs() < 1e-14);
        }
        let unit = inverse(s.view()).unwrap().dot(&s);
        for ((i, j), v) in unit.indexed_iter() {
            assert!((v - f64::from(u8::from(i == j))).abs() < 1e-14);
        }
    }

    #[test]
    fn the_failing_pivot_is_named() {
        // Feature 2 is the sum of the two before it; feature 3 is fine.
        let s = array![[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        assert_eq!(precision_cholesky(s.view()).unwrap_err(), 2);
        assert_eq!(precision_cholesky(array![[0.0]].view()).unwrap_err(), 0);
        assert_eq!(precision_cholesky(array![[1.0, 0.0], [0.0, -1.0]].view()).unwrap_err(), 1);
    }
}
