//! `density`, `posterior` and `accumulate`, launched one after the other over parts of the samples,
//! as the backend does.
use super::{FAR, Memory, PADDING, flat, launch, of_each_type};
use crate::backends::cuda::device::layout;
use crate::backends::cuda::device::samples::Element;
use crate::backends::cuda::general::layout::{GeneralLayout, means};
use crate::backends::cuda::missing::add_offsets;
use crate::backends::cuda::source::Source;
use crate::backends::device_parameters::{Deviations, DeviceParameters};
use crate::data::frame::Frame;
use crate::{Evaluator, Mixture, ReferenceEvaluator, Samples, Statistics};
use cust::memory::bytemuck::{self, Pod};
use gmm_kernels::general::accumulate::{self, AccumulateArgs};
use gmm_kernels::general::density::{self, DensityArgs};
use gmm_kernels::general::posterior::{self, PosteriorArgs};
use gmm_kernels::patterns::ParametersOfQuads;
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::f64::consts::LN_2;

/// `density` for diagonals, for triangles, and for diagonals where values are missing.
type Densities<T> = [unsafe fn(DensityArgs<T>); 3];

/// The kernels of an element type: diagonal, full, and diagonal for samples with missing values.
pub(super) trait Kernels: Element + Pod {
    const DENSITY: Densities<Self>;
    const POSTERIOR: unsafe fn(PosteriorArgs<Self>);
    const ACCUMULATE: [unsafe fn(AccumulateArgs<Self>); 3];
    /// `DENSITY` around means; none of float32.
    const AROUND_MEANS: Option<Densities<Self>>;
    /// Error of an exponent, relative to its size; of a sum of responsibilities; of a mean and of a
    /// scatter.
    const UNIT: f64;
    const SUMS: f64;
}
impl Kernels for f32 {
    const DENSITY: Densities<f32> =
        [density::density_diag_f32, density::density_full_f32, density::density_observed_f32];
    const POSTERIOR: unsafe fn(PosteriorArgs<f32>) = posterior::posterior_f32;
    const ACCUMULATE: [unsafe fn(AccumulateArgs<f32>); 3] =
        [accumulate::accumulate_diag_f32, accumulate::accumulate_full_f32, accumulate::accumulate_observed_f32];
    const AROUND_MEANS: Option<Densities<f32>> = None;
    /// Some thirty roundings of 2⁻²⁴.
    const UNIT: f64 = 2e-6;
    /// Exponents of some hundreds, whose error is the relative error of a responsibility.
    const SUMS: f64 = 2e-4;
}
impl Kernels for f64 {
    const DENSITY: Densities<f64> =
        [density::density_diag_f64, density::density_full_f64, density::density_observed_f64];
    const POSTERIOR: unsafe fn(PosteriorArgs<f64>) = posterior::posterior_f64;
    const ACCUMULATE: [unsafe fn(AccumulateArgs<f64>); 3] =
        [accumulate::accumulate_diag_f64, accumulate::accumulate_full_f64, accumulate::accumulate_observed_f64];
    const AROUND_MEANS: Option<Densities<f64>> = Some([
        density::density_diag_around_means_f64,
        density::density_full_around_means_f64,
        density::density_observed_around_means_f64,
    ]);
    const UNIT: f64 = 1e-14;
    const SUMS: f64 = 1e-11;
}

/// All results of a pass over the samples.
#[derive(Debug, PartialEq)]
struct Pass {
    log_likelihood: f64,
    scores: Vec<f64>,
    labels: Vec<u32>,
    statistics: Statistics,
}

/// Runs the three kernels over the samples in parts of `part` samples.
fn pass<T: Kernels>(
    x: &Array2<f64>,
    weights: Option<&Array1<f64>>,
    mixture: &Mixture,
    part: usize,
    deviations: Deviations,
) -> Pass {
    let ((n, d), k) = (x.dim(), mixture.n_components());
    let mut samples = Samples::with_missing(x.view()).unwrap();
    if let Some(weights) = weights {
        samples = samples.with_weights(weights.view()).unwrap();
    }
    let gaps = samples.missing().is_some();
    let scale = 4.0;
    let (frame, densities) = match deviations {
        Deviations::AroundMeans => (Frame::identity(d), T::AROUND_MEANS.unwrap()),
        Deviations::InFrame if gaps => (Frame::of_observed(x.view()), T::DENSITY),
        Deviations::InFrame => (Frame::of(x.view()), T::DENSITY),
    };
    let (stride, width) = (layout::stride(n), d + usize::from(weights.is_some()));
    let aligned = |len: usize| vec![u128::MAX; (len * size_of::<T>()).div_ceil(16)];
    let mut data = aligned(width * stride);
    let columns: &mut [T] = &mut bytemuck::cast_slice_mut(&mut data)[..width * stride];
    layout::columns(&samples, &frame, scale, columns);
    columns.chunks_exact_mut(stride).for_each(|column| column[n..].fill(T::from_f64(PADDING.into())));
    let device_parameters = match gaps {
        false => DeviceParameters::<T>::with_matrices(mixture, &frame, deviations).unwrap(),
        true => DeviceParameters::<T>::with_gaps(mixture, &frame, deviations)
            .unwrap()
            .with_mean_offset(&samples.observed_weights(), samples.total_weight()),
    };
    let layout = GeneralLayout::new(&device_parameters);
    let centres = means(mixture, &device_parameters, &frame);
    let mut parameters = aligned(layout.len);
    layout.write(&device_parameters, &centres, &mut bytemuck::cast_slice_mut(&mut parameters)[..layout.len]);

    let q_stride = part.next_multiple_of(512);
    let mut q = aligned(k * q_stride);
    let (mut scores, mut labels) = (vec![f64::NAN; n], vec![u32::MAX; n]);
    let (posterior_blocks, slices) = (2, 2);
    let values = accumulate::values(k, d, layout.full);
    let (mut totals, mut partials) = (vec![f64::NAN; posterior_blocks as usize], vec![f64::NAN; values * slices]);
    for first in (0..n).step_by(part) {
        let mut memory = Memory::new();
        let x = memory.read("x", &*columns).wrapping_add(first);
        let parameters = memory.read("parameters", &bytemuck::cast_slice::<_, T>(&parameters)[..layout.len]);
        let q = memory.write("q", &mut bytemuck::cast_slice_mut::<_, T>(&mut q)[..k * q_stride]);
        let (stride, q_stride, n) = (stride as u64, q_stride as u64, part.min(n - first) as u32);
        let (k, d) = (k as u32, d as u32);
        let at = |offset: usize| parameters.wrapping_add(offset);
        let add = u32::from(first > 0);
        let density = DensityArgs {
            x,
            stride,
            n,
            k,
            d,
            matrices: at(0),
            matrix_stride: layout.matrix_stride as u64,
            shifts: at(layout.shifts),
            seeds: at(layout.seeds),
            of_quads: ParametersOfQuads::ONE,
            q,
            q_stride,
        };
        let posterior = PosteriorArgs {
            q,
            stride: q_stride,
            n,
            k,
            weights: at(layout.weights),
            of_quads: ParametersOfQuads::ONE,
            sample_weights: weights.map_or(std::ptr::null(), |_| x.wrapping_add(d as usize * stride as usize)),
            responsibilities: 1,
            add,
            scores: memory.write("scores", &mut scores[first..first + n as usize]),
            labels: memory.write("labels", &mut labels[first..first + n as usize]),
            partials: memory.write("totals", &mut totals),
        };
        let accumulate = AccumulateArgs {
            x,
            stride,
            n,
            k,
            d,
            slices: slices as u32,
            slice: (n as usize).div_ceil(slices).next_multiple_of(32) as u32,
            table: std::ptr::null(),
            first: 0,
            add,
            r: q,
            r_stride: q_stride,
            centres: at(layout.centres),
            partials: memory.write("partials", &mut partials),
            partials_stride: slices as u64,
        };
        let kernel = if gaps { 2 } else { usize::from(layout.full) };
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((3, 1), 64, 0, &memory, densities[kernel], density);
            launch((posterior_blocks, 1), 64, FINISH_SHARED_BYTES, &memory, T::POSTERIOR, posterior);
            launch((2, 1), 32, 0, &memory, T::ACCUMULATE[kernel], accumulate);
        }
    }
    let sums: Vec<f64> = partials.chunks_exact(slices).map(|slices| slices.iter().sum()).collect();
    let factor = if weights.is_some() { scale } else { 1.0 };
    let log2 = totals.iter().sum::<f64>() * factor + samples.total_weight() * device_parameters.offset;
    let mut sums = layout.centred_sums(&sums, factor, mixture, &centres, &frame);
    (sums.weight, sums.log_likelihood) = (samples.total_weight(), LN_2 * log2);
    let scores = scores.iter().map(|score| LN_2 * (score + device_parameters.offset)).collect();
    let source = Source::Host(samples, 0);
    Pass {
        log_likelihood: LN_2 * log2,
        scores: add_offsets(&source, device_parameters.gaps.as_ref(), scores).to_vec(),
        labels,
        statistics: Statistics::from_centred_sums(sums).unwrap(),
    }
}

fn check<T: Kernels>(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture, part: usize) {
    check_of::<T>(x, weights, mixture, part, Deviations::InFrame);
    if T::AROUND_MEANS.is_some() {
        check_of::<T>(x, weights, mixture, part, Deviations::AroundMeans);
    }
}

fn check_of<T: Kernels>(
    x: &Array2<f64>,
    weights: Option<&Array1<f64>>,
    mixture: &Mixture,
    part: usize,
    deviations: Deviations,
) {
    let ((n, d), k) = (x.dim(), mixture.n_components());
    // Rounded to the element type, so that the reference and the kernels start from the same
    // numbers.
    let x = &x.mapv(|v| T::from_f64(v).into());
    let what = format!("{} {deviations:?} {} N={n} D={d} K={k} part={part}", T::NAME, mixture.covariance_type());
    let got = pass::<T>(x, weights, mixture, part, deviations);
    if n < 200 {
        assert_eq!(got, pass::<T>(x, weights, mixture, part, deviations), "{what}: the same bits every time");
    }
    let samples = Samples::with_missing(x.view()).unwrap();
    let samples = weights.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
    let mut reference = ReferenceEvaluator::new(samples);
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound:e})");
    };
    let scores = reference.score_samples(mixture).unwrap();
    let mut sum = 0.0;
    for (i, (got, truth)) in got.scores.iter().zip(&scores).enumerate() {
        let bound = T::UNIT * (truth.abs() + d as f64);
        near(*got, *truth, bound, &format!("score {i}"));
        sum += bound * weights.map_or(1.0, |w| w[i]);
    }
    near(got.log_likelihood, reference.log_likelihood(mixture).unwrap(), sum, "log-likelihood");
    // Rounding may decide between components that are equally probable: one sample in a thousand.
    let labels = reference.predict(mixture).unwrap();
    let same = got.labels.iter().zip(&labels).filter(|(a, b)| **a as usize == **b).count();
    assert!(same * 1000 >= n * 999, "{what}: {same} labels of {n} agree");
    let truth = reference.statistics(mixture).unwrap();
    let (got, weight) = (got.statistics, truth.weight());
    for (c, count) in truth.counts().iter().enumerate() {
        near(got.counts()[c], *count, T::SUMS * weight, &format!("count {c}"));
        if *count > 0.01 {
            for (a, b) in got.means().row(c).iter().zip(truth.means().row(c)) {
                near(*a, *b, T::SUMS * FAR * weight / count + 1e-15 * b.abs(), &format!("mean of {c}"));
            }
        }
    }
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, T::SUMS * FAR * FAR * d as f64 + T::SUMS * 4.0 * weight * d as f64, "accumulate");
    }
}

#[test]
fn every_type_and_size() {
    for (i, (n, d, k, part)) in
        [(1, 1, 1, 512), (130, 2, 3, 512), (1100, 7, 2, 512), (700, 8, 5, 1024), (200, 17, 2, 512)]
            .into_iter()
            .enumerate()
    {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || 3.0 + rng.sample::<f64, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for mixture in of_each_type(&mut rng, k, d) {
            // One with weights, one without.
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[i % 2], &mixture, part);
            check::<f64>(&x, weights[(i + 1) % 2], &mixture, part);
        }
    }
}

/// Missing values, more and more of them, with one row and one column of which nothing is observed.
#[test]
fn every_share_of_missing_values() {
    for (i, (n, d, k, part, share)) in [
        (1, 1, 1, 512, 0.3),
        (1, 3, 2, 512, 0.5),
        (1100, 7, 2, 512, 0.05),
        (700, 8, 5, 1024, 0.3),
        (130, 2, 3, 512, 0.6),
        (300, 17, 1, 512, 0.3),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || 1e3 + rng.sample::<f64, _>(StandardNormal));
        x.map_inplace(|v| *v = if rng.random::<f64>() < share { f64::NAN } else { *v });
        x.row_mut(n / 2).fill(f64::NAN);
        if d > 2 {
            x.column_mut(1).fill(f64::NAN);
        }
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for mixture in of_each_type(&mut rng, k, d) {
            if mixture.covariance_type().has_matrices() {
                continue;
            }
            let moved = mixture.means().mapv(|mean| mean + 1e3);
            let mixture = Mixture::new(mixture.weights().to_owned(), moved, mixture.covariances().clone()).unwrap();
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[i % 2], &mixture, part);
            check::<f64>(&x, weights[(i + 1) % 2], &mixture, part);
            assert_eq!(
                pass::<f64>(&x, None, &mixture, part, Deviations::InFrame).scores[n / 2],
                0.0,
                "nothing observed says nothing"
            );
        }
    }
}

/// A component of weight zero gets no sample, even where it is the nearest; a sample 1000 standard
/// deviations away has a finite score.
#[test]
fn dead_components_and_far_samples() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut x = Array2::from_shape_simple_fn((200, 3), || rng.sample::<f64, _>(StandardNormal));
    x.row_mut(5).fill(1e3);
    for mixture in of_each_type(&mut rng, 5, 3) {
        let weights = ndarray::arr1(&[0.0, 0.5, 0.5, 0.0, 0.0]);
        let mut means = mixture.means().to_owned();
        means.row_mut(0).fill(1e3);
        means.row_mut(3).fill(1e6);
        let mixture = Mixture::new(weights, means, mixture.covariances().clone()).unwrap();
        let truth = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap()).score_samples(&mixture).unwrap();
        for (got, tolerance) in [
            (pass::<f32>(&x, None, &mixture, 512, Deviations::InFrame), 1e-5),
            (pass::<f64>(&x, None, &mixture, 512, Deviations::InFrame), 1e-13),
            (pass::<f64>(&x, None, &mixture, 512, Deviations::AroundMeans), 1e-13),
        ] {
            for (a, b) in got.scores.iter().zip(&truth) {
                assert!((a - b).abs() <= tolerance * (b.abs() + 3.0), "{a} for {b}");
            }
            assert!(got.labels.iter().all(|label| [1, 2].contains(label)));
            let counts = got.statistics.counts();
            assert_eq!([counts[0], counts[3], counts[4]], [0.0; 3]);
            assert!((counts.sum() - 200.0).abs() < 1e-4);
        }
    }
}

/// Narrow groups of samples, far apart; every third value is missing, or none.
#[test]
fn groups_that_lie_far_apart() {
    for (distance, missing) in [(1e16, false), (1e16, true), (1e150, false), (1e300, false), (1e300, true)] {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (n, d, k) = (300, 5, 3);
        for mixture in of_each_type(&mut rng, k, d) {
            if missing && mixture.covariance_type().has_matrices() {
                continue;
            }
            let offset = |c: usize| c as f64 * distance;
            let means = Array2::from_shape_fn((k, d), |(c, j)| mixture.means()[[c, j]] + offset(c));
            let mixture = Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap();
            let mut x = Array2::from_shape_fn((n, d), |(i, j)| {
                mixture.means()[[i % k, j]] + rng.sample::<f64, _>(StandardNormal)
            });
            if missing {
                x.indexed_iter_mut().for_each(|((i, j), v)| *v = if (i + j) % 3 == 0 { f64::NAN } else { *v });
            }
            check_of::<f64>(&x, None, &mixture, 512, Deviations::AroundMeans);
        }
    }
}

/// A sample that is infinitely far from every component has the score −∞, and without weight no
/// part in an E-step.
#[test]
fn a_sample_that_no_component_reaches() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut x = Array2::from_shape_simple_fn((40, 3), || rng.sample::<f64, _>(StandardNormal));
    x.row_mut(7).fill(1e200);
    let weights = Array1::from_shape_fn(40, |i| if i == 7 { 0.0 } else { 1.0 });
    for mixture in of_each_type(&mut rng, 2, 3) {
        let got = pass::<f64>(&x, Some(&weights), &mixture, 512, Deviations::AroundMeans);
        assert_eq!((got.scores[7], got.labels[7]), (f64::NEG_INFINITY, 0));
        let samples = Samples::from_f64(x.view()).unwrap().with_weights(weights.view()).unwrap();
        let truth = ReferenceEvaluator::new(samples).statistics(&mixture).unwrap();
        assert!((got.log_likelihood - truth.log_likelihood()).abs() <= 1e-11 * truth.log_likelihood().abs());
        for (got, truth) in got.statistics.counts().iter().zip(truth.counts()) {
            assert!((got - truth).abs() <= 1e-10, "{got} for {truth}");
        }
    }
}
