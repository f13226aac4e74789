//! Variational inference: its steps and bound against the written-out formulas, and its agreement with EM.
use crate::common::*;
use gmm_host::{
    BayesianGaussianMixtureParams, CovarianceType, Covariances, CpuEvaluator, Error, Evaluator, Fit, Freeze,
    InitParams, Predict, Samples, Statistics, StepwiseEm, StochasticVariational, VariationalMixture, VariationalPrior,
    WeightConcentrationPriorType,
};
use nalgebra::{DMatrix, DVector};
use ndarray::{Array1, Array2, array};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::function::beta::ln_beta;
use statrs::function::gamma::{digamma, ln_gamma};
use std::f64::consts::{LN_2, PI, TAU};

fn params(k: usize, t: CovarianceType, kind: WeightConcentrationPriorType) -> BayesianGaussianMixtureParams {
    BayesianGaussianMixtureParams::new(k).covariance_type(t).weight_concentration_prior_type(kind)
}

fn fit(params: BayesianGaussianMixtureParams, evaluator: &mut dyn Evaluator) -> Fit<VariationalMixture> {
    params.check().unwrap().fit(evaluator).unwrap()
}

/// All covariance types with both priors.
fn kinds() -> impl Iterator<Item = (CovarianceType, WeightConcentrationPriorType)> {
    CovarianceType::ALL
        .into_iter()
        .flat_map(|t| WeightConcentrationPriorType::ALL.into_iter().map(move |kind| (t, kind)))
}

/// Returns responsibilities (N, K) whose rows sum to one.
fn responsibilities(seed: u64, n: usize, k: usize) -> Array2<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut r = Array2::from_shape_simple_fn((n, k), || rng.random::<f64>().powi(3) + 1e-3);
    r.outer_iter_mut().for_each(|mut row| {
        let sum = row.sum();
        row /= sum;
    });
    r
}

/// The posterior with matrices for all covariance types, by Bishop (2006), 10.2, restricted by the types.
struct Plain<'a> {
    t: CovarianceType,
    prior: &'a VariationalPrior,
    concentration: Vec<(f64, f64)>,
    beta: Vec<f64>,
    nu: Vec<f64>,
    m: Vec<DVector<f64>>,
    w: Vec<DMatrix<f64>>,
}

fn row(x: &Array2<f64>, i: usize) -> DVector<f64> {
    DVector::from_iterator(x.ncols(), x.row(i).iter().copied())
}

fn matrix_of_prior(prior: &VariationalPrior) -> DMatrix<f64> {
    let d = prior.n_features();
    let values: Vec<f64> = prior.covariance.iter().collect();
    match prior.covariance_type() {
        CovarianceType::Full | CovarianceType::Tied => DMatrix::from_row_slice(d, d, &values),
        CovarianceType::Diag => DMatrix::from_diagonal(&DVector::from_vec(values)),
        _ => DMatrix::identity(d, d) * values[0],
    }
}

/// Returns the nearest matrix of the form that a covariance type has for each component.
fn restricted(t: CovarianceType, a: &DMatrix<f64>) -> DMatrix<f64> {
    match t {
        CovarianceType::Diag => DMatrix::from_diagonal(&a.diagonal()),
        CovarianceType::Spherical => DMatrix::identity(a.nrows(), a.nrows()) * (a.trace() / a.nrows() as f64),
        _ => a.clone(),
    }
}

impl<'a> Plain<'a> {
    /// Makes the M-step.
    fn new(x: &Array2<f64>, r: &Array2<f64>, prior: &'a VariationalPrior, reg_covar: f64) -> Self {
        let ((n, k), t, d) = (r.dim(), prior.covariance_type(), x.ncols());
        let counts: Vec<f64> = (0..k).map(|c| r.column(c).sum()).collect();
        let m0 = DVector::from_vec(prior.mean.to_vec());
        let gamma = prior.weight_concentration;
        let concentration = (0..k).map(|c| match prior.weight_concentration_type {
            WeightConcentrationPriorType::DirichletProcess => {
                (1.0 + counts[c], gamma + counts[c + 1..].iter().sum::<f64>())
            }
            WeightConcentrationPriorType::DirichletDistribution => (gamma + counts[c], 0.0),
        });
        let concentration = concentration.collect();
        let (mut beta, mut nu, mut m, mut inverses) = (vec![], vec![], vec![], vec![]);
        for c in 0..k {
            let sum = (0..n).fold(DVector::zeros(d), |sum, i| sum + row(x, i) * r[[i, c]]);
            let mean = &sum / counts[c];
            beta.push(prior.mean_precision + counts[c]);
            nu.push(prior.degrees_of_freedom + counts[c]);
            m.push((&m0 * prior.mean_precision + sum) / beta[c]);
            let mut inverse = matrix_of_prior(prior) + DMatrix::identity(d, d) * (counts[c] * reg_covar);
            for i in 0..n {
                let away = row(x, i) - &mean;
                inverse += &away * away.transpose() * r[[i, c]];
            }
            let away = &mean - &m0;
            inverse += &away * away.transpose() * (prior.mean_precision * counts[c] / beta[c]);
            inverses.push(inverse);
        }
        if t == CovarianceType::Tied {
            let mean = inverses.iter().sum::<DMatrix<f64>>() / k as f64;
            inverses = vec![mean; k];
            nu = vec![nu.iter().sum::<f64>() / k as f64; k];
        }
        let w = inverses.iter().map(|a| restricted(t, a).try_inverse().unwrap()).collect();
        Self { t, prior, concentration, beta, nu, m, w }
    }

    /// Takes the parameters of a posterior.
    fn of(mixture: &'a VariationalMixture) -> Self {
        let (t, k, d) = (mixture.covariance_type(), mixture.n_components(), mixture.n_features());
        let (beta, nu) = (mixture.mean_precision().to_vec(), mixture.degrees_of_freedom().to_vec());
        let density = mixture.density();
        let of_component = |c: usize| DMatrix::from_fn(d, d, |i, j| density.matrix(c)[[i, j]]);
        let w = (0..k).map(|c| (of_component(c) * nu[c]).try_inverse().unwrap()).collect();
        let pair = |v: ndarray::ArrayView1<'_, f64>| (v[0], v.get(1).copied().unwrap_or(0.0));
        let concentration = mixture.weight_concentration().columns().into_iter().map(pair).collect();
        let m = mixture.means().outer_iter().map(|m| DVector::from_vec(m.to_vec())).collect();
        Self { t, prior: mixture.prior(), concentration, beta, nu, m, w }
    }

    /// Returns E[log π], E[log v] and E[log (1 − v)] of a component.
    fn log_weight(&self, c: usize) -> (f64, f64, f64) {
        let stick = |c: usize| {
            let (a, b) = self.concentration[c];
            (digamma(a) - digamma(a + b), digamma(b) - digamma(a + b))
        };
        match self.prior.weight_concentration_type {
            WeightConcentrationPriorType::DirichletProcess => {
                let (taken, left) = stick(c);
                (taken + (0..c).map(|j| stick(j).1).sum::<f64>(), taken, left)
            }
            WeightConcentrationPriorType::DirichletDistribution => {
                let sum: f64 = self.concentration.iter().map(|(a, _)| a).sum();
                (digamma(self.concentration[c].0) - digamma(sum), 0.0, 0.0)
            }
        }
    }

    /// Returns E[log |Λ|].
    fn log_det(&self, c: usize) -> f64 {
        let d = self.m[c].len();
        let digammas: f64 = (0..d).map(|i| digamma(0.5 * (self.nu[c] - i as f64))).sum();
        digammas + d as f64 * LN_2 + self.w[c].determinant().ln()
    }

    /// Returns the logarithms of the unnormalised responsibilities (N, K).
    fn log_rho(&self, x: &Array2<f64>) -> Array2<f64> {
        let d = x.ncols() as f64;
        Array2::from_shape_fn((x.nrows(), self.m.len()), |(i, c)| {
            let away = row(x, i) - &self.m[c];
            let quadratic = d / self.beta[c] + self.nu[c] * (away.transpose() * &self.w[c] * &away)[0];
            self.log_weight(c).0 + 0.5 * (self.log_det(c) - d * TAU.ln() - quadratic)
        })
    }

    /// Returns the bound, term by term: equations 10.71 to 10.77.
    fn elbo(&self, x: &Array2<f64>, r: &Array2<f64>) -> f64 {
        let (p, k, d) = (self.prior, self.m.len(), x.ncols() as f64);
        let m0 = DVector::from_vec(p.mean.to_vec());
        let of_prior = matrix_of_prior(p);
        let log_b = |log_det: f64, nu: f64| {
            let gammas: f64 = (0..x.ncols()).map(|i| ln_gamma(0.5 * (nu - i as f64))).sum();
            -0.5 * nu * log_det - (0.5 * nu * d * LN_2 + d * (d - 1.0) / 4.0 * PI.ln() + gammas)
        };
        let mut sum = -r.iter().filter(|r| **r > 0.0).map(|r| r * r.ln()).sum::<f64>();
        for c in 0..k {
            let (log_weight, taken, left) = self.log_weight(c);
            let (log_det, nu, beta, w) = (self.log_det(c), self.nu[c], self.beta[c], &self.w[c]);
            for i in 0..x.nrows() {
                let away = row(x, i) - &self.m[c];
                let quadratic = nu * (away.transpose() * w * &away)[0];
                sum += r[[i, c]] * (0.5 * (log_det - d / beta - quadratic - d * TAU.ln()) + log_weight);
            }
            let away = &self.m[c] - &m0;
            let quadratic = p.mean_precision * nu * (away.transpose() * w * &away)[0];
            sum += 0.5 * (d * (p.mean_precision / TAU).ln() + log_det - d * p.mean_precision / beta - quadratic);
            sum += log_b(-of_prior.determinant().ln(), p.degrees_of_freedom);
            sum += 0.5 * (p.degrees_of_freedom - d - 1.0) * log_det - 0.5 * nu * (&of_prior * w).trace();
            let entropy = -log_b(w.determinant().ln(), nu) - 0.5 * (nu - d - 1.0) * log_det + 0.5 * nu * d;
            sum -= 0.5 * log_det + 0.5 * d * (beta / TAU).ln() - 0.5 * d - entropy;
            if p.weight_concentration_type == WeightConcentrationPriorType::DirichletProcess {
                let ((a, b), gamma) = (self.concentration[c], p.weight_concentration);
                sum += gamma.ln() + (gamma - 1.0) * left;
                sum -= (a - 1.0) * taken + (b - 1.0) * left - ln_beta(a, b);
            } else {
                sum += (p.weight_concentration - self.concentration[c].0) * log_weight;
            }
        }
        if p.weight_concentration_type == WeightConcentrationPriorType::DirichletDistribution {
            let alphas: Vec<f64> = self.concentration.iter().map(|(a, _)| *a).collect();
            let log_c = |a: &[f64]| ln_gamma(a.iter().sum()) - a.iter().map(|a| ln_gamma(*a)).sum::<f64>();
            sum += log_c(&vec![p.weight_concentration; k]) - log_c(&alphas);
        }
        sum
    }

    fn assert_is(&self, what: &str, found: &VariationalMixture, tolerance: f64) {
        let of_process = |(a, b): &(f64, f64)| [*a, *b];
        let concentration: Vec<f64> = match self.prior.weight_concentration_type {
            WeightConcentrationPriorType::DirichletProcess => self.concentration.iter().flat_map(of_process).collect(),
            WeightConcentrationPriorType::DirichletDistribution => self.concentration.iter().map(|(a, _)| *a).collect(),
        };
        let got = found.weight_concentration().t().iter().copied().collect::<Vec<_>>();
        assert_all_close(what, got, concentration, tolerance, 0.0);
        assert_all_close(what, found.mean_precision(), &self.beta, tolerance, 0.0);
        assert_all_close(what, found.degrees_of_freedom(), &self.nu, tolerance, 0.0);
        let means = self.m.iter().flat_map(|m| m.iter().copied());
        assert_all_close(what, found.means(), means, tolerance, 1.0);
        let inverses = self.w.iter().zip(&self.nu).map(|(w, nu)| (w * *nu).try_inverse().unwrap());
        let inverses: Vec<DMatrix<f64>> = inverses.collect();
        let each: Vec<f64> = match self.t {
            CovarianceType::Full => inverses.iter().flat_map(|v| v.iter().copied()).collect(),
            CovarianceType::Tied => inverses[0].iter().copied().collect(),
            CovarianceType::Diag => {
                inverses.iter().flat_map(|v| v.diagonal().iter().copied().collect::<Vec<_>>()).collect()
            }
            _ => inverses.iter().map(|v| v[(0, 0)]).collect(),
        };
        assert_all_close(what, found.covariances().iter(), each, tolerance, 1.0);
    }
}

/// Returns r = ρ over its sum.
fn normalised(mut log_rho: Array2<f64>) -> Array2<f64> {
    for mut row in log_rho.outer_iter_mut() {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.mapv_inplace(|v| (v - max).exp());
        let sum = row.sum();
        row /= sum;
    }
    log_rho
}

#[test]
fn the_steps_and_the_bound_are_those_of_the_formulas() {
    let (x, k) = (blobs(4, 60, 3), 4);
    let r = responsibilities(5, 60, k);
    for (t, kind) in kinds() {
        for reg_covar in [0.0, 1e-2] {
            let what = format!("{t} {kind} {reg_covar}");
            let statistics = Statistics::from_responsibilities(x.view(), r.view(), t).unwrap();
            let params = params(k, t, kind).reg_covar(reg_covar).tol(0.0).start_statistics(statistics);
            let start = fit(params.clone().max_iter(0), &mut reference(x.view())).mixture;
            let mut plain = Plain::new(&x, &r, start.prior(), reg_covar);
            // Both are float64; the plain one's inverses lose a few digits.
            plain.assert_is(&what, &start, 1e-12);
            let found = fit(params.max_iter(4), &mut reference(x.view()));
            let mut bounds = Vec::new();
            for _ in 0..4 {
                let r = normalised(plain.log_rho(&x));
                plain = Plain::new(&x, &r, start.prior(), reg_covar);
                bounds.push(plain.elbo(&x, &r));
            }
            plain.assert_is(&what, &found.mixture, 1e-10);
            if reg_covar == 0.0 {
                let constant = found.mixture.constant_terms();
                let full = found.lower_bounds.iter().map(|bound| bound + constant);
                assert_all_close(&what, full, bounds, 1e-11, 100.0);
                assert_eq!(found.elbo(), found.lower_bounds[3] + constant);
            } else {
                // Excess scatter only lowers the bound.
                assert!(found.elbo() < bounds[3], "{what}");
            }
            let scores = found.mixture.score_samples(&x).unwrap();
            for (score, log_rho) in scores.iter().zip(plain.log_rho(&x).outer_iter()) {
                let max = log_rho.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let expected = max + log_rho.iter().map(|v| (v - max).exp()).sum::<f64>().ln();
                assert_close(&what, *score, expected, 1e-9, 1.0);
            }
        }
    }
}

/// scikit-learn's prior: the mean and the covariance of the samples.
#[test]
fn what_is_not_given_of_a_prior_is_of_the_samples() {
    let x = normal(3, 50, 2, 7.0) * &array![1.0, 30.0];
    for (t, kind) in kinds() {
        let found = fit(params(3, t, kind).max_iter(0), &mut reference(x.view()));
        let prior = found.mixture.prior();
        assert_eq!((prior.weight_concentration, prior.mean_precision), (1.0 / 3.0, 1.0));
        assert_eq!((prior.degrees_of_freedom, prior.weight_concentration_type), (2.0, kind));
        let mean = x.mean_axis(ndarray::Axis(0)).unwrap();
        let away = &x - &mean;
        let covariance = away.t().dot(&away) / 49.0;
        let expected: Vec<f64> = match t {
            CovarianceType::Full | CovarianceType::Tied => covariance.iter().copied().collect(),
            CovarianceType::Diag => covariance.diag().to_vec(),
            _ => vec![covariance.diag().mean().unwrap()],
        };
        assert_all_close("mean", &prior.mean, &mean, 1e-13, 0.0);
        assert_all_close("covariance", prior.covariance.iter(), expected, 1e-12, 0.0);
    }
}

#[test]
fn the_bound_never_falls() {
    let mut steps = 0;
    for seed in 0..4 {
        let (n, d) = (40 + 30 * seed as usize, 1 + seed as usize);
        let x = blobs(seed, n, d) + normal(seed + 10, n, d, 0.0) * 2.0;
        let holes = if d > 1 { with_holes(seed, x.clone(), 0.2) } else { x.clone() };
        for (t, kind) in kinds() {
            for missing in [false, true] {
                let samples = Samples::with_missing(if missing { holes.view() } else { x.view() }).unwrap();
                let mut evaluator = CpuEvaluator::new(samples).unwrap();
                let params = params(6, t, kind).reg_covar(0.0).tol(0.0).init_params(InitParams::Random).max_iter(20);
                let fit = fit(params.weight_concentration_prior(0.05).random_state(seed), &mut evaluator);
                // Rounding leaves the bound, a difference of sums, this exact.
                assert_rises(&format!("{t} {kind} {missing}"), &fit.lower_bounds, |v| 1e-11 * v.abs().max(1e3));
                steps += fit.n_iter() - 1;
            }
        }
    }
    assert_eq!(steps, 4 * 8 * 2 * 19);
}

/// Returns all ways to freeze some but not all parts of a posterior.
fn freezes() -> impl Iterator<Item = Freeze> {
    (1..7).map(|bits| Freeze {
        weights: (bits & 1 > 0).into(),
        means: (bits & 2 > 0).into(),
        covariances: (bits & 4 > 0).into(),
        ..Freeze::default()
    })
}

#[test]
fn what_is_frozen_stays_and_the_bound_never_falls() {
    let (n, k) = (80, 4);
    let x = blobs(3, n, 2) + normal(13, n, 2, 0.0) * 2.0;
    let holes = with_holes(0, x.clone(), 0.2);
    let mut steps = 0;
    for (t, kind) in kinds() {
        let params = params(k, t, kind).tol(0.0).max_iter(15).init_params(InitParams::Random);
        let start = fit(params.clone().max_iter(1), &mut reference(x.view())).mixture;
        for (freeze, reg_covar) in freezes().flat_map(|freeze| [(freeze.clone(), 0.0), (freeze, 1e-2)]) {
            let params = params.clone().reg_covar(reg_covar).freeze(freeze.clone()).start(start.clone());
            for samples in [Samples::from_f64(x.view()), Samples::with_missing(holes.view())] {
                let samples = samples.unwrap();
                let found = fit(params.clone(), &mut CpuEvaluator::new(samples).unwrap());
                // The tolerance without freezing.
                let what = format!("{t} {kind} {freeze:?}");
                assert_rises(&what, &found.lower_bounds, |v| 1e-11 * v.abs().max(1e3));
                steps += found.n_iter() - 1;
                let (new, old) = (&found.mixture, &start);
                assert_eq!(new.weight_concentration() == old.weight_concentration(), freeze.weights.any());
                assert_eq!(new.means() == old.means(), freeze.means.any());
                assert_eq!(new.mean_precision() == old.mean_precision(), freeze.means.any());
                assert_eq!(new.covariances() == old.covariances(), freeze.covariances.any());
            }
        }
    }
    assert_eq!(steps, 8 * 6 * 2 * 2 * 14);
}

#[test]
fn the_bound_of_a_fit_with_frozen_parts_is_that_of_the_formulas() {
    let (x, k) = (blobs(4, 60, 3), 3);
    for (t, kind) in kinds() {
        let params = params(k, t, kind).tol(0.0).reg_covar(0.0).init_params(InitParams::Random);
        let start = fit(params.clone().max_iter(2), &mut reference(x.view())).mixture;
        for freeze in freezes() {
            let params = params.clone().freeze(freeze.clone()).start(start.clone()).max_iter(1);
            let found = fit(params, &mut reference(x.view()));
            let r = normalised(Plain::of(&start).log_rho(&x));
            let expected = Plain::of(&found.mixture).elbo(&x, &r);
            assert_close(&format!("{t} {kind} {freeze:?}"), found.elbo(), expected, 1e-11, 100.0);
        }
    }
}

fn numbers(mixture: &VariationalMixture) -> Vec<f64> {
    let (beta, nu) = (mixture.mean_precision().to_vec(), mixture.degrees_of_freedom().to_vec());
    let matrices = [mixture.weight_concentration(), mixture.means()].map(|v| v.iter().copied().collect());
    matrices.into_iter().chain([beta, nu, mixture.covariances().iter().collect()]).flat_map(|v: Vec<f64>| v).collect()
}

#[test]
fn one_chunk_of_everything_is_one_step_of_a_fit() {
    let x = blobs(18, 300, 2);
    for (t, kind) in kinds() {
        for freeze in freezes().chain([Freeze::default()]) {
            let params = params(4, t, kind).init_params(InitParams::Random).tol(0.0).freeze(freeze.clone());
            let start = fit(params.clone().max_iter(0), &mut reference(x.view())).mixture;
            let once = fit(params.start(start.clone()).max_iter(1), &mut reference(x.view()));
            let mut stream = StochasticVariational::new(start, 0.6, 1e-6, freeze).unwrap();
            let bound = stream.partial_fit(&mut reference(x.view())).unwrap();
            let (a, b) = (stream.mixture(), &once.mixture);
            assert_eq!(stream.steps(), 1);
            // The statistics go through an average per sample; the bound is a difference of sums.
            assert_close("bound", bound, once.lower_bound(), 1e-11, 100.0);
            assert_all_close("posterior", numbers(a), numbers(b), 1e-12, 1.0);
        }
    }
}

/// Returns the weight and mean of each component, in an order that does not depend on the start.
fn by_first_feature(mixture: &VariationalMixture) -> Vec<f64> {
    let (weights, means) = (mixture.weights(), mixture.means());
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| means[[a, 0]].total_cmp(&means[[b, 0]]));
    order.into_iter().flat_map(|c| std::iter::once(weights[c]).chain(means.row(c).to_vec())).collect()
}

#[test]
fn stochastic_variational_inference_approaches_the_fit() {
    let x = blobs(17, 6000, 2);
    let chunk = |i: usize| x.slice(ndarray::s![300 * i..300 * (i + 1), ..]);
    for (t, kind) in kinds() {
        let what = format!("{t} {kind}");
        let params = params(3, t, kind).max_iter(500);
        let whole = fit(params.clone().tol(1e-6), &mut reference(x.view())).mixture;
        let prior = whole.prior().clone();
        let params = params.mean_prior(prior.mean).covariance_prior(prior.covariance);
        let start = fit(params, &mut reference(chunk(0))).mixture;
        let decay = StepwiseEm::DEFAULT_DECAY;
        let new = |start| StochasticVariational::new(start, decay, 1e-6, Freeze::default()).unwrap();
        for mut stream in [new(start.clone()), new(start.clone()).total_samples(6000.0).unwrap()] {
            for i in 0..20 {
                let bound = stream.partial_fit(&mut reference(chunk(i))).unwrap();
                assert!(bound.is_finite());
            }
            let found = stream.mixture();
            // The posterior counts all samples.
            assert_close(&what, found.mean_precision().sum(), 6003.0, 1e-12, 0.0);
            // The last chunks weigh about 8 of 20: five standard errors of a mean of 800 samples with deviations of 1.
            let pairs = by_first_feature(found).into_iter().zip(by_first_feature(&whole));
            assert_all_close(&what, pairs.map(|(a, b)| a - b), [0.0; 9], 5.0 / 800f64.sqrt(), 1.0);
        }
        let refused = new(start.clone()).total_samples(0.0);
        assert!(matches!(refused, Err(Error::BadParameter { name: "total_samples", .. })));
        assert!(StochasticVariational::new(start, 0.5, 1e-6, Freeze::default()).is_err());
    }
}

/// Returns log p(x) of one component's samples of one feature: each has a Student distribution given the earlier ones.
fn log_evidence(x: &[f64], prior: &VariationalPrior) -> f64 {
    let (mut beta, mut nu, mut m) = (prior.mean_precision, prior.degrees_of_freedom, prior.mean[0]);
    let mut inverse: f64 = prior.covariance.iter().sum();
    let mut sum = 0.0;
    for x in x {
        let squared = (1.0 + beta) / beta * inverse / nu;
        let t = (x - m) * (x - m) / (nu * squared);
        sum += ln_gamma(0.5 * (nu + 1.0)) - ln_gamma(0.5 * nu) - 0.5 * (nu * PI * squared).ln();
        sum -= 0.5 * (nu + 1.0) * t.ln_1p();
        inverse += beta / (beta + 1.0) * (x - m) * (x - m);
        m = (beta * m + x) / (beta + 1.0);
        (beta, nu) = (beta + 1.0, nu + 1.0);
    }
    sum
}

#[test]
fn the_bound_is_the_evidence_of_two_components_that_share_no_sample() {
    let (left, right) = ([-1000.3, -999.1, -1001.2, -1000.0, -998.7], [1000.9, 999.3, 1000.1, 1001.6]);
    let x = Array2::from_shape_vec((9, 1), [&left[..], &right[..]].concat()).unwrap();
    let r = Array2::from_shape_fn((9, 2), |(i, c)| f64::from((i < 5) == (c == 0)));
    let (gamma, n) = (0.7, [5.0, 4.0]);
    // For one feature all types but the tied one are the same.
    for (t, kind) in kinds().filter(|(t, _)| *t != CovarianceType::Tied) {
        let statistics = Statistics::from_responsibilities(x.view(), r.view(), t).unwrap();
        let covariance = Covariances::from_vec(t, 1, 1, vec![2.0]).unwrap();
        let params = params(2, t, kind).weight_concentration_prior(gamma).mean_precision_prior(0.01);
        let params = params.mean_prior(array![3.0]).degrees_of_freedom_prior(2.5).covariance_prior(covariance);
        let found = fit(params.reg_covar(0.0).start_statistics(statistics), &mut reference(x.view()));
        let labels = match kind {
            WeightConcentrationPriorType::DirichletProcess => {
                ln_beta(1.0 + n[0], gamma + n[1]) + ln_beta(1.0 + n[1], gamma) - 2.0 * ln_beta(1.0, gamma)
            }
            WeightConcentrationPriorType::DirichletDistribution => {
                ln_beta(gamma + n[0], gamma + n[1]) - ln_beta(gamma, gamma)
            }
        };
        let prior = found.mixture.prior();
        let expected = labels + log_evidence(&left, prior) + log_evidence(&right, prior);
        // lgamma is exact to some 10⁻¹⁴ on both sides.
        assert_close(&format!("{t} {kind}"), found.elbo(), expected, 1e-12, 1.0);
        assert!(found.converged);
    }
}

#[test]
fn a_sample_of_weight_two_counts_as_two() {
    let x = blobs(8, 80, 2);
    let weights = Array1::from_shape_fn(80, |i| 1.0 + (i % 3 == 0) as u8 as f64);
    let rows: Vec<usize> = (0..80).flat_map(|i| vec![i; weights[i] as usize]).collect();
    let twice = x.select(ndarray::Axis(0), &rows);
    for (t, kind) in kinds() {
        let r = responsibilities(9, 80, 3);
        let statistics = Statistics::from_responsibilities(x.view(), r.view(), t).unwrap();
        let params = params(3, t, kind).start_statistics(statistics).max_iter(15);
        let a = fit(params.clone(), &mut weighted(x.view(), weights.view()));
        let b = fit(params, &mut reference(twice.view()));
        assert_all_close("bounds", a.lower_bounds, b.lower_bounds, 1e-10, 1.0);
        assert_all_close("means", a.mixture.means(), b.mixture.means(), 1e-9, 1.0);
    }
}

/// E[log π] of late components may be so low that π underflows; a far sample still belongs to such a component.
#[test]
fn weights_below_all_numbers_count() {
    for t in CovarianceType::ALL {
        let covariance = Covariances::from_vec(t, 1, 1, vec![1.0]).unwrap();
        let kind = WeightConcentrationPriorType::DirichletProcess;
        let prior = VariationalPrior::new(kind, 1e-3, 1.0, array![0.0], 1.0, covariance).unwrap();
        let concentration = array![[1e6, 1.0, 1.0], [1e-3, 1e-3, 1e-3]];
        let n = t.shape(3, 1).iter().product();
        let covariances = Covariances::from_vec(t, 3, 1, vec![1.0; n]).unwrap();
        let (beta, nu) = (array![1e6, 1.0, 1.0], array![1e6, 1e6, 1e6]);
        let means = array![[0.0], [100.0], [200.0]];
        let mixture = VariationalMixture::new(prior, concentration.clone(), beta, nu, means, covariances).unwrap();
        let x = array![[0.5], [100.0], [200.0], [70.0]];
        let left = digamma(1e-3) - digamma(1e6 + 1e-3);
        let later = digamma(1e-3) - digamma(1.001);
        let first = digamma(1.0) - digamma(1.001);
        // ½·(E[log |Λ|] − log ν − 1/β − log 2π); ν is so large that the first two are equal.
        let log_weights = [digamma(1e6) - digamma(1e6 + 1e-3) - 0.5e-6, left + first - 0.5, left + later + first - 0.5];
        let constant = 0.5 * (digamma(0.5e6) + LN_2 - 1e6f64.ln() - TAU.ln());
        let squares = [(0, 0.125), (1, 0.0), (2, 0.0), (1, 450.0)];
        let expected = squares.map(|(c, half_square)| log_weights[c] + constant - half_square);
        for backend in BACKENDS {
            let mut evaluator = backend.evaluator(x.view(), None);
            assert_eq!(evaluator.predict(mixture.density()).unwrap(), [0, 1, 2, 1], "{}", backend.name);
            let scores = evaluator.score_samples(mixture.density()).unwrap() + mixture.log_total();
            assert_all_close(backend.name, scores, expected, backend.tolerance(1e-12, 1e-6), 1.0);
            let counts = evaluator.statistics(mixture.density()).unwrap().counts().to_vec();
            assert_eq!(counts, [1.0, 2.0, 1.0], "{}", backend.name);
        }
    }
}

#[test]
fn runs_callbacks_and_resumption_are_those_of_em() {
    let x = blobs(1, 300, 2);
    for t in CovarianceType::ALL {
        for init in InitParams::ALL {
            let params = BayesianGaussianMixtureParams::new(4).covariance_type(t).init_params(init).n_init(3);
            let params = params.max_iter(12).tol(0.0);
            let whole = fit(params.clone(), &mut reference(x.view()));
            let model = params.clone().check().unwrap();
            let mut seen = Vec::new();
            watched(&model, &mut reference(x.view()), |i| seen.push((i.run, i.iteration)));
            assert!(seen.into_iter().eq((0..3).flat_map(|run| (1..=12).map(move |iteration| (run, iteration)))));
            let (present, best) = interrupted(&model, &mut reference(x.view()), (1, 5));
            let resumed = fit(params.clone().resume(present.clone(), best), &mut reference(x.view()));
            assert_eq!((&resumed.mixture, &resumed.lower_bounds), (&whole.mixture, &whole.lower_bounds), "{t} {init}");
            let warm = fit(params.warm_start(&present).max_iter(1), &mut reference(x.view()));
            assert!(warm.lower_bound() >= present.lower_bound() - 1e-6, "{t} {init}");
        }
    }
}

#[test]
fn few_components_stay_alive() {
    let x = blobs(6, 600, 2);
    for init in [InitParams::KMeans, InitParams::KMeansPlusPlus, InitParams::RandomFromData] {
        let params = BayesianGaussianMixtureParams::new(10).init_params(init).weight_concentration_prior(1e-2);
        let (found, labels) = params.max_iter(1000).fit_predict(&x).unwrap();
        let alive = found.mixture.weights().iter().filter(|w| **w > 0.02).count();
        assert_eq!((alive, found.converged), (3, true), "{init}");
        assert_eq!(labels, found.mixture.predict(&x).unwrap());
        let proba = found.mixture.predict_proba(&x).unwrap();
        assert!((proba.sum() - 600.0).abs() < 1e-9);
    }
}

#[test]
fn a_row_without_any_value_leaves_the_components_as_they_are() {
    let x = blobs(7, 60, 2);
    let mut more = Array2::from_elem((62, 2), f64::NAN);
    more.slice_mut(ndarray::s![..60, ..]).assign(&x);
    let wide = |t| Covariances::from_vec(t, 1, 2, vec![4.0; t.shape(1, 2).iter().product()]);
    for (t, kind) in kinds().filter(|(t, _)| matches!(t, CovarianceType::Diag | CovarianceType::Spherical)) {
        let params = params(3, t, kind).mean_prior(array![5.0, 5.0]).covariance_prior(wide(t).unwrap());
        let statistics = Statistics::from_responsibilities(x.view(), responsibilities(1, 60, 3).view(), t).unwrap();
        let params = params.start_statistics(statistics).max_iter(1);
        let a = fit(params.clone(), &mut CpuEvaluator::new(Samples::with_missing(x.view()).unwrap()).unwrap());
        let b = fit(params, &mut CpuEvaluator::new(Samples::with_missing(more.view()).unwrap()).unwrap());
        // Each component has its share of the two rows.
        let counts = |fit: &Fit<VariationalMixture>| fit.mixture.mean_precision().sum();
        assert_close("counts", counts(&b) - counts(&a), 2.0, 1e-12, 1.0);
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let x = blobs(1, 30, 2);
    let message = |params: BayesianGaussianMixtureParams| params.fit(&x).unwrap_err().to_string();
    let new = || BayesianGaussianMixtureParams::new(2);
    for (params, expected) in [
        (new().weight_concentration_prior(0.0), "weight_concentration_prior"),
        (new().mean_precision_prior(f64::NAN), "mean_precision_prior"),
        (new().degrees_of_freedom_prior(1.0), "degrees_of_freedom_prior"),
        (new().mean_prior(array![1.0]), "mean_prior"),
        (new().covariance_prior(Covariances::Spherical(array![1.0])), "covariance_prior"),
        (new().covariance_prior(Covariances::Full(Array2::eye(3).insert_axis(ndarray::Axis(0)))), "covariance_prior"),
        (new().tol(-1.0), "tol"),
        (new().n_init(0), "n_init"),
    ] {
        let message = message(params);
        assert!(message.contains(expected), "{message}");
    }
    assert!(matches!(BayesianGaussianMixtureParams::new(31).fit(&x), Err(Error::TooFewSamples { .. })));
    let start = fit(new().max_iter(1), &mut reference(x.view())).mixture;
    assert!(message(BayesianGaussianMixtureParams::new(3).start(start.clone())).contains("start's means"));
    let other = new().covariance_type(CovarianceType::Tied).start(start);
    assert!(message(other).contains("start's covariances"));
    let start = fit(new().max_iter(1), &mut reference(x.view())).mixture;
    let freeze = Freeze { weights: true.into(), ..Freeze::default() };
    let other = new().weight_concentration_prior_type(WeightConcentrationPriorType::DirichletDistribution);
    assert!(message(other.start(start).freeze(freeze)).contains("freeze"));
    // All samples are equal, so their covariance, which is the prior's, is singular.
    let equal = Array2::<f64>::ones((10, 2));
    assert!(new().reg_covar(0.0).fit(&equal).is_err());
}

#[test]
fn a_posterior_that_is_none_is_refused() {
    let kind = WeightConcentrationPriorType::DirichletDistribution;
    let prior = |covariance| VariationalPrior::new(kind, 1.0, 1.0, array![0.0, 0.0], 2.0, covariance);
    let message = |covariance| prior(covariance).unwrap_err().to_string();
    assert!(message(Covariances::Diag(array![[1.0, -1.0]])).contains("covariance_prior"));
    assert!(message(Covariances::Tied(array![[1.0, 0.0], [0.0, f64::NAN]])).contains("covariance_prior"));
    let skew = Covariances::Tied(array![[1.0, 0.5], [0.0, 1.0]]);
    assert!(matches!(prior(skew), Err(Error::NotSymmetric { .. })));
    // Constant columns have such a covariance.
    let prior = prior(Covariances::Tied(array![[1.0, 0.0], [0.0, 0.0]])).unwrap();
    let posterior = |nu: Array1<f64>, beta: Array1<f64>| {
        let (concentration, means) = (Array2::ones((1, 2)), Array2::zeros((2, 2)));
        VariationalMixture::new(prior.clone(), concentration, beta, nu, means, Covariances::Tied(Array2::eye(2)))
    };
    let good = posterior(array![3.0, 3.0], array![1.0, 2.0]).unwrap();
    for (nu, beta, name) in [
        (array![3.0, 3.5], array![1.0, 2.0], "degrees_of_freedom"),
        (array![1.0, 1.0], array![1.0, 2.0], "degrees_of_freedom"),
        (array![3.0, 3.0], array![1.0, 0.0], "mean_precision"),
        (array![3.0, 3.0], array![1.0], "mean_precision"),
    ] {
        let message = posterior(nu, beta).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
    // Statistics of another number of components, or of another type.
    let other = |k, t| Statistics::from_responsibilities(Array2::ones((3, 2)).view(), Array2::ones((3, k)).view(), t);
    for statistics in [other(3, CovarianceType::Tied).unwrap(), other(2, CovarianceType::Full).unwrap()] {
        assert!(good.update(&statistics, 0.0, &Freeze::default()).is_err());
        assert!(good.lower_bound_of(&good, &statistics, 0.0).is_err());
    }
}
