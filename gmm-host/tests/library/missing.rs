//! Samples with missing values.
use crate::common::*;
use gmm_host::{
    ChunkedEvaluator, CovarianceType, Covariances, CpuEvaluator, Device, Error, Evaluator, GaussianMixtureParams,
    InitParams, LoadOptions, Mixture, Order, Predict, ReferenceEvaluator, Samples, ShardedEvaluator, Standardization,
    load,
};
use ndarray::{Array1, Array2, Axis, array, s};

const NAN: f64 = f64::NAN;

fn evaluator(backend: &Backend, x: &Array2<f64>, w: Option<&Array1<f64>>) -> Box<dyn Evaluator> {
    backend.evaluator(x.view(), w.map(|w| w.view()))
}

#[test]
fn closed_form_in_two_dimensions() {
    // Var x₀ = 4, Var x₁ = 1, Cov = 1.2: x₁ given x₀ has the mean 1 + 0.3·(x₀ − 2) and the variance 1 − 0.36.
    let m = Mixture::new(array![1.0], array![[2.0, 1.0]], Covariances::Tied(array![[4.0, 1.2], [1.2, 1.0]])).unwrap();
    let x = array![[5.0, NAN]];
    let log_p = -0.5 * (9.0 / 4.0 + 4f64.ln() + std::f64::consts::TAU.ln());
    for backend in BACKENDS {
        let mut e = evaluator(backend, &x, None);
        let tight = backend.tolerance(1e-14, 1e-6);
        let statistics = e.statistics(&m).unwrap();
        assert_close("log-likelihood", statistics.log_likelihood(), log_p, tight, 0.0);
        assert_all_close("mean", statistics.means(), [5.0, 1.9], tight, 0.0);
        assert_all_close("scatter", statistics.scatter().iter(), [0.0, 0.0, 0.0, 0.64], tight, 1.0);
    }
    let samples = Samples::with_missing(x.view()).unwrap();
    assert_all_close("imputed", m.impute(&samples).unwrap(), [5.0, 1.9], 1e-14, 0.0);
}

#[test]
fn the_maximum_has_the_closed_form_of_a_monotone_pattern() {
    // One Gaussian, x₀ always observed and x₁ not: Anderson (1957). The mean and covariance of x₁ are those of the
    // complete rows, corrected by their regression on x₀.
    let mut x = normal(5, 300, 2, 1.0);
    x.outer_iter_mut().for_each(|mut row| row[1] += 0.7 * row[0]);
    x.slice_mut(s![180.., 1]).fill(NAN);
    let complete = x.slice(s![..180, ..]);
    let (mean0, part) = (x.column(0).mean().unwrap(), complete.mean_axis(Axis(0)).unwrap());
    let var0 = x.column(0).mapv(|v| (v - mean0).powi(2)).mean().unwrap();
    let centred = &complete - &part;
    let cov = centred.t().dot(&centred) / 180.0;
    let slope = cov[[0, 1]] / cov[[0, 0]];
    let want = [mean0, part[1] + slope * (mean0 - part[0])];
    let covariance = [var0, slope * var0, slope * var0, cov[[1, 1]] - slope * cov[[0, 1]] + slope * slope * var0];
    let params = GaussianMixtureParams::new(1).reg_covar(0.0).tol(0.0).max_iter(400);
    let fit = params.fit(Samples::with_missing(x.view()).unwrap()).unwrap();
    // EM about halves the distance in each iteration, so 400 leave only rounding.
    assert_all_close("means", fit.mixture.means(), want, 1e-10, 1.0);
    assert_all_close("covariances", fit.mixture.covariances().iter(), covariance, 1e-10, 1.0);
}

#[test]
fn every_backend_agrees_with_the_sweep_operator() {
    // The last has more features than the kernels take at once, and as many patterns as rows.
    let shapes = sizes("300x1x2 400x3x3 900x4x2 120x9x4 40x70x2");
    let others = [(0.0, 0.3), (1e3, 0.05), (-5.0, 0.3), (0.5, 0.6), (0.5, 0.2)];
    for ((n, d, k), (offset, share)) in shapes.zip(others) {
        let mut x = with_holes(n as u64, normal(1, n, d, offset), share);
        // An empty row, and complete rows.
        x.row_mut(7).fill(NAN);
        let w = Array1::from_shape_fn(n, |i| (i % 4) as f64 * 0.5);
        for t in CovarianceType::ALL {
            let m = mixture(2, t, k, d, offset);
            // For the samples in float64 and float32, once: the operator takes much longer than the backends.
            let exact = [false, true].map(|float32| {
                let seen = if float32 { x.mapv(|v| f64::from(v as f32)) } else { x.clone() };
                let posterior = sweep::posterior(&m, &seen);
                (sweep::statistics(&m, &posterior, &w), posterior)
            });
            for backend in BACKENDS {
                println!("{} {t} N {n} D {d}", backend.name);
                let mut e = evaluator(backend, &x, Some(&w));
                let (truth, sweep::Posterior { scores, r, .. }) = &exact[usize::from(backend.float32)];
                // 10⁻⁸ is promised; float32 rounds deviations of a few standard deviations, 10⁻⁷ each, D times.
                let tolerance = backend.tolerance(1e-8, 2e-5);
                assert_all_close("scores", e.score_samples(&m).unwrap(), scores, tolerance, 1.0);
                assert_all_close("proba", e.predict_proba(&m).unwrap(), r, tolerance, 1.0);
                let total = e.log_likelihood(&m).unwrap();
                assert_close("total", total, truth.log_likelihood(), tolerance, 1.0);
                assert_eq!(e.log_likelihood_batch(&[m.clone(), m.clone()]).unwrap(), [total; 2]);
                let got = e.statistics(&m).unwrap();
                assert_statistics_close(&got, truth, tolerance, 1.0);
                assert_eq!(got, e.statistics(&m).unwrap(), "the same bits each time");
                let labels = e.predict(&m).unwrap();
                for (label, r) in labels.into_iter().zip(r.outer_iter()) {
                    let best = r.iter().copied().fold(0.0, f64::max);
                    assert!(r[label] >= best - tolerance);
                }
                assert_eq!(e.score_samples(&m).unwrap()[7], 0.0, "nothing is observed in this row");
                let mut shared = e.share().unwrap();
                assert_eq!(shared.statistics(&m).unwrap(), got);
                assert_eq!(shared.log_likelihood(&m).unwrap(), total);
            }
        }
    }
}

#[test]
fn without_holes_the_bits_are_those_of_complete_data() {
    let x = blobs(3, 700, 3);
    let x32 = x.mapv(|v| v as f32);
    for t in CovarianceType::ALL {
        let m = mixture(1, t, 3, 3, 2.0);
        for device in [Device::Cpu, Device::Auto, Device::Reference] {
            let options = LoadOptions::new();
            let of = |samples| load(device, samples, &options).unwrap();
            let mut pairs = [
                (of(Samples::from_f64(x.view()).unwrap()), of(Samples::with_missing(x.view()).unwrap())),
                (of(Samples::from_f32(x32.view()).unwrap()), of(Samples::with_missing(x32.view()).unwrap())),
            ];
            for (a, b) in &mut pairs {
                assert_eq!(a.describe(), b.describe());
                assert_eq!(a.statistics(&m).unwrap(), b.statistics(&m).unwrap());
                assert_eq!(a.score_samples(&m).unwrap(), b.score_samples(&m).unwrap());
            }
        }
        let params = GaussianMixtureParams::new(3).covariance_type(t);
        let fit = params.fit(&x).unwrap();
        assert_eq!(fit.mixture, params.fit(Samples::with_missing(x.view()).unwrap()).unwrap().mixture);
        let samples = Samples::with_missing(x.view()).unwrap();
        assert!(samples.missing().is_none());
        let complete = Samples::from_f64(x.view()).unwrap();
        assert_eq!(Standardization::of(&samples).unwrap(), Standardization::of(&complete).unwrap());
        assert_eq!(fit.mixture.impute(&samples).unwrap(), x);
    }
    // A complete part of incomplete data is complete.
    let mut y = x.clone();
    y[[500, 1]] = NAN;
    let samples = Samples::with_missing(y.view()).unwrap();
    assert!(samples.missing().is_some() && samples.rows(0..500).missing().is_none());
}

#[test]
fn parts_give_what_the_whole_gives() {
    let x = with_holes(1, normal(2, 1000, 4, 3.0), 0.3);
    let w = Array1::from_shape_fn(1000, |i| (i % 3) as f64);
    for t in CovarianceType::ALL {
        let m = mixture(3, t, 3, 4, 3.0);
        let samples = || Samples::with_missing(x.view()).unwrap().with_weights(w.view()).unwrap();
        let mut whole = CpuEvaluator::new(samples()).unwrap();
        let mut chunks =
            ChunkedEvaluator::of_samples(samples(), 300, |chunk| Ok(Box::new(CpuEvaluator::new(chunk)?))).unwrap();
        let part = |rows| Box::new(CpuEvaluator::new(samples().rows(rows)).unwrap()) as Box<dyn Evaluator + '_>;
        let mut shards = ShardedEvaluator::new(vec![part(0..400), part(400..1000)]).unwrap();
        for e in [&mut chunks as &mut dyn Evaluator, &mut shards] {
            // A few roundings of sums of a thousand terms; each part has its own frame.
            assert_evaluators_agree(&format!("{t}"), e, &mut whole, &m, Allowed::all(1e-12));
        }
    }
}

#[test]
fn the_lower_bound_never_falls() {
    for share in [0.0, 0.05, 0.3, 0.6] {
        let x = with_holes(7, blobs(3, 900, 4), share);
        for t in CovarianceType::ALL {
            for init in InitParams::ALL {
                let params = GaussianMixtureParams::new(3).covariance_type(t).init_params(init);
                let fit = params.tol(0.0).max_iter(60).reg_covar(0.0).fit(Samples::with_missing(x.view()).unwrap());
                let bounds = fit.unwrap().lower_bounds;
                assert_eq!(bounds.len(), 60);
                // Rounding of a mean of numbers near 10.
                assert_rises(&format!("{share} {t} {init}"), &bounds, |_| 1e-12);
            }
        }
    }
}

#[test]
fn a_resumed_fit_has_the_bits_of_one_that_was_not_interrupted() {
    let x = with_holes(7, blobs(3, 500, 3), 0.3);
    for t in CovarianceType::ALL {
        let params = GaussianMixtureParams::new(3).covariance_type(t).n_init(2).tol(0.0).max_iter(12);
        for backend in BACKENDS {
            let fit = |params: GaussianMixtureParams| {
                let fit = params.fit(evaluator(backend, &x, None).as_mut()).unwrap();
                (fit.mixture, fit.lower_bounds, fit.run)
            };
            let model = params.clone().check().unwrap();
            let (present, best) = interrupted(&model, evaluator(backend, &x, None).as_mut(), (1, 5));
            let resumed = fit(params.clone().resume(present, best));
            assert_eq!(resumed, fit(params.clone()), "{} {t}", backend.name);
        }
    }
}

/// Returns the free parameters of a mixture of two components, one after the other.
fn parameters(m: &Mixture) -> Vec<f64> {
    let d = m.n_features();
    let mut all = vec![m.weights()[0]];
    all.extend(m.means());
    let lower = |v: ndarray::ArrayView2<'_, f64>| -> Vec<f64> {
        (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| v[at]).collect()
    };
    match m.covariances() {
        Covariances::Full(v) => v.outer_iter().for_each(|v| all.extend(lower(v))),
        Covariances::Tied(v) => all.extend(lower(v.view())),
        other => all.extend(other.iter()),
    }
    all
}

/// Inverts [`parameters`].
fn mixture_of(like: &Mixture, all: &[f64]) -> Mixture {
    let (k, d) = like.means().dim();
    let (means, rest) = all[1..].split_at(k * d);
    let mut covariances = Covariances::zeros(like.covariance_type(), k, d);
    let size = d * (d + 1) / 2;
    let entry = |i: usize, j: usize| i * (i + 1) / 2 + j;
    let square = |part: &[f64]| Array2::from_shape_fn((d, d), |(i, j)| part[entry(i.max(j), i.min(j))]);
    match &mut covariances {
        Covariances::Full(v) => {
            v.outer_iter_mut().zip(rest.chunks(size)).for_each(|(mut v, part)| v.assign(&square(part)));
        }
        Covariances::Tied(v) => *v = square(rest),
        Covariances::Diag(v) => v.iter_mut().zip(rest).for_each(|(v, p)| *v = *p),
        Covariances::Spherical(v) => v.iter_mut().zip(rest).for_each(|(v, p)| *v = *p),
    }
    let means = Array2::from_shape_vec((k, d), means.to_vec()).unwrap();
    Mixture::new(array![all[0], 1.0 - all[0]], means, covariances).unwrap()
}

/// Returns the standard errors at the maximum, from minus the log-likelihood's Hessian by central differences.
fn standard_errors(e: &mut dyn Evaluator, m: &Mixture) -> Vec<f64> {
    let at = parameters(m);
    let n = at.len();
    let h = 1e-4;
    let mut value = |moves: [(usize, f64); 2]| {
        let mut p = at.clone();
        moves.into_iter().for_each(|(i, by)| p[i] += by);
        e.log_likelihood(&mixture_of(m, &p)).unwrap()
    };
    let mut information = nalgebra::DMatrix::zeros(n, n);
    for i in 0..n {
        for j in 0..=i {
            let second = value([(i, h), (j, h)]) - value([(i, h), (j, -h)]) - value([(i, -h), (j, h)])
                + value([(i, -h), (j, -h)]);
            information[(i, j)] = -second / (4.0 * h * h);
            information[(j, i)] = information[(i, j)];
        }
    }
    let covariance = information.try_inverse().unwrap();
    (0..n).map(|i| covariance[(i, i)].sqrt()).collect()
}

#[test]
fn parameters_come_back_within_three_standard_errors() {
    let (k, d, n) = (2, 3, 4000);
    for t in CovarianceType::ALL {
        let start = mixture(11, t, k, d, 0.0);
        // The components overlap, but not so much that the normal approximation fails.
        let truth = with_means(&start, array![[-1.5, 0.0, 1.0], [1.5, 1.0, -1.0]]);
        let (x, _) = truth.sample(n, 12).unwrap();
        for share in [0.05, 0.3, 0.6] {
            let x = with_holes(13, x.clone(), share);
            let samples = || Samples::with_missing(x.view()).unwrap();
            let params = GaussianMixtureParams::new(k).covariance_type(t).reg_covar(0.0).tol(1e-9).max_iter(3000);
            let found = params.fit(samples()).unwrap();
            assert!(found.converged);
            let mut e = CpuEvaluator::new(samples()).unwrap();
            // The components in the order of the truth.
            let order = if found.mixture.means()[[0, 0]] < 0.0 { [0, 1] } else { [1, 0] };
            let m = &found.mixture;
            let m = m.sorted(&Order::Permutation(order.to_vec())).unwrap();
            let errors = standard_errors(&mut e, &m);
            let pairs = parameters(&m).into_iter().zip(parameters(&truth));
            for (i, ((found, truth), error)) in pairs.zip(errors).enumerate() {
                println!("{t} {share} parameter {i}: {found} ± {error}, {truth}");
                assert!(error > 0.0 && error < 0.5 && (found - truth).abs() <= 3.0 * error);
            }
        }
    }
}

#[test]
fn a_fit_far_from_the_origin_finds_the_same() {
    // Powers of two move and scale the samples exactly.
    let x = with_holes(3, blobs(3, 600, 3).mapv(|v| (v * 1024.0).round() / 1024.0), 0.3);
    let far = x.mapv(|v| v + 2f64.powi(30));
    for t in CovarianceType::ALL {
        let params = GaussianMixtureParams::new(3).covariance_type(t).tol(0.0).max_iter(20);
        let near = params.fit(Samples::with_missing(x.view()).unwrap()).unwrap().mixture;
        let far = params.fit(Samples::with_missing(far.view()).unwrap()).unwrap().mixture;
        // The means have 30 bits fewer: 2⁻²³ of the samples' unit, through twenty iterations.
        let back = far.means().mapv(|v| v - 2f64.powi(30));
        assert_all_close("means", back, near.means(), 1e-5, 1.0);
        assert_all_close("covariances", far.covariances().iter(), near.covariances().iter(), 1e-5, 1.0);
    }
}

#[test]
fn clusters_are_found_from_what_is_observed() {
    let n = 6000;
    let x = with_holes(5, blobs(4, n, 5), 0.3);
    for init in [InitParams::KMeans, InitParams::KMeansPlusPlus] {
        for x in [x.clone(), x.slice(s![..900, ..]).to_owned()] {
            let params = GaussianMixtureParams::new(3).init_params(init).max_iter(0);
            let (fit, labels) = params.fit_predict(Samples::with_missing(x.view()).unwrap()).unwrap();
            let mut first: Vec<f64> = fit.mixture.means().column(0).to_vec();
            first.sort_by(f64::total_cmp);
            // Blobs at 0, 5 and 10; k-means++ alone takes the nearest centre, off by the blob's width.
            let tolerance = if init == InitParams::KMeans { 0.3 } else { 1.5 };
            first.iter().zip([0.0, 5.0, 10.0]).for_each(|(a, b)| assert!((a - b).abs() < tolerance, "{first:?}"));
            // The start's variances are those of observed values, not smaller.
            let Covariances::Full(v) = fit.mixture.covariances() else { panic!() };
            assert!(v.outer_iter().all(|v| v.diag().iter().all(|&v| v > 0.1)), "{v}");
            let same = (0..labels.len()).filter(|&i| labels[i] == labels[i % 3]).count();
            assert!(same as f64 > 0.95 * labels.len() as f64, "{same} of {}", labels.len());
        }
    }
}

#[test]
fn a_column_of_a_cluster_that_was_never_observed_keeps_a_sensible_variance() {
    let mut x = blobs(4, 600, 2);
    x.outer_iter_mut().step_by(3).for_each(|mut row| row[1] = NAN);
    let fit = GaussianMixtureParams::new(3).fit(Samples::with_missing(x.view()).unwrap()).unwrap();
    let Covariances::Full(v) = fit.mixture.covariances() else { panic!() };
    assert!(v.outer_iter().all(|v| v[[1, 1]] > 0.1), "{v}");
}

/// The likeliest variances of one component are those of the observed values, whatever the units of other columns.
/// Tolerance: the start has them up to rounding in the larger unit.
#[test]
fn one_component_has_the_observed_variances_in_any_units() {
    for (share, unit) in [0.5, 0.95].into_iter().flat_map(|share| [1e-5, 1.0, 1e3, 1e5].map(|unit| (share, unit))) {
        let mut x = normal(5, 1000, 2, 1.0);
        x.column_mut(0).mapv_inplace(|v| v * unit);
        let holes = with_holes(6, x.slice(s![.., 1..]).to_owned(), share);
        x.slice_mut(s![.., 1..]).assign(&holes);
        let seen: Vec<f64> = holes.iter().copied().filter(|v| !v.is_nan()).collect();
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        let variance = seen.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / seen.len() as f64;
        for init in [InitParams::KMeans, InitParams::RandomFromData, InitParams::Random] {
            let params = GaussianMixtureParams::new(1).covariance_type(CovarianceType::Diag).reg_covar(0.0);
            let fit = params.init_params(init).fit(Samples::with_missing(x.view()).unwrap()).unwrap();
            let (ratio, n) = (fit.mixture.variance(0, 1) / variance, fit.n_iter());
            assert!((ratio - 1.0).abs() < 1e-5 && n <= 2, "{init:?} {share} {unit}: {ratio} {n}");
        }
    }
}

#[test]
fn standardisation_is_of_what_is_observed() {
    let x = with_holes(5, blobs(4, 20_000, 3).mapv(|v| 3.0 * v + 1e6), 0.3);
    let w = Array1::from_shape_fn(20_000, |i| (i % 3) as f64);
    let samples = Samples::with_missing(x.view()).unwrap().with_weights(w.view()).unwrap();
    let standard = Standardization::of(&samples).unwrap();
    let mut log_scale = 0.0;
    for j in 0..3 {
        let seen: Vec<(f64, f64)> =
            x.column(j).iter().zip(&w).filter(|(v, _)| !v.is_nan()).map(|(v, w)| (*v, *w)).collect();
        let weight: f64 = seen.iter().map(|(_, w)| w).sum();
        let mean = 1e6 + seen.iter().map(|(v, w)| (v - 1e6) * w).sum::<f64>() / weight;
        let variance = seen.iter().map(|(v, w)| (v - mean).powi(2) * w).sum::<f64>() / weight;
        assert_close("mean", standard.mean()[j], mean, 1e-14, 0.0);
        assert_close("scale", standard.scale()[j], variance.sqrt(), 1e-10, 0.0);
        log_scale += weight / w.sum() * variance.sqrt().ln();
    }
    assert_close("log scale", standard.log_scale(), log_scale, 1e-10, 0.0);
    // A fit in standardised units, and its likelihood, have counterparts in the data's units.
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    let z = Samples::with_missing(z.view()).unwrap().with_weights(w.view()).unwrap();
    let fit = GaussianMixtureParams::new(2).reg_covar(0.0).fit(&z).unwrap();
    let in_z = fit.mixture.score(&z).unwrap();
    let restored = standard.restore_fit(&fit).unwrap();
    let in_x = restored.mixture.score(&samples).unwrap();
    assert_close("score", in_x, in_z - standard.log_scale(), 1e-9, 1.0);
}

#[test]
fn bad_data_is_refused() {
    let x = array![[1.0, 2.0], [NAN, 3.0], [1.5, 0.0]];
    let text = Samples::from_f64(x.view()).unwrap_err().to_string();
    for part in ["NaN at row 1, column 0", "--missing", "Samples::with_missing", "missing=True"] {
        assert!(text.contains(part), "{text}");
    }
    let infinite = array![[1.0, NAN], [2.0, f64::INFINITY]];
    let error = Samples::with_missing(infinite.view()).unwrap_err();
    assert!(matches!(error, Error::NonFiniteSample { row: 1, column: 1, .. }), "{error}");
    assert!(!error.to_string().contains("--missing"), "{error}");
    // A column without a value.
    let mut empty = normal(1, 50, 3, 0.0);
    empty.column_mut(1).fill(NAN);
    for init in InitParams::ALL {
        let params = GaussianMixtureParams::new(2).init_params(init);
        let error = params.fit(Samples::with_missing(empty.view()).unwrap()).unwrap_err();
        assert!(matches!(error, Error::UnobservedColumn { column: 1 }), "{error}");
    }
    // The column has values only in rows without weight.
    let mut hidden = empty.clone();
    hidden[[3, 1]] = 0.5;
    let mut w = Array1::ones(50);
    w[3] = 0.0;
    let samples = Samples::with_missing(hidden.view()).unwrap().with_weights(w.view()).unwrap();
    let error = GaussianMixtureParams::new(2).fit(samples).unwrap_err();
    assert!(matches!(error, Error::UnobservedColumn { column: 1 }), "{error}");
    // A fit from given parameters also finds it, and reads rows for this check alone.
    let start = mixture(1, CovarianceType::Diag, 2, 3, 0.0);
    let params = GaussianMixtureParams::new(2).covariance_type(CovarianceType::Diag);
    let initial = (params.clone())
        .weights_init(start.weights().to_owned())
        .means_init(start.means().to_owned())
        .precisions_init(Covariances::Diag(Array2::ones((2, 3))));
    for params in [params.clone().start(start.clone()), initial] {
        let hidden = Samples::with_missing(hidden.view()).unwrap();
        let of_weight = hidden.clone().with_weights(w.view()).unwrap();
        for samples in [Samples::with_missing(empty.view()).unwrap(), of_weight.clone()] {
            let error = params.fit(samples).unwrap_err();
            assert!(matches!(error, Error::UnobservedColumn { column: 1 }), "{error}");
        }
        params.fit(hidden).unwrap();
    }
    // The column's only value is in a late row.
    let mut late = normal(1, 30_000, 3, 0.0);
    late.column_mut(1).fill(NAN);
    late[[29_000, 1]] = 0.5;
    let samples = Samples::with_missing(late.view()).unwrap();
    let part = samples.rows(0..29_000);
    let chunks = |samples: Samples<'static>| {
        ChunkedEvaluator::of_samples(samples, 7_000, |chunk| Ok(Box::new(CpuEvaluator::new(chunk)?))).unwrap()
    };
    let params = params.start(start).max_iter(1);
    assert!(params.fit(&samples).is_ok() && params.fit(part).is_err());
    let shared =
        |rows: usize| Samples::with_shared_missing(late.slice(s![..rows, ..]).to_owned().into_shared()).unwrap();
    let params = params.check().unwrap();
    let fit = |rows| params.fit(&mut chunks(shared(rows)));
    assert!(fit(30_000).is_ok() && matches!(fit(29_000).unwrap_err(), Error::UnobservedColumn { column: 1 }));
    // Scores of such data are those of the other columns.
    let m = mixture(1, CovarianceType::Full, 2, 3, 0.0);
    assert!(m.score(Samples::with_missing(empty.view()).unwrap()).unwrap().is_finite());
}

#[test]
fn what_is_missing_is_counted() {
    let x = array![[1.0, NAN, 2.0], [NAN, NAN, NAN], [3.0, 4.0, NAN], [NAN, NAN, NAN]];
    let samples = Samples::with_missing(x.view()).unwrap();
    let missing = samples.missing().unwrap();
    assert_eq!(missing.observed, [2, 1, 1]);
    assert_eq!((missing.values, missing.empty_rows, missing.first_empty_row), (8, 2, Some(1)));
    // Pieces of 4096 rows.
    let mut long = Array2::<f32>::zeros((10_000, 2));
    long.row_mut(9000).fill(f32::NAN);
    long[[5000, 1]] = f32::NAN;
    let samples = Samples::with_missing(long.view()).unwrap();
    let missing = samples.missing().unwrap();
    assert_eq!(missing.observed, [9_999, 9_998]);
    assert_eq!((missing.values, missing.empty_rows, missing.first_empty_row), (3, 1, Some(9000)));
}

#[test]
fn rows_without_anything_change_no_estimate() {
    let x = with_holes(3, blobs(3, 300, 2), 0.2);
    let mut longer = Array2::from_elem((330, 2), NAN);
    longer.slice_mut(s![..300, ..]).assign(&x);
    for t in CovarianceType::ALL {
        let start = mixture(1, t, 2, 2, 3.0);
        let params = GaussianMixtureParams::new(2).covariance_type(t).start(start).tol(1e-12).max_iter(5000);
        let params = params.reg_covar(0.0);
        let a = params.fit(Samples::with_missing(x.view()).unwrap()).unwrap().mixture;
        let b = params.fit(Samples::with_missing(longer.view()).unwrap()).unwrap().mixture;
        // Both have converged to 10⁻¹² of the likelihood; parameters are then known to about the root of that.
        assert_mixtures_close("fits", &a, &b, 1e-4, 1.0);
    }
}

#[test]
fn imputed_means_are_those_of_the_sweep_operator() {
    let x = with_holes(3, normal(3, 200, 4, 2.0), 0.4);
    for t in CovarianceType::ALL {
        let m = mixture(4, t, 3, 4, 2.0);
        let filled = m.impute(&Samples::with_missing(x.view()).unwrap()).unwrap();
        let r = sweep::posterior(&m, &x).r;
        for (i, row) in x.outer_iter().enumerate() {
            let mut want = Array1::<f64>::zeros(4);
            (0..3).for_each(|c| want += &(sweep::component(&m, c, row).filled * r[[i, c]]));
            assert_all_close("filled", filled.row(i), want, 1e-10, 1.0);
            (0..4).filter(|&j| !row[j].is_nan()).for_each(|j| assert_eq!(filled[[i, j]], row[j]));
        }
    }
}

#[test]
fn imputed_draws_have_the_moments_of_what_is_missing() {
    let n_draws = 20_000;
    let x = array![[0.3, NAN, NAN, 1.0], [NAN, NAN, NAN, NAN], [1.0, 2.0, 3.0, 4.0]];
    for t in CovarianceType::ALL {
        let m = mixture(4, t, 3, 4, 0.5);
        let samples = Samples::with_missing(x.view()).unwrap();
        let draws = m.impute_draws(&samples, 0..n_draws, 5, 0).unwrap();
        assert_eq!(draws.dim(), (n_draws, 3, 4));
        let r = sweep::posterior(&m, &x).r;
        for (i, row) in x.outer_iter().enumerate() {
            let parts: Vec<_> = (0..3).map(|c| sweep::component(&m, c, row)).collect();
            let mut mean = Array1::<f64>::zeros(4);
            parts.iter().enumerate().for_each(|(c, p)| mean += &(&p.filled * r[[i, c]]));
            for a in 0..4 {
                let got = draws.slice(s![.., i, a]);
                for b in 0..4 {
                    let of_part =
                        |p: &sweep::Component| p.covariance[[a, b]] + (p.filled[a] - mean[a]) * (p.filled[b] - mean[b]);
                    let want: f64 = parts.iter().zip(r.row(i)).map(|(p, r)| r * of_part(p)).sum();
                    let other = draws.slice(s![.., i, b]);
                    let products = (&got - mean[a]) * (&other - mean[b]);
                    // Five standard errors of a mean of so many products.
                    let error = 5.0 * products.std(0.0) / (n_draws as f64).sqrt() + 1e-12;
                    assert!((products.mean().unwrap() - want).abs() <= error, "{t} row {i}: {a} {b}");
                }
                let error = 5.0 * got.std(0.0) / (n_draws as f64).sqrt() + 1e-12;
                assert!((got.mean().unwrap() - mean[a]).abs() <= error, "{t} row {i}: mean {a}");
            }
        }
        assert_eq!(draws.index_axis(Axis(0), 9).row(2), x.row(2), "what is observed stays");
        // A sample's draws depend only on the seed and its number.
        let part = Samples::with_missing(x.slice(s![1.., ..])).unwrap();
        let fewer = m.impute_draws(&part, 0..3, 5, 1).unwrap();
        assert_eq!(fewer, draws.slice(s![..3, 1.., ..]));
        let later = m.impute_draws(&part, 2..4, 5, 1).unwrap();
        assert_eq!(later, draws.slice(s![2..4, 1.., ..]));
        assert_ne!(m.impute_draws(&part, 0..3, 6, 1).unwrap(), fewer);
    }
    let m = mixture(4, CovarianceType::Full, 3, 4, 0.5);
    let none = m.impute_draws(&Samples::with_missing(x.view()).unwrap(), 3..3, 5, 0);
    assert!(matches!(none, Err(Error::BadParameter { name: "draws", .. })));
}

#[test]
fn float32_with_too_few_digits_is_computed_in_float64() {
    // A component too narrow and too far from the centre for float32; the reference sees the same rounded samples.
    let x = with_holes(3, normal(3, 500, 3, 0.0), 0.2);
    let x32 = x.mapv(|v| v as f32);
    let (means, variances) = (array![[0.0, 0.0, 0.0], [3.0, 3.0, 3.0]], Covariances::Spherical(array![1.0, 1e-9]));
    let m = Mixture::new(array![0.5, 0.5], means, variances).unwrap();
    let mut cpu = CpuEvaluator::new(Samples::with_missing(x32.view()).unwrap()).unwrap();
    let mut truth = ReferenceEvaluator::new(Samples::with_missing(x32.view()).unwrap());
    assert_statistics_close(&cpu.statistics(&m).unwrap(), &truth.statistics(&m).unwrap(), 1e-10, 1.0);
    assert_eq!(cpu.precision(&m, gmm_host::Operation::Statistics), gmm_host::Precision::Float64);
}
