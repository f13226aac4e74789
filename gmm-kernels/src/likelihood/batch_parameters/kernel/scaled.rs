//! A mixture as the host wrote it, and the numbers of a component from which the block computes.
use super::*;
use crate::math::{REACH, ROOT_HALF_LOG2_E, float64, join_over};

/// A mixture, as the host wrote it.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    from: *const f64,
    pub(super) k: usize,
    d: usize,
}

impl Numbers {
    /// The reference (0) or a set behind it.
    #[inline(always)]
    pub(super) fn of(args: &BatchParametersArgs, i: usize) -> Self {
        let (k, d) = (args.k as usize, args.d as usize);
        Self { from: args.mixtures.wrapping_add(FRAME * d + i * mixture_size(k, d)), k, d }
    }

    /// The weight of a component; 0 behind K.
    /// Safety: as the kernel's.
    #[inline(always)]
    pub(super) unsafe fn weight(self, c: usize) -> f64 {
        // SAFETY: the component exists.
        if c < self.k { load(self.from.add(c)) } else { 0.0 }
    }
}

/// s and m of a lane's feature of a component; zeros without a feature, and for a component without weight.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    weight: f64,
    pub(super) s: f64,
    pub(super) m: f64,
    /// Whether float32 holds them.
    fits: bool,
}

impl Scaled {
    /// Safety: `feature` exists, if there is one.
    #[inline(always)]
    pub(super) unsafe fn new(args: &BatchParametersArgs, of: Numbers, c: usize, feature: Option<usize>) -> Self {
        // Everything is read at once; a missing component is replaced by the last, a missing feature by the first.
        let j = feature.unwrap_or(0);
        let component = if c < of.k { c } else { of.k - 1 };
        let at = of.k + component * of.d + j;
        // SAFETY: component and feature exist.
        let (weight, mean, variance, [shift, scale, inverse]) = {
            let frame = |i: usize| load(args.mixtures.add(i * of.d + j));
            let [mean, variance] = [at, at + of.k * of.d].map(|at| load(of.from.add(at)));
            (of.weight(c), mean, variance, [frame(0), frame(1), frame(2)])
        };
        let s = ((ROOT_HALF_LOG2_E * reciprocal_root(variance) * inverse) as f32) as f64;
        let m = (shift - mean) * scale * s;
        let fits = REACH * s + abs(m) <= args.max_deviation && s >= f32::MIN_POSITIVE as f64 && variance >= SMALLEST;
        let is_there = feature.is_some() && weight > 0.0;
        let used = is_there && fits;
        Self {
            weight,
            s: if used { s } else { 0.0 },
            m: if used { (m as f32) as f64 } else { 0.0 },
            fits: fits || !is_there,
        }
    }

    /// log₂ of the component's weight and of the product of its scales; ∞ if float32 cannot hold its parameters, and
    /// the lowest number without weight. All lanes of the warp take part.
    #[inline(always)]
    pub(super) fn constant(self) -> f64 {
        // Only one logarithm: exponents are added apart from the mantissas, which are from 1 to 2.
        let s = if self.s > 0.0 { self.s } else { 1.0 };
        let mantissas = join_over(s * power_of_two(-exponent(s)), OF_WARP, |a, b| a * b);
        let exponents = warp_add(exponent(s));
        let misfit = warp_any(!self.fits);
        if self.weight == 0.0 {
            f64::MIN
        } else if misfit || self.weight < SMALLEST {
            f64::INFINITY
        } else {
            let of_weight = exponent(self.weight);
            float64::log2(mantissas * self.weight * power_of_two(-of_weight)) + (exponents + of_weight) as f64
        }
    }
}

/// s and m of a lane's feature of a component of the reference and of the set.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) reference_s: f64,
    pub(super) reference_m: f64,
    pub(super) s: f64,
    pub(super) m: f64,
}

/// The exponent of the set less the reference's for a feature, a·x² + b·x + c, with t² expanded for both.
pub(super) struct Difference {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) c: f64,
}

impl Pair {
    #[inline(always)]
    pub(super) fn difference(&self) -> Difference {
        let Self { reference_s, reference_m, s, m } = *self;
        let (scales, shifts) = (reference_s - s, reference_m - m);
        Difference {
            a: scales * (reference_s + s),
            b: 2.0 * (scales * reference_m + s * shifts),
            c: shifts * (reference_m + m),
        }
    }
}
