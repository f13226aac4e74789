//! The E-step: `fused`, and `tiled` followed by `weighted_sums`.
use super::{FAR, Problem, flat, frame_and_parameters, of_each_type, random_mixture, unwritten, with_holes};
use crate::backends::cuda::estep::fused_layout::FusedLayout;
use crate::backends::cuda::estep::tensor_cores_layout::{
    Section, Shapes, TensorCoresLayout, WhitenedSection, WhitenedShapes,
};
use crate::backends::cuda::estep::weighted_sums_layout::WeightedSumsLayout;
use crate::backends::cuda::likelihood::layout;
use crate::backends::cuda::plan::{Family, Operation, Task, Variant, weighted_sums_shape};
use crate::backends::device_parameters::{Deviations, DeviceParameters, Matrices};
use crate::{CovarianceType, Covariances, Evaluator, Mixture, Precision, ReferenceEvaluator, Samples, Statistics};
use cust::memory::bytemuck;
use gmm_kernels::estep::fused::{self, Moments};
use gmm_kernels::estep::fused_tensor_cores;
use gmm_kernels::estep::tensor_cores::*;
use gmm_kernels::estep::weighted_sums;
use gmm_kernels::estep::{warpgroup, warpgroup_whitened, whitened};
use gmm_kernels::likelihood::tiled;
use gmm_kernels::reduce::slices::{self, ReduceSlicesArgs, reduce_slices};
use gmm_kernels::reduce::{Output, UNWRITTEN};
use gmm_kernels::simt::emulator::{Memory, launch};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn check_statistics<const LANES: usize>(
    n: usize,
    (k, d): (usize, usize),
    [raw, diag, full]: [unsafe fn(fused::FusedArgs); 3],
) {
    assert_eq!(fused::capacity(k), LANES);
    let mut rng = ChaCha8Rng::seed_from_u64((100 * n + 10 * k + d) as u64);
    let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
    // A sample far from every component takes the path with the maximum.
    x.row_mut(n / 2).fill(FAR as f32);
    let mut mixtures = of_each_type(&mut rng, k, d);
    if k > 1 {
        // One with a component far from the data's centre, for which moments of x will not do.
        let near = &mixtures[mixtures.len() - 1];
        let mut means = near.means().to_owned();
        means.row_mut(0).fill(60.0);
        mixtures.push(Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap());
    }
    for mixture in mixtures {
        let problem = Problem::new(x.clone(), &random_mixture(&mut rng, k, d));
        let parameters = DeviceParameters::with_matrices(&mixture, &problem.frame, Deviations::InFrame).unwrap();
        let fused_layout = FusedLayout::new(mixture.covariance_type(), parameters);
        let mut parameters = vec![f32::NAN; fused::numbers(d, fused_layout.moments().full()) * LANES];
        fused_layout.write(&mut parameters);
        let by_value = fused_layout.by_value();
        let (grid, block) = (3, 64);
        let values = fused::values(d, fused_layout.moments().full(), LANES);
        let mut partials = vec![f64::NAN; values * grid as usize];
        let mut memory = Memory::new();
        let args = fused::FusedArgs {
            columns: problem.columns(&mut memory),
            sample_weights: std::ptr::null(),
            parameters: memory.read("parameters", if by_value.is_some() { &[] } else { &parameters[..] }),
            by_value: by_value.unwrap_or([f32::NAN; fused::BY_VALUE]),
            partials: memory.write("partials", &mut partials),
        };
        let kernel = match fused_layout.moments() {
            Moments::Full => full,
            Moments::Raw => raw,
            Moments::Diag => diag,
        };
        let shared = fused::shared_bytes(d, fused_layout.moments().full(), LANES, block);
        // SAFETY: the arguments of this kernel, with the arrays of `memory`.
        unsafe { launch((grid, 1), block, shared, &memory, kernel, args) };
        let sums: Vec<f64> = partials.chunks_exact(grid as usize).map(|blocks| blocks.iter().sum()).collect();
        let got = fused_layout.statistics(&sums, n as f64, 0.0, &problem.frame).unwrap();
        assert_statistics(&x, &mixture, &got);
    }
}

/// Compares with the reference.
///
/// Tolerances: float32 sums of some hundred samples between sums in float64 are 3·10⁻⁵ of the sum
/// of magnitudes at most. The exponents of the far sample are some thousands, off by a few units of
/// 2⁻²⁴ of themselves, which moves its responsibilities by up to some 10⁻⁴: 10⁻⁴ of the sum of
/// magnitudes, of which that sample is a large part. With sⱼ the root of the mean of xⱼ² over all
/// samples, the sum of magnitudes is at most N·sᵢ·sⱼ for the products of two features, and by
/// Cauchy and Schwarz at most sⱼ·√(N·count) for one feature and a component.
fn assert_statistics(x: &Array2<f32>, mixture: &Mixture, got: &Statistics) {
    assert_statistics_within(x, mixture, got, 1e-4);
}

/// As [`assert_statistics`], with another tolerance in place of 10⁻⁴.
fn assert_statistics_within(x: &Array2<f32>, mixture: &Mixture, got: &Statistics, unit: f64) {
    let (n, d) = x.dim();
    let truth = ReferenceEvaluator::new(Samples::with_missing(x.view()).unwrap()).statistics(mixture).unwrap();
    let what = format!("{} N={n} K={} D={d}", mixture.covariance_type(), mixture.n_components());
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound})");
    };
    let total = truth.log_likelihood();
    near(got.log_likelihood(), total, 3e-5 * total.abs().max(1.0), "log-likelihood");
    for (a, b) in got.counts().iter().zip(truth.counts()) {
        near(*a, *b, unit * n as f64, "count");
    }
    // A missing value is about one standard deviation large.
    let square = |v: &f32| if v.is_nan() { 1.0 } else { f64::from(*v).powi(2) };
    let sizes: Vec<f64> = x.columns().into_iter().map(|x| x.iter().map(square).sum::<f64>() / n as f64).collect();
    let counts = truth.counts();
    for ((c, j), b) in truth.means().indexed_iter() {
        // A component with next to no samples has a mean of rounding errors.
        if counts[c] > 0.1 {
            near(got.means()[[c, j]], *b, unit * (sizes[j] * n as f64 / counts[c]).sqrt(), "mean");
        }
    }
    let largest = sizes.iter().copied().fold(0.0, f64::max);
    // The scatter of a spherical component is summed over the features.
    let features = if mixture.covariance_type() == CovarianceType::Spherical { d } else { 1 };
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, unit * n as f64 * largest * features as f64, "scatter");
    }
}

/// The E-step by `tiled` and `weighted_sums`, in pieces of the samples.
fn weighted_sums_statistics(
    x: &Array2<f32>,
    mixture: &Mixture,
    (t, component_warps): (usize, u32),
    block: (usize, usize),
    (piece, slices): (usize, usize),
) -> Statistics {
    let problem = Problem::new(x.clone(), &random_mixture(&mut ChaCha8Rng::seed_from_u64(0), 1, x.ncols()));
    let parameters = DeviceParameters::<f32>::with_matrices(mixture, &problem.frame, Deviations::InFrame).unwrap();
    let sums_layout = WeightedSumsLayout::new(mixture, parameters.clone(), &problem.frame);
    let (k, d) = (parameters.n_components, parameters.n_features);
    let task = Task {
        operation: Operation::EStep,
        n: problem.n,
        k,
        d,
        full: sums_layout.full(),
        tied: false,
        central: sums_layout.central(),
        expandable: false,
        weighted: false,
        gaps: false,
        precision: Precision::Float32,
    };
    let shape = weighted_sums_shape(&task, block.0, block.1);
    let (sm_len, constants_len) = match shape.full {
        true => layout::triangle_sizes(k, d, t),
        false => (layout::tiled_sizes(k, d, t, false).1, layout::tiled_sizes(k, d, t, false).2),
    };
    let (mut sm, mut constants) = (vec![u128::MAX; sm_len.div_ceil(4)], vec![u128::MAX; constants_len.div_ceil(4)]);
    let (a, b) = (bytemuck::cast_slice_mut(&mut sm), bytemuck::cast_slice_mut(&mut constants));
    if shape.full {
        layout::triangles(&parameters, t, a, b)
    } else {
        layout::tiles(&parameters, t, a, b)
    }
    // NaN wherever nobody writes.
    let mut exponents = vec![u128::MAX; k.next_multiple_of(16) * piece / 4];
    let mut normalisers = vec![u128::MAX; 2 * piece / 4];
    let (mut sums, mut log2) = (vec![f64::NAN; slices * shape.sums()], 0.0);
    for first in (0..problem.n).step_by(piece) {
        let mut memory = Memory::new();
        let mut columns = problem.columns(&mut memory);
        columns.x = columns.x.wrapping_add(first);
        columns.n = piece.min(problem.n - first) as u64;
        let exponents = tiled::Exponents {
            q: memory.write("exponents", bytemuck::cast_slice_mut(&mut exponents)),
            normalisers: memory.write("normalisers", bytemuck::cast_slice_mut(&mut normalisers)),
            stride: piece as u32,
        };
        let (mut partials, mut total) = (unwritten(2), vec![f64::NAN]);
        let tiled = tiled::TiledArgs {
            columns,
            d: d as u32,
            tiles: if shape.full { k } else { k.div_ceil(t) } as u32,
            component_warps,
            scales_and_shifts: memory.read("scales and shifts", &bytemuck::cast_slice(&sm)[..sm_len]),
            weights_and_seeds: memory.read("weights and seeds", &bytemuck::cast_slice(&constants)[..constants_len]),
            sample_weights: std::ptr::null(),
            samples: std::ptr::null_mut(),
            exponents,
            output: Output {
                partials: memory.write("partials", &mut partials),
                total: memory.write("total", &mut total),
            },
        };
        let tiled_kernel = match (t, shape.full) {
            (8, false) => tiled::tiled8,
            (8, true) => tiled::tiled_full8,
            (_, false) => tiled::tiled16,
            (_, true) => tiled::tiled_full16,
        };
        let sums_args = weighted_sums::WeightedSumsArgs {
            shape,
            columns,
            exponents,
            weights: memory.read("weights", &sums_layout.weights),
            centres: memory.read("centres", &sums_layout.centres),
            pairs: memory.read("pairs", &sums_layout.pairs).cast(),
            slices: slices as u32,
            add: (first > 0) as u32,
            sums: memory.write("sums", &mut sums),
        };
        let sums_kernel = match (shape.full, shape.central) {
            (false, false) => weighted_sums::weighted_sums_diag_raw,
            (true, false) => weighted_sums::weighted_sums_full_raw,
            (false, true) => weighted_sums::weighted_sums_diag_central,
            (true, true) => weighted_sums::weighted_sums_full_central,
        };
        let block = 32 * component_warps;
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((2, 1), block, tiled::shared_bytes(t, false, block, component_warps), &memory, tiled_kernel, tiled);
            let grid = (shape.blocks(), slices as u32);
            launch(grid, shape.block(), shape.shared_bytes(), &memory, sums_kernel, sums_args);
        }
        log2 += total[0];
    }
    let mut totals = vec![f64::NAN; shape.sums()];
    let count = shape.sums() as u32;
    let mut memory = Memory::new();
    let args = ReduceSlicesArgs {
        sums: memory.read("sums", &sums),
        slices: slices as u32,
        count,
        totals: memory.write("totals", &mut totals),
    };
    let (grid, shared) = ((count.div_ceil(slices::REDUCE_NUMBERS), 1), slices::shared_bytes(64));
    // SAFETY: as above.
    unsafe { launch(grid, 64, shared, &memory, reduce_slices, args) };
    let n = problem.n as f64;
    sums_layout.statistics(&task, &totals, n, log2, &problem.frame).unwrap()
}

#[test]
fn weighted_sums_give_the_statistics() {
    let cases = [
        // N, K, D, rows of a tile, warps along the components, threads of `weighted_sums`, samples
        // of a piece, slices; the shared memory is enough for all stages, or for two or three of
        // them
        (1, 1, 1, 8, 1, 32, 512, 1),
        (600, 3, 2, 8, 1, 32, 256, 2),
        (517, 9, 5, 16, 1, 64, 512, 3),
        (300, 20, 9, 8, 2, 128, 1024, 5),
        (530, 17, 13, 16, 2, 64, 512, 2),
        (70, 2, 34, 16, 1, 64, 256, 1),
    ];
    for (i, (n, k, d, t, component_warps, threads, piece, slices)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        x.row_mut(n / 2).fill(FAR as f32);
        for mixture in of_each_type(&mut rng, k, d) {
            let shared = [227 << 10, 0, 8 << 10][i % 3];
            let run =
                || weighted_sums_statistics(&x, &mixture, (t, component_warps), (threads, shared), (piece, slices));
            let got = run();
            assert_statistics(&x, &mixture, &got);
            let again = run();
            assert_eq!(got, again, "the same bits every time");
        }
    }
}

/// Components of standard deviation 1 that are 10⁴ apart have exact variances, because their
/// moments are taken around their centres. Around a common centre, float32's rounding of 10⁸ (in
/// the seventh digit) would exceed the variances.
#[test]
fn components_far_apart_keep_their_variances() {
    let (n, k, d) = (400, 11, 3);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let centre = |c: usize| 1e4 * c as f64;
    let x = Array2::from_shape_fn((n, d), |(i, _)| (centre(i % k) + rng.sample::<f64, _>(StandardNormal)) as f32);
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let means = Array2::from_shape_fn((k, d), |(c, _)| centre(c) + 0.1);
    let full = ndarray::Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 1.0 } else { 0.2 });
    for covariances in [Covariances::Diag(Array2::ones((k, d))), Covariances::Full(full)] {
        let mixture = Mixture::new(weights.clone(), means.clone(), covariances).unwrap();
        let got = weighted_sums_statistics(&x, &mixture, (8, 1), (64, 227 << 10), (512, 2));
        let truth = ReferenceEvaluator::new(Samples::from_f32(x.view()).unwrap()).statistics(&mixture).unwrap();
        let (a, b): (Vec<f64>, Vec<f64>) = match (got.scatter(), truth.scatter()) {
            (Covariances::Diag(a), Covariances::Diag(b)) => (a.iter().copied().collect(), b.iter().copied().collect()),
            (Covariances::Full(a), Covariances::Full(b)) => (a.iter().copied().collect(), b.iter().copied().collect()),
            _ => panic!("another covariance type"),
        };
        for (a, b) in a.into_iter().zip(b) {
            // A sample's float32 is right to 4·10⁻³ here, 36 of them are summed up: random, so far
            // below 0.1.
            assert!((a - b).abs() < 0.1, "{a} for {b}");
        }
    }
}

/// The same numbers, aligned to 16 bytes. Their number is a multiple of four.
fn aligned(numbers: Vec<u32>) -> Vec<u128> {
    numbers.chunks_exact(4).map(|four| bytemuck::cast([four[0], four[1], four[2], four[3]])).collect()
}

/// Does with the kernels of warpgroups what the arguments of the other kernels of the matrix units
/// say.
fn launch_warpgroups(
    memory: &Memory,
    shape: warpgroup::Shape,
    products: *mut u32,
    exponents: &ExponentsArgs,
    weigh: &WeighArgs,
) {
    use warpgroup::{BLOCK, warpgroup_exponents, warpgroup_products, warpgroup_weigh};
    let &ExponentsArgs { columns, coefficients, constants, sample_weights, exponents, output, .. } = exponents;
    let &WeighArgs { weights, slices, add, sums, .. } = weigh;
    let of_products = warpgroup::ProductsArgs { shape, columns, products };
    let of_exponents = warpgroup::ExponentsArgs {
        shape,
        columns,
        products,
        coefficients,
        constants,
        sample_weights,
        exponents,
        output,
    };
    let of_weigh = warpgroup::WeighArgs { shape, n: columns.n, products, exponents, weights, slices, add, sums };
    // SAFETY: the arguments of these kernels, with the arrays of `memory`.
    unsafe {
        launch((2, 1), 64, 0, memory, warpgroup_products, of_products);
        launch((2, 1), BLOCK, shape.exponents_bytes(), memory, warpgroup_exponents, of_exponents);
        launch((shape.groups() as u32, slices), BLOCK, shape.weigh_bytes(), memory, warpgroup_weigh, of_weigh);
    }
}

/// The E-step by the kernels of the matrix units, in pieces of the samples.
fn tensor_cores_statistics(
    x: &Array2<f32>,
    mixture: &Mixture,
    variant: &str,
    (piece, slices): (usize, usize),
    weights: Option<&[f32]>,
) -> Statistics {
    let problem = Problem::new(x.clone(), &random_mixture(&mut ChaCha8Rng::seed_from_u64(0), 1, x.ncols()));
    let parameters = DeviceParameters::<f32>::with_matrices(mixture, &problem.frame, Deviations::InFrame).unwrap();
    let (k, d) = (parameters.n_components, parameters.n_features);
    let layout = TensorCoresLayout::new(mixture, parameters, &problem.frame);
    assert!(layout.expandable());
    let task = Task {
        operation: Operation::EStep,
        n: problem.n,
        k,
        d,
        full: layout.full(),
        tied: mixture.covariance_type() == CovarianceType::Tied,
        central: false,
        expandable: true,
        weighted: weights.is_some(),
        gaps: false,
        precision: Precision::Float32,
    };
    let variant: Variant = variant.parse().unwrap();
    let of_warpgroups = variant.family == Family::Warpgroup;
    let warpgroups = warpgroup::Shape { d: d as u32, k: k as u32 };
    let shapes = Shapes::new(&task, &variant);
    let mut parameters = vec![u128::MAX; shapes.len().div_ceil(4)];
    let parameters = &mut bytemuck::cast_slice_mut(&mut parameters)[..shapes.len()];
    layout.write(&shapes, parameters);
    let [pairs, pairs_of_weigh] = shapes.pairs(layout.full()).map(aligned);
    let coefficients = &parameters[shapes.section(Section::Coefficients)];
    let mut halves = vec![u128::MAX; coefficients.len() / 4];
    let halves: &mut [u32] = bytemuck::cast_slice_mut(&mut halves);
    let mut memory = Memory::new();
    let args = SplitArgs {
        shape: shapes.exponents,
        coefficients: memory.read("coefficients", coefficients),
        halves: memory.write("halves", halves),
    };
    // SAFETY: the arguments of these kernels, with the arrays of `memory`.
    unsafe {
        if of_warpgroups {
            let SplitArgs { coefficients, halves, .. } = args;
            let args = warpgroup::CoefficientsArgs { shape: warpgroups, coefficients, halves };
            launch((2, 1), 64, 0, &memory, warpgroup::warpgroup_coefficients, args);
        } else {
            launch((2, 1), 64, 0, &memory, split_coefficients, args);
        }
    }
    let mut products = vec![u128::MAX; if of_warpgroups { warpgroups.products_len(piece) / 4 } else { 0 }];
    // NaN wherever nobody writes.
    let mut q = vec![u128::MAX; shapes.rows() * piece / 4];
    let mut normalisers = vec![u128::MAX; 2 * piece / 4];
    let (mut sums, mut log2) = (vec![f64::NAN; slices * shapes.weigh.sums()], 0.0);
    for first in (0..problem.n).step_by(piece) {
        let mut memory = Memory::new();
        let mut columns = problem.columns(&mut memory);
        columns.x = columns.x.wrapping_add(first);
        columns.n = piece.min(problem.n - first) as u64;
        let exponents = tiled::Exponents {
            q: memory.write("exponents", bytemuck::cast_slice_mut(&mut q)),
            normalisers: memory.write("normalisers", bytemuck::cast_slice_mut(&mut normalisers)),
            stride: piece as u32,
        };
        let (mut partials, mut total) = (unwritten(2), vec![f64::NAN]);
        let args = ExponentsArgs {
            shape: shapes.exponents,
            columns,
            pairs: memory.read("pairs", &pairs).cast(),
            coefficients: memory.read("halves", halves),
            constants: memory.read("constants", &parameters[shapes.section(Section::Constants)]),
            sample_weights: weights.map_or(std::ptr::null(), |w| memory.read("weights of samples", &w[first..])),
            samples: std::ptr::null_mut(),
            exponents,
            output: Output {
                partials: memory.write("partials", &mut partials),
                total: memory.write("total", &mut total),
            },
        };
        let weigh = WeighArgs {
            shape: shapes.weigh,
            columns,
            exponents,
            weights: memory.read("weights", &parameters[shapes.section(Section::Weights)]),
            pairs: memory.read("pairs", &pairs_of_weigh).cast(),
            slices: slices as u32,
            add: (first > 0) as u32,
            sums: memory.write("sums", &mut sums),
        };
        if of_warpgroups {
            let products = memory.write("products", bytemuck::cast_slice_mut(&mut products));
            launch_warpgroups(&memory, warpgroups, products, &args, &weigh);
            log2 += total[0];
            continue;
        }
        let (exponents_kernel, weigh_kernel): (unsafe fn(_), unsafe fn(_)) =
            match (shapes.exponents.full, shapes.exponents.tiles) {
                (false, 1) => (exponents_diag_m1, weigh_diag_m1),
                (false, _) => (exponents_diag_m2, weigh_diag_m2),
                (true, 1) => (exponents_full_m1, weigh_full_m1),
                (true, _) => (exponents_full_m2, weigh_full_m2),
            };
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            let shape = shapes.exponents;
            launch((2, 1), shape.block(), shape.shared_bytes(), &memory, exponents_kernel, args);
            let shape = shapes.weigh;
            let grid = (shape.blocks(), slices as u32);
            launch(grid, shape.block(), shape.shared_bytes(), &memory, weigh_kernel, weigh);
        }
        log2 += total[0];
    }
    let slices = sums.chunks_exact(shapes.weigh.sums());
    let sums: Vec<f64> = (0..shapes.weigh.sums()).map(|i| slices.clone().map(|slice| slice[i]).sum()).collect();
    let weight = weights.map_or(problem.n as f64, |w| w.iter().copied().map(f64::from).sum());
    layout.statistics(&shapes, &sums, 1.0, weight, log2, &problem.frame).unwrap()
}

#[test]
fn tensor_cores_give_the_statistics() {
    let cases = [
        // N, K, D, variant, samples of a piece, slices
        (1, 1, 1, "tensor_cores/1:64x1:all", 128, 1),
        (133, 3, 2, "tensor_cores/1:64x1:all", 128, 2),
        (70, 20, 9, "tensor_cores/2:128x1:all", 128, 1),
        (131, 70, 5, "tensor_cores/2:128x1:all", 128, 3),
        // With matrices several warps side by side, and several blocks, along the products.
        (140, 2, 36, "tensor_cores/1:64x1:all", 128, 2),
    ];
    for (i, (n, k, d, variant, piece, slices)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        if n > 1 {
            x.row_mut(n / 2).fill(FAR as f32);
        }
        for mixture in of_each_type(&mut rng, k, d) {
            let got = tensor_cores_statistics(&x, &mixture, variant, (piece, slices), None);
            // The far sample's responsibilities are rounded by 2⁻¹² of themselves; with few
            // components it is most of the scatter.
            let unit = if k == 2 { 3.5e-4 } else { 1e-4 };
            assert_statistics_within(&x, &mixture, &got, unit);
        }
    }
}

/// The E-step by the kernels of the matrix units for matrices, in pieces of the samples.
fn whitened_statistics(
    x: &Array2<f32>,
    mixture: &Mixture,
    variant: &str,
    (piece, slices): (usize, usize),
    weights: Option<&[f32]>,
) -> Statistics {
    use whitened::{OuterArgs, SplitMatricesArgs, WhitenArgs, outer, split_matrices, whiten};
    let problem = Problem::new(x.clone(), &random_mixture(&mut ChaCha8Rng::seed_from_u64(0), 1, x.ncols()));
    let parameters = DeviceParameters::<f32>::with_matrices(mixture, &problem.frame, Deviations::InFrame).unwrap();
    let (k, d) = (parameters.n_components, parameters.n_features);
    let layout = TensorCoresLayout::of_features(mixture, parameters, &problem.frame);
    assert!(layout.expandable());
    let task = Task {
        operation: Operation::EStep,
        n: problem.n,
        k,
        d,
        full: layout.full(),
        tied: mixture.covariance_type() == CovarianceType::Tied,
        central: false,
        expandable: true,
        weighted: weights.is_some(),
        gaps: false,
        precision: Precision::Float32,
    };
    let variant: Variant = variant.parse().unwrap();
    let shapes = WhitenedShapes::new(&task, &variant).unwrap();
    let mut parameters = vec![f32::NAN; shapes.len()];
    layout.write_whitened(&shapes, &mut parameters);
    let section = |section: WhitenedSection| &parameters[shapes.section(section)];
    let (of_whiten, of_outer) = match shapes {
        WhitenedShapes::Warps { whiten, outer } => (whiten, outer),
        WhitenedShapes::Warpgroups(shape) => {
            let (sums, log2) =
                warpgroup_whitened_sums(&problem, shape, variant.block, section, (piece, slices), weights);
            let weight = weights.map_or(problem.n as f64, |w| w.iter().copied().map(f64::from).sum());
            return layout.whitened_statistics(&shapes, &sums, 1.0, weight, log2, &problem.frame).unwrap();
        }
    };
    let mut fragments = vec![u128::MAX; k * of_whiten.fragments() / 4];
    let fragments: &mut [u32] = bytemuck::cast_slice_mut(&mut fragments);
    let mut memory = Memory::new();
    let args = SplitMatricesArgs {
        shape: of_whiten,
        matrices: memory.read("matrices", section(WhitenedSection::Matrices)),
        fragments: memory.write("fragments", fragments),
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((2, 1), 64, 0, &memory, split_matrices, args) };
    // NaN wherever nobody writes.
    let mut q = vec![u128::MAX; shapes.rows() * piece / 4];
    let mut normalisers = vec![u128::MAX; 2 * piece / 4];
    let mut halves = vec![u128::MAX; d * piece / 4];
    let count = of_outer.sums();
    let (mut sums, mut log2) = (vec![f64::NAN; slices * count], 0.0);
    for first in (0..problem.n).step_by(piece) {
        let mut memory = Memory::new();
        let mut columns = problem.columns(&mut memory);
        columns.x = columns.x.wrapping_add(first);
        columns.n = piece.min(problem.n - first) as u64;
        let exponents = tiled::Exponents {
            q: memory.write("exponents", bytemuck::cast_slice_mut(&mut q)),
            normalisers: memory.write("normalisers", bytemuck::cast_slice_mut(&mut normalisers)),
            stride: piece as u32,
        };
        let (mut partials, mut total) = (unwritten(2), vec![f64::NAN]);
        let halves = memory.write::<u32>("halves", bytemuck::cast_slice_mut(&mut halves));
        let args = WhitenArgs {
            shape: of_whiten,
            columns,
            fragments: memory.read("fragments", fragments),
            shifts: memory.read("shifts", section(WhitenedSection::Shifts)),
            constants: memory.read("constants", section(WhitenedSection::Constants)),
            sample_weights: weights.map_or(std::ptr::null(), |w| memory.read("weights of samples", &w[first..])),
            exponents,
            halves,
            output: Output {
                partials: memory.write("partials", &mut partials),
                total: memory.write("total", &mut total),
            },
        };
        let outer_args = OuterArgs {
            shape: of_outer,
            n: columns.n,
            halves,
            exponents,
            weights: memory.read("weights", section(WhitenedSection::Weights)),
            slices: slices as u32,
            add: (first > 0) as u32,
            sums: memory.write("sums", &mut sums),
        };
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((2, 1), of_whiten.block(), of_whiten.shared_bytes(), &memory, whiten, args);
            let grid = (of_outer.blocks(), slices as u32);
            launch(grid, of_outer.block(), of_outer.shared_bytes(), &memory, outer, outer_args);
        }
        log2 += total[0];
    }
    let sums: Vec<f64> = (0..count).map(|i| sums.chunks_exact(count).map(|slice| slice[i]).sum()).collect();
    let weight = weights.map_or(problem.n as f64, |w| w.iter().copied().map(f64::from).sum());
    layout.whitened_statistics(&shapes, &sums, 1.0, weight, log2, &problem.frame).unwrap()
}

/// The sums of the kernels of warpgroups for matrices, over all slices, and the log₂-likelihood.
fn warpgroup_whitened_sums<'a>(
    problem: &Problem,
    shape: warpgroup_whitened::Shape,
    whiten_block: u32,
    section: impl Fn(WhitenedSection) -> &'a [f32],
    (piece, slices): (usize, usize),
    weights: Option<&[f32]>,
) -> (Vec<f64>, f64) {
    use warpgroup_whitened::*;
    // NaN wherever nobody writes.
    let mut triangles = vec![u128::MAX; shape.triangles_len() / 4];
    let mut features = vec![u128::MAX; shape.features_len(piece) / 4];
    let mut responsibilities = vec![u128::MAX; shape.responsibilities_len(piece) / 4];
    let mut q = vec![u128::MAX; shape.rows() * piece / 4];
    let mut normalisers = vec![u128::MAX; 2 * piece / 4];
    let (of_outer, of_respond) = (shape.outer_sums(), shape.respond_sums());
    let (mut sums, mut others) = (vec![f64::NAN; slices * of_outer], vec![f64::NAN; slices * of_respond]);
    let mut log2 = 0.0;
    for first in (0..problem.n).step_by(piece) {
        let mut memory = Memory::new();
        let mut columns = problem.columns(&mut memory);
        columns.x = columns.x.wrapping_add(first);
        columns.n = piece.min(problem.n - first) as u64;
        let n = columns.n;
        let exponents = tiled::Exponents {
            q: memory.write("exponents", bytemuck::cast_slice_mut(&mut q)),
            normalisers: memory.write("normalisers", bytemuck::cast_slice_mut(&mut normalisers)),
            stride: piece as u32,
        };
        let triangles = memory.write::<u32>("triangles", bytemuck::cast_slice_mut(&mut triangles));
        let features = memory.write::<u32>("features", bytemuck::cast_slice_mut(&mut features));
        let responsibilities = memory.write::<u32>("responsibilities", bytemuck::cast_slice_mut(&mut responsibilities));
        let weights_of_components = memory.read("weights", section(WhitenedSection::Weights));
        let (mut partials, mut total) = (unwritten(2), vec![f64::NAN]);
        let (add, count) = ((first > 0) as u32, slices as u32);
        let matrices = memory.read("matrices", section(WhitenedSection::Matrices));
        let splitting = TrianglesArgs { shape, matrices, triangles };
        let forming = FeaturesArgs { shape, columns, features };
        let whitening = WhitenArgs {
            shape,
            n,
            group_units: shape.group_units() as u32,
            features,
            triangles,
            shifts: memory.read("shifts", section(WhitenedSection::Shifts)),
            constants: memory.read("constants", section(WhitenedSection::Constants)),
            q: exponents.q,
        };
        let normalising = NormaliseArgs {
            shape,
            columns,
            weights: weights_of_components,
            sample_weights: weights.map_or(std::ptr::null(), |w| memory.read("weights of samples", &w[first..])),
            exponents,
            output: Output {
                partials: memory.write("partials", &mut partials),
                total: memory.write("total", &mut total),
            },
        };
        let responding = RespondArgs {
            shape,
            n,
            features,
            exponents,
            weights: weights_of_components,
            responsibilities,
            slices: count,
            add,
            sums: memory.write("sums of features", &mut others),
        };
        let sums = memory.write("sums", &mut sums);
        let summing = OuterArgs { shape, n, features, responsibilities, slices: count, add, sums };
        let whiten: unsafe fn(WhitenArgs) = match shape.width() {
            32 => warpgroup_whiten_d32,
            64 => warpgroup_whiten_d64,
            96 => warpgroup_whiten_d96,
            _ => warpgroup_whiten_d128,
        };
        let respond: unsafe fn(RespondArgs) = match shape.width() {
            32 => warpgroup_respond_d32,
            64 => warpgroup_respond_d64,
            96 => warpgroup_respond_d96,
            _ => warpgroup_respond_d128,
        };
        let outer: unsafe fn(OuterArgs) = match shape.width() {
            32 => warpgroup_outer_d32,
            64 => warpgroup_outer_d64,
            96 => warpgroup_outer_d96,
            _ => warpgroup_outer_d128,
        };
        // SAFETY: the arguments of these kernels, with the arrays of `memory`.
        unsafe {
            launch((2, 1), 64, 0, &memory, warpgroup_triangles, splitting);
            launch((2, 1), 64, 0, &memory, warpgroup_features, forming);
            let grid = (1, shape.groups() as u32);
            launch(grid, whiten_block, shape.whiten_bytes(), &memory, whiten, whitening);
            launch((2, 1), 64, gmm_kernels::reduce::FINISH_SHARED_BYTES, &memory, warpgroup_normalise, normalising);
            launch((shape.chunks(), count), RESPOND_BLOCK, shape.respond_bytes(), &memory, respond, responding);
            launch((shape.outer_blocks(), count), OUTER_BLOCK, shape.outer_bytes(), &memory, outer, summing);
        }
        log2 += total[0];
    }
    let both = [(&sums, of_outer), (&others, of_respond)];
    let all = both
        .into_iter()
        .flat_map(|(sums, count)| (0..count).map(move |i| sums.chunks_exact(count).map(|slice| slice[i]).sum()));
    (all.collect(), log2)
}

#[test]
fn warpgroups_give_the_statistics() {
    let cases = [
        // N, K, D, samples of a piece, slices
        (1, 1, 1, 128, 1),
        // Two groups of components, two pieces.
        (200, 131, 3, 128, 1),
        // More slices than the last piece has tiles; more tiles than blocks.
        (700, 3, 17, 384, 2),
        // All products of a sample.
        (70, 5, 127, 128, 1),
    ];
    for (i, (n, k, d, piece, slices)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        if n > 1 {
            x.row_mut(n / 2).fill(FAR as f32);
        }
        for mixture in of_each_type(&mut rng, k, d) {
            if mixture.factor().is_some() {
                continue;
            }
            let run = |weights: Option<&[f32]>| {
                tensor_cores_statistics(&x, &mixture, "warpgroup:384x1:all", (piece, slices), weights)
            };
            let got = run(None);
            // The far sample's responsibilities are rounded by 2⁻¹² of themselves, and that sample
            // is most of the scatter.
            assert_statistics_within(&x, &mixture, &got, 3.5e-4);
            if n == 70 {
                assert_eq!(got, run(None), "the same bits every time");
                // Samples of weight zero are as good as not there.
                let weights: Vec<f32> = (0..n).map(|i| (i % 2) as f32).collect();
                let odd: Vec<usize> = (1..n).step_by(2).collect();
                let x = x.select(ndarray::Axis(0), &odd);
                assert_statistics_within(&x, &mixture, &run(Some(&weights)), 3.5e-4);
            }
        }
    }
}

#[test]
fn whitened_gives_the_statistics() {
    let cases = [
        // N, K, D, variant, samples of a piece, slices
        (1, 1, 1, "whitened/1:32x1:all", 128, 1),
        (133, 3, 2, "whitened/1:64x1:all", 128, 2),
        (200, 5, 20, "whitened/3:192x1:all", 128, 2),
        (70, 7, 33, "whitened/2:64x1:all", 128, 1),
        (90, 2, 70, "whitened/2:128x1:all", 128, 1),
        (1, 1, 1, "warpgroup_whitened:384x1:all", 128, 1),
        // An odd number of components of few features; two pieces.
        (200, 35, 7, "warpgroup_whitened:512x1:all", 128, 1),
        (70, 3, 32, "warpgroup_whitened:384x1:all", 128, 1),
        // Two slices of two tiles each.
        (500, 9, 40, "warpgroup_whitened:512x1:all", 512, 2),
        (90, 2, 70, "warpgroup_whitened:384x1:all", 128, 1),
        // Components of two blocks of `warpgroup_respond`, the last one with fewer.
        (130, 70, 33, "warpgroup_whitened:512x1:all", 256, 1),
        // Two groups of triangles.
        (130, 6, 127, "warpgroup_whitened:384x1:all", 256, 1),
    ];
    for (i, (n, k, d, variant, piece, slices)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        if n > 1 {
            x.row_mut(n / 2).fill(FAR as f32);
        }
        for mixture in of_each_type(&mut rng, k, d) {
            if mixture.factor().is_none() {
                continue;
            }
            let run = || whitened_statistics(&x, &mixture, variant, (piece, slices), None);
            let got = run();
            // The far sample's responsibilities are rounded by 2⁻¹² of themselves, and that sample
            // is most of the scatter.
            assert_statistics_within(&x, &mixture, &got, 3.5e-4);
            if n <= 100 {
                assert_eq!(got, run(), "the same bits every time");
                // Samples of weight zero are as good as not there.
                let weights: Vec<f32> = (0..n).map(|i| (i % 2) as f32).collect();
                let odd: Vec<usize> = (1..n).step_by(2).collect();
                if !odd.is_empty() {
                    let got = whitened_statistics(&x, &mixture, variant, (piece, slices), Some(&weights));
                    assert_statistics_within(&x.select(ndarray::Axis(0), &odd), &mixture, &got, 3.5e-4);
                }
            }
        }
    }
}

/// The E-step by `fused_tensor_cores`.
fn fused_tensor_cores_statistics(
    x: &Array2<f32>,
    mixture: &Mixture,
    (grid, block): (u32, u32),
    weights: Option<&[f32]>,
) -> Statistics {
    use fused_tensor_cores::*;
    let problem = Problem::new(x.clone(), &random_mixture(&mut ChaCha8Rng::seed_from_u64(0), 1, x.ncols()));
    let samples = Samples::with_missing(x.view()).unwrap();
    let wide: Option<Array1<f64>> = weights.map(|w| w.iter().copied().map(f64::from).collect());
    let samples = wide.iter().fold(samples, |samples, w| samples.with_weights(w.view()).unwrap());
    let (_, parameters) = frame_and_parameters(&samples, mixture);
    let layout = if let Matrices::Diagonal = parameters.matrices {
        TensorCoresLayout::new(mixture, parameters, &problem.frame)
    } else {
        TensorCoresLayout::of_features(mixture, parameters, &problem.frame)
    };
    assert!(layout.expandable());
    let shape = layout.fused_shape().unwrap();
    let mut parameters = vec![f32::NAN; shape.numbers()];
    layout.write_fused(shape, &mut parameters);
    let by_value = layout.fused_by_value(shape);
    let (mut integers, mut values) = (vec![0u64; shape.sums()], vec![f64::NAN; 1 + shape.sums()]);
    let mut partials = unwritten(grid);
    let mut memory = Memory::new();
    let (log2, sums) = values.split_at_mut(1);
    let args = FusedTensorCoresArgs {
        columns: problem.columns(&mut memory),
        d: problem.d as u32,
        sample_weights: weights.map_or(std::ptr::null(), |w| memory.read("weights of samples", w)),
        parameters: memory.read("parameters", if by_value.is_some() { &[] } else { &parameters[..] }),
        by_value: by_value.unwrap_or([f32::NAN; BY_VALUE]),
        integers: memory.write("integers", &mut integers),
        unit: unit(problem.n as u64),
        sums: memory.write("sums", sums),
        output: Output { partials: memory.write("partials", &mut partials), total: memory.write("total", log2) },
    };
    let kernel: unsafe fn(_) = match (shape.pairs, shape.components) {
        _ if shape.rotations == 5 => fused_tensor_cores_full_d09_k08,
        _ if shape.rotations == 7 => fused_tensor_cores_full_d13_k08,
        _ if shape.rotations == 8 => fused_tensor_cores_full_d15_k08,
        (1, 1) if shape.gaps => fused_tensor_cores_observed_d16_k08,
        (2, 1) if shape.gaps => fused_tensor_cores_observed_d32_k08,
        (1, 2) if shape.gaps => fused_tensor_cores_observed_d16_k16,
        (2, 2) if shape.gaps => fused_tensor_cores_observed_d32_k16,
        (1, 4) if shape.gaps => fused_tensor_cores_observed_d16_k32,
        (2, 4) if shape.gaps => fused_tensor_cores_observed_d32_k32,
        (1, 1) => fused_tensor_cores_d16_k08,
        (2, 1) => fused_tensor_cores_d32_k08,
        (1, 2) => fused_tensor_cores_d16_k16,
        (2, 2) => fused_tensor_cores_d32_k16,
        (1, 4) => fused_tensor_cores_d16_k32,
        (2, 4) => fused_tensor_cores_d32_k32,
        (1, 8) => fused_tensor_cores_d16_k64,
        (2, 8) => fused_tensor_cores_d32_k64,
        _ => panic!("{shape:?}"),
    };
    // SAFETY: the arguments of this kernel, with the arrays of `memory`.
    unsafe { launch((grid, 1), block, shape.shared_bytes(block), &memory, kernel, args) };
    let ready = partials.iter().all(|sum| sum.to_bits() == UNWRITTEN) && integers.iter().all(|v| *v == 0);
    assert!(ready, "ready for the next launch");
    let weight = weights.map_or(problem.n as f64, |w| w.iter().copied().map(f64::from).sum());
    layout.fused_statistics(shape, &values, 1.0, weight, 0.0, &problem.frame).unwrap()
}

#[test]
fn fused_tensor_cores_give_the_statistics() {
    let cases = [
        // N, K, D
        (1, 1, 1),
        (15, 3, 5),
        (17, 8, 13),
        (500, 8, 13),
        (333, 7, 8),
        (70, 4, 2),
        (99, 6, 14),
        (130, 5, 32),
        (200, 9, 5),
        (200, 16, 17),
        (100, 20, 16),
        (150, 32, 25),
        (133, 40, 13),
        (90, 64, 32),
    ];
    for (i, (n, k, d)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let mut x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        if n > 1 {
            x.row_mut(n / 2).fill(FAR as f32);
        }
        for mixture in of_each_type(&mut rng, k, d) {
            // Not all shapes are for matrices.
            let full = mixture.covariance_type().has_matrices();
            if fused_tensor_cores::Shape::new(k, d, full, false).is_none() {
                continue;
            }
            let run = || fused_tensor_cores_statistics(&x, &mixture, (2, 64), None);
            let got = run();
            // The far sample's responsibilities are rounded by 2⁻¹² of themselves, and that sample
            // is most of the scatter.
            assert_statistics_within(&x, &mixture, &got, 3.5e-4);
            if n <= 100 {
                assert_eq!(got, run(), "the same bits every time");
                // Samples of weight zero are as good as not there.
                let weights: Vec<f32> = (0..n).map(|i| (i % 2) as f32).collect();
                let odd: Vec<usize> = (1..n).step_by(2).collect();
                if !odd.is_empty() {
                    let got = fused_tensor_cores_statistics(&x, &mixture, (1, 32), Some(&weights));
                    let rows = x.select(ndarray::Axis(0), &odd);
                    assert_statistics_within(&rows, &mixture, &got, 3.5e-4);
                }
            }
        }
    }
}

#[test]
fn fused_tensor_cores_take_missing_values() {
    let cases = [
        // N, K, D, share
        (1, 1, 1, 0.6),
        (1, 3, 5, 0.3),
        (17, 8, 13, 0.3),
        (500, 8, 13, 0.05),
        (300, 1, 4, 0.6),
        (130, 5, 32, 0.3),
        (200, 9, 5, 0.6),
        (200, 16, 17, 0.3),
        (100, 20, 16, 0.3),
        (150, 32, 25, 0.05),
    ];
    for (i, (n, k, d, share)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(40 + i as u64);
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let mut x = with_holes(&mut rng, x, share);
        x.row_mut(n / 2).fill(f32::NAN);
        if n > 3 {
            x[[1, 0]] = FAR as f32;
        }
        let types = of_each_type(&mut rng, k, d);
        for mixture in
            types.iter().filter(|m| matches!(m.covariance_type(), CovarianceType::Spherical | CovarianceType::Diag))
        {
            let run = || fused_tensor_cores_statistics(&x, mixture, (2, 64), None);
            let got = run();
            // As for complete samples.
            assert_statistics_within(&x, mixture, &got, 3.5e-4);
            if n <= 100 {
                assert_eq!(got, run(), "the same bits every time");
                let weights: Vec<f32> = (0..n).map(|i| (i % 2) as f32).collect();
                let odd: Vec<usize> = (1..n).step_by(2).collect();
                if !odd.is_empty() {
                    let got = fused_tensor_cores_statistics(&x, mixture, (1, 32), Some(&weights));
                    assert_statistics_within(&x.select(ndarray::Axis(0), &odd), mixture, &got, 3.5e-4);
                }
            }
        }
    }
}

#[test]
fn fused_gives_the_statistics() {
    use fused::*;
    check_statistics::<8>(1000, (8, 13), [fused_raw_k08_d13, fused_diag_k08_d13, fused_full_k08_d13]);
    check_statistics::<8>(1, (1, 1), [fused_raw_k08_d01, fused_diag_k08_d01, fused_full_k08_d01]);
    check_statistics::<8>(517, (3, 2), [fused_raw_k08_d02, fused_diag_k08_d02, fused_full_k08_d02]);
    check_statistics::<32>(131, (9, 5), [fused_raw_k32_d05, fused_diag_k32_d05, fused_full_k32_d05]);
    check_statistics::<32>(300, (32, 16), [fused_raw_k32_d16, fused_diag_k32_d16, fused_full_k32_d16]);
}
