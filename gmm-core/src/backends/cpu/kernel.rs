//! The log-sum-exp kernels: a group of registers of samples at a time against all components.
//!
//! Throughout, `T` is the element type, `S` the instruction set, and `REGISTERS` the number of
//! registers of samples in a group. Everything is inlined into a function that is compiled for `S`:
//! [`evaluate_group`] into one of its own, which all visitors share, so that the compiler makes it
//! once and not once for each visitor.
use super::buffer::{Buffer, buffer};
use super::exponents::{AroundMean, GROUP, around_mean, diagonal, multiply, subtract_rows};
use super::leading;
use super::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::reproducible::Functions;
use crate::simd::isa::vectorize;
use crate::simd::lane::{elements, elements_mut, lanes};
use pulp::{Simd, WithSimd, bytemuck};

/// Samples, and the parameters of the mixture that is evaluated over them.
pub(crate) struct Chunk<'a, T> {
    /// The samples' registers (⌈n/L⌉, D, L), where L is the number of elements in a register;
    /// missing values are NaN.
    pub x: &'a [T],
    /// The number of samples; the last register may hold fewer than L, and copies of the last one.
    pub n: usize,
    pub parameters: &'a DeviceParameters<T>,
    /// The rows of the matrices after which components far from a sample are left out: see
    /// [`leading_rows`].
    ///
    /// [`leading_rows`]: super::leading::leading_rows
    pub leading: Option<usize>,
    pub scratch: &'a mut Scratch<T>,
}

/// Memory of the evaluation of a chunk, for one after the other: memory that comes and goes with
/// each of them would be given back to the system each time.
pub(crate) struct Scratch<T> {
    /// For one group: exponents and terms (K,) and, for matrices, their product with the samples
    /// (D,).
    group: Buffer<T>,
    leading: leading::Room<T>,
}

impl<T: Real> Scratch<T> {
    pub fn new(n_components: usize, n_features: usize) -> Self {
        let widest = 64 / size_of::<T>();
        Self { group: buffer((2 * n_components + n_features) * GROUP * widest), leading: leading::Room::default() }
    }
}

/// A group of samples, evaluated: log₂ Σₖ wₖ·2^qₖ = log₂ `sum` + `shift` for each of them.
pub(super) struct Group<'a, R, const REGISTERS: usize> {
    /// Number of the first sample.
    pub first: usize,
    /// The samples (REGISTERS, D).
    pub x: &'a [R],
    /// wₖ·2^(qₖ − shift) (K,), if the visitor asks for them.
    pub terms: &'a mut [[R; REGISTERS]],
    pub sum: [R; REGISTERS],
    /// The largest exponent of each sample, if a sample is so far from all components that the
    /// exponents were taken relative to it; none stands for zero.
    pub shift: Option<[R; REGISTERS]>,
}

/// What is done with each group.
pub(super) trait Visitor<T: Real, S: Simd> {
    /// Whether it needs the terms.
    const TERMS: bool;

    fn visit<const REGISTERS: usize>(&mut self, simd: S, group: Group<'_, T::Reg<S>, REGISTERS>);
}

impl<T: Real> Chunk<'_, T> {
    /// Visits the groups in order: whole ones, then single registers.
    #[inline(always)]
    pub(super) fn for_each_group<S: Simd>(self, simd: S, visitor: &mut impl Visitor<T, S>) {
        let (parameters, d) = (self.parameters, self.parameters.n_features);
        let Scratch { group, leading: room } = self.scratch;
        let exponents = match self.leading {
            Some(leading) => leading::exponents(simd, self.x, self.n, parameters, leading, room),
            None => &[],
        };
        let exponents = T::registers::<S>(exponents);
        let x = T::registers::<S>(self.x);
        let length = (2 * parameters.n_components + d) * GROUP * lanes::<T, S>();
        let scratch = T::registers_mut::<S>(&mut group[..length]);
        let groups = x.chunks_exact(GROUP * d);
        let rest = groups.remainder();
        let mut first = 0;
        for x in groups {
            visit_group::<T, S, _, GROUP>(simd, first, x, exponents, parameters, scratch, visitor);
            first += GROUP * lanes::<T, S>();
        }
        for x in rest.chunks_exact(d) {
            visit_group::<T, S, _, 1>(simd, first, x, exponents, parameters, scratch, visitor);
            first += lanes::<T, S>();
        }
    }
}

/// `exponents` are those of the whole chunk, one row of K for each register of samples; empty, if
/// they are to be computed.
#[inline(always)]
fn visit_group<T: Real, S: Simd, V: Visitor<T, S>, const REGISTERS: usize>(
    simd: S,
    first: usize,
    x: &[T::Reg<S>],
    exponents: &[T::Reg<S>],
    parameters: &DeviceParameters<T>,
    scratch: &mut [T::Reg<S>],
    visitor: &mut V,
) {
    let k = parameters.n_components;
    let (terms, scratch) = scratch.split_at_mut(if V::TERMS { k * REGISTERS } else { 0 });
    let zero = [T::splat(simd, T::from_f64(0.0)); REGISTERS];
    let (mut sum, mut shift) = (zero, zero);
    let exponents = match exponents {
        [] => exponents,
        _ => &exponents[first / lanes::<T, S>() * k..][..REGISTERS * k],
    };
    let shifted = evaluate_group(
        simd,
        Evaluate::<T, REGISTERS> {
            x: elements::<T, S>(x),
            exponents: elements::<T, S>(exponents),
            parameters,
            scratch: elements_mut::<T, S>(scratch),
            terms: elements_mut::<T, S>(terms),
            sum: elements_mut::<T, S>(&mut sum),
            shift: elements_mut::<T, S>(&mut shift),
        },
    );
    let (terms, _) = terms.as_chunks_mut::<REGISTERS>();
    visitor.visit(simd, Group { first, x, terms, sum, shift: shifted.then_some(shift) });
}

/// Runs `evaluate` in a function that is compiled for `S`, and that is not inlined here.
#[inline(never)]
fn evaluate_group<T: Real, S: Simd, const REGISTERS: usize>(simd: S, evaluate: Evaluate<'_, T, REGISTERS>) -> bool {
    vectorize(simd, evaluate)
}

/// The evaluation of one group, whose registers are passed as their elements: [`Group`] explains
/// its parts.
struct Evaluate<'a, T, const REGISTERS: usize> {
    x: &'a [T],
    /// The exponents (REGISTERS, K), if they are known already; otherwise empty.
    exponents: &'a [T],
    parameters: &'a DeviceParameters<T>,
    /// Room for the exponents (K,) and for the product with a matrix (D,).
    scratch: &'a mut [T],
    /// Empty, if the terms are not needed.
    terms: &'a mut [T],
    sum: &'a mut [T],
    shift: &'a mut [T],
}

impl<T: Real, const REGISTERS: usize> WithSimd for Evaluate<'_, T, REGISTERS> {
    /// Whether `shift` was used.
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let (parameters, x) = (self.parameters, T::registers::<S>(self.x));
        let (k, d) = (parameters.n_components, parameters.n_features);
        let (q, scratch) = T::registers_mut::<S>(self.scratch).split_at_mut(k * REGISTERS);
        let (q, _) = q.as_chunks_mut::<REGISTERS>();
        let (terms, _) = T::registers_mut::<S>(self.terms).as_chunks_mut::<REGISTERS>();
        let known = T::registers::<S>(self.exponents);
        match &parameters.matrices {
            _ if !known.is_empty() => {
                for (c, q) in q.iter_mut().enumerate() {
                    for (g, q) in q.iter_mut().enumerate() {
                        *q = known[g * k + c];
                    }
                }
            }
            _ if parameters.around_means => {
                let (x, scratch) = (elements::<T, S>(x), elements_mut::<T, S>(&mut scratch[..REGISTERS * d]));
                for (c, q) in q.iter_mut().enumerate() {
                    let q = elements_mut::<T, S>(q);
                    around_mean(simd, AroundMean::<T, REGISTERS> { x, parameters, c, differences: &mut *scratch, q });
                }
            }
            Matrices::Diagonal if parameters.gaps.is_some() => {
                diagonal::<T, S, REGISTERS, true>(simd, x, parameters, q);
            }
            Matrices::Diagonal => diagonal::<T, S, REGISTERS, false>(simd, x, parameters, q),
            Matrices::Each(_) => {
                let t = &mut scratch[..REGISTERS * d];
                for (c, q) in q.iter_mut().enumerate() {
                    *q = [T::splat(simd, parameters.seed[c]); REGISTERS];
                    subtract_rows(simd, x, parameters, c, 0..d, t, q);
                }
            }
            Matrices::Shared(matrix) => {
                let y = &mut scratch[..REGISTERS * d];
                multiply::<T, S, REGISTERS>(simd, matrix, x, y);
                diagonal::<T, S, REGISTERS, false>(simd, y, parameters, q);
            }
        }
        let (sum, shift) = log_sum(simd, q, &parameters.weight, terms);
        T::registers_mut::<S>(self.sum).copy_from_slice(&sum);
        if let Some(shift) = shift {
            T::registers_mut::<S>(self.shift).copy_from_slice(&shift);
        }
        shift.is_some()
    }
}

/// Whether a sample whose largest exponent is this one is infinitely far from every component: the
/// exponents were raised to [`DEAD`](crate::data::float::Float::DEAD), of which half is far below
/// those of any other sample.
#[inline(always)]
pub(super) fn is_unreachable<T: Real>(exponent: f64) -> bool {
    exponent < T::DEAD / 2.0
}

/// Σₖ wₖ·2^qₖ, and the terms if there is room for them. Nothing overflows, because wₖ ≤ 1 and qₖ is
/// at most a rounding error above zero. If all terms of a sample are tiny, the sums are formed
/// again relative to the largest exponents.
#[inline(always)]
#[allow(clippy::type_complexity)]
fn log_sum<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    q: &[[T::Reg<S>; REGISTERS]],
    weight: &[T],
    terms: &mut [[T::Reg<S>; REGISTERS]],
) -> ([T::Reg<S>; REGISTERS], Option<[T::Reg<S>; REGISTERS]>) {
    let zero = T::splat(simd, T::from_f64(0.0));
    let sum = weighted_sum(simd, q, weight, [zero; REGISTERS], terms);
    let mut least = sum[0];
    for &sum in &sum[1..] {
        least = T::min(simd, least, sum);
    }
    if !T::any_below(simd, least, T::FAR) {
        return (sum, None);
    }
    let mut shift = q[0];
    for q in q {
        for i in 0..REGISTERS {
            shift[i] = T::max(simd, shift[i], q[i]);
        }
    }
    (weighted_sum(simd, q, weight, shift, terms), Some(shift))
}

/// Σₖ wₖ·2^(qₖ − shift)
#[inline(always)]
fn weighted_sum<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    q: &[[T::Reg<S>; REGISTERS]],
    weight: &[T],
    shift: [T::Reg<S>; REGISTERS],
    terms: &mut [[T::Reg<S>; REGISTERS]],
) -> [T::Reg<S>; REGISTERS] {
    let mut sum = [T::splat(simd, T::from_f64(0.0)); REGISTERS];
    if terms.is_empty() {
        for (q, &w) in q.iter().zip(weight) {
            let w = T::splat(simd, w);
            for i in 0..REGISTERS {
                sum[i] = T::mul_add(simd, T::exp2(simd, T::sub(simd, q[i], shift[i])), w, sum[i]);
            }
        }
    } else {
        for ((q, &w), terms) in q.iter().zip(weight).zip(terms) {
            let w = T::splat(simd, w);
            for i in 0..REGISTERS {
                let term = T::exp2(simd, T::sub(simd, q[i], shift[i]));
                terms[i] = T::mul(simd, term, w);
                // The sum takes the exact product, so that it has the same bits whether the terms
                // are stored or not.
                sum[i] = T::mul_add(simd, term, w, sum[i]);
            }
        }
    }
    sum
}

/// Total of log₂ p − offset over a chunk.
///
/// This takes no logarithm of each sample: the sums are multiplied up, and their exponents counted
/// as integers.
pub(crate) struct Total<'a, T>(pub Chunk<'a, T>);

/// The product of the sums of all samples, whose logarithm is the total.
pub(super) struct Product<T: Real, S: Simd> {
    mantissas: [T::Reg<S>; GROUP],
    counters: [S::u32s; GROUP],
    /// The number of sums whose exponents the counters hold.
    factors: usize,
    shift: f64,
}

impl<T: Real, S: Simd> Product<T, S> {
    #[inline(always)]
    pub fn new(simd: S) -> Self {
        let one = T::splat(simd, T::from_f64(1.0));
        Self { mantissas: [one; GROUP], counters: [simd.splat_u32s(0); GROUP], factors: 0, shift: 0.0 }
    }

    /// Multiplies the product by the sums of the first `n` samples of a group.
    #[inline(always)]
    pub fn multiply<const REGISTERS: usize>(
        &mut self,
        simd: S,
        mut sum: [T::Reg<S>; REGISTERS],
        shift: Option<[T::Reg<S>; REGISTERS]>,
        n: usize,
    ) {
        let width = REGISTERS * lanes::<T, S>();
        if n < width {
            elements_mut::<T, S>(&mut sum)[n..].fill(T::from_f64(1.0));
        }
        for (i, &sum) in sum.iter().enumerate() {
            let product = T::mul(simd, self.mantissas[i], sum);
            (self.mantissas[i], self.counters[i]) = T::split(simd, product, self.counters[i]);
        }
        self.factors += width;
        if let Some(shift) = shift {
            for &shift in &elements::<T, S>(&shift)[..width.min(n)] {
                let shift: f64 = shift.into();
                self.shift += if is_unreachable::<T>(shift) { f64::NEG_INFINITY } else { shift };
            }
        }
    }

    #[inline(always)]
    pub fn log2(&self) -> f64 {
        // The product of all mantissas is below 2^64, even for the widest registers.
        let mantissa: f64 = elements::<T, S>(&self.mantissas).iter().map(|&v| -> f64 { v.into() }).product();
        let counters: &[u32] = bytemuck::cast_slice(&self.counters);
        let exponent: u64 = counters.iter().skip(T::COUNTER).step_by(T::COUNTERS).map(|&v| u64::from(v)).sum();
        let exponent = exponent as i64 - (self.factors as u64 * T::BIAS) as i64;
        exponent as f64 + mantissa.log_2() + self.shift
    }
}

/// Multiplies up the sums of the first `n` samples of a chunk.
struct Totals<T: Real, S: Simd> {
    n: usize,
    product: Product<T, S>,
}

impl<T: Real, S: Simd> Visitor<T, S> for Totals<T, S> {
    const TERMS: bool = false;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, simd: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        self.product.multiply(simd, group.sum, group.shift, self.n - group.first);
    }
}

impl<T: Real> WithSimd for Total<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let mut totals = Totals::<T, S> { n: self.0.n, product: Product::new(simd) };
        self.0.for_each_group(simd, &mut totals);
        totals.product.log2()
    }
}

/// log₂ p − offset of each sample of a chunk, into `out` (n,); −∞ for one that is infinitely far
/// from every component.
pub(crate) struct PerSample<'a, T> {
    pub chunk: Chunk<'a, T>,
    pub out: &'a mut [f64],
}

/// Writes log₂ `sum` + `shift` to `out`, which may be shorter than the group.
#[inline(always)]
pub(super) fn logarithms<T: Real, S: Simd>(out: &mut [f64], sum: &[T::Reg<S>], shift: Option<&[T::Reg<S>]>) {
    for (out, &v) in out.iter_mut().zip(elements::<T, S>(sum)) {
        let v: f64 = v.into();
        *out = v.log_2();
    }
    if let Some(shift) = shift {
        for (out, &v) in out.iter_mut().zip(elements::<T, S>(shift)) {
            let v: f64 = v.into();
            *out = if is_unreachable::<T>(v) { f64::NEG_INFINITY } else { *out + v };
        }
    }
}

struct Logarithms<'a>(&'a mut [f64]);

impl<T: Real, S: Simd> Visitor<T, S> for Logarithms<'_> {
    const TERMS: bool = false;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, _: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let shift = group.shift.as_ref().map(|v| &v[..]);
        logarithms::<T, S>(&mut self.0[group.first..], &group.sum, shift);
    }
}

impl<T: Real> WithSimd for PerSample<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.chunk.for_each_group(simd, &mut Logarithms(self.out));
    }
}
