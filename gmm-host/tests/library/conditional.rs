//! Marginal and conditional mixtures.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, Error, Evaluator, Mixture, Samples};
use ndarray::{Array1, Array2, Axis, array};

fn score(m: &Mixture, x: &Array1<f64>) -> f64 {
    reference(x.view().insert_axis(Axis(0))).score_samples(m).unwrap()[0]
}

#[test]
fn closed_forms_in_two_dimensions() {
    let covariances = Covariances::Full(array![[[0.5, -1.0], [-1.0, 5.0]], [[5.0, 1.0], [1.0, 0.5]]]);
    let m = Mixture::new(array![0.5, 0.5], array![[0.0, 1.0], [2.0, -1.0]], covariances).unwrap();
    // A few roundings of numbers near one.
    let close = |what, a: f64, b: f64| assert_close(what, a, b, 1e-14, 1.0);
    let given = m.condition(&[(1, 1.0)]).unwrap();
    close("mean", given.means()[[0, 0]], 0.0);
    close("variance", given.variance(0, 0), 0.5 - 1.0 / 5.0);
    close("mean", given.means()[[1, 0]], 2.0 + 2.0 * 2.0);
    close("variance", given.variance(1, 0), 5.0 - 2.0);
    // The densities of x₁ = 1: 1/√(5·2π), and exp(−4/(2·0.5))/√(0.5·2π).
    let densities = [5f64.powf(-0.5), (-4f64).exp() * 0.5f64.powf(-0.5)];
    close("weight", given.weights()[0], densities[0] / (densities[0] + densities[1]));
    let given = m.condition(&[(0, 2.0)]).unwrap();
    close("mean", given.means()[[1, 0]], -1.0);
    close("variance", given.variance(1, 0), 0.5 - 1.0 / 5.0);
    let marginal = m.marginal(&[1]).unwrap();
    assert_eq!(marginal.means(), array![[1.0], [-1.0]]);
    assert_eq!(marginal.covariances(), &Covariances::Full(array![[[5.0]], [[0.5]]]));
    // In the order given.
    let swapped = m.marginal(&[1, 0]).unwrap();
    assert_eq!(swapped.means(), array![[1.0, 0.0], [-1.0, 2.0]]);
    assert_eq!(swapped.covariances(), &Covariances::Full(array![[[5.0, -1.0], [-1.0, 0.5]], [[0.5, 1.0], [1.0, 5.0]]]));
}

/// log p(a) + log p(b | a) = log p(a, b) near the origin, far from it, and where every density underflows.
#[test]
fn marginal_and_conditional_make_the_joint_density() {
    for covariance_type in CovarianceType::ALL {
        for (offset, distance) in [(0.0, 1.0), (1e3, 1.0), (0.0, 1e4)] {
            let m = mixture(3, covariance_type, 4, 5, offset);
            for row in normal(4, 20, 5, 0.0).outer_iter() {
                let x = &row * distance + offset;
                let marginal = m.marginal(&[3, 0]).unwrap();
                let given = m.condition(&[(0, x[0]), (3, x[3])]).unwrap();
                assert_eq!(marginal.covariance_type(), covariance_type);
                assert_eq!(given.covariance_type(), covariance_type);
                let sum = score(&marginal, &array![x[3], x[0]]) + score(&given, &array![x[1], x[2], x[4]]);
                let joint = score(&m, &x);
                // The means at 10³ are rounded to 10⁻¹³ standard deviations.
                assert_close("log density", sum, joint, 1e-12, 1.0);
            }
        }
    }
}

#[test]
fn the_mean_of_a_conditional_mixture_is_what_imputation_fills_in() {
    for covariance_type in CovarianceType::ALL {
        let m = mixture(5, covariance_type, 3, 4, 2.0);
        let x = array![[f64::NAN, 1.5, f64::NAN, -0.5]];
        let filled = m.impute(&Samples::with_missing(x.view()).unwrap()).unwrap();
        let given = m.condition(&[(3, -0.5), (1, 1.5)]).unwrap();
        let mean = given.weights().dot(&given.means());
        // The same arithmetic except for the sum of the responsibilities.
        assert_all_close("mean", mean, [filled[[0, 0]], filled[[0, 2]]], 1e-14, 1.0);
    }
}

/// The conditional covariance of nearly collinear features is small beside the covariances whose difference it is.
#[test]
fn nothing_cancels_in_the_covariance() {
    let e = 1e-10;
    let m =
        Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 1.0], [1.0, 1.0 + e]])).unwrap();
    let given = m.condition(&[(0, 0.5)]).unwrap();
    // 1 + e itself is rounded to 10⁻¹⁶.
    assert_close("variance", given.variance(0, 0), e, 1e-5, 0.0);
    assert_close("mean", given.means()[[0, 0]], 0.5, 1e-12, 0.0);
}

#[test]
fn weights_too_small_for_numbers_are_kept() {
    let m = Mixture::new(array![0.5, 0.5], array![[0.0, 0.0], [100.0, 1.0]], Covariances::Spherical(array![1.0, 1.0]));
    let given = m.unwrap().condition(&[(0, 0.0)]).unwrap();
    assert_eq!(given.weights()[0], 1.0);
    // The component at 1 has the weight exp(−5000); both count the same at y if −y²/2 = −5000 − (y − 1)²/2.
    let y: f64 = 5000.5 + 100.0;
    let log_p = -0.5 * (y - 1.0).powi(2) - 5000.0 - 0.5 * std::f64::consts::TAU.ln();
    assert_close("log density", score(&given, &array![y]), log_p, 1e-12, 0.0);
}

/// The squares of such values overflow, and the widest component is the nearest.
#[test]
fn a_value_that_no_component_reaches_leaves_the_nearest() {
    let covariances = Covariances::Diag(array![[1.0, 1.0], [4.0, 1.0]]);
    let m = Mixture::new(array![0.5, 0.5], array![[0.0, 0.0], [0.0, 3.0]], covariances).unwrap();
    let given = m.condition(&[(0, 1e200)]).unwrap();
    assert_eq!((given.weights().to_vec(), given.means()[[1, 0]]), (vec![0.0, 1.0], 3.0));
}

#[test]
fn unusable_features_and_values_are_refused() {
    let m = mixture(1, CovarianceType::Full, 2, 3, 0.0);
    let text = |result: Result<Mixture, Error>| result.unwrap_err().to_string();
    assert!(text(m.marginal(&[0, 3])).contains("no feature 3"));
    assert!(text(m.marginal(&[1, 0, 1])).contains("feature 1 (counted from 0) is named twice"));
    assert!(text(m.marginal(&[])).contains("at least one"));
    assert!(text(m.condition(&[(5, 0.0)])).contains("0 to 2"));
    assert!(text(m.condition(&[(2, 0.0), (2, 0.0)])).contains("feature 2 (counted from 0) is named twice"));
    assert!(text(m.condition(&[(1, f64::NAN)])).contains("NaN for feature 1"));
    assert!(text(m.condition(&[(0, 0.0), (1, 0.0), (2, 0.0)])).contains("given features is 3"));
    // Without given values nothing changes but rounding.
    let same = m.condition(&[]).unwrap();
    assert_all_close("covariances", same.covariances().iter(), m.covariances().iter(), 1e-13, 1.0);
    let x: Array2<f64> = normal(1, 1, 3, 0.0);
    let row = x.row(0).to_owned();
    assert_close("log density", score(&same, &row), score(&m, &row), 1e-12, 1.0);
}
