//! Sizes of the parameters of `batch_mma`, and the input of `batch_parameters`. Nothing here calls CUDA.
use crate::device::memory;
use gmm_core::data::frame::Frame;
use gmm_core::model::covariances::Covariances;
use gmm_core::model::linalg::row_major;
use gmm_core::model::mixture::Mixture;
use gmm_kernels::likelihood::batch_mma::{COMPONENTS, SETS, STEP_SIZE, reference_row, steps, weights_size};
use gmm_kernels::likelihood::batch_parameters::{FRAME, mixture_size};
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// The most that a sum over a million samples, or more, may be expected to lose, in units of log₂. Fewer samples may
/// lose less, by the square root of their number, like the sum of their independent roundings.
const TOTAL_ERROR: f64 = 0.02 * LOG2_E;
const MILLION: f64 = 1e6;
/// The share that the tensor cores lose of a sample's difference, relative to the root of the sum of its products'
/// squares. The largest product alone could lose 2^-24 in each of a few sums; with this share, errors of totals are at
/// most three quarters of the limit (measured on an H200, 2026-11-22: 28 random mixtures of D = 1 to 27, K = 1 to 16,
/// components up to 12 deviations from the centre, N = 10⁶).
const TRUNCATED: f64 = 1.0 / (1u64 << 26) as f64;
/// The share of a product that splitting a number into two float16 numbers loses, with random signs.
const SPLIT: f64 = 1.0 / (1u64 << 22) as f64;

/// Returns the share that a total over `n` samples loses for each component, relative to the root of the sum of its
/// products' squares; and the most that it may lose in all.
pub(crate) fn loss(n: usize) -> (f64, f64) {
    let n = n as f64;
    (TRUNCATED * n + SPLIT * n.sqrt(), TOTAL_ERROR * (n / MILLION).sqrt().min(1.0))
}

pub(crate) fn octets_of(k: usize) -> usize {
    k.div_ceil(COMPONENTS)
}

pub(crate) fn bundles_of(sets: usize) -> usize {
    sets.div_ceil(SETS)
}

/// Returns the ranges of the coefficients, the weights and the reference among the parameters of this many sets.
pub(crate) fn sections(k: usize, d: usize, sets: usize) -> [Range<usize>; 3] {
    let octets = octets_of(k);
    memory::sections([
        bundles_of(sets) * octets * steps(d) * STEP_SIZE,
        bundles_of(sets) * weights_size(octets),
        octets * COMPONENTS * reference_row(d),
    ])
}

/// Returns the numbers of the frame, the reference, and this many sets.
pub(crate) fn numbers(k: usize, d: usize, sets: usize) -> usize {
    FRAME * d + (1 + sets) * mixture_size(k, d)
}

/// Writes the frame, the reference and the sets, whose covariances are diagonal or spherical.
pub(crate) fn write<'a>(
    frame: &Frame,
    reference: &'a Mixture,
    sets: impl IntoIterator<Item = &'a Mixture>,
    out: &mut [f64],
) {
    let (k, d) = reference.means().dim();
    let (of_frame, mixtures) = out.split_at_mut(FRAME * d);
    for (out, numbers) in of_frame.chunks_exact_mut(d).zip([&frame.shift, &frame.scale, &frame.inverse]) {
        out.copy_from_slice(numbers);
    }
    let all = std::iter::once(reference).chain(sets);
    for (mixture, out) in all.zip(mixtures.chunks_exact_mut(mixture_size(k, d))) {
        let (weights, rest) = out.split_at_mut(k);
        let (means, variances) = rest.split_at_mut(k * d);
        weights.copy_from_slice(&row_major(mixture.weights()));
        means.copy_from_slice(&row_major(mixture.means()));
        match mixture.covariances() {
            Covariances::Diag(v) => variances.copy_from_slice(&row_major(v.view())),
            Covariances::Spherical(v) => variances.chunks_exact_mut(d).zip(v).for_each(|(row, v)| row.fill(*v)),
            // Without variances: the kernel never takes such a set as near.
            Covariances::Full(_) | Covariances::Tied(_) => variances.fill(0.0),
        }
    }
}
