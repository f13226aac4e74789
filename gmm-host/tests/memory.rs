//! Calls that need more memory than there is return an error before they allocate, and the process goes on.
#![allow(missing_docs)]
use gmm_host::{CovarianceType, Covariances, Device, Error, GaussianMixtureParams, Mixture, Samples, load};
use ndarray::{Array1, Array2, array};

/// More than any machine has, in bytes or in elements.
const MANY: usize = 1 << 45;

/// Checks the error, and that its text gives the memory needed and a remedy.
fn refused<T>(what: &str, result: gmm_host::Result<T>) {
    match result {
        Err(error @ Error::Memory { .. }) => {
            let text = error.to_string();
            assert!(text.starts_with(what) && text.contains("of memory") && text.contains("; "), "{text}");
        }
        Err(other) => panic!("{what}: {other}"),
        Ok(_) => panic!("{what}: no error"),
    }
}

fn mixture() -> Mixture {
    Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]])).unwrap()
}

#[test]
fn draws() {
    let mixture = mixture();
    refused("the samples and their components", mixture.sample(MANY, 0));
    refused("the samples and their components", mixture.sample(usize::MAX, 0));
    let mut sampler = mixture.sampler(0).unwrap();
    refused("the samples and their components", sampler.draw(MANY));
    assert_eq!(sampler.draw(3).unwrap(), mixture.sample(3, 0).unwrap());
    let x = array![[1.0, f64::NAN], [2.0, 3.0]];
    let samples = Samples::with_missing(x.view()).unwrap();
    refused("the samples without gaps", mixture.impute_draws(&samples, 0..MANY, 0, 0));
    refused("the samples without gaps", mixture.impute_draws(&samples, 5..usize::MAX, 0, 0));
    assert_eq!(mixture.impute_draws(&samples, 5..7, 0, 0).unwrap().dim(), (2, 2, 2));
}

#[test]
fn probabilities() {
    // 2²⁰ samples by 2²² components.
    let (n, k) = (1 << 20, 1 << 22);
    let x = Array2::from_shape_fn((n, 1), |(i, _)| (i % 7) as f32);
    let means = Array2::from_shape_fn((k, 1), |(c, _)| (c % 5) as f64);
    let weights = Array1::from_elem(k, 1.0 / k as f64);
    let mixture = Mixture::new(weights, means, Covariances::Spherical(Array1::ones(k))).unwrap();
    for device in [Device::Cpu, Device::Reference, Device::Auto] {
        let mut evaluator = load(device, Samples::from_f32(x.view()).unwrap(), &Default::default()).unwrap();
        refused("the probabilities of the components", evaluator.predict_proba(&mixture));
    }
}

#[test]
fn fits() {
    // 100,000 features: a matrix takes 75 GiB, and a fit of ten components four TiB.
    let x = Array2::from_shape_fn((20, 100_000), |(i, j)| ((i * 7 + j * 3) % 11) as f64);
    let params = GaussianMixtureParams::new(100).covariance_type(CovarianceType::Full);
    assert!(matches!(params.fit(&x), Err(Error::TooFewSamples { .. })));
    let params = GaussianMixtureParams::new(10).device(Device::Cpu);
    refused(
        "the parameters and statistics of the components, of shape [10, 100000, 100000], take",
        params.clone().covariance_type(CovarianceType::Full).fit(&x),
    );
    let params = params.covariance_type(CovarianceType::Diag).max_iter(1);
    assert_eq!(params.fit(&x).unwrap().mixture.n_features(), 100_000);
}
