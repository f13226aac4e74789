//! A sum of powers of two of any size.
use crate::simt::*;

/// Σₖ wₖ·2^(qₖ − max) with the running maximum taken out: the sum of any number of terms of any size.
#[derive(Clone, Copy)]
pub struct LogSumExp {
    /// The largest qₖ so far, of components with a weight.
    pub max: f32,
    /// Σ wₖ·2^(qₖ − max).
    pub sum: f32,
}

impl LogSumExp {
    /// The lowest float stands for the logarithm of 0: it is finite, so that ∞ − ∞ does not arise.
    const EMPTY: f32 = f32::MIN;

    /// The empty sum.
    #[inline(always)]
    pub fn new() -> Self {
        Self { max: Self::EMPTY, sum: 0.0 }
    }

    /// Adds w·2^q; a weight of zero adds nothing.
    #[inline(always)]
    pub fn add(&mut self, w: f32, q: f32) {
        if w > 0.0 {
            let top = max(self.max, q);
            self.sum = fma(w, exp2(q - top), self.sum * exp2(self.max - top));
            self.max = top;
        }
    }

    /// Adds another such sum.
    #[inline(always)]
    pub fn merge(&mut self, other: Self) {
        let top = max(self.max, other.max);
        self.sum = fma(other.sum, exp2(other.max - top), self.sum * exp2(self.max - top));
        self.max = top;
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
