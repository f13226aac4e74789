//! Exponents under full covariances, if most components are far from most samples.
//!
//! qₖ = seedₖ − |Aₖ·x + mₖ|² falls with each row of the triangle Aₖ, and leading rows are the cheapest: a quarter of
//! the rows takes a sixteenth of the multiply-adds. So all components are first evaluated over some leading rows. Then
//! each sample's best component is completed, and others that could still have a responsibility above
//! [`Real::NEGLIGIBLE`]. The rest get the exponent of weight zero. Completed exponents have the same bits as a full
//! evaluation.
use super::buffer::{Buffer, buffer};
use super::exponents::{GROUP, subtract_rows};
use super::real::Real;
use crate::backends::device_parameters::{DeviceParameters, Matrices};
use crate::model::linalg::triangle;
use crate::reproducible::Functions;
use crate::simd::isa::vectorize;
use crate::simd::lane::{elements, elements_mut, lanes};
use pulp::{Simd, WithSimd};

/// With fewer features or components this does not pay.
const MIN_FEATURES: usize = 32;
const MIN_COMPONENTS: usize = 3;
/// With this many features it pays to take all samples of a chunk through one matrix after the other in any case.
const LARGE: usize = 128;
/// The step of the number of leading rows, a multiple of four.
const STEP: usize = 8;
/// The number of components that each one is compared with, to estimate how many samples can leave it out.
const COMPARED: usize = 4;

/// Returns log₂ of the ratio beyond which the smaller term is left out: [`Real::NEGLIGIBLE`], with a reserve for
/// rounding.
fn margin<T: Real>() -> f64 {
    let negligible: f64 = T::NEGLIGIBLE.into();
    4.0 - negligible.log_2()
}

/// Returns the number of leading rows with the fewest expected multiply-adds; `None` if it pays to take a group of
/// samples through all rows of all components. It depends on the parameters alone.
///
/// A sample of component l is assumed to have the variances of component k, so its square over some rows has a
/// noncentral χ² distribution, approximated by the normal distribution of the same mean and variance.
pub(crate) fn leading_rows<T: Real>(parameters: &DeviceParameters<T>) -> Option<usize> {
    let (k, d) = (parameters.n_components, parameters.n_features);
    if !matches!(parameters.matrices, Matrices::Each(_))
        || parameters.around_means
        || d < MIN_FEATURES
        || k < MIN_COMPONENTS
    {
        return None;
    }
    let has_place = |c: &usize| parameters.weight[*c].into() > 0.0 && parameters.triangle(*c)[0].into() != 0.0;
    let alive: Vec<usize> = (0..k).filter(has_place).collect();
    if alive.len() < MIN_COMPONENTS {
        return None;
    }
    let parts = |c: usize| (parameters.triangle(c), &parameters.shift[c * d..][..d]);
    // The variance of an entry of A·x + m over the samples of its own component.
    let variance = std::f64::consts::LOG2_E / 2.0;
    // The expected number of pairs still to be completed after each number of rows.
    let (mut open, mut pairs) = (vec![0.0; d / STEP + 1], 0);
    for (at, &l) in alive.iter().enumerate() {
        // The mean of l, at which A·x + m is zero.
        let (matrix, shift) = parts(l);
        let mut mean = vec![0.0f64; d];
        for i in 0..d {
            let row = &matrix[triangle(i)..][..=i];
            mean[i] = -(product(&row[..i], &mean) + shift[i].into()) / row[i].into();
        }
        let compared = COMPARED.min(alive.len() - 1);
        for other in 0..compared {
            let (matrix, shift) = parts(alive[(at + 1 + other * (alive.len() - 1) / compared) % alive.len()]);
            let mut distance = 0.0;
            pairs += 1;
            for i in 0..d {
                let t = product(&matrix[triangle(i)..][..=i], &mean) + shift[i].into();
                distance += t * t;
                if (i + 1) % STEP == 0 {
                    let beyond = distance + variance * (i + 1) as f64 - variance * d as f64 - margin::<T>();
                    let deviation = 4.0 * variance * distance + 2.0 * variance.powi(2) * (i + 1 + d) as f64;
                    open[(i + 1) / STEP] += normal_tail(beyond / deviation.sqrt());
                }
            }
        }
    }
    // Multiply-adds of a sample, in triangles: the leading rows of all components, the own component, and the pairs
    // still open. Completed samples are gathered first, and fill registers only in part.
    let cost = |rows: usize| {
        let share = open[rows / STEP] / pairs.max(1) as f64;
        k as f64 * (rows as f64 / d as f64).powi(2) + 2.0 * (1.0 + share * (k - 1) as f64)
    };
    let best = (STEP..d).step_by(STEP).min_by(|&a, &b| cost(a).total_cmp(&cost(b)))?;
    if cost(best) < 0.8 * k as f64 { Some(best) } else { (d >= LARGE).then_some(d) }
}

/// Returns Σ aᵢ·xᵢ over the elements of `a`, as sums side by side, because a single one waits for each addition.
fn product<T: Real>(a: &[T], x: &[f64]) -> f64 {
    const SIDE_BY_SIDE: usize = 8;
    let ((a, a_rest), (x, x_rest)) = (a.as_chunks::<SIDE_BY_SIDE>(), x[..a.len()].as_chunks::<SIDE_BY_SIDE>());
    let mut sums = [0.0; SIDE_BY_SIDE];
    for (a, x) in a.iter().zip(x) {
        for ((sum, &a), x) in sums.iter_mut().zip(a).zip(x) {
            *sum += a.into() * x;
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(x_rest).map(|(&a, x)| a.into() * x).sum::<f64>()
}

/// Returns the probability that a standard normal variable exceeds `z`, to 2·10⁻⁴ (Bowling et al. 2009).
fn normal_tail(z: f64) -> f64 {
    1.0 / (1.0 + (1.5976 * z + 0.07056 * z.powi(3)).exp_e())
}

pub(super) struct Room<T> {
    /// Exponents (⌈n/L⌉, K, L).
    q: Buffer<T>,
    /// Entries of A·x + m of a group (D, GROUP, L).
    t: Buffer<T>,
    /// Samples of a group (GROUP, D, L).
    samples: Buffer<T>,
}

impl<T: Real> Default for Room<T> {
    fn default() -> Self {
        Self { q: buffer(0), t: buffer(0), samples: buffer(0) }
    }
}

/// Returns the exponents of a chunk of `n` samples, a row of K for each register of samples; `x` is (⌈n/L⌉, D, L).
/// Compiled for `S` once for all visitors.
#[inline(never)]
pub(super) fn exponents<'a, T: Real, S: Simd>(
    simd: S,
    x: &[T],
    n: usize,
    parameters: &DeviceParameters<T>,
    leading: usize,
    room: &'a mut Room<T>,
) -> &'a [T] {
    let (k, d, lanes) = (parameters.n_components, parameters.n_features, lanes::<T, S>());
    let length = n.div_ceil(lanes) * lanes * k;
    let zero = T::from_f64(0.0);
    room.q.resize(length.max(room.q.len()), zero);
    room.t.resize(d * GROUP * lanes, zero);
    room.samples.resize(GROUP * lanes * d, zero);
    let Room { q, t, samples } = room;
    let q = &mut q[..length];
    vectorize(simd, Exponents { x, parameters, leading, t, samples, q });
    q
}

struct Exponents<'a, T> {
    x: &'a [T],
    parameters: &'a DeviceParameters<T>,
    leading: usize,
    t: &'a mut [T],
    samples: &'a mut [T],
    q: &'a mut [T],
}

impl<T: Real> WithSimd for Exponents<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, parameters, leading, t, samples, q } = self;
        let all = T::registers_mut::<S>(q);
        partial::<T, S>(simd, T::registers::<S>(x), parameters, leading, T::registers_mut::<S>(t), all);
        if leading < parameters.n_features {
            complete::<T, S>(simd, Chosen { x, parameters, leading, t, samples, list: Vec::new() }, q);
        }
    }
}

/// Completes the exponents `q` over the leading rows if they count; others get the exponent of weight zero.
#[inline(always)]
fn complete<T: Real, S: Simd>(simd: S, mut chosen: Chosen<'_, T>, q: &mut [T]) {
    let parameters = chosen.parameters;
    let (k, lanes) = (parameters.n_components, lanes::<T, S>());
    let padded = q.len() / k;
    let log_weight: Vec<T> = parameters.weight.iter().map(|&w| T::from_f64(w.into().log_2().max(T::DEAD))).collect();
    let (mut best, mut label) = (vec![T::from_f64(T::DEAD); padded], vec![0u32; padded]);
    for ((best, label), q) in
        best.chunks_exact_mut(lanes).zip(label.chunks_exact_mut(lanes)).zip(q.chunks_exact(k * lanes))
    {
        for (c, (q, &w)) in q.chunks_exact(lanes).zip(&log_weight).enumerate() {
            for ((best, label), &q) in best.iter_mut().zip(label.iter_mut()).zip(q) {
                let value = T::from_f64(q.into() + w.into());
                *label = if value > *best { c as u32 } else { *label };
                *best = if value > *best { value } else { *best };
            }
        }
    }
    // Sort the samples by label; `ends` holds each component's end.
    let mut ends = vec![0usize; k];
    label.iter().for_each(|&c| ends[c as usize] += 1);
    let mut before = 0;
    for end in &mut ends {
        (*end, before) = (before, before + *end);
    }
    let mut order = vec![0u32; padded];
    for (i, &c) in label.iter().enumerate() {
        order[ends[c as usize]] = i as u32;
        ends[c as usize] += 1;
    }
    for c in 0..k {
        let begin = if c > 0 { ends[c - 1] } else { 0 };
        chosen.list.clear();
        chosen.list.extend_from_slice(&order[begin..ends[c]]);
        chosen.complete(simd, c, q);
        for &i in &chosen.list {
            let i = i as usize;
            best[i] = T::from_f64(q[(i / lanes * k + c) * lanes + i % lanes].into() + log_weight[c].into());
        }
    }
    // The least exponents, plus log₂ of the weight, that count.
    for best in &mut best {
        *best = T::from_f64((*best).into() - margin::<T>());
    }
    let (least, dead) = (best, T::from_f64(T::DEAD));
    for c in 0..k {
        chosen.list.clear();
        let w = log_weight[c];
        for (register, (least, label)) in least.chunks_exact(lanes).zip(label.chunks_exact(lanes)).enumerate() {
            let q = &mut q[(register * k + c) * lanes..][..lanes];
            let mut open = 0;
            for ((q, &least), &label) in q.iter_mut().zip(least).zip(label) {
                let counts = (*q).into() + w.into() >= least.into();
                *q = if counts { *q } else { dead };
                open += u32::from(counts & (label != c as u32));
            }
            if open > 0 {
                for (lane, (&q, &label)) in q.iter().zip(label).enumerate() {
                    if q > dead && label != c as u32 {
                        chosen.list.push((register * lanes + lane) as u32);
                    }
                }
            }
        }
        chosen.complete(simd, c, q);
    }
}

/// Computes exponents over the leading rows, into `q` (⌈n/L⌉, K).
#[inline(always)]
fn partial<T: Real, S: Simd>(
    simd: S,
    x: &[T::Reg<S>],
    parameters: &DeviceParameters<T>,
    leading: usize,
    t: &mut [T::Reg<S>],
    q: &mut [T::Reg<S>],
) {
    let (k, d) = (parameters.n_components, parameters.n_features);
    let whole = x.len() / (GROUP * d);
    for c in 0..k {
        let seed = T::splat(simd, parameters.seed[c]);
        for group in 0..whole {
            let x = &x[group * GROUP * d..][..GROUP * d];
            let mut sum = [seed; GROUP];
            subtract_rows::<T, S, GROUP>(simd, x, parameters, c, 0..leading, t, &mut sum);
            for g in 0..GROUP {
                q[(group * GROUP + g) * k + c] = sum[g];
            }
        }
        for register in whole * GROUP..x.len() / d {
            let x = &x[register * d..][..d];
            let mut sum = [seed];
            subtract_rows::<T, S, 1>(simd, x, parameters, c, 0..leading, t, &mut sum);
            q[register * k + c] = sum[0];
        }
    }
}

/// Samples of a chunk whose exponent for some component must be completed.
struct Chosen<'a, T> {
    x: &'a [T],
    parameters: &'a DeviceParameters<T>,
    leading: usize,
    /// Room for (D, GROUP) registers.
    t: &'a mut [T],
    /// Room for a group of samples (GROUP, D, L).
    samples: &'a mut [T],
    list: Vec<u32>,
}

impl<T: Real> Chosen<'_, T> {
    /// Subtracts the remaining rows for component `c`, with as few registers of samples at a time as hold the list.
    #[inline(always)]
    fn complete<S: Simd>(&mut self, simd: S, c: usize, q: &mut [T]) {
        let lanes = lanes::<T, S>();
        let list = std::mem::take(&mut self.list);
        for list in list.chunks(GROUP * lanes) {
            match list.len().div_ceil(lanes) {
                1 => self.complete_some::<S, 1>(simd, c, list, q),
                2 => self.complete_some::<S, 2>(simd, c, list, q),
                _ => self.complete_some::<S, GROUP>(simd, c, list, q),
            }
        }
        self.list = list;
    }

    #[inline(always)]
    fn complete_some<S: Simd, const REGISTERS: usize>(&mut self, simd: S, c: usize, list: &[u32], q: &mut [T]) {
        let (k, d, lanes) = (self.parameters.n_components, self.parameters.n_features, lanes::<T, S>());
        let mut known = [T::splat(simd, T::from_f64(0.0)); REGISTERS];
        for (to, &i) in list.iter().enumerate() {
            let (register, lane) = (i as usize / lanes, i as usize % lanes);
            let from = self.x[register * d * lanes..][..d * lanes][lane..].iter().step_by(lanes);
            let to_register = &mut self.samples[to / lanes * d * lanes..][..d * lanes];
            for (to, &v) in to_register[to % lanes..].iter_mut().step_by(lanes).zip(from) {
                *to = v;
            }
            elements_mut::<T, S>(&mut known)[to] = q[(register * k + c) * lanes + lane];
        }
        // The rest of the group holds earlier samples or zeros, whose exponents are unused.
        let samples = &T::registers::<S>(self.samples)[..REGISTERS * d];
        let t = &mut T::registers_mut::<S>(self.t)[..REGISTERS * d];
        subtract_rows::<T, S, REGISTERS>(simd, samples, self.parameters, c, self.leading..d, t, &mut known);
        for (&i, &v) in list.iter().zip(elements::<T, S>(&known)) {
            let (register, lane) = (i as usize / lanes, i as usize % lanes);
            q[(register * k + c) * lanes + lane] = v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::kernel::{Chunk, PerSample, Scratch};
    use crate::backends::cpu::resident::Resident;
    use crate::backends::device_parameters::Deviations;
    use crate::data::frame::Frame;
    use crate::data::samples::Samples;
    use crate::model::covariances::Covariances;
    use crate::model::mixture::Mixture;
    use crate::simd::isa::Isa;
    use ndarray::{Array1, Array2, Array3};

    /// Returns clouds whose centres are `apart` standard deviations of one feature apart, and their mixture.
    fn clouds(apart: f64) -> (Array2<f32>, Mixture) {
        let (n, d, k) = (700, 40, 5);
        let noise = |i: usize| {
            (0..4).map(|m| (i as f64 * [0.618_033, 0.754_877, 0.569_840, 0.819_172][m]).fract() - 0.5).sum::<f64>()
        };
        let means = Array2::from_shape_fn((k, d), |(c, j)| apart * noise(1000 + c * 71 + j * 3));
        let covariance = |(_, i, j): (usize, usize, usize)| if i == j { 0.4 } else { 0.1 };
        let x = Array2::from_shape_fn((n, d), |(i, j)| (means[[i % k, j]] + noise(i * d + j)) as f32);
        let covariances = Covariances::Full(Array3::from_shape_fn((k, d, d), covariance));
        (x, Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).unwrap())
    }

    fn log2<T: Real>(
        isa: Isa,
        data: &Resident<T>,
        parameters: &DeviceParameters<T>,
        leading: Option<usize>,
    ) -> Vec<f64> {
        let mut scratch = Scratch::new(parameters.n_components, parameters.n_features);
        let mut all = Vec::new();
        for c in 0..data.n_chunks() {
            let (x, samples) = data.chunk(c);
            let mut out = vec![0.0; samples.len()];
            let chunk = Chunk { x, n: samples.len(), parameters, leading, scratch: &mut scratch };
            isa.run(PerSample { chunk, out: &mut out });
            all.extend(out);
        }
        all
    }

    fn leaving_out_changes_nothing<T: Real>() {
        for apart in [0.0, 2.0, 20.0] {
            let (x, mixture) = clouds(apart);
            let samples = Samples::from_f32(x.view()).unwrap();
            for isa in Isa::available() {
                let data = Resident::<T>::new(&samples, Frame::of_samples(&samples), isa);
                let parameters = DeviceParameters::with_matrices(&mixture, &data.frame, Deviations::InFrame).unwrap();
                let all = log2(isa, &data, &parameters, None);
                for leading in [8, 16, 32] {
                    // To the bit: the omitted terms are below the rounding of the sum.
                    assert_eq!(all, log2(isa, &data, &parameters, Some(leading)), "{apart} {leading} {}", isa.name());
                }
            }
        }
    }

    #[test]
    fn leaving_out_far_components_changes_no_density() {
        leaving_out_changes_nothing::<f32>();
        leaving_out_changes_nothing::<f64>();
    }

    #[test]
    fn rows_are_left_out_where_components_are_far_apart() {
        let leading = |apart| {
            let (x, mixture) = clouds(apart);
            let samples = Samples::from_f32(x.view()).unwrap();
            let data = Resident::<f32>::new(&samples, Frame::of_samples(&samples), Isa::best());
            leading_rows(&DeviceParameters::<f32>::with_matrices(&mixture, &data.frame, Deviations::InFrame).unwrap())
        };
        assert_eq!(leading(0.0), None);
        assert_eq!(leading(20.0), Some(STEP));
    }
}
