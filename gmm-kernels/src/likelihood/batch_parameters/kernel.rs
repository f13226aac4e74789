mod arithmetic;
mod scaled;

use super::super::batch_mma::{
    FEATURE_SCALE, FEATURES, ONE, SETS, SQUARE_SCALE, STEP_SIZE, reference_row, steps, weights_size,
};
use super::*;
use crate::math::{join_over, sum_over, weight_and_seed};
use crate::simt::*;
use arithmetic::*;
use core::f64::consts::LOG2_E;
use scaled::*;

/// Places of a step: its features, and the number one.
const SLOTS: usize = FEATURES + 1;
/// The kernels' factors of a feature, its square, and the number one.
const FEATURE: f64 = FEATURE_SCALE as f64;
const SQUARE: f64 = SQUARE_SCALE as f64;
const ONE_SCALED: f64 = FEATURE * ONE as f64;
/// log₂e / 2: the square of s·σ.
const UNIT: f64 = LOG2_E / 2.0;
/// The least number whose log₂ is taken: normal.
const SMALLEST: f64 = f64::MIN_POSITIVE;

/// Bits in which the lanes of a step, and of the warp, differ.
const OF_STEP: u32 = SLOTS as u32 - 1;
const OF_WARP: u32 = WARP - 1;

/// A block's set, and the thread's place.
#[derive(Clone, Copy)]
struct SetBlock<'a> {
    args: &'a BatchParametersArgs,
    reference: Numbers,
    set: Numbers,
    lane: usize,
    warp: usize,
    /// The lane's step, and its place in the step.
    step: usize,
    slot: usize,
    /// The lane's feature.
    feature: Option<usize>,
    /// (4, 8·⌈K / 8⌉): log₂ of the components' constants (reference, set), largest coefficients, and losses.
    bounds: Shared<f64>,
    /// (8·⌈K / 8⌉, 4): w and the seed of the reference and the set.
    weights: Shared<f32>,
    /// (8·⌈K / 8⌉, 32, 4): a lane's part of a [`Pair`].
    pairs: Shared<f32>,
}

impl<'a> SetBlock<'a> {
    #[inline(always)]
    fn new(args: &'a BatchParametersArgs) -> Self {
        let d = args.d as usize;
        let (lane, warp) = ((thread_idx() % WARP) as usize, (thread_idx() / WARP) as usize);
        let (step, slot) = (lane / SLOTS, lane % SLOTS);
        let feature = step * FEATURES + slot;
        let place = block_idx();
        let components = (args.k as usize).next_multiple_of(COMPONENTS);
        let weights = Shared::at(4 * size_of::<f64>() * components);
        Self {
            args,
            reference: Numbers::of(args, 0),
            set: Numbers::of(args, if place < args.sets { place as usize + 1 } else { 0 }),
            lane,
            warp,
            step,
            slot,
            feature: if slot < FEATURES && feature < d { Some(feature) } else { None },
            bounds: Shared::at(0),
            weights,
            pairs: weights.offset(4 * components),
        }
    }

    /// Components, rounded up to whole octets.
    #[inline(always)]
    fn components(self) -> usize {
        self.reference.k.next_multiple_of(COMPONENTS)
    }

    /// Computes the lane's numbers of a component, and log₂ of the component's constants.
    #[inline(always)]
    unsafe fn scale(self, c: usize) {
        // SAFETY: the lane's feature exists; only this warp writes the component's numbers.
        let reference = Scaled::new(self.args, self.reference, c, self.feature);
        let set = Scaled::new(self.args, self.set, c, self.feature);
        let pair = [reference.s, reference.m, set.s, set.m].map(|v| v as f32);
        self.pairs.set4(4 * (WARP as usize * c + self.lane), pair);
        let [of_reference, of_set] = [reference.constant(), set.constant()];
        if self.lane == 0 {
            self.bounds.set(c, of_reference);
            self.bounds.set(self.components() + c, of_set);
        }
    }

    /// Safety: this warp has called [`scale`](Self::scale) for the component.
    #[inline(always)]
    unsafe fn pair(self, c: usize) -> Pair {
        let [reference_s, reference_m, s, m] = self.pairs.get4(4 * (WARP as usize * c + self.lane)).map(|v| v as f64);
        Pair { reference_s, reference_m, s, m }
    }

    /// The largest of the constants of the reference (0) or the set (1).
    #[inline(always)]
    unsafe fn offset(self, of: usize) -> f64 {
        let mut most = f64::MIN;
        counted!(for c in (self.lane..self.components()).step_by(WARP as usize) {
            // SAFETY: written before the block met.
            most = larger(self.bounds.get(of * self.components() + c), most);
        });
        join_over(most, OF_WARP, larger)
    }

    /// Computes the weights and seeds of a component, an upper bound of its coefficients, and its loss of a total.
    #[inline(always)]
    unsafe fn bound(self, c: usize, offsets: [f64; 2]) {
        let components = self.components();
        // SAFETY: numbers of the component, the constants written before the block met.
        let (pair, constants) = (self.pair(c), [self.bounds.get(c), self.bounds.get(components + c)]);
        // Both are 0 for a component without weight.
        let (reference_w, reference_seed) = weight_and_seed(constants[0] - offsets[0]);
        let (w, seed) = weight_and_seed(constants[1] - offsets[1]);
        let Difference { a, b, c: constant } = pair.difference();
        let of_feature = larger(abs(b) / FEATURE, abs(a) / SQUARE);
        let m2 = pair.m * pair.m;
        let square = if pair.s > 0.0 {
            let of_s2 = reciprocal_square(pair.s);
            let a = a * of_s2;
            a * a * (3.0 * UNIT * UNIT + 6.0 * UNIT * m2 + m2 * m2) + b * b * (UNIT + m2) * of_s2 + constant * constant
        } else {
            0.0
        };
        let constants = abs(seed as f64 - reference_seed as f64) + sum_over(abs(constant), OF_WARP);
        // The constant for the rounded coefficients is slightly larger.
        let most = larger(join_over(of_feature, OF_WARP, larger), 2.0 * constants / ONE_SCALED);
        let squares = sum_over(square, OF_WARP);
        // SAFETY: places of the component, which only this warp writes.
        let [of_reference, of_set] = [self.reference.weight(c), self.set.weight(c)];
        let loss = if of_reference == 0.0 {
            // Without weight the reference has no exponent.
            f64::INFINITY
        } else if squares < SMALLEST {
            0.0
        } else {
            larger(of_reference, of_set) * squares * reciprocal_root(squares) * self.args.loss
        };
        if self.lane == 0 {
            self.bounds.set(2 * components + c, if of_set == 0.0 { 0.0 } else { most });
            self.bounds.set(3 * components + c, if of_set == 0.0 { 0.0 } else { loss });
            self.weights.set4(4 * c, [reference_w, reference_seed, w, seed]);
        }
    }

    /// Writes a component of the set to its place among four; unless `near`, zeros and the reference's weight.
    ///
    /// The rounded coefficients belong to a Gaussian with a slightly different mean and deviation. The constant for
    /// −s²·x² − 2·s·m·x is −m² = −(2·s·m)² / (4·s²); its change follows from the changes of the two coefficients.
    #[inline(always)]
    unsafe fn write(self, c: usize, exponent: i32, near: bool) {
        let d = self.args.d as usize;
        // SAFETY: written by this warp.
        let (pair, [reference_w, reference_seed, w, seed]) = (self.pair(c), self.weights.get4(4 * c));
        let (w, seeds) = (if near { w } else { reference_w }, seed as f64 - reference_seed as f64);
        let Difference { a, b, c: constant } = pair.difference();
        let Pair { s, m, .. } = pair;
        // Powers of two: exact.
        let [power, inverse] = [power_of_two(exponent), power_of_two(-exponent)];
        let [rounded_a, rounded_b] = [round(a * (power / SQUARE)), round(b * (power / FEATURE))];
        let (mut constant, mut change) = (constant, 0.0);
        if s > 0.0 {
            let change_a = rounded_a * (inverse * SQUARE) - a;
            let change_b = rounded_b * (inverse * FEATURE) - b;
            let linear = 2.0 * s * m;
            let moved = change_b * (2.0 * linear - change_b) / 4.0 - m * m * change_a;
            let of_s2 = reciprocal_square(s);
            change = change_a * of_s2;
            // Over s² − change_a. The change is at most some 2⁻²² of s², and its square is below the roundings.
            constant += moved * of_s2 * (1.0 + change);
        }
        // log₂ of the deviations' ratio, from the first two terms of its series.
        let ratio = sum_over(-change - change * change / 2.0, OF_WARP);
        let rest = if self.step == 0 { seeds + LOG2_E / 2.0 * ratio } else { 0.0 };
        let digits = (sum_over(constant, OF_STEP) + rest) * power / ONE_SCALED;
        let first = round(digits);
        let mut values = if self.slot == FEATURES { [first, round(digits - first)] } else { [rounded_b, rounded_a] };
        if !near || w == 0.0 {
            values = [0.0, 0.0];
        }
        let (bundle, place) = (block_idx() as usize / SETS, block_idx() as usize % SETS);
        let (octets, steps) = (self.components() / COMPONENTS, steps(d));
        let (octet, tile, column) = (c / COMPONENTS, c % COMPONENTS / 2, 2 * place + c % 2);
        // SAFETY: places of the set among the coefficients and weights, which only this warp writes.
        if self.step < steps {
            let of_step = ((bundle * octets + octet) * steps + self.step) * STEP_SIZE;
            let at = of_step + 128 * tile + 16 * column + 4 * (self.slot % 4) + 2 * (self.slot / 4);
            store2(self.args.coefficients.add(at), [values[0] as f32, values[1] as f32]);
        }
        if block_idx() == 0 {
            self.write_reference(c, &pair, reference_seed);
        }
        if self.lane == 0 {
            let of_bundle = bundle * weights_size(octets);
            let at = of_bundle + (octet * SETS + place) * COMPONENTS + c % COMPONENTS;
            store(self.args.weights.add(at), w);
            if c == 0 {
                let at = of_bundle + octets * SETS * COMPONENTS + place;
                store(self.args.weights.add(at), inverse as f32);
            }
        }
    }

    /// Writes a component of the reference.
    #[inline(always)]
    unsafe fn write_reference(self, c: usize, pair: &Pair, seed: f32) {
        let d = self.args.d as usize;
        let row = self.args.reference.wrapping_add(c * reference_row(d));
        // SAFETY: the row of the component, which only this warp writes.
        if self.step < steps(d) {
            store2(row.add(2 * self.lane), [pair.reference_s as f32, pair.reference_m as f32]);
        }
        if self.lane == 0 {
            store4(row.add(2 * SLOTS * steps(d)), [seed, 0.0, 0.0, 0.0]);
        }
    }

    /// Safety: as the kernel's.
    #[inline(always)]
    unsafe fn run(self) {
        let components = self.components();
        // SAFETY: components below `components`; a barrier separates a warp's write from another's read.
        counted!(for c in (self.warp..components).step_by(COMPONENTS) {
            self.scale(c);
        });
        barrier!();
        let offsets = [self.offset(0), self.offset(1)];
        let fits = offsets[0] < f64::INFINITY && offsets[1] < f64::INFINITY;
        counted!(for c in (self.warp..components).step_by(COMPONENTS) {
            self.bound(c, offsets);
        });
        barrier!();
        let (mut most, mut loss) = (SMALLEST, 0.0);
        counted!(for c in (self.lane..components).step_by(WARP as usize) {
            most = larger(self.bounds.get(2 * components + c), most);
            loss += self.bounds.get(3 * components + c);
        });
        let near = fits && sum_over(loss, OF_WARP) <= self.args.most;
        let most = join_over(most, OF_WARP, larger);
        let exponent = scale_exponent(if near { most } else { SMALLEST });
        counted!(for c in (self.warp..components).step_by(COMPONENTS) {
            self.write(c, exponent, near);
        });
        if thread_idx() == 0 && block_idx() < self.args.sets {
            let offset = if near { offsets[1] } else { f64::INFINITY };
            store(self.args.offsets.add(block_idx() as usize), offset);
        }
    }
}

kernel! {
    /// Computes the parameters of near sets, of at most [`MAX_FEATURES`](crate::likelihood::batch_mma::MAX_FEATURES).
    pub unsafe fn batch_parameters(args: BatchParametersArgs) {
        SetBlock::new(&args).run();
    }
}
