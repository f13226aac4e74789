//! The code of `batch_parameters`.
use super::super::batch_mma::{
    FEATURE_SCALE, FEATURES, ONE, SETS, SQUARE_SCALE, STEP_SIZE, reference_row, steps, weights_size,
};
use super::*;
use crate::math::{REACH, ROOT_HALF_LOG2_E, float64, join_over, sum_over, weight_and_seed};
use crate::simt::*;
use core::f64::consts::LOG2_E;

/// Places of a step: its features, and the number one.
const SLOTS: usize = FEATURES + 1;
/// What the kernels multiply a feature, its square, and the number one by.
const FEATURE: f64 = FEATURE_SCALE as f64;
const SQUARE: f64 = SQUARE_SCALE as f64;
const ONE_SCALED: f64 = FEATURE * ONE as f64;
/// A set's largest coefficient comes to between 2^13 and 2^14, so that rounding does not bring it
/// to 2^15.
const LARGEST: i32 = 13;
/// log₂e / 2: the square of s·σ.
const UNIT: f64 = LOG2_E / 2.0;
/// For log₂ of it, a number is normal.
const SMALLEST: f64 = f64::MIN_POSITIVE;

#[inline(always)]
fn abs(v: f64) -> f64 {
    if v < 0.0 { -v } else { v }
}

/// The larger of two; the second if the first is NaN.
#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// The lanes of a step, and of the warp, by the bits in which they differ.
const OF_STEP: u32 = SLOTS as u32 - 1;
const OF_WARP: u32 = WARP - 1;

/// What two float16 numbers hold of a number of at most 2^15: 22 digits, and none below 2^-24.
#[inline(always)]
fn round(v: f64) -> f64 {
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
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + BIAS) as u64) << FRACTION)
}

/// Bits of a float64's fraction, and the exponent field of one.
const FRACTION: u32 = 52;
const BIAS: i32 = 1023;

/// ⌊log₂ v⌋ of a positive normal v.
#[inline(always)]
fn exponent(v: f64) -> i32 {
    (v.to_bits() >> FRACTION) as i32 - BIAS
}

/// [`LARGEST`] − ⌊log₂ v⌋ for a positive normal v, but at least −60 and at most 60: far from the
/// ends of float32.
#[inline(always)]
fn scale_exponent(v: f64) -> i32 {
    let exponent = LARGEST - exponent(v);
    let exponent = if exponent < -60 { -60 } else { exponent };
    if exponent > 60 { 60 } else { exponent }
}

/// 1 / √x for a positive normal x, to 2⁻⁴⁰ of it.
#[inline(always)]
fn reciprocal_root(x: f64) -> f64 {
    let half = exponent(x) >> 1;
    // From 1 to 4.
    let rest = f64::from_bits(x.to_bits().wrapping_sub(((2 * half as i64) << FRACTION) as u64));
    let y = exp2(-0.5 * log2(rest as f32)) as f64;
    // A step of Newton's doubles the digits of float32.
    let y = fma64(0.5 * y, fma64(-rest * y, y, 1.0), y);
    y * power_of_two(-half)
}

/// 1 / s² for a positive normal number of float32 of at most 2⁵⁶, to 2⁻⁴⁰ of it.
#[inline(always)]
fn reciprocal_square(s: f64) -> f64 {
    let y = reciprocal(s as f32) as f64;
    let y = fma64(y, fma64(-s, y, 1.0), y);
    y * y
}

/// A mixture, as the host wrote it.
#[derive(Clone, Copy)]
struct Numbers {
    from: *const f64,
    k: usize,
    d: usize,
}

impl Numbers {
    /// The reference, and the sets behind it.
    #[inline(always)]
    fn of(args: &BatchParametersArgs, i: usize) -> Self {
        let (k, d) = (args.k as usize, args.d as usize);
        Self { from: args.mixtures.wrapping_add(FRAME * d + i * mixture_size(k, d)), k, d }
    }

    /// The weight of a component; 0 behind K.
    ///
    /// # Safety
    /// As the kernel's.
    #[inline(always)]
    unsafe fn weight(self, c: usize) -> f64 {
        // SAFETY: the component exists.
        if c < self.k { unsafe { load(self.from.add(c)) } } else { 0.0 }
    }
}

/// s and m of a lane's feature of a component; zeros where there is no feature, and for a component
/// without weight.
#[derive(Clone, Copy)]
struct Scaled {
    /// The component's weight.
    weight: f64,
    s: f64,
    m: f64,
    /// Whether float32 holds them.
    fits: bool,
}

impl Scaled {
    /// # Safety
    /// `feature` exists, if there is one.
    #[inline(always)]
    unsafe fn new(args: &BatchParametersArgs, of: Numbers, c: usize, feature: Option<usize>) -> Self {
        // Everything is read at once, the last component's or the first feature's numbers where
        // there are none.
        let j = feature.unwrap_or(0);
        let component = if c < of.k { c } else { of.k - 1 };
        let at = of.k + component * of.d + j;
        // SAFETY: component and feature exist.
        let (weight, mean, variance, [shift, scale, inverse]) = unsafe {
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

    /// log₂ of the component's weight and of the product of its scales; ∞ where float32 does not
    /// hold its parameters, and the lowest number where it has no weight. All lanes of the warp
    /// take part.
    #[inline(always)]
    fn constant(self) -> f64 {
        // With one logarithm: exponents and mantissas, from 1 to 2, apart.
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
struct Pair {
    reference_s: f64,
    reference_m: f64,
    s: f64,
    m: f64,
}

/// What has to be added to the reference's exponent for a feature: a·x² + b·x + c, where t² is
/// expanded for both.
struct Difference {
    a: f64,
    b: f64,
    c: f64,
}

impl Pair {
    #[inline(always)]
    fn difference(&self) -> Difference {
        let Self { reference_s, reference_m, s, m } = *self;
        let (scales, shifts) = (reference_s - s, reference_m - m);
        Difference {
            a: scales * (reference_s + s),
            b: 2.0 * (scales * reference_m + s * shifts),
            c: shifts * (reference_m + m),
        }
    }
}

/// A block's set, and the thread's place.
#[derive(Clone, Copy)]
struct SetBlock<'a> {
    args: &'a BatchParametersArgs,
    reference: Numbers,
    set: Numbers,
    lane: usize,
    warp: usize,
    /// The lane's step, and its place there.
    step: usize,
    slot: usize,
    /// The lane's feature.
    feature: Option<usize>,
    /// (4, 8·⌈K / 8⌉): log₂ of the components' constants, of the reference and the set; their
    /// largest coefficients; and what they lose.
    bounds: Shared<f64>,
    /// (8·⌈K / 8⌉, 4): w and the seed of the reference and the set.
    weights: Shared<f32>,
    /// (8·⌈K / 8⌉, 32, 4): what a lane has of a [`Pair`].
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

    /// Components, in octets.
    #[inline(always)]
    fn components(self) -> usize {
        self.reference.k.next_multiple_of(COMPONENTS)
    }

    /// Computes what the lane has of a component, and log₂ of the component's constants.
    #[inline(always)]
    unsafe fn scale(self, c: usize) {
        // SAFETY: the lane's feature exists; this warp alone writes the component's numbers.
        unsafe {
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
    }

    /// # Safety
    /// [`scale`](Self::scale) was called for the component by this warp.
    #[inline(always)]
    unsafe fn pair(self, c: usize) -> Pair {
        // SAFETY: the caller guarantees it.
        let [reference_s, reference_m, s, m] =
            unsafe { self.pairs.get4(4 * (WARP as usize * c + self.lane)) }.map(|v| v as f64);
        Pair { reference_s, reference_m, s, m }
    }

    /// The largest of the constants of the reference (0) or the set (1).
    #[inline(always)]
    unsafe fn offset(self, of: usize) -> f64 {
        let mut most = f64::MIN;
        counted!(for c in (self.lane..self.components()).step_by(WARP as usize) {
            // SAFETY: written before the block met.
            most = larger(unsafe { self.bounds.get(of * self.components() + c) }, most);
        });
        join_over(most, OF_WARP, larger)
    }

    /// The weights and seeds of a component, its largest coefficient, or a number above it, and
    /// what it loses of a total.
    #[inline(always)]
    unsafe fn bound(self, c: usize, offsets: [f64; 2]) {
        let components = self.components();
        // SAFETY: numbers of the component, the constants written before the block met.
        let (pair, constants) = unsafe { (self.pair(c), [self.bounds.get(c), self.bounds.get(components + c)]) };
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
        // The constant for the rounded coefficients is a little larger.
        let most = larger(join_over(of_feature, OF_WARP, larger), 2.0 * constants / ONE_SCALED);
        let squares = sum_over(square, OF_WARP);
        // SAFETY: places of the component, which this warp alone writes.
        unsafe {
            let [of_reference, of_set] = [self.reference.weight(c), self.set.weight(c)];
            let loss = if of_reference == 0.0 {
                // The reference has no exponent where it has no weight.
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
    }

    /// Writes a component of the set to its place among four: zeros, and the reference's weight,
    /// unless it is `near`.
    ///
    /// The rounded coefficients are those of a Gaussian with a slightly other mean and deviation:
    /// of −s²·x² − 2·s·m·x the constant is −m² = −(2·s·m)² / (4·s²), and its change follows from
    /// those of the two coefficients.
    #[inline(always)]
    unsafe fn write(self, c: usize, exponent: i32, near: bool) {
        let d = self.args.d as usize;
        // SAFETY: written by this warp.
        let (pair, [reference_w, reference_seed, w, seed]) = unsafe { (self.pair(c), self.weights.get4(4 * c)) };
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
            // Over s² − change_a. The share of s² is at most some 2⁻²², its square below the
            // roundings.
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
        // SAFETY: places of the set among the coefficients and weights, which this warp alone
        // writes.
        unsafe {
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
    }

    /// Writes a component of the reference.
    #[inline(always)]
    unsafe fn write_reference(self, c: usize, pair: &Pair, seed: f32) {
        let d = self.args.d as usize;
        let row = self.args.reference.wrapping_add(c * reference_row(d));
        // SAFETY: the row of the component, which this warp alone writes.
        unsafe {
            if self.step < steps(d) {
                store2(row.add(2 * self.lane), [pair.reference_s as f32, pair.reference_m as f32]);
            }
            if self.lane == 0 {
                store4(row.add(2 * SLOTS * steps(d)), [seed, 0.0, 0.0, 0.0]);
            }
        }
    }

    /// # Safety
    /// As the kernel's.
    #[inline(always)]
    unsafe fn run(self) {
        let components = self.components();
        // SAFETY: components below `components`; what other warps wrote to shared memory is read
        // behind a meeting of all threads.
        unsafe {
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
}

kernel! {
    /// The parameters of near sets, of at most [`MAX_FEATURES`](crate::likelihood::batch_mma::MAX_FEATURES).
    pub unsafe fn batch_parameters(args: BatchParametersArgs) {
        // SAFETY: the caller guarantees it.
        unsafe { SetBlock::new(&args).run() };
    }
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
            // The rest of the number after its first 11 digits has at most 11.
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

    /// One step of Newton's from float32.
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
