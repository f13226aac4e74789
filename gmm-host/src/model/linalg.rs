//! The linear algebra that a mixture needs beyond nalgebra's.
use nalgebra::{Cholesky, DMatrix};
use ndarray::{Array2, ArrayView2};

/// A pivot below this fraction of its diagonal entry is rounding noise: the matrix is singular to float64.
const SINGULAR: f64 = f64::EPSILON;

/// U (D, D), upper triangular with Σ⁻¹ = U·Uᵀ: the transposed inverse of Σ's Cholesky factor. Reads only the lower
/// triangle of Σ. The error is the first pivot at which Σ is not positive definite to working precision.
pub(crate) fn precision_cholesky(covariance: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let d = covariance.nrows();
    let lower = cholesky(covariance)?;
    // L⁻¹ row by row: row i is (eᵢ − Σₗ Lᵢₗ · row l) / Lᵢᵢ over l < i; every loop runs along a row, and none over zeros.
    let mut inverse = vec![0.0; d * d];
    for i in 0..d {
        let (done, row) = inverse.split_at_mut(i * d);
        for l in 0..i {
            let factor = lower[(i, l)];
            row[..=l].iter_mut().zip(&done[l * d..]).for_each(|(v, above)| *v -= factor * above);
        }
        row[i] = 1.0;
        let pivot = lower[(i, i)];
        row[..=i].iter_mut().for_each(|v| *v /= pivot);
    }
    Ok(Array2::from_shape_fn((d, d), |(i, j)| inverse[j * d + i]))
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
