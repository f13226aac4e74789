//! The posterior density: compares the change of variables with numerical Jacobians and textbook densities, and the
//! gradient with finite differences.
use crate::common::Nothing;
use gmm_host::{CovarianceType, CpuEvaluator, Evaluator, ReferenceEvaluator, Samples};
use gmm_mcmc::{CorrelationsPrior, DataSummary, Posterior, PosteriorModel, Prior, Target};
use libm::lgamma;
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::TAU;

fn data(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((n, d), || rng.random::<f64>() * 4.0 - 2.0)
}

fn summary(x: &Array2<f64>) -> DataSummary {
    DataSummary::new(&Samples::from_f64(x.view()).unwrap())
}

fn point(dim: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..dim).map(|_| rng.random::<f64>() * 2.0 - 1.0).collect()
}

const HALF_NORMAL: &str = r#"{"weights": {"dirichlet": {"concentration": [1.5, 2.5, 0.7]}},
    "means": {"normal": {"location": [[0.1, -0.3], [0.2, 0.4], [-1.0, 1.0]], "scale": [1.5, 0.8]}},
    "scales": {"half_normal": {"scale": 0.9}}, "correlations": {"lkj": {"shape": 1.7}}}"#;
const CONJUGATE: &str = r#"{"means": {"scaled_normal": {"location": 0.5, "precision": 0.3}},
    "scales": {"inverse_gamma": {"shape": 2.5, "scale": 1.3}}}"#;
const INVERSE_GAMMA: &str = r#"{"scales": {"inverse_gamma": {"shape": 2.5, "scale": 1.3}}}"#;

/// Every covariance type with each kind of prior available to it.
const CASES: [(CovarianceType, &str); 6] = [
    (CovarianceType::Diag, HALF_NORMAL),
    (CovarianceType::Diag, CONJUGATE),
    (CovarianceType::Spherical, HALF_NORMAL),
    (CovarianceType::Spherical, CONJUGATE),
    (CovarianceType::Full, HALF_NORMAL),
    (CovarianceType::Full, INVERSE_GAMMA),
];

/// The types of the model.
const TYPES: [CovarianceType; 3] = [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical];

fn of_three(covariance_type: CovarianceType, prior: &str, summary: &DataSummary) -> PosteriorModel {
    PosteriorModel::new(3, covariance_type, &Prior::from_json(prior).unwrap(), None, summary).unwrap()
}

fn det(mut a: Vec<Vec<f64>>) -> f64 {
    let n = a.len();
    let mut det = 1.0;
    for i in 0..n {
        let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
        if pivot != i {
            a.swap(i, pivot);
            det = -det;
        }
        det *= a[i][i];
        for r in i + 1..n {
            let f = a[r][i] / a[i][i];
            let pivot = a[i].clone();
            a[r].iter_mut().zip(pivot).for_each(|(x, p)| *x -= f * p);
        }
    }
    det
}

/// Returns free coordinates of the constrained space: weights but the last, means, standard deviations, correlations
/// below the diagonal.
fn coordinates(model: &PosteriorModel, theta: &[f64]) -> Vec<f64> {
    let (k, d) = (model.n_components(), model.n_features());
    let p = model.parameters(theta);
    let mut c = p[..k - 1].to_vec();
    c.extend(&p[k..k + k * d]);
    let covariances = &p[k + k * d..];
    if model.covariance_type() == CovarianceType::Full {
        for s in covariances.chunks(d * d) {
            c.extend((0..d).map(|i| s[i * d + i].sqrt()));
            for i in 0..d {
                c.extend((0..i).map(|j| s[i * d + j] / (s[i * d + i] * s[j * d + j]).sqrt()));
            }
        }
    } else {
        c.extend(covariances.iter().map(|v| v.sqrt()));
    }
    c
}

/// Returns the logarithm of the determinant of the Jacobian of [`coordinates`]. Its central differences err by about
/// h² = 10⁻¹⁰ in each of some twenty entries.
fn log_jacobian(model: &PosteriorModel, theta: &[f64]) -> f64 {
    let h = 1e-5;
    let columns = (0..model.dim()).map(|i| {
        let at = |step| coordinates(model, &moved(theta, i, step));
        at(h).iter().zip(at(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect()
    });
    det(columns.collect()).abs().ln()
}

fn moved(theta: &[f64], i: usize, step: f64) -> Vec<f64> {
    let mut theta = theta.to_vec();
    theta[i] += step;
    theta
}

/// Returns the log density of the three priors above by textbook formulas, over the coordinates of [`coordinates`], up
/// to the LKJ constant.
fn textbook(model: &PosteriorModel, theta: &[f64], prior: &str) -> f64 {
    let (k, d) = (3, 2);
    let p = model.parameters(theta);
    let (weights, means, covariances) = (&p[..k], &p[k..k + k * d], &p[k + k * d..]);
    let full = model.covariance_type() == CovarianceType::Full;
    let spherical = model.covariance_type() == CovarianceType::Spherical;
    let variance = |c: usize, j: usize| match model.covariance_type() {
        CovarianceType::Full => covariances[c * 4 + j * 3],
        CovarianceType::Spherical => covariances[c],
        _ => covariances[c * d + j],
    };
    let normal = |x: f64, m: f64, v: f64| -0.5 * (x - m) * (x - m) / v - 0.5 * (TAU * v).ln();
    let alpha = if prior == HALF_NORMAL { [1.5, 2.5, 0.7] } else { [1.0; 3] };
    let mut log_p = lgamma(alpha.iter().sum()) - alpha.iter().map(|&a| lgamma(a)).sum::<f64>();
    log_p += (0..k).map(|c| (alpha[c] - 1.0) * weights[c].ln()).sum::<f64>();
    let location = [[0.1, -0.3], [0.2, 0.4], [-1.0, 1.0]];
    for c in 0..k {
        for j in 0..d {
            log_p += match prior {
                HALF_NORMAL => normal(means[c * d + j], location[c][j], [2.25, 0.64][j]),
                CONJUGATE => normal(means[c * d + j], 0.5, variance(c, j) / 0.3),
                _ => normal(means[c * d + j], model.data().mean[j], model.data().std[j].powi(2)),
            };
            if j > 0 && spherical {
                continue;
            }
            let v = variance(c, j);
            log_p += match prior {
                HALF_NORMAL => 2f64.ln() + normal(v.sqrt(), 0.0, 0.81),
                // The density of σ² times d(σ²)/dσ.
                _ => 2.5 * 1.3f64.ln() - lgamma(2.5) - 3.5 * v.ln() - 1.3 / v + (2.0 * v.sqrt()).ln(),
            };
        }
        if full {
            let r = covariances[c * 4 + 1] / (variance(c, 0) * variance(c, 1)).sqrt();
            let shape = if prior == HALF_NORMAL { 1.7 } else { 1.0 };
            log_p += (shape - 1.0) * (1.0 - r * r).ln();
        }
    }
    log_p
}

#[test]
fn the_prior_is_the_textbooks_times_the_jacobian() {
    let x = data(9, 2, 1);
    let summary = summary(&x);
    for (covariance_type, prior) in CASES {
        let model = of_three(covariance_type, prior, &summary);
        let mut nothing = Nothing { n: 9, d: 2 };
        let mut posterior = Posterior::new(&model, &mut nothing).unwrap();
        let mut offset = None;
        for seed in 0..4 {
            let theta = point(model.dim(), seed);
            let got = posterior.log_density(&theta).unwrap();
            let difference = got - textbook(&model, &theta, prior) - log_jacobian(&model, &theta);
            // Only the constant of LKJ is left out.
            if covariance_type != CovarianceType::Full {
                assert!(difference.abs() < 1e-7, "{covariance_type} {prior}: {difference}");
            }
            let offset = *offset.get_or_insert(difference);
            assert!((difference - offset).abs() < 1e-7, "{covariance_type} {prior}: {difference} {offset}");
        }
    }
}

#[test]
fn lkj_is_the_determinant_in_three_dimensions() {
    // In two dimensions a partial correlation is a correlation. In three they differ, so the recursion matters.
    let x = data(9, 3, 2);
    let summary = summary(&x);
    let prior = |shape: f64| {
        let prior = Prior::default().correlations(CorrelationsPrior::Lkj { shape });
        PosteriorModel::new(1, CovarianceType::Full, &prior, None, &summary).unwrap()
    };
    let (one, three) = (prior(1.0), prior(3.0));
    let mut differences = Vec::new();
    for seed in 0..4 {
        let theta = point(one.dim(), seed);
        let s = one.parameters(&theta)[4..].to_vec();
        let r: Vec<Vec<f64>> =
            (0..3).map(|i| (0..3).map(|j| s[i * 3 + j] / (s[i * 4] * s[j * 4]).sqrt()).collect()).collect();
        let density = |model: &PosteriorModel| {
            let mut nothing = Nothing { n: 9, d: 3 };
            Posterior::new(model, &mut nothing).unwrap().log_density(&theta).unwrap()
        };
        differences.push(density(&three) - density(&one) - 2.0 * det(r.clone()).ln());
        // With shape 1 the density is uniform over correlation matrices, so only the Jacobian of θ → (σ, R) remains.
        let c = coordinates(&one, &theta);
        let flat: f64 = (0..3)
            .map(|j| {
                let (m, v) = (summary.mean[j], summary.std[j].powi(2));
                -0.5 * (c[j] - m).powi(2) / v - 0.5 * (TAU * v).ln() + 2f64.ln()
                    - 0.5 * c[3 + j].powi(2) / v
                    - 0.5 * (TAU * v).ln()
            })
            .sum();
        differences.push(density(&one) - flat - log_jacobian(&one, &theta));
    }
    for pair in differences.chunks(2) {
        // Rounding in the first; central differences in the second.
        assert!((pair[0] - differences[0]).abs() < 1e-11, "{differences:?}");
        assert!((pair[1] - differences[1]).abs() < 1e-7, "{differences:?}");
    }
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    let x = data(40, 2, 3);
    let samples = Samples::from_f64(x.view()).unwrap();
    check_gradient(&samples, |samples| Box::new(ReferenceEvaluator::new(samples)));
}

#[test]
fn the_gradient_under_missing_values_is_that_of_finite_differences() {
    // Every value of some rows, and every third value of the others.
    let mut x = data(60, 2, 3);
    x.iter_mut().enumerate().filter(|(i, _)| i % 3 == 1 || i % 40 < 2).for_each(|(_, v)| *v = f64::NAN);
    let samples = Samples::with_missing(x.view()).unwrap();
    check_gradient(&samples, |samples| Box::new(ReferenceEvaluator::new(samples)));
    check_gradient(&samples, |samples| Box::new(CpuEvaluator::new(samples).unwrap()));
}

fn check_gradient<'a>(samples: &Samples<'a>, load: impl Fn(Samples<'a>) -> Box<dyn Evaluator + 'a>) {
    let summary = DataSummary::new(samples);
    for (covariance_type, prior) in CASES {
        let model = of_three(covariance_type, prior, &summary);
        let mut evaluator = load(samples.clone());
        let mut posterior = Posterior::new(&model, evaluator.as_mut()).unwrap();
        for seed in 0..3 {
            let theta = point(model.dim(), 10 + seed);
            let mut gradient = vec![f64::NAN; model.dim()];
            let value = posterior.log_density_gradient(&theta, &mut gradient).unwrap();
            let alone = posterior.log_density(&theta).unwrap();
            // Both add the same numbers in a different order.
            assert!((value - alone).abs() < 1e-10, "{value} {alone}");
            for (i, &got) in gradient.iter().enumerate() {
                let mut at = |step| posterior.log_density(&moved(&theta, i, step)).unwrap();
                let h = 1e-4;
                // The slope is of fourth order. It errs by h⁴ times a fifth derivative and by ε·|value|/h, both about
                // 10⁻¹⁰.
                let slope = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
                let error = (got - slope).abs() / slope.abs().max(1.0);
                assert!(error < 1e-8, "{covariance_type} {prior} {i}: {got} {slope}");
            }
        }
    }
}

#[test]
fn a_point_becomes_a_mixture_and_the_same_point_again() {
    let x = data(9, 3, 4);
    let summary = summary(&x);
    for covariance_type in TYPES {
        for k in [1, 2, 5] {
            let model = PosteriorModel::new(k, covariance_type, &Prior::default(), None, &summary).unwrap();
            let theta = point(model.dim(), 7);
            let again = model.unconstrain(&model.mixture(&theta).unwrap()).unwrap();
            for (a, b) in theta.iter().zip(&again) {
                // A few roundings, which are magnified if a correlation is near 1.
                assert!((a - b).abs() < 1e-12, "{covariance_type} {k}: {a} {b}");
            }
        }
    }
}

/// Evaluators that make Metropolis steps themselves get the model's own mixtures and prior.
#[test]
fn the_metropolis_target_has_the_same_density() {
    let x = data(9, 2, 4);
    let summary = summary(&x);
    for (covariance_type, prior) in CASES {
        let model = of_three(covariance_type, prior, &summary);
        let Some(target) = model.metropolis_target() else {
            assert_eq!(covariance_type, CovarianceType::Full);
            continue;
        };
        assert_eq!(target.dim(), model.dim());
        let mut nothing = Nothing { n: 9, d: 2 };
        let mut posterior = Posterior::new(&model, &mut nothing).unwrap();
        for seed in 0..3 {
            let theta = point(model.dim(), seed);
            let (got, expected) = (target.mixture(&theta).unwrap(), model.mixture(&theta).unwrap());
            assert_eq!((got.means(), got.covariances()), (expected.means(), expected.covariances()));
            for (a, b) in got.weights().iter().zip(expected.weights()) {
                // One side multiplies probabilities, the other adds their logarithms.
                assert!((a / b - 1.0).abs() < 1e-14, "{a} {b}");
            }
            let sum = target.log_prior(&theta, &got);
            let log_prior = posterior.log_density(&theta).unwrap();
            assert!((sum - log_prior).abs() < 1e-12 * log_prior.abs(), "{covariance_type} {prior}: {sum} {log_prior}");
        }
    }
}

#[test]
fn draws_are_recorded_in_order() {
    let x = data(9, 2, 4);
    let summary = summary(&x);
    for covariance_type in TYPES {
        let model = |order| PosteriorModel::new(4, covariance_type, &Prior::default(), order, &summary).unwrap();
        let (free, ordered) = (model(None), model(Some(1)));
        let theta = point(free.dim(), 3);
        let (before, after) = (free.parameters(&theta), ordered.parameters(&theta));
        let size = (before.len() - 12) / 4;
        // The numbers of a component: its weight, its two means and its covariance.
        let component = |p: &[f64], c: usize| -> Vec<f64> {
            [&p[c..c + 1], &p[4 + 2 * c..6 + 2 * c], &p[12 + size * c..12 + size * (c + 1)]].concat()
        };
        let mut expected: Vec<Vec<f64>> = (0..4).map(|c| component(&before, c)).collect();
        assert!(!expected.iter().is_sorted_by_key(|c| c[2]));
        expected.sort_by(|a, b| a[2].total_cmp(&b[2]));
        assert_eq!((0..4).map(|c| component(&after, c)).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn extreme_points_have_no_density_and_do_no_harm() {
    let x = data(9, 2, 5);
    let samples = Samples::from_f64(x.view()).unwrap();
    for covariance_type in TYPES {
        let model =
            PosteriorModel::new(3, covariance_type, &Prior::default(), Some(0), &DataSummary::new(&samples)).unwrap();
        let mut evaluator = ReferenceEvaluator::new(samples.clone());
        let mut posterior = Posterior::new(&model, &mut evaluator).unwrap();
        let good = point(model.dim(), 1);
        for value in [1e3, -1e3, 1e300, -1e300] {
            for i in 0..model.dim() {
                let mut theta = good.clone();
                theta[i] = value;
                let v = posterior.log_density(&theta).unwrap();
                assert!(v.is_finite() || v == f64::NEG_INFINITY, "{covariance_type} {i} {value}: {v}");
                // A good point has the same log density in a batch with the extreme point as alone.
                let mut out = [0.0; 3];
                posterior.log_density_batch(&[&good[..], &theta, &good].concat(), &mut out).unwrap();
                let alone = posterior.log_density(&good).unwrap();
                assert_eq!((out[0].to_bits(), out[2].to_bits()), (alone.to_bits(), alone.to_bits()));
                assert_eq!(out[1].to_bits(), v.to_bits());
            }
        }
    }
}
