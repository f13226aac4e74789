//! Fits and predictions on arrays in one call, and evaluators that share their samples.
use crate::common::{BACKENDS, blobs, mixture};
use gmm_host::{
    CovarianceType, DataSource, Device, Error, Evaluator, Fit, GaussianMixtureParams, LoadOptions, Mixture, Predict,
    Samples, Weights, load, load_chunks,
};
use ndarray::{Array1, Array2, ShapeBuilder, array, s};

fn params() -> GaussianMixtureParams {
    GaussianMixtureParams::new(3).device(Device::Cpu)
}

fn fit(data: impl DataSource) -> Fit {
    params().fit(data).unwrap()
}

/// Owned, shared and borrowed arrays, views in any order, float32, float64 and samples give a resident evaluator's fit.
#[test]
fn all_kinds_of_arrays_fit_as_the_evaluator() {
    let x = blobs(1, 300, 2);
    let single = x.mapv(|v| v as f32);
    let weights = Array1::from_shape_fn(300, |i| (i % 3) as f64);
    let mut column_major = Array2::zeros((300, 2).f());
    column_major.assign(&x);
    let mut wider = Array2::zeros((300, 4));
    wider.slice_mut(s![.., ..;2]).assign(&x);

    let samples = Samples::from_f64(x.view()).unwrap();
    let mut evaluator = load(Device::Cpu, samples.clone(), &LoadOptions::new()).unwrap();
    let expected = fit(evaluator.as_mut());
    for fit in [
        fit(&x),
        fit(x.view()),
        fit(&x.to_shared()),
        fit(&column_major),
        fit(wider.slice(s![.., ..;2])),
        fit(&samples),
        fit(samples.clone()),
        params().check().unwrap().fit(&x).unwrap(),
    ] {
        assert_eq!((&fit.mixture, &fit.lower_bounds), (&expected.mixture, &expected.lower_bounds));
    }
    let samples32 = Samples::from_f32(single.view()).unwrap();
    let expected32 = fit(load(Device::Cpu, samples32, &LoadOptions::new()).unwrap().as_mut());
    assert_eq!(fit(&single).mixture, expected32.mixture);
    assert_eq!(fit(single.view()).mixture, expected32.mixture);

    let weighted = samples.with_weights(weights.view()).unwrap();
    let expected = fit(load(Device::Cpu, weighted.clone(), &LoadOptions::new()).unwrap().as_mut());
    assert_eq!(fit(weighted).mixture, expected.mixture);
}

/// On every device but GPUs, a mixture's methods give the bits of the device's evaluator.
#[test]
fn a_mixture_evaluates_arrays_on_any_device() {
    let x = blobs(2, 500, 3);
    let m = mixture(3, CovarianceType::Full, 4, 3, 3.0);
    for device in [Device::Auto, Device::Cpu, Device::Reference] {
        let mut e = load(device, Samples::from_f64(x.view()).unwrap(), &LoadOptions::new()).unwrap();
        let on = m.on(device);
        assert_eq!(on.predict(&x).unwrap(), e.predict(&m).unwrap());
        assert_eq!(on.predict_proba(&x).unwrap(), e.predict_proba(&m).unwrap());
        assert_eq!(on.score_samples(&x).unwrap(), e.score_samples(&m).unwrap());
        assert_eq!(on.score(&x).unwrap(), e.log_likelihood(&m).unwrap() / 500.0);
        assert_eq!(on.bic(&x).unwrap(), m.bic(e.as_mut()).unwrap());
        assert_eq!(on.aic(&x).unwrap(), m.aic(e.as_mut()).unwrap());
        // scikit-learn's definitions.
        let (total, p) = (e.log_likelihood(&m).unwrap(), m.n_parameters() as f64);
        assert_eq!(on.bic(&x).unwrap(), p * 500f64.ln() - 2.0 * total);
        assert_eq!(on.aic(&x).unwrap(), 2.0 * p - 2.0 * total);
    }
    assert_eq!(m.predict(&x).unwrap(), m.on(Device::Auto).predict(&x).unwrap());
    let (fit, labels) = params().fit_predict(&x).unwrap();
    assert_eq!(labels, fit.mixture.on(Device::Cpu).predict(&x).unwrap());
}

#[test]
fn errors_say_what_is_wrong_with_an_array() {
    let m = mixture(3, CovarianceType::Diag, 2, 2, 0.0);
    let bad = array![[0.0, 1.0], [f64::NAN, 2.0]];
    assert!(matches!(m.predict(&bad), Err(Error::NonFiniteSample { row: 1, column: 0, .. })));
    assert!(matches!(params().fit(&bad), Err(Error::NonFiniteSample { row: 1, column: 0, .. })));
    assert!(matches!(m.score(&Array2::<f32>::zeros((0, 2))), Err(Error::EmptyData { rows: 0, columns: 2 })));
    assert!(matches!(m.score_samples(&array![[0.0f32]]), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(params().tol(f64::NAN).fit(&bad), Err(Error::BadParameter { name: "tol", .. })));
    assert!(matches!(params().fit(&array![[1.0], [2.0]]), Err(Error::TooFewSamples { n_samples: 2, n_components: 3 })));
    assert!(matches!(m.on(Device::Cuda(4711)).predict(&array![[0.0, 1.0]]), Err(Error::NoCudaDevice { .. })));
}

#[test]
fn threads_are_an_option() {
    let x = blobs(4, 1000, 2);
    let describe = |device, options: LoadOptions| {
        load(device, Samples::from_f64(x.view()).unwrap(), &options).map(|e| e.describe().device)
    };
    for device in [Device::Cpu, Device::Auto] {
        for threads in [1, 3] {
            let text = describe(device, LoadOptions::new().threads(threads)).unwrap();
            assert!(text.contains(&format!("{threads} thread")), "{text}");
        }
        assert!(matches!(describe(device, LoadOptions::new().threads(0)), Err(Error::Threads { n_threads: 0, .. })));
    }
    let text = describe(Device::Cpu, LoadOptions::new().threads(1).kernel("portable".to_string())).unwrap();
    assert!(text.contains("1 thread,") && text.contains("portable"), "{text}");
}

/// Returns all results of an evaluator for some mixtures, as text with every digit.
fn results(e: &mut dyn Evaluator, mixtures: &[Mixture]) -> String {
    let mut text = format!("{:?}", e.log_likelihood_batch(mixtures).unwrap());
    for m in mixtures {
        let scores = e.score_samples(m).unwrap().to_vec();
        let (total, labels) = (e.log_likelihood(m).unwrap(), e.predict(m).unwrap());
        text += &format!("{total:?} {scores:?} {labels:?} {:?}", e.statistics(m).unwrap());
    }
    text
}

/// Four threads that share one evaluator's samples at the same time give its bits: in float32, in float64, and if one
/// of the mixtures needs float64 for float32 samples.
#[test]
fn four_threads_evaluate_the_same_samples() {
    let x = blobs(5, 20_000, 3);
    let mut mixtures: Vec<Mixture> = CovarianceType::ALL.into_iter().map(|t| mixture(6, t, 3, 3, 3.0)).collect();
    let narrow = gmm_host::Covariances::Spherical(array![1e-14, 1.0]);
    mixtures.push(Mixture::new(array![0.5, 0.5], array![[50.0, 50.0, 50.0], [0.0; 3]], narrow).unwrap());
    let auto = crate::common::Backend {
        name: "auto",
        load: |samples| {
            let mut auto = load(Device::Auto, samples, &LoadOptions::new()).unwrap();
            auto.sampling().unwrap().settle();
            auto
        },
        float32: true,
    };
    for backend in BACKENDS.iter().chain([&auto]) {
        let mut data = backend.evaluator(x.view(), None);
        let expected = results(data.as_mut(), &mixtures);
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let mut shared = data.share().unwrap();
                    let (mixtures, barrier) = (&mixtures, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        (0..3).map(|_| results(shared.as_mut(), mixtures)).collect::<Vec<_>>()
                    })
                })
                .collect();
            for thread in threads {
                for got in thread.join().unwrap() {
                    assert!(got == expected, "{}: a thread has other results", backend.name);
                }
            }
        });
    }
}

/// Samples beyond the allowed memory are evaluated in chunks, with the bits of the caller's; `auto` is then the CPU.
#[test]
fn memory_that_is_allowed_decides_on_chunks() {
    let x = blobs(8, 300, 2);
    let w = Array1::from_shape_fn(300, |i| if i < 100 { 0.0 } else { 1.5 });
    let samples = || Samples::from_f64(x.view()).unwrap().with_weights(w.view()).unwrap();
    let m = mixture(9, CovarianceType::Full, 3, 2, 5.0);
    // 300 samples of 16 bytes; a chunk has a third of the memory.
    let (fits, less) = (LoadOptions::new().memory(4800), LoadOptions::new().memory(4799));
    let mut whole = load(Device::Cpu, samples(), &fits).unwrap();
    let mut chunks = load(Device::Auto, samples(), &less).unwrap();
    let mut by_hand = load_chunks(
        Device::Cpu,
        (300, 2),
        99,
        |rows| Samples::from_f64(x.slice(s![rows.clone(), ..]))?.weighted(Weights::new(w.view(), 300)?.rows(rows)),
        &LoadOptions::new(),
    )
    .unwrap()
    .with_total_weight(300.0);
    let total = chunks.log_likelihood(&m).unwrap();
    assert_eq!(total, by_hand.log_likelihood(&m).unwrap());
    approx::assert_relative_eq!(total, whole.log_likelihood(&m).unwrap(), max_relative = 1e-13);
    assert_eq!((chunks.total_weight(), by_hand.n_chunks()), (300.0, 4));
    let device = chunks.describe().device;
    assert!(device.starts_with("cpu") && device.ends_with("in 4 chunks"), "{device}");
    assert!(!whole.describe().device.contains("chunks"));
}

/// Data read again in each pass cannot be shared; the error says what to do.
#[test]
fn chunks_are_not_shared() {
    let x = blobs(7, 50, 2);
    let chunks = gmm_host::ChunkedEvaluator::of_samples(Samples::from_f64(x.view()).unwrap(), 20, |chunk| {
        load(Device::Cpu, chunk, &LoadOptions::new())
    })
    .unwrap();
    let Err(error) = chunks.share() else { panic!("chunks are shared") };
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("each thread"), "{error}");
}
