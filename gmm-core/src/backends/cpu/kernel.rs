//! The log-sum-exp kernels: a group of registers of samples at a time against all components.
//!
//! Throughout, `T` is the element type, `S` the instruction set, and `REGISTERS` the number of registers of samples in
//! a group. All is inlined into functions compiled for `S`; [`evaluate_group`] is a separate one, so that it is
//! compiled once and not for each visitor.
use super::buffer::{Buffer, buffer};
use super::exponents::{AroundMean, GROUP, around_mean, diagonal, multiply, subtract_rows};
use super::leading;
use super::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::reproducible::Functions;
use crate::simd::isa::vectorize;
use crate::simd::lane::{elements, elements_mut, lanes};
use pulp::{Simd, WithSimd, bytemuck};

/// Samples, and the parameters of a mixture to evaluate over them.
pub(crate) struct Chunk<'a, T> {
    /// The samples' registers (⌈n/L⌉, D, L), with L elements in a register; missing values are NaN.
    pub x: &'a [T],
    /// The number of samples; the last register may be filled up with copies of the last one.
    pub n: usize,
    pub parameters: &'a DeviceParameters<T>,
    /// The matrix rows after which components far from a sample are left out: see [`leading_rows`].
    ///
    /// [`leading_rows`]: super::leading::leading_rows
    pub leading: Option<usize>,
    pub scratch: &'a mut Scratch<T>,
}

/// Memory for the evaluation of a chunk, kept for the next: the system would otherwise take it back each time.
pub(crate) struct Scratch<T> {
    /// For one group: exponents and terms (K,), and with matrices their product with the samples (D,).
    group: Buffer<T>,
    leading: leading::Room<T>,
}

impl<T: Real> Scratch<T> {
    pub fn new(n_components: usize, n_features: usize) -> Self {
        let widest = 64 / size_of::<T>();
        Self { group: buffer((2 * n_components + n_features) * GROUP * widest), leading: leading::Room::default() }
    }
}

/// An evaluated group of samples: log₂ Σₖ wₖ·2^qₖ = log₂ `sum` + `shift` for each sample.
pub(super) struct Group<'a, R, const REGISTERS: usize> {
    /// The number of the first sample.
    pub first: usize,
    /// The samples (REGISTERS, D).
    pub x: &'a [R],
    /// wₖ·2^(qₖ − shift) (K,), if the visitor needs them.
    pub terms: &'a mut [[R; REGISTERS]],
    pub sum: [R; REGISTERS],
    /// The largest exponent of each sample, if one is so far away that exponents are relative to it; `None` means zero.
    pub shift: Option<[R; REGISTERS]>,
}

pub(super) trait Visitor<T: Real, S: Simd> {
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

/// `exponents` holds a row of K for each register of samples of the chunk; if empty, they are computed.
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

/// Runs `evaluate` compiled for `S`, without inlining it here.
#[inline(never)]
fn evaluate_group<T: Real, S: Simd, const REGISTERS: usize>(simd: S, evaluate: Evaluate<'_, T, REGISTERS>) -> bool {
    vectorize(simd, evaluate)
}

/// The arguments of [`evaluate_group`], with registers as their elements; see [`Group`].
struct Evaluate<'a, T, const REGISTERS: usize> {
    x: &'a [T],
    /// The exponents (REGISTERS, K), or empty if not yet known.
    exponents: &'a [T],
    parameters: &'a DeviceParameters<T>,
    /// Room for the exponents (K,) and the product with a matrix (D,).
    scratch: &'a mut [T],
    /// Room for the terms; empty if not needed.
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

/// Whether a sample with this largest exponent is infinitely far from every component: exponents are at least
/// [`DEAD`](crate::data::float::Float::DEAD), and half of it is far below those of any other sample.
#[inline(always)]
pub(super) fn is_unreachable<T: Real>(exponent: f64) -> bool {
    exponent < T::DEAD / 2.0
}

/// Returns Σₖ wₖ·2^qₖ, and stores the terms if there is room. Nothing overflows, because wₖ ≤ 1 and qₖ is at most a
/// rounding error above zero. If all terms of a sample are tiny, sums are recomputed relative to the largest exponents.
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
                // The sum takes the exact product, so its bits do not depend on storing the terms.
                sum[i] = T::mul_add(simd, term, w, sum[i]);
            }
        }
    }
    sum
}

/// The total of log₂ p − offset over a chunk, without a logarithm per sample: the sums are multiplied, and their
/// exponents counted as integers.
pub(crate) struct Total<'a, T>(pub Chunk<'a, T>);

/// The product of the sums of all samples; its logarithm is the total.
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

/// Writes log₂ p − offset of a chunk's samples into `out` (n,); −∞ for a sample infinitely far from every component.
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
