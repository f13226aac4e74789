//! Priors of a fit by EM, and adapted background models.
use crate::common::*;
use gmm_host::{
    Adaptation, ConjugatePrior, CovarianceModel, CovarianceType, Covariances, Evaluator, Fit, Freeze,
    GaussianMixtureParams, MapPrior, Mixture, NoiseComponent, Predict, Statistics,
};
use ndarray::{Array1, Array2, Axis, array};

fn params(k: usize, t: impl Into<CovarianceModel>) -> GaussianMixtureParams {
    GaussianMixtureParams::new(k).covariance_type(t).reg_covar(0.0).tol(0.0)
}

fn fit(params: GaussianMixtureParams, x: &Array2<f64>) -> Fit {
    params.fit(&mut reference(x.view()) as &mut dyn Evaluator).unwrap()
}

fn strong() -> MapPrior {
    MapPrior { weight_concentration: 3.0, mean_precision: 5.0, degrees_of_freedom: Some(9.5), ..MapPrior::default() }
}

/// Returns the prior of `strong`'s numbers, with Ψ in the type's shape.
fn known(t: CovarianceType) -> ConjugatePrior {
    let psi = match t {
        CovarianceType::Full => Covariances::Full(array![[2.0, 0.5], [0.5, 1.0]].insert_axis(Axis(0))),
        CovarianceType::Tied => Covariances::Tied(array![[2.0, 0.5], [0.5, 1.0]]),
        CovarianceType::Diag => Covariances::Diag(array![[2.0, 1.0]]),
        CovarianceType::Spherical => Covariances::Spherical(array![1.5]),
    };
    ConjugatePrior::new(3.0, 5.0, array![[0.5, -1.0], [1.0, 2.0]], 9.5, psi).unwrap()
}

#[test]
fn the_posterior_never_falls_and_is_that_of_the_formulas() {
    let x = blobs(51, 60, 2);
    for t in CovarianceModel::ALL.into_iter().filter(|model| ConjugatePrior::check_model(*model).is_ok()) {
        for (prior, freeze) in [
            (MapPrior::default(), Freeze::default()),
            (strong(), Freeze::default()),
            (MapPrior { mean_precision: 0.0, ..strong() }, Freeze::default()),
            (strong(), "means=1,weights=0".parse().unwrap()),
            (strong(), "weights=equal,means".parse().unwrap()),
        ] {
            let start = mixture(52, t.form(), 3, 2, 3.0);
            let alone = params(3, t).start(start).prior(prior.clone()).freeze(freeze.clone()).max_iter(40);
            for params in [alone.clone(), alone.noise(NoiseComponent::default())] {
                let found = fit(params, &x);
                // Rounding of a mean over 60 samples.
                assert_rises(&format!("{t} {freeze} {prior:?}"), &found.lower_bounds, |_| 1e-12);
                assert!(found.lower_bound() > found.lower_bounds[0] + 0.01 && found.retained.is_empty());
            }
        }
    }
}

#[test]
fn an_m_step_is_the_mode_of_the_posterior() {
    // Each sample belongs to one of two components, so the M-step is the mode of the posterior.
    let x = normal(53, 7, 2, 0.0);
    let r = of_classes(7, 2, |i| usize::from(i >= 3));
    for t in CovarianceType::ALL {
        let (prior, start) = (known(t), mixture(54, t, 2, 2, 0.0));
        let statistics = Statistics::from_responsibilities(x.view(), r.view(), t).unwrap();
        let density = |m: &Mixture| {
            let of = |i: usize, k: usize| {
                let one =
                    Mixture::new(array![1.0], m.means().select(Axis(0), &[k]), m.covariances().select(&[k])).unwrap();
                m.weights()[k].ln() + one.score_samples(&mut reference(x.select(Axis(0), &[i]).view())).unwrap()[0]
            };
            prior.log_density(m) + (0..7).map(|i| of(i, usize::from(i >= 3))).sum::<f64>()
        };
        let mode = statistics.into_update(&start, 0.0, &Freeze::default(), Some(&prior)).unwrap().mixture;
        let best = density(&mode);
        for seed in 0..20 {
            let step = normal(60 + seed, 2, 8, 0.0) * 1e-3;
            let weights = array![mode.weights()[0] + step[[0, 0]], mode.weights()[1] - step[[0, 0]]];
            let means = &mode.means() + &step.slice(ndarray::s![.., 1..3]);
            let covariances = match mode.covariances() {
                Covariances::Full(v) => Covariances::Full(v * (1.0 + step[[0, 3]])),
                Covariances::Tied(v) => Covariances::Tied(v * (1.0 + step[[0, 3]])),
                Covariances::Diag(v) => Covariances::Diag(v * (step.slice(ndarray::s![.., 4..6]).to_owned() + 1.0)),
                Covariances::Spherical(v) => Covariances::Spherical(v * (step.column(6).to_owned() + 1.0)),
            };
            let other = density(&Mixture::new(weights, means, covariances).unwrap());
            assert!(other < best, "{t}: {other} {best}");
        }
    }
}

#[test]
fn the_defaults_are_those_of_fraley_and_raftery() {
    let x = normal(55, 40, 2, 3.0);
    let mean = x.mean_axis(Axis(0)).unwrap();
    let centred = &x - &mean;
    let scatter = centred.t().dot(&centred);
    let found = fit(params(1, CovarianceType::Full).prior(MapPrior::default()).max_iter(1), &x);
    // κ = 0.01 at the samples' mean, ν = D + 2, Ψ the covariance of the samples: the divisor is N + ν + D + 2.
    let want = (&scatter + &scatter / 39.0) / 48.0;
    let Covariances::Full(got) = found.mixture.covariances() else { panic!("full") };
    assert_all_close("covariance", got, &want, 1e-12, 1.0);
    assert_all_close("mean", found.mixture.means(), &mean, 1e-12, 1.0);
    // For three components Ψ is smaller by 3^(2/D).
    let of = |k: usize, psi: f64| {
        let prior = MapPrior {
            covariance: Some(Covariances::Full((&scatter / 39.0 / psi).insert_axis(Axis(0)))),
            ..MapPrior::default()
        };
        fit(params(k, CovarianceType::Full).prior(prior).max_iter(3), &x).mixture
    };
    let got = fit(params(3, CovarianceType::Full).prior(MapPrior::default()).max_iter(3), &x).mixture;
    assert_all_close("Ψ/3", got.covariances().iter(), of(3, 3.0).covariances().iter(), 1e-10, 1.0);
}

#[test]
fn no_component_collapses_under_a_prior() {
    // Four equal rows, on which a component would collapse.
    let mut x = blobs(56, 40, 2);
    for i in 0..4 {
        x.row_mut(i).assign(&array![30.0, 30.0]);
    }
    let mut means = mixture(57, CovarianceType::Full, 3, 2, 3.0).means().to_owned();
    means.row_mut(0).assign(&array![30.0, 30.0]);
    for t in CovarianceType::ALL.into_iter().filter(|t| *t != CovarianceType::Tied) {
        let p = params(3, t).means_init(means.clone()).max_iter(50);
        let without = p.clone().fit(&mut reference(x.view()) as &mut dyn Evaluator);
        assert!(without.is_err() || !without.unwrap().retained.is_empty(), "{t}");
        let found = fit(p.prior(MapPrior::default()), &x);
        let smallest = (0..3).flat_map(|c| (0..2).map(move |j| (c, j))).map(|(c, j)| found.mixture.variance(c, j));
        assert!(found.retained.is_empty() && smallest.fold(f64::INFINITY, f64::min) > 0.1, "{t}");
    }
}

#[test]
fn a_prior_out_of_range_is_refused() {
    let x = blobs(58, 20, 2);
    let message = |prior: MapPrior| params(2, CovarianceType::Diag).prior(prior).fit(&x).unwrap_err().to_string();
    let default = MapPrior::default;
    assert!(message(MapPrior { weight_concentration: 0.5, ..default() }).contains("at least 1"));
    assert!(message(MapPrior { mean_precision: -1.0, ..default() }).contains("mean_precision"));
    assert!(message(MapPrior { degrees_of_freedom: Some(-20.0), ..default() }).contains("degrees_of_freedom"));
    assert!(message(MapPrior { mean: Some(Array2::zeros((3, 2))), ..default() }).contains("prior's means"));
    let skew = Covariances::Full(array![[[1.0, 0.5], [0.0, 1.0]]]);
    let of_skew = params(2, CovarianceType::Full).prior(MapPrior { covariance: Some(skew), ..default() }).fit(&x);
    assert!(of_skew.unwrap_err().to_string().contains("symmetric"));
    assert!("spread=2".parse::<MapPrior>().unwrap_err().to_string().contains("`spread=2`"));
}

#[test]
fn adapted_parameters_are_those_of_reynolds() {
    let x = blobs(61, 80, 2);
    let r = 16.0;
    for t in CovarianceType::ALL {
        let background = mixture(62, t, 3, 2, 3.0);
        let adapted = |parameters: &str| {
            let adaptation = Adaptation::of(parameters, r).unwrap();
            background.adapt(&mut reference(x.view()) as &mut dyn Evaluator, &adaptation).unwrap()
        };
        let all = adapted("weights,means,covariances");
        let p = background.predict_proba(&mut reference(x.view()) as &mut dyn Evaluator).unwrap();
        let n: Array1<f64> = p.sum_axis(Axis(0));
        let mut weights = Array1::zeros(3);
        let mut pooled = (Array2::<f64>::zeros((2, 2)), 0.0);
        for k in 0..3 {
            let alpha = n[k] / (n[k] + r);
            weights[k] = alpha * n[k] / 80.0 + (1.0 - alpha) * background.weights()[k];
            let (mu, w) = (background.means().row(k).to_owned(), p.column(k).insert_axis(Axis(1)));
            let first = (&x * &w).sum_axis(Axis(0)) / n[k];
            let mean = &first * alpha + &mu * (1.0 - alpha);
            assert_all_close("mean", all.means().row(k), &mean, 1e-10, 1.0);
            // E(xxᵀ), whose diagonal is E(x²).
            let outer = |v: &Array1<f64>| v.view().insert_axis(Axis(1)).dot(&v.view().insert_axis(Axis(0)));
            let second = (&x * &w).t().dot(&x) / n[k];
            let covariance = second * alpha + (background.matrix(k) + outer(&mu)) * (1.0 - alpha) - outer(&mean);
            pooled.0 = pooled.0 + &covariance * (n[k] + r);
            pooled.1 += n[k] + r;
            let got = all.matrix(k);
            match t {
                CovarianceType::Full => assert_all_close("full", &got, &covariance, 1e-10, 1.0),
                CovarianceType::Diag => assert_all_close("diag", got.diag(), covariance.diag(), 1e-10, 1.0),
                CovarianceType::Spherical => {
                    assert_close("mean", got[[0, 0]], covariance.diag().sum() / 2.0, 1e-10, 1.0)
                }
                CovarianceType::Tied => {}
            }
        }
        if t == CovarianceType::Tied {
            assert_all_close("tied", &all.matrix(0), &(pooled.0 / pooled.1), 1e-10, 1.0);
        }
        let gamma = 1.0 / weights.sum();
        assert_all_close("weights", all.weights(), weights.iter().map(|w| w * gamma), 1e-10, 1.0);
        let means = adapted("means");
        assert!(means.weights() == background.weights() && means.covariances() == background.covariances());
        assert_eq!(means.supervector().to_vec(), all.means().iter().copied().collect::<Vec<_>>());
        let alone = adapted("covariances");
        assert!(alone.means() == background.means() && alone.covariances() != background.covariances());
    }
    let shared = mixture(62, CovarianceType::Diag, 1, 2, 3.0).with_covariance_model(CovarianceModel::EEI).unwrap();
    let adapted = shared.adapt(&x, &Adaptation::default()).unwrap();
    assert_eq!(adapted.covariance_model(), CovarianceModel::EEI);
    assert!(Adaptation::of("precisions", 16.0).unwrap_err().to_string().contains("`precisions`"));
    assert!(Adaptation::of("means", 0.0).unwrap_err().to_string().contains("relevance"));
}
