//! The responsibilities of components for the samples of a group.
use super::layout::MAX_GROUP;
use crate::backends::cpu::real::Real;
use crate::simd::lane::elements;
use pulp::Simd;

/// Returns a component's terms times `share`, the samples' weights over their sums of terms; adds them to `count`.
#[inline(always)]
pub(super) fn responsibilities<T: Real, S: Simd, const REGISTERS: usize>(
    simd: S,
    terms: &[T::Reg<S>; REGISTERS],
    share: &[T::Reg<S>; REGISTERS],
    count: &mut T::Reg<S>,
) -> [T::Reg<S>; REGISTERS] {
    let (mut r, mut sum) = (*terms, *count);
    for g in 0..REGISTERS {
        r[g] = T::mul(simd, terms[g], share[g]);
        sum = T::add(simd, sum, r[g]);
    }
    *count = sum;
    r
}

/// Returns the indices of the first `n` samples with a non-negligible responsibility, and their number.
#[inline(always)]
pub(super) fn choose<T: Real, S: Simd>(r: &[T::Reg<S>], n: usize) -> ([u8; MAX_GROUP], usize) {
    let (mut chosen, mut m) = ([0; MAX_GROUP], 0);
    for (row, &r) in elements::<T, S>(r)[..n].iter().enumerate() {
        chosen[m % MAX_GROUP] = row as u8;
        m += usize::from(r > T::NEGLIGIBLE);
    }
    (chosen, m)
}
