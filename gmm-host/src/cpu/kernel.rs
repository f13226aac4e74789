//! The log-sum-exp kernels: a group of registers of samples at a time against all components.
use super::real::{Real, elements, elements_mut, lanes};
use crate::packed::Packed;
use aligned_vec::{AVec, ConstAlign};
use pulp::{Simd, WithSimd, bytemuck};

/// Registers of samples that go through the components together: enough chains to hide the latency of the fused
/// multiply-adds, and each parameter is broadcast once for all of them.
pub(crate) const GROUP: usize = 4;

/// Features of a group that are worked through before the next component: they stay in the first-level cache.
const FEATURES: usize = 64;

/// Samples, and what is evaluated over them.
pub(crate) struct Chunk<'a, T> {
    /// (⌈n/L⌉, D, L).
    pub x: &'a [T],
    /// Samples that count; the rest of the last register is filling.
    pub n: usize,
    pub packed: &'a Packed<T>,
    /// qₖ of a group, see [`scratch`].
    pub scratch: &'a mut [T],
}

/// Room for the exponents of one group.
pub(crate) fn scratch<T: Real>(n_components: usize) -> AVec<T, ConstAlign<64>> {
    let widest = 64 / size_of::<T>();
    AVec::from_iter(64, std::iter::repeat_n(T::from_f64(0.0), n_components * GROUP * widest))
}

/// What a group of registers sums to: log₂ Σₖ wₖ·2^qₖ = log₂ `sum` + `shift`.
struct Sums<R, const G: usize> {
    sum: [R; G],
    /// Set where a sample is so far that the maximum had to be taken out.
    shift: Option<[R; G]>,
}

/// qₖ = seedₖ − Σⱼ (sₖⱼ·xⱼ + mₖⱼ)² for the `G` registers of samples in `x` (G, D).
#[inline(always)]
fn exponents<T: Real, S: Simd, const G: usize>(simd: S, x: &[T::Reg<S>], packed: &Packed<T>, q: &mut [[T::Reg<S>; G]]) {
    let d = packed.n_features;
    let mut start = 0;
    while start < d {
        let length = (d - start).min(FEATURES);
        let mut rows = [&x[..0]; G];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = &x[i * d + start..][..length];
        }
        for (k, q) in q.iter_mut().enumerate() {
            let scale = &packed.scale[k * d + start..][..length];
            let shift = &packed.shift[k * d + start..][..length];
            let mut sum = if start == 0 { [T::splat(simd, packed.seed[k]); G] } else { *q };
            for (j, (&s, &m)) in scale.iter().zip(shift).enumerate() {
                let (s, m) = (T::splat(simd, s), T::splat(simd, m));
                for i in 0..G {
                    let t = T::mul_add(simd, rows[i][j], s, m);
                    sum[i] = T::sub_mul(simd, t, t, sum[i]);
                }
            }
            *q = sum;
        }
        start += length;
    }
}

/// Σₖ wₖ·2^qₖ. Nothing overflows, because wₖ ≤ 1 and qₖ is not above zero but for rounding; where all terms are tiny
/// the sum is formed again around its largest exponent.
#[inline(always)]
fn log_sum<T: Real, S: Simd, const G: usize>(simd: S, q: &[[T::Reg<S>; G]], weight: &[T]) -> Sums<T::Reg<S>, G> {
    let mut sum = [T::splat(simd, T::from_f64(0.0)); G];
    for (q, &w) in q.iter().zip(weight) {
        let w = T::splat(simd, w);
        for i in 0..G {
            sum[i] = T::mul_add(simd, T::exp2(simd, q[i]), w, sum[i]);
        }
    }
    let mut least = sum[0];
    for &sum in &sum[1..] {
        least = T::min(simd, least, sum);
    }
    if !T::any_below(simd, least, T::FAR) {
        return Sums { sum, shift: None };
    }
    let mut shift = q[0];
    for q in q {
        for i in 0..G {
            shift[i] = T::max(simd, shift[i], q[i]);
        }
    }
    sum = [T::splat(simd, T::from_f64(0.0)); G];
    for (q, &w) in q.iter().zip(weight) {
        for i in 0..G {
            let term = T::exp2(simd, T::sub(simd, q[i], shift[i]));
            sum[i] = T::mul_add(simd, term, T::splat(simd, w), sum[i]);
        }
    }
    Sums { sum, shift: Some(shift) }
}

/// What is done with the sums of each group of registers.
trait Visitor<T: Real, S: Simd> {
    /// `first` is the group's first sample; `sum` and `shift` as in [`Sums`].
    fn visit(&mut self, simd: S, first: usize, sum: &mut [T::Reg<S>], shift: Option<&[T::Reg<S>]>);
}

impl<T: Real> Chunk<'_, T> {
    /// Visits the groups in order.
    #[inline(always)]
    fn for_each_group<S: Simd>(self, simd: S, visitor: &mut impl Visitor<T, S>) {
        let (k, d) = (self.packed.n_components, self.packed.n_features);
        let x = T::registers::<S>(self.x);
        let q = T::registers_mut::<S>(&mut self.scratch[..k * GROUP * lanes::<T, S>()]);
        let groups = x.chunks_exact(GROUP * d);
        let rest = groups.remainder();
        let mut first = 0;
        for x in groups {
            let (q, _) = q.as_chunks_mut::<GROUP>();
            exponents(simd, x, self.packed, q);
            let mut sums = log_sum(simd, q, &self.packed.weight);
            visitor.visit(simd, first, &mut sums.sum, sums.shift.as_ref().map(|v| &v[..]));
            first += GROUP * lanes::<T, S>();
        }
        for x in rest.chunks_exact(d) {
            let (q, _) = q[..k].as_chunks_mut::<1>();
            exponents(simd, x, self.packed, q);
            let mut sums = log_sum(simd, q, &self.packed.weight);
            visitor.visit(simd, first, &mut sums.sum, sums.shift.as_ref().map(|v| &v[..]));
            first += lanes::<T, S>();
        }
    }
}

/// Total of log₂ p − offset over a chunk.
///
/// No logarithm per sample: the sums are multiplied up, the exponents counted as integers.
pub(crate) struct Total<'a, T>(pub Chunk<'a, T>);

struct Product<T: Real, S: Simd> {
    /// Samples that count.
    n: usize,
    mantissas: [T::Reg<S>; GROUP],
    counters: [S::u32s; GROUP],
    /// How many sums each counter holds the exponents of, in all.
    factors: usize,
    shift: f64,
}

impl<T: Real, S: Simd> Visitor<T, S> for Product<T, S> {
    #[inline(always)]
    fn visit(&mut self, simd: S, first: usize, sum: &mut [T::Reg<S>], shift: Option<&[T::Reg<S>]>) {
        let width = sum.len() * lanes::<T, S>();
        if first + width > self.n {
            elements_mut::<T, S>(sum)[self.n - first..].fill(T::from_f64(1.0));
        }
        for (i, &sum) in sum.iter().enumerate() {
            let product = T::mul(simd, self.mantissas[i], sum);
            (self.mantissas[i], self.counters[i]) = T::split(simd, product, self.counters[i]);
        }
        self.factors += width;
        if let Some(shift) = shift {
            for &shift in &elements::<T, S>(shift)[..width.min(self.n - first)] {
                self.shift += shift.into();
            }
        }
    }
}

impl<T: Real> WithSimd for Total<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let mut product = Product::<T, S> {
            n: self.0.n,
            mantissas: [T::splat(simd, T::from_f64(1.0)); GROUP],
            counters: [simd.splat_u32s(0); GROUP],
            factors: 0,
            shift: 0.0,
        };
        self.0.for_each_group(simd, &mut product);
        // Below 2^64 even from the widest registers.
        let mantissa: f64 = elements::<T, S>(&product.mantissas).iter().map(|&v| -> f64 { v.into() }).product();
        let counters: &[u32] = bytemuck::cast_slice(&product.counters);
        let exponent: u64 = counters.iter().skip(T::COUNTER).step_by(T::COUNTERS).map(|&v| u64::from(v)).sum();
        let exponent = exponent as i64 - (product.factors as u64 * T::BIAS) as i64;
        exponent as f64 + mantissa.log2() + product.shift
    }
}

/// log₂ p − offset of each sample of a chunk, into `out` (n,).
pub(crate) struct PerSample<'a, T> {
    pub chunk: Chunk<'a, T>,
    pub out: &'a mut [f64],
}

struct Logarithms<'a>(&'a mut [f64]);

impl<T: Real, S: Simd> Visitor<T, S> for Logarithms<'_> {
    #[inline(always)]
    fn visit(&mut self, _: S, first: usize, sum: &mut [T::Reg<S>], shift: Option<&[T::Reg<S>]>) {
        for (out, &v) in self.0[first..].iter_mut().zip(elements::<T, S>(sum)) {
            let v: f64 = v.into();
            *out = v.log2();
        }
        if let Some(shift) = shift {
            for (out, &v) in self.0[first..].iter_mut().zip(elements::<T, S>(shift)) {
                *out += v.into();
            }
        }
    }
}

impl<T: Real> WithSimd for PerSample<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.chunk.for_each_group(simd, &mut Logarithms(self.out));
    }
}
