//! A thread's running sum of log₂-likelihoods, stored as a product.
//!
//! Adding log₂ of every sample would add the bias of the approximate logarithm N times. Instead, the likelihoods are
//! multiplied, their exponents are added up as an integer (exact), and each warp takes one logarithm at the end.
use super::float64;
use crate::simt::*;

/// Σ log₂ of everything added = `far` + `exponent` + log₂ `mantissa`.
#[derive(Clone, Copy)]
pub struct LogProduct {
    far: f64,
    exponent: i32,
    /// In [1, 2).
    mantissa: f32,
}

impl LogProduct {
    /// The empty sum.
    #[inline(always)]
    pub fn new() -> Self {
        Self { far: 0.0, exponent: 0, mantissa: 1.0 }
    }

    /// Adds log₂ e, for a normal, positive e (up to 2^126).
    #[inline(always)]
    pub fn multiply(&mut self, e: f32) {
        // A mantissa in [1, 2) times a normal number below 2^127 is a normal number.
        let bits = (self.mantissa * e).to_bits();
        self.exponent += (bits >> 23) as i32 - 127;
        self.mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f80_0000);
    }

    /// Adds `power` + log₂ e: a likelihood too small for a float.
    #[inline(always)]
    pub fn multiply_scaled(&mut self, power: f32, e: f32) {
        self.far += power as f64;
        self.multiply(e);
    }

    /// Adds a logarithm to base 2.
    #[inline(always)]
    pub fn add(&mut self, log2: f32) {
        self.far += log2 as f64;
    }

    /// The two numbers that represent a product in memory: (power, mantissa).
    #[inline(always)]
    pub fn parts(self) -> (f64, f32) {
        (self.far + self.exponent as f64, self.mantissa)
    }

    /// The two numbers that represent a product without far samples: (exponent, mantissa).
    #[inline(always)]
    pub fn near(self) -> (i32, f32) {
        (self.exponent, self.mantissa)
    }

    /// The product represented by these two numbers.
    #[inline(always)]
    pub fn from_near(exponent: i32, mantissa: f32) -> Self {
        Self { far: 0.0, exponent, mantissa }
    }

    /// The product represented by these two numbers.
    #[inline(always)]
    pub fn from_parts(power: f64, mantissa: f32) -> Self {
        Self { far: power, exponent: 0, mantissa }
    }

    /// The sum over the lanes of the warp, in lane 0 (other lanes: undefined). All lanes take part.
    #[inline(always)]
    pub fn warp_sum(self) -> f64 {
        let mut mantissa = self.mantissa;
        let mut by = WARP / 2;
        while by > 0 {
            // 32 factors below 2 stay below 2^32.
            mantissa *= f32::from_bits(shuffle_down_u32(mantissa.to_bits(), by));
            by /= 2;
        }
        let sum = warp_add(self.exponent) as f64 + log2(mantissa) as f64;
        if warp_any(self.far != 0.0) { sum + warp_sum(self.far) } else { sum }
    }
}

impl Default for LogProduct {
    fn default() -> Self {
        Self::new()
    }
}

/// As [`LogProduct`], for likelihoods in float64.
#[derive(Clone, Copy)]
pub struct LogProduct64 {
    powers: f64,
    exponent: i64,
    /// In [1, 2).
    mantissa: f64,
}

impl LogProduct64 {
    /// The empty sum.
    #[inline(always)]
    pub fn new() -> Self {
        Self { powers: 0.0, exponent: 0, mantissa: 1.0 }
    }

    /// Adds `power` + log₂ v, for v from 2⁻¹⁰⁰ to 2¹⁰⁰.
    #[inline(always)]
    pub fn multiply(&mut self, power: f64, v: f64) {
        const FRACTION: u64 = (1 << 52) - 1;
        let bits = (self.mantissa * v).to_bits();
        self.powers += power;
        self.exponent += (bits >> 52) as i64 - 1023;
        self.mantissa = f64::from_bits(bits & FRACTION | 1f64.to_bits());
    }

    /// Adds a logarithm to base 2.
    #[inline(always)]
    pub fn add(&mut self, log2: f64) {
        self.powers += log2;
    }

    /// The sum.
    #[inline(always)]
    pub fn sum(&self) -> f64 {
        self.powers + (self.exponent as f64 + float64::log2(self.mantissa))
    }
}

impl Default for LogProduct64 {
    fn default() -> Self {
        Self::new()
    }
}

/// The sum of `x` over the lanes of the warp, in lane 0 (other lanes: undefined). All lanes take part.
#[inline(always)]
pub fn warp_sum(mut x: f64) -> f64 {
    let mut by = WARP / 2;
    while by > 0 {
        let bits = x.to_bits();
        let low = shuffle_down_u32(bits as u32, by);
        let high = shuffle_down_u32((bits >> 32) as u32, by);
        x += f64::from_bits((high as u64) << 32 | low as u64);
        by /= 2;
    }
    x
}
