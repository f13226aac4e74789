//! The E-step of a backend against the reference, for every covariance type and element type.
use super::*;
use ndarray::array;

pub fn both(x: &Array2<f64>) -> (Array2<f64>, Array2<f32>) {
    let single = x.mapv(|v| v as f32);
    (single.mapv(f64::from), single)
}

/// Returns the standard deviations of the reference's components, the unit of errors of means.
fn deviations(truth: &Statistics) -> Array2<f64> {
    let d = truth.n_features();
    Array2::from_shape_fn(truth.means().dim(), |(c, j)| {
        let divisor = match truth.covariance_type() {
            CovarianceType::Tied => truth.counts().sum(),
            CovarianceType::Spherical => truth.counts()[c] * d as f64,
            _ => truth.counts()[c],
        };
        // All mixtures here have variances of about one; a component of one sample has none.
        (truth.scatter().variance(c, j) / divisor).sqrt().max(1.0)
    })
}

/// Compares statistics, with a tolerance in natural units: the total weight for counts, the component's standard
/// deviation for means, the diagonal's scatter (at least that of variance one) for scatter. Skips the means of
/// components with less than 1e-3 of the weight, which are divided by the count.
pub fn assert_statistics_agree(what: &str, got: &Statistics, truth: &Statistics, tolerance: f64) {
    let (weight, d) = (truth.weight(), truth.n_features());
    let close = |name: String, a: f64, b: f64, unit: f64| {
        assert!((a - b).abs() <= tolerance * unit, "{what}: {name}: {a} against {b}, unit {unit:e}");
    };
    assert_eq!(got.weight(), weight, "{what}");
    close("log-likelihood".into(), got.log_likelihood(), truth.log_likelihood(), truth.log_likelihood().abs() + weight);
    let sigma = deviations(truth);
    for c in 0..truth.n_components() {
        close(format!("count {c}"), got.counts()[c], truth.counts()[c], weight);
        if truth.counts()[c] < 1e-3 * weight {
            continue;
        }
        for j in 0..d {
            close(format!("mean {c}, {j}"), got.means()[[c, j]], truth.means()[[c, j]], sigma[[c, j]]);
        }
    }
    let (k, shape) = (truth.n_components(), truth.scatter().shape());
    assert_eq!(got.scatter().shape(), shape, "{what}");
    // Of a matrix, row and column; of variances, the feature twice.
    let each = got.scatter().iter().count() / if truth.covariance_type() == CovarianceType::Tied { 1 } else { k };
    for (at, (a, b)) in got.scatter().iter().zip(truth.scatter().iter()).enumerate() {
        let (c, at) = (at / each, at % each);
        let (i, j) = if truth.covariance_type().has_matrices() { (at / d, at % d) } else { (at, at) };
        let count = if truth.covariance_type() == CovarianceType::Tied { weight } else { truth.counts()[c] };
        if count >= 1e-3 * weight {
            let unit = (truth.scatter().variance(c, i) * truth.scatter().variance(c, j)).sqrt().max(count);
            close(format!("scatter {c}, {i}, {j}"), a, b, unit);
        }
    }
}

/// Returns the largest differences in norm, of the counts and of the scatter over the counts.
#[allow(dead_code)]
pub fn errors(got: &Statistics, truth: &Statistics) -> String {
    let relative = |a: Vec<f64>, b: Vec<f64>| {
        let (a, b) = (Array1::from(a), Array1::from(b));
        ((&a - &b).dot(&(&a - &b)) / b.dot(&b)).sqrt()
    };
    let counts = relative(got.counts().to_vec(), truth.counts().to_vec());
    let means = relative(Vec::from_iter(got.means().to_owned()), Vec::from_iter(truth.means().to_owned()));
    let scatter = relative(got.scatter().iter().collect(), truth.scatter().iter().collect());
    format!("counts {counts:.1e}, means {means:.1e}, scatter {scatter:.1e}")
}

/// An exponent of some hundreds has an error of some 10⁻⁵ in float32, the relative error of a responsibility.
pub const FLOAT32: f64 = 1e-4;

pub type Load = Box<dyn for<'a> Fn(Samples<'a>) -> Box<dyn Evaluator + 'a>>;

/// A backend under test, with its tolerances.
pub struct Subject {
    pub name: String,
    pub load: Load,
    /// The tolerance for float64 samples; for float32 see [`FLOAT32`] and the cases.
    pub float64: f64,
    /// The relative tolerance of the statistics' log-likelihood against the separate one: float64, float32.
    pub totals: (f64, f64),
}

pub fn check(
    subjects: &[Subject],
    what: &str,
    x: &Array2<f64>,
    weights: Option<&Array1<f64>>,
    m: &Mixture,
    float32: f64,
) {
    let (double, single) = both(x);
    let truth = match weights {
        None => reference(double.view()).statistics(m).unwrap(),
        Some(w) => weighted(double.view(), w.view()).statistics(m).unwrap(),
    };
    for float64 in [true, false] {
        let samples = if float64 { Samples::from_f64(double.view()) } else { Samples::from_f32(single.view()) };
        let samples = match weights {
            None => samples.unwrap(),
            Some(w) => samples.unwrap().with_weights(w.view()).unwrap(),
        };
        for subject in subjects {
            let mut e = (subject.load)(samples.clone());
            let got = e.statistics(m).unwrap();
            let what = format!("{what}, {}, {}, float64 {float64}", m.covariance_type(), subject.name);
            assert_statistics_agree(&what, &got, &truth, if float64 { subject.float64 } else { float32 });
            assert_eq!(got, e.statistics(m).unwrap(), "{what}: the same bits every time");
            let total = e.log_likelihood(m).unwrap();
            let allowed = if float64 { subject.totals.0 } else { subject.totals.1 };
            let apart = (got.log_likelihood() - total).abs();
            assert!(apart <= allowed * total.abs().max(1.0), "{what}: totals {apart:e} apart");
        }
    }
}

pub fn every_type_and_size(subjects: &[Subject]) {
    let all = "1x1x1 3x2x2 17x4x3 64x5x2 100x13x8 130x16x5 257x3x19 300x17x4 515x33x2 200x70x3 900x40x3 5000x6x4";
    for (n, d, k) in sizes(all) {
        for t in CovarianceType::ALL {
            let x = normal((n + d) as u64, n, d, 0.4);
            let m = mixture((k + d) as u64, t, k, d, 0.4);
            let what = format!("N={n} D={d} K={k}");
            check(subjects, &what, &x, None, &m, FLOAT32);
            let w = Array1::from_shape_fn(n, |i| if i == 0 { 1.5 } else { (i % 5) as f64 * 0.4 });
            check(subjects, &format!("{what} weighted"), &x, Some(&w), &m, FLOAT32);
        }
    }
}

pub fn narrow_clusters_far_from_each_other(subjects: &[Subject]) {
    // 10⁴ standard deviations apart: E[x²] − E[x]² in float32 would have no correct digit.
    let mut x = normal(40, 3000, 4, 0.0);
    let centres = [[0.0, 0.0, 0.0, 0.0], [1e4, -1e4, 0.0, 1e4], [-1e4, 1e4, 1e4, 0.0]];
    for (i, mut row) in x.outer_iter_mut().enumerate() {
        row += &Array1::from_iter(centres[i % 3]);
    }
    let (x, _) = both(&x);
    let means = Array2::from_shape_fn((3, 4), |(c, j)| centres[c][j] + 0.1);
    for t in CovarianceType::ALL {
        let unit = mixture(41, t, 3, 4, 0.0);
        let m = with_means(&unit, means.clone());
        // 10⁴ standard deviations round the data and a mean to 10⁻³ of one.
        check(subjects, "narrow clusters", &x, None, &m, 1e-3);
    }
}

pub fn overlapping_clusters_far_from_the_centre(subjects: &[Subject]) {
    // Two components share the samples on one side, one has those on the other.
    let mut x = normal(42, 2000, 3, 0.0);
    for (i, mut row) in x.outer_iter_mut().enumerate() {
        row += if i % 2 == 0 { 3000.0 } else { -3000.0 };
    }
    let (x, _) = both(&x);
    let means = array![[3000.3, 3000.0, 2999.5], [2999.5, 3000.3, 3000.0], [-3000.0, -3000.0, -3000.2]];
    for t in CovarianceType::ALL {
        let unit = mixture(43, t, 3, 3, 0.0);
        let m = with_means(&unit, means.clone());
        // As above, at 3000.
        check(subjects, "overlapping clusters", &x, None, &m, 1e-3);
    }
}

pub fn far_samples_and_dead_components(subjects: &[Subject]) {
    let mut x = normal(44, 700, 3, 0.0);
    x.row_mut(5).fill(1e3);
    x.row_mut(600).fill(-1e3);
    for t in CovarianceType::ALL {
        let unit = mixture(45, t, 3, 3, 0.0);
        // A component of weight zero with a mean far from all samples.
        let mut means = unit.means().to_owned();
        means.row_mut(1).fill(1e6);
        let m = Mixture::new(array![0.3, 0.0, 0.7], means, unit.covariances().clone()).unwrap();
        check(subjects, "far and dead", &x, None, &m, FLOAT32);
        for subject in subjects {
            let got = (subject.load)(Samples::from_f64(x.view()).unwrap()).statistics(&m).unwrap();
            assert_eq!(got.counts()[1], 0.0, "{}", subject.name);
        }
    }
}

pub fn weights_of_any_size(subjects: &[Subject]) {
    let (x, single) = both(&normal(46, 500, 4, 0.0));
    let mut w = Array1::from_shape_fn(500, |i| 0.1 + (i % 3) as f64);
    // Its inverse overflows in float32.
    w[7] = 1e-40;
    for t in CovarianceType::ALL {
        let m = mixture(47, t, 3, 4, 0.0);
        let truth = weighted(x.view(), w.view()).statistics(&m).unwrap();
        // Beyond the range of float32, in either direction.
        for (factor, subject) in [1e-100, 1e-45, 1e45, 1e100].iter().flat_map(|f| subjects.iter().map(move |s| (*f, s)))
        {
            let w = &w * factor;
            let samples = Samples::from_f32(single.view()).unwrap().with_weights(w.view()).unwrap();
            let mut e = (subject.load)(samples.clone());
            let got = e.statistics(&m).unwrap();
            let got = Statistics::scaled(got, 1.0 / factor);
            // The total weight is a sum of rounded products.
            assert!((got.weight() / truth.weight() - 1.0).abs() < 1e-13);
            let counts = got.counts().iter().zip(truth.counts()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(counts < 1e-5 * truth.weight(), "{}, {t}, {factor}: {counts}", subject.name);
            let rows = e.rows(&[0, 1]).unwrap();
            assert!((rows.weights[1] / w[1] - 1.0).abs() < 1e-15);
        }
    }
}
