//! Regression on given features, for many samples.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, Error, Evaluator, Mixture, Regression, Samples};
use ndarray::{Array2, ArrayView1, Axis, array, concatenate, s};

const GIVEN: [usize; 2] = [3, 0];
const WANTED: [usize; 2] = [4, 1];

/// Returns rows of the features [`GIVEN`], also far from 0 and from all means.
fn rows(offset: f64) -> Array2<f64> {
    let mut x = normal(7, 300, GIVEN.len(), offset);
    x.slice_mut(s![290.., ..]).mapv_inplace(|v| v * 1e3);
    x
}

/// Returns the distribution of [`WANTED`] for one row by [`Mixture::condition`] and [`Mixture::marginal`].
fn one_by_one(m: &Mixture, given: &[usize], x: ArrayView1<'_, f64>) -> Mixture {
    let values: Vec<(usize, f64)> = given.iter().copied().zip(x.iter().copied()).collect();
    let rest: Vec<usize> = (0..m.n_features()).filter(|j| !given.contains(j)).collect();
    let at = |j: &usize| rest.iter().position(|i| i == j).unwrap();
    m.condition(&values).unwrap().marginal(&WANTED.iter().map(at).collect::<Vec<_>>()).unwrap()
}

/// Compares all results with conditional mixtures, row by row.
fn check(m: &Mixture, regression: &Regression, samples: &Samples<'_>, x: &Array2<f64>) {
    let (n, y) = (x.nrows(), normal(8, x.nrows(), 2, 0.0));
    let (weights, means) = (regression.weights(samples).unwrap(), regression.means(samples).unwrap());
    let (mean, std) = regression.predict_with_std(samples).unwrap();
    let (again, covariances) = regression.predict_with_covariances(samples).unwrap();
    let log_density = regression.log_density(samples, y.view()).unwrap();
    assert_eq!((&mean, &again), (&again, &regression.predict(samples).unwrap()));
    for row in (0..n).step_by(7).chain(n - 10..n) {
        let columns: Vec<usize> = (0..x.ncols()).filter(|&j| !x[[row, j]].is_nan()).collect();
        let given: Vec<usize> = columns.iter().map(|&j| GIVEN[j]).collect();
        let one = one_by_one(m, &given, x.row(row).select(Axis(0), &columns).view());
        // Both take the same logarithms; those of a far row are 10⁸, rounded to 10⁻⁸.
        let scale = x.row(row).iter().filter(|v| !v.is_nan()).fold(1.0, |most: f64, v| most.max(v.abs()));
        let tolerance = 1e-13 * scale * scale;
        assert_all_close("weights", weights.row(row), one.weights(), tolerance, 1.0);
        assert_all_close("means", means.slice(s![row, .., ..]), one.means(), 1e-12, scale);
        let expected = one.weights().dot(&one.means());
        assert_all_close("mean", mean.row(row), &expected, tolerance.max(1e-12), scale);
        let mut covariance = Array2::zeros((2, 2));
        for (c, weight) in one.weights().iter().enumerate() {
            let delta = (&one.means().row(c) - &expected).insert_axis(Axis(1));
            covariance += &((one.matrix(c) + delta.dot(&delta.t())) * *weight);
        }
        assert_all_close("covariance", covariances.slice(s![row, .., ..]), &covariance, 1e-11, scale * scale);
        assert_all_close("deviation", std.row(row), &covariance.diag().mapv(f64::sqrt), 1e-11, scale);
        let score = reference(y.slice(s![row..=row, ..])).score_samples(&one).unwrap()[0];
        assert_close("log density", log_density[row], score, 1e-11, scale * scale);
    }
}

#[test]
fn it_is_the_conditional_mixture_of_each_row() {
    for covariance_type in CovarianceType::ALL {
        for offset in [0.0, 100.0] {
            let m = mixture(3, covariance_type, 4, 5, offset);
            let regression = m.regression(&GIVEN, &WANTED).unwrap();
            let x = rows(offset);
            check(&m, &regression, &Samples::from_f64(x.view()).unwrap(), &x);
            // p(y | x) = p(x, y) / p(x)
            let (x, y) = (x.slice(s![..290, ..]), normal(9, 290, 2, offset));
            let both = concatenate![Axis(1), x, y];
            let joint = reference(both.view()).score_samples(&m.marginal(&[GIVEN, WANTED].concat()).unwrap()).unwrap();
            let alone = reference(x).score_samples(&m.marginal(&GIVEN).unwrap()).unwrap();
            let found = regression.log_density(&Samples::from_f64(x).unwrap(), y.view()).unwrap();
            // The means at 100 are rounded to 10⁻¹⁴ standard deviations.
            assert_all_close("log density", &found, &(joint - alone), 1e-11, 1.0);
        }
    }
}

#[test]
fn a_row_is_evaluated_by_the_features_that_it_has() {
    for covariance_type in CovarianceType::ALL {
        let m = mixture(4, covariance_type, 3, 5, 0.0);
        let mut x = rows(0.0);
        for (i, mut row) in x.outer_iter_mut().enumerate() {
            (0..2).filter(|j| (i >> j) % 2 == 1).for_each(|j| row[j] = f64::NAN);
        }
        let samples = Samples::with_missing(x.view()).unwrap();
        check(&m, &m.regression(&GIVEN, &WANTED).unwrap(), &samples, &x);
    }
}

/// Takes features in float32, and no given features: then all rows are the same.
#[test]
fn it_takes_float32_and_no_features() {
    let m = mixture(5, CovarianceType::Full, 3, 5, 0.0);
    let regression = m.regression(&GIVEN, &WANTED).unwrap();
    let x = rows(0.0).mapv(|v| v as f32);
    let wide = x.mapv(f64::from);
    let found = regression.predict(&Samples::from_f32(x.view()).unwrap()).unwrap();
    assert_eq!(found, regression.predict(&Samples::from_f64(wide.view()).unwrap()).unwrap());
    let nothing = array![[f64::NAN, f64::NAN]];
    let found = regression.predict(&Samples::with_missing(nothing.view()).unwrap()).unwrap();
    let alone = m.marginal(&WANTED).unwrap();
    assert_all_close("mean", found.row(0), &alone.weights().dot(&alone.means()), 1e-14, 1.0);
    assert_eq!(m.regression(&[], &WANTED).unwrap().marginal(), None);
}

#[test]
fn the_density_of_a_target_that_is_missing_is_that_of_the_others() {
    for covariance_type in CovarianceType::ALL {
        let m = mixture(5, covariance_type, 3, 5, 0.0);
        let x = rows(0.0).slice(s![..3, ..]).to_owned();
        let samples = Samples::from_f64(x.view()).unwrap();
        let y = array![[0.5, f64::NAN], [f64::NAN, f64::NAN], [0.1, 0.2]];
        let found = m.regression(&GIVEN, &WANTED).unwrap().log_density(&samples, y.view()).unwrap();
        let one = m.regression(&GIVEN, &WANTED[..1]).unwrap().log_density(&samples, y.slice(s![.., ..1])).unwrap();
        // Both take one variance of the same matrix, rounded differently.
        assert_close("log density", found[0], one[0], 1e-13, 1.0);
        assert!(found[1] == 0.0 && found[2].is_finite());
    }
}

#[test]
fn draws_have_the_mean_and_covariance_and_depend_on_their_row_alone() {
    for covariance_type in CovarianceType::ALL {
        let m = mixture(6, covariance_type, 3, 5, 0.0);
        let regression = m.regression(&GIVEN, &WANTED).unwrap();
        let x = array![[0.3, -0.2], [f64::NAN, 1.0]];
        let samples = Samples::with_missing(x.view()).unwrap();
        let n = 40_000;
        let draws = regression.sample(&samples, n, 1).unwrap();
        let (mean, covariances) = regression.predict_with_covariances(&samples).unwrap();
        for row in 0..2 {
            let draws = draws.index_axis(Axis(0), row);
            let found = draws.mean_axis(Axis(0)).unwrap();
            let centred = &draws - &found;
            let covariance = centred.t().dot(&centred) / n as f64;
            for j in 0..2 {
                // Five standard errors.
                let error = 5.0 * (covariances[[row, j, j]] / n as f64).sqrt();
                assert!((found[j] - mean[[row, j]]).abs() < error, "{covariance_type} {row} {j}");
                for i in 0..2 {
                    let scale = (covariances[[row, i, i]] * covariances[[row, j, j]]).sqrt();
                    assert!((covariance[[i, j]] - covariances[[row, i, j]]).abs() < 0.1 * scale, "{covariance_type}");
                }
            }
        }
        let first = regression.sample(&samples.rows(0..1), 3, 1).unwrap();
        assert_eq!(first, draws.slice(s![..1, ..3, ..]));
    }
}

#[test]
fn slopes_and_covariances_are_the_formulas() {
    let m = mixture(9, CovarianceType::Full, 2, 2, 0.0);
    let regression = m.regression(&[1], &[0]).unwrap();
    let Covariances::Full(v) = m.covariances() else { unreachable!() };
    for c in 0..2 {
        let slope = v[[c, 0, 1]] / v[[c, 1, 1]];
        assert_close("slope", regression.slopes()[[c, 0, 0]], slope, 1e-14, 1.0);
        let variance = v[[c, 0, 0]] - slope * v[[c, 0, 1]];
        assert_close("variance", regression.variances()[[c, 0]], variance, 1e-13, 1.0);
    }
}

#[test]
fn unusable_features_and_samples_are_refused() {
    let m = mixture(1, CovarianceType::Full, 2, 3, 0.0);
    let text = |result: Result<Regression, Error>| result.unwrap_err().to_string();
    assert!(text(m.regression(&[0], &[3])).contains("no feature 3"));
    assert!(text(m.regression(&[0, 1], &[1])).contains("feature 1 (counted from 0) is named twice"));
    assert!(text(m.regression(&[0], &[])).contains("at least one"));
    let regression = m.regression(&[0, 1], &[2]).unwrap();
    let (one, two) = (array![[1.0]], array![[1.0, 2.0]]);
    let wrong = regression.predict(&Samples::from_f64(one.view()).unwrap()).unwrap_err();
    assert!(matches!(&wrong, Error::ShapeMismatch { expected, .. } if expected == &[1, 2]), "{wrong}");
    let wrong = regression.log_density(&Samples::from_f64(two.view()).unwrap(), two.view()).unwrap_err();
    assert!(matches!(&wrong, Error::ShapeMismatch { got, .. } if got == &[1, 2]), "{wrong}");
}
