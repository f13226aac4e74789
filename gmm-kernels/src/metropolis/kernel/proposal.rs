//! Computes the parameters of the likelihood, and the prior, from the coordinates of a proposal.
use super::*;
use crate::math::float64::{exp2, log2};
use crate::math::{Float, sum_over};

/// Whether x rounded to float32, and its reach, are finite; the host checks the same.
#[inline(always)]
fn in_range(s: f32, m: f64) -> bool {
    const MAX_DEVIATION: f64 = (1u64 << 56) as f64;
    let m = if m < 0.0 { -m } else { m };
    16.0 * s as f64 + m <= MAX_DEVIATION && s >= f32::MIN_POSITIVE
}

/// log₂(rounded / exact) of a number and its rounding.
#[inline(always)]
fn log2_of_rounding(exact: f64, rounded: f32) -> f64 {
    // The difference is exact; for so small a fraction a float32 inverse and two terms of the series suffice.
    let e = (rounded as f64 - exact) * reciprocal(rounded) as f64;
    (e + 0.5 * e * e) * LOG2_E
}

/// Lanes of a component; a warp has [`COMPONENTS`] components.
const LANES: u32 = WARP / COMPONENTS as u32;
/// The bits of a lane's number within its component, and of the component.
const WITHIN: u32 = LANES - 1;
const ACROSS: u32 = WARP - LANES;

/// A warp computes the parameters of proposal t + 1, as the likelihood reads them, for one outcome of the decision on
/// proposal t. [`LANES`] lanes share a component. The formulae are those of the host's `DeviceParameters`.
struct Proposal<'a, const D: usize> {
    args: &'a MetropolisArgs,
    point: Shared<f64>,
    /// Steps t and t + 1.
    present: Shared<f64>,
    next: Shared<f64>,
    /// Whether proposal t counts as accepted.
    accepted: bool,
    /// The lane's component, and its number among the component's lanes.
    component: usize,
    lane: usize,
}

/// The sums over the features of a component.
struct FeatureSums {
    log2_scales: f64,
    log_prior: f64,
    in_range: bool,
}

impl<const D: usize> Proposal<'_, D> {
    /// Coordinate `i` of the proposal.
    /// Safety: the coordinate exists; point and steps are in shared memory.
    #[inline(always)]
    unsafe fn at(&self, i: usize) -> f64 {
        let x = self.point.get(i);
        (if self.accepted { x + self.present.get(i) } else { x }) + self.next.get(i)
    }

    /// Number `i` of [`MetropolisArgs::terms`].
    /// Safety: the number exists.
    #[inline(always)]
    unsafe fn term(&self, i: usize) -> f64 {
        load(self.args.terms.add(i))
    }

    /// The place of the terms of columns; below, of components.
    #[inline(always)]
    fn terms_of_columns(&self) -> usize {
        self.args.k as usize * D * FEATURE_TERMS
    }
    #[inline(always)]
    fn terms_of_components(&self) -> usize {
        self.terms_of_columns() + D * COLUMN_TERMS
    }

    /// log₂ πₖ = log₂ zₖ + Σ_{i<k} log₂ (1 − zᵢ), zᵢ = 1 / (1 + e^−tᵢ), for the lane's component. All lanes take part.
    /// Safety: as for [`Self::at`] and [`Self::term`].
    #[inline(always)]
    unsafe fn log2_weight(&self) -> f64 {
        let mut log2_weight = 0.0;
        let mut i = self.lane;
        while i + 1 < self.args.k as usize {
            let t = self.at(i) - self.term(self.terms_of_components() + i * COMPONENT_TERMS + 1);
            let x = LOG2_E * t;
            let size = if x < 0.0 { -x } else { x };
            // −log₂ z is `rest` if x > 0, otherwise `rest` − x; −log₂(1 − z) is `rest` + x if x > 0, otherwise `rest`.
            let rest = log2(1.0 + exp2(-size));
            log2_weight -= if i < self.component {
                if x > 0.0 { x + rest } else { rest }
            } else if i == self.component {
                if x < 0.0 { rest - x } else { rest }
            } else {
                0.0
            };
            i += LANES as usize;
        }
        sum_over(log2_weight, WITHIN)
    }

    /// Writes s and m of the lane's features to `components`, the place of its component, and adds up everything else
    /// that depends on them. `present`: whether the component exists.
    /// Safety: as for [`Self::at`] and [`Self::term`]; only this lane uses its places.
    #[inline(always)]
    unsafe fn features(&self, components: Shared<f32>, present: bool) -> FeatureSums {
        let (args, k, c) = (self.args, self.args.k as usize, self.component);
        let mut sums = FeatureSums { log2_scales: 0.0, log_prior: 0.0, in_range: true };
        counted!(for f in 0..D.div_ceil(LANES as usize) {
            let j = f * LANES as usize + self.lane;
            if present && j < D {
                // SAFETY: coordinates and terms of the feature; a place for the component.
                let feature = c * D + j;
                let mean = self.at(k - 1 + feature);
                let log_scale = self.at(k - 1 + k * D + if args.spherical { c } else { feature });
                let column = self.terms_of_columns() + j * COLUMN_TERMS;
                let unit = self.term(column);
                // s = unit / σ, and log₂ of s as rounded. (If the power is out of bounds, so is s.)
                let power = -LOG2_E * log_scale;
                let over_scale = exp2(if power > 1000.0 { 1000.0 } else { power });
                let exact = unit * over_scale;
                let s = exact as f32;
                sums.log2_scales += power + self.term(column + 1) + log2_of_rounding(exact, s);
                let m = (self.term(column + 2) - mean) * self.term(column + 3) * s as f64;
                sums.in_range &= in_range(s, m);
                components.set(2 * j, s);
                components.set(2 * j + 1, m as f32);
                let prior = feature * FEATURE_TERMS;
                let deviation = mean - self.term(prior);
                let over_variance = over_scale * over_scale;
                let precision = fma64(self.term(prior + 2), over_variance, self.term(prior + 1));
                sums.log_prior -= 0.5 * deviation * deviation * precision;
                if j == 0 || !args.spherical {
                    sums.log_prior += self.term(prior + 3) * log_scale - self.term(prior + 4) / over_variance;
                    sums.log_prior -= self.term(prior + 5) * over_variance;
                }
            }
        });
        sums
    }
}

/// Splits each component's constant log₂ c into a part common to all components, a weight in float32, and a seed: c =
/// 2^common · weight · 2^seed. All lanes take part; those of a component have the same constant.
#[inline(always)]
fn split_constant(constant: f64) -> (f64, f32, f32) {
    let mut common = constant;
    let mut mask = LANES;
    while mask < WARP {
        let other = common.shuffle_xor(mask);
        common = if other > common { other } else { common };
        mask *= 2;
    }
    let relative = constant - common;
    const LEAST: f64 = -60.0;
    let factored = if relative > LEAST { relative } else { LEAST };
    let exact = exp2(factored);
    let weight = exact as f32;
    let seed = relative - factored - log2_of_rounding(exact, weight);
    (common, weight, seed as f32)
}

/// Computes the parameters of proposal t + 1, and its record, in case proposal t is `accepted` or not.
/// Safety: all lanes of a warp call it. Point and steps t (if `accepted`) and t + 1 are in shared memory; no other
/// thread uses the components and the record of this case.
#[inline(always)]
pub(super) unsafe fn propose<const D: usize, const ROW: usize>(
    args: &MetropolisArgs,
    layout: SharedLayout,
    t: u32,
    accepted: bool,
) {
    let k = args.k as usize;
    let width = step_width(dim(k, D, args.spherical));
    let lane = thread_idx() % WARP;
    let proposal = Proposal::<D> {
        args,
        point: Shared::<f64>::at(layout.point),
        present: step(layout, width, t),
        next: step(layout, width, t + 1),
        accepted,
        component: (lane / LANES) as usize,
        lane: (lane % LANES) as usize,
    };
    let (c, present) = (proposal.component, proposal.component < k);
    let components = Shared::<f32>::at(layout.components).offset(accepted as usize * COMPONENTS * ROW + c * ROW);
    // SAFETY: there is a place for the component.
    let log2_weight = proposal.log2_weight();
    let FeatureSums { log2_scales, mut log_prior, in_range } = proposal.features(components, present);
    let log2_scales = sum_over(log2_scales, WITHIN);
    if present && proposal.lane == 0 {
        log_prior += proposal.term(proposal.terms_of_components() + c * COMPONENT_TERMS) * LN_2 * log2_weight;
    }
    let log_prior = sum_over(log_prior, WITHIN | ACROSS);
    let (common, weight, seed) = split_constant(if present { log2_weight + log2_scales } else { f64::MIN });
    if present && proposal.lane == 0 {
        components.set(2 * D, weight);
        components.set(2 * D + 1, seed);
    }
    let base = fma64(args.n_ln_2, common, log_prior + args.constant);
    let good = !warp_any(!in_range) && base > f64::MIN && base < f64::MAX;
    if lane == 0 {
        let place = if accepted { record::AFTER_ACCEPTANCE } else { record::AFTER_REJECTION };
        Shared::<f64>::at(layout.record).set(place, if good { base } else { f64::NEG_INFINITY });
    }
}
