//! Covariance types, sufficient statistics and sample weights over the reference.
use crate::common::*;
use gmm_host::{CentredSums, CovarianceType, Covariances, Error, Evaluator, Freeze, Mixture, Samples, Statistics};
use ndarray::{Array1, Array2, Array3, Axis, ShapeBuilder, array, s};
use proptest::prelude::*;

/// Returns Σᵢ rᵢₖ, x̄ₖ and the full scatter by definition, from `predict_proba`.
fn by_definition(evaluator: &mut dyn Evaluator, x: &Array2<f64>, w: &Array1<f64>, m: &Mixture) -> Statistics {
    let r = evaluator.predict_proba(m).unwrap() * w.view().insert_axis(Axis(1));
    let (k, d) = m.means().dim();
    let counts = r.sum_axis(Axis(0));
    let means = r.t().dot(x) / counts.view().insert_axis(Axis(1));
    let mut full = Array3::zeros((k, d, d));
    for c in 0..k {
        let centred = x - &means.row(c);
        let weighted = &centred * &r.column(c).insert_axis(Axis(1));
        full.index_axis_mut(Axis(0), c).assign(&weighted.t().dot(&centred));
    }
    let scores = evaluator.score_samples(m).unwrap();
    statistics_of(m.covariance_type(), (&scores * w).sum(), w.sum(), counts, means, full)
}

#[test]
fn statistics_are_what_their_definition_says() {
    let x = normal(1, 101, 3, 0.5);
    let w = Array1::from_shape_fn(101, |i| (i % 4) as f64 * 0.5);
    for t in CovarianceType::ALL {
        let m = mixture(2, t, 4, 3, 0.5);
        for backend in BACKENDS {
            let mut e = backend.evaluator(x.view(), Some(w.view()));
            println!("{} {t}", backend.name);
            let got = e.statistics(&m).unwrap();
            assert_eq!(got.covariance_type(), t);
            let seen = backend.seen(&x);
            // About a hundred roundings in either order; in float32 of terms up to 100.
            let (tight, loose) = (backend.tolerance(1e-13, 1e-6), backend.tolerance(1e-12, 1e-5));
            let truth = by_definition(&mut reference(seen.view()), &seen, &w, &m);
            assert_statistics_close(&got, &truth, loose, 1.0);
            assert_close("log_likelihood", got.log_likelihood(), e.log_likelihood(&m).unwrap(), tight, 0.0);
            assert_close("weight", got.weight(), e.total_weight(), 1e-15, 0.0);
            assert_close("counts", got.counts().sum(), w.sum(), tight, 0.0);
            assert_eq!(got, e.statistics(&m).unwrap(), "the same bits each time");
        }
    }
}

#[test]
fn a_correlated_pair_has_its_textbook_density() {
    let (rho, x, y) = (0.6f64, 0.3f64, -1.1f64);
    let m = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, rho], [rho, 1.0]])).unwrap();
    let square = (x * x - 2.0 * rho * x * y + y * y) / (1.0 - rho * rho);
    let want = -(std::f64::consts::TAU * (1.0 - rho * rho).sqrt()).ln() - square / 2.0;
    assert_close("log p", reference(array![[x, y]].view()).log_likelihood(&m).unwrap(), want, 1e-14, 0.0);
}

#[test]
fn precisions_invert_covariances() {
    for t in CovarianceType::ALL {
        let m = mixture(5, t, 3, 4, 0.0);
        let back = Mixture::from_precisions(m.weights().to_owned(), m.means().to_owned(), m.precisions()).unwrap();
        // Condition numbers here are below 100.
        assert_all_close(t.name(), back.covariances().iter(), m.covariances().iter(), 1e-12, 1.0);
        let u = m.precisions_cholesky();
        assert_eq!(u.shape(), m.covariances().shape());
        if let (Covariances::Full(u), Covariances::Full(p)) = (u.as_ref(), &m.precisions()) {
            let (u, p) = (u.index_axis(Axis(0), 2), p.index_axis(Axis(0), 2));
            assert_eq!(u[[2, 1]], 0.0);
            assert_all_close("U·Uᵀ", u.dot(&u.t()), &p, 1e-13, 1.0);
        }
    }
}

proptest! {
    #![proptest_config(crate::common::proptest_config())]

    /// Chan's formula: any split, merged left to right or as a tree, equals one pass.
    #[test]
    fn merged_statistics_equal_one_pass(
        seed in 0u64..1000, cut_a in 1usize..40, cut_b in 41usize..59, offset in prop::sample::select(vec![0.0, 1e4]),
        t in prop::sample::select(CovarianceType::ALL.to_vec()),
    ) {
        let x = normal(seed, 60, 3, offset);
        let m = mixture(seed + 1, t, 3, 3, offset);
        let want = reference(x.view()).statistics(&m).unwrap();
        let part = |a: usize, b: usize| reference(x.slice(s![a..b, ..])).statistics(&m).unwrap();
        let (a, b, c) = (part(0, cut_a), part(cut_a, cut_b), part(cut_b, 60));
        let mut left = Statistics::empty(t, 3, 3);
        for p in [&a, &b, &c] {
            left.merge(p).unwrap();
        }
        let mut tree = c.clone();
        let mut ab = a.clone();
        ab.merge(&b).unwrap();
        tree.merge(&ab).unwrap();
        // Means of 1e4, and so the scatter, carry an absolute error of 1e-12, however it is formed.
        let tolerance = if offset == 0.0 { 1e-12 } else { 1e-10 };
        assert_statistics_close(&left, &want, tolerance, 1.0);
        assert_statistics_close(&tree, &want, tolerance, 1.0);
    }

    /// The centres of the sums do not change the statistics.
    #[test]
    fn any_centre_gives_the_same_statistics(
        seed in 0u64..1000, shift in -3.0f64..3.0, t in prop::sample::select(CovarianceType::ALL.to_vec()),
    ) {
        let x = normal(seed, 30, 3, 0.0);
        let m = mixture(seed + 1, t, 2, 3, 0.0);
        let mut e = reference(x.view());
        let want = e.statistics(&m).unwrap();
        let r = e.predict_proba(&m).unwrap();
        let moved = &x - shift;
        let first = r.t().dot(&moved);
        let mut second = Covariances::zeros(t, 2, 3);
        for (x, r) in moved.outer_iter().zip(r.outer_iter()) {
            for (c, &r) in r.iter().enumerate() {
                let outer = |i: usize, j: usize| r * x[i] * x[j];
                match &mut second {
                    Covariances::Full(v) => for i in 0..3 { for j in 0..=i { v[[c, i, j]] += outer(i, j) } },
                    Covariances::Tied(v) => for i in 0..3 { for j in 0..=i { v[[i, j]] += outer(i, j) } },
                    Covariances::Diag(v) => for i in 0..3 { v[[c, i]] += outer(i, i) },
                    Covariances::Spherical(v) => for i in 0..3 { v[c] += outer(i, i) },
                }
            }
        }
        let got = Statistics::from_centred_sums(CentredSums {
            weight: 30.0, log_likelihood: want.log_likelihood(), centres: Array2::from_elem((2, 3), shift),
            counts: r.sum_axis(Axis(0)), first, second,
        }).unwrap();
        assert_statistics_close(&got, &want, 1e-12, 1.0);
    }
}

/// More features than are mirrored at once.
#[test]
fn second_moments_may_lie_column_by_column() {
    let (k, d) = (2, 19);
    for t in [CovarianceType::Full, CovarianceType::Tied] {
        let row_major = mixture(12, t, k, d, 0.0).covariances().clone();
        let column_major = match &row_major {
            Covariances::Full(v) => {
                let mut to = Array3::zeros((k, d, d).f());
                to.assign(v);
                Covariances::Full(to)
            }
            Covariances::Tied(v) => {
                let mut to = Array2::zeros((d, d).f());
                to.assign(v);
                Covariances::Tied(to)
            }
            _ => unreachable!(),
        };
        let statistics = |second: &Covariances| {
            let sums = CentredSums {
                weight: 10.0,
                log_likelihood: -1.0,
                centres: Array2::zeros((k, d)),
                counts: array![4.0, 6.0],
                first: Array2::from_shape_fn((k, d), |(c, j)| 0.1 * (c + j) as f64),
                second: second.clone(),
            };
            Statistics::from_centred_sums(sums)
        };
        let got = statistics(&row_major).unwrap();
        assert_eq!(got, statistics(&column_major).unwrap(), "{t}");
        let symmetric = match got.scatter() {
            Covariances::Full(v) => v.outer_iter().all(|matrix| matrix == matrix.t()),
            Covariances::Tied(v) => v == v.t(),
            _ => unreachable!(),
        };
        assert!(symmetric, "{t}");
        let mut bad = row_major.clone();
        match &mut bad {
            Covariances::Full(v) => v[[1, 18, 3]] = f64::NAN,
            Covariances::Tied(v) => v[[18, 3]] = f64::NAN,
            _ => unreachable!(),
        }
        let component = if t == CovarianceType::Full { 1 } else { 0 };
        let error = statistics(&bad).unwrap_err();
        let named = matches!(&error, Error::NonFiniteStatistic { what: "the second moment", component: c, .. } if *c == component);
        assert!(named, "{error}");
    }
}

#[test]
fn far_data_keeps_its_variance() {
    // 10⁸ standard deviations from the origin: E[x²] − E[x]² would leave nothing.
    let x = normal(8, 200, 2, 1e8);
    for t in CovarianceType::ALL {
        let m = reference(x.view()).statistics(&mixture(9, t, 1, 2, 1e8)).unwrap().to_mixture(0.0).unwrap();
        let exact = x.mapv(|v| v - 1e8);
        let mean = exact.mean_axis(Axis(0)).unwrap();
        // The mean is rounded to 1.5e-8 at 1e8; the variance around it loses only the square.
        assert_all_close("mean", m.means().row(0).mapv(|v| v - 1e8), mean, 3e-8, 1.0);
        assert_variances(&m, exact.var_axis(Axis(0), 0.0));
    }
}

/// Compares the variances of component 0; a spherical one is their mean.
fn assert_variances(m: &Mixture, wanted: Array1<f64>) {
    let wanted = match m.covariance_type() {
        CovarianceType::Spherical => Array1::from_elem(wanted.len(), wanted.mean().unwrap()),
        _ => wanted,
    };
    assert_all_close("variance", (0..m.n_features()).map(|j| m.variance(0, j)), wanted, 1e-12, 0.0);
}

#[test]
fn a_component_that_lost_its_samples_retains_its_parameters() {
    let x = normal(10, 50, 2, 0.0);
    for t in CovarianceType::ALL {
        let m = mixture(11, t, 2, 2, 0.0);
        // Component 1 is 10⁴ standard deviations away: its responsibilities underflow to zero.
        let mut means = m.means().to_owned();
        means.row_mut(1).fill(1e4);
        let m = with_means(&m, means);
        let s = reference(x.view()).statistics(&m).unwrap();
        assert_eq!(s.counts()[1], 0.0);
        assert!(matches!(s.to_mixture(1e-6), Err(Error::EmptyComponent { component: 1, .. })));
        let u = s.update(&m, 1e-6, &Freeze::default()).unwrap();
        assert_eq!(u.retained, [1], "{t}");
        assert_eq!(u.mixture.means().row(1), m.means().row(1));
        assert!(u.mixture.weights()[1] < 1e-15);
        match t {
            // The pooled scatter of the components with samples.
            CovarianceType::Tied => assert_variances(&u.mixture, x.var_axis(Axis(0), 0.0) + 1e-6),
            _ => assert_eq!(u.mixture.matrix(1), m.matrix(1)),
        }
        assert!(reference(x.view()).log_likelihood(&u.mixture).unwrap().is_finite());
    }
}

#[test]
fn a_component_on_one_point_retains_its_covariance_without_reg_covar() {
    // Half of the samples are one point with component 0 on it, too far from the others to share.
    let mut x = normal(12, 60, 2, 200.0);
    x.slice_mut(s![..30, ..]).fill(1.0);
    for t in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let start = with_means(&mixture(13, t, 2, 2, 0.0), array![[1.0, 1.0], [200.0, 200.0]]);
        let s = reference(x.view()).statistics(&start).unwrap();
        assert!(s.to_mixture(0.0).is_err(), "{t}");
        let u = s.update(&start, 0.0, &Freeze::default()).unwrap();
        assert_eq!(u.retained, [0]);
        let u = s.update(&start, 1e-6, &Freeze::default()).unwrap();
        assert!(u.retained.is_empty());
        let floor = u.mixture.covariances().iter().next().unwrap();
        assert_close("floor", floor, 1e-6, 1e-12, 0.0);
    }
}

/// Returns statistics of twenty samples of component 0 with some scatter around (1, 1), and twenty of component 1.
fn of_twenty(second: Covariances) -> Statistics {
    Statistics::from_centred_sums(CentredSums {
        weight: 40.0,
        log_likelihood: -100.0,
        centres: array![[1.0, 1.0], [9.0, 9.0]],
        counts: array![20.0, 20.0],
        first: Array2::zeros((2, 2)),
        second,
    })
    .unwrap()
}

/// Returns such statistics in which component 0 is nearly a line, and component 1 well spread.
fn of_line(left: f64) -> Statistics {
    of_twenty(Covariances::Full(array![[[20.0, 20.0], [20.0, 20.0 * (1.0 + left)]], [[20.0, 0.0], [0.0, 20.0]]]))
}

/// The rounding left of zero is not a variance: samples on a line or point far from the origin have a scatter that is
/// positive definite by chance. A covariance that is nearly singular, but clear of rounding, is kept.
#[test]
fn what_rounding_leaves_of_zero_is_not_positive_definite() {
    let check = |s: Statistics, usable: bool, what: f64| {
        let t = s.covariance_type();
        let unit = Covariances::isotropic(t, 2, 2, 1.0);
        let previous = Mixture::new(array![0.5, 0.5], array![[1.0, 1.0], [9.0, 9.0]], unit).unwrap();
        let update = s.update(&previous, 0.0, &Freeze::default()).unwrap();
        assert_eq!(update.retained.is_empty(), usable, "{t} {what:e}");
        assert_eq!(s.to_mixture(0.0).is_ok(), usable, "{t} {what:e}");
        assert!(s.update(&previous, 1e-6, &Freeze::default()).unwrap().retained.is_empty());
    };
    for (left, usable) in [(1e-15, false), (5e-15, false), (1e-13, true), (1e-9, true)] {
        check(of_line(left), usable, left);
    }
    // A mean of 1 has the last place 2.2e-16; 64 of these are 1.4e-14, whose square is 2e-28.
    for (variance, usable) in [(1e-33, false), (1e-28, false), (3e-28, true), (1e-20, true)] {
        let diag = array![[20.0, 20.0 * variance], [20.0, 20.0]];
        check(of_twenty(Covariances::Diag(diag)), usable, variance);
        check(of_twenty(Covariances::Spherical(array![40.0 * variance, 40.0])), usable, variance);
    }
}

/// If rounding of a nearly singular scatter may take more than a new covariance gains, the last one stays.
#[test]
fn a_covariance_that_gains_less_than_rounding_takes_is_retained() {
    let previous = of_line(1e-13).to_mixture(0.0).unwrap();
    // A tenth more of a variance of 1e-13 gains 0.0023 for a sample of the component; rounding may take 0.011.
    let update = of_line(1.1e-13).update(&previous, 0.0, &Freeze::default()).unwrap();
    assert_eq!(update.retained, [0]);
    assert_eq!(update.mixture.covariances(), previous.covariances());
    // For 1e-9 rounding takes next to nothing.
    let previous = of_line(1e-9).to_mixture(0.0).unwrap();
    let update = of_line(1.1e-9).update(&previous, 0.0, &Freeze::default()).unwrap();
    assert!(update.retained.is_empty());
}

#[test]
fn frozen_parameters_stay() {
    let x = normal(14, 80, 3, 0.3);
    for t in CovarianceType::ALL {
        let m = mixture(15, t, 2, 3, 0.0);
        let s = reference(x.view()).statistics(&m).unwrap();
        let freeze = |weights: bool, means: bool, covariances: bool| Freeze {
            weights: weights.into(),
            means: means.into(),
            covariances: covariances.into(),
            ..Freeze::default()
        };
        assert_eq!(s.update(&m, 0.0, &freeze(true, true, true)).unwrap().mixture, m);
        let u = s.update(&m, 0.0, &freeze(false, false, true)).unwrap().mixture;
        assert_eq!((u.covariances(), u.means()), (m.covariances(), s.means()));
        // K = 1: Σ = var + (x̄ − μ)².
        let one = mixture(16, t, 1, 3, 0.0);
        let s = reference(x.view()).statistics(&one).unwrap();
        let u = s.update(&one, 0.0, &freeze(false, true, false)).unwrap().mixture;
        let d = &x.mean_axis(Axis(0)).unwrap() - &one.means().row(0);
        assert_variances(&u, x.var_axis(Axis(0), 0.0) + &d * &d);
    }
}

#[test]
fn bad_parameters_are_named() {
    let (w, mu) = (array![0.5, 0.5], Array2::zeros((2, 2)));
    let new = |c| Mixture::new(w.clone(), mu.clone(), c);
    let mut full = Array3::zeros((2, 2, 2));
    full.outer_iter_mut().for_each(|mut m| m.assign(&Array2::eye(2)));
    let with = |k: usize, i: usize, j: usize, v: f64| {
        let mut full = full.clone();
        full[[k, i, j]] = v;
        Covariances::Full(full)
    };
    assert!(new(with(0, 0, 0, 2.0)).is_ok());
    assert!(new(with(1, 0, 1, 1e-7)).is_ok(), "within the tolerance of symmetry");
    let e = new(with(1, 0, 1, 1e-3)).unwrap_err();
    assert!(matches!(e, Error::NotSymmetric { component: Some(1), row: 0, column: 1, .. }), "{e}");
    let e = new(with(1, 1, 1, -1.0)).unwrap_err();
    assert!(matches!(e, Error::NotPositiveDefinite { component: Some(1), pivot: 1 }), "{e}");
    assert!(e.to_string().contains("component 1") && e.to_string().contains("pivot 1"), "{e}");
    let e = new(with(0, 1, 0, f64::NAN)).unwrap_err();
    assert!(matches!(e, Error::BadComponent { component: 0, .. }), "{e}");
    let e = new(Covariances::Tied(array![[1.0, 1.0], [1.0, 1.0]])).unwrap_err();
    assert!(matches!(e, Error::NotPositiveDefinite { component: None, pivot: 1 }), "{e}");
    let e = new(Covariances::Tied(Array2::eye(3))).unwrap_err();
    assert!(matches!(e, Error::ShapeMismatch { .. }), "{e}");

    let x = normal(19, 3, 2, 0.0);
    let samples = Samples::from_f64(x.view()).unwrap();
    let weights = |w: [f64; 3]| {
        let w = Array1::from_iter(w);
        Samples::from_f64(x.view()).unwrap().with_weights(w.view()).map(|_| ()).unwrap_err()
    };
    assert!(matches!(weights([1.0, -0.5, 1.0]), Error::BadSampleWeight { row: 1, .. }));
    assert!(matches!(weights([1.0, 1.0, f64::NAN]), Error::BadSampleWeight { row: 2, .. }));
    assert!(matches!(weights([0.0; 3]), Error::ZeroSampleWeights));
    let short = array![1.0, 1.0];
    assert!(matches!(samples.with_weights(short.view()), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(reference(x.view()).rows(&[0, 3]), Err(Error::NoSuchRow { row: 3, n_samples: 3 })));
}
