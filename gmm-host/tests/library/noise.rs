//! Samples with noise: extreme deconvolution.
use crate::common::*;
use gmm_core::backends::noisy_reference::NoisyReference;
use gmm_host::{
    CovarianceType, Covariances, CpuEvaluator, Device, Error, Evaluator, Fit, GaussianMixtureParams, LabelledEvaluator,
    Labels, LoadOptions, Mixture, Noise, Predict, Samples, Standardization, load, load_chunks,
};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn noise_matrices(seed: u64, n: usize, d: usize) -> Array3<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut all = Array3::zeros((n, d, d));
    all.outer_iter_mut().for_each(|mut m| m.assign(&(spd(&mut rng, d) * rng.random_range(0.1..2.0))));
    all
}

fn with_noise<'a>(x: ArrayView2<'a, f64>, noise: Noise<'a>) -> Samples<'a> {
    Samples::with_missing(x).unwrap().with_noise(noise).unwrap()
}

/// Compares all evaluations of two evaluators. The tolerance is that of sums of float64 in another order, times the
/// condition of the matrices.
fn assert_same(what: &str, a: &mut dyn Evaluator, b: &mut dyn Evaluator, mixture: &Mixture, tolerance: f64) {
    assert_evaluators_agree(what, a, b, mixture, Allowed::all(tolerance));
}

#[test]
fn own_noise_agrees_with_the_reference() {
    // Sizes around registers, pieces and the kernels for few columns; one component, column or sample.
    let shapes = [(1, 1, 1), (5, 1, 3), (40, 2, 1), (300, 3, 9), (530, 6, 17), (64, 8, 4), (60, 9, 3), (50, 13, 8)];
    for (seed, (n, d, k)) in shapes.into_iter().enumerate() {
        let seed = seed as u64;
        let x = normal(seed, n, d, 1.0) * 1.5;
        let matrices = noise_matrices(seed + 100, n, d);
        let weights = normal(seed + 7, n, 1, 0.0).column(0).mapv(f64::abs);
        for t in CovarianceType::ALL {
            let m = mixture(seed + 3, t, k, d, 1.0);
            let noise = Noise::covariances(matrices.view()).unwrap();
            let samples = with_noise(x.view(), noise).with_weights(weights.view()).unwrap();
            let mut truth = NoisyReference::new(samples.reborrow());
            let mut cpu = CpuEvaluator::with(samples.reborrow(), Some(2), None).unwrap();
            assert_same(&format!("{n} {d} {k} {t}"), &mut cpu, &mut truth, &m, 1e-11);
            // The same bits with any number of threads.
            let mut one = CpuEvaluator::with_threads(samples.reborrow(), 1).unwrap();
            assert_eq!(one.statistics(&m).unwrap(), cpu.statistics(&m).unwrap());
        }
    }
}

#[test]
fn all_instruction_sets_agree() {
    let (x, matrices) = (normal(1, 90, 5, 0.0), noise_matrices(2, 90, 5));
    let samples = with_noise(x.view(), Noise::covariances(matrices.view()).unwrap());
    let m = mixture(3, CovarianceType::Full, 11, 5, 0.0);
    for kernel in CpuEvaluator::kernels().into_iter().chain(["reproducible-portable"]) {
        let mut cpu = CpuEvaluator::with_kernel(samples.reborrow(), kernel).unwrap();
        assert_same(kernel, &mut cpu, &mut NoisyReference::new(samples.reborrow()), &m, 1e-11);
    }
}

#[test]
fn missing_values_and_projections_agree_with_the_reference() {
    let (n, d, k) = (220, 4, 5);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for (c, projected) in [(4, false), (3, true), (1, true), (4, true)] {
        let mut x = normal(c as u64, n, c, 0.0);
        x.map_inplace(|v| *v = if rng.random::<f64>() < 0.25 { f64::NAN } else { *v });
        let mut projection = Array3::from_shape_simple_fn((n, c, d), || rng.sample::<f64, _>(StandardNormal));
        // These rows say nothing.
        x.row_mut(3).fill(f64::NAN);
        projection.index_axis_mut(Axis(0), 4).fill(0.0);
        let variances = Array2::from_shape_simple_fn((n, c), || rng.random_range(0.1..2.0));
        let mut noise = Noise::variances(variances.view()).unwrap();
        if projected {
            noise = noise.projected(projection.view()).unwrap();
        }
        let samples = with_noise(x.view(), noise);
        for t in CovarianceType::ALL {
            let m = mixture(8, t, k, d, 0.0);
            let mut cpu = CpuEvaluator::new(samples.reborrow()).unwrap();
            let mut truth = NoisyReference::new(samples.reborrow());
            assert_same(&format!("{c} {projected} {t}"), &mut cpu, &mut truth, &m, 1e-10);
        }
        let guesses = CpuEvaluator::new(samples.reborrow()).unwrap().rows(&[3, 4]).unwrap().x;
        assert!(guesses.row(0).iter().all(|v| v.is_nan()));
        assert!(!projected || guesses.row(1).iter().all(|v| v.is_nan()));
    }
}

#[test]
fn shared_noise_agrees_with_the_reference() {
    let (n, d, k) = (1200, 3, 4);
    let x = normal(1, n, d, 0.0) * 1.5;
    let mut gaps = x.clone();
    gaps.indexed_iter_mut().filter(|((i, j), _)| i * 7 % 11 == *j).for_each(|(_, v)| *v = f64::NAN);
    let dense = noise_matrices(4, 3, d);
    let diagonal = Array2::from_diag(&array![0.5, 0.0, 2.0]);
    let isotropic = Array2::eye(d) * 0.7;
    let groups: Vec<usize> = (0..n).map(|i| i * i % 5 % 3).collect();
    let weights = normal(3, n, 1, 0.0).column(0).mapv(f64::abs);
    let forms = [
        Noise::common(dense.slice(s![0, .., ..]).to_owned()).unwrap(),
        Noise::common(diagonal).unwrap(),
        Noise::common(isotropic).unwrap(),
        Noise::of_groups(dense.clone(), groups).unwrap(),
    ];
    for (form, noise) in forms.into_iter().enumerate() {
        for x in [&x, &gaps] {
            let samples = with_noise(x.view(), noise.clone()).with_weights(weights.view()).unwrap();
            for t in CovarianceType::ALL {
                let m = mixture(8, t, k, d, 0.0);
                let mut shared = load(Device::Cpu, samples.reborrow(), &LoadOptions::new()).unwrap();
                assert!(!shared.describe().device.contains("noise of each sample"));
                let mut truth = NoisyReference::new(samples.reborrow());
                assert_same(&format!("{form} {t}"), shared.as_mut(), &mut truth, &m, 1e-10);
                let mut own = CpuEvaluator::new(samples.reborrow()).unwrap();
                assert_same(&format!("{form} {t}, one by one"), &mut own, &mut truth, &m, 1e-10);
            }
        }
    }
}

#[test]
fn no_noise_is_an_ordinary_fit() {
    let (x, m) = (blobs(3, 400, 3), mixture(4, CovarianceType::Full, 4, 3, 4.0));
    let plain = Samples::from_f64(x.view()).unwrap();
    let mut ordinary = CpuEvaluator::new(plain.clone()).unwrap();
    // The very bits, where the noise is known to be zero.
    let zero = plain.clone().with_noise(Noise::common(Array2::zeros((3, 3))).unwrap()).unwrap();
    let mut none = load(Device::Cpu, zero, &LoadOptions::new()).unwrap();
    assert_eq!(none.statistics(&m).unwrap(), ordinary.statistics(&m).unwrap());
    assert_eq!(none.score_samples(&m).unwrap(), ordinary.score_samples(&m).unwrap());
    let zeros = Array2::zeros((400, 3));
    let mut own = CpuEvaluator::new(with_noise(x.view(), Noise::variances(zeros.view()).unwrap())).unwrap();
    assert_same("zeros", &mut own, &mut ordinary, &m, 1e-10);
    // Projections to axes are missing values.
    let columns = |i: usize| [i % 3, (i % 3 + 1 + i % 2) % 3];
    let seen = Array2::from_shape_fn((400, 2), |(i, j)| x[[i, columns(i)[j]]]);
    let r = Array3::from_shape_fn((400, 2, 3), |(i, j, l)| f64::from(columns(i)[j] == l));
    let zeros = Array2::zeros((400, 2));
    let noise = Noise::variances(zeros.view()).unwrap().projected(r.view()).unwrap();
    let mut projected = CpuEvaluator::new(with_noise(seen.view(), noise)).unwrap();
    let gaps = Array2::from_shape_fn((400, 3), |(i, j)| if columns(i).contains(&j) { x[[i, j]] } else { f64::NAN });
    let mut missing = CpuEvaluator::new(Samples::with_missing(gaps.view()).unwrap()).unwrap();
    assert_same("axes", &mut projected, &mut missing, &m, 1e-10);
    // A start takes the values that it can know.
    let rows = projected.rows(&[0, 1, 2]).unwrap().x;
    assert!(rows.iter().zip(gaps.slice(s![..3, ..])).all(|(a, b)| a.is_nan() && b.is_nan() || (a - b).abs() < 1e-12));
}

#[test]
fn common_noise_adds_to_the_covariances() {
    let (x, m) = (normal(1, 200, 2, 0.0), mixture(2, CovarianceType::Tied, 3, 2, 0.0));
    let s = array![[0.5, 0.2], [0.2, 0.3]];
    let Covariances::Tied(v) = m.covariances() else { unreachable!() };
    let wide = Mixture::new(m.weights().to_owned(), m.means().to_owned(), Covariances::Tied(v + &s)).unwrap();
    let samples = with_noise(x.view(), Noise::common(s).unwrap());
    let scores = load(Device::Cpu, samples, &LoadOptions::new()).unwrap().score_samples(&m).unwrap();
    assert_all_close("scores", scores, reference(x.view()).score_samples(&wide).unwrap(), 1e-12, 1.0);
}

/// Of an ill-conditioned covariance the M-step keeps the variance across its long axis.
#[test]
fn a_narrow_covariance_keeps_its_digits() {
    let (length, n) = (1e4, 2000);
    let x = normal(1, n, 2, 0.0);
    let measured =
        Array2::from_shape_fn((n, 2), |(i, j)| length * x[[i, 0]] + if j == 0 { 1.0 } else { -1.0 } * x[[i, 1]]);
    let variances = Array2::from_elem((n, 2), 0.25);
    let (same, other) = (length * length + 1.0, length * length - 1.0);
    let covariances = Covariances::Full(array![[[same, other], [other, same]]]);
    let m = Mixture::new(array![1.0], array![[0.0, 0.0]], covariances).unwrap();
    let samples = with_noise(measured.view(), Noise::variances(variances.view()).unwrap());
    let across = |data: &mut dyn Evaluator| {
        let found = data.statistics(&m).unwrap().to_mixture(0.0).unwrap().matrix(0);
        found[[0, 0]] - 2.0 * found[[0, 1]] + found[[1, 1]]
    };
    let cpu = across(&mut CpuEvaluator::new(samples.reborrow()).unwrap());
    // The entries of the covariance are rounded by 2⁻⁵² of 10⁸.
    assert_close("variance", cpu, across(&mut NoisyReference::new(samples)), 1e-6, 1.0);
}

#[test]
fn infinite_noise_says_nothing() {
    let (x, m) = (normal(1, 50, 3, 0.0), mixture(2, CovarianceType::Full, 2, 3, 0.0));
    let variances = Array2::from_elem((50, 3), 1e14);
    let mut data = CpuEvaluator::new(with_noise(x.view(), Noise::variances(variances.view()).unwrap())).unwrap();
    let after = data.statistics(&m).unwrap().to_mixture(0.0).unwrap();
    // A measurement weighs 1e-14.
    assert_all_close("means", after.means(), m.means(), 1e-11, 1.0);
    assert_all_close("covariances", after.covariances().iter(), m.covariances().iter(), 1e-11, 1.0);
}

/// Returns measurements of three narrow clusters, their noise, and the true mixture.
fn measurements(n: usize) -> (Array2<f64>, Array3<f64>, Mixture) {
    let means = array![[-2.0, 0.0], [1.0, 2.0], [2.0, -2.0]];
    let covariances = array![[[0.3, 0.2], [0.2, 0.4]], [[0.5, -0.3], [-0.3, 0.3]], [[0.1, 0.0], [0.0, 0.6]]];
    let truth = Mixture::new(array![0.5, 0.3, 0.2], means, Covariances::Full(covariances)).unwrap();
    let mut x = truth.sample(n, 7).unwrap().0;
    let noise = noise_matrices(9, n, 2);
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for (mut x, s) in x.outer_iter_mut().zip(noise.outer_iter()) {
        let l00 = s[[0, 0]].sqrt();
        let l10 = s[[0, 1]] / l00;
        let [a, b]: [f64; 2] = std::array::from_fn(|_| rng.sample::<f64, _>(StandardNormal));
        x[0] += l00 * a;
        x[1] += l10 * a + (s[[1, 1]] - l10 * l10).sqrt() * b;
    }
    (x, noise, truth)
}

fn fit(samples: Samples<'_>) -> Fit<Mixture> {
    GaussianMixtureParams::new(3).device(Device::Cpu).reg_covar(0.0).tol(1e-6).max_iter(500).fit(samples).unwrap()
}

#[test]
fn a_fit_recovers_the_truth_and_its_bound_never_falls() {
    let (x, noise, truth) = measurements(20_000);
    let plain = fit(Samples::from_f64(x.view()).unwrap());
    let fitted = fit(with_noise(x.view(), Noise::covariances(noise.view()).unwrap()));
    // Rounding of a mean of 20,000 scores.
    assert!(fitted.lower_bounds.windows(2).all(|pair| pair[1] >= pair[0] - 1e-12));
    let error = |found: &Mixture| {
        let order = |c: usize| {
            let distance = |k: &usize| (&found.means().row(*k) - &truth.means().row(c)).mapv(|v| v * v).sum();
            (0..3).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap()
        };
        let of_component = |c: usize| (found.variance(order(c), 0) - truth.variance(c, 0)).abs();
        (0..3).map(of_component).fold(0.0, f64::max)
    };
    // The standard error of a variance of 4,000 samples with noise of about one is 0.03.
    assert!(error(&fitted.mixture) < 0.1 && error(&plain.mixture) > 0.3);
}

#[test]
fn chunks_shards_and_labels_carry_the_noise() {
    let (x, noise, m) = measurements(700);
    let projection = Array3::from_shape_fn((700, 2, 2), |(i, a, b)| f64::from(a == b) + 0.1 * (i % 3) as f64);
    let samples = with_noise(x.view(), Noise::covariances(noise.view()).unwrap().projected(projection.view()).unwrap());
    let mut whole = CpuEvaluator::new(samples.reborrow()).unwrap();
    let read = |rows| Ok(samples.rows(rows));
    let mut chunks = load_chunks(Device::Auto, (700, 2), 300, read, &LoadOptions::new()).unwrap();
    assert_same("chunks", &mut chunks, &mut whole, &m, 1e-12);
    let options = LoadOptions::new().memory(1);
    let mut within = load(Device::Cpu, samples.reborrow(), &options).unwrap();
    assert_same("memory", within.as_mut(), &mut whole, &m, 1e-12);
    let free = Labels::new(&[None; 700], 3).unwrap();
    let load = |part| load(Device::Cpu, part, &LoadOptions::new());
    let mut labelled = LabelledEvaluator::new(samples.reborrow(), free, load).unwrap();
    assert_same("labels", &mut labelled, &mut whole, &m, 1e-12);
    let some: Vec<Option<usize>> = (0..700).map(|i| (i % 4 == 0).then_some(i % 3)).collect();
    let mut labelled = LabelledEvaluator::new(samples.reborrow(), Labels::new(&some, 3).unwrap(), load).unwrap();
    let scores = labelled.score_samples(&m).unwrap();
    let all = whole.score_samples(&m).unwrap();
    assert!((0..700).all(|i| if i % 4 == 0 { scores[i] < all[i] } else { (scores[i] - all[i]).abs() < 1e-12 }));
}

#[test]
fn denoised_values_are_those_of_the_e_step() {
    let (x, noise, m) = measurements(300);
    let samples = with_noise(x.view(), Noise::covariances(noise.view()).unwrap());
    let (values, covariances) = m.denoise(&samples).unwrap();
    let statistics = CpuEvaluator::new(samples).unwrap().statistics(&m).unwrap();
    let counts = statistics.counts();
    let mean = statistics.means().outer_iter().zip(counts).fold(Array1::zeros(2), |sum, (m, n)| sum + &m * *n);
    assert_all_close("mean", values.sum_axis(Axis(0)), &mean, 1e-11, 300.0);
    // The mean of x·xᵀ, of both.
    let mut second = covariances.sum_axis(Axis(0));
    values.outer_iter().for_each(|v| second += &Array2::from_shape_fn((2, 2), |(i, j)| v[i] * v[j]));
    let Covariances::Full(scatter) = statistics.scatter() else { unreachable!() };
    let mut want = scatter.sum_axis(Axis(0));
    for (v, n) in statistics.means().outer_iter().zip(counts) {
        want += &Array2::from_shape_fn((2, 2), |(i, j)| n * v[i] * v[j]);
    }
    assert_all_close("second moments", second, &want, 1e-11, 300.0);
}

#[test]
fn samples_without_weight_or_far_away() {
    let mut x = normal(1, 20, 2, 0.0);
    x[[3, 0]] = 1e200;
    let mut weights = Array1::ones(20);
    let variances = Array2::from_elem((20, 2), 0.5);
    let m = mixture(2, CovarianceType::Full, 3, 2, 0.0);
    let data = |x: &Array2<f64>| Samples::from_shared_f64(x.to_shared()).unwrap();
    let noise = || Noise::variances(variances.to_shared()).unwrap();
    let mut far = CpuEvaluator::new(data(&x).with_noise(noise()).unwrap()).unwrap();
    assert!(matches!(far.statistics(&m), Err(Error::UnreachableSample { row: 3 })));
    assert_eq!(far.score_samples(&m).unwrap()[3], f64::NEG_INFINITY);
    let r = far.predict_proba(&m).unwrap();
    assert_eq!(r.row(3).sum(), 1.0);
    assert_eq!(r[[3, far.predict(&m).unwrap()[3]]], 1.0);
    weights[3] = 0.0;
    let samples = data(&x).with_shared_weights(weights.into_shared()).unwrap().with_noise(noise()).unwrap();
    let without =
        data(&x.select(Axis(0), &[0, 1, 2])).with_noise(Noise::variances(variances.slice(s![..3, ..])).unwrap());
    let mut counted = CpuEvaluator::new(samples).unwrap();
    let without = CpuEvaluator::new(without.unwrap()).unwrap().log_likelihood(&m).unwrap();
    assert!(counted.log_likelihood(&m).unwrap() < without);
    assert_eq!(counted.statistics(&m).unwrap().weight(), 19.0);
}

#[test]
fn bad_noise_is_named() {
    let text = |error: Error| error.to_string();
    let mut matrices = noise_matrices(1, 5, 2);
    matrices.slice_mut(s![3, .., ..]).assign(&array![[1.0, 2.0], [2.0, 1.0]]);
    let of_row = text(Noise::covariances(matrices.view()).unwrap_err());
    assert!(of_row.contains("row 3") && of_row.contains("positive semidefinite"), "{of_row}");
    matrices[[3, 0, 1]] = 0.0;
    assert!(text(Noise::covariances(matrices.view()).unwrap_err()).contains("not symmetric"));
    matrices[[1, 0, 0]] = f64::NAN;
    assert!(text(Noise::covariances(matrices.view()).unwrap_err()).contains("row 1"));
    let negative = text(Noise::variances(array![[1.0, 1.0], [1.0, -2.0]].view()).unwrap_err());
    assert!(negative.contains("row 1") && negative.contains("-2 in column 1"), "{negative}");
    assert!(Noise::common(array![[1.0, 1.0], [1.0, 1.0]]).is_ok());
    assert!(matches!(Noise::common(Array2::zeros((2, 3))), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(Noise::of_groups(Array3::zeros((2, 1, 1)), vec![0, 2]), Err(Error::NoSuchRow { row: 2, .. })));
    let x = normal(1, 5, 3, 0.0);
    let samples = Samples::from_f64(x.view()).unwrap();
    let wrong = |noise| matches!(samples.clone().with_noise(noise), Err(Error::ShapeMismatch { .. }));
    assert!(wrong(Noise::variances(Array2::zeros((4, 3)).into_shared()).unwrap()));
    assert!(wrong(Noise::common(Array2::eye(2)).unwrap()));
    // Two equal rows of a projection measure one number without noise.
    let r = Array3::from_shape_fn((5, 3, 2), |(_, _, j)| j as f64);
    let noise = Noise::common(Array2::zeros((3, 3))).unwrap().projected(r.view()).unwrap();
    let mut data = CpuEvaluator::new(samples.with_noise(noise).unwrap()).unwrap();
    let m = mixture(2, CovarianceType::Diag, 2, 2, 0.0);
    assert!(matches!(data.score_samples(&m), Err(Error::NoSpread { row: 0 })));
    let refused = data.score_samples(&mixture(2, CovarianceType::Diag, 2, 3, 0.0));
    assert!(matches!(refused, Err(Error::ShapeMismatch { .. })));
}

#[test]
fn predictions_need_no_evaluator() {
    let (x, noise, m) = measurements(50);
    let samples = with_noise(x.view(), Noise::covariances(noise.view()).unwrap());
    let scores = m.score_samples(samples.clone()).unwrap();
    assert_eq!(scores, CpuEvaluator::new(samples).unwrap().score_samples(&m).unwrap());
}

#[test]
fn standardised_samples_have_standardised_noise() {
    let (x, noise, _) = measurements(300);
    let noise = Noise::covariances(noise.view()).unwrap();
    let samples = with_noise(x.view(), noise.clone());
    let standard = Standardization::of(&samples).unwrap();
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    let scaled = noise.scaled(standard.scale().as_slice().unwrap()).unwrap();
    let m = mixture(2, CovarianceType::Full, 3, 2, 0.0);
    let of_z = m.score_samples(with_noise(z.view(), scaled)).unwrap() - standard.log_scale();
    let of_x = standard.restore(&m).unwrap().score_samples(samples).unwrap();
    assert_all_close("scores", of_z, &of_x, 1e-11, 1.0);
    let projected = noise.projected(Array3::zeros((300, 2, 4)).into_shared()).unwrap();
    assert!(matches!(projected.scaled(&[1.0, 1.0]), Err(Error::Unsupported { .. })));
}
