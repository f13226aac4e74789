//! Parameters of `batch_tensor_cores`. Nothing here calls CUDA, so that it is tested on any machine.
use crate::backends::cuda::estep::tensor_cores_layout::larger;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::model::linalg::{side_by_side, sum_of, vectorised};
use gmm_kernels::likelihood::batch_tensor_cores::{
    COMPONENTS, FEATURE_SCALE, FEATURES, MAX_FEATURES, ONE, SETS, SQUARE_SCALE, STEP_SIZE, reference_row, steps,
    weights_size,
};
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// The most that a sum over a million samples, or more, may be expected to lose, in units of log₂. Over fewer samples it is less, as is the sum of
/// their independent roundings: by the square root of their number.
const TOTAL_ERROR: f64 = 0.02 * LOG2_E;
const MILLION: f64 = 1e6;
/// What the units lose of a sample's difference, as a share of the root of the sum of its products' squares. The largest product alone could lose
/// 2^-24 in each of a few sums; with this, the errors of totals are at most three quarters of what [`near`] allows (measured on an H200, 2026-11-22:
/// 28 random mixtures of D = 1 to 27, K = 1 to 16, components up to 12 deviations from the centre, N = 10⁶).
const TRUNCATED: f64 = 1.0 / (1u64 << 26) as f64;
/// A set's largest coefficient comes to between 2^13 and 2^14, so that rounding does not bring it to 2^15.
const LARGEST: f64 = 13.0;
/// What the kernel multiplies a feature, its square, and the number one by.
const FEATURE: f64 = FEATURE_SCALE as f64;
const SQUARE: f64 = SQUARE_SCALE as f64;
const ONE_SCALED: f64 = FEATURE * ONE as f64;

/// ⌈K / 8⌉.
pub(crate) fn eights(k: usize) -> usize {
    k.div_ceil(COMPONENTS)
}

/// ⌈sets / 4⌉.
pub(crate) fn fours(sets: usize) -> usize {
    sets.div_ceil(SETS)
}

/// The parameters of so many sets: the ranges of the coefficients, of the weights, and of the reference.
pub(crate) fn sections(k: usize, d: usize, sets: usize) -> [Range<usize>; 3] {
    let eights = eights(k);
    let mut start = 0;
    [
        fours(sets) * eights * steps(d) * STEP_SIZE,
        fours(sets) * weights_size(eights),
        eights * COMPONENTS * reference_row(d),
    ]
    .map(|length| {
        start += length;
        start - length..start
    })
}

/// The components of a set that have a weight.
fn components(parameters: &DeviceParameters<f32>) -> impl Iterator<Item = usize> + '_ {
    (0..parameters.n_components).filter(|c| parameters.weight[*c] > 0.0)
}

/// What has to be added to the reference's exponents for each feature of each component of a set, (K, D) each: a·x² + b·x + c, where t² is expanded
/// for both. Of components without weight: any numbers.
#[derive(Default)]
struct Differences {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    /// By how much [`round`](Self::round) has changed a, as a share of s².
    change: Vec<f64>,
}

impl Differences {
    /// Computes those of another set, in the same memory.
    fn compute(&mut self, reference: &DeviceParameters<f32>, set: &DeviceParameters<f32>) {
        let n = set.scale.len();
        for to in [&mut self.a, &mut self.b, &mut self.c] {
            to.resize(n, 0.0);
        }
        let (a, b, c) = (&mut self.a[..n], &mut self.b[..n], &mut self.c[..n]);
        let [reference_s, reference_m] = [&reference.scale[..n], &reference.shift[..n]];
        let [of_s, of_m] = [&set.scale[..n], &set.shift[..n]];
        vectorised(
            #[inline(always)]
            || {
                for i in 0..n {
                    let [s, m, of_s, of_m] = [reference_s[i], reference_m[i], of_s[i], of_m[i]].map(f64::from);
                    // As products, so that close parameters lose no digits.
                    let (scales, shifts) = (s - of_s, m - of_m);
                    a[i] = scales * (s + of_s);
                    b[i] = 2.0 * (scales * m + of_s * shifts);
                    c[i] = shifts * (m + of_m);
                }
            },
        );
    }

    /// The largest coefficient of the set, or a number above it.
    fn largest(&self, reference: &DeviceParameters<f32>, set: &DeviceParameters<f32>) -> f64 {
        let d = set.n_features;
        let most = |numbers: &[f64]| {
            side_by_side([numbers], 0.0, |most, [v]| larger(v.abs(), most)).into_iter().fold(0.0, larger)
        };
        let of_component = |k: usize| {
            let [a, b, c] = [&self.a, &self.b, &self.c].map(|of| &of[k * d..][..d]);
            let seeds = (f64::from(set.seed[k]) - f64::from(reference.seed[k])).abs();
            let constant = seeds + sum_of([c], |[c]| c.abs());
            // The constant for the rounded coefficients is a little larger.
            larger(most(b) / FEATURE, larger(most(a) / SQUARE, 2.0 * constant / ONE_SCALED))
        };
        components(set).map(of_component).fold(f64::MIN_POSITIVE, larger)
    }

    /// Replaces a and b by the coefficients times `power`, over the numbers by which the kernel multiplies a feature and its square, as two float16
    /// numbers hold them; and c by the constant that belongs to these.
    ///
    /// The rounded coefficients are those of a Gaussian with a slightly other mean and deviation: of −s²·x² − 2·s·m·x the constant is
    /// −m² = −(2·s·m)² / (4·s²), and its change follows from those of the two coefficients.
    fn round(&mut self, set: &DeviceParameters<f32>, power: f64) {
        let n = set.scale.len();
        self.change.resize(n, 0.0);
        let (a, b, c) = (&mut self.a[..n], &mut self.b[..n], &mut self.c[..n]);
        let (change, of_s, of_m) = (&mut self.change[..n], &set.scale[..n], &set.shift[..n]);
        // Powers of two: exact.
        let (to_a, to_b) = (power / SQUARE, power / FEATURE);
        let (from_a, from_b) = (1.0 / to_a, 1.0 / to_b);
        vectorised(
            #[inline(always)]
            || {
                for i in 0..n {
                    let [s, m] = [of_s[i], of_m[i]].map(f64::from);
                    let [rounded_a, rounded_b] = [round(a[i] * to_a), round(b[i] * to_b)];
                    let [change_a, change_b] = [rounded_a * from_a - a[i], rounded_b * from_b - b[i]];
                    let linear = 2.0 * s * m;
                    let moved = change_b * (2.0 * linear - change_b) / 4.0 - m * m * change_a;
                    c[i] += moved / (s * s - change_a);
                    change[i] = change_a / (s * s);
                    (a[i], b[i]) = (rounded_a, rounded_b);
                }
            },
        );
    }
}

/// Which of the sets the kernel can evaluate beside the reference, and keeps the digits of their totals over `n` samples. All have the same K and D.
///
/// The units truncate their sums, always to the same side, by a share of the largest product. Besides, splitting a feature and its square
/// into two float16 numbers costs up to 2^-22 of each product, with random signs. For the samples that a component explains, y = s·x has
/// the mean −m and the variance log₂e / 2 = u, so that the mean of y² is u + m², and that of y⁴ 3·u² + 6·u·m² + m⁴. Each component
/// counts with the samples that it explains.
pub(crate) fn near(reference: &DeviceParameters<f32>, sets: &[DeviceParameters<f32>], n: usize) -> Vec<bool> {
    let diagonal = |p: &DeviceParameters<f32>| matches!(p.matrices, Matrices::Diagonal);
    if reference.n_features > MAX_FEATURES || !diagonal(reference) {
        return vec![false; sets.len()];
    }
    let mut differences = Differences::default();
    let d = reference.n_features;
    let u = LOG2_E / 2.0;
    let random = 2f64.powi(-22);
    let n = n as f64;
    let (lost, most) = (TRUNCATED * n + random * n.sqrt(), TOTAL_ERROR * (n / MILLION).sqrt().min(1.0));
    let mut is_near = |set: &DeviceParameters<f32>| {
        differences.compute(reference, set);
        let Differences { a, b, c, .. } = &mut differences;
        vectorised(
            #[inline(always)]
            || {
                // The terms of the sums, in the memory of c.
                let of_set = set.scale.iter().zip(&set.shift);
                for (((a, b), c), (s, m)) in a.iter().zip(&*b).zip(&mut *c).zip(of_set) {
                    let [s, m] = [s, m].map(|v| f64::from(*v));
                    let (m2, of_s2) = (m * m, 1.0 / (s * s));
                    let a = a * of_s2;
                    *c = a * a * (3.0 * u * u + 6.0 * u * m2 + m2 * m2) + b * b * (u + m2) * of_s2 + *c * *c;
                }
            },
        );
        // Not above: vector instructions gain nothing in short rows.
        let loses = |k: usize| {
            let of_products = sum_of([&c[k * d..][..d]], |[square]| square);
            let known = if reference.weight[k] > 0.0 { 1.0 } else { f64::INFINITY };
            known * set.proportions[k].max(reference.proportions[k]) * of_products.sqrt() * lost
        };
        components(set).map(loses).sum::<f64>() <= most
    };
    sets.iter().map(|set| diagonal(set) && is_near(set)).collect()
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

/// Writes the parameters of the sets, which are near to the reference, in their sections. Places behind the last set get no components.
pub(crate) fn write(reference: &DeviceParameters<f32>, sets: &[DeviceParameters<f32>], out: &mut [f32]) {
    let (k, d) = (reference.n_components, reference.n_features);
    let [coefficients, weights, _] = sections(k, d, sets.len());
    out.fill(0.0);
    let (out, rest) = out.split_at_mut(coefficients.len());
    let (weights, to_reference) = rest.split_at_mut(weights.len());
    write_reference(reference, to_reference);
    let [of_four, weights_of_four, _] = sections(k, d, SETS).map(|section| section.len());
    let mut differences = Differences::default();
    let fours = out.chunks_exact_mut(of_four).zip(weights.chunks_exact_mut(weights_of_four));
    for (sets, (out, weights)) in sets.chunks(SETS).zip(fours) {
        for place in 0..SETS {
            // Behind the last set the reference: its likelihoods are no numbers too small for the fast path.
            write_set(&mut differences, [reference, sets.get(place).unwrap_or(reference)], place, out, weights);
        }
    }
}

fn write_reference(reference: &DeviceParameters<f32>, out: &mut [f32]) {
    let d = reference.n_features;
    for (c, row) in out.chunks_exact_mut(reference_row(d)).enumerate().take(reference.n_components) {
        for (j, (s, m)) in reference.scale[c * d..].iter().zip(&reference.shift[c * d..]).take(d).enumerate() {
            let place = j / FEATURES * (FEATURES + 1) + j % FEATURES;
            row[2 * place..][..2].copy_from_slice(&[*s, *m]);
        }
        row[2 * (FEATURES + 1) * steps(d)] = if reference.weight[c] > 0.0 { reference.seed[c] } else { 0.0 };
    }
}

/// Writes a set to its place among four.
fn write_set(
    differences: &mut Differences,
    [reference, set]: [&DeviceParameters<f32>; 2],
    place: usize,
    out: &mut [f32],
    weights: &mut [f32],
) {
    let (k, d) = (set.n_components, set.n_features);
    differences.compute(reference, set);
    // Far from the ends of float32, also where a set is the reference.
    let power = (LARGEST - differences.largest(reference, set).log2().floor()).clamp(-60.0, 60.0).exp2();
    differences.round(set, power);
    weights[eights(k) * SETS * COMPONENTS + place] = (1.0 / power) as f32;
    for c in components(set) {
        let (eight, tile, column) = (c / COMPONENTS, c % COMPONENTS / 2, 2 * place + c % 2);
        weights[(eight * SETS + place) * COMPONENTS + c % COMPONENTS] = set.weight[c];
        let of_component = c * d..(c + 1) * d;
        let Differences { a, b, c: constants, change } = &*differences;
        // log₂ of the deviations' ratio, from the first two terms of its series.
        let ratio = sum_of([&change[of_component.clone()]], |[change]| -change - change * change / 2.0);
        let mut rest = f64::from(set.seed[c]) - f64::from(reference.seed[c]) + LOG2_E / 2.0 * ratio;
        let [a, b, constants] = [a, b, constants].map(|of| of[of_component.clone()].chunks(FEATURES));
        let steps_of = a.zip(b).zip(constants);
        for (step, ((a, b), constants)) in steps_of.enumerate() {
            // Four numbers of each of the lanes that have this column: two features or squares of each half of the step.
            let lanes = &mut out[(eight * steps(d) + step) * STEP_SIZE + 128 * tile + 16 * column..][..16];
            // `slot`: a feature of the step, or behind them the number one.
            let mut put = |slot: usize, values: [f64; 2]| {
                lanes[4 * (slot % 4) + 2 * (slot / 4)..][..2].copy_from_slice(&values.map(|v| v as f32));
            };
            a.iter().zip(b).enumerate().for_each(|(slot, (a, b))| put(slot, [*b, *a]));
            let digits = (constants.iter().sum::<f64>() + rest) * power / ONE_SCALED;
            let first = round(digits);
            put(FEATURES, [first, round(digits - first)]);
            rest = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::frame::Frame;
    use crate::{Covariances, Mixture};
    use ndarray::{arr1, arr2};

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

    fn parameters(variance: f64, mean: f64) -> DeviceParameters<f32> {
        let mixture =
            Mixture::new(arr1(&[1.0]), arr2(&[[mean, 0.0]]), Covariances::Diag(arr2(&[[variance, 1.0]]))).unwrap();
        DeviceParameters::new(&mixture, &Frame::of(arr2(&[[-4.0f32, -4.0], [0.0, 0.0], [4.0, 4.0]]).view())).unwrap()
    }

    #[test]
    fn near_depends_on_the_number_of_samples() {
        let (a, b, c) = (parameters(1.0, 1.0), parameters(1.01, 1.005), parameters(3.0, -2.0));
        let near = |a: &DeviceParameters<f32>, b: &DeviceParameters<f32>, n| near(a, std::slice::from_ref(b), n)[0];
        assert!(near(&a, &a, usize::MAX));
        assert!(near(&a, &b, 1_000_000) && !near(&a, &b, 1_000_000_000));
        assert!(near(&a, &c, 1000) && !near(&a, &c, 1_000_000));
    }

    /// What the sums of exact products with the coefficients give, at a few samples.
    #[test]
    fn coefficients_give_the_difference_of_the_exponents() {
        let (a, b) = (parameters(1.0, 1.0), parameters(1.3, 0.7));
        let [coefficients, weights, _] = sections(1, 2, 2);
        let mut out = vec![f32::NAN; sections(1, 2, 2)[2].end];
        write(&a, &[a.clone(), b.clone()], &mut out);
        let scale = f64::from(out[weights][COMPONENTS * SETS + 1]);
        // Column 2 holds component 0 of set 1; features 0 and 1 and the number one are in places 0, 1 and 7.
        let at = |place: usize| {
            let lane = 8 + place % 4;
            [0, 1].map(|i| f64::from(out[coefficients.start + 4 * lane + 2 * (place / 4) + i]))
        };
        for x in [[0.0, 0.0], [1.0, -2.0], [-3.5, 0.25]] {
            let exponent = |p: &DeviceParameters<f32>| -> f64 {
                let t = |j: usize| f64::from(p.scale[j]) * x[j] + f64::from(p.shift[j]);
                f64::from(p.seed[0]) - t(0).powi(2) - t(1).powi(2)
            };
            let product = |v: [f64; 2], x: f64| v[0] * 2048.0 * x + v[1] * 256.0 * x * x;
            let difference = scale * (product(at(0), x[0]) + product(at(1), x[1]) + product(at(FEATURES), 8.0));
            // The coefficients have 22 digits.
            let truth = exponent(&b) - exponent(&a);
            assert!((difference - truth).abs() < 1e-5, "{difference} for {truth}");
        }
    }
}
