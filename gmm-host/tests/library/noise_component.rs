//! The component for noise, against R's mclust 6.0.0 (R 4.2.2) and against the formulas.
use crate::common::noise_component::assert_noise_agrees;
use crate::common::{BACKENDS, assert_rises, blobs, go, reference};
use crate::models::iris;
use gmm_host::{
    CovarianceModel, Covariances, CpuEvaluator, Criterion, Evaluator, GaussianMixtureParams, InitParams, Me,
    NoiseComponent, Predict, Samples, Standardization, Statistics, grow, me, merge_down, noise_of,
};
use ndarray::{Array2, Array3, Axis, array};

/// Of mclust, from the species but rows 0, 9, 41, 99 and 118, which begin as noise: the last log-likelihood, the
/// iterations, the weight of the noise, and the number of parameters.
const OF_IRIS_WITH_NOISE: [(&str, f64, usize, f64, usize); 14] = [
    ("EII", -333.745687982919, 18, 0.294855788065373, 17),
    ("VII", -322.66118336025, 19, 0.280173377105777, 19),
    ("EEI", -314.660730792451, 36, 0.2742024123008, 20),
    ("VEI", -304.533806081773, 14, 0.223135511805318, 22),
    ("EVI", -295.679425547134, 16, 0.218403421089617, 26),
    ("VVI", -283.359002917208, 22, 0.186122547526013, 28),
    ("EEE", -242.359443150478, 17, 0.157519209745257, 26),
    ("VEE", -230.88835956702, 15, 0.0840013207464496, 28),
    ("EVE", -223.948716574313, 17, 0.12925089869171, 32),
    ("VVE", -212.260705293551, 11, 0.0340841201258384, 34),
    ("EEV", -205.845751312179, 12, 0.0490427744520259, 38),
    ("VEV", -186.426812234149, 17, 0.0155502471879729, 40),
    ("EVV", -200.489949767894, 18, 0.0654115221084398, 44),
    ("VVV", -180.191988326486, 45, 0.000217480456796731, 46),
];

#[test]
fn noise_is_that_of_mclust() {
    let (x, species) = iris();
    let noise_rows = [0, 9, 41, 99, 118];
    let z = Array2::from_shape_fn((150, 3), |(i, c)| f64::from(u8::from(species[i] == c && !noise_rows.contains(&i))));
    let mut evaluator = CpuEvaluator::of_this_thread(Samples::from_f64(x.view()).unwrap());
    let noise = noise_of(&mut evaluator).unwrap();
    assert!((noise.volume - 27.2411996222705).abs() < 1e-9, "{}", noise.volume);
    for (name, likelihood, iterations, weight, n_parameters) in OF_IRIS_WITH_NOISE {
        let model: CovarianceModel = name.parse().unwrap();
        let start = Statistics::from_responsibilities(x.view(), z.view(), model.form()).unwrap();
        let start = start.to_mixture_of(model, 0.0, None).unwrap();
        let weights = start.weights().iter().map(|w| w * 145.0 / 150.0).chain([5.0 / 150.0]).collect();
        let start = start.with_noise(weights, noise.clone()).unwrap();
        let Me { mixture, log_likelihood, n_iter, .. } = me(&mut evaluator, start, None, 1e-5, 100).unwrap();
        // Both have rounded some hundred terms; where an M-step takes turns, they end a rounding apart.
        assert!((log_likelihood - likelihood).abs() < 1e-8, "{name}: {log_likelihood} where mclust has {likelihood}");
        let found = mixture.weights()[3];
        assert!((found - weight).abs() < 1e-8, "{name}: {found} where mclust has {weight}");
        assert_eq!((n_iter, mixture.n_parameters()), (iterations, n_parameters), "{name}");
        assert_eq!(mixture.without_noise().covariance_type(), model.form(), "{name}");
    }
}

#[test]
fn evaluators_know_noise() {
    for backend in BACKENDS {
        for (n, k, d) in [(1, 1, 1), (133, 3, 2), (60, 3, 13), (20, 3, 33)] {
            assert_noise_agrees(backend, &CovarianceModel::ALL, n, k, d);
        }
    }
}

/// Returns 900 rows of three blobs, then 100 rows between −40 and 60.
fn with_outliers() -> Array2<f64> {
    let mut x = blobs(3, 1000, 2);
    for (i, mut row) in x.outer_iter_mut().enumerate().skip(900) {
        // Two irrational steps fill a square evenly.
        row[0] = (i as f64 * 0.754_877_666_246_692_7).fract() * 100.0 - 40.0;
        row[1] = (i as f64 * 0.569_840_290_998_053_2).fract() * 100.0 - 40.0;
    }
    x
}

/// A tenth of the rows is far outside; with noise the parameters are those of the other rows alone.
#[test]
fn noise_takes_in_outliers() {
    let x = with_outliers();
    let params = |model| GaussianMixtureParams::new(3).covariance_type(model).tol(1e-8).max_iter(500);
    let sorted = |mixture: &gmm_host::Mixture| mixture.sorted(&gmm_host::Order::Mean(0)).unwrap();
    for model in CovarianceModel::ALL {
        let alone = sorted(&params(model).fit(&x.slice(ndarray::s![..900, ..]).to_owned()).unwrap().mixture);
        let fit = params(model).noise(NoiseComponent::default()).fit(&x).unwrap();
        // VVE's M-step, as mclust's, makes another sum least; the others never lose likelihood.
        let slack = if model == CovarianceModel::VVE { 1e-4 } else { 1e-10 };
        assert_rises(model.name(), &fit.lower_bounds, |_| slack);
        let found = sorted(&fit.mixture);
        let far = (&alone.means() - &found.without_noise().means()).iter().fold(0.0f64, |a, v| a.max(v.abs()));
        // The outliers near the blobs belong to them: some ten of 300 rows.
        assert!(far < 0.15, "{model}: {far}");
        assert!((found.weights()[3] - 0.1).abs() < 0.02, "{model}: {}", found.weights());
        let labels = found.predict(&x).unwrap();
        let noise = |rows: &[usize]| rows.iter().filter(|label| **label == 3).count();
        assert!(noise(&labels[..900]) < 12 && noise(&labels[900..]) > 85, "{model}");
    }
}

#[test]
fn noise_begins_at_rows_or_at_a_share() {
    let x = with_outliers();
    let params = GaussianMixtureParams::new(3).init_params(InitParams::Hierarchical).max_iter(0);
    let rows: Vec<usize> = (900..1000).collect();
    let by_rows = NoiseComponent { rows: Some(rows), ..NoiseComponent::default() };
    let start = params.clone().noise(by_rows.clone()).fit(&x).unwrap().mixture;
    let alone = params.clone().fit(&x.slice(ndarray::s![..900, ..]).to_owned()).unwrap().mixture;
    assert_eq!(start.without_noise().means(), alone.means());
    assert_eq!((start.weights()[3], start.n_gaussians()), (0.1, 3));
    let given: NoiseComponent = "share=0.25,volume=7".parse().unwrap();
    let start = params.clone().noise(given).fit(&x).unwrap().mixture;
    assert_eq!((start.weights()[3], start.noise().unwrap().volume), (0.25, 7.0));
    // In other units the same components are found.
    let samples = Samples::from_f64(x.view()).unwrap();
    let standard = Standardization::of(&samples).unwrap();
    let z = (&x - standard.mean()) / standard.scale();
    let long = params.noise(by_rows).max_iter(50).reg_covar(0.0);
    let of_z = long.clone().standardized(&standard).unwrap().fit(&z).unwrap().mixture;
    let of_x = long.fit(&x).unwrap().mixture;
    let restored = standard.restore(&of_z).unwrap();
    // Principal components, and so the volume, depend on the units.
    let (a, b) = (restored.noise().unwrap(), of_x.noise().unwrap());
    let bounds = a.lower.iter().chain(&a.upper).zip(b.lower.iter().chain(&b.upper));
    assert!(bounds.clone().all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
    assert!((&restored.means() - &of_x.means()).iter().all(|v| v.abs() < 1e-2), "{}", restored.means());
}

#[test]
fn a_start_with_noise_heeds_the_options() {
    let x = with_outliers();
    let params = GaussianMixtureParams::new(3).noise(NoiseComponent::default());
    let start = params.fit(&x).unwrap().mixture;
    let params = params.start(start.clone()).max_iter(0).covariance_type(CovarianceModel::VEV);
    let of_model = params.clone().freeze("weights=equal".parse().unwrap()).fit(&x).unwrap().mixture;
    assert_eq!((of_model.covariance_model(), of_model.noise()), (CovarianceModel::VEV, start.noise()));
    let share = start.weights()[3];
    assert!(of_model.weights().iter().take(3).all(|w| (w - (1.0 - share) / 3.0).abs() < 1e-15));
    assert_eq!(of_model.weights()[3], share);
    assert_eq!(params.noise(None).fit(&x).unwrap().mixture.n_components(), 3);
}

/// The noise has lost its samples, and one of two components collapses onto equal rows.
#[test]
fn a_component_that_collapses_beside_vanished_noise_is_retained() {
    let mut x = blobs(3, 60, 2);
    x.slice_mut(ndarray::s![50.., ..]).fill(70.0);
    let params = GaussianMixtureParams::new(2).reg_covar(0.0).max_iter(5).weights_init(array![0.8, 0.2]);
    let params = params.means_init(array![[0.0, 0.0], [70.0, 70.0]]);
    let params =
        params.precisions_init(Covariances::Full(Array3::from_shape_fn(
            (2, 2, 2),
            |(_, i, j)| {
                if i == j { 0.01 } else { 0.0 }
            },
        )));
    let noise = NoiseComponent { volume: Some(1e30), ..NoiseComponent::default() };
    assert_eq!(params.noise(noise).fit(&x).unwrap().retained, [1]);
}

#[test]
fn drawn_noise_lies_within_its_bounds() {
    let x = with_outliers();
    let mixture = GaussianMixtureParams::new(3).noise(NoiseComponent::default()).fit(&x).unwrap().mixture;
    let (drawn, labels) = mixture.sample(20_000, 5).unwrap();
    let noise: Vec<usize> = (0..labels.len()).filter(|&i| labels[i] == 3).collect();
    // Of 20,000 draws with probability 0.1, four standard deviations.
    assert!((noise.len() as f64 - 20_000.0 * mixture.weights()[3]).abs() < 4.0 * 43.0, "{}", noise.len());
    let rows = drawn.select(Axis(0), &noise);
    let of_noise = mixture.noise().unwrap();
    for j in 0..2 {
        let (a, b) = (of_noise.lower[j], of_noise.upper[j]);
        assert!(rows.column(j).iter().all(|v| (a..=b).contains(v)));
        let mean = rows.column(j).mean().unwrap();
        assert!((mean - (a + b) / 2.0).abs() < 4.0 * (b - a) / (12.0 * noise.len() as f64).sqrt());
    }
}

#[test]
fn bad_noise_is_named() {
    let x = with_outliers();
    let message = |noise: NoiseComponent| GaussianMixtureParams::new(2).noise(noise).fit(&x).unwrap_err().to_string();
    let default = NoiseComponent::default;
    assert!(message(NoiseComponent { share: 1.0, ..default() }).contains("between 0 and 1"));
    assert!(message(NoiseComponent { volume: Some(0.0), ..default() }).contains("positive"));
    assert!(message(NoiseComponent { rows: Some(vec![1000]), ..default() }).contains("1000"));
    assert!(message(NoiseComponent { rows: Some(Vec::new()), ..default() }).contains("0 of 1000 rows"));
    assert!("spread=2".parse::<NoiseComponent>().unwrap_err().to_string().contains("`spread=2`"));
    let constant = Array2::from_shape_fn((20, 2), |(i, j)| if j == 0 { 1.0 } else { i as f64 });
    let error = GaussianMixtureParams::new(2).noise(default()).fit(&constant).unwrap_err().to_string();
    assert!(error.contains("column constant"), "{error}");
    let (params, mut data) = (GaussianMixtureParams::new(2).noise(default()), reference(x.view()));
    let grown = grow(&mut data, &params, &[1, 2], &[CovarianceModel::VVV], Criterion::Bic, &mut go).unwrap_err();
    assert!(grown.to_string().contains("growing"), "{grown}");
    let merged = merge_down(&mut data, &params.check().unwrap(), 1, Criterion::Bic, &mut |_| unreachable!());
    assert!(merged.unwrap_err().to_string().contains("merging"));
    let mut with_gap = x.clone();
    with_gap[[3, 1]] = f64::NAN;
    let mut evaluator = CpuEvaluator::new(Samples::with_missing(with_gap.view()).unwrap()).unwrap();
    let error = GaussianMixtureParams::new(2).noise(default()).fit(&mut evaluator as &mut dyn Evaluator).unwrap_err();
    assert!(error.to_string().contains("missing value in row 3, column 1"), "{error}");
    let mixture = GaussianMixtureParams::new(2).noise(default()).fit(&x).unwrap().mixture;
    let results =
        [mixture.marginal(&[0]).map(drop), mixture.reduce(1).map(drop), mixture.l2_distance(&mixture).map(drop)];
    assert!(results.into_iter().all(|result| result.unwrap_err().to_string().contains("without_noise")));
}
