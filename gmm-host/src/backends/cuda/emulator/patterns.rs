//! Samples with missing values, pattern by pattern: `marginals`; then `density`, `posterior` and
//! `accumulate`, or `fused_patterns`; then `complete_patterns`, launched one after the other as the
//! backend does, and compared with the reference.
use super::general::Kernels;
use super::{FAR, Memory, flat, launch, of_each_type};
use crate::backends::cuda::missing::by_pattern::arrangement::{self, Arrangement, Shape};
use crate::data::frame::Frame;
use crate::{Covariances, Error, Evaluator, Mixture, ReferenceEvaluator, Result, Samples, Statistics};
use cust::memory::bytemuck;
use gmm_kernels::data::{Columns, QUAD};
use gmm_kernels::estep::fused_patterns::{self, FusedPatternsArgs};
use gmm_kernels::general::accumulate::AccumulateArgs;
use gmm_kernels::general::density::{DensityArgs, TILE};
use gmm_kernels::general::posterior::PosteriorArgs;
use gmm_kernels::patterns::complete::{CompleteArgs, complete_patterns};
use gmm_kernels::patterns::marginals::{self, MarginalsArgs};
use gmm_kernels::patterns::{self, MATRICES, Masks, ParametersOfQuads, SLICE, VECTORS};
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::f64::consts::LN_2;
use std::ptr;

/// The instances of an element type; those of `fused_patterns` are float32 alone.
trait PatternKernels: Kernels {
    const MARGINALS: unsafe fn(MarginalsArgs<Self>);
}
impl PatternKernels for f32 {
    const MARGINALS: unsafe fn(MarginalsArgs<f32>) = marginals::marginals_f32;
}
impl PatternKernels for f64 {
    const MARGINALS: unsafe fn(MarginalsArgs<f64>) = marginals::marginals_f64;
}

fn fused_kernel(capacity: usize, d: usize) -> unsafe fn(FusedPatternsArgs) {
    match (capacity, d) {
        (8, 1) => fused_patterns::fused_patterns_k08_d01,
        (8, 3) => fused_patterns::fused_patterns_k08_d03,
        (8, 5) => fused_patterns::fused_patterns_k08_d05,
        (8, 13) => fused_patterns::fused_patterns_k08_d13,
        (8, 16) => fused_patterns::fused_patterns_k08_d16,
        (32, 4) => fused_patterns::fused_patterns_k32_d04,
        _ => panic!("no such instance in this test: {capacity} {d}"),
    }
}

/// All results of a pass over the samples; those of rows from the general kernels only.
#[derive(Debug, PartialEq)]
struct Pass {
    log_likelihood: f64,
    scores: Vec<f64>,
    labels: Vec<usize>,
    statistics: Statistics,
}

fn pass<T: PatternKernels>(samples: &Samples<'_>, frame: &Frame, mixture: &Mixture, fused: bool) -> Result<Pass> {
    let k = mixture.n_components();
    let placed = Arrangement::new(samples);
    let (d, stride, words) = (placed.d, placed.stride(), placed.words());
    let scale = if samples.weights().is_some() { 4.0 } else { 1.0 };
    let aligned = |len: usize| vec![u128::MAX; (len * size_of::<T>()).div_ceil(16)];
    let mut data = aligned((d + 1) * stride);
    let columns: &mut [T] = &mut bytemuck::cast_slice_mut(&mut data)[..(d + 1) * stride];
    placed.write_columns(samples, frame, scale, columns);
    let columns: &[T] = columns;
    let shape = Shape::new::<T>(&placed, k, fused);
    assert_eq!(shape.batches.len(), 1);
    let mut numbers = vec![f64::NAN; arrangement::mixture_numbers(k, d)];
    arrangement::write_mixture(mixture, frame, &mut numbers)?;
    let (count, slices) = (placed.patterns.len(), shape.slices.len() / SLICE);
    let components = count * k;
    let weights: Vec<f64> = placed.patterns.iter().map(|pattern| pattern.weight).collect();
    let (masks, quads) = (placed.masks(), placed.quads());
    let mut parameters = aligned(count * shape.stride);
    let mut matrices = vec![f64::NAN; components * MATRICES * d * d];
    let mut vectors = vec![f64::NAN; components * VECTORS * d];
    let (mut constants, mut problems) = (vec![f64::NAN; components], vec![i32::MIN; components]);
    let (mut offsets, mut values) = (vec![f64::NAN; count], vec![f64::NAN; count * patterns::values(k, d)]);
    let (mut sums, mut totals) = (vec![f64::NAN; slices * shape.sums], vec![f64::NAN; slices]);
    let rows = placed.places;
    let q_stride = rows.next_multiple_of(TILE);
    let mut q = aligned(k * q_stride);
    let (mut scores, mut labels) = (vec![f64::NAN; rows], vec![u32::MAX; rows]);
    let mut blocks = vec![f64::NAN; 2];
    {
        let mut memory = Memory::new();
        let number = memory.read("mixture", &numbers);
        let masks = Masks { words: memory.read("masks", &masks), width: words as u32, count: count as u32 };
        let parameters =
            memory.write("parameters", &mut bytemuck::cast_slice_mut::<_, T>(&mut parameters)[..count * shape.stride]);
        let matrices = memory.write("matrices", &mut matrices);
        let vectors = memory.write("vectors", &mut vectors);
        let values = memory.write("values", &mut values);
        let marginals = MarginalsArgs {
            layout: shape.layout(),
            masks,
            weights: memory.read("weights", &weights),
            log2_weights: number,
            means: number.wrapping_add(k),
            covariances: number.wrapping_add(k * (1 + d)),
            max_deviation: T::MAX_DEVIATION,
            min_positive: T::MIN_POSITIVE,
            parameters,
            stride: shape.stride as u64,
            places: shape.places(),
            matrices,
            vectors,
            constants: memory.write("constants", &mut constants),
            problems: memory.write("problems", &mut problems),
            offsets: memory.write("offsets", &mut offsets),
            values,
        };
        let x = memory.read("x", columns);
        let table = memory.read("slices", &shape.slices);
        let partials = memory.write("sums", &mut sums);
        let complete = CompleteArgs {
            layout: shape.layout(),
            masks,
            slices: memory.read("first slices", &shape.first_slices),
            first_slice: 0,
            statistics: 1,
            sums: partials,
            value_stride: if fused { 1 } else { slices as u64 },
            slice_stride: if fused { shape.sums as u64 } else { 1 },
            totals: ptr::null(),
            matrices,
            vectors,
            values,
        };
        // One warp or two.
        let threads = if k == 3 { 64 } else { 32 };
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe { launch((count as u32, 1), threads, 0, &memory, T::MARGINALS, marginals) };
        if fused {
            let totals = memory.write("totals", &mut totals);
            let n = placed.padded() as u64;
            let args = FusedPatternsArgs {
                columns: Columns { x: x.cast(), stride: stride as u64, n, cached_quads: n as u32 / 8 },
                sample_weights: if scale > 1.0 { x.cast::<f32>().wrapping_add(d * stride) } else { ptr::null() },
                slices: table,
                of_patterns: ParametersOfQuads { patterns: ptr::null(), first: 0, stride: shape.stride as u64 },
                parameters: parameters.cast(),
                sums: partials,
                totals,
            };
            let shared = fused_patterns::shared_bytes(d, shape.capacity);
            let complete = CompleteArgs { totals, ..complete };
            // SAFETY: as above.
            unsafe {
                launch((slices as u32, 1), 32, shared, &memory, fused_kernel(shape.capacity, d), args);
                launch((count as u32, 1), threads, 0, &memory, complete_patterns, complete);
            }
        } else {
            let (n, stride) = (shape.rows(0..slices).len() as u32, stride as u64);
            let of_quads =
                ParametersOfQuads { patterns: memory.read("quads", &quads), first: 0, stride: shape.stride as u64 };
            let at = |offset: usize| parameters.cast_const().wrapping_add(offset);
            let q = memory.write("q", &mut bytemuck::cast_slice_mut::<_, T>(&mut q)[..k * q_stride]);
            let (k, d, q_stride) = (k as u32, d as u32, q_stride as u64);
            let density = DensityArgs {
                x,
                stride,
                n,
                k,
                d,
                matrices: at(0),
                matrix_stride: shape.general.matrix_stride as u64,
                shifts: at(shape.general.shifts),
                seeds: at(shape.general.seeds),
                of_quads,
                q,
                q_stride,
            };
            let posterior = PosteriorArgs {
                q,
                stride: q_stride,
                n,
                k,
                weights: at(shape.general.weights),
                of_quads,
                sample_weights: x.wrapping_add(d as usize * stride as usize),
                responsibilities: 1,
                add: 0,
                scores: memory.write("scores", &mut scores),
                labels: memory.write("labels", &mut labels),
                partials: memory.write("blocks", &mut blocks),
            };
            let accumulate = AccumulateArgs {
                x,
                stride,
                n,
                k,
                d,
                slices: slices as u32,
                slice: 0,
                table,
                first: 0,
                add: 0,
                r: q,
                r_stride: q_stride,
                centres: at(shape.general.centres),
                partials,
                partials_stride: slices as u64,
            };
            // SAFETY: as above.
            unsafe {
                launch((3, 1), 64, 0, &memory, T::DENSITY[1], density);
                launch((2, 1), 64, FINISH_SHARED_BYTES, &memory, T::POSTERIOR, posterior);
                launch((2, 1), 64, 0, &memory, T::ACCUMULATE[1], accumulate);
                launch((count as u32, 1), threads, 0, &memory, complete_patterns, complete);
            }
        }
    }
    arrangement::check_problems(&problems, k, mixture, T::NAME)?;
    let results: Vec<f64> = values.chunks_exact(count).map(|patterns| patterns.iter().sum()).collect();
    let [offset, problems, total] = results[results.len() - 3..] else { unreachable!("three numbers") };
    assert_eq!(problems, 0.0);
    let log2 = if fused { total } else { blocks.iter().sum() };
    let log_likelihood = LN_2 * (log2 * scale + offset + placed.frame_offset(frame));
    let statistics =
        arrangement::statistics(&results, scale, (samples.total_weight(), log_likelihood), mixture, frame)?;
    let mut pass =
        Pass { log_likelihood, scores: vec![f64::NAN; placed.n], labels: vec![usize::MAX; placed.n], statistics };
    placed.for_each_place(0..count, 0..rows, |pattern, place, row| {
        assert_eq!(quads[place / QUAD] as usize, pattern);
        pass.scores[row] = LN_2 * (scores[place] + offsets[pattern] + placed.patterns[pattern].frame_offset(frame));
        pass.labels[row] = labels[place] as usize;
    });
    Ok(pass)
}

/// Compares a pass with the reference. Tolerances: those of `general`, for as many roundings.
fn check<T: PatternKernels>(x: &Array2<f64>, weights: Option<&Array1<f64>>, mixture: &Mixture, fused: bool) {
    let (n, d) = x.dim();
    let x = &x.mapv(|v| T::from_f64(v).into());
    let kind = mixture.covariance_type();
    let what = format!("{} {kind} N={n} D={d} K={} fused={fused}", T::NAME, mixture.n_components());
    let samples = Samples::with_missing(x.view()).unwrap();
    let samples = weights.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
    let frame = Frame::of_observed(x.view());
    let got = pass::<T>(&samples, &frame, mixture, fused).unwrap();
    if n < 25 {
        assert_eq!(
            format!("{got:?}"),
            format!("{:?}", pass::<T>(&samples, &frame, mixture, fused).unwrap()),
            "{what}: the same bits every time"
        );
    }
    let mut reference = ReferenceEvaluator::new(samples);
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound:e})");
    };
    let scores = reference.score_samples(mixture).unwrap();
    let bound = |score: f64| T::UNIT * (score.abs() + d as f64);
    let sum = scores.iter().enumerate().map(|(i, score)| bound(*score) * weights.map_or(1.0, |w| w[i])).sum();
    near(got.log_likelihood, reference.log_likelihood(mixture).unwrap(), sum, "log-likelihood");
    if !fused {
        for (i, (got, truth)) in got.scores.iter().zip(&scores).enumerate() {
            near(*got, *truth, bound(*truth), &format!("score {i}"));
        }
        // Rounding may decide between components that are equally probable: one sample in a
        // thousand.
        let labels = reference.predict(mixture).unwrap();
        let same = got.labels.iter().zip(&labels).filter(|(a, b)| a == b).count();
        assert!(same * 1000 >= n * 999, "{what}: {same} labels of {n} agree");
    }
    let truth = reference.statistics(mixture).unwrap();
    let (got, weight) = (got.statistics, truth.weight());
    near(got.weight(), weight, 1e-12 * weight, "weight");
    let size = FAR.max(x.iter().copied().filter(|v| !v.is_nan()).fold(0.0, |max: f64, v| max.max(v.abs())) / 100.0);
    for (c, count) in truth.counts().iter().enumerate() {
        near(got.counts()[c], *count, T::SUMS * weight, &format!("count {c}"));
        if *count > 0.01 {
            for (a, b) in got.means().row(c).iter().zip(truth.means().row(c)) {
                near(*a, *b, T::SUMS * size * weight / count, &format!("mean of {c}"));
            }
        }
    }
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, T::SUMS * FAR * FAR * d as f64 + T::SUMS * 4.0 * weight * d as f64, "scatter");
    }
}

/// Samples with a share of their values missing, and rows with none. The patterns are few, because
/// a block of the emulator is threads of the host, which meet for each step of a factorisation.
fn data(rng: &mut ChaCha8Rng, n: usize, d: usize, holes: f64) -> Array2<f64> {
    const PATTERNS: usize = 3;
    let missing = Array2::from_shape_simple_fn((PATTERNS, d), || rng.random::<f64>() < holes);
    let mut x = Array2::from_shape_simple_fn((n, d), || 3.0 + rng.sample::<f64, _>(StandardNormal));
    x.row_mut(n / 2).fill(FAR);
    for mut row in x.outer_iter_mut() {
        let missing = missing.row(rng.random_range(0..PATTERNS));
        row.iter_mut().zip(missing).for_each(|(v, missing)| *v = if *missing { f64::NAN } else { *v });
    }
    if n > 20 {
        x.row_mut(7).fill(f64::NAN);
        x.row_mut(n - 1).fill(f64::NAN);
    }
    x
}

/// The `full` and the `tied` one.
fn with_matrices(rng: &mut ChaCha8Rng, k: usize, d: usize) -> Vec<Mixture> {
    let matrix = |m: &Mixture| m.covariance_type().has_matrices();
    of_each_type(rng, k, d).into_iter().filter(matrix).collect()
}

#[test]
fn every_shape_agrees_with_the_reference() {
    let cases = [
        // N, D, K, share of values missing, whether there is an instance of `fused_patterns`
        (1, 1, 1, 0.0, true),
        (30, 1, 2, 0.3, true),
        (30, 3, 1, 0.6, true),
        (1100, 3, 2, 0.05, true),
        (40, 5, 3, 0.3, true),
        (30, 13, 8, 0.05, true),
        (20, 16, 2, 0.3, true),
        (24, 4, 11, 0.3, true),
        (21, 9, 3, 0.3, false),
        (6, 33, 2, 0.1, false),
    ];
    for (i, (n, d, k, holes, fused)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let x = data(&mut rng, n, d, holes);
        let weights = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.7 });
        for (j, mixture) in with_matrices(&mut rng, k, d).into_iter().enumerate() {
            let weights = [None, Some(&weights)];
            check::<f32>(&x, weights[(i + j) % 2], &mixture, false);
            check::<f64>(&x, weights[(i + j + 1) % 2], &mixture, false);
            if fused {
                check::<f32>(&x, weights[(i + j + 1) % 2], &mixture, true);
            }
        }
    }
}

/// Columns that are far from the origin, or of which all values are missing; a component without
/// weight.
#[test]
fn far_columns_empty_columns_and_dead_components() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut x = data(&mut rng, 40, 5, 0.2);
    // A quarter is a float32's last place there.
    x.column_mut(1).mapv_inplace(|v| (4.0 * v).round() / 4.0 + 2e6);
    x.column_mut(3).fill(f64::NAN);
    for mixture in with_matrices(&mut rng, 4, 5) {
        let weights = ndarray::arr1(&[0.5, 0.0, 0.2, 0.3]);
        let mut means = mixture.means().to_owned();
        means.column_mut(1).mapv_inplace(|v| v + 2e6);
        means.row_mut(1).fill(1e9);
        let mixture = Mixture::new(weights, means, mixture.covariances().clone()).unwrap();
        check::<f32>(&x, None, &mixture, false);
        check::<f32>(&x, None, &mixture, true);
        check::<f64>(&x, None, &mixture, false);
    }
}

/// Parameters that float32 cannot hold are refused with the component and the column.
#[test]
fn parameters_outside_the_range_are_refused() {
    let x = ndarray::arr2(&[[1.0, f64::NAN, 2.0], [f64::NAN, 1.0, 3.0], [0.5, 2.0, f64::NAN]]);
    let samples = Samples::with_missing(x.view()).unwrap();
    let mut covariances = ndarray::Array3::zeros((2, 3, 3));
    for c in 0..2 {
        (0..3).for_each(|j| covariances[[c, j, j]] = 1.0);
    }
    covariances[[1, 2, 2]] = 1e-60;
    let mixture =
        Mixture::new(ndarray::arr1(&[0.5, 0.5]), Array2::zeros((2, 3)), Covariances::Full(covariances)).unwrap();
    let frame = Frame::of_observed(x.view());
    for fused in [false, true] {
        let error = pass::<f32>(&samples, &frame, &mixture, fused).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { component: 1, column: 2, .. }), "{error}");
    }
    pass::<f64>(&samples, &frame, &mixture, false).unwrap();
}
