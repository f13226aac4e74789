//! A fit in standardised units, converted back, is a fit in the units of the data.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, Error, GaussianMixtureParams, Mixture, Samples, Standardization};
use ndarray::{Array1, Array2, Axis, array, s};

/// Columns of very different places and scales, one of them constant.
fn data() -> Array2<f64> {
    let mut x = blobs(1, 10_000, 4);
    for (mut column, (place, scale)) in
        x.columns_mut().into_iter().zip([(1e6, 3.0), (0.0, 1e-8), (-5.0, 1e9), (0.1, 0.0)])
    {
        column.map_inplace(|v| *v = *v * scale + place);
    }
    x
}

#[test]
fn columns_get_mean_zero_and_deviation_one() {
    let x = data();
    let standard = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap();
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    // 10⁻¹⁰ is the rounding of 10⁶ in units of a deviation of 3.
    assert_all_close("mean", z.mean_axis(Axis(0)).unwrap(), [0.0; 4], 1e-9, 1.0);
    assert_all_close("deviation", z.std_axis(Axis(0), 0.0), [1.0, 1.0, 1.0, 0.0], 1e-9, 1.0);
    assert_eq!((standard.mean()[3], standard.scale()[3]), (0.1, 1.0));
    assert!(z.column(3).iter().all(|&v| v == 0.0));
    assert_close("log scale", standard.log_scale(), standard.scale().mapv(f64::ln).sum(), 1e-15, 0.0);

    // Weights as integers are repeated rows.
    let w = Array1::from_shape_fn(x.nrows(), |i| (i % 3) as f64);
    let repeated: Vec<usize> = (0..x.nrows()).flat_map(|i| std::iter::repeat_n(i, i % 3)).collect();
    let repeated = x.select(Axis(0), &repeated);
    let a = Standardization::of(&Samples::from_f64(x.view()).unwrap().with_weights(w.view()).unwrap()).unwrap();
    let b = Standardization::of(&Samples::from_f64(repeated.view()).unwrap()).unwrap();
    assert_all_close("weighted means", a.mean().clone(), b.mean().clone(), 1e-12, 1e-8);
    assert_all_close("weighted scales", a.scale().clone(), b.scale().clone(), 1e-12, 0.0);

    // float32 samples are rounded once.
    let x32 = x.mapv(|v| v as f32);
    let standard = Standardization::of(&Samples::from_f32(x32.view()).unwrap()).unwrap();
    let (mut z32, mut z) = (x32.clone(), x32.mapv(f64::from));
    standard.apply(z32.view_mut(), |v| v as f32);
    standard.apply(z.view_mut(), |v| v);
    assert_eq!(z32, z.mapv(|v| v as f32));
}

#[test]
fn mixtures_go_to_standardised_units_and_back() {
    let x = data();
    let standard = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap();
    let mut z = x.clone();
    standard.apply(z.view_mut(), |v| v);
    let z = z.slice(s![..50, ..]);
    let x = x.slice(s![..50, ..]);
    for t in CovarianceType::ALL {
        let m = mixture(2, t, 3, 4, 0.0);
        let restored = standard.restore(&m).unwrap();
        let expected = if t == CovarianceType::Spherical { CovarianceType::Diag } else { t };
        assert_eq!(restored.covariance_type(), expected);
        // The same densities, but for the volume; the columns' rounding, 10⁻¹⁰, times distances
        // below 10.
        use gmm_host::Evaluator;
        let got = reference(x).score_samples(&restored).unwrap() + standard.log_scale();
        assert_all_close(t.name(), got, reference(z).score_samples(&m).unwrap(), 1e-8, 1.0);
        let back = standard.standardize(&restored, t).unwrap();
        assert_all_close("means", back.means().to_owned(), m.means().to_owned(), 1e-9, 1.0);
        assert_all_close("covariances", back.covariances().iter(), m.covariances().iter(), 1e-12, 1.0);
    }
    // A mixture that has no counterpart of the same covariance type.
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
    let (mut z, mut moved) = (x.clone(), x.clone());
    moved.column_mut(1).map_inplace(|v| *v = *v * 1e-4 + 7.0);
    let params = GaussianMixtureParams::default().n_components(3).max_iter(20).tol(0.0);
    let mut fits = Vec::new();
    for x in [&mut z, &mut moved] {
        let standard = Standardization::of(&Samples::from_f64(x.view()).unwrap()).unwrap();
        standard.apply(x.view_mut(), |v| v);
        let fit = params.clone().check().unwrap().fit(&mut reference(x.view())).unwrap();
        let restored = standard.restore_fit(&fit).unwrap();
        let back = standard.standardize_fit(&restored, CovarianceType::Full).unwrap();
        assert_all_close("bounds", back.lower_bounds.clone(), fit.lower_bounds.clone(), 1e-14, 1.0);
        assert_all_close("means", back.mixture.means().to_owned(), fit.mixture.means().to_owned(), 1e-10, 1.0);
        fits.push(restored);
    }
    let (a, b) = (&fits[0], &fits[1]);
    // 10⁻¹², the rounding of the moved column, amplified by twenty iterations.
    assert_all_close(
        "mean",
        b.mixture.means().column(1).mapv(|v| (v - 7.0) * 1e4),
        a.mixture.means().column(1).to_owned(),
        1e-9,
        1.0,
    );
    assert_close("bound", b.lower_bound() + 1e-4f64.ln(), a.lower_bound(), 1e-9, 0.0);
}
