//! The pivots of T.
use super::super::SINGULAR;
use crate::math::float64;
use crate::simt::fma64;
use core::f64::consts::LOG2_E;

/// Pivots up to this share of their variance are rounding noise.
pub(super) const ROUNDING: f64 = f64::EPSILON;

/// The logarithm of a product of pivots.
#[derive(Clone, Copy)]
pub(super) struct Determinant {
    mantissa: f64,
    exponent: i32,
    regular: bool,
}

impl Determinant {
    pub const ONE: Self = Self { mantissa: 1.0, exponent: 0, regular: true };

    /// Multiplies with a pivot, which must exceed `limit`. Returns its reciprocal.
    #[inline(always)]
    pub fn multiply(&mut self, pivot: f64, limit: f64) -> f64 {
        const FRACTION: u64 = (1 << 52) - 1;
        self.regular &= pivot > limit;
        let (bits, field) = (pivot.to_bits(), (pivot.to_bits() >> 52) as i32);
        let mantissa = f64::from_bits(bits & FRACTION | 1f64.to_bits());
        self.mantissa *= mantissa;
        self.exponent += field - 1023;
        float64::reciprocal(mantissa) * f64::from_bits(((2046 - field) as u64) << 52)
    }

    /// log₂ of a density, from its seed and (x − μ)ᵀ·T⁻¹·(x − μ).
    #[inline(always)]
    pub fn density(self, seed: f64, square: f64) -> f64 {
        let log2 = self.exponent as f64 + float64::log2(self.mantissa);
        let q = fma64(-0.5 * LOG2_E, square, fma64(-0.5, log2, seed));
        match (self.regular, q > f64::MIN) {
            (false, _) => SINGULAR,
            (true, true) => q,
            (true, false) => f64::NEG_INFINITY,
        }
    }
}
