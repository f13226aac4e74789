//! Labels and responsibilities: the terms of the log-sum-exp, compared or divided by their sum.
use super::exponents::GROUP;
use super::kernel::{Chunk, Group, Visitor, is_unreachable};
use super::real::Real;
use crate::simd::lane::{elements, lanes};
use pulp::{Simd, WithSimd};

/// The most samples of a group: float32 in registers of 512 bits.
const WIDEST: usize = GROUP * 16;

/// The label of a sample infinitely far from every component.
pub(super) const FAR: usize = usize::MAX;

/// Writes the component with the largest term of each sample of a chunk, the first of equals, into `out` (n,); [`FAR`]
/// for a sample infinitely far from every component.
pub(super) struct Labels<'a, T> {
    pub chunk: Chunk<'a, T>,
    pub out: &'a mut [usize],
}

/// Writes the responsibilities of a chunk's samples into `out` (n, K), each row divided by its sum in float64; NaN for
/// a sample infinitely far from every component.
pub(super) struct Responsibilities<'a, T> {
    pub chunk: Chunk<'a, T>,
    pub out: &'a mut [f64],
}

impl<T: Real> WithSimd for Labels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.chunk.for_each_group(simd, &mut Largest(self.out));
    }
}

impl<T: Real> WithSimd for Responsibilities<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.chunk.for_each_group(simd, &mut Shares(self.out));
    }
}

struct Largest<'a>(&'a mut [usize]);

impl<T: Real, S: Simd> Visitor<T, S> for Largest<'_> {
    const TERMS: bool = true;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, _: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let width = REGISTERS * lanes::<T, S>();
        let mut best = [T::from_f64(-1.0); WIDEST];
        let mut labels = [0u32; WIDEST];
        for (c, terms) in group.terms.iter().enumerate() {
            let terms = &elements::<T, S>(terms)[..width];
            for ((best, label), &term) in best[..width].iter_mut().zip(&mut labels[..width]).zip(terms) {
                let larger = term > *best;
                *label = if larger { c as u32 } else { *label };
                *best = if larger { term } else { *best };
            }
        }
        let out = &mut self.0[group.first..];
        for (out, &label) in out.iter_mut().zip(&labels[..width]) {
            *out = label as usize;
        }
        if let Some(shift) = &group.shift {
            for (out, &exponent) in out.iter_mut().zip(elements::<T, S>(shift)) {
                *out = if is_unreachable::<T>(exponent.into()) { FAR } else { *out };
            }
        }
    }
}

struct Shares<'a>(&'a mut [f64]);

impl<T: Real, S: Simd> Visitor<T, S> for Shares<'_> {
    const TERMS: bool = true;

    #[inline(always)]
    fn visit<const REGISTERS: usize>(&mut self, _: S, group: Group<'_, T::Reg<S>, REGISTERS>) {
        let (k, width) = (group.terms.len(), REGISTERS * lanes::<T, S>());
        for (lane, out) in self.0[group.first * k..].chunks_exact_mut(k).take(width).enumerate() {
            let mut sum = 0.0;
            for (out, terms) in out.iter_mut().zip(group.terms.iter()) {
                *out = elements::<T, S>(terms)[lane].into();
                sum += *out;
            }
            let far = group.shift.as_ref().is_some_and(|shift| {
                let exponent: f64 = elements::<T, S>(shift)[lane].into();
                is_unreachable::<T>(exponent)
            });
            let inverse = if far { f64::NAN } else { 1.0 / sum };
            out.iter_mut().for_each(|out| *out *= inverse);
        }
    }
}
