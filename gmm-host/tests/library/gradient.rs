//! The gradient of the log-likelihood.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, CpuEvaluator, Error, Evaluator, Mixture, Predict, Samples};
use ndarray::{Array1, Array2, array};

/// Returns the log-likelihood with each parameter as a separate variable: weights need not sum to 1.
fn total(data: &mut dyn Evaluator, weights: &Array1<f64>, means: &Array2<f64>, covariances: &Covariances) -> f64 {
    let sum = weights.sum();
    let mixture = Mixture::new(weights / sum, means.clone(), covariances.clone()).unwrap();
    data.log_likelihood(&mixture).unwrap() + data.total_weight() * sum.ln()
}

fn add(covariances: &Covariances, steps: &[(usize, f64)]) -> Covariances {
    let (k, d) = (3, 2);
    let mut values: Vec<f64> = covariances.iter().collect();
    steps.iter().for_each(|&(at, step)| values[at] += step);
    Covariances::from_vec(covariances.covariance_type(), k, d, values).unwrap()
}

/// Compares with central differences of the reference, for the reference's statistics and the CPU's.
#[test]
fn it_is_that_of_finite_differences() {
    let x = normal(1, 50, 2, 0.5);
    let sample_weights = Array1::from_shape_fn(50, |i| 0.5 + (i % 3) as f64);
    for covariance_type in CovarianceType::ALL {
        let m = mixture(2, covariance_type, 3, 2, 0.0);
        let mut data = weighted(x.view(), sample_weights.view());
        let samples = Samples::from_f64(x.view()).unwrap().with_weights(sample_weights.view()).unwrap();
        let gradient = data.statistics(&m).unwrap().gradient(&m).unwrap();
        let of_cpu = m.gradient(&mut CpuEvaluator::new(samples).unwrap()).unwrap();
        assert_close("total", gradient.log_likelihood, of_cpu.log_likelihood, 1e-12, 1.0);
        assert_all_close("weights", &gradient.weights, of_cpu.weights, 1e-11, 1.0);
        assert_all_close("means", &gradient.means, of_cpu.means, 1e-10, 1.0);
        assert_all_close("covariances", gradient.covariances.iter(), of_cpu.covariances.iter(), 1e-10, 1.0);
        let (weights, means, v) = (m.weights().to_owned(), m.means().to_owned(), m.covariances());
        let step = 1e-5;
        // The error of a difference is 10⁻¹⁰ times a third derivative, or the rounding of 10² over 10⁻⁵.
        let mut check = |what, found: f64, at: &mut dyn FnMut(f64, &mut dyn Evaluator) -> f64| {
            let slope = (at(step, &mut data) - at(-step, &mut data)) / (2.0 * step);
            assert_close(what, found, slope, 1e-6, 1.0);
        };
        for c in 0..3 {
            check("weight", gradient.weights[c], &mut |step, data| {
                let mut weights = weights.clone();
                weights[c] += step;
                total(data, &weights, &means, v)
            });
            for j in 0..2 {
                check("mean", gradient.means[[c, j]], &mut |step, data| {
                    let mut means = means.clone();
                    means[[c, j]] += step;
                    total(data, &weights, &means, v)
                });
            }
        }
        let found: Vec<f64> = gradient.covariances.iter().collect();
        for at in 0..found.len() {
            // Mirrored entries move together, each by half.
            let has_matrices = matches!(covariance_type, CovarianceType::Full | CovarianceType::Tied);
            let mirrored = if has_matrices { at / 4 * 4 + [0, 2, 1, 3][at % 4] } else { at };
            check("covariance", found[at], &mut |step, data| {
                total(data, &weights, &means, &add(v, &[(at, step / 2.0), (mirrored, step / 2.0)]))
            });
        }
    }
}

/// The narrow component explains nothing of the far row, whose density is a quarter of that of the component without
/// weight. A log density there is rounded by more than ln 4.
#[test]
fn a_weight_of_zero_has_one_far_away_too() {
    let covariances = Covariances::Spherical(array![1.0, 0.25, 1.0]);
    let m = Mixture::new(array![0.25, 0.75, 0.0], Array2::zeros((3, 2)), covariances).unwrap();
    let far = m.gradient(&array![[1e10, 0.0]]).unwrap();
    assert_all_close("weights", far.weights, [4.0, 0.0, 4.0], 1e-12, 1.0);
}

#[test]
fn statistics_of_another_mixture_are_refused() {
    let m = mixture(2, CovarianceType::Diag, 3, 2, 0.0);
    let statistics = reference(normal(1, 9, 2, 0.0).view()).statistics(&m).unwrap();
    let wrong = statistics.gradient(&mixture(2, CovarianceType::Diag, 2, 2, 0.0)).unwrap_err();
    assert!(matches!(&wrong, Error::ShapeMismatch { expected, .. } if expected == &[3, 2]), "{wrong}");
    let wrong = statistics.gradient(&mixture(2, CovarianceType::Full, 3, 2, 0.0)).unwrap_err();
    assert!(matches!(wrong, Error::WrongCovarianceType { .. }), "{wrong}");
}
