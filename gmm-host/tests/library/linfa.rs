//! The traits of the crate linfa.
use crate::common::blobs;
use gmm_host::Predict as _;
use gmm_host::{
    BayesianGaussianMixtureParams, Device, Error, Fit, GaussianMixtureParams, LoadOptions, Samples, VariationalMixture,
    load,
};
use linfa::traits::Predict;
use linfa::{DatasetBase, ParamGuard};
use ndarray16::{Array1, Array2, ShapeBuilder};

fn params() -> GaussianMixtureParams {
    GaussianMixtureParams::new(3).device(Device::Cpu)
}

fn old(x: &ndarray::Array2<f64>) -> Array2<f64> {
    Array2::from_shape_fn(x.dim(), |(i, j)| x[[i, j]])
}

/// Uses only linfa's traits.
fn fit_and_predict<P, Y, M>(params: &P, data: &DatasetBase<Array2<f64>, Y>) -> (Fit<M>, Array1<usize>)
where
    P: linfa::traits::Fit<Array2<f64>, Y, Error, Object = Fit<M>>,
    Fit<M>: linfa::traits::PredictInplace<Array2<f64>, Array1<usize>>,
{
    let fit = params.fit(data).unwrap();
    let labels = fit.predict(data);
    (fit, labels)
}

#[test]
fn linfas_traits_give_this_crates_results() {
    let x = blobs(1, 200, 2);
    let (fit, labels) = params().fit_predict(&x).unwrap();
    let mut column_major = Array2::zeros((200, 2).f());
    column_major.assign(&old(&x));
    for records in [old(&x), column_major] {
        let data = DatasetBase::from(records);
        // Both the unchecked parameters (linfa checks them by ParamGuard) and the checked ones.
        for (got, got_labels) in [fit_and_predict(&params(), &data), fit_and_predict(&params().check().unwrap(), &data)]
        {
            assert_eq!((&got.mixture, got_labels.to_vec()), (&fit.mixture, labels.clone()));
        }
        assert_eq!(Predict::predict(&fit.mixture.on(Device::Cpu), &data).to_vec(), labels);
        assert_eq!(params().fit(&data).unwrap().mixture, fit.mixture);
    }
}

#[test]
fn variational_inference_has_linfas_traits_too() {
    let x = blobs(1, 200, 2);
    let params = BayesianGaussianMixtureParams::new(4).device(Device::Cpu);
    let (fit, labels) = params.fit_predict(&x).unwrap();
    let data = DatasetBase::from(old(&x));
    for (got, got_labels) in [fit_and_predict(&params, &data), fit_and_predict(&params.clone().check().unwrap(), &data)]
    {
        assert_eq!((&got.mixture, got_labels.to_vec()), (&fit.mixture, labels.clone()));
    }
    assert_eq!(Predict::predict(&fit.mixture.on(Device::Cpu), &data).to_vec(), labels);
    let guard = ParamGuard::check_ref(&params.mean_precision_prior(0.0)).map(drop);
    assert!(matches!(guard, Err(Error::BadParameter { name: "mean_precision_prior", .. })));
    let bad = DatasetBase::from(Array2::<f64>::from_elem((5, 1), f64::NAN));
    let checked = BayesianGaussianMixtureParams::new(1).check().unwrap();
    let error: Result<Fit<VariationalMixture>, Error> = linfa::traits::Fit::fit(&checked, &bad);
    assert!(matches!(error, Err(Error::NonFiniteSample { row: 0, column: 0, .. })));
}

#[test]
fn weights_of_the_data_set_count() {
    let x = blobs(2, 90, 2);
    let weights: Vec<f32> = (0..90).map(|i| (i % 3) as f32).collect();
    let wide: ndarray::Array1<f64> = weights.iter().map(|&w| f64::from(w)).collect();
    let samples = Samples::from_f64(x.view()).unwrap().with_weights(wide.view()).unwrap();
    let mut data = load(Device::Cpu, samples, &LoadOptions::new()).unwrap();
    assert_eq!(data.total_weight(), 90.0);
    let expected = params().fit(data.as_mut()).unwrap();
    let dataset = DatasetBase::from(old(&x)).with_weights(weights.into());
    assert_eq!(params().fit(&dataset).unwrap().mixture, expected.mixture);
}

#[test]
fn errors_are_passed_on() {
    let data = DatasetBase::from(Array2::<f64>::from_elem((5, 1), f64::NAN));
    let guard = ParamGuard::check_ref(&params().tol(-1.0)).map(drop);
    assert!(matches!(guard, Err(Error::BadParameter { name: "tol", .. })));
    assert!(matches!(params().fit(&data), Err(Error::NonFiniteSample { row: 0, column: 0, .. })));
    let checked = params().check().unwrap();
    let error: Result<Fit, Error> = linfa::traits::Fit::fit(&checked, &data);
    assert!(matches!(error, Err(Error::NonFiniteSample { row: 0, column: 0, .. })));
}
