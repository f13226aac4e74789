//! Each kind of bad input gives an error that says what is wrong.
use crate::common::Nothing;
use gmm_host::{CovarianceType, Covariances, Mixture, Samples};
use gmm_mcmc::{DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings, Start};
use ndarray::{Array2, array};

fn summary() -> DataSummary {
    let x = Array2::from_shape_fn((6, 2), |(i, j)| (i * (j + 1)) as f64);
    DataSummary::new(&Samples::from_f64(x.view()).unwrap())
}

fn with_prior(covariance_type: CovarianceType, json: &str) -> String {
    let prior = match Prior::from_json(json) {
        Ok(prior) => prior,
        Err(e) => return e.to_string(),
    };
    PosteriorModel::new(3, covariance_type, &prior, None, &summary()).unwrap_err().to_string()
}

#[test]
fn priors() {
    let scale = |s: &str| format!(r#"{{"scales": {{"half_normal": {{"scale": {s}}}}}}}"#);
    let diag = CovarianceType::Diag;
    for (json, words) in [
        (scale("0"), &["scale of the scales, component 0, column 0", "is 0", "positive"][..]),
        (scale("[1, -2]"), &["component 0, column 1", "is -2"]),
        (scale("[[1, 1], [1, 1], [1, 0]]"), &["component 2, column 1", "is 0"]),
        (scale("[1, 2, 3]"), &["3 values", "D = 2", "3 × 2"]),
        (scale("[[1, 1], [1, 1]]"), &["rows of [2, 2]"]),
        (scale("1e200"), &["positive finite"]),
        (scale("\"wide\""), &["prior is not valid", "line 1"]),
        (r#"{"weights": {"dirichlet": {"concentration": [1, 2]}}}"#.into(), &["concentration", "2 values", "K = 3"]),
        (r#"{"weights": {"dirichlet": {"concentration": -1}}}"#.into(), &["concentration", "is -1"]),
        (r#"{"means": {"normal": {"scale": 0}}}"#.into(), &["scale of the means", "is 0"]),
        (r#"{"means": {"normal": {"location": [1]}}}"#.into(), &["location of the means", "1 values"]),
        (r#"{"means": {"scaled_normal": {"precision": 0}}}"#.into(), &["precision of the means", "is 0"]),
        (r#"{"scales": {"inverse_gamma": {"shape": 0, "scale": 1}}}"#.into(), &["shape of the scales", "is 0"]),
        (r#"{"scales": {"inverse_gamma": {"shape": 1}}}"#.into(), &["missing field `scale`"]),
        (r#"{"correlations": {"lkj": {"shape": -0.5}}}"#.into(), &["correlations", "is -0.5"]),
        (r#"{"weigths": {}}"#.into(), &["unknown field `weigths`"]),
        (r#"{"scales": {"half_normal": {"scale": 1, "shape": 2}}}"#.into(), &["unknown field `shape`"]),
        (r#"{"scales": {"cauchy": {"scale": 1}}}"#.into(), &["unknown variant `cauchy`"]),
        ("{".into(), &["prior is not valid"]),
    ] {
        let message = with_prior(diag, &json);
        for word in words {
            assert!(message.contains(word), "{json}: {message} (wants {word})");
        }
    }
    let message = with_prior(CovarianceType::Full, r#"{"means": {"scaled_normal": {"precision": 1}}}"#);
    assert!(message.contains("scaled_normal is for diag and spherical"), "{message}");
    let message = with_prior(CovarianceType::Spherical, &scale("[1, 2]"));
    assert!(message.contains("2 values") && message.contains("K = 3"), "{message}");
}

#[test]
fn a_constant_column_has_no_default_scale() {
    // The mean of 80 ones, or tenths, is rounded.
    for (n, constant) in [(6, 0.0), (80, 1.0), (80, 0.1)] {
        let x = Array2::from_shape_fn((n, 2), |(i, j)| constant + (i * j) as f64);
        let summary = DataSummary::new(&Samples::from_f64(x.view()).unwrap());
        let message =
            PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), None, &summary).unwrap_err().to_string();
        assert!(message.contains("constant column") && message.contains("column 0"), "{message}");
    }
}

#[test]
fn models() {
    let new = |k, order| PosteriorModel::new(k, CovarianceType::Diag, &Prior::default(), order, &summary());
    assert!(new(0, None).unwrap_err().to_string().contains("at least 1"));
    let message = new(7, None).unwrap_err().to_string();
    assert!(message.contains("7 components over 6 samples"), "{message}");
    assert!(new(2, Some(2)).unwrap_err().to_string().contains("columns 0 to 1"));
    let own = Prior::from_json(r#"{"means": {"normal": {"location": [[0, 0], [1, 1]]}}}"#).unwrap();
    let message = PosteriorModel::new(2, CovarianceType::Diag, &own, Some(0), &summary()).unwrap_err().to_string();
    assert!(message.contains("priors of their own"), "{message}");
    let tied = PosteriorModel::new(2, CovarianceType::Tied, &Prior::default(), None, &summary());
    assert!(tied.unwrap_err().to_string().contains("tied"));
}

#[test]
fn starts() {
    let model = PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), Some(0), &summary()).unwrap();
    let refuse = |m: Mixture| Start::around(&model, &m, &Settings::default()).unwrap_err().to_string();
    let ones = |k| Covariances::Diag(Array2::ones((k, 2)));
    let mixture = |w: ndarray::Array1<f64>, m: Array2<f64>, c| Mixture::new(w, m, c).unwrap();
    let three = Array2::from_shape_fn((3, 2), |(i, _)| i as f64);
    let message = refuse(mixture(array![0.5, 0.25, 0.25], three, ones(3)));
    assert!(message.contains("(3, 2)") && message.contains("(2, 2)"), "{message}");
    let means = array![[0.0, 1.0], [1.0, 0.0]];
    let spherical = Covariances::Spherical(array![1.0, 1.0]);
    let message = refuse(mixture(array![0.5, 0.5], means.clone(), spherical));
    assert!(message.contains("spherical") && message.contains("diag"), "{message}");
    let message = refuse(mixture(array![1.0, 0.0], means, ones(2)));
    assert!(message.contains("component 1") && message.contains("no weight"), "{message}");
}

#[test]
fn settings() {
    let refuse = |s: Settings| s.check(10).unwrap_err().to_string();
    let good = Settings::default();
    good.check(10).unwrap();
    assert!(refuse(good.clone().chains(0)).contains("chains"));
    assert!(refuse(good.clone().draws(0)).contains("draws"));
    assert!(refuse(good.clone().thin(0)).contains("thin"));
    assert!(refuse(good.clone().warmup(3)).contains("at least 20"));
    let ensemble = good.clone().sampler(Sampler::ENSEMBLE).chains(20);
    ensemble.check(10).unwrap();
    for chains in [10, 21] {
        assert!(refuse(ensemble.clone().chains(chains)).contains("even number above the 10"));
    }
    assert!(refuse(ensemble.sampler(Sampler::ensemble(1.0))).contains("stretch"));
    let nuts = |target_accept, max_depth| Sampler::nuts(target_accept, max_depth);
    assert!(refuse(good.clone().sampler(nuts(1.0, 10))).contains("acceptance"));
    assert!(refuse(good.clone().sampler(nuts(f64::NAN, 10))).contains("acceptance"));
    assert!(refuse(good.sampler(nuts(0.8, 0))).contains("depth"));
}

#[test]
fn an_evaluator_of_other_data() {
    let model = PosteriorModel::new(2, CovarianceType::Diag, &Prior::default(), None, &summary()).unwrap();
    let mut other = Nothing { n: 7, d: 2 };
    let message = Posterior::new(&model, &mut other).err().unwrap().to_string();
    assert!(message.contains("[6, 2]") && message.contains("[7, 2]"), "{message}");
}
