//! Parameters of `batch_tensor_cores`. Nothing here calls CUDA, so that it is tested on any machine.
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use gmm_kernels::likelihood::batch_tensor_cores::{
    COMPONENTS, FEATURE_SCALE, FEATURES, MAX_FEATURES, MAX_STEPS, ONE, SETS, SQUARE_SCALE, STEP_SIZE, reference_row,
    steps, weights_size,
};
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// The most that a sum over all samples may be expected to lose, in units of log₂.
const TOTAL_ERROR: f64 = 0.02 * LOG2_E;
/// A set's largest coefficient comes to between 2^13 and 2^14, so that rounding does not bring it to 2^15.
const LARGEST: f64 = 13.0;

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

/// A feature of a component in float64: t = s·x + m.
#[derive(Clone, Copy)]
struct Feature {
    s: f64,
    m: f64,
}

/// The features of a component.
fn features(parameters: &DeviceParameters<f32>, c: usize) -> impl Iterator<Item = Feature> + '_ {
    let d = parameters.n_features;
    let both = parameters.scale[c * d..][..d].iter().zip(&parameters.shift[c * d..][..d]);
    both.map(|(s, m)| Feature { s: f64::from(*s), m: f64::from(*m) })
}

/// The components of a set that have a weight.
fn components(parameters: &DeviceParameters<f32>) -> impl Iterator<Item = usize> + '_ {
    (0..parameters.n_components).filter(|c| parameters.weight[*c] > 0.0)
}

/// What has to be added to the reference's exponent for a feature: a·x² + b·x + c, where t² is expanded for both.
#[derive(Clone, Copy)]
struct Difference {
    a: f64,
    b: f64,
    c: f64,
}

impl Difference {
    fn new(reference: Feature, of: Feature) -> Self {
        // As products, so that close parameters lose no digits.
        let (scales, shifts) = (reference.s - of.s, reference.m - of.m);
        Self {
            a: scales * (reference.s + of.s),
            b: 2.0 * (scales * reference.m + of.s * shifts),
            c: shifts * (reference.m + of.m),
        }
    }

    /// Over the numbers by which the kernel multiplies a feature and its square.
    fn coefficients(self) -> [f64; 2] {
        [self.b / f64::from(FEATURE_SCALE), self.a / f64::from(SQUARE_SCALE)]
    }
}

/// The largest coefficient of a set, or a number above it.
fn largest(reference: &DeviceParameters<f32>, set: &DeviceParameters<f32>) -> f64 {
    let of_component = |c: usize| {
        let mut constant = (f64::from(set.seed[c]) - f64::from(reference.seed[c])).abs();
        let mut largest = 0.0f64;
        for (reference, of) in features(reference, c).zip(features(set, c)) {
            let difference = Difference::new(reference, of);
            let [b, a] = difference.coefficients();
            largest = largest.max(b.abs()).max(a.abs());
            constant += difference.c.abs();
        }
        // The constant for the rounded coefficients is a little larger.
        largest.max(2.0 * constant / f64::from(FEATURE_SCALE * ONE))
    };
    components(set).map(of_component).fold(f64::MIN_POSITIVE, f64::max)
}

/// Whether the kernel can evaluate a set beside a reference, and keeps the digits of its total over `n` samples. Both have the same K and D.
///
/// The units truncate their sums: of the largest product they lose up to 2^-24, always to the same side. Besides, splitting a feature and its square
/// into two float16 numbers costs up to 2^-22 of each product, with random signs. For the samples that a component explains, y = s·x has
/// the mean −m and the variance log₂e / 2 = u, so that the mean of y² is u + m², and that of y⁴ 3·u² + 6·u·m² + m⁴.
pub(crate) fn near(reference: &DeviceParameters<f32>, set: &DeviceParameters<f32>, n: usize) -> bool {
    let diagonal = |p: &DeviceParameters<f32>| matches!(p.matrices, Matrices::Diagonal);
    if set.n_features > MAX_FEATURES || !diagonal(reference) || !diagonal(set) {
        return false;
    }
    let u = LOG2_E / 2.0;
    let mut most = 0.0f64;
    for c in components(set) {
        if reference.weight[c] == 0.0 {
            return false;
        }
        let mut of_products = 0.0;
        for (reference, of) in features(reference, c).zip(features(set, c)) {
            let Difference { a, b, c } = Difference::new(reference, of);
            let (m2, s2) = (of.m * of.m, of.s * of.s);
            of_products += a * a * (3.0 * u * u + 6.0 * u * m2 + m2 * m2) / (s2 * s2) + b * b * (u + m2) / s2 + c * c;
        }
        most = most.max(of_products);
    }
    let (truncated, random) = (2f64.powi(-24), 2f64.powi(-22));
    let n = n as f64;
    most.sqrt() * (truncated * n + random * n.sqrt()) <= TOTAL_ERROR
}

/// What two float16 numbers hold of a number of at most 2^15: 22 digits, and none below 2^-24.
fn round(v: f64) -> f64 {
    /// v + LAST − LAST is v rounded to a multiple of 2^-24.
    const LAST: f64 = 1.5 * (1u64 << 28) as f64;
    /// Rounds 53 digits to 22 (Veltkamp).
    const DIGITS: f64 = (1u64 << 31) as f64 + 1.0;
    let product = v * DIGITS;
    let rounded = product - (product - v);
    (rounded + LAST) - LAST
}

/// Writes the parameters of the sets, of which the first is the reference, in their sections. Places behind the last set get no components.
pub(crate) fn write(sets: &[DeviceParameters<f32>], out: &mut [f32]) {
    let Some(reference) = sets.first() else { return };
    let (k, d) = (reference.n_components, reference.n_features);
    let [coefficients, weights, _] = sections(k, d, sets.len());
    out.fill(0.0);
    let (out, rest) = out.split_at_mut(coefficients.len());
    let (weights, to_reference) = rest.split_at_mut(weights.len());
    write_reference(reference, to_reference);
    let [of_four, weights_of_four, _] = sections(k, d, SETS).map(|section| section.len());
    let fours = out.chunks_exact_mut(of_four).zip(weights.chunks_exact_mut(weights_of_four));
    for (sets, (out, weights)) in sets.chunks(SETS).zip(fours) {
        for place in 0..SETS {
            // Behind the last set the reference: its likelihoods are no numbers too small for the fast path.
            write_set(reference, sets.get(place).unwrap_or(reference), place, out, weights);
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
    reference: &DeviceParameters<f32>,
    set: &DeviceParameters<f32>,
    place: usize,
    out: &mut [f32],
    weights: &mut [f32],
) {
    let (k, d) = (set.n_components, set.n_features);
    let one = f64::from(FEATURE_SCALE * ONE);
    // Far from the ends of float32, also where a set is the reference.
    let power = (LARGEST - largest(reference, set).log2().floor()).clamp(-60.0, 60.0).exp2();
    weights[eights(k) * SETS * COMPONENTS + place] = (1.0 / power) as f32;
    for c in components(set) {
        let (eight, tile, column) = (c / COMPONENTS, c % COMPONENTS / 2, 2 * place + c % 2);
        weights[(eight * SETS + place) * COMPONENTS + c % COMPONENTS] = set.weight[c];
        // `slot`: a feature of a step, or behind them the number one.
        let mut put = |step: usize, slot: usize, values: [f64; 2]| {
            let lane = 4 * column + slot % 4;
            let at = (eight * steps(d) + step) * STEP_SIZE + 128 * tile + 4 * lane + 2 * (slot / 4);
            out[at..][..2].copy_from_slice(&values.map(|v| v as f32));
        };
        let mut constants = [0.0; MAX_STEPS];
        constants[0] = f64::from(set.seed[c]) - f64::from(reference.seed[c]);
        for (j, (of_reference, of)) in features(reference, c).zip(features(set, c)).enumerate() {
            let exact = Difference::new(of_reference, of);
            let rounded = exact.coefficients().map(|v| round(v * power));
            put(j / FEATURES, j % FEATURES, rounded);
            // The rounded coefficients are those of a Gaussian with a slightly other mean and deviation; its constant belongs to them: of
            // −s²·x² − 2·s·m·x the constant is −m² = −(2·s·m)² / (4·s²), and its change follows from those of the two coefficients.
            let change_a = rounded[1] * f64::from(SQUARE_SCALE) / power - exact.a;
            let change_b = rounded[0] * f64::from(FEATURE_SCALE) / power - exact.b;
            let square = of.s * of.s - change_a;
            let linear = 2.0 * of.s * of.m - change_b;
            let moved = (change_b * (linear + 2.0 * of.s * of.m) / 4.0 - of.m * of.m * change_a) / square;
            constants[j / FEATURES] += exact.c + moved;
            // log₂ of the deviations' ratio.
            let ratio = -change_a / (of.s * of.s);
            constants[0] += LOG2_E / 2.0 * (ratio - ratio * ratio / 2.0);
        }
        for (step, constant) in constants[..steps(d)].iter().enumerate() {
            let digits = constant * power / one;
            let first = round(digits);
            put(step, FEATURES, [first, round(digits - first)]);
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
        write(&[a.clone(), b.clone()], &mut out);
        let scale = f64::from(out[weights][COMPONENTS * SETS + 1]);
        // Column 2 holds component 0 of set 1; features 0 and 1 and the number one are in places 0, 1 and 7.
        let at = |place: usize| {
            let lane = 8 + place % 4;
            [0, 1].map(|i| f64::from(out[coefficients.start + 4 * lane + 2 * (place / 4) + i]))
        };
        for x in [[0.0, 0.0], [1.0, -2.0], [-3.5, 0.25]] {
            let exponent = |p: &DeviceParameters<f32>| -> f64 {
                features(p, 0).zip(x).map(|(f, x)| -(f.s * x + f.m).powi(2)).sum::<f64>() + f64::from(p.seed[0])
            };
            let product = |v: [f64; 2], x: f64| v[0] * 2048.0 * x + v[1] * 256.0 * x * x;
            let difference = scale * (product(at(0), x[0]) + product(at(1), x[1]) + product(at(FEATURES), 8.0));
            // The coefficients have 22 digits.
            let truth = exponent(&b) - exponent(&a);
            assert!((difference - truth).abs() < 1e-5, "{difference} for {truth}");
        }
    }
}
