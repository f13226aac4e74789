//! Mixtures, parameters and fits survive JSON unchanged, and unusable ones are refused.
use crate::common::{blobs, mixture};
use gmm_host::{
    BayesianGaussianMixtureParams, Checked, CovarianceType, Device, Error, Fit, Freeze, GaussianMixtureParams,
    InitParams, Mixture,
};
use ndarray::Array2;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Returns a number of few digits, which JSON carries exactly however its parser rounds.
fn short(v: f64) -> f64 {
    (v * 1024.0).round() / 1024.0
}

fn through_json<T: Serialize + DeserializeOwned>(value: &T) -> T {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

fn short_mixture(t: CovarianceType) -> Mixture {
    let m = mixture(1, t, 2, 3, 0.0);
    let covariances = m.covariances().iter().map(short).collect();
    let covariances = gmm_host::Covariances::from_vec(t, 2, 3, covariances).unwrap();
    Mixture::new(ndarray::array![0.25, 0.75], m.means().mapv(short), covariances).unwrap()
}

#[test]
fn mixtures_come_back() {
    for t in CovarianceType::ALL {
        let m = short_mixture(t);
        assert_eq!(through_json(&m), m);
        assert_eq!(through_json(&t), t);
    }
    assert_eq!(serde_json::to_string(&CovarianceType::Diag).unwrap(), "\"diag\"");
    assert_eq!(serde_json::to_string(&Device::Cuda(1)).unwrap(), "\"cuda:1\"");
    assert_eq!(serde_json::to_string(&InitParams::KMeansPlusPlus).unwrap(), "\"k-means++\"");
}

#[test]
fn an_unusable_mixture_is_refused() {
    let json = serde_json::to_string(&short_mixture(CovarianceType::Spherical)).unwrap();
    let error = serde_json::from_str::<Mixture>(&json.replace("0.75", "0.5")).unwrap_err();
    assert!(error.to_string().contains("the weights sum to 0.75"), "{error}");
    let mut value: serde_json::Value = serde_json::from_str(&json).unwrap();
    value["covariances"]["spherical"]["data"][1] = (-1.0).into();
    let error = serde_json::from_value::<Mixture>(value).unwrap_err();
    assert!(error.to_string().contains("variance of component 1"), "{error}");
}

#[test]
fn fits_and_parameters_come_back() {
    let x = blobs(2, 90, 3).mapv(short);
    let start = short_mixture(CovarianceType::Full);
    let all = GaussianMixtureParams::new(2)
        .tol(0.0)
        .max_iter(3)
        .n_init(2)
        .random_state(7)
        .init_params(InitParams::RandomFromData)
        .freeze(Freeze { weights: true.into(), means: vec![0].into(), ..Freeze::default() })
        .device(Device::Reference);
    let begun = all.clone().max_iter(0).start(start.clone()).fit(&x).unwrap();
    for params in [
        GaussianMixtureParams::default(),
        all.clone(),
        all.clone().start(start.clone()),
        all.clone().resume(begun.clone(), Some(begun)),
        all.weights_init(start.weights().to_owned())
            .means_init(Array2::zeros((2, 3)))
            .precisions_init(start.covariances().clone()),
    ] {
        let back: GaussianMixtureParams = through_json(&params);
        assert_eq!(format!("{back:?}"), format!("{params:?}"));
        let checked: Checked<GaussianMixtureParams> = through_json(&params.check().unwrap());
        assert_eq!(format!("{:?}", checked.into_inner()), format!("{back:?}"));
    }
    let all =
        BayesianGaussianMixtureParams::new(2).mean_prior(ndarray::array![0.5, 1.0, 2.0]).mean_precision_prior(0.25);
    let fitted = all.clone().max_iter(0).mean_prior(None).fit(&x).unwrap();
    for params in [all.clone(), all.resume(fitted.clone(), Some(fitted))] {
        let back: BayesianGaussianMixtureParams = through_json(&params);
        assert!(back.method.mean_precision_prior == Some(0.25) && back.check().is_ok());
    }
    let mut fit = Fit::new(start);
    (fit.lower_bounds, fit.converged, fit.run, fit.retained) = (vec![-1.5, -1.25], true, 1, vec![0]);
    assert_eq!(format!("{:?}", through_json(&fit)), format!("{fit:?}"));
}

/// Missing fields have their defaults; checked parameters are checked again.
#[test]
fn unusable_parameters_are_refused() {
    let params: GaussianMixtureParams = serde_json::from_str(r#"{"n_components": 4, "tol": -1.0}"#).unwrap();
    assert!(matches!(params.clone().check(), Err(Error::BadParameter { name: "tol", .. })));
    let params = params.tol(1e-3).check().unwrap();
    assert_eq!(format!("{params:?}"), format!("{:?}", GaussianMixtureParams::new(4).check().unwrap()));
    let bad = serde_json::from_str::<Checked<BayesianGaussianMixtureParams>>(r#"{"mean_precision_prior": -1.0}"#);
    assert!(bad.unwrap_err().to_string().contains("mean_precision_prior is -1"));
    let error = serde_json::from_str::<Checked<GaussianMixtureParams>>(r#"{"tol": -1.0}"#).unwrap_err();
    assert!(error.to_string().contains("tol is -1"), "{error}");
}
