//! Labels and responsibilities of the CPU backend: every covariance type, element type and
//! instruction set against the reference.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, CpuEvaluator, Error, Evaluator, Mixture, Samples};
use ndarray::{Array2, array};

/// How far a responsibility may be from the reference's. float64: sums in another order. float32:
/// an exponent of some hundreds has an absolute error of some 10⁻⁵ in float32, which is the
/// relative error of a responsibility.
const FLOAT64: f64 = 1e-11;
const FLOAT32: f64 = 2e-4;

#[track_caller]
fn assert_agrees(what: &str, e: &mut dyn Evaluator, m: &Mixture, truth: &Array2<f64>, tolerance: f64) {
    let r = e.predict_proba(m).unwrap();
    assert_eq!(r.dim(), truth.dim(), "{what}");
    let labels = e.predict(m).unwrap();
    for (i, ((r, truth), &label)) in r.outer_iter().zip(truth.outer_iter()).zip(&labels).enumerate() {
        for (c, (r, truth)) in r.iter().zip(truth).enumerate() {
            assert!((r - truth).abs() <= tolerance, "{what}: sample {i}, component {c}: {r} for {truth}");
        }
        // Normalised in float64 whatever the type.
        assert!((r.sum() - 1.0).abs() < 1e-14, "{what}: sample {i} sums to {}", r.sum());
        let most = truth.iter().copied().fold(0.0, f64::max);
        assert!(truth[label] >= most - 2.0 * tolerance, "{what}: sample {i} has label {label}: {truth}");
    }
}

#[test]
fn every_shape_and_instruction_set_agrees_with_the_reference() {
    for t in CovarianceType::ALL {
        for (n, d, k) in [(1, 1, 1), (63, 2, 3), (65, 13, 8), (300, 3, 1), (2500, 5, 17)] {
            let x = normal(n as u64, n, d, 2.0).mapv(|v| f64::from((1.5 * v) as f32));
            let m = mixture(k as u64, t, k, d, 2.0);
            let truth = reference(x.view()).predict_proba(&m).unwrap();
            let single = x.mapv(|v| v as f32);
            for kernel in CpuEvaluator::kernels() {
                let what = format!("{t} N={n} D={d} K={k} {kernel}");
                let mut e = CpuEvaluator::with_kernel(Samples::from_f64(x.view()).unwrap(), kernel).unwrap();
                assert_agrees(&what, &mut e, &m, &truth, FLOAT64);
                let mut e = CpuEvaluator::with_kernel(Samples::from_f32(single.view()).unwrap(), kernel).unwrap();
                assert_agrees(&(what + " float32"), &mut e, &m, &truth, FLOAT32);
            }
        }
    }
}

#[test]
fn threads_and_far_samples() {
    let m = mixture(3, CovarianceType::Diag, 9, 4, 0.0);
    let mut x = normal(4, 40_000, 4, 0.0);
    // So far that the densities of all components are zero in either type.
    x.row_mut(11).fill(200.0);
    x.row_mut(39_999).fill(-100.0);
    x.mapv_inplace(|v| f64::from(v as f32));
    let truth = reference(x.view()).predict_proba(&m).unwrap();
    for threads in [1, 3] {
        let mut e = CpuEvaluator::with_threads(Samples::from_f64(x.view()).unwrap(), threads).unwrap();
        assert_agrees("float64", &mut e, &m, &truth, FLOAT64);
        let single = x.mapv(|v| v as f32);
        let mut e = CpuEvaluator::with_threads(Samples::from_f32(single.view()).unwrap(), threads).unwrap();
        let (r, labels) = (e.predict_proba(&m).unwrap(), e.predict(&m).unwrap());
        for i in [11, 39_999] {
            // Exponents of 10⁴ and more are known to 10⁻³, but the components lie further apart
            // there.
            assert!(truth[[i, labels[i]]] > 0.99 && r[[i, labels[i]]] > 0.99, "{} {}", truth.row(i), r.row(i));
        }
    }
}

#[test]
fn the_first_of_equal_components_is_the_label() {
    let covariances = Covariances::Spherical(array![1.0, 1.0, 1.0]);
    let m = Mixture::new(array![0.2, 0.4, 0.4], array![[0.0], [0.0], [0.0]], covariances).unwrap();
    let x = normal(5, 50, 1, 0.0);
    let single = x.mapv(|v| v as f32);
    assert_eq!(reference(x.view()).predict(&m).unwrap(), [1; 50]);
    assert_eq!(CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap().predict(&m).unwrap(), [1; 50]);
    assert_eq!(CpuEvaluator::new(Samples::from_f32(single.view()).unwrap()).unwrap().predict(&m).unwrap(), [1; 50]);
}

#[test]
fn a_sample_that_no_component_reaches_is_named() {
    let m = mixture(6, CovarianceType::Diag, 2, 1, 0.0);
    let x = array![[0.5], [1e200], [0.0]];
    let mut cpu = CpuEvaluator::new(Samples::from_f64(x.view()).unwrap()).unwrap();
    for e in [&mut reference(x.view()) as &mut dyn Evaluator, &mut cpu] {
        let error = e.predict_proba(&m).unwrap_err();
        assert!(matches!(error, Error::UnreachableSample { row: 1 }), "{error}");
    }
    for wrong in [
        reference(x.view()).predict(&mixture(6, CovarianceType::Diag, 2, 2, 0.0)).unwrap_err(),
        cpu.predict(&mixture(6, CovarianceType::Diag, 2, 2, 0.0)).unwrap_err(),
    ] {
        assert!(matches!(wrong, Error::ShapeMismatch { .. }), "{wrong}");
    }
}
