//! float32 and float64 in the CPU's kernels for mixtures.
use crate::data::float::Float;
use crate::simd::Lane;
use pulp::{Simd, bytemuck};

/// An element type of the CPU's kernels: the needs of likelihoods besides [`Lane`].
pub trait Real: Float + Lane {
    /// A sample's sum below this is formed again with the maximum taken out. This is far above the smallest normal
    /// number, below which terms lose digits or vanish, and far below the sums of samples near a component.
    const FAR: Self;
    /// Responsibilities below this are left out: 10⁶ of them are less than the rounding error of one count.
    const NEGLIGIBLE: Self;
    /// The value of the exponent field of 1.0.
    const BIAS: u64;
    /// The number of 32-bit lanes of an element, in which exponent fields are counted.
    const COUNTERS: usize = size_of::<Self>() / size_of::<u32>();
    /// The 32-bit lane of an element with its exponent field.
    const COUNTER: usize = if cfg!(target_endian = "little") { Self::COUNTERS - 1 } else { 0 };

    /// Splits positive normal numbers: returns the mantissas in [1, 2) and `counters` plus the exponent fields.
    fn split<S: Simd>(simd: S, a: Self::Reg<S>, counters: S::u32s) -> (Self::Reg<S>, S::u32s);
}

impl Real for f32 {
    const FAR: Self = f32::from_bits((127 - 96) << 23);
    const NEGLIGIBLE: Self = f32::from_bits((127 - 60) << 23);
    const BIAS: u64 = 127;

    #[inline(always)]
    fn split<S: Simd>(simd: S, a: S::f32s, counters: S::u32s) -> (S::f32s, S::u32s) {
        let bits = simd.transmute_u32s_f32s(a);
        let exponents = simd.wrapping_dyn_shr_u32s(bits, simd.splat_u32s(23));
        let mantissa = simd.and_u32s(bits, simd.splat_u32s(0x007f_ffff));
        let one = simd.splat_u32s(1f32.to_bits());
        (simd.transmute_f32s_u32s(simd.or_u32s(mantissa, one)), simd.add_u32s(counters, exponents))
    }
}

impl Real for f64 {
    const FAR: Self = f64::from_bits((1023 - 900) << 52);
    const NEGLIGIBLE: Self = f64::from_bits((1023 - 120) << 52);
    const BIAS: u64 = 1023;

    #[inline(always)]
    fn split<S: Simd>(simd: S, a: S::f64s, counters: S::u32s) -> (S::f64s, S::u32s) {
        let bits = simd.transmute_u64s_f64s(a);
        // The low words leave garbage in their own counters, which are not read.
        let exponents = simd.wrapping_dyn_shr_u32s(bytemuck::cast(bits), simd.splat_u32s(20));
        let mantissa = simd.and_u64s(bits, simd.splat_u64s(0x000f_ffff_ffff_ffff));
        let one = simd.splat_u64s(1f64.to_bits());
        (simd.transmute_f64s_u64s(simd.or_u64s(mantissa, one)), simd.add_u32s(counters, exponents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, elements};
    use pulp::WithSimd;

    struct Split<'a, T>(&'a [T]);

    impl<T: Real> WithSimd for Split<'_, T> {
        type Output = Vec<(f64, u64)>;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let mut out = Vec::new();
            for &a in T::registers::<S>(self.0) {
                let (mantissa, counters) = T::split(simd, a, simd.splat_u32s(7));
                let counters: &[u32] = bytemuck::cast_slice(std::slice::from_ref(&counters));
                for (m, c) in elements::<T, S>(&[mantissa]).iter().zip(counters.chunks(T::COUNTERS)) {
                    out.push(((*m).into(), u64::from(c[T::COUNTER]) - 7));
                }
            }
            out
        }
    }

    #[test]
    fn split_gives_mantissa_and_exponent() {
        for isa in Isa::available() {
            let x: Vec<f32> = (0..32).map(|i| 1.37f32 * (i as f32 * 3.0 - 60.0).exp2()).collect();
            for (x, (m, e)) in x.iter().zip(isa.run(Split(&x))) {
                assert_eq!(f64::from(*x), m * (e as f64 - 127.0).exp2(), "{}", isa.name());
                assert!((1.0..2.0).contains(&m));
            }
            let x: Vec<f64> = (0..32).map(|i| 1.37 * (i as f64 * 30.0 - 600.0).exp2()).collect();
            for (x, (m, e)) in x.iter().zip(isa.run(Split(&x))) {
                assert_eq!(*x, m * (e as f64 - 1023.0).exp2(), "{}", isa.name());
                assert!((1.0..2.0).contains(&m));
            }
        }
    }
}
