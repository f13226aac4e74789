//! float32 and float64, scalar and in registers, behind one trait.
use pulp::{Simd, bytemuck};
use std::any::TypeId;

/// An element type of registers: `f32` or `f64`.
///
/// All functions on registers are inlined into the caller, which is compiled for the instruction set of `S`. A closure
/// would not be, so loops and traits take its place.
pub trait Lane: bytemuck::Pod + PartialOrd + sealed::Sealed {
    /// A register of `S`.
    type Reg<S: Simd>: bytemuck::Pod + Send + Sync;
    /// A selection of the elements of a register.
    type Mask<S: Simd>: Copy;

    /// Returns the number in all lanes.
    fn splat<S: Simd>(simd: S, v: Self) -> Self::Reg<S>;
    /// Loads a slice shorter than a register, padded with zeros.
    fn partial_load<S: Simd>(simd: S, v: &[Self]) -> Self::Reg<S>;
    /// Returns the sum of the elements.
    fn sum<S: Simd>(simd: S, a: Self::Reg<S>) -> Self;
    /// Returns a + b.
    fn add<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns a − b.
    fn sub<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns a·b.
    fn mul<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns a/b.
    fn div<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns the larger of a and b.
    fn max<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns the smaller of a and b.
    fn min<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns a·b + c; the product is rounded if the processor cannot fuse the two operations.
    fn mul_add<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>, c: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns c − a·b, likewise.
    fn sub_mul<S: Simd>(simd: S, a: Self::Reg<S>, b: Self::Reg<S>, c: Self::Reg<S>) -> Self::Reg<S>;
    /// Returns the mask of the elements that are not NaN.
    fn is_number<S: Simd>(simd: S, a: Self::Reg<S>) -> Self::Mask<S>;
    /// Returns the elements in the mask, and zeros elsewhere.
    fn only<S: Simd>(simd: S, mask: Self::Mask<S>, a: Self::Reg<S>) -> Self::Reg<S>;
    /// Whether any element is below `limit`.
    fn any_below<S: Simd>(simd: S, a: Self::Reg<S>, limit: Self) -> bool;
    /// Whether any element is above `limit`.
    fn any_above<S: Simd>(simd: S, a: Self::Reg<S>, limit: Self) -> bool;

    /// Returns 2^x for x ≤ 100, to about one unit in the last place, without a bias. Below the smallest normal exponent
    /// minus one it is 0, and between the two its error is at most the smallest normal number.
    fn exp2<S: Simd>(simd: S, x: Self::Reg<S>) -> Self::Reg<S>;

    /// Returns a slice as registers; its length must be a multiple of a register's.
    fn registers<S: Simd>(v: &[Self]) -> &[Self::Reg<S>];
    /// As [`registers`](Self::registers), mutable.
    fn registers_mut<S: Simd>(v: &mut [Self]) -> &mut [Self::Reg<S>];
}

mod sealed {
    /// Only this module implements [`Lane`](super::Lane).
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Returns the number of elements in a register.
pub const fn lanes<T: Lane, S: Simd>() -> usize {
    size_of::<T::Reg<S>>() / size_of::<T>()
}

/// Whether `S` has a fused multiply-add. Without one, pulp calls a C function per element, which takes tens of times as
/// long as a product and a sum.
#[inline(always)]
pub fn fuses<S: Simd>() -> bool {
    let target = cfg!(any(target_feature = "fma", target_arch = "aarch64"));
    target || TypeId::of::<S>() != TypeId::of::<pulp::Scalar256b>()
}

/// Returns registers as their elements.
#[inline(always)]
pub fn elements<T: Lane, S: Simd>(v: &[T::Reg<S>]) -> &[T] {
    bytemuck::cast_slice(v)
}

/// As [`elements`], mutable.
#[inline(always)]
pub fn elements_mut<T: Lane, S: Simd>(v: &mut [T::Reg<S>]) -> &mut [T] {
    bytemuck::cast_slice_mut(v)
}

/// The operations that differ between the element types only in the names of pulp's functions.
macro_rules! register_operations {
    ($splat:ident, $partial_load:ident, $sum:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $max:ident, $min:ident, $mul_add:ident, $sub_mul:ident, $regs:ident,
     $slice:ident, $slice_mut:ident) => {
        type Reg<S: Simd> = S::$regs;

        #[inline(always)]
        fn splat<S: Simd>(simd: S, v: Self) -> S::$regs {
            simd.$splat(v)
        }
        #[inline(always)]
        fn partial_load<S: Simd>(simd: S, v: &[Self]) -> S::$regs {
            simd.$partial_load(v)
        }
        #[inline(always)]
        fn sum<S: Simd>(simd: S, a: S::$regs) -> Self {
            simd.$sum(a)
        }
        #[inline(always)]
        fn add<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$add(a, b)
        }
        #[inline(always)]
        fn sub<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$sub(a, b)
        }
        #[inline(always)]
        fn div<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$div(a, b)
        }
        #[inline(always)]
        fn mul<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$mul(a, b)
        }
        #[inline(always)]
        fn max<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$max(a, b)
        }
        #[inline(always)]
        fn min<S: Simd>(simd: S, a: S::$regs, b: S::$regs) -> S::$regs {
            simd.$min(a, b)
        }
        #[inline(always)]
        fn mul_add<S: Simd>(simd: S, a: S::$regs, b: S::$regs, c: S::$regs) -> S::$regs {
            if fuses::<S>() { simd.$mul_add(a, b, c) } else { simd.$add(simd.$mul(a, b), c) }
        }
        #[inline(always)]
        fn sub_mul<S: Simd>(simd: S, a: S::$regs, b: S::$regs, c: S::$regs) -> S::$regs {
            if fuses::<S>() { simd.$sub_mul(a, b, c) } else { simd.$sub(c, simd.$mul(a, b)) }
        }
        #[inline(always)]
        fn registers<S: Simd>(v: &[Self]) -> &[S::$regs] {
            let (registers, rest) = S::$slice(v);
            debug_assert!(rest.is_empty());
            registers
        }
        #[inline(always)]
        fn registers_mut<S: Simd>(v: &mut [Self]) -> &mut [S::$regs] {
            let (registers, rest) = S::$slice_mut(v);
            debug_assert!(rest.is_empty());
            registers
        }
    };
}

/// Coefficients of f⁰, f¹, f², … in 2^f on [−½, ½]: minimax in relative error (10⁻⁸ for float32, 4·10⁻¹⁷ for float64,
/// both below the rounding). Each coefficient was rounded to the type before the next ones were fitted; float32's last
/// one was then raised so that the mean error vanishes.
const EXP2_F32: [f32; 7] = [1.0, 0.69314724, 0.24022655, 0.055502728, 0.009617064, 0.001341817, 0.00015863];
const EXP2_F64: [f64; 12] = [
    1.0,
    0.6931471805599457,
    0.240226506959101,
    0.05550410866478782,
    0.009618129107606156,
    0.0013333558153999397,
    0.00015403530442093606,
    1.5252726869159977e-05,
    1.32154430081347e-06,
    1.0180876084755623e-07,
    7.07240195887692e-09,
    4.039635875284571e-10,
];

/// Returns c₀ + c₁f + c₂f² + … by Horner's rule.
#[inline(always)]
fn horner<T: Lane, S: Simd, const N: usize>(simd: S, coefficients: &[T; N], f: T::Reg<S>) -> T::Reg<S> {
    let mut sum = T::splat(simd, coefficients[N - 1]);
    // A loop, because a closure would not be compiled for the instruction set.
    for &c in coefficients[..N - 1].iter().rev() {
        sum = T::mul_add(simd, sum, f, T::splat(simd, c));
    }
    sum
}

impl Lane for f32 {
    type Mask<S: Simd> = S::m32s;

    register_operations!(
        splat_f32s,
        partial_load_f32s,
        reduce_sum_f32s,
        add_f32s,
        sub_f32s,
        mul_f32s,
        div_f32s,
        max_f32s,
        min_f32s,
        mul_add_e_f32s,
        negate_mul_add_e_f32s,
        f32s,
        as_simd_f32s,
        as_mut_simd_f32s
    );

    #[inline(always)]
    fn is_number<S: Simd>(simd: S, a: S::f32s) -> S::m32s {
        simd.equal_f32s(a, a)
    }

    #[inline(always)]
    fn only<S: Simd>(simd: S, mask: S::m32s, a: S::f32s) -> S::f32s {
        simd.select_f32s(mask, a, simd.splat_f32s(0.0))
    }

    #[inline(always)]
    fn any_below<S: Simd>(simd: S, a: S::f32s, limit: Self) -> bool {
        simd.first_true_m32s(simd.less_than_f32s(a, simd.splat_f32s(limit))) != S::F32_LANES
    }

    #[inline(always)]
    fn any_above<S: Simd>(simd: S, a: S::f32s, limit: Self) -> bool {
        simd.first_true_m32s(simd.greater_than_f32s(a, simd.splat_f32s(limit))) != S::F32_LANES
    }

    #[inline(always)]
    fn exp2<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
        // Adding 1.5·2²³ rounds to an integer in the low bits.
        let magic = simd.splat_f32s(12_582_912.0);
        let x = simd.max_f32s(x, simd.splat_f32s(-127.0));
        let shifted = simd.add_f32s(x, magic);
        let f = simd.sub_f32s(x, simd.sub_f32s(shifted, magic));
        let p = horner(simd, &EXP2_F32, f);
        let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
        simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(p), exponent))
    }
}

impl Lane for f64 {
    type Mask<S: Simd> = S::m64s;

    register_operations!(
        splat_f64s,
        partial_load_f64s,
        reduce_sum_f64s,
        add_f64s,
        sub_f64s,
        mul_f64s,
        div_f64s,
        max_f64s,
        min_f64s,
        mul_add_e_f64s,
        negate_mul_add_e_f64s,
        f64s,
        as_simd_f64s,
        as_mut_simd_f64s
    );

    #[inline(always)]
    fn is_number<S: Simd>(simd: S, a: S::f64s) -> S::m64s {
        simd.equal_f64s(a, a)
    }

    #[inline(always)]
    fn only<S: Simd>(simd: S, mask: S::m64s, a: S::f64s) -> S::f64s {
        simd.select_f64s(mask, a, simd.splat_f64s(0.0))
    }

    #[inline(always)]
    fn any_below<S: Simd>(simd: S, a: S::f64s, limit: Self) -> bool {
        simd.first_true_m64s(simd.less_than_f64s(a, simd.splat_f64s(limit))) != S::F64_LANES
    }

    #[inline(always)]
    fn any_above<S: Simd>(simd: S, a: S::f64s, limit: Self) -> bool {
        simd.first_true_m64s(simd.greater_than_f64s(a, simd.splat_f64s(limit))) != S::F64_LANES
    }

    #[inline(always)]
    fn exp2<S: Simd>(simd: S, x: S::f64s) -> S::f64s {
        let magic = simd.splat_f64s(6_755_399_441_055_744.0); // 1.5·2⁵²
        let x = simd.max_f64s(x, simd.splat_f64s(-1023.0));
        let integer = simd.sub_f64s(simd.add_f64s(x, magic), magic);
        let f = simd.sub_f64s(x, integer);
        let p = horner(simd, &EXP2_F64, f);
        // pulp shifts 32-bit lanes only. 2¹³ + 2¹² + r holds r from bit 39 on and nothing below; shifted by 13 it fills
        // the exponent field, and the bits of 2¹³ and 2¹² leave the word.
        let shifted: S::u32s = bytemuck::cast(simd.add_f64s(integer, simd.splat_f64s(12_288.0)));
        let exponent: S::u64s = bytemuck::cast(simd.wrapping_dyn_shl_u32s(shifted, simd.splat_u32s(13)));
        simd.transmute_f64s_u64s(simd.add_u64s(simd.transmute_u64s_f64s(p), exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::isa::Isa;
    use pulp::WithSimd;

    struct Exp2<'a, T>(&'a mut [T]);

    impl<T: Lane> WithSimd for Exp2<'_, T> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for x in T::registers_mut::<S>(self.0) {
                *x = T::exp2(simd, *x);
            }
        }
    }

    /// Returns the largest and the mean relative error of 2^x in float32 against float64 over [low, high).
    fn errors_f32(isa: Isa, low: f64, high: f64) -> (f64, f64) {
        const N: usize = 1 << 20;
        let x: Vec<f32> = (0..N).map(|i| (low + (high - low) * (i as f64 + 0.5) / N as f64) as f32).collect();
        let mut y = x.clone();
        isa.run(Exp2(&mut y));
        let errors = x.iter().zip(&y).map(|(&x, &y)| f64::from(y) / f64::from(x).exp2() - 1.0);
        let (mut worst, mut sum) = (0f64, 0.0);
        for e in errors {
            worst = worst.max(e.abs());
            sum += e;
        }
        (worst, sum / N as f64)
    }

    #[test]
    fn exp2_f32_is_accurate_and_without_bias() {
        for isa in Isa::available() {
            // About one unit in the last place: 2⁻²³ = 1.19e-7. A bias of 2e-10 is 2e-4 in the total over 10⁶ samples;
            // the mean of 2²⁰ random roundings of 4e-8 is 4e-11, so the rest is the polynomial's.
            for (low, high) in [(-126.0, 0.0), (-30.0, 0.0), (-2.0, 0.0), (-0.5, 0.5)] {
                let (worst, mean) = errors_f32(isa, low, high);
                println!("{} [{low}, {high}): worst {worst:e}, mean {mean:e}", isa.name());
                assert!(worst < 1.2e-7, "{} [{low}, {high}): worst {worst:e}", isa.name());
                assert!(mean.abs() < 2e-10, "{} [{low}, {high}): mean {mean:e}", isa.name());
            }
        }
    }

    #[test]
    fn exp2_f64_is_accurate() {
        for isa in Isa::available() {
            let x: Vec<f64> = (0..1 << 16).map(|i| -1022.0 + 1022.5 * f64::from(i) / 65536.0).collect();
            let mut y = x.clone();
            isa.run(Exp2(&mut y));
            for (x, y) in x.iter().zip(&y) {
                // Two units in the last place: one each for this function and std's.
                assert!((y / x.exp2() - 1.0).abs() < 4.5e-16, "{}: 2^{x} = {y}", isa.name());
            }
        }
    }

    #[test]
    fn exp2_underflows_to_nothing() {
        for isa in Isa::available() {
            let mut y = [-126.0f32, -126.3, -126.7, -127.0, -128.0, -1e4, -3e38, f32::NEG_INFINITY].repeat(4);
            isa.run(Exp2(&mut y));
            for y in y.chunks(8) {
                assert_eq!((y[0], &y[3..]), (f32::MIN_POSITIVE, &[0.0; 5][..]), "{}", isa.name());
                assert!((0.0..f32::MIN_POSITIVE).contains(&y[1]) && (0.0..f32::MIN_POSITIVE).contains(&y[2]));
            }
            let mut y = [-1022.0f64, -1022.3, -1022.7, -1023.0, -1024.0, -1e4, -1e308, f64::NEG_INFINITY].repeat(2);
            isa.run(Exp2(&mut y));
            for y in y.chunks(8) {
                assert_eq!((y[0], &y[3..]), (f64::MIN_POSITIVE, &[0.0; 5][..]), "{}", isa.name());
                assert!((0.0..f64::MIN_POSITIVE).contains(&y[1]) && (0.0..f64::MIN_POSITIVE).contains(&y[2]));
            }
        }
    }
}
