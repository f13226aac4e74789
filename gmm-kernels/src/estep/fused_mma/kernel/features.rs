//! Features of a group of samples, each in two float16 numbers.
use super::*;
use crate::estep::products_mma::FEATURE_SCALE;

/// [`FEATURE_SCALE`] twice.
const FEATURE_SCALES: Halves = 0x4c00_4c00;
const _: () = assert!(FEATURE_SCALE == 16.0);
/// [`OBSERVED`] twice.
const OBSERVED_TWICE: Halves = 0x5c00_5c00;
const _: () = assert!(OBSERVED == 256.0);

/// The products of a step for a group of samples as an operand of [`mma`], in two float16 numbers each. Elements 0 and
/// 2 are of the step's first eight products, elements 0 and 1 of the first two samples of the lane's quad.
#[derive(Clone, Copy)]
pub(super) struct Split {
    pub(super) high: [Halves; 4],
    pub(super) low: [Halves; 4],
}

impl Split {
    pub(super) const ZERO: Self = Self { high: [0; 4], low: [0; 4] };

    /// Splits two features of the lane's quad.
    #[inline(always)]
    pub(super) fn new(x: [[f32; QUAD]; 2]) -> Self {
        let mut split = Self::ZERO;
        counted!(for i in 0..4 {
            let (feature, first) = (i % 2, i / 2 * 2);
            let (a, b) = (x[feature][first], x[feature][first + 1]);
            // Scaled after the rounding: as exact as scaling first, and shorter.
            let high = multiply_halves(round_halves(a, b), FEATURE_SCALES);
            let [high_a, high_b] = widen_halves(high);
            split.high[i] = high;
            split.low[i] = round_halves(fma_minus(FEATURE_SCALE, a, high_a), fma_minus(FEATURE_SCALE, b, high_b));
        });
        split
    }

    /// Returns the squares. The high part's rounding error is a float16 number itself; the low part's square is left
    /// out.
    #[inline(always)]
    pub(super) fn square(self) -> Self {
        let mut split = self;
        counted!(for i in 0..4 {
            let (high, low) = (self.high[i], self.low[i]);
            let square = multiply_halves(high, high);
            let rest = fma_minus_halves(high, high, square);
            (split.high[i], split.low[i]) = (square, fma_halves(low, high, fma_halves(high, low, rest)));
        });
        split
    }
}

/// The features of a group of samples, of all pairs of tiles. `GAPS`: values may be missing.
#[derive(Clone, Copy)]
pub(super) struct Features<const GAPS: bool, const P: usize> {
    x: [Split; P],
    /// [`OBSERVED`], or 0 where a value is missing, in the order of `x`.
    observed: [[Halves; 4]; P],
}

impl<const GAPS: bool, const P: usize> Features<GAPS, P> {
    pub(super) const ZERO: Self = Self { x: [Split::ZERO; P], observed: [[0; 4]; P] };

    /// Takes features whose missing values are NaN in both parts.
    #[inline(always)]
    pub(super) fn new(mut x: [Split; P]) -> Self {
        let mut observed = [[0; 4]; P];
        let mut i = 0;
        while GAPS && i < 4 * P {
            let (high, low) = (&mut x[i / 4].high[i % 4], &mut x[i / 4].low[i % 4]);
            // Without its sign NaN is above infinity, 0x7c00: the sum is 0x8000 or more.
            let nan = ((*high & 0x7fff_7fff) + 0x03ff_03ff) & 0x8000_8000;
            let missing = nan | (nan - (nan >> 15));
            (*high, *low) = (*high & !missing, *low & !missing);
            observed[i / 4][i % 4] = OBSERVED_TWICE & !missing;
            i += 1;
        }
        Self { x, observed }
    }

    /// Step `s` of the products: features, then squares, then observations.
    #[inline(always)]
    pub(super) fn step(&self, s: usize) -> Split {
        let kinds = if GAPS { 3 } else { 2 };
        match s % kinds {
            0 => self.x[s / kinds],
            1 => self.x[s / kinds].square(),
            _ => Split { high: self.observed[s / kinds], low: [0; 4] },
        }
    }

    /// Whether the low parts of a step are zeros.
    #[inline(always)]
    pub(super) const fn is_short(s: usize) -> bool {
        GAPS && s % 3 == 2
    }
}
