//! Whole fits. A fit of m + 1 iterations has the sums of the E-step with the parameters that m iterations find: within
//! 10⁻¹⁰ of the reference's, relative to the largest of their kind, far above some thousand roundings of float64.
use super::super::fit::{Course, Fitted, Task, fit, n_uniforms, takes};
use super::{flat, sizes};
use gmm_core::backends::reference::ReferenceEvaluator;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::model::covariances::CovarianceType;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn course(covariance_type: CovarianceType, d: usize) -> Course {
    Course { covariance_type, d, tol: 0.0, reg_covar: 1e-6, max_iter: 3, lloyd: 100, lloyd_tol: 1e-4 }
}

fn task(set: usize, k: usize, seed: u64) -> Task {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Task { set, k, uniforms: (0..n_uniforms(k)).map(|_| rng.random()).collect() }
}

/// Returns clusters around points of a line, `apart` standard deviations from each other.
fn clusters(seed: u64, (n, d): (usize, usize), k: usize, apart: f64, origin: f64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_fn((n, d), |(i, j)| {
        let centre = apart * ((i % k) as f64) * (1.0 + 0.1 * j as f64);
        origin + centre + (1.0 + 0.3 * j as f64) * rng.sample::<f64, _>(StandardNormal)
    })
}

fn one(course: &Course, samples: &Samples<'_>, k: usize, seed: u64) -> Option<Fitted> {
    assert!(takes(samples, k, course));
    let sets = [samples.clone()];
    fit(0, course, &sets, &[task(0, k, seed)], &|| true).unwrap().pop().unwrap()
}

fn mixture(fitted: &Fitted, course: &Course) -> Mixture {
    Statistics::from_centred_sums(fitted.sums.clone()).unwrap().to_mixture(course.reg_covar).unwrap()
}

fn check(x: &Array2<f64>, weights: Option<ArrayView1<'_, f64>>, k: usize, covariance_type: CovarianceType) {
    let (n, d) = x.dim();
    let what = format!("{covariance_type} N={n} D={d} K={k} {}", if weights.is_some() { "weights" } else { "" });
    let samples = Samples::from_f64(x.view()).unwrap();
    let samples = weights.into_iter().fold(samples, |samples, weights| samples.with_weights(weights).unwrap());
    let course = course(covariance_type, d);
    let fitted = |max_iter| one(&Course { max_iter, ..course }, &samples, k, 7).unwrap_or_else(|| panic!("{what}"));
    let (before, after) = (fitted(2), fitted(3));
    assert_eq!((before.lower_bounds.len(), after.lower_bounds.len()), (2, 3), "{what}");
    // The same bits every time.
    assert_eq!(before.lower_bounds, after.lower_bounds[..2], "{what}");
    assert!(after.lower_bounds.windows(2).all(|pair| pair[1] >= pair[0] - 1e-12), "{what}: {after:?}");
    let mixture = mixture(&before, &course);
    let truth = ReferenceEvaluator::new(samples.clone()).statistics(&mixture).unwrap();
    let got = Statistics::from_centred_sums(after.sums).unwrap();
    let near = |name: &str, got: &[f64], truth: &[f64], scale: f64| {
        got.iter().zip(truth).for_each(|(a, b)| {
            assert!((a - b).abs() <= 1e-10 * scale, "{what}, {name}: {got:?} for {truth:?}");
        });
    };
    let total = samples.total_weight();
    near("total", &[got.log_likelihood()], &[truth.log_likelihood()], truth.log_likelihood().abs().max(total));
    near("counts", &got.counts().to_vec(), &truth.counts().to_vec(), total);
    let reach = truth.means().iter().fold(1.0, |most: f64, v| most.max(v.abs()));
    near("means", &Vec::from_iter(got.means().iter().copied()), &Vec::from_iter(truth.means().iter().copied()), reach);
    let scatter = flat(truth.scatter());
    near("scatter", &flat(got.scatter()), &scatter, scatter.iter().fold(1.0, |most, v| most.max(v.abs())));
}

#[test]
fn each_iteration_is_the_references() {
    // N, D, K: sizes of no tile and no instance; one of each; the most components.
    for (i, (n, d, k)) in sizes("150x2x3 131x5x2 1x1x1 257x1x2 200x3x1 300x10x4 140x16x2 330x13x3 700x1x32").enumerate()
    {
        let x = clusters(i as u64, (n, d), k, 4.0, 0.0);
        for covariance_type in CovarianceType::ALL {
            if d > 1 || covariance_type != CovarianceType::Tied {
                check(&x, None, k, covariance_type);
            }
        }
    }
}

#[test]
fn larger_blocks_weights_and_a_far_origin() {
    for (n, d, k) in [(1100, 2, 3), (4500, 4, 2)] {
        check(&clusters(1, (n, d), k, 4.0, 0.0), None, k, CovarianceType::Full);
        check(&clusters(1, (n, d), k, 4.0, 0.0), None, k, CovarianceType::Diag);
    }
    let x = clusters(2, (300, 3), 3, 4.0, 0.0);
    let weights = Array1::from_shape_fn(300, |i| (i % 4) as f64 * 0.75);
    for covariance_type in CovarianceType::ALL {
        check(&x, Some(weights.view()), 3, covariance_type);
        check(&clusters(3, (300, 3), 3, 4.0, 1e6), None, 3, covariance_type);
    }
}

/// Clusters far apart have one optimum, whatever the start; and the first mixture is that of the clusters.
#[test]
fn it_starts_at_the_clusters() {
    let x = clusters(4, (240, 2), 4, 40.0, 0.0);
    let samples = Samples::from_f64(x.view()).unwrap();
    for (covariance_type, lloyd) in CovarianceType::ALL.into_iter().flat_map(|t| [(t, 0), (t, 100)]) {
        let course = Course { lloyd, tol: 1e-9, max_iter: 50, ..course(covariance_type, 2) };
        let fitted = one(&course, &samples, 4, 3).unwrap();
        assert!(fitted.converged && fitted.lower_bounds.len() < 50);
        let labels = Array2::from_shape_fn((240, 4), |(i, c)| f64::from(u8::from(i % 4 == c)));
        let truth = Statistics::from_responsibilities(x.view(), labels.view(), covariance_type).unwrap();
        let start = truth.to_mixture(course.reg_covar).unwrap();
        let bound = ReferenceEvaluator::new(samples.clone()).log_likelihood(&start).unwrap() / 240.0;
        assert!((fitted.lower_bounds[0] - bound).abs() < 1e-10, "{covariance_type} {lloyd}: {fitted:?} for {bound}");
        let mut means: Vec<f64> = mixture(&fitted, &course).means().slice(s![.., 0]).to_vec();
        means.sort_by(f64::total_cmp);
        for (mean, truth) in means.iter().zip(truth.means().column(0)) {
            assert!((mean - truth).abs() < 1e-9, "{covariance_type} {lloyd}");
        }
    }
}

/// A fit's bits do not depend on the fits beside it, some with other K and N, or with the same samples.
#[test]
fn fits_do_not_depend_on_each_other() {
    let arrays: Vec<Array2<f64>> = (0..4).map(|i| clusters(i, (100 + 250 * i as usize, 3), 3, 3.0, i as f64)).collect();
    let sets: Vec<Samples<'_>> = arrays.iter().map(|x| Samples::from_f64(x.view()).unwrap()).collect();
    let course = Course { tol: 1e-3, max_iter: 20, ..course(CovarianceType::Full, 3) };
    let tasks = || Vec::from_iter([(0, 2), (2, 3), (1, 1), (3, 4), (1, 3), (0, 3)].map(|(set, k)| task(set, k, 5)));
    let together = fit(0, &course, &sets, &tasks(), &|| true).unwrap();
    for (task, together) in tasks().into_iter().zip(&together) {
        let alone = fit(0, &course, &sets, &[task], &|| true).unwrap();
        let bits = |fitted: &Option<Fitted>| {
            let fitted = fitted.as_ref().unwrap();
            (fitted.lower_bounds.clone(), fitted.sums.counts.clone(), flat(&fitted.sums.second))
        };
        assert_eq!(bits(together), bits(&alone[0]));
    }
    assert!(fit(0, &course, &sets, &tasks(), &|| false).unwrap().iter().all(Option::is_none));
}

#[test]
fn what_needs_care_is_left_to_the_host() {
    let given_up = |x: Array2<f64>, k: usize, course: Course| {
        let fitted = one(&course, &Samples::from_f64(x.view()).unwrap(), k, 1);
        assert!(fitted.is_none(), "{fitted:?}");
    };
    let course = |t| Course { reg_covar: 0.0, ..course(t, 2) };
    // A constant column; equal columns; fewer different samples than components; numbers whose squares overflow.
    let mut x = clusters(5, (60, 2), 2, 3.0, 0.0);
    let overflowing = x.mapv(|v| v * 1e200);
    x.column_mut(1).fill(3.0);
    CovarianceType::ALL
        .iter()
        .filter(|t| **t != CovarianceType::Spherical)
        .for_each(|t| given_up(x.clone(), 2, course(*t)));
    let first = x.column(0).to_owned();
    x.column_mut(1).assign(&first);
    given_up(x, 2, course(CovarianceType::Full));
    given_up(Array2::from_shape_fn((40, 2), |(i, j)| (i % 2 * (j + 1)) as f64), 3, course(CovarianceType::Diag));
    given_up(overflowing, 2, course(CovarianceType::Diag));
    // All fits of a launch.
    let x = Array2::zeros((40, 2));
    let sets = [Samples::from_f64(x.view()).unwrap()];
    let all = fit(0, &course(CovarianceType::Diag), &sets, &[1, 2].map(|seed| task(0, 2, seed)), &|| true).unwrap();
    assert!(all.len() == 2 && all.iter().all(Option::is_none));
    // Too many components, features or samples, and missing values, are refused.
    let takes = |(n, d): (usize, usize), k| {
        let x = Array2::zeros((n, d));
        takes(&Samples::from_f64(x.view()).unwrap(), k, &Course { d, ..course(CovarianceType::Full) })
    };
    assert!(takes((20_000, 10), 11) && !takes((200_000, 10), 11));
    assert!(takes((50, 16), 32) && !takes((50, 17), 3) && !takes((50, 2), 33) && !takes((2, 2), 3));
    let x = Array2::from_elem((3, 2), f64::NAN);
    let missing = Samples::with_missing(x.view());
    assert!(missing.is_err() || !super::super::fit::takes(&missing.unwrap(), 1, &course(CovarianceType::Diag)));
}
