//! float32 samples whose log-densities need more digits than float32 has.
//!
//! Tolerances: a sample's log-density is within 10⁻³ (promised by `Operation::LogLikelihood` near a component), or 10⁻⁶
//! of itself far from all components; a mean log-likelihood falls by at most 10⁻⁶ in EM.
use super::*;
use gmm_host::{Fit, GaussianMixtureParams, Operation, Precision};
use ndarray::{arr1, s};

pub type Load = for<'a> fn(Samples<'a>) -> Box<dyn Evaluator + 'a>;

pub type Test = (&'static str, fn(Load));

pub const TESTS: &[Test] = &[
    ("tight_component_far_away", tight_component_far_away),
    ("two_clusters_of_50_000", two_clusters),
    ("nearly_singular_covariances", nearly_singular_covariances),
    ("an_outlier_costs_the_others_nothing", an_outlier_costs_the_others_nothing),
    ("a_fit_with_an_outlier", a_fit_with_an_outlier),
    ("a_batch_of_both_kinds", a_batch_of_both_kinds),
    ("float32_fits_as_float64_does", float32_fits_as_float64_does),
];

/// The tolerance of a responsibility; errors of different samples are independent.
const RESPONSIBILITY: f64 = 1e-2;

fn rounded(x: &Array2<f64>) -> Array2<f32> {
    x.mapv(|v| v as f32)
}

/// Compares scores, total and E-step with the reference over the same numbers; counts within `count` of a sample.
#[track_caller]
fn assert_true(load: Load, x: &Array2<f32>, m: &Mixture, precision: Precision, count: f64, what: &str) {
    let samples = || Samples::from_f32(x.view()).unwrap();
    let mut truth = ReferenceEvaluator::new(samples());
    let mut e = load(samples());
    assert_eq!(e.precision(m, Operation::LogLikelihood), precision, "{what}");
    let expected = truth.score_samples(m).unwrap();
    let scores = e.score_samples(m).unwrap();
    let allowed = |v: f64| 1e-3 + 1e-6 * v.abs();
    for (i, (v, t)) in scores.iter().zip(&expected).enumerate() {
        assert!((v - t).abs() <= allowed(*t), "{what}, sample {i}: {v} for {t}");
    }
    let (total, expected) = (e.log_likelihood(m).unwrap(), expected.sum());
    // Rounding is independent between samples, so a total's error is far below the sum of the samples' tolerances.
    let allowed = 1e-3 * (x.nrows() as f64).sqrt() + 1e-6 * expected.abs();
    assert!((total - expected).abs() <= allowed, "{what}: total {total} for {expected}");
    let (s, t) = (e.statistics(m).unwrap(), truth.statistics(m).unwrap());
    assert!((s.log_likelihood() - expected).abs() <= allowed, "{what}: E-step {} for {expected}", s.log_likelihood());
    for c in 0..m.n_components() {
        let (got, expected) = (s.counts()[c], t.counts()[c]);
        assert!((got - expected).abs() <= count + 1e-5 * expected, "{what}: count {got} for {expected}");
    }
}

/// Returns N standard normal samples, the last of them at `far` in every column.
fn with_outlier(n: usize, d: usize, far: f64) -> Array2<f64> {
    let mut x = normal(3, n, d, 0.0);
    x.row_mut(n - 1).fill(far);
    x
}

/// Returns a broad component at zero and a tight one (σ = 10⁻³) at `far`.
fn broad_and_tight(t: CovarianceType, d: usize, far: f64) -> Mixture {
    let means = Array2::from_shape_fn((2, d), |(c, _)| if c == 0 { 0.0 } else { far });
    let variances = [1.0, 1e-6];
    let entry = |c: usize, i: usize, j: usize| if i == j { variances[c] } else { 0.1 * variances[c] };
    let covariances = match t {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((2, d, d), |(c, i, j)| entry(c, i, j))),
        CovarianceType::Spherical => Covariances::Spherical(arr1(&variances)),
        _ => Covariances::Diag(Array2::from_shape_fn((2, d), |(c, _)| variances[c])),
    };
    Mixture::new(arr1(&[0.5, 0.5]), means, covariances).unwrap()
}

fn tight_component_far_away(load: Load) {
    for far in [1e4, 1e5, 1e6, 1e8, 1e12] {
        for t in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
            // A deviation away from the mean, rounded to a float32 number.
            let x = rounded(&with_outlier(100, 3, far + 1e-3));
            let (m, what) = (broad_and_tight(t, 3, far), format!("{t} at {far:e}"));
            assert_true(load, &x, &m, Precision::Float64, RESPONSIBILITY, &what);
        }
    }
}

fn two_clusters(load: Load) {
    let mut x = normal(4, 100_000, 2, 0.0);
    x.slice_mut(s![50_000.., ..]).mapv_inplace(|v| 1e4 + 0.01 * v);
    let means = Array2::from_shape_fn((2, 2), |(c, _)| 1e4 * c as f64);
    let covariances = Covariances::Diag(ndarray::arr2(&[[1.0, 1.0], [1e-4, 1e-4]]));
    let m = Mixture::new(arr1(&[0.5, 0.5]), means, covariances).unwrap();
    assert_true(load, &rounded(&x), &m, Precision::Float64, RESPONSIBILITY, "two clusters");
}

fn nearly_singular_covariances(load: Load) {
    // The third column is the sum of the others up to 10⁻⁴.
    let mut x = normal(5, 3000, 3, 0.0);
    for mut row in x.outer_iter_mut() {
        row[2] = row[0] + row[1] + 1e-4 * row[2];
    }
    let sums = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0 + 1e-8]];
    for t in [CovarianceType::Full, CovarianceType::Tied] {
        let one = Array2::from_shape_fn((3, 3), |(i, j)| sums[i][j]);
        let covariances = match t {
            CovarianceType::Tied => Covariances::Tied(one),
            _ => Covariances::Full(Array3::from_shape_fn((2, 3, 3), |(_, i, j)| one[[i, j]])),
        };
        let m = Mixture::new(arr1(&[0.3, 0.7]), ndarray::arr2(&[[0.0; 3], [0.5; 3]]), covariances).unwrap();
        assert_true(load, &rounded(&x), &m, Precision::Float64, RESPONSIBILITY, &format!("singular, {t}"));
    }
}

/// An ordinary component far from the mean of the samples, but not from most of them, stays in float32.
fn an_outlier_costs_the_others_nothing(load: Load) {
    let x = rounded(&with_outlier(500, 4, 1e8));
    for t in CovarianceType::ALL {
        // float32 cannot tell which component the outlier belongs to, 10⁸ deviations from all: one sample.
        assert_true(load, &x, &mixture(6, t, 3, 4, 0.0), Precision::Float32, 1.0, &format!("outlier, {t}"));
    }
}

fn fits(load: Load, x: &Array2<f32>, params: &GaussianMixtureParams) -> [Fit; 2] {
    let wide = x.mapv(f64::from);
    [Samples::from_f32(x.view()).unwrap(), Samples::from_f64(wide.view()).unwrap()]
        .map(|samples| params.clone().check().unwrap().fit(load(samples).as_mut()).unwrap())
}

fn a_fit_with_an_outlier(load: Load) {
    let x = rounded(&with_outlier(500, 4, 1e8));
    let params = GaussianMixtureParams::default().n_components(2).covariance_type(CovarianceType::Diag);
    let [fit, _] = fits(load, &x, &params);
    let truth = reference(x.mapv(f64::from).view()).log_likelihood(&fit.mixture).unwrap();
    let total = load(Samples::from_f32(x.view()).unwrap()).log_likelihood(&fit.mixture).unwrap();
    assert!((total - truth).abs() <= 1e-3 * 500f64.sqrt(), "{total} for {truth}");
    // The four columns are standard normal: −½·4·ln(2πe) = −5.7 a sample. The outlier has its own component.
    assert!(total / 500.0 > -6.5, "{}", total / 500.0);
}

fn a_batch_of_both_kinds(load: Load) {
    let x = rounded(&with_outlier(200, 3, 1e6));
    let sets = [
        mixture(7, CovarianceType::Diag, 2, 3, 0.0),
        broad_and_tight(CovarianceType::Diag, 3, 1e6),
        mixture(8, CovarianceType::Diag, 2, 3, 0.0),
    ];
    let mut e = load(Samples::from_f32(x.view()).unwrap());
    let batch = e.log_likelihood_batch(&sets).unwrap();
    for (total, m) in batch.iter().zip(&sets) {
        let truth = reference(x.mapv(f64::from).view()).log_likelihood(m).unwrap();
        assert_close("one of a batch", *total, truth, 1e-6, 0.02);
    }
}

/// Checks at most two iterations more than float64, and a lower bound that falls by at most 10⁻⁶.
#[track_caller]
pub fn assert_as_float64(load: Load, x: &Array2<f32>, params: &GaussianMixtureParams, what: &str) {
    let [float32, float64] = fits(load, x, params);
    let (n, expected) = (float32.n_iter(), float64.n_iter());
    assert_eq!(float32.converged, float64.converged, "{what}");
    assert!(n <= expected + 2, "{what}: {n} iterations, float64 needs {expected}");
    assert_rises(what, &float32.lower_bounds, |_| 1e-6);
}

fn float32_fits_as_float64_does(load: Load) {
    for t in CovarianceType::ALL {
        for (seed, (n, d, k)) in [(300, 4, 3), (2000, 13, 5), (150, 30, 4), (60, 20, 3)].into_iter().enumerate() {
            let x = rounded(&blobs(seed as u64, n, d));
            let params = GaussianMixtureParams::default().n_components(k).covariance_type(t).tol(1e-6).max_iter(300);
            assert_as_float64(load, &x, &params, &format!("{t} N={n} D={d} K={k}"));
        }
    }
}
