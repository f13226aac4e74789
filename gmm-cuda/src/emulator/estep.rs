//! The E-step in float32, by each family.
use super::{FAR, flat, float32, normal, of_each_type, samples, sizes, used, with_holes};
use crate::estep::moments::Moments;
use crate::estep::products_shapes::Expanded;
use crate::estep::tensor_cores_layout::TensorCoresLayout;
use crate::float32::Float32;
use crate::options::CudaOptions;
use crate::source::Source;
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::{Samples, View};
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_kernels::estep::{fused, fused_mma};
use gmm_kernels::simt::WARP;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::sync::Arc;

/// The far sample, most of the scatter, has responsibilities rounded to float16 pairs, by 2⁻¹² of themselves.
const BY_FLOAT16: f64 = 3.5e-4;

/// Compares with the reference.
///
/// Tolerances: float32 sums of some hundred samples between sums in float64 are off by at most 3·10⁻⁵ of the sum of
/// magnitudes. The far sample's exponents are some thousands, off by a few units of 2⁻²⁴ of themselves, which moves its
/// responsibilities by up to some 10⁻⁴: 10⁻⁴ of the sum of magnitudes, of which that sample is a large part. With sⱼ
/// the root of the mean of xⱼ² over all samples, the sum of magnitudes is at most N·sᵢ·sⱼ for the products of two
/// features, and by Cauchy and Schwarz at most sⱼ·√(N·count) for one feature and a component. `rounding` replaces the
/// 10⁻⁴.
fn assert_statistics(samples: &Samples<'_>, mixture: &Mixture, got: &Statistics, rounding: f64) {
    let View::F32(x) = samples.view() else { panic!("float64 samples") };
    let (n, d) = x.dim();
    let truth = ReferenceEvaluator::new(samples.clone()).statistics(mixture).unwrap();
    let what = format!("{} N={n} K={} D={d}", mixture.covariance_type(), mixture.n_components());
    let near = |got: f64, truth: f64, bound: f64, name: &str| {
        assert!((got - truth).abs() <= bound, "{what}: {name} {got} for {truth} (bound {bound})");
    };
    let total = truth.log_likelihood();
    near(got.log_likelihood(), total, 3e-5 * total.abs().max(1.0), "log-likelihood");
    for (a, b) in got.counts().iter().zip(truth.counts()) {
        near(*a, *b, rounding * n as f64, "count");
    }
    // A missing value is about one standard deviation large.
    let square = |v: &f32| if v.is_nan() { 1.0 } else { f64::from(*v).powi(2) };
    let sizes: Vec<f64> = x.columns().into_iter().map(|x| x.iter().map(square).sum::<f64>() / n as f64).collect();
    let counts = truth.counts();
    for ((c, j), b) in truth.means().indexed_iter() {
        // A component with next to no samples has a mean of rounding errors.
        if counts[c] > 0.1 {
            near(got.means()[[c, j]], *b, rounding * (sizes[j] * n as f64 / counts[c]).sqrt(), "mean");
        }
    }
    let largest = sizes.iter().copied().fold(0.0, f64::max);
    // The scatter of a spherical component is summed over the features.
    let features = if mixture.covariance_type() == CovarianceType::Spherical { d } else { 1 };
    for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
        near(a, b, rounding * n as f64 * largest * features as f64, "scatter");
    }
}

/// Compares the statistics by a kernel, twice, with the reference.
fn check(samples: &Samples<'_>, mixture: &Mixture, kernel: &str, rounding: f64) {
    let mut evaluator = float32(samples, kernel);
    let got = evaluator.statistics(mixture).unwrap();
    used(&evaluator, kernel);
    assert_statistics(samples, mixture, &got, rounding);
    if samples.n_samples() <= 100 {
        assert_eq!(got, evaluator.statistics(mixture).unwrap(), "{kernel}: the same bits every time");
    }
}

/// Also checks with weight zero for half of the samples, which then do not count.
fn check_with_and_without_weights(x: &Array2<f32>, mixture: &Mixture, kernel: &str, rounding: f64) {
    check(&samples(x, None), mixture, kernel, rounding);
    let n = x.nrows();
    if (2..=100).contains(&n) {
        let weights = Array1::from_shape_fn(n, |i| (i % 2) as f64);
        let got = float32(&samples(x, Some(weights.view())), kernel).statistics(mixture).unwrap();
        let odd: Vec<usize> = (1..n).step_by(2).collect();
        let x = x.select(ndarray::Axis(0), &odd);
        assert_statistics(&samples(&x, None), mixture, &got, rounding);
    }
}

/// Checks cases of a kernel's variants, given as N, K and D: samples of which one is far from every component, and a
/// mixture of each type that the kernel takes.
fn check_cases(seed: u64, cases: &[(&str, &str)], takes: impl Fn(&Mixture) -> bool, rounding: impl Fn(usize) -> f64) {
    let sizes = cases.iter().flat_map(|(variant, text)| sizes(text).map(move |size| (variant, size)));
    for (i, (variant, (n, k, d))) in sizes.enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed + i as u64);
        let x = with_a_far_one(&mut rng, n, d);
        for mixture in of_each_type(&mut rng, k, d).iter().filter(|mixture| takes(mixture)) {
            check_with_and_without_weights(&x, mixture, variant, rounding(k));
        }
    }
}

/// Returns samples; one of several is far from every component.
fn with_a_far_one(rng: &mut ChaCha8Rng, n: usize, d: usize) -> Array2<f32> {
    let mut x = normal(rng, n, d);
    if n > 1 {
        x.row_mut(n / 2).fill(FAR as f32);
    }
    x
}

/// By tiles of several rows, and blocks of several sizes; the last case has two pieces of the samples.
#[test]
fn weighted_sums_give_the_statistics() {
    let cases = [
        ("weighted_sums/8:32x2:all", "1x1x1 600x3x2"),
        ("weighted_sums/16:64x2:all", "517x9x5 530x17x13 70x2x34"),
        ("weighted_sums/8:128x2:all", "300x20x9"),
        ("weighted_sums/8:64x2:all", "5000x2x2"),
    ];
    check_cases(0, &cases, |_| true, |_| 1e-4);
}

/// Components of standard deviation 1 that are 10⁴ apart have exact variances from moments around their centres. Around
/// a common centre, float32's rounding of 10⁸ (in the seventh digit) would exceed the variances.
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
        let got = float32(&samples(&x, None), "weighted_sums/8:64x1:all").statistics(&mixture).unwrap();
        let truth = ReferenceEvaluator::new(samples(&x, None)).statistics(&mixture).unwrap();
        for (a, b) in flat(got.scatter()).into_iter().zip(flat(truth.scatter())) {
            // A sample is right to 4·10⁻³ in float32 here, and 36 random errors add up to far less than 0.1.
            assert!((a - b).abs() < 0.1, "{a} for {b}");
        }
    }
}

/// In the last case of one warp, with matrices, several warps side by side, and several blocks, along the products.
#[test]
fn tensor_cores_give_the_statistics() {
    let cases =
        [("products_mma/1:64x1:all", "1x1x1 133x3x2 140x2x36"), ("products_mma/2:128x1:all", "70x20x9 131x70x5")];
    // With few components the far sample is most of the scatter.
    check_cases(0, &cases, |_| true, |k| if k <= 2 { BY_FLOAT16 } else { 1e-4 });
}

/// Also two groups of components, and all products of a sample.
#[test]
fn warpgroups_give_the_statistics() {
    let cases = [("products_wgmma:384x1:all", "1x1x1 200x131x3 700x3x17 70x5x127")];
    check_cases(0, &cases, |mixture| mixture.factor().is_none(), |_| BY_FLOAT16);
}

/// Also two pieces, and a pair of components whose tasks begin in the second block; an odd number of components of few
/// features; components of two blocks of `warpgroup_respond`, fewer in the last; two groups of triangles.
#[test]
fn whitened_gives_the_statistics() {
    let cases = [
        ("whitened_mma/1:32x1:all", "1x1x1"),
        ("whitened_mma/1:64x1:all", "133x3x2"),
        ("whitened_mma/3:192x1:all", "200x5x20"),
        ("whitened_mma/2:64x1:all", "70x7x33"),
        ("whitened_mma/2:128x1:all", "90x2x70"),
        ("whitened_mma/4:128x1:all", "600x20x17"),
        ("whitened_wgmma:384x1:all", "1x1x1 70x3x32 90x2x70 130x6x127"),
        ("whitened_wgmma:512x1:all", "200x35x7 500x9x40 130x70x33"),
    ];
    check_cases(0, &cases, |mixture| mixture.factor().is_some(), |_| BY_FLOAT16);
}

/// Returns the variant of two teams, or of a large one.
fn fused_mma_in_small_blocks(shape: fused_mma::FusedShape) -> String {
    let warps = shape.team.warps();
    let name = if shape.expanded > 0 { "expanded_mma" } else { "fused_mma" };
    format!("{name}:{}x1:0", WARP * if warps > 4 { warps } else { 2 * warps })
}

/// Covers all instances, alone and in teams whose warps have different products, different components, or both.
#[test]
fn expanded_mma_give_the_statistics() {
    // N, K, D
    let cases = sizes(
        "1x1x1 17x3x2 200x70x4 130x130x3 130x20x7 70x8x8 150x40x6 100x9x11 300x8x13 90x35x12 80x16x16 60x34x17 \
        50x5x28 40x3x32",
    );
    for (i, (n, k, d)) in cases.enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(20 + i as u64);
        let x = with_a_far_one(&mut rng, n, d);
        for mixture in of_each_type(&mut rng, k, d) {
            let shape = Expanded::of(mixture.covariance_type().has_matrices(), false).shape(k, d).unwrap();
            check_with_and_without_weights(&x, &mixture, &fused_mma_in_small_blocks(shape), BY_FLOAT16);
        }
    }
}

#[test]
fn fused_mma_give_the_statistics() {
    // N, K, D
    let alone = sizes(
        "1x1x1 15x3x5 17x8x13 500x8x13 333x7x8 70x4x2 99x6x14 130x5x32 200x9x5 200x16x17 100x20x16 150x32x25 \
        133x40x13 90x64x32",
    );
    // With different features, with different components, and with both; matrices of several warps.
    let teams = sizes("1x1x33 150x7x40 90x12x100 70x30x70 60x33x65 70x70x20 40x130x5 300x20x13 170x35x3");
    for (i, (n, k, d)) in alone.chain(teams).enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let x = with_a_far_one(&mut rng, n, d);
        for mixture in of_each_type(&mut rng, k, d) {
            // Not all shapes take matrices.
            let shape = fused_mma::FusedShape::new(k, d, mixture.covariance_type().has_matrices(), false);
            if let Some(shape) = shape {
                let kernel = fused_mma_in_small_blocks(shape);
                check_with_and_without_weights(&x, &mixture, &kernel, BY_FLOAT16);
            }
        }
    }
}

/// Returns a `tied` mixture whose components are this many standard deviations apart.
fn tied(rng: &mut ChaCha8Rng, k: usize, d: usize, apart: f64) -> Mixture {
    let of_each = of_each_type(rng, k, d);
    let tied = of_each.iter().find(|mixture| mixture.covariance_type() == CovarianceType::Tied).unwrap();
    Mixture::new(tied.weights().to_owned(), &tied.means() * apart, tied.covariances().clone()).unwrap()
}

/// Returns samples of a mixture, each from a random component.
fn samples_of(rng: &mut ChaCha8Rng, mixture: &Mixture, n: usize) -> Array2<f32> {
    let mut x = normal(rng, n, mixture.n_features());
    for mut row in x.rows_mut() {
        let c = rng.random_range(0..mixture.n_components());
        row.zip_mut_with(&mixture.means().row(c), |x, mean| *x += *mean as f32);
    }
    x
}

/// Returns whether a `tied` mixture is evaluated from linear terms alone.
fn is_linear(samples: &Samples<'_>, mixture: &Mixture) -> bool {
    let View::F32(x) = samples.view() else { panic!("float64 samples") };
    let frame = Frame::of(x);
    let statistics = ReferenceEvaluator::new(samples.clone()).statistics(&Moments::mixture(&frame).unwrap()).unwrap();
    let (n, weight) = (samples.n_samples(), samples.total_weight());
    let moments = Arc::new(Moments::new(&statistics, &frame, n, weight));
    let Covariances::Tied(precision) = mixture.precisions() else { return false };
    TensorCoresLayout::of_linear(Vec::new(), mixture, precision.view(), &frame, &moments).expandable()
}

/// `tied` mixtures by the families for diagonal covariances, from linear terms alone: sizes that fit no tile, and a
/// sample so far away that its likelihood without the quadratic part would overflow.
#[test]
fn linear_terms_give_the_statistics() {
    let cases = [
        // N, K, D, distance of components, variant
        (1, 1, 1, 1.0, "fused_mma:64x1:0"),
        (1000, 1, 7, 0.3, "fused_mma:64x1:0"),
        (700, 3, 1, 2.0, "fused_mma:64x1:0"),
        (2501, 8, 13, 1.0, "fused_mma:64x1:0"),
        (2500, 5, 32, 0.5, "fused_mma:64x1:0"),
        (2500, 40, 29, 0.5, "fused_mma:64x1:0"),
        (1000, 1, 7, 0.3, "expanded_mma:64x1:0"),
        (2500, 70, 15, 0.5, "expanded_mma:64x1:0"),
        (2500, 40, 29, 0.5, "expanded_mma:64x1:0"),
        (1, 2, 3, 1.0, "products_mma/1:64x1:all"),
        (2501, 20, 9, 1.0, "products_mma/2:128x1:all"),
        (2500, 2, 45, 0.5, "products_mma/1:64x1:all"),
        (2503, 70, 33, 0.5, "products_mma/2:128x1:all"),
        (1500, 131, 3, 1.0, "products_wgmma:384x1:all"),
        (2500, 5, 64, 0.3, "products_wgmma:384x1:all"),
    ];
    for (i, (n, k, d, apart, variant)) in cases.into_iter().enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(60 + i as u64);
        let mixture = tied(&mut rng, k, d, apart);
        let mut x = samples_of(&mut rng, &mixture, n);
        if n > 1 {
            // 2^(a·x) of this one overflows float32.
            x.row_mut(n / 2).zip_mut_with(&mixture.means().row(0), |x, mean| *x = (12.0 * mean) as f32);
        }
        assert!(is_linear(&samples(&x, None), &mixture), "N={n} K={k} D={d}");
        let weights = Array1::from_shape_fn(n, |i| 0.1 + (i % 7) as f64);
        for weights in [None, Some(weights.view())] {
            let what = format!("N={n} K={k} D={d}, weights: {}", weights.is_some());
            let samples = samples(&x, weights);
            let mut evaluator = float32(&samples, variant);
            let got = evaluator.statistics(&mixture).unwrap();
            used(&evaluator, variant);
            if weights.is_none() {
                assert_statistics(&samples, &mixture, &got, 1e-4);
                assert_eq!(got, evaluator.statistics(&mixture).unwrap(), "{what}: the same bits every time");
            }
            // The errors of sums are far below the tolerances of single samples.
            let truth = ReferenceEvaluator::new(samples).statistics(&mixture).unwrap();
            let (total, expected) = (got.log_likelihood(), truth.log_likelihood());
            assert!((total - expected).abs() <= 1e-6 * expected.abs(), "{what}: {total} for {expected}");
            let norm = |v: Vec<f64>| v.iter().map(|v| v * v).sum::<f64>().sqrt();
            let difference = flat(got.scatter()).iter().zip(flat(truth.scatter())).map(|(a, b)| a - b).collect();
            // A single sample has only rounding as scatter.
            let bound = 1e-4 * norm(flat(truth.scatter())).max(1e-2);
            assert!(norm(difference) <= bound, "{what}: scatter");
        }
    }
}

/// A mixture too far or too narrow for differences from all samples' moments goes to the kernels for matrices.
#[test]
fn linear_terms_are_not_used_where_they_lose_digits() {
    let (n, k, d) = (150, 4, 9);
    let mut rng = ChaCha8Rng::seed_from_u64(90);
    let mixture = tied(&mut rng, k, d, 30.0);
    let x = samples_of(&mut rng, &mixture, n);
    assert!(!is_linear(&samples(&x, None), &mixture));
    let mut evaluator = float32(&samples(&x, None), "weighted_sums/8:64x1:all");
    assert_statistics(&samples(&x, None), &mixture, &evaluator.statistics(&mixture).unwrap(), 1e-4);
    let mut evaluator = Float32::new(Source::Host(samples(&x, None), 0), &CudaOptions::default()).unwrap();
    assert_statistics(&samples(&x, None), &mixture, &evaluator.statistics(&mixture).unwrap(), 1e-4);
    // The same evaluator with a near mixture.
    let near = tied(&mut rng, k, d, 1.0);
    assert!(!is_linear(&samples(&x, None), &near), "the samples are far apart");
    assert_statistics(&samples(&x, None), &near, &evaluator.statistics(&near).unwrap(), 1e-4);
}

/// Without a requested kernel the choice uses linear terms, and EM with them follows the reference's.
#[test]
fn a_tied_fit_follows_that_of_the_reference() {
    let (n, k, d) = (4000, 5, 17);
    let mut rng = ChaCha8Rng::seed_from_u64(91);
    let truth = tied(&mut rng, k, d, 0.7);
    let x = samples_of(&mut rng, &truth, n);
    let start = tied(&mut rng, k, d, 1.0);
    let start =
        Mixture::new(start.weights().to_owned(), &truth.means() + &(&start.means() * 0.3), start.covariances().clone());
    let start = start.unwrap();
    let samples = samples(&x, None);
    let mut device = Float32::new(Source::Host(samples.clone(), 0), &CudaOptions::default()).unwrap();
    let mut reference = ReferenceEvaluator::new(samples);
    let (mut ours, mut theirs) = (start.clone(), start);
    let mut last = f64::NEG_INFINITY;
    for iteration in 0..6 {
        let (got, exact) = (device.statistics(&ours).unwrap(), reference.statistics(&theirs).unwrap());
        used(&device, "fused_mma");
        let (total, expected) = (got.log_likelihood(), exact.log_likelihood());
        assert!((total - expected).abs() <= 1e-6 * expected.abs(), "iteration {iteration}: {total} for {expected}");
        assert!(total >= last - 1e-7 * total.abs(), "iteration {iteration}: {total} behind {last}");
        last = total;
        let freeze = Freeze::default();
        ours = got.update(&ours, 1e-6, &freeze).unwrap().mixture;
        theirs = exact.update(&theirs, 1e-6, &freeze).unwrap().mixture;
        for (a, b) in ours.means().iter().zip(theirs.means()) {
            assert!((a - b).abs() <= 2e-4, "iteration {iteration}: mean {a} for {b}");
        }
        for (a, b) in flat(ours.covariances()).into_iter().zip(flat(theirs.covariances())) {
            assert!((a - b).abs() <= 2e-4, "iteration {iteration}: covariance {a} for {b}");
        }
    }
}

/// Compares the statistics of diagonal components over N samples with a share of the values, and one row, missing.
fn check_with_missing_values(seed: u64, (n, k, d, share): (usize, usize, usize, f64), variant: &str) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x = normal(&mut rng, n, d);
    let mut x = with_holes(&mut rng, x, share);
    x.row_mut(n / 2).fill(f32::NAN);
    if n > 3 {
        x[[1, 0]] = FAR as f32;
    }
    for mixture in of_each_type(&mut rng, k, d).iter().filter(|mixture| mixture.factor().is_none()) {
        check_with_and_without_weights(&x, mixture, variant, BY_FLOAT16);
    }
}

#[test]
fn fused_mma_take_missing_values() {
    // N, K, D, share
    let alone = [(1, 1, 1, 0.6), (1, 3, 5, 0.3), (17, 8, 13, 0.3), (500, 8, 13, 0.05), (300, 1, 4, 0.6)];
    let more = [(130, 5, 32, 0.3), (200, 9, 5, 0.6), (200, 16, 17, 0.3), (100, 20, 16, 0.3), (150, 32, 25, 0.05)];
    let teams = [(90, 8, 40, 0.3), (70, 12, 70, 0.3), (60, 33, 65, 0.05), (100, 70, 5, 0.3)];
    for (i, (n, k, d, share)) in alone.into_iter().chain(more).chain(teams).enumerate() {
        let shape = fused_mma::FusedShape::new(k, d, false, true).unwrap();
        check_with_missing_values(40 + i as u64, (n, k, d, share), &fused_mma_in_small_blocks(shape));
    }
}

#[test]
fn warpgroups_take_missing_values() {
    // N, K, D, share; then the case of all products of a part but one, two parts, and three.
    let one_part = [(1, 1, 1, 0.6), (200, 131, 3, 0.3), (300, 3, 17, 0.05)];
    let cases = one_part.into_iter().chain([(70, 5, 85, 0.3), (70, 5, 87, 0.3), (140, 131, 181, 0.1)]);
    for (i, case) in cases.enumerate() {
        check_with_missing_values(60 + i as u64, case, "products_wgmma:384x1:all");
    }
}

/// Covers every instance, diagonals and matrices; one component is far from the others.
#[test]
fn fused_gives_the_statistics() {
    for d in 1..=16 {
        for k in [1 + d % 8, 9 + d] {
            let n = [1, 31, 257, 600][d % 4];
            let mut rng = ChaCha8Rng::seed_from_u64((100 * n + 10 * k + d) as u64);
            let x = with_a_far_one(&mut rng, n, d);
            let mut mixtures = of_each_type(&mut rng, k, d);
            if k > 1 {
                let near = &mixtures[mixtures.len() - 1];
                let mut means = near.means().to_owned();
                means.row_mut(0).fill(60.0);
                mixtures.push(Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap());
            }
            let taken = |mixture: &Mixture| {
                d <= fused::most_features(mixture.covariance_type().has_matrices(), fused::capacity(k))
            };
            for mixture in mixtures.into_iter().filter(taken) {
                check_with_and_without_weights(&x, &mixture, "fused:64x1:0", 1e-4);
            }
        }
    }
}

/// Families on the tensor cores refuse a mixture too narrow for float16, and name the families that take it.
#[test]
fn narrow_components_are_refused_on_the_tensor_cores() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let x = normal(&mut rng, 300, 3);
    let means = normal(&mut rng, 2, 3).mapv(f64::from);
    let mixture = Mixture::new(ndarray::arr1(&[0.5, 0.5]), means, Covariances::Diag(Array2::from_elem((2, 3), 1e-8)));
    let mixture = mixture.unwrap();
    for kernel in ["fused_mma", "products_mma", "products_wgmma"] {
        let error = float32(&samples(&x, None), kernel).statistics(&mixture).unwrap_err().to_string();
        assert!(error.contains(kernel) && error.contains("float16") && error.contains("weighted_sums"), "{error}");
    }
}
