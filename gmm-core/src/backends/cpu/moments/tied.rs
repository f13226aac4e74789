//! The moments of a tied covariance: for each sample an outer product of its features and one of its responsibilities.
use super::layout::{Layout, MAX_GROUP};
use super::responsibilities::choose;
use super::rows::{add_product, transpose};
use super::sums::Sums;
use crate::backends::cpu::real::Real;
use crate::backends::device_parameters::DeviceParameters;
use crate::simd::lane::{elements, elements_mut, lanes};
use pulp::Simd;

pub(super) struct Tied<'a, T: Real, S: Simd> {
    pub parameters: &'a DeviceParameters<T>,
    /// The centres of the moments, (K, width).
    pub centres: &'a [T::Reg<S>],
    pub sums: &'a mut Sums<T>,
}

impl<T: Real, S: Simd> Tied<'_, T, S> {
    /// Adds the `n` samples `x` of a group, with the responsibilities `r` times the samples' own weights `weight`.
    #[inline(always)]
    pub fn add<const REGISTERS: usize>(
        self,
        simd: S,
        n: usize,
        x: &[T::Reg<S>],
        r: &[[T::Reg<S>; REGISTERS]],
        weight: &[T::Reg<S>; REGISTERS],
    ) {
        let (k, d) = (self.parameters.n_components, self.parameters.n_features);
        let (lanes, Layout { width, height, pair_width, .. }) = (lanes::<T, S>(), self.sums.layout);
        let (registers, pair_registers) = (width / lanes, pair_width / lanes);
        let (samples, rest) = T::registers_mut::<S>(&mut self.sums.rows).split_at_mut(MAX_GROUP * registers);
        let (deviations, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (weighted, rest) = rest.split_at_mut(MAX_GROUP * registers);
        let (pairs, weighted_pairs) = rest.split_at_mut(MAX_GROUP * pair_registers);
        let (first, second) = T::registers_mut::<S>(&mut self.sums.matrices.latest).split_at_mut(k * registers);
        let (second, pair_sums) = second.split_at_mut(height * registers);
        transpose::<T, S>(x, n, d, width, samples);
        let zero = T::splat(simd, T::from_f64(0.0));
        deviations[..n * registers].fill(zero);
        // deviations = Σₖ r·(x − cₖ) = weight·(x − c̄)
        for (c, r) in r.iter().enumerate() {
            let (chosen, m) = choose::<T, S>(r, n);
            let r = elements::<T, S>(r);
            for v in 0..registers {
                let centre = self.centres[c * registers + v];
                let mut sum = first[c * registers + v];
                for &row in &chosen[..m] {
                    let at = usize::from(row) * registers + v;
                    let deviation = T::sub(simd, samples[at], centre);
                    let u = T::mul(simd, deviation, T::splat(simd, r[usize::from(row)]));
                    deviations[at] = T::add(simd, deviations[at], u);
                    sum = T::add(simd, sum, u);
                }
                first[c * registers + v] = sum;
            }
            let to = elements_mut::<T, S>(pairs);
            for row in 0..n {
                to[row * pair_width + c] = r[row];
            }
        }
        for (row, &w) in elements::<T, S>(weight)[..n].iter().enumerate() {
            let inverse = T::from_f64(1.0 / w.into());
            // A weight whose inverse overflows has no digits that matter.
            let inverse = T::splat(simd, if inverse.into().is_finite() { inverse } else { T::from_f64(0.0) });
            for at in row * registers..(row + 1) * registers {
                weighted[at] = T::mul(simd, deviations[at], inverse);
            }
            for at in row * pair_registers..(row + 1) * pair_registers {
                weighted_pairs[at] = T::mul(simd, pairs[at], inverse);
            }
        }
        let (u, v) = (&weighted[..n * registers], &deviations[..n * registers]);
        add_product::<T, S>(simd, d, registers, u, v, second);
        let (u, v) = (&weighted_pairs[..n * pair_registers], &pairs[..n * pair_registers]);
        add_product::<T, S>(simd, k, pair_registers, u, v, pair_sums);
    }
}
