//! The CPU: matrix products by the crate `gemm`, the Gaussian kernel by SIMD instructions chosen at run time; on all
//! threads of rayon, or on the calling thread if there is little to do.
use crate::number::Number;
use gemm::Parallelism;
use gmm_host::simd::{Isa, Lane, Simd, WithSimd, elements, lanes};
use gmm_host::{Interrupt, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use rayon::prelude::*;
use std::f64::consts::LOG2_E;

/// The calling thread does work of fewer operations on single elements: that takes less time than waking other threads.
const SERIAL_WORK: usize = 1 << 18;
/// The multiplications of one call of `gemm`, which cannot be interrupted: a fraction of a second.
const CALL_WORK: usize = 1 << 33;
/// About the elements of the rows a thread takes at a time, which fit into the first-level cache with their results.
const PIECE_ELEMENTS: usize = 1 << 13;
/// The rows and registers of centres of a tile of kernel values: eight sums hide the latency.
const TILE_ROWS: usize = 4;
const TILE_REGISTERS: usize = 2;

/// Computes row i of `vectors` times row j of `matrix`, (N, M) by rows; fastest for contiguous columns of the matrix.
pub fn products<T: Number>(vectors: ArrayView2<'_, T>, matrix: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
    if vectors.nrows() == 1 && matrix.len() > SERIAL_WORK {
        return one_vector(vectors, matrix, out);
    }
    let (rows, m) = ((CALL_WORK / matrix.len()).max(1), matrix.nrows());
    for (vectors, out) in vectors.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows.saturating_mul(m))) {
        Interrupt::current().check()?;
        if let Ok(out) = ArrayViewMut2::from_shape((vectors.nrows(), m), out) {
            multiply(vectors, matrix, out, Parallelism::Rayon(0));
        }
    }
    Ok(())
}

/// Multiplies a vector, for which `gemm` would use one thread: some columns at a time, whatever the number of threads.
fn one_vector<T: Number>(vector: ArrayView2<'_, T>, matrix: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
    let interrupt = Interrupt::current();
    let columns = (SERIAL_WORK / matrix.nrows()).max(1);
    let pieces = vector.axis_chunks_iter(Axis(1), columns).into_par_iter();
    let pieces = pieces.zip(matrix.axis_chunks_iter(Axis(1), columns)).map(|(vector, matrix)| {
        interrupt.check()?;
        let mut part = Array2::default((1, matrix.nrows()));
        multiply(vector, matrix, part.view_mut(), Parallelism::None);
        Ok(part)
    });
    out.fill(T::default());
    for part in pieces.collect::<Result<Vec<_>>>()? {
        out.iter_mut().zip(part).for_each(|(sum, v)| *sum = T::from_f64((*sum).into() + v.into()));
    }
    Ok(())
}

fn multiply<T: Number>(
    vectors: ArrayView2<'_, T>,
    matrix: ArrayView2<'_, T>,
    mut out: ArrayViewMut2<'_, T>,
    threads: Parallelism,
) {
    let ((n, d), m) = (vectors.dim(), matrix.nrows());
    assert!(matrix.ncols() == d && out.dim() == (n, m), "the shapes were checked");
    let (from, by, to) = (vectors.strides(), matrix.strides(), [out.strides()[0], out.strides()[1]]);
    let (zero, one) = (T::from_f64(0.0), T::from_f64(1.0));
    let out = out.as_mut_ptr();
    // SAFETY: three arrays of these shapes and strides; `out` is borrowed mutably, so it overlaps no other. It is not
    // read.
    unsafe {
        gemm::gemm(
            n,
            m,
            d,
            out,
            to[1],
            to[0],
            false,
            vectors.as_ptr(),
            from[1],
            from[0],
            matrix.as_ptr(),
            by[0],
            by[1],
            zero,
            one,
            false,
            false,
            false,
            threads,
        );
    }
}

/// The factor of the exponents: exp(−γs) = 2^(factor · s).
fn factor<T: Number>(gamma: f64) -> T {
    T::from_f64(-gamma * LOG2_E)
}

/// Computes exp(−γ‖aᵢ − bᵢ‖²) of the rows of two arrays of the same shape. Returns false if a distance is infinite or
/// NaN, as for a number that is.
pub fn pairs<T: Number>(gamma: f64, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, out: &mut [T]) -> Result<bool> {
    let (isa, interrupt) = (Isa::best(), Interrupt::current());
    let (rows, serial) = ((PIECE_ELEMENTS / a.ncols()).max(64), a.len() < SERIAL_WORK);
    let piece = |(i, out): (usize, &mut [T])| {
        interrupt.check()?;
        let range = i * rows..i * rows + out.len();
        let (a, b) = (a.slice(s![range.clone(), ..]), b.slice(s![range, ..]));
        // Other memory orders are copied piece by piece.
        let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
        let (Some(a), Some(b)) = (a.as_slice(), b.as_slice()) else { return Ok(false) };
        Ok(isa.run(Pairs { factor: factor(gamma), a, b, out }))
    };
    if serial {
        return out.chunks_mut(rows).enumerate().map(piece).try_fold(true, |all, finite| Ok(all & finite?));
    }
    out.par_chunks_mut(rows).enumerate().map(piece).try_reduce(|| true, |all, finite| Ok(all & finite))
}

struct Pairs<'a, T> {
    factor: T,
    a: &'a [T],
    b: &'a [T],
    out: &'a mut [T],
}

impl<T: Number> WithSimd for Pairs<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let d = self.a.len() / self.out.len();
        for ((out, a), b) in self.out.iter_mut().zip(self.a.chunks_exact(d)).zip(self.b.chunks_exact(d)) {
            let whole = d - d % lanes::<T, S>();
            let (a, a_rest) = a.split_at(whole);
            let (b, b_rest) = b.split_at(whole);
            let t = T::sub(simd, T::partial_load(simd, a_rest), T::partial_load(simd, b_rest));
            let mut sum = T::mul(simd, t, t);
            for (&a, &b) in T::registers::<S>(a).iter().zip(T::registers::<S>(b)) {
                let t = T::sub(simd, a, b);
                sum = T::mul_add(simd, t, t, sum);
            }
            *out = T::sum(simd, sum);
        }
        let finite = self.out.iter().fold(true, |all, v| all & v.is_finite());
        exponentials(simd, self.factor, self.out);
        finite
    }
}

/// Replaces squared distances by 2^(factor · s).
#[inline(always)]
fn exponentials<T: Number, S: Simd>(simd: S, factor: T, out: &mut [T]) {
    let factor = T::splat(simd, factor);
    let (whole, rest) = out.split_at_mut(out.len() - out.len() % lanes::<T, S>());
    for v in T::registers_mut::<S>(whole) {
        *v = T::exp2(simd, T::mul(simd, *v, factor));
    }
    if !rest.is_empty() {
        let v = T::exp2(simd, T::mul(simd, T::partial_load(simd, rest), factor));
        rest.copy_from_slice(&elements::<T, S>(std::slice::from_ref(&v))[..rest.len()]);
    }
}

/// Centres in the layout of [`matrix`], (⌈M/L⌉, D, L) with L elements in a register: a register holds one feature of L
/// centres. The last block is filled up with zeros.
#[derive(Debug, Clone)]
pub struct Blocks<T> {
    isa: Isa,
    lanes: usize,
    count: usize,
    d: usize,
    x: Vec<T>,
}

impl<T: Number> Blocks<T> {
    pub fn new(d: usize) -> Self {
        struct Lanes<T>(std::marker::PhantomData<T>);
        impl<T: Lane> WithSimd for Lanes<T> {
            type Output = usize;
            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                lanes::<T, S>()
            }
        }
        let isa = Isa::best();
        Self { isa, lanes: isa.run(Lanes::<T>(std::marker::PhantomData)), count: 0, d, x: Vec::new() }
    }

    /// Appends centres of D features.
    pub fn push(&mut self, centres: ArrayView2<'_, T>) {
        let block = self.d * self.lanes;
        self.x.resize((self.count + centres.nrows()).div_ceil(self.lanes) * block, T::default());
        for centre in centres.rows() {
            let at = self.count / self.lanes * block + self.count % self.lanes;
            for (place, &v) in self.x[at..].iter_mut().step_by(self.lanes).zip(centre) {
                *place = v;
            }
            self.count += 1;
        }
    }

    /// Computes exp(−γ‖xᵢ − cⱼ‖²) of all rows of `x` with all centres; `out` is (N, M) by rows.
    pub fn matrix(&self, gamma: f64, x: ArrayView2<'_, T>, out: &mut [T]) -> Result<()> {
        let interrupt = Interrupt::current();
        let rows = (PIECE_ELEMENTS / self.d.max(self.count)).max(1).next_multiple_of(TILE_ROWS);
        let piece = |(x, out): (ArrayView2<'_, T>, &mut [T])| {
            interrupt.check()?;
            let x = x.as_standard_layout();
            if let Some(x) = x.as_slice() {
                self.isa.run(Matrix { factor: factor(gamma), centres: self, x, out });
            }
            Ok(())
        };
        let pieces = out.len().saturating_mul(self.d);
        if pieces < SERIAL_WORK {
            return x.axis_chunks_iter(Axis(0), rows).zip(out.chunks_mut(rows * self.count)).try_for_each(piece);
        }
        let x = x.axis_chunks_iter(Axis(0), rows).into_par_iter();
        x.zip(out.par_chunks_mut(rows * self.count)).try_for_each(piece)
    }
}

struct Matrix<'a, T> {
    factor: T,
    centres: &'a Blocks<T>,
    x: &'a [T],
    out: &'a mut [T],
}

impl<T: Number> WithSimd for Matrix<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Blocks { d, count, .. } = *self.centres;
        let blocks = T::registers::<S>(&self.centres.x);
        let factor = T::splat(simd, self.factor);
        let wide = TILE_REGISTERS * lanes::<T, S>();
        for (x, out) in self.x.chunks(TILE_ROWS * d).zip(self.out.chunks_mut(TILE_ROWS * count)) {
            let rows = x.len() / d;
            // A tile of fewer rows repeats the last one and discards it.
            let mut row = [&x[..d]; TILE_ROWS];
            for (r, row) in row.iter_mut().enumerate() {
                *row = &x[r.min(rows - 1) * d..][..d];
            }
            for (tile, blocks) in blocks.chunks(TILE_REGISTERS * d).enumerate() {
                let mut block = [&blocks[..d]; TILE_REGISTERS];
                for (b, block) in block.iter_mut().enumerate() {
                    *block = &blocks[b.min(blocks.len() / d - 1) * d..][..d];
                }
                let mut sums = [[T::splat(simd, T::default()); TILE_REGISTERS]; TILE_ROWS];
                for j in 0..d {
                    for (sums, row) in sums.iter_mut().zip(row) {
                        let x = T::splat(simd, row[j]);
                        for (sum, block) in sums.iter_mut().zip(block) {
                            let t = T::sub(simd, x, block[j]);
                            *sum = T::mul_add(simd, t, t, *sum);
                        }
                    }
                }
                let first = tile * wide;
                for (sums, out) in sums.iter_mut().zip(out.chunks_exact_mut(count)) {
                    for sum in sums.iter_mut() {
                        *sum = T::exp2(simd, T::mul(simd, *sum, factor));
                    }
                    let values: &[T] = elements::<T, S>(sums);
                    let out = &mut out[first..];
                    let kept = wide.min(out.len());
                    out[..kept].copy_from_slice(&values[..kept]);
                }
            }
        }
    }
}
