//! Linear algebra by faer, which chooses its code for the machine at run time; for small matrices, and under
//! [`Reproducible`], by loops without fused operations. It runs in the calling thread, so results do not depend on the
//! number of threads.
use crate::interrupt::Interrupt;
use crate::reproducible::{Functions, Reproducible};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::linalg::triangular_inverse::invert_lower_triangular;
use faer::{Accum, MatMut, MatRef, Par, Spec};
use ndarray::parallel::prelude::*;
use ndarray::{
    Array, Array2, Array3, ArrayView, ArrayView2, ArrayView3, ArrayViewMut, ArrayViewMut1, ArrayViewMut2, Axis,
    Dimension, RemoveAxis, s,
};
use pulp::Arch;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::slice::ParallelSliceMut;
use std::borrow::Cow;
use std::sync::LazyLock;

/// A pivot below this fraction of its diagonal entry is rounding noise: the matrix is singular in float64.
const SINGULAR: f64 = f64::EPSILON;

/// Columns read or written side by side in a transposition: their parts stay in the first-level cache.
pub(crate) const STRIP: usize = 16;

/// Returns U (D, D), upper triangular with Σ⁻¹ = U·Uᵀ: the transposed inverse of Σ's Cholesky factor. Reads only the
/// lower triangle of Σ. The error is the first pivot that is not positive to working precision.
pub(crate) fn precision_cholesky(covariance: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let mut u = Array2::zeros(covariance.raw_dim());
    precision_cholesky_into(covariance, u.as_slice_mut().unwrap_or_default())?;
    Ok(u)
}

/// As [`precision_cholesky`], into zeros (D, D), which an error leaves unchanged.
fn precision_cholesky_into(covariance: ArrayView2<'_, f64>, u: &mut [f64]) -> Result<(), usize> {
    let d = covariance.nrows();
    if takes_loops(d) {
        let [result] = precision_cholesky_side_by_side::<1>(covariance.insert_axis(Axis(0)), u);
        return result;
    }
    let lower = factor_or_pivot(covariance)?;
    let inverse = MatMut::from_column_major_slice_mut(u, d, d);
    invert_lower_triangular(inverse, MatRef::from_column_major_slice(&lower, d, d), Par::Seq);
    Ok(())
}

/// Writes [`precision_cholesky`] of each matrix of `covariances` (K, D, D) to `u`, zeros before; returns the errors with
/// the matrices' numbers. A matrix with an error leaves zeros.
pub(crate) fn precision_cholesky_of_each(covariances: ArrayView3<'_, f64>, u: &mut Array3<f64>) -> Vec<(usize, usize)> {
    let (k, d, _) = covariances.dim();
    let numbers = u.as_slice_mut().unwrap_or_default();
    let at_once = matrices_at_once(k, d, d * d * d / 20);
    let results: Vec<Result<(), usize>> = if d <= LOOPS {
        let groups = covariances.axis_chunks_iter(Axis(0), LANES).into_par_iter();
        let groups = groups.zip(numbers.par_chunks_mut(LANES * d * d));
        let of_groups = map_rows(groups, at_once.div_ceil(LANES), |(covariances, u)| {
            precision_cholesky_side_by_side::<LANES>(covariances, u)
        });
        of_groups.into_iter().flatten().take(k).collect()
    } else {
        let matrices = covariances.axis_iter(Axis(0)).into_par_iter().zip(numbers.par_chunks_exact_mut(d * d));
        map_rows(matrices, at_once, |(covariance, u)| precision_cholesky_into(covariance, u))
    };
    results.into_iter().enumerate().filter_map(|(c, result)| Some((c, result.err()?))).collect()
}

/// The most rows of a matrix that the loops of this module factorise in less time than faer.
const LOOPS: usize = 32;

fn takes_loops(d: usize) -> bool {
    d <= LOOPS || Reproducible::is_on()
}

/// Matrices of different components that are computed together, each in its lane of vector registers: the numbers of one
/// wait for each other.
pub const LANES: usize = 8;

/// Writes [`precision_cholesky`] of up to N matrices (N, D, D) to `u`, zeros before. Its bits do not depend on the other
/// matrices, on N, or on the machine.
fn precision_cholesky_side_by_side<const N: usize>(
    covariances: ArrayView3<'_, f64>,
    u: &mut [f64],
) -> [Result<(), usize>; N] {
    let d = covariances.len_of(Axis(1));
    let (lower, results) = factor_side_by_side::<N>(covariances);
    let mut inverse = vec![[0.0; N]; triangle(d)];
    vectorised(
        #[inline(always)]
        || {
            for i in 0..d {
                let (above, row) = inverse.split_at_mut(triangle(i));
                let factor = &lower[triangle(i)..][..=i];
                let reciprocal = factor[i].map(|pivot| 1.0 / pivot);
                for (j, to) in row.iter_mut().enumerate().take(i) {
                    let column = (j..i).map(|m| &above[triangle(m) + j]);
                    let rest = less_products([0.0; N], &factor[j..i], column);
                    *to = std::array::from_fn(|lane| rest[lane] * reciprocal[lane]);
                }
                row[i] = reciprocal;
            }
        },
    );
    for (lane, u) in u.chunks_exact_mut(d * d).enumerate().filter(|(lane, _)| results[*lane].is_ok()) {
        for i in 0..d {
            let row = &inverse[triangle(i)..][..=i];
            u[i..].iter_mut().step_by(d).zip(row).for_each(|(to, numbers)| *to = numbers[lane]);
        }
    }
    results
}

/// Returns the lower Cholesky factors of up to N matrices (N, D, D), row by row, and the first pivot of each that is not
/// clear of rounding noise.
fn factor_side_by_side<const N: usize>(matrices: ArrayView3<'_, f64>) -> (Vec<[f64; N]>, [Result<(), usize>; N]) {
    let d = matrices.len_of(Axis(1));
    // Nobody reads lanes without a matrix.
    let mut lower = vec![[1.0; N]; triangle(d)];
    for (lane, matrix) in matrices.outer_iter().enumerate() {
        for (i, row) in matrix.outer_iter().enumerate() {
            lower[triangle(i)..][..=i].iter_mut().zip(row).for_each(|(to, v)| to[lane] = *v);
        }
    }
    let mut pivots = vec![[0.0; N]; d];
    vectorised(
        #[inline(always)]
        || {
            for (j, pivot) in pivots.iter_mut().enumerate() {
                let (above, below) = lower.split_at_mut(triangle(j + 1));
                let Some((diagonal, factor)) = above[triangle(j)..].split_last_mut() else { return };
                let factor = &*factor;
                *pivot = less_products(*diagonal, factor, factor);
                *diagonal = pivot.map(f64::sqrt);
                let reciprocal = diagonal.map(|root| 1.0 / root);
                for i in j + 1..d {
                    let row = &mut below[triangle(i) - triangle(j + 1)..][..=j];
                    let rest = less_products(row[j], &row[..j], factor);
                    row[j] = std::array::from_fn(|lane| rest[lane] * reciprocal[lane]);
                }
            }
        },
    );
    let mut results = [Ok(()); N];
    for ((lane, matrix), result) in matrices.outer_iter().enumerate().zip(&mut results) {
        let is_sound = |j: &usize| is_clear(pivots[*j][lane], matrix[[*j, *j]]);
        *result = (0..d).find(|j| !is_sound(j)).map_or(Ok(()), Err);
    }
    (lower, results)
}

/// Returns `from` less the products of two rows' numbers, in each lane.
#[inline(always)]
fn less_products<'a, const N: usize>(
    mut from: [f64; N],
    a: &[[f64; N]],
    b: impl IntoIterator<Item = &'a [f64; N]>,
) -> [f64; N] {
    for (a, b) in a.iter().zip(b) {
        from.iter_mut().zip(a.iter().zip(b)).for_each(|(from, (a, b))| *from -= a * b);
    }
    from
}

/// Returns whether the square of a pivot is clear of rounding noise of its diagonal entry.
fn is_clear(pivot: f64, diagonal: f64) -> bool {
    pivot.is_normal() && pivot > SINGULAR * diagonal
}

/// Returns the position of row `i` in a lower triangle stored by rows: the length of a triangle of `i` rows.
pub const fn triangle(i: usize) -> usize {
    i * (i + 1) / 2
}

/// Calls `f` with the number and each matrix of `v` (K, D, D); on all threads, if the matrices are large.
pub(crate) fn for_each_matrix(v: &mut Array3<f64>, f: impl Fn(usize, ArrayViewMut2<'_, f64>) + Sync) {
    let (k, d, _) = v.dim();
    let matrices = v.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
    map_rows(matrices, matrices_at_once(k, d, d * d / 2), |(c, matrix)| f(c, matrix));
}

/// Returns the number of rows, of so many numbers each, that are worth waking another thread (some ten microseconds).
pub fn at_once(numbers: usize) -> usize {
    (1 << 12) / numbers.max(1) + 1
}

/// Returns how many of K matrices (D, D) a thread takes at once, if each costs as much as `numbers` numbers besides its
/// rows: all, if the work takes less than waking other threads. (EM on an H200's host of 16 cores, where waking one takes
/// some 40 microseconds: with K = 128, D = 13 all threads are slower, with K = 64, D = 28 faster.)
pub fn matrices_at_once(k: usize, d: usize, numbers: usize) -> usize {
    if k.saturating_mul(numbers + 8 * d) <= 9 << 12 { k.max(1) } else { 1 }
}

/// Returns the results of `f` for each row, in order: on several threads, if two get at least one large row each, or
/// four `at_once` rows each, or else on this one. (rayon alone moves even undivided work to its own threads, at some ten
/// microseconds.)
pub fn map_rows<I: IndexedParallelIterator, R: Send>(
    rows: I,
    at_once: usize,
    f: impl Fn(I::Item) -> R + Send + Sync,
) -> Vec<R> {
    struct Here<F>(F);
    impl<T, R, F: Fn(T) -> R> ProducerCallback<T> for Here<F> {
        type Output = Vec<R>;

        fn callback<P: Producer<Item = T>>(self, rows: P) -> Vec<R> {
            rows.into_iter().map(self.0).collect()
        }
    }
    let threads = if at_once > 1 { 4 } else { 2 };
    if rows.len() / threads < at_once {
        return rows.with_producer(Here(f));
    }
    rows.with_min_len(at_once).map(f).collect()
}

/// Calls `f` compiled for the machine's vector instructions. Pass an `#[inline(always)]` closure: it is called once, so
/// it is compiled inside the dispatched code; any other is compiled for the oldest machine.
#[inline(always)]
pub fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    // Asking the machine each time takes as long as visiting some tens of numbers.
    static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);
    ARCH.dispatch(f)
}

/// Returns the numbers of an array in row-major order.
pub fn row_major<D: Dimension>(array: ArrayView<'_, f64, D>) -> Cow<'_, [f64]> {
    match array.to_slice() {
        Some(numbers) => Cow::Borrowed(numbers),
        None => Cow::Owned(array.iter().copied().collect()),
    }
}

/// Whether `holds` is true for all numbers. No step waits for the one before.
pub fn all(numbers: &[f64], holds: impl Fn(f64) -> bool) -> bool {
    numbers.iter().fold(true, |all, &v| all & holds(v))
}

/// Folds the values at each place of the slices, all of one length, into eight numbers side by side, because a single
/// one waits for each step. The assignment of places to numbers is the same on every machine.
#[inline(always)]
pub(crate) fn side_by_side<T: Copy, const N: usize>(
    slices: [&[T]; N],
    start: f64,
    next: impl Fn(f64, [T; N]) -> f64,
) -> [f64; 8] {
    let len = slices.iter().map(|slice| slice.len()).min().unwrap_or(0);
    let parts = slices.map(|slice| slice[..len].as_chunks::<8>());
    let mut folded = [start; 8];
    for eight in 0..len / 8 {
        let eights = parts.map(|(eights, _)| &eights[eight]);
        for (i, folded) in folded.iter_mut().enumerate() {
            *folded = next(*folded, eights.map(|eight| eight[i]));
        }
    }
    for (i, folded) in folded.iter_mut().enumerate().take(len % 8) {
        *folded = next(*folded, parts.map(|(_, rest)| rest[i]));
    }
    folded
}

/// Returns the sum of `term` over the places of the slices, eight side by side, in the same order on every machine.
#[inline(always)]
pub fn sum_of<T: Copy, const N: usize>(slices: [&[T]; N], term: impl Fn([T; N]) -> f64) -> f64 {
    side_by_side(slices, 0.0, |sum, numbers| sum + term(numbers)).iter().sum()
}

/// Returns the diagonal of the precision P = U·Uᵀ (D,), from its upper triangular factor U (D, D) row by row.
#[inline(always)]
pub(crate) fn diagonal_of_precision(factor: &[f64], d: usize) -> impl Iterator<Item = f64> {
    // Rows from a multiple of eight on, with zeros first: few lengths, which the processor foresees.
    factor.chunks_exact(d).enumerate().map(
        #[inline(always)]
        |(j, row)| sum_of([&row[j / 8 * 8..]], |[u]| u * u),
    )
}

/// Vector instructions leave most of a shorter row over.
const SHORT_ROW: usize = 16;

/// Calls `f`, which visits a row of `len` numbers, with the machine's vector instructions unless the row is short.
#[inline(always)]
pub(crate) fn for_a_row<R>(len: usize, f: impl FnOnce() -> R) -> R {
    if len < SHORT_ROW { f() } else { vectorised(f) }
}

/// log₂ of a product of positive normal numbers, with one logarithm.
pub(crate) struct LogProduct {
    mantissa: f64,
    exponent: i64,
}

impl Default for LogProduct {
    fn default() -> Self {
        Self { mantissa: 1.0, exponent: 0 }
    }
}

impl LogProduct {
    #[inline]
    pub fn multiply(&mut self, v: f64) {
        let (mantissa, exponent) = split(v);
        self.mantissa *= mantissa;
        self.exponent += exponent;
        if self.mantissa > 1e300 {
            let (mantissa, exponent) = split(self.mantissa);
            self.mantissa = mantissa;
            self.exponent += exponent;
        }
    }

    #[inline]
    pub fn multiply_all<T: Copy + Into<f64>>(&mut self, row: &[T]) {
        if row.len() < SHORT_ROW {
            row.iter().for_each(|v| self.multiply((*v).into()));
            return;
        }
        // Each of the eight products of mantissas stays below 2^64.
        for numbers in row.chunks(64 * 8) {
            let mantissas = side_by_side([numbers], 1.0, |product, [v]| product * split(v.into()).0);
            self.exponent += numbers.iter().map(|v| split((*v).into()).1).sum::<i64>();
            self.multiply(mantissas.iter().product());
        }
    }

    pub fn log2(&self) -> f64 {
        self.exponent as f64 + self.mantissa.log_2()
    }
}

/// v = mantissa · 2^exponent with a mantissa in [1, 2), for a positive normal v.
#[inline]
fn split(v: f64) -> (f64, i64) {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = v.to_bits();
    (f64::from_bits(bits & FRACTION | 1f64.to_bits()), (bits >> 52) as i64 - 1023)
}

/// Calls `f` on a thread of rayon's pool, if the pool will divide its `numbers` numbers more than once. Outside the
/// pool each division wakes threads, and this one again, at some 40 microseconds each on virtual machines; they fall
/// asleep in between.
pub fn on_pool_thread<R: Send>(numbers: usize, f: impl FnOnce() -> R + Send) -> R {
    let interrupt = Interrupt::current();
    if numbers > 3 << 14 { rayon::scope(|_| interrupt.install(f)) } else { f() }
}

/// Calls `f` for each row of `a` and the part of `b` at its index, a row or a matrix, on several threads if worthwhile.
/// Returns the error of the first row with one.
pub(crate) fn try_for_each_row<D: RemoveAxis<Smaller: Send + Sync> + Send + Sync, E: Send>(
    a: &mut Array2<f64>,
    b: &mut Array<f64, D>,
    f: impl Fn(usize, ArrayViewMut1<'_, f64>, ArrayViewMut<'_, f64, D::Smaller>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let ((k, d), numbers) = (a.dim(), b.len() / a.nrows().max(1));
    let at_once = if b.ndim() == 3 { matrices_at_once(k, d, numbers) } else { at_once(numbers) };
    let rows = a.axis_iter_mut(Axis(0)).into_par_iter().zip(b.axis_iter_mut(Axis(0))).enumerate();
    map_rows(rows, at_once, |(c, (a, b))| f(c, a, b)).into_iter().collect()
}

/// Returns the exactly symmetric inverse (D, D) of a positive definite matrix. Errors as `precision_cholesky`.
pub fn inverse(matrix: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let u = precision_cholesky(matrix)?;
    Ok(gram(u.view()))
}

/// Returns U·Uᵀ for an upper triangular U (D, D), exactly symmetric.
pub(crate) fn gram(u: ArrayView2<'_, f64>) -> Array2<f64> {
    let mut product = lower_gram(u);
    mirror(product.as_slice_mut().unwrap_or_default(), u.nrows());
    product
}

/// Returns tr(S·U·Uᵀ) for a symmetric S (lower triangle read) and an upper triangular U.
pub fn trace_of_product(s: ArrayView2<'_, f64>, u: ArrayView2<'_, f64>) -> f64 {
    let (d, product, s) = (u.nrows(), lower_gram(u), row_major(s));
    let rows = product.as_slice().unwrap_or_default().chunks_exact(d).zip(s.chunks_exact(d)).enumerate();
    vectorised(
        #[inline(always)]
        || rows.map(|(i, (p, s))| 2.0 * sum_of([&p[..i], &s[..i]], |[p, s]| p * s) + p[i] * s[i]).sum(),
    )
}

/// Returns |Uᵀx|² for an upper triangular U.
pub(crate) fn squared_length(u: ArrayView2<'_, f64>, x: &[f64]) -> f64 {
    let (d, u) = (x.len(), row_major(u));
    let mut product = vec![0.0; d];
    vectorised(
        #[inline(always)]
        || {
            for ((i, row), x) in u.chunks_exact(d).enumerate().zip(x) {
                product[i..].iter_mut().zip(&row[i..]).for_each(|(sum, u)| *sum += u * x);
            }
            sum_of([&product], |[v]| v * v)
        },
    )
}

/// Returns A·B.
pub fn product(a: ArrayView2<'_, f64>, b: ArrayView2<'_, f64>) -> Array2<f64> {
    if !Reproducible::is_on() {
        return a.dot(&b);
    }
    let (n, b, mut out) = (b.ncols(), row_major(b), Array2::zeros((a.nrows(), b.ncols())));
    let rows = out.as_slice_mut().unwrap_or_default();
    vectorised(
        #[inline(always)]
        || {
            for (column, b) in a.columns().into_iter().zip(b.chunks_exact(n)) {
                for (out, a) in rows.chunks_exact_mut(n).zip(column) {
                    out.iter_mut().zip(b).for_each(|(out, b)| *out += a * b);
                }
            }
        },
    );
    out
}

/// Returns the lower triangle of U·Uᵀ for an upper triangular U (D, D); zeros above.
fn lower_gram(u: ArrayView2<'_, f64>) -> Array2<f64> {
    let d = u.nrows();
    let u = u.as_standard_layout();
    if Reproducible::is_on() {
        let product = |i: usize, j: usize| {
            let rows = [i, j].map(|row| &u.as_slice().unwrap_or_default()[row * d + i..(row + 1) * d]);
            vectorised(
                #[inline(always)]
                || sum_of(rows, |[a, b]| a * b),
            )
        };
        return Array2::from_shape_fn((d, d), |(i, j)| if j <= i { product(i, j) } else { 0.0 });
    }
    let u = MatRef::from_row_major_slice(u.as_slice().unwrap_or_default(), d, d);
    let mut product = Array2::zeros((d, d));
    let lower = MatMut::from_row_major_slice_mut(product.as_slice_mut().unwrap_or_default(), d, d);
    let (upper_factor, lower_factor) = (BlockStructure::TriangularUpper, BlockStructure::TriangularLower);
    let replace = Accum::Replace;
    matmul(lower, lower_factor, replace, u, upper_factor, u.transpose(), lower_factor, 1.0, Par::Seq);
    product
}

/// Copies the lower triangle of a matrix of D rows to the upper one.
pub(crate) fn mirror(matrix: &mut [f64], d: usize) {
    for first in (0..d).step_by(STRIP) {
        for i in first + 1..d {
            let (above, row) = matrix.split_at_mut(i * d);
            // The entries of column i, row by row.
            let column = above[first * d + i..].iter_mut().step_by(d);
            column.zip(&row[first..i.min(first + STRIP)]).for_each(|(to, v)| *to = *v);
        }
    }
}

/// Returns the lower Cholesky factor (D, D) from the lower triangle, or the first failing pivot.
pub(crate) fn cholesky(matrix: ArrayView2<'_, f64>) -> Result<Array2<f64>, usize> {
    let d = matrix.nrows();
    if takes_loops(d) {
        let (lower, [result]) = factor_side_by_side::<1>(matrix.insert_axis(Axis(0)));
        result?;
        return Ok(Array2::from_shape_fn((d, d), |(i, j)| if j <= i { lower[triangle(i) + j][0] } else { 0.0 }));
    }
    let lower = factor_or_pivot(matrix)?;
    // The factorisation leaves numbers above the diagonal.
    Ok(Array2::from_shape_fn((d, d), |(i, j)| if j <= i { lower[j * d + i] } else { 0.0 }))
}

/// As [`cholesky`] by faer, in column-major order.
fn factor_or_pivot(matrix: ArrayView2<'_, f64>) -> Result<Vec<f64>, usize> {
    let d = matrix.nrows();
    match factor(matrix) {
        Some(lower) => Ok(lower),
        None => {
            // If a leading minor fails, every larger one does: bisect for the first.
            let (mut good, mut bad) = (0, d);
            while bad - good > 1 {
                let middle = (good + bad) / 2;
                if factor(matrix.slice(s![..middle, ..middle])).is_some() {
                    good = middle;
                } else {
                    bad = middle;
                }
            }
            Err(bad - 1)
        }
    }
}

/// Returns the lower factor (D, D) by faer in column-major order, if every pivot is clear of rounding noise.
fn factor(matrix: ArrayView2<'_, f64>) -> Option<Vec<f64>> {
    let d = matrix.nrows();
    let mut lower = transposed_triangle(matrix);
    let columns = MatMut::from_column_major_slice_mut(&mut lower, d, d);
    let mut room = MemBuffer::new(cholesky_in_place_scratch::<f64>(d, Par::Seq, Spec::default()));
    let room = MemStack::new(&mut room);
    cholesky_in_place(columns, Default::default(), Par::Seq, room, Spec::default()).ok()?;
    let pivot = |j: usize| lower[j * d + j] * lower[j * d + j];
    (0..d).all(|j| is_clear(pivot(j), matrix[[j, j]])).then_some(lower)
}

/// Returns the lower triangle of a matrix (D, D) in column-major order; zeros above.
fn transposed_triangle(matrix: ArrayView2<'_, f64>) -> Vec<f64> {
    let d = matrix.nrows();
    let matrix = matrix.as_standard_layout();
    let mut out = vec![0.0; d * d];
    for first in (0..d).step_by(STRIP) {
        for (i, row) in matrix.as_slice().unwrap_or_default().chunks_exact(d).enumerate().skip(first) {
            for (j, v) in (first..=i).zip(&row[first..d.min(first + STRIP)]) {
                out[j * d + i] = *v;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    fn matrix(d: usize, shift: usize) -> Array2<f64> {
        let a = Array2::from_shape_fn((d, d), |(i, j)| ((3 * i + 5 * j + i * j + shift) % 7) as f64 - 3.0);
        a.dot(&a.t()) + Array2::<f64>::eye(d) * d as f64
    }

    /// Sizes around those of a register and of both ways. Each product is off by rounding errors of its terms, whose
    /// sizes the condition of some hundreds multiplies.
    #[test]
    fn the_factor_inverts_the_covariance() {
        for d in [1, 3, 8, 13, 31, 32, 33, 50] {
            let s = matrix(d, 0);
            let (u, l) = (precision_cholesky(s.view()).unwrap(), cholesky(s.view()).unwrap());
            let is_unit = |what: &str, product: Array2<f64>| {
                let off = (&product - &Array2::<f64>::eye(d)).fold(0.0, |most: f64, v| v.abs().max(most));
                assert!(off < 1e-11, "{what} {d}: {off}");
            };
            is_unit("UᵀΣU", u.t().dot(&s).dot(&u));
            is_unit("UᵀL", u.t().dot(&l));
            is_unit("Σ⁻¹Σ", inverse(s.view()).unwrap().dot(&s));
            for ((i, j), v) in l.indexed_iter() {
                assert!(i >= j || (*v == 0.0 && u[[j, i]] == 0.0), "{d}: ({i}, {j})");
            }
        }
    }

    /// Also groups that are not full, and a matrix that is not positive definite among others.
    #[test]
    fn matrices_side_by_side_have_the_bits_of_each_alone() {
        for (k, d) in [(1, 5), (8, 13), (11, 32), (3, 40)] {
            let mut all = Array3::zeros((k, d, d));
            for (c, mut to) in all.outer_iter_mut().enumerate() {
                to.assign(&matrix(d, c));
            }
            if k > 1 {
                all[[k - 1, 2, 2]] = -1.0;
            }
            let mut u = Array3::zeros((k, d, d));
            let failures = precision_cholesky_of_each(all.view(), &mut u);
            assert_eq!(failures, if k > 1 { vec![(k - 1, 2)] } else { vec![] });
            for (c, (s, u)) in all.outer_iter().zip(u.outer_iter()).enumerate() {
                assert_eq!(u, precision_cholesky(s).unwrap_or_else(|_| Array2::zeros((d, d))), "{c} of {k}, {d}");
            }
        }
    }

    /// Every length around multiples of eight; sums of small integers are exact in any order.
    #[test]
    fn sums_take_each_place_once() {
        let (a, b): (Vec<f64>, Vec<f64>) = (1..=30).map(|i| (f64::from(i), f64::from(i * i))).unzip();
        for len in 0..=a.len() {
            let plain: f64 = a[..len].iter().zip(&b[..len]).map(|(a, b)| a * b).sum();
            assert_eq!(sum_of([&a[..len], &b[..len]], |[a, b]| a * b), plain, "{len}");
            let most = side_by_side([&b[..len]], 0.0, |most, [b]| b.max(most)).into_iter().fold(0.0, f64::max);
            assert_eq!(most, (len * len) as f64);
        }
    }

    /// Sizes around multiples of eight; sums of small integers are exact in any order.
    #[test]
    fn traces_and_lengths_are_those_of_the_products() {
        for d in [1, 2, 7, 8, 9, 21] {
            let number = |i: usize, j: usize| ((3 * i + 5 * j + i * j) % 7) as f64 - 3.0;
            let u = Array2::from_shape_fn((d, d), |(i, j)| if i <= j { number(i, j) } else { 0.0 });
            let s = Array2::from_shape_fn((d, d), |(i, j)| number(i.min(j), i.max(j)));
            assert_eq!(trace_of_product(s.view(), u.view()), (s.dot(&u) * &u).sum(), "{d}");
            let x = ndarray::Array1::from_shape_fn(d, |i| number(i, 2));
            let product = u.t().dot(&x);
            assert_eq!(squared_length(u.view(), x.as_slice().unwrap()), product.dot(&product), "{d}");
        }
    }

    /// Also for products beyond the range of float64.
    #[test]
    fn the_logarithm_of_a_product_is_the_sum_of_logarithms() {
        for len in [0, 1, 15, 16, 600, 1500] {
            let numbers: Vec<f64> = (0..len).map(|i| 1e200 * f64::from(i + 1).powi(-9)).collect();
            let mut product = LogProduct::default();
            product.multiply_all(&numbers);
            let sum: f64 = numbers.iter().map(|v| v.log2()).sum();
            // Each logarithm of the sum is rounded.
            assert!((product.log2() - sum).abs() <= 1e-14 * sum, "{len}");
        }
    }

    #[test]
    fn the_failing_pivot_is_named() {
        // Feature 2 is the sum of features 0 and 1; feature 3 is independent.
        let s = array![[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 2.0, 0.0], [0.0, 0.0, 0.0, 1.0]];
        assert_eq!(precision_cholesky(s.view()).unwrap_err(), 2);
        assert_eq!(precision_cholesky(array![[0.0]].view()).unwrap_err(), 0);
        assert_eq!(precision_cholesky(array![[f64::NAN]].view()).unwrap_err(), 0);
        assert_eq!(precision_cholesky(array![[1.0, 0.0], [0.0, -1.0]].view()).unwrap_err(), 1);
    }
}
