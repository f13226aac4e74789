//! Variational inference on a GPU, against the float64 reference.
use crate::common::{CUDA_BACKENDS, assert_all_close, assert_close, blobs, reference};
use crate::gpu_harness::Test;
use gmm_host::{BayesianGaussianMixtureParams, CovarianceType, Evaluator, Statistics, WeightConcentrationPriorType};
use ndarray::Array2;

pub fn tests() -> Vec<Test> {
    vec![("fits_agree", fits_agree)]
}

fn fits_agree() {
    let (n, k) = (400, 5);
    let x = blobs(2, n, 3);
    let r = Array2::from_shape_fn((n, k), |(i, c)| if i % k == c { 0.6 } else { 0.4 / (k - 1) as f64 });
    for t in CovarianceType::ALL {
        for kind in WeightConcentrationPriorType::ALL {
            for backend in CUDA_BACKENDS {
                let what = format!("{} {t} {kind}", backend.name);
                let seen = backend.seen(&x);
                let statistics = Statistics::from_responsibilities(seen.view(), r.view(), t).unwrap();
                let params = BayesianGaussianMixtureParams::new(k).covariance_type(t).max_iter(30).tol(0.0);
                let params = params.weight_concentration_prior_type(kind).start_statistics(statistics);
                let params = params.check().unwrap();
                let expected = params.fit(&mut reference(seen.view()) as &mut dyn Evaluator).unwrap();
                let mut evaluator = backend.evaluator(x.view(), None);
                let found = params.fit(evaluator.as_mut()).unwrap();
                // Thirty iterations may amplify float32's rounding.
                let tolerance = backend.tolerance(1e-9, 2e-3);
                let (a, b) = (&found.mixture, &expected.mixture);
                assert_all_close(&what, a.weights(), b.weights(), tolerance, 1.0);
                assert_all_close(&what, a.means(), b.means(), tolerance, 1.0);
                assert_close(&what, found.elbo(), expected.elbo(), backend.tolerance(1e-11, 1e-5), 1.0);
                let labels = evaluator.predict(a.density()).unwrap();
                assert_eq!(labels, reference(seen.view()).predict(a.density()).unwrap(), "{what}");
            }
        }
    }
}
