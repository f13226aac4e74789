//! A fit in standardised units, converted back, is a fit in the data's units.
use crate::common::*;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, Covariances, Error, Fit, GaussianMixtureParams, Mixture, Samples,
    Standardization, Statistics, VariationalMixture, WeightConcentrationPriorType,
};
use ndarray::{Array1, Array2, Axis, array, s};

/// Returns columns of very different places and scales, one of them constant.
fn data() -> Array2<f64> {
    let mut x = blobs(1, 10_000, 4);
    let places = [(1e6, 3.0), (0.0, 1e-8), (-5.0, 1e9), (0.1, 0.0)];
    for (mut column, (place, scale)) in x.columns_mut().into_iter().zip(places) {
        column.map_inplace(|v| *v = *v * scale + place);
    }
    x
}

/// Returns the standardisation of samples, and the standardised samples.
fn standardised(x: &Array2<f64>) -> (Standardization, Array2<f64>) {
    let (standard, mut z) = (Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap(), x.clone());
    standard.apply(z.view_mut(), |v| v);
    (standard, z)
}

#[test]
fn columns_get_mean_zero_and_deviation_one() {
    let x = data();
    let (standard, z) = standardised(&x);
    // 10⁻¹⁰ is the rounding of 10⁶ in units of a deviation of 3.
    assert_all_close("mean", z.mean_axis(Axis(0)).unwrap(), [0.0; 4], 1e-9, 1.0);
    assert_all_close("deviation", z.std_axis(Axis(0), 0.0), [1.0, 1.0, 1.0, 0.0], 1e-9, 1.0);
    assert_eq!((standard.mean()[3], standard.scale()[3]), (0.1, 1.0));
    assert!(z.column(3).iter().all(|&v| v == 0.0));
    assert_close("log scale", standard.log_scale(), standard.scale().mapv(f64::ln).sum(), 1e-15, 0.0);

    // Integer weights are repeated rows.
    let w = Array1::from_shape_fn(x.nrows(), |i| (i % 3) as f64);
    let repeated: Vec<usize> = (0..x.nrows()).flat_map(|i| std::iter::repeat_n(i, i % 3)).collect();
    let repeated = x.select(Axis(0), &repeated);
    let a = Standardization::of(&Samples::from_f64(x.view()).unwrap().with_weights(w.view()).unwrap()).unwrap();
    let b = Standardization::of(&Samples::from_f64(repeated.view()).unwrap()).unwrap();
    assert_all_close("weighted means", a.mean(), b.mean(), 1e-12, 1e-8);
    assert_all_close("weighted scales", a.scale(), b.scale(), 1e-12, 0.0);

    // float32 samples are rounded once.
    let x32 = x.mapv(|v| v as f32);
    let standard = Standardization::of(&Samples::from_f32(x32.view()).unwrap()).unwrap();
    let (mut z32, mut z) = (x32.clone(), x32.mapv(f64::from));
    standard.apply(z32.view_mut(), |v| v as f32);
    standard.apply(z.view_mut(), |v| v);
    assert_eq!(z32, z.mapv(|v| v as f32));
}

/// Samples come in parts, with gaps; one column's first part is all gaps.
#[test]
fn parts_add_up() {
    let mut x = data();
    x.slice_mut(s![..3_000, 1]).fill(f64::NAN);
    x[[5_000, 0]] = f64::NAN;
    let of = |rows: std::ops::Range<usize>| {
        Standardization::of(&Samples::with_missing(x.slice(s![rows, ..])).unwrap()).unwrap()
    };
    let (all, parts) = (of(0..10_000), of(0..3_000).merged(&of(3_000..10_000)).unwrap());
    assert_all_close("means", parts.mean(), all.mean(), 1e-12, 1e-8);
    assert_all_close("scales", parts.scale(), all.scale(), 1e-12, 0.0);
    assert_close("log scale", parts.log_scale(), all.log_scale(), 1e-12, 0.0);
    assert_eq!((parts.mean()[3], parts.scale()[3]), (0.1, 1.0));
}

/// With one scale for all columns a spherical mixture stays spherical.
#[test]
fn one_scale_keeps_spherical_covariances() {
    let x = array![[1.0, 0.0], [3.0, 4.0], [5.0, 8.0]];
    let standard = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap().isotropic();
    let scale = ((8.0 / 3.0 + 32.0 / 3.0) / 2.0f64).sqrt();
    assert_all_close("scales", standard.scale(), [scale; 2], 1e-15, 0.0);
    let m = mixture(2, CovarianceType::Spherical, 3, 2, 0.0);
    let restored = standard.restore(&m).unwrap();
    let expected = m.covariances().iter().map(|v| v * scale * scale);
    assert_eq!(restored.covariance_type(), CovarianceType::Spherical);
    assert_all_close("variances", restored.covariances().iter(), expected, 1e-14, 0.0);
    let back = standard.standardize(&restored, CovarianceType::Spherical).unwrap();
    assert_all_close("variances", back.covariances().iter(), m.covariances().iter(), 1e-12, 0.0);
}

/// Initial parameters are given in the data's units.
#[test]
fn initial_parameters_are_standardised() {
    let x = blobs(3, 300, 2) * &array![1.0, 1e-4] + &array![0.0, 7.0];
    let (standard, z) = standardised(&x);
    let given = mixture(2, CovarianceType::Diag, 3, 2, 0.0);
    let start = standard.restore(&given).unwrap();
    let params = GaussianMixtureParams::new(3).covariance_type(CovarianceType::Diag).max_iter(0);
    let params = params.means_init(start.means().to_owned()).precisions_init(start.precisions());
    let fit = params.standardized(&standard).unwrap().fit(&z).unwrap();
    assert_all_close("means", fit.mixture.means(), given.means(), 1e-10, 1.0);
    assert_all_close("covariances", fit.mixture.covariances().iter(), given.covariances().iter(), 1e-12, 0.0);
}

#[test]
fn mixtures_go_to_standardised_units_and_back() {
    let x = data();
    let (standard, z) = standardised(&x);
    let (x, z) = (x.slice(s![..50, ..]), z.slice(s![..50, ..]));
    for t in CovarianceType::ALL {
        let m = mixture(2, t, 3, 4, 0.0);
        let restored = standard.restore(&m).unwrap();
        let expected = if t == CovarianceType::Spherical { CovarianceType::Diag } else { t };
        assert_eq!(restored.covariance_type(), expected);
        // The densities differ by the volume; the columns' rounding, 10⁻¹⁰, times distances below 10.
        use gmm_host::Evaluator;
        let got = reference(x).score_samples(&restored).unwrap() + standard.log_scale();
        assert_all_close(t.name(), got, reference(z).score_samples(&m).unwrap(), 1e-8, 1.0);
        let back = standard.standardize(&restored, t).unwrap();
        assert_all_close("means", back.means(), m.means(), 1e-9, 1.0);
        assert_all_close("covariances", back.covariances().iter(), m.covariances().iter(), 1e-12, 1.0);
    }
    // A mixture without a counterpart of the same covariance type.
    let m = mixture(2, CovarianceType::Diag, 3, 4, 0.0);
    let e = standard.standardize(&m, CovarianceType::Spherical).unwrap_err();
    assert!(matches!(e, Error::WrongCovarianceType { .. }), "{e}");
    let other = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0])).unwrap();
    let e = standard.standardize(&other, CovarianceType::Spherical).unwrap_err();
    assert!(matches!(e, Error::ShapeMismatch { .. }), "{e}");
}

#[test]
fn a_standardised_fit_does_not_depend_on_the_units() {
    let x = blobs(3, 300, 2);
    let moved = &x * &array![1.0, 1e-4] + &array![0.0, 7.0];
    let params = GaussianMixtureParams::default().n_components(3).max_iter(20).tol(0.0);
    let mut fits = Vec::new();
    for x in [&x, &moved] {
        let (standard, z) = standardised(x);
        let fit = params.clone().check().unwrap().fit(&mut reference(z.view())).unwrap();
        let restored = standard.restore_fit(&fit).unwrap();
        let back = standard.standardize_fit(&restored, CovarianceType::Full).unwrap();
        assert_all_close("bounds", &back.lower_bounds, &fit.lower_bounds, 1e-14, 1.0);
        assert_all_close("means", back.mixture.means(), fit.mixture.means(), 1e-10, 1.0);
        fits.push(restored);
    }
    let (a, b) = (&fits[0], &fits[1]);
    // 10⁻¹², the rounding of the moved column, amplified by twenty iterations.
    let moved_back = b.mixture.means().column(1).mapv(|v| (v - 7.0) * 1e4);
    assert_all_close("mean", moved_back, a.mixture.means().column(1), 1e-9, 1.0);
    assert_close("bound", b.lower_bound() + 1e-4f64.ln(), a.lower_bound(), 1e-9, 0.0);
}

/// Makes one variational iteration from the same statistics of responsibilities in any units.
fn one_iteration(
    params: &BayesianGaussianMixtureParams,
    x: &Array2<f64>,
    t: CovarianceType,
) -> Fit<VariationalMixture> {
    let r = Array2::from_shape_fn((x.nrows(), 3), |(i, c)| if i % 3 == c { 0.8 } else { 0.1 });
    let statistics = Statistics::from_responsibilities(x.view(), r.view(), t).unwrap();
    let params = params.clone().start_statistics(statistics).max_iter(1);
    params.fit(&mut reference(x.view()) as &mut dyn gmm_host::Evaluator).unwrap()
}

/// With priors in the data's units, standardisation only changes the units.
#[test]
fn posteriors_and_their_priors_go_to_standardised_units_and_back() {
    let x = blobs(3, 300, 2) * &array![1.0, 1e-4] + &array![0.0, 7.0];
    let (standard, z) = standardised(&x);
    for t in CovarianceType::ALL {
        for kind in WeightConcentrationPriorType::ALL {
            let what = format!("{t} {kind}");
            let params = BayesianGaussianMixtureParams::new(3).covariance_type(t).weight_concentration_prior_type(kind);
            let params = params.reg_covar(0.0).degrees_of_freedom_prior(3.5);
            // The default priors follow from the standardised samples, whose moments correspond to the samples'.
            let found = one_iteration(&params, &z, t);
            let restored = standard.restore_fit(&found).unwrap();
            let elbo = found.elbo() - 300.0 * standard.log_scale();
            assert_close(&what, restored.elbo(), elbo, 1e-12, 100.0);
            let back = standard.standardize_fit(&restored, t).unwrap();
            assert_all_close(&what, &back.lower_bounds, &found.lower_bounds, 1e-13, 100.0);
            assert_all_close(&what, back.mixture.means(), found.mixture.means(), 1e-10, 1.0);
            let (a, b) = (&back.mixture.prior().covariance, &found.mixture.prior().covariance);
            assert_all_close(&what, a.iter(), b.iter(), 1e-12, 0.0);
            if t == CovarianceType::Spherical {
                assert_eq!(restored.mixture.covariance_type(), CovarianceType::Diag);
                let given = params.covariance_prior(Covariances::Spherical(array![1.0])).standardized(&standard);
                assert!(matches!(given, Err(Error::WrongCovarianceType { .. })));
                continue;
            }
            let direct = one_iteration(&params, &x, t);
            // The rounding of the moved column, 10⁻¹², times its 10⁴.
            let near = |what: &str, a: &Fit<VariationalMixture>, b: &Fit<VariationalMixture>| {
                assert_close(what, a.lower_bound(), b.lower_bound(), 1e-10, 100.0);
                assert_all_close(what, a.mixture.means(), b.mixture.means(), 1e-10, 1.0);
                assert_all_close(what, a.mixture.covariances().iter(), b.mixture.covariances().iter(), 1e-8, 1e-8);
            };
            near(&what, &restored, &direct);
            // Given priors are in the data's units.
            let covariance = direct.mixture.prior().covariance.clone();
            let given = params.mean_prior(array![1.0, 7.5]).covariance_prior(covariance);
            let of_z = one_iteration(&given.clone().standardized(&standard).unwrap(), &z, t);
            near(&what, &standard.restore_fit(&of_z).unwrap(), &one_iteration(&given, &x, t));
            let short = given.mean_prior(array![1.0]).standardized(&standard);
            assert!(matches!(short, Err(Error::ShapeMismatch { what: "mean_prior", .. })));
        }
    }
}
