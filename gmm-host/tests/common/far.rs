//! Groups of samples and fill values as far from the other samples as the number types reach.
//!
//! Tolerances: scores, totals, counts, means and moments are within 10⁻⁹ of the reference's, relative to their scale:
//! the log-density, at least one; the number of samples; a standard deviation; the component's second moments. Means,
//! counts and filled-in values also have their own rounding: 10⁻¹³ of themselves.
use super::precision::{Load, Test};
use super::*;
use gmm_host::Error;
use ndarray::arr1;

pub const TESTS: &[Test] = &[
    ("groups_far_apart", groups_far_apart),
    ("fill_values", fill_values),
    ("fill_values_and_missing_values", fill_values_and_missing_values),
    ("float32_samples_far_apart", float32_samples_far_apart),
    ("a_sample_infinitely_far_away", a_sample_infinitely_far_away),
    ("samples_that_have_just_become_a_component", samples_that_have_just_become_a_component),
];

const TOLERANCE: f64 = 1e-9;
const DISTANCES: [f64; 12] = [10.0, 1e3, 1e4, 1e5, 1e7, 1e10, 1e13, 1e16, 1e20, 1e80, 1e160, 1e300];

/// Returns mixtures of all four types: a component at the origin with variance 1, and one at `mean` with the variances
/// `variances`; for `tied` both have the latter. Features are correlated if the type has matrices.
fn mixtures(mean: &[f64], variances: &[f64]) -> Vec<Mixture> {
    let d = mean.len();
    let means = Array2::from_shape_fn((2, d), |(c, j)| if c == 0 { 0.0 } else { mean[j] });
    let variance = |c: usize, j: usize| if c == 0 { 1.0 } else { variances[j] };
    let matrix = |c: usize, i: usize, j: usize| {
        let root = (variance(c, i) * variance(c, j)).sqrt();
        if i == j { root } else { 0.5 * root }
    };
    let types = [
        Covariances::Full(Array3::from_shape_fn((2, d, d), |(c, i, j)| matrix(c, i, j))),
        Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| matrix(1, i, j))),
        Covariances::Diag(Array2::from_shape_fn((2, d), |(c, j)| variance(c, j))),
        Covariances::Spherical(arr1(&[1.0, variances[0]])),
    ];
    let mixture = |covariances| Mixture::new(arr1(&[0.6, 0.4]), means.clone(), covariances).unwrap();
    types.map(mixture).into()
}

#[track_caller]
fn near(got: f64, truth: f64, scale: f64, what: &str) {
    let equal = got == truth || (got - truth).abs() <= TOLERANCE * scale;
    assert!(equal, "{what}: {got} for {truth}, relative to {scale}");
}

#[track_caller]
fn assert_true(load: Load, samples: Samples<'_>, m: &Mixture, what: &str) {
    let what = format!("{what}, {}", m.covariance_type());
    let (n, (k, d)) = (samples.n_samples() as f64, m.means().dim());
    let missing = samples.missing().is_some();
    let mut truth = ReferenceEvaluator::new(samples.clone());
    let mut e = load(samples);
    let expected = truth.score_samples(m).unwrap();
    for (i, (got, expected)) in e.score_samples(m).unwrap().iter().zip(&expected).enumerate() {
        near(*got, *expected, expected.abs().max(1.0), &format!("{what}, score of {i}"));
    }
    let scale = expected.iter().map(|v| v.abs().max(1.0)).sum();
    near(e.log_likelihood(m).unwrap(), truth.log_likelihood(m).unwrap(), scale, &format!("{what}, total"));
    let batch = e.log_likelihood_batch(&[m.clone(), m.clone()]).unwrap();
    batch.iter().for_each(|total| near(*total, expected.sum(), scale, &format!("{what}, batch")));
    assert_eq!(e.predict(m).unwrap(), truth.predict(m).unwrap(), "{what}");
    let (got, expected) = (e.predict_proba(m).unwrap(), truth.predict_proba(m).unwrap());
    let of_pair = format!("{what}, responsibility");
    got.iter().zip(&expected).for_each(|(got, expected)| near(*got, *expected, 1.0, &of_pair));
    let (got, expected) = (e.statistics(m).unwrap(), truth.statistics(m).unwrap());
    near(got.log_likelihood(), expected.log_likelihood(), scale, &format!("{what}, log-likelihood of the E-step"));
    for c in 0..k {
        near(got.counts()[c], expected.counts()[c], n, &format!("{what}, count of {c}"));
        for j in 0..d {
            let (got, expected) = (got.means()[[c, j]], expected.means()[[c, j]]);
            let rounding = expected.abs() * 1e-13 / TOLERANCE;
            near(got, expected, m.variance(c, j).sqrt() + rounding, &format!("{what}, mean {j} of {c}"));
        }
    }
    let flat = |scatter: &Covariances| scatter.iter().collect::<Vec<f64>>();
    let (got, expected) = (flat(got.scatter()), flat(expected.scatter()));
    let each = got.len() / if m.covariance_type() == CovarianceType::Tied { 1 } else { k };
    for (c, (got, expected)) in got.chunks(each).zip(expected.chunks(each)).enumerate() {
        // A rounded value deviates from a mean whose other features deviate by about a standard deviation.
        let rounding = m.means().iter().fold(0.0, |most: f64, v| most.max(v.abs())) * n * f64::EPSILON / TOLERANCE;
        let scale = expected.iter().fold(1e-300, |most: f64, v| most.max(v.abs()));
        let scale = scale + if missing { rounding } else { 0.0 };
        for (got, expected) in got.iter().zip(expected) {
            near(*got, *expected, scale, &format!("{what}, scatter of {c}"));
        }
    }
}

/// Of two groups, one lies around the origin, narrow or wide, with most samples in the other group or the reverse.
fn groups_far_apart(load: Load) {
    for distance in DISTANCES {
        for (deviation, first) in [(1.0, 10), (1e-3, 10), (1e-3, 45)] {
            let mut x = normal(3, 60, 3, 0.0);
            for (i, mut row) in x.outer_iter_mut().enumerate() {
                // The noise keeps the digits that the distance leaves.
                row.mapv_inplace(|v| if i < first { v } else { distance + deviation * v });
            }
            for m in mixtures(&[distance; 3], &[deviation * deviation; 3]) {
                // Tied covariances are both narrow: samples around the origin are some thousand deviations away.
                let what = format!("{distance:e}, {deviation}, {first}");
                assert_true(load, Samples::from_f64(x.view()).unwrap(), &m, &what);
            }
        }
    }
}

/// Returns samples with a fill value in one column of some, so that a component is narrow there.
fn with_fill(n: usize, fill: f64) -> Array2<f64> {
    let mut x = normal(5, n, 4, 0.0);
    for row in (0..n).step_by(20) {
        x[[row, 1]] = fill;
    }
    x
}

fn fill_values(load: Load) {
    for fill in DISTANCES.into_iter().chain([-9999.0, -1e16]) {
        let x = with_fill(200, fill);
        for m in mixtures(&[0.0, fill, 0.0, 0.0], &[1.0, 1e-6, 1.0, 1.0]) {
            assert_true(load, Samples::from_f64(x.view()).unwrap(), &m, &format!("fill value {fill:e}"));
        }
    }
}

fn fill_values_and_missing_values(load: Load) {
    for fill in DISTANCES {
        let mut x = with_fill(200, fill);
        for ((i, j), v) in x.indexed_iter_mut() {
            if (i * 7 + j * 3) % 10 == 0 {
                *v = f64::NAN;
            }
        }
        for m in mixtures(&[0.0, fill, 0.0, 0.0], &[1.0, 1e-6, 1.0, 1.0]) {
            assert_true(load, Samples::with_missing(x.view()).unwrap(), &m, &format!("missing, fill value {fill:e}"));
        }
    }
}

/// The samples are exact in float32; if its digits suffice, the tolerances are those of `precision`.
fn float32_samples_far_apart(load: Load) {
    for fill in [1e6f32, 1e10, 1e15, 1e20, 1e37] {
        let x = with_fill(200, fill.into()).mapv(|v| v as f32);
        for m in mixtures(&[0.0, fill.into(), 0.0, 0.0], &[1.0, 1e-6, 1.0, 1.0]) {
            assert_true(load, Samples::from_f32(x.view()).unwrap(), &m, &format!("float32, fill value {fill:e}"));
        }
    }
}

/// An infinitely far sample leaves the others unchanged: its log-likelihood is that of float64, finite or not, and it
/// belongs to the nearest component. An E-step, whose total is −∞, names the sample.
fn a_sample_infinitely_far_away(load: Load) {
    let mut x = normal(9, 50, 3, 0.0);
    for far in [1e20f32, 3e38] {
        let mut x = x.mapv(|v| v as f32);
        x.row_mut(20).fill(far);
        for m in mixtures(&[5.0; 3], &[4.0; 3]) {
            let scores = load(Samples::from_f32(x.view()).unwrap()).score_samples(&m).unwrap();
            assert!(scores[20].is_finite(), "{far}");
            // Rounding decides between two equal covariances.
            if m.covariance_type() == CovarianceType::Tied {
                continue;
            }
            assert_true(load, Samples::from_f32(x.view()).unwrap(), &m, &format!("float32, one sample at {far:e}"));
        }
    }
    x.row_mut(20).fill(1e160);
    let weights = Array1::from_shape_fn(50, |i| if i == 20 { 0.0 } else { 1.0 });
    for m in mixtures(&[5.0; 3], &[4.0; 3]) {
        let samples = Samples::from_f64(x.view()).unwrap();
        let (mut e, mut truth) = (load(samples.clone()), ReferenceEvaluator::new(samples.clone()));
        let (scores, expected) = (e.score_samples(&m).unwrap(), truth.score_samples(&m).unwrap());
        for (got, expected) in scores.iter().zip(&expected) {
            near(*got, *expected, expected.abs().max(1.0), "beside a sample at 1e160");
        }
        assert_eq!(scores[20], f64::NEG_INFINITY);
        assert_eq!(e.log_likelihood(&m).unwrap(), f64::NEG_INFINITY);
        assert_eq!(e.predict(&m).unwrap(), truth.predict(&m).unwrap());
        let (r, expected) = (e.predict_proba(&m).unwrap(), truth.predict_proba(&m).unwrap());
        r.iter().zip(&expected).for_each(|(got, expected)| near(*got, *expected, 1.0, "beside a sample at 1e160"));
        assert!(matches!(e.statistics(&m), Err(Error::UnreachableSample { row: 20 })));
        // A sample of weight zero takes no part.
        let mut e = load(samples.clone().with_weights(weights.view()).unwrap());
        let mut truth = ReferenceEvaluator::new(samples.with_weights(weights.view()).unwrap());
        let expected = truth.log_likelihood(&m).unwrap();
        near(e.log_likelihood(&m).unwrap(), expected, expected.abs(), "without its weight");
        near(e.statistics(&m).unwrap().log_likelihood(), expected, expected.abs(), "E-step without its weight");
    }
}

/// Equal samples far from their component's previous mean have variance zero, not the rounding of the squared distance.
fn samples_that_have_just_become_a_component(load: Load) {
    for distance in [1e3, 1e6, 1e12] {
        let mut x = normal(13, 60, 2, 0.0);
        for mut row in x.outer_iter_mut().skip(40) {
            row.fill(distance);
        }
        // The second component is wide, its mean far from its samples.
        for m in mixtures(&[0.7 * distance; 2], &[0.01 * distance * distance; 2]) {
            if m.covariance_type() == CovarianceType::Tied {
                continue;
            }
            let statistics = load(Samples::from_f64(x.view()).unwrap()).statistics(&m).unwrap();
            let expected = ReferenceEvaluator::new(Samples::from_f64(x.view()).unwrap()).statistics(&m).unwrap();
            let (got, expected) = (statistics.scatter().iter(), expected.scatter().iter());
            for (got, expected) in got.zip(expected) {
                // The first component's moments are of some units; the second explains the samples that it leaves.
                assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{distance}: {got} for {expected}");
            }
        }
    }
}
