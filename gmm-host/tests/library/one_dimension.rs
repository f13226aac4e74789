//! Distribution function, quantiles and highest-density intervals of mixtures of one feature.
use crate::common::*;
use gmm_host::{CovarianceType, Covariances, Evaluator, Mixture};
use ndarray::{Array1, Array2, array};

/// The quantile of the normal distribution at 0.975.
const Z975: f64 = 1.959963984540054;

fn line(weights: &[f64], means: &[f64], deviations: &[f64]) -> Mixture {
    let means = Array2::from_shape_vec((means.len(), 1), means.to_vec()).unwrap();
    let variances = Covariances::Spherical(deviations.iter().map(|v| v * v).collect());
    Mixture::new(Array1::from(weights.to_vec()), means, variances).unwrap()
}

/// Values from tables of the normal distribution, and from the asymptotic series of its tail.
#[test]
fn one_component_has_the_values_of_the_normal_distribution() {
    let m = line(&[1.0], &[3.0], &[2.0]);
    for (z, p) in [
        (0.0, 0.5),
        (-0.5244005127080407, 0.3),
        (Z975, 0.975),
        (-6.361340902404056, 1e-10),
        (-9.262340089798408, 1e-20),
        (-37.04709629936125, 1e-300),
    ] {
        // An error in the last digit of z changes the probability by z² times as much.
        assert_close("cdf", m.cdf(3.0 + 2.0 * z).unwrap(), p, 1e-11, 0.0);
        assert_close("quantile", m.quantile(p).unwrap(), 3.0 + 2.0 * z, 1e-14, 1.0);
    }
    assert_close("cdf", m.cdf(3.0 - 60.0).unwrap(), 4.906713927148187e-198, 1e-12, 0.0);
    // At 40 standard deviations the probability, 4·10⁻³⁵⁰, underflows; at 38 it does not.
    assert_eq!(m.cdf(3.0 - 80.0).unwrap(), 0.0);
    assert_close("cdf", m.cdf(3.0 - 76.0).unwrap(), 2.885428e-316, 1e-6, 0.0);
    assert_eq!(m.cdf(3.0 + 80.0).unwrap(), 1.0);
    assert_eq!([m.cdf(f64::NEG_INFINITY).unwrap(), m.cdf(f64::INFINITY).unwrap()], [0.0, 1.0]);
    assert_eq!([m.quantile(0.0).unwrap(), m.quantile(1.0).unwrap()], [f64::NEG_INFINITY, f64::INFINITY]);
}

#[test]
fn quantiles_invert_the_distribution_function() {
    for m in [
        line(&[0.3, 0.5, 0.2], &[-1.0, 0.5, 3.0], &[0.5, 1.0, 0.1]),
        line(&[0.5, 0.5], &[-2.0, 2.0], &[1.0, 1.0]),
        line(&[1e-200, 1.0 - 1e-12, 1e-12], &[-500.0, 1.0, 2.0], &[3.0, 1e-3, 40.0]),
    ] {
        // While the rest is above 10⁻⁴: beyond, p itself lacks the digits.
        for x in [-700.0, -30.0, -8.0, -1.5, 0.3, 0.999, 1.001, 2.9] {
            let p = m.cdf(x).unwrap();
            if (1e-300..0.9999).contains(&p) {
                // In a gap the distribution function is flat, so p determines fewer digits of x.
                let density = (m.cdf(x + 1e-6).unwrap() - m.cdf(x - 1e-6).unwrap()) / 2e-6;
                let condition = p * f64::EPSILON / density;
                if condition < 1e-13 * x.abs() {
                    assert_close("quantile", m.quantile(p).unwrap(), x, 1e-12, 0.0);
                }
            }
        }
        let mut before = f64::NEG_INFINITY;
        for p in [5e-324, 1e-300, 1e-200, 1e-30, 1e-3, 0.2, 0.5, 0.7, 0.99, 1.0 - f64::EPSILON] {
            let x = m.quantile(p).unwrap();
            assert!(x.is_finite() && x > before, "{p}: {x}");
            before = x;
        }
    }
}

/// One normal distribution has an interval around its mean; two far components have one each.
#[test]
fn highest_density_has_closed_forms() {
    let m = line(&[1.0], &[3.0], &[2.0]);
    let region = m.hdr(0.95).unwrap();
    let one = &region.intervals;
    // At the ends x has as many digits as the density.
    assert_eq!(one.len(), 1);
    let ends = [3.0 - 2.0 * Z975, 3.0 + 2.0 * Z975];
    assert_all_close("interval", one[0], ends, 1e-13, 1.0);
    let height = (-0.5 * Z975 * Z975).exp() / 2.0 / std::f64::consts::TAU.sqrt();
    assert_close("density", region.density, height, 1e-13, 1.0);
    let two = line(&[0.5, 0.5], &[-1e6, 1e6], &[1.0, 1.0]).hdr(0.95).unwrap().intervals;
    let z = Z975;
    assert_all_close("intervals", two.concat(), [-1e6 - z, -1e6 + z, 1e6 - z, 1e6 + z], 1e-15, 1.0);
    // The other component is lower everywhere than the region's ends.
    let low = line(&[0.97, 0.03], &[0.0, 100.0], &[1.0, 50.0]).hdr(0.5).unwrap().intervals;
    assert_eq!(low.len(), 1);
}

#[test]
fn highest_density_has_the_probability_and_one_density_at_its_ends() {
    // The density's last digits at a peak cost a narrow region's probability a few digits, on a flat top many.
    for (m, modes, tolerance) in [
        (line(&[0.3, 0.5, 0.2], &[-1.0, 0.5, 3.0], &[0.5, 1.0, 0.1]), 3, 1e-10),
        (line(&[0.5, 0.5], &[-2.0, 2.0], &[1.0, 1.0]), 2, 1e-10),
        // Equal components two standard deviations apart have one flat maximum.
        (line(&[0.5, 0.5], &[-1.0, 1.0], &[1.0, 1.0]), 1, 1e-7),
        (line(&[0.5, 0.5], &[0.0, 0.0], &[1.0, 1e-3]), 1, 1e-10),
        (line(&[0.2; 5], &[1e3, 2e3, 3e3, 4e3, 4.1e3], &[1.0, 1e-2, 3.0, 1.0, 5.0]), 5, 1e-10),
        (mixture(3, CovarianceType::Diag, 30, 1, 2.0), 30, 1e-10),
    ] {
        for level in [1e-3, 0.1, 0.5, 0.9, 0.99, 1.0 - 1e-9] {
            let found = m.hdr(level).unwrap();
            let region = &found.intervals;
            assert!((1..=modes).contains(&region.len()), "{level}: {region:?}");
            let ends = region.concat();
            assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{level}: {region:?}");
            let sum: f64 = region.iter().map(|[a, b]| m.cdf(*b).unwrap() - m.cdf(*a).unwrap()).sum();
            assert_close("probability", sum, level, tolerance, 1.0);
            let density = |x: f64| reference(array![[x]].view()).score_samples(&m).unwrap()[0];
            let bound = found.density.ln();
            for end in &ends {
                // Far from 0 the last digit of x is 10⁻¹² of these standard deviations.
                assert_close("density", density(*end), bound, 1e-9, 1.0);
            }
            // Nothing outside is denser, nothing inside is less dense.
            for i in 0..=1000 {
                let x = m.quantile(f64::from(i) / 1000.0 * 0.9999 + 5e-5).unwrap();
                let inside = region.iter().any(|[a, b]| (*a..=*b).contains(&x));
                let above = density(x) - bound;
                assert!(ends.contains(&x) || (above > -1e-9) == inside || above.abs() < 1e-9);
            }
        }
    }
}

/// Intervals and time stay bounded: flat maxima, components far apart, of very different widths, and very many.
#[test]
fn highest_density_ends_for_hard_mixtures() {
    for m in [
        line(&[0.5, 0.5], &[-1e9, 1e9], &[1e-3, 1e-3]),
        line(&[0.25, 0.25, 0.5], &[0.0, 1e-12, 1e12], &[1e-6, 1e-6, 1.0]),
        line(&[0.5, 0.5], &[1e9 - 1.0, 1e9 + 1.0], &[1.0, 1.0]),
        line(&[0.5, 0.5], &[0.0, 1.0], &[1e-150, 1e150]),
        line(&[1.0 / 200.0; 200], &(0..200).map(|i| 2.0 * f64::from(i)).collect::<Vec<_>>(), &[1.0; 200]),
    ] {
        let region = m.hdr(0.9).unwrap();
        let sum: f64 = region.intervals.iter().map(|[a, b]| m.cdf(*b).unwrap() - m.cdf(*a).unwrap()).sum();
        // Means 10¹² standard deviations from 0 leave an end only four digits after the point.
        assert!((sum - 0.9).abs() < 1e-4, "{sum} in {region:?}");
    }
    // The middle of two means is rounded by much of their distance.
    for i in 1..1000 {
        let m = line(&[0.5, 0.5], &[1.7e9, 1.7e9 + 1e-3 * f64::from(i)], &[0.5, 60.0]);
        assert!(!m.hdr(0.5).unwrap().intervals.is_empty(), "{i}");
    }
}

#[test]
fn the_axis_has_the_densities_and_the_quantiles() {
    let m = line(&[0.3, 0.5, 0.2], &[-1.0, 0.5, 3.0], &[0.5, 1.0, 0.1]);
    let axis = m.on_axis(301).unwrap();
    assert_eq!((axis.x.len(), axis.components.dim()), (301, (301, 3)));
    let x = axis.x.view().insert_axis(ndarray::Axis(1)).to_owned();
    let density: Vec<f64> = reference(x.view()).score_samples(&m).unwrap().iter().map(|v| v.exp()).collect();
    assert_all_close("density", &axis.density, density, 1e-14, 1.0);
    assert_close("first", axis.cdf[0], 0.001, 1e-12, 0.0);
    assert_close("last", axis.cdf[300], 0.999, 1e-12, 0.0);
    assert!(m.on_axis(1).unwrap_err().to_string().contains("at least two"));
}

#[test]
fn unusable_arguments_are_refused() {
    let m = line(&[1.0], &[0.0], &[1.0]);
    let wide = mixture(1, CovarianceType::Full, 2, 3, 0.0);
    let error = wide.cdf(0.0).unwrap_err().to_string();
    assert!(error.contains("is 3: this needs a mixture of one feature; take the marginal"), "{error}");
    assert!(wide.quantile(0.5).is_err() && wide.hdr(0.5).is_err() && wide.marginal(&[1]).unwrap().hdr(0.5).is_ok());
    for bad in [-0.1, 1.1, f64::NAN] {
        assert!(m.quantile(bad).unwrap_err().to_string().contains("from 0 to 1"));
        assert!(m.hdr(bad).unwrap_err().to_string().contains("above 0 and below 1"));
    }
    assert!(m.cdf(f64::NAN).is_err() && m.hdr(0.0).is_err() && m.hdr(1.0).is_err());
}
