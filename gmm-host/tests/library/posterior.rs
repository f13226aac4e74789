//! The CPU backend's labels and responsibilities, for every covariance type, element type and instruction set.
use crate::common::*;
use gmm_host::{
    CovarianceType, Covariances, CpuEvaluator, Device, Error, Evaluator, LabelledEvaluator, Labels, Mixture, Predict,
    ReferenceEvaluator, Samples,
};
use ndarray::{Array2, array};

#[test]
fn the_first_of_equal_components_is_the_label() {
    let covariances = Covariances::Spherical(array![1.0, 1.0, 1.0]);
    let m = Mixture::new(array![0.2, 0.4, 0.4], array![[0.0], [0.0], [0.0]], covariances).unwrap();
    let x = normal(5, 50, 1, 0.0);
    assert_eq!(reference(x.view()).predict(&m).unwrap(), [1; 50]);
    for backend in BACKENDS {
        assert_eq!(backend.evaluator(x.view(), None).predict(&m).unwrap(), [1; 50], "{}", backend.name);
    }
}

/// Returns two components that differ only in the second feature, with the midpoint 1.5.
fn side_by_side(kind: CovarianceType) -> Mixture {
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(array![[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.5], [0.5, 1.0]]]),
        CovarianceType::Tied => Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]]),
        CovarianceType::Diag => Covariances::Diag(array![[1.0, 1.0], [1.0, 1.0]]),
        _ => Covariances::Spherical(array![1.0, 1.0]),
    };
    Mixture::new(array![0.5, 0.5], array![[0.0, 0.0], [0.0, 3.0]], covariances).unwrap()
}

/// A log-density 10²⁰ deviations away is rounded to 10²⁴, so ln 2 vanishes. Tolerance: a few roundings of the sum.
#[test]
fn probabilities_sum_to_one_far_from_all_components() {
    for (kind, far) in CovarianceType::ALL.into_iter().flat_map(|kind| [1e6, 1e8, 1e10, 1e20].map(|far| (kind, far))) {
        let m = side_by_side(kind);
        // Few rows of a pattern of missing values, and many.
        for copies in [1, 60] {
            let x = array![[0.0, 0.1], [far, f64::NAN], [f64::NAN, 0.2], [-far, f64::NAN]];
            let x = Array2::from_shape_fn((4 * copies, 2), |(i, j)| x[[i % 4, j]]);
            let samples = Samples::with_missing(x.view()).unwrap();
            let labels = Labels::new(&vec![None; x.nrows()], 2).unwrap();
            let load = |part| -> gmm_host::Result<Box<dyn Evaluator>> { Ok(Box::new(CpuEvaluator::new(part)?)) };
            let mut reference = ReferenceEvaluator::new(samples.clone());
            let mut cpu = CpuEvaluator::new(samples.clone()).unwrap();
            let mut labelled = LabelledEvaluator::new(samples.clone(), labels, load).unwrap();
            for e in [&mut reference as &mut dyn Evaluator, &mut cpu, &mut labelled] {
                let what = format!("{kind} {far:e} {copies} {}", e.describe().device);
                let (r, counts) = (e.predict_proba(&m).unwrap(), e.statistics(&m).unwrap().counts().to_owned());
                for row in r.outer_iter() {
                    assert!((row.sum() - 1.0).abs() < 1e-12, "{what}: {row}");
                }
                assert!((r[[1, 0]] - 0.5).abs() < 1e-12, "{what}: {}", r.row(1));
                assert!((counts.sum() - x.nrows() as f64).abs() < 1e-9, "{what}: {counts}");
            }
            // Given x₀ the second feature has the mean of both components, plus slopes.
            let slope = if matches!(kind, CovarianceType::Full | CovarianceType::Tied) { 0.5 } else { 0.0 };
            let (filled, expected) = (m.impute(&samples).unwrap()[[1, 1]], 1.5 + slope * far);
            assert!((filled - expected).abs() <= 1e-12 * expected, "{kind} {far:e}: {filled} for {expected}");
            let score = m.on(Device::Reference).score_function(samples.clone()).unwrap()[[1, 0]];
            assert!((score + far).abs() <= 1e-12 * far, "{kind} {far:e}: {score}");
        }
        let given = m.condition(&[(0, far)]).unwrap();
        assert!((given.weights()[0] - 0.5).abs() < 1e-12 && (given.weights().sum() - 1.0).abs() < 1e-12, "{given:?}");
        let there = Mixture::new(array![1.0], array![[far, 1.5]], Covariances::Diag(array![[1.0, 1.0]])).unwrap();
        let (product, _) = m.product(&there).unwrap();
        assert!((product.weights().sum() - 1.0).abs() < 1e-12, "{kind} {far:e}: {}", product.weights());
    }
}

/// The squares of 10²⁰⁰ overflow. Far away the wider component is the nearest, and equally wide ones share by weight.
#[test]
fn a_sample_that_no_component_reaches_belongs_to_the_nearest() {
    let variances = Covariances::Diag(array![[1.0], [4.0], [4.0]]);
    let m = Mixture::new(array![0.1, 0.6, 0.3], array![[0.0], [1.0], [2.0]], variances).unwrap();
    let expected = [0.0, 2.0 / 3.0, 1.0 / 3.0];
    for far in [1e160, 1e200, -1.7e308] {
        let x = array![[0.5], [far], [0.0]];
        let with_gaps = array![[0.5], [far], [f64::NAN]];
        let mut cpu = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
        let mut missing = CpuEvaluator::new(Samples::with_missing(with_gaps.view()).unwrap()).unwrap();
        for e in [&mut reference(x.view()) as &mut dyn Evaluator, &mut cpu, &mut missing] {
            let (r, labels) = (e.predict_proba(&m).unwrap(), e.predict(&m).unwrap());
            r.row(1).iter().zip(expected).for_each(|(r, expected)| assert!((r - expected).abs() < 1e-12, "{r}"));
            assert_eq!(labels[1], 1);
            assert_eq!(e.score_samples(&m).unwrap()[1], f64::NEG_INFINITY);
            // A fit cannot use a total of −∞.
            let error = e.statistics(&m).unwrap_err();
            assert!(matches!(error, Error::UnreachableSample { row: 1 }), "{error}");
        }
    }
    let (m, x) = (mixture(6, CovarianceType::Diag, 2, 1, 0.0), array![[0.5]]);
    let mut cpu = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
    assert_eq!(cpu.predict(&m).unwrap(), reference(x.view()).predict(&m).unwrap());
    let wide = mixture(6, CovarianceType::Diag, 2, 2, 0.0);
    for e in [&mut reference(x.view()) as &mut dyn Evaluator, &mut cpu] {
        assert!(matches!(e.predict(&wide), Err(Error::ShapeMismatch { .. })));
    }
}
