//! A sum of powers of two of any size.
use crate::simt::*;

/// Σₖ wₖ·2^(qₖ − max) with the running maximum subtracted: any number of terms of any size.
#[derive(Clone, Copy)]
pub struct LogSumExp {
    /// The largest qₖ so far, among components with a weight.
    pub max: f32,
    /// Σ wₖ·2^(qₖ − max).
    pub sum: f32,
}

impl LogSumExp {
    /// The lowest float represents the logarithm of 0: it is finite, so that ∞ − ∞ does not arise.
    const EMPTY: f32 = f32::MIN;

    /// The empty sum.
    #[inline(always)]
    pub fn new() -> Self {
        Self { max: Self::EMPTY, sum: 0.0 }
    }

    /// Adds w·2^q; a weight of zero adds nothing.
    #[inline(always)]
    pub fn add(&mut self, w: f32, q: f32) {
        self.merge(Self { max: if w > 0.0 { q } else { Self::EMPTY }, sum: w });
    }

    /// Adds another such sum.
    #[inline(always)]
    pub fn merge(&mut self, other: Self) {
        // Subtracting the larger of the two maxima leaves one exponential.
        let higher = other.max - self.max;
        let factor = exp2(min(higher, -higher));
        self.sum = if higher > 0.0 { fma(self.sum, factor, other.sum) } else { fma(other.sum, factor, self.sum) };
        self.max = max(self.max, other.max);
    }

    /// log₂ of the sum.
    #[inline(always)]
    pub fn log2(self) -> f32 {
        self.max + log2(self.sum)
    }
}

impl Default for LogSumExp {
    fn default() -> Self {
        Self::new()
    }
}
