//! The code of `batch_parameters`.
use super::super::batch_tensor_cores::{
    FEATURE_SCALE, FEATURES, ONE, SETS, SQUARE_SCALE, STEP_SIZE, reference_row, steps, weights_size,
};
use super::*;
use crate::math::{Float, float64, weight_and_seed};
use crate::simt::*;
use core::f64::consts::LOG2_E;

/// Places of a step: its features, and the number one.
const SLOTS: usize = FEATURES + 1;
/// What the kernels multiply a feature, its square, and the number one by.
const FEATURE: f64 = FEATURE_SCALE as f64;
const SQUARE: f64 = SQUARE_SCALE as f64;
const ONE_SCALED: f64 = FEATURE * ONE as f64;
/// A set's largest coefficient comes to between 2^13 and 2^14, so that rounding does not bring it to 2^15.
const LARGEST: i32 = 13;
/// |x| is below it in the frame.
const REACH: f64 = 16.0;
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

/// What `join` makes of the values of `lanes` neighbouring lanes, a power of two, in each of them. All lanes of the warp take part.
#[inline(always)]
fn of_lanes(mut v: f64, lanes: u32, join: impl Fn(f64, f64) -> f64) -> f64 {
    let mut mask = 1;
    while mask < lanes {
        v = join(v, v.shuffle_xor(mask));
        mask *= 2;
    }
    v
}

#[inline(always)]
fn sum(v: f64, lanes: u32) -> f64 {
    of_lanes(v, lanes, |a, b| a + b)
}

#[inline(always)]
fn largest(v: f64) -> f64 {
    of_lanes(v, WARP, larger)
}

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

/// 2^([`LARGEST`] − ⌊log₂ v⌋) for a positive normal v, not below 2^-60 nor above 2^60: far from the ends of float32.
#[inline(always)]
fn power(v: f64) -> f64 {
    let exponent = LARGEST - ((v.to_bits() >> 52) as i32 - 1023);
    let exponent = if exponent < -60 { -60 } else { exponent };
    let exponent = if exponent > 60 { 60 } else { exponent };
    f64::from_bits(((exponent + 1023) as u64) << 52)
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

    /// # Safety
    /// The component exists.
    #[inline(always)]
    unsafe fn weight(self, c: usize) -> f64 {
        // SAFETY: the caller guarantees it.
        unsafe { load(self.from.add(c)) }
    }
}

/// s and m of a lane's feature of a component; zeros where there is no feature, and for a component without weight.
#[derive(Clone, Copy)]
struct Scaled {
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
        let none = Self { s: 0.0, m: 0.0, fits: true };
        let Some(j) = feature else { return none };
        if c >= of.k {
            return none;
        }
        // SAFETY: component and feature exist.
        unsafe {
            if of.weight(c) == 0.0 {
                return none;
            }
            let at = of.k + c * of.d + j;
            let frame = |i: usize| load(args.mixtures.add(i * of.d + j));
            let square = UNIT / load(of.from.add(at + of.k * of.d));
            // Outside, s is outside the range of float32.
            if !(1e-90..1e90).contains(&square) {
                return Self { fits: false, ..none };
            }
            let s = ((float64::sqrt(square) * frame(2)) as f32) as f64;
            let m = (frame(0) - load(of.from.add(at))) * frame(1) * s;
            let fits = REACH * s + abs(m) <= args.max_deviation && s >= f32::MIN_POSITIVE as f64;
            if fits { Self { s, m: (m as f32) as f64, fits } } else { Self { fits, ..none } }
        }
    }

    /// log₂ of s, and 0 where there is none.
    #[inline(always)]
    fn log2(self) -> f64 {
        if self.s > 0.0 { float64::log2(self.s) } else { 0.0 }
    }
}

/// A component of the reference and of the set.
#[derive(Clone, Copy)]
struct Pair {
    reference: Scaled,
    set: Scaled,
}

/// What has to be added to the reference's exponent for a feature: a·x² + b·x + c, where t² is expanded for both.
struct Difference {
    a: f64,
    b: f64,
    c: f64,
}

impl Pair {
    #[inline(always)]
    fn difference(&self) -> Difference {
        let (reference, set) = (self.reference, self.set);
        let (scales, shifts) = (reference.s - set.s, reference.m - set.m);
        Difference {
            a: scales * (reference.s + set.s),
            b: 2.0 * (scales * reference.m + set.s * shifts),
            c: shifts * (reference.m + set.m),
        }
    }
}

/// A block's set, and the thread's place.
#[derive(Clone, Copy)]
struct Block<'a> {
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
    /// (2, 8·⌈K / 8⌉): log₂ of the components' constants, of the reference and the set; and behind them
    /// (2, 8·⌈K / 8⌉): the components' largest coefficients, and what they lose.
    shared: Shared<f64>,
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn new(args: &'a BatchParametersArgs) -> Self {
        let d = args.d as usize;
        let (lane, warp) = ((thread_idx() % WARP) as usize, (thread_idx() / WARP) as usize);
        let (step, slot) = (lane / SLOTS, lane % SLOTS);
        let feature = step * FEATURES + slot;
        let place = block_idx();
        Self {
            args,
            reference: Numbers::of(args, 0),
            set: Numbers::of(args, if place < args.sets { place as usize + 1 } else { 0 }),
            lane,
            warp,
            step,
            slot,
            feature: if slot < FEATURES && feature < d { Some(feature) } else { None },
            shared: Shared::at(0),
        }
    }

    /// Components, in eights.
    #[inline(always)]
    fn components(self) -> usize {
        self.reference.k.next_multiple_of(COMPONENTS)
    }

    /// # Safety
    /// As the kernel's.
    #[inline(always)]
    unsafe fn pair(self, c: usize) -> Pair {
        // SAFETY: the lane's feature exists.
        unsafe {
            Pair {
                reference: Scaled::new(self.args, self.reference, c, self.feature),
                set: Scaled::new(self.args, self.set, c, self.feature),
            }
        }
    }

    /// log₂ of a component's weight and of the product of its scales; ∞ where float32 does not hold its parameters, and the lowest number where
    /// it has no weight.
    #[inline(always)]
    unsafe fn constant(self, of: Numbers, c: usize, scaled: Scaled) -> f64 {
        let log2 = sum(scaled.log2(), WARP);
        let misfit = warp_any(!scaled.fits);
        // SAFETY: asked for where the component exists.
        let weight = if c < of.k { unsafe { of.weight(c) } } else { 0.0 };
        if weight == 0.0 {
            f64::MIN
        } else if misfit || weight < SMALLEST {
            f64::INFINITY
        } else {
            float64::log2(weight) + log2
        }
    }

    /// The largest of the constants of the reference (0) or the set (1).
    #[inline(always)]
    unsafe fn offset(self, of: usize) -> f64 {
        let mut most = f64::MIN;
        let mut c = self.lane;
        while c < self.components() {
            // SAFETY: written before the block met.
            most = larger(unsafe { self.shared.get(of * self.components() + c) }, most);
            c += WARP as usize;
        }
        largest(most)
    }

    /// w and the seed of a component of the reference (0) or the set (1).
    #[inline(always)]
    unsafe fn weight_and_seed(self, of: usize, c: usize, offset: f64) -> (f32, f32) {
        // SAFETY: written before the block met.
        let constant = unsafe { self.shared.get(of * self.components() + c) };
        // Both are 0 for a component without weight.
        weight_and_seed(constant - offset)
    }

    /// The largest coefficient of a component, or a number above it; and what it loses of a total.
    #[inline(always)]
    unsafe fn bounds(self, c: usize, pair: &Pair, seeds: f64) -> [f64; 2] {
        let Difference { a, b, c: constant } = pair.difference();
        let of_feature = larger(abs(b) / FEATURE, abs(a) / SQUARE);
        let m2 = pair.set.m * pair.set.m;
        let square = if pair.set.s > 0.0 {
            let of_s2 = 1.0 / (pair.set.s * pair.set.s);
            let a = a * of_s2;
            a * a * (3.0 * UNIT * UNIT + 6.0 * UNIT * m2 + m2 * m2) + b * b * (UNIT + m2) * of_s2 + constant * constant
        } else {
            0.0
        };
        let constants = abs(seeds) + sum(abs(constant), WARP);
        // The constant for the rounded coefficients is a little larger.
        let most = larger(largest(of_feature), 2.0 * constants / ONE_SCALED);
        let squares = sum(square, WARP);
        if c >= self.set.k {
            return [0.0, 0.0];
        }
        // SAFETY: the component exists.
        let [of_reference, of_set] = unsafe { [self.reference.weight(c), self.set.weight(c)] };
        if of_set == 0.0 {
            return [0.0, 0.0];
        }
        // The reference has no exponent where it has no weight.
        let loss = if of_reference == 0.0 {
            f64::INFINITY
        } else if squares > 0.0 {
            larger(of_reference, of_set) * float64::sqrt(squares) * self.args.loss
        } else {
            0.0
        };
        [most, loss]
    }

    /// Writes a component of the set to its place among four: zeros, and the reference's weight, unless it is `near`.
    ///
    /// The rounded coefficients are those of a Gaussian with a slightly other mean and deviation: of −s²·x² − 2·s·m·x the constant is
    /// −m² = −(2·s·m)² / (4·s²), and its change follows from those of the two coefficients.
    #[inline(always)]
    unsafe fn write(self, c: usize, pair: &Pair, power: f64, seeds: f64, w: f32, near: bool) {
        let d = self.args.d as usize;
        let Difference { a, b, c: constant } = pair.difference();
        let Scaled { s, m, .. } = pair.set;
        // Powers of two: exact.
        let [rounded_a, rounded_b] = [round(a * (power / SQUARE)), round(b * (power / FEATURE))];
        let (mut constant, mut change) = (constant, 0.0);
        if s > 0.0 {
            let change_a = rounded_a * (SQUARE / power) - a;
            let change_b = rounded_b * (FEATURE / power) - b;
            let linear = 2.0 * s * m;
            let moved = change_b * (2.0 * linear - change_b) / 4.0 - m * m * change_a;
            constant += moved / (s * s - change_a);
            change = change_a / (s * s);
        }
        // log₂ of the deviations' ratio, from the first two terms of its series.
        let ratio = sum(-change - change * change / 2.0, WARP);
        let rest = if self.step == 0 { seeds + LOG2_E / 2.0 * ratio } else { 0.0 };
        let digits = (sum(constant, SLOTS as u32) + rest) * power / ONE_SCALED;
        let first = round(digits);
        let mut values =
            if self.slot == FEATURES { [first, round(digits - first)] } else { [rounded_b, rounded_a] };
        if !near || w == 0.0 {
            values = [0.0, 0.0];
        }
        let (four, place) = (block_idx() as usize / SETS, block_idx() as usize % SETS);
        let (eights, steps) = (self.components() / COMPONENTS, steps(d));
        let (eight, tile, column) = (c / COMPONENTS, c % COMPONENTS / 2, 2 * place + c % 2);
        // SAFETY: places of the set among the coefficients and weights, which this warp alone writes.
        unsafe {
            if self.step < steps {
                let of_step = ((four * eights + eight) * steps + self.step) * STEP_SIZE;
                let at = of_step + 128 * tile + 16 * column + 4 * (self.slot % 4) + 2 * (self.slot / 4);
                store2(self.args.coefficients.add(at), [values[0] as f32, values[1] as f32]);
            }
            if self.lane == 0 {
                let of_four = four * weights_size(eights);
                let at = of_four + (eight * SETS + place) * COMPONENTS + c % COMPONENTS;
                store(self.args.weights.add(at), w);
                if c == 0 {
                    let at = of_four + eights * SETS * COMPONENTS + place;
                    store(self.args.weights.add(at), (1.0 / power) as f32);
                }
            }
        }
    }

    /// Writes a component of the reference.
    #[inline(always)]
    unsafe fn write_reference(self, c: usize, scaled: Scaled, seed: f32) {
        let d = self.args.d as usize;
        let row = self.args.reference.wrapping_add(c * reference_row(d));
        // SAFETY: the row of the component, which this warp alone writes.
        unsafe {
            if self.step < steps(d) {
                store2(row.add(2 * self.lane), [scaled.s as f32, scaled.m as f32]);
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
        let (shared, components) = (self.shared, self.components());
        // SAFETY: components below `components`; shared memory is read behind a meeting of all threads after it was written.
        unsafe {
            // What the first eight have is kept: with up to eight components, everything is computed once.
            let first = self.pair(self.warp);
            let mut c = self.warp;
            while c < components {
                let pair = if c == self.warp { first } else { self.pair(c) };
                let of_reference = self.constant(self.reference, c, pair.reference);
                let of_set = self.constant(self.set, c, pair.set);
                if self.lane == 0 {
                    shared.set(c, of_reference);
                    shared.set(components + c, of_set);
                }
                c += COMPONENTS;
            }
            barrier!();
            let [of_reference, of_set] = [self.offset(0), self.offset(1)];
            let fits = of_reference < f64::INFINITY && of_set < f64::INFINITY;
            let mut c = self.warp;
            while fits && c < components {
                let pair = if c == self.warp { first } else { self.pair(c) };
                let (_, seed) = self.weight_and_seed(1, c, of_set);
                let (_, reference_seed) = self.weight_and_seed(0, c, of_reference);
                let [most, loss] = self.bounds(c, &pair, seed as f64 - reference_seed as f64);
                if self.lane == 0 {
                    shared.set(2 * components + c, most);
                    shared.set(3 * components + c, loss);
                }
                c += COMPONENTS;
            }
            barrier!();
            let (mut most, mut loss) = (SMALLEST, 0.0);
            let mut c = self.lane;
            while fits && c < components {
                most = larger(shared.get(2 * components + c), most);
                loss += shared.get(3 * components + c);
                c += WARP as usize;
            }
            let near = fits && sum(loss, WARP) <= self.args.most;
            let most = largest(most);
            let power = power(if near { most } else { SMALLEST });
            let mut c = self.warp;
            while c < components {
                let pair = if c == self.warp { first } else { self.pair(c) };
                let (reference_w, reference_seed) = self.weight_and_seed(0, c, of_reference);
                let (w, seed) = self.weight_and_seed(1, c, of_set);
                let seeds = seed as f64 - reference_seed as f64;
                self.write(c, &pair, power, seeds, if near { w } else { reference_w }, near);
                if block_idx() == 0 {
                    self.write_reference(c, pair.reference, reference_seed);
                }
                c += COMPONENTS;
            }
            if thread_idx() == 0 && block_idx() < self.args.sets {
                let offset = if near { of_set } else { f64::INFINITY };
                store(self.args.offsets.add(block_idx() as usize), offset);
            }
        }
    }
}

kernel! {
    /// The parameters of near sets.
    ///
    /// # Safety
    /// The pointers of `args` are valid for the sizes given, and D is at most
    /// [`MAX_FEATURES`](crate::likelihood::batch_tensor_cores::MAX_FEATURES); launched as the module says.
    pub unsafe fn batch_parameters(args: BatchParametersArgs) {
        // SAFETY: the caller guarantees it.
        unsafe { Block::new(&args).run() };
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
            assert!((8192.0..16384.0).contains(&(v * power(v))), "{v}");
        }
        assert_eq!((power(f64::MIN_POSITIVE), power(1e300)), (60f64.exp2(), (-60f64).exp2()));
    }
}
