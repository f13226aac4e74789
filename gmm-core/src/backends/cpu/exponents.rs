//! The exponents qₖ of a group of samples under each covariance type; the kernels form their log-sum-exp.
//!
//! Throughout, `T` is the element type, `S` the instruction set, and `REGISTERS` the number of registers of samples in
//! a group. Functions that are not inlined here are compiled for `S` separately.
use super::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::model::linalg::triangle;
use crate::simd::isa::vectorize;
use crate::simd::lane::{elements, elements_mut};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Registers of samples that pass through the components together: enough chains to hide the latency of fused
/// multiply-adds, and each parameter is broadcast once for all.
pub(crate) const GROUP: usize = 4;

/// Features of a group processed before the next component or the first row of a matrix: they stay in the first-level
/// cache. A multiple of eight, so that rows taken together end in one block.
const FEATURES: usize = 64;

/// Computes qₖ = seedₖ − Σⱼ (sₖⱼ·xⱼ + mₖⱼ)² for the `REGISTERS` registers of samples in `x` (REGISTERS, D); with
/// missing values (`GAPS`) seedₖ + Σⱼ (cₖⱼ − (sₖⱼ·xⱼ + mₖⱼ)²) over the observed columns.
#[inline(always)]
pub(super) fn diagonal<T: Real, S: Simd, const REGISTERS: usize, const GAPS: bool>(
    simd: S,
    x: &[T::Reg<S>],
    parameters: &DeviceParameters<T>,
    q: &mut [[T::Reg<S>; REGISTERS]],
) {
    let d = parameters.n_features;
    let mut start = 0;
    while start < d {
        let length = (d - start).min(FEATURES);
        let mut rows = [&x[..0]; REGISTERS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &x[i * d + start..][..length];
        }
        // The product with a matrix is already in the cache.
        let is_resident = !parameters.has_triangles();
        // Two components at once: twice as many chains hide the latency.
        let (pairs, last) = q.as_chunks_mut::<2>();
        let n_pairs = pairs.len();
        let reads_ahead = is_resident && d <= FEATURES / 4;
        for (pair, q) in pairs.iter_mut().enumerate() {
            let rows_of = |pairs: usize| if reads_ahead { pairs * REGISTERS / n_pairs } else { 0 };
            let ahead = ReadAhead { rows: rows_of(pair)..rows_of(pair + 1), distance: AHEAD * x.len() };
            subtract_squares::<T, S, REGISTERS, 2, GAPS>(simd, &rows, parameters, 2 * pair, start, ahead, q);
        }
        if let [q] = last {
            let (c, q) = (2 * pairs.len(), std::array::from_mut(q));
            let none = ReadAhead { rows: 0..0, distance: 0 };
            subtract_squares::<T, S, REGISTERS, 1, GAPS>(simd, &rows, parameters, c, start, none, q);
        }
        start += length;
    }
}

/// Runs `around_mean` compiled for `S`, without inlining it here.
#[inline(never)]
pub(super) fn around_mean<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    around_mean: AroundMean<'_, T, REGISTERS>,
) {
    vectorize(simd, around_mean);
}

/// The exponents `q` of component `c` for a group, from its differences to the component's mean, for any type of
/// matrix, with or without missing values.
pub(super) struct AroundMean<'a, T, const REGISTERS: usize> {
    pub x: &'a [T],
    pub parameters: &'a DeviceParameters<T>,
    pub c: usize,
    /// Room for the differences (REGISTERS, D).
    pub differences: &'a mut [T],
    pub q: &'a mut [T],
}

impl<T: Real, const REGISTERS: usize> WithSimd for AroundMean<'_, T, REGISTERS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { parameters, c, .. } = self;
        let d = parameters.n_features;
        let (x, y) = (T::registers::<S>(self.x), T::registers_mut::<S>(self.differences));
        let all = T::registers_mut::<S>(self.q);
        let mut q = [T::splat(simd, parameters.seed[c]); REGISTERS];
        let means = &parameters.shift[c * d..][..d];
        for g in 0..REGISTERS {
            for (j, &mean) in means.iter().enumerate() {
                y[g * d + j] = T::sub(simd, x[g * d + j], T::splat(simd, mean));
            }
        }
        if parameters.has_triangles() {
            let matrix = parameters.triangle(c);
            let mut i = 0;
            while i < d {
                let zero = [[T::splat(simd, T::from_f64(0.0)); REGISTERS]; 2];
                let entries = match d - i {
                    1 => {
                        let [a] = rows::<T, S, 1, REGISTERS>(simd, matrix, i, y, d, 0..d, [zero[0]]);
                        [a, zero[1]]
                    }
                    _ => rows::<T, S, 2, REGISTERS>(simd, matrix, i, y, d, 0..d, zero),
                };
                for entry in &entries {
                    for g in 0..REGISTERS {
                        q[g] = T::sub_mul(simd, entry[g], entry[g], q[g]);
                    }
                }
                i += 2;
            }
        } else {
            let scale = &parameters.scale[c * d..][..d];
            for g in 0..REGISTERS {
                for (j, &scale) in scale.iter().enumerate() {
                    let t = T::mul(simd, y[g * d + j], T::splat(simd, scale));
                    q[g] = match &parameters.gaps {
                        None => T::sub_mul(simd, t, t, q[g]),
                        Some(gaps) => {
                            let observed = T::is_number(simd, x[g * d + j]);
                            let constant = T::splat(simd, gaps.constants[c * d + j]);
                            T::add(simd, q[g], T::only(simd, observed, T::sub_mul(simd, t, t, constant)))
                        }
                    };
                }
            }
        }
        // The difference of two infinite exponents would be NaN.
        for g in 0..REGISTERS {
            all[g] = T::max(simd, q[g], T::splat(simd, T::from_f64(T::DEAD)));
        }
    }
}

/// The number of groups that reading runs ahead.
const AHEAD: usize = 12;

/// The rows of a group to prefetch while a component is processed, and the distance in registers.
struct ReadAhead {
    rows: Range<usize>,
    distance: usize,
}

/// Prefetches the register `distance` registers ahead. The processor reads ahead along one row by itself, but not well
/// along the rows of a group at once. One prefetch between some products: more at a time would wait for each other.
#[inline(always)]
fn prefetch<R>(register: &R, distance: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let behind = std::ptr::from_ref(register).wrapping_add(distance).cast::<i8>();
        // SAFETY: a hint, which reads nothing, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(behind) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (register, distance);
}

/// Subtracts the squares of the features from `start` on, whose registers are `rows`, from the exponents of the
/// components from `c` on. With missing values (`GAPS`) adds the columns' constants, both only for observed values.
/// Before the first feature, sets the exponents to the seeds. Prefetches `ahead` meanwhile.
#[inline(always)]
fn subtract_squares<T: Real, S: Simd, const REGISTERS: usize, const COMPONENTS: usize, const GAPS: bool>(
    simd: S,
    rows: &[&[T::Reg<S>]; REGISTERS],
    parameters: &DeviceParameters<T>,
    c: usize,
    start: usize,
    ahead: ReadAhead,
    q: &mut [[T::Reg<S>; REGISTERS]; COMPONENTS],
) {
    let (d, length) = (parameters.n_features, rows[0].len());
    let none = [&parameters.scale[..0]; COMPONENTS];
    let (mut scale, mut shift, mut constants) = (none, none, none);
    let mut sum = *q;
    for k in 0..COMPONENTS {
        scale[k] = &parameters.scale[(c + k) * d + start..][..length];
        shift[k] = &parameters.shift[(c + k) * d + start..][..length];
        if let Some(gaps) = &parameters.gaps
            && GAPS
        {
            constants[k] = &gaps.constants[(c + k) * d + start..][..length];
        }
        if start == 0 {
            sum[k] = [T::splat(simd, parameters.seed[c + k]); REGISTERS];
        }
    }
    let mut samples = *rows;
    for samples in &mut samples {
        *samples = &samples[..length];
    }
    for j in 0..length {
        for row in ahead.rows.clone() {
            prefetch(&samples[row][j], ahead.distance);
        }
        let mut observed = [T::is_number(simd, samples[0][j]); REGISTERS];
        for i in 1..REGISTERS {
            observed[i] = T::is_number(simd, samples[i][j]);
        }
        for k in 0..COMPONENTS {
            let (s, m) = (T::splat(simd, scale[k][j]), T::splat(simd, shift[k][j]));
            for i in 0..REGISTERS {
                let t = T::mul_add(simd, samples[i][j], s, m);
                sum[k][i] = if GAPS {
                    let constant = T::splat(simd, constants[k][j]);
                    let term = T::only(simd, observed[i], T::sub_mul(simd, t, t, constant));
                    T::add(simd, sum[k][i], term)
                } else {
                    T::sub_mul(simd, t, t, sum[k][i])
                };
            }
        }
    }
    *q = sum;
}

/// Subtracts the squares of the entries `range` of Aₖ·x + mₖ from `q`, for component `c`. `range` begins at a multiple
/// of four; `t` is room for (D, REGISTERS). Compiled for `S`, without inlining it here.
#[inline(never)]
pub(super) fn subtract_rows<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    x: &[T::Reg<S>],
    parameters: &DeviceParameters<T>,
    c: usize,
    range: Range<usize>,
    t: &mut [T::Reg<S>],
    q: &mut [T::Reg<S>; REGISTERS],
) {
    let (x, t, q) = (elements::<T, S>(x), elements_mut::<T, S>(t), elements_mut::<T, S>(q));
    vectorize(simd, SubtractRows::<T, REGISTERS> { x, parameters, c, range, t, q });
}

/// The arguments of [`subtract_rows`], with registers as their elements.
struct SubtractRows<'a, T, const REGISTERS: usize> {
    x: &'a [T],
    parameters: &'a DeviceParameters<T>,
    c: usize,
    range: Range<usize>,
    t: &'a mut [T],
    q: &'a mut [T],
}

impl<T: Real, const REGISTERS: usize> WithSimd for SubtractRows<'_, T, REGISTERS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { parameters, c, range, .. } = self;
        let (d, x) = (parameters.n_features, T::registers::<S>(self.x));
        let Matrices::Each(matrices) = &parameters.matrices else { return };
        let map = (&matrices[c * triangle(d)..][..triangle(d)], &parameters.shift[c * d..][..d]);
        let (t, _) = T::registers_mut::<S>(self.t).as_chunks_mut::<REGISTERS>();
        let all = T::registers_mut::<S>(self.q);
        let mut q = [T::splat(simd, T::from_f64(0.0)); REGISTERS];
        q.copy_from_slice(all);
        for start in (0..range.end).step_by(FEATURES) {
            let columns = start..(start + FEATURES).min(range.end);
            let mut i = range.start.max(start);
            // A single register of samples needs more rows for enough sums to hide the latency.
            while REGISTERS == 1 && S::REGISTER_COUNT >= 32 && i % 8 == 0 && i + 8 <= range.end {
                subtract_some::<T, S, 8, REGISTERS>(simd, x, map, i, columns.clone(), t, &mut q);
                i += 8;
            }
            // Four rows at once need more registers than some instruction sets have.
            while S::REGISTER_COUNT >= 32 && i + 4 <= range.end {
                subtract_some::<T, S, 4, REGISTERS>(simd, x, map, i, columns.clone(), t, &mut q);
                i += 4;
            }
            while i + 2 <= range.end {
                subtract_some::<T, S, 2, REGISTERS>(simd, x, map, i, columns.clone(), t, &mut q);
                i += 2;
            }
            if i < range.end {
                subtract_some::<T, S, 1, REGISTERS>(simd, x, map, i, columns, t, &mut q);
            }
        }
        all.copy_from_slice(&q);
    }
}

/// Adds some columns of the rows `i..i + ROWS` to the entries `t` of A·x + m, for `map` = (A, m). For the rows' last
/// columns, subtracts the squares from `q` instead.
#[inline(always)]
fn subtract_some<T: Real, S: Simd, const ROWS: usize, const REGISTERS: usize>(
    simd: S,
    x: &[T::Reg<S>],
    map: (&[T], &[T]),
    i: usize,
    columns: Range<usize>,
    t: &mut [[T::Reg<S>; REGISTERS]],
    q: &mut [T::Reg<S>; REGISTERS],
) {
    let (matrix, shift) = map;
    let mut entries = [[T::splat(simd, T::from_f64(0.0)); REGISTERS]; ROWS];
    for r in 0..ROWS {
        entries[r] = if columns.start > 0 { t[i + r] } else { [T::splat(simd, shift[i + r]); REGISTERS] };
    }
    let last = i < columns.end;
    let entries = rows::<T, S, ROWS, REGISTERS>(simd, matrix, i, x, shift.len(), columns, entries);
    if last {
        for entry in &entries {
            for g in 0..REGISTERS {
                q[g] = T::sub_mul(simd, entry[g], entry[g], q[g]);
            }
        }
    } else {
        t[i..i + ROWS].copy_from_slice(&entries);
    }
}

/// Computes y = A·x, both (REGISTERS, D).
#[inline(always)]
pub(super) fn multiply<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    matrix: &[T],
    x: &[T::Reg<S>],
    y: &mut [T::Reg<S>],
) {
    let d = x.len() / REGISTERS;
    let zero = [T::splat(simd, T::from_f64(0.0)); REGISTERS];
    let mut i = 0;
    while i + 1 < d {
        let [a, b] = rows::<T, S, 2, REGISTERS>(simd, matrix, i, x, d, 0..d, [zero; 2]);
        for g in 0..REGISTERS {
            (y[g * d + i], y[g * d + i + 1]) = (a[g], b[g]);
        }
        i += 2;
    }
    if i < d {
        let [a] = rows::<T, S, 1, REGISTERS>(simd, matrix, i, x, d, 0..d, [zero]);
        for g in 0..REGISTERS {
            y[g * d + i] = a[g];
        }
    }
}

/// Adds rows `i`..`i + ROWS` of A·x over some columns to `sum`; the columns end before the first row does, or at or
/// after the end of the last. Several rows at a time load each sample's register once.
#[inline(always)]
fn rows<T: Real, S: Simd, const ROWS: usize, const REGISTERS: usize>(
    simd: S,
    matrix: &[T],
    i: usize,
    x: &[T::Reg<S>],
    d: usize,
    columns: Range<usize>,
    mut sum: [[T::Reg<S>; REGISTERS]; ROWS],
) -> [[T::Reg<S>; REGISTERS]; ROWS] {
    let common = columns.end.min(i + 1);
    let length = common - columns.start;
    let mut a = [&matrix[..0]; ROWS];
    for r in 0..ROWS {
        a[r] = &matrix[triangle(i + r) + columns.start..][..length];
    }
    let mut samples = [&x[..0]; REGISTERS];
    for (g, samples) in samples.iter_mut().enumerate() {
        *samples = &x[g * d + columns.start..][..length];
    }
    for j in 0..length {
        for r in 0..ROWS {
            let a = T::splat(simd, a[r][j]);
            for g in 0..REGISTERS {
                sum[r][g] = T::mul_add(simd, samples[g][j], a, sum[r][g]);
            }
        }
    }
    // Columns of the later rows beyond the first row's end: all or none.
    if columns.end > common {
        let mut samples = [&x[..0]; REGISTERS];
        for (g, samples) in samples.iter_mut().enumerate() {
            *samples = &x[g * d + common..][..ROWS - 1];
        }
        for r in 1..ROWS {
            let a = &matrix[triangle(i + r) + common..][..r];
            for j in 0..r {
                let a = T::splat(simd, a[j]);
                for g in 0..REGISTERS {
                    sum[r][g] = T::mul_add(simd, samples[g][j], a, sum[r][g]);
                }
            }
        }
    }
    sum
}
