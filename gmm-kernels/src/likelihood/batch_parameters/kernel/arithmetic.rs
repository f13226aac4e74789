//! Powers, rounding and reciprocals of float64 numbers.
use crate::simt::*;

/// A set's largest coefficient is scaled to between 2^13 and 2^14, so that rounding does not raise it to 2^15.
pub(super) const LARGEST: i32 = 13;

#[inline(always)]
pub(super) fn abs(v: f64) -> f64 {
    if v < 0.0 { -v } else { v }
}

/// The larger of two; the second if the first is NaN.
#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// Rounds a number of at most 2^15 to the digits that two float16 numbers hold: 22, and none below 2^-24.
#[inline(always)]
pub(super) fn round(v: f64) -> f64 {
    /// v + LAST − LAST is v rounded to a multiple of 2^-24.
    const LAST: f64 = 1.5 * (1u64 << 28) as f64;
    /// Rounds 53 digits to 22 (Veltkamp).
    const DIGITS: f64 = (1u64 << 31) as f64 + 1.0;
    let product = v * DIGITS;
    let rounded = product - (product - v);
    (rounded + LAST) - LAST
}

/// 2^`exponent`, for a normal number.
#[inline(always)]
pub(super) fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << FRACTION)
}

/// Bits of a float64's fraction, and the exponent field of the number one.
pub(super) const FRACTION: u32 = 52;
pub(super) const BIAS: i32 = 1023;

/// ⌊log₂ v⌋ of a positive normal v.
#[inline(always)]
pub(super) fn exponent(v: f64) -> i32 {
    (v.to_bits() >> FRACTION) as i32 - BIAS
}

/// [`LARGEST`] − ⌊log₂ v⌋ for a positive normal v, limited to ±60, far from the ends of float32.
#[inline(always)]
pub(super) fn scale_exponent(v: f64) -> i32 {
    let exponent = LARGEST - exponent(v);
    let exponent = if exponent < -60 { -60 } else { exponent };
    if exponent > 60 { 60 } else { exponent }
}

/// 1 / √x for a positive normal x, with relative error 2⁻⁴⁰.
#[inline(always)]
pub(super) fn reciprocal_root(x: f64) -> f64 {
    let half = exponent(x) >> 1;
    // From 1 to 4.
    let rest = f64::from_bits(x.to_bits().wrapping_sub(((2 * half as i64) << FRACTION) as u64));
    let y = exp2(-0.5 * log2(rest as f32)) as f64;
    // A Newton step doubles the digits of float32.
    let y = fma64(0.5 * y, fma64(-rest * y, y, 1.0), y);
    y * power_of_two(-half)
}

/// 1 / s² for a positive normal float32 number of at most 2⁵⁶, with relative error 2⁻⁴⁰.
#[inline(always)]
pub(super) fn reciprocal_square(s: f64) -> f64 {
    let y = reciprocal(s as f32) as f64;
    let y = fma64(y, fma64(-s, y, 1.0), y);
    y * y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_22_digits() {
        for v in [1.0f64, -3.0, 12345.678, 0.1, 2f64.powi(-3) / 3.0, -1e-5, 0.0, 16383.9999] {
            let rounded = round(v);
            assert!((rounded - v).abs() <= (v.abs() * 2f64.powi(-22)).max(2f64.powi(-25)), "{v}");
            assert_eq!(rounded, f64::from(rounded as f32));
            // After its first 11 digits the number has at most 11 more.
            let unit = 2f64.powi(rounded.abs().max(1e-9).log2().floor() as i32 - 10);
            let rest = (rounded / unit - (rounded / unit).round_ties_even()) * unit;
            assert!(rest == 0.0 || (rest / 2f64.powi(-24)).fract() == 0.0, "{v}");
        }
    }

    #[test]
    fn powers_bring_the_largest_below_2_to_14() {
        for v in [1.0, 0.75, 1e-3, 12345.678, 3e10] {
            assert!((8192.0..16384.0).contains(&(v * power_of_two(scale_exponent(v)))), "{v}");
        }
        assert_eq!((scale_exponent(f64::MIN_POSITIVE), scale_exponent(1e300)), (60, -60));
    }

    /// One Newton step from float32.
    #[test]
    fn reciprocals_have_40_digits() {
        for i in 0..2000 {
            let x = (f64::from(i) - 1000.3).exp2() * (1.0 + f64::from(i) / 2000.0);
            assert!((reciprocal_root(x) * x.sqrt() - 1.0).abs() < 2f64.powi(-40), "{x}");
        }
        for i in 0..1800 {
            let s = f64::from(((f64::from(i) / 10.0 - 125.0).exp2() * 1.01) as f32);
            assert!((reciprocal_square(s) * s * s - 1.0).abs() < 2f64.powi(-40), "{s}");
        }
    }
}
