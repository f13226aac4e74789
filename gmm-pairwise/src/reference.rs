//! float64 in plain loops, the reference for all else.
use crate::number::Number;
use gmm_host::linalg::neumaier_sum;
use gmm_host::{Interrupt, Result};
use ndarray::{ArrayView1, ArrayView2};

fn gaussian<T: Number>(gamma: f64, a: ArrayView1<'_, T>, b: ArrayView1<'_, T>) -> T {
    // Squares do not cancel, and a compensated sum would turn an overflow into NaN.
    let square: f64 = a.iter().zip(b).map(|(&a, &b)| (a.into() - b.into()).powi(2)).sum();
    T::from_f64((-gamma * square).exp())
}

/// Computes row i of `a` with row i of `b`.
pub fn pairs<T: Number>(gamma: f64, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
    let interrupt = Interrupt::current();
    for ((out, a), b) in out.iter_mut().zip(a.rows()).zip(b.rows()) {
        interrupt.check()?;
        *out = gaussian(gamma, a, b);
    }
    Ok(())
}

/// Computes row i of `x` with row j of `centres`.
pub fn matrix<T: Number>(gamma: f64, x: ArrayView2<'_, T>, centres: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
    each_with_each(x, centres, out, |x, centre| gaussian(gamma, x, centre))
}

/// Computes row i of `vectors` times row j of `matrix`.
pub fn products<T: Number>(vectors: ArrayView2<'_, T>, matrix: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
    each_with_each(vectors, matrix, out, |vector, row| {
        T::from_f64(neumaier_sum(vector.iter().zip(row).map(|(&v, &m)| v.into() * m.into())))
    })
}

fn each_with_each<T: Number>(
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    out: &mut [T],
    of: impl Fn(ArrayView1<'_, T>, ArrayView1<'_, T>) -> T,
) -> Result<()> {
    let interrupt = Interrupt::current();
    for (out, a) in out.chunks_exact_mut(b.nrows()).zip(a.rows()) {
        interrupt.check()?;
        out.iter_mut().zip(b.rows()).for_each(|(out, b)| *out = of(a, b));
    }
    Ok(())
}
