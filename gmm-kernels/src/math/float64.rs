//! 2^x and log₂ x in float64, for which the hardware has only float32 instructions.
//!
//! They consist of arithmetic alone, so that host and device compute the same bits. Natural functions follow where a
//! few units in the last place do not matter: e^x = 2^(x·log₂e), ln x = log₂x·ln 2.
use crate::simt::{fma64, reciprocal as reciprocal32};

/// Coefficients of f¹, f², … in 2^f = 1 + … on [−½, ½]: minimax in relative error, 4·10⁻¹⁷.
const EXP2: [f64; 11] = [
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

/// 2^x for x < 1023, within 1 unit in the last place, without a branch; 0 below the normal numbers (x < −1022).
#[inline(always)]
pub fn exp2(x: f64) -> f64 {
    const LEAST: f64 = -1022.0;
    let y = exp2_normal(if x < LEAST { LEAST } else { x });
    if x < LEAST { 0.0 } else { y }
}

/// 2^x for −1022 ≤ x < 1023, within 1 unit in the last place, without a branch.
#[inline(always)]
pub fn exp2_normal(x: f64) -> f64 {
    // Adding 1.5·2⁵² rounds to an integer and leaves it in the low bits.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let shifted = x + MAGIC;
    let f = x - (shifted - MAGIC);
    let mut sum = EXP2[EXP2.len() - 1];
    let mut i = EXP2.len() - 1;
    while i > 0 {
        i -= 1;
        sum = fma64(sum, f, EXP2[i]);
    }
    f64::from_bits(fma64(sum, f, 1.0).to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// 1 / x for x from 2⁻¹⁰⁰ to 2¹⁰⁰, within 2 units in the last place, without a branch.
#[inline(always)]
pub fn reciprocal(x: f64) -> f64 {
    // Each Newton step doubles the digits of float32.
    let y = reciprocal32(x as f32) as f64;
    let y = fma64(y, fma64(-x, y, 1.0), y);
    fma64(y, fma64(-x, y, 1.0), y)
}

/// √x for a positive normal x, within 1 unit in the last place.
#[inline(always)]
pub fn sqrt(x: f64) -> f64 {
    let y = exp2_normal(0.5 * log2(x));
    // A Newton step squares the relative error, at most 10⁻¹³.
    y + 0.5 * fma64(-y, y, x) / y
}

/// 2 / ln 2, rounded, and the remainder.
const TWO_OVER_LN_2: (f64, f64) = (2.8853900817779268, 4.0710547481862066e-17);
/// Coefficients of z⁰, z¹, … in (2 / ln 2)·(artanh(s) / s − 1) / z, z = s², |s| ≤ (√2 − 1) / (√2 + 1): error 5·10⁻¹⁹.
const ARTANH: [f64; 8] = [
    0.9617966939259756,
    0.577078016355598,
    0.41219858310211616,
    0.3205989004205735,
    0.2623078640447632,
    0.22197651717179587,
    0.19142793205820974,
    0.18880010645456755,
];

/// log₂ x for a positive normal x, within 1 unit in the last place.
///
/// With x = 2^e·m, m in [√½, √2), and s = (m − 1)/(m + 1): log₂ x = e + 2·artanh(s) / ln 2.
#[inline(always)]
pub fn log2(x: f64) -> f64 {
    // x / √½ has the exponent field of e.
    const SQRT_HALF: u64 = core::f64::consts::FRAC_1_SQRT_2.to_bits();
    let above = x.to_bits().wrapping_sub(SQRT_HALF) as i64 >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((above << 52) as u64));
    let f = m - 1.0;
    let t = 2.0 + f;
    let reciprocal = 1.0 / t;
    let s = f * reciprocal;
    // The rounding error of s: (f − s·t − s·(2 + f − t)) / t.
    let rest = fma64(-s, t, f);
    let rest = fma64(-s, f - (t - 2.0), rest) * reciprocal;
    let z = s * s;
    let mut sum = ARTANH[ARTANH.len() - 1];
    let mut i = ARTANH.len() - 1;
    while i > 0 {
        i -= 1;
        sum = fma64(sum, z, ARTANH[i]);
    }
    let (c, c_rest) = TWO_OVER_LN_2;
    let high = c * s;
    let low = fma64(c, s, -high) + fma64(c_rest, s, fma64(c, rest, s * z * sum));
    let e = above as f64;
    // |e| ≥ 1 > |high|, or e = 0: nothing is lost in the sum.
    let total = e + high;
    total + ((e - total) + high + low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments spread over [low, high).
    fn spread(low: f64, high: f64) -> impl Iterator<Item = f64> {
        const N: u32 = 200_000;
        (0..N).map(move |i| low + (high - low) * ((f64::from(i) * 0.618_033_988_749_894_9).fract()))
    }

    /// The difference in units in the last place of `truth`.
    fn units(got: f64, truth: f64) -> f64 {
        (got - truth).abs() / (f64::from_bits(truth.abs().to_bits() + 1) - truth.abs())
    }

    /// Allows two units: one for this function and one for std's.
    #[test]
    fn both_are_accurate() {
        let mut worst = 0.0f64;
        for x in
            [(-1022.0, 1022.9), (-60.0, 1.0), (-1.0, 1.0), (-1e-3, 1e-3)].into_iter().flat_map(|(a, b)| spread(a, b))
        {
            worst = worst.max(units(exp2(x), x.exp2()));
        }
        assert!(worst < 2.0, "2^x is {worst} units off");
        worst = 0.0;
        for x in spread(-1022.0, 1023.9).map(f64::exp2).chain(spread(0.5, 3.0)).chain(spread(1.0 - 1e-6, 1.0 + 1e-6)) {
            worst = worst.max(if x == 1.0 { log2(x).abs() } else { units(log2(x), x.log2()) });
        }
        assert!(worst < 2.0, "log₂ x is {worst} units off");
    }

    /// The last Newton step leaves two roundings.
    #[test]
    fn reciprocals_are_accurate() {
        let worst =
            spread(-100.0, 100.0).map(f64::exp2).fold(0.0f64, |worst, x| worst.max(units(reciprocal(x), 1.0 / x)));
        assert!(worst < 2.0, "1 / x is {worst} units off");
    }

    #[test]
    fn roots_are_accurate() {
        let worst = spread(-1020.0, 1020.0).map(f64::exp2).fold(0.0f64, |worst, x| worst.max(units(sqrt(x), x.sqrt())));
        assert!(worst < 2.0, "√x is {worst} units off");
    }

    #[test]
    fn powers_of_two_are_exact() {
        for e in -1022..=1022 {
            let x = f64::from_bits(((e + 1023) as u64) << 52);
            assert_eq!((exp2(f64::from(e)), log2(x)), (x, f64::from(e)));
        }
    }

    #[test]
    fn what_is_too_small_is_nothing() {
        for x in [-1022.0001, -1023.0, -1e5, -1e300, f64::NEG_INFINITY] {
            assert_eq!(exp2(x), 0.0);
        }
    }
}
