//! Priors, and the M-step.
use crate::error::{Error, Result};
use crate::expectations::Expectations;
use crate::model::HiddenMarkov;
use gmm_host::{CentredSums, CovarianceType, Covariances, Freeze, Mixture, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayViewD, Axis};

/// The parameters that a fit leaves unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frozen {
    /// π.
    pub start: bool,
    /// a.
    pub transitions: bool,
    /// The means.
    pub means: bool,
    /// The covariances.
    pub covariances: bool,
    /// The weights of components within their states.
    pub weights: bool,
}

/// The conjugate priors of hmmlearn, of Dirichlet, normal and inverse Wishart (or gamma) distributions, as numbers that
/// the M-step adds to sums.
#[derive(Debug, Clone, PartialEq)]
pub struct Priors {
    /// Added to the expected numbers of starts (K,).
    pub start: Array1<f64>,
    /// Added to the expected numbers of transitions (K, K).
    pub transitions: Array2<f64>,
    /// Added to the expected numbers of rows of the components within their states (K, M).
    pub weights: Array2<f64>,
    /// The prior means (K·M, D).
    pub means: Array2<f64>,
    /// The number of rows that each prior mean stands for (K·M,).
    pub means_weight: Array1<f64>,
    /// Added to the scatter, in the shape of the covariance type of K·M components.
    pub scatter: Covariances,
    /// Added to the number of rows that divides the scatter (K·M,); for `tied` covariances the first is added once.
    pub divisor: Array1<f64>,
    /// Whether the scatter is around the means before the M-step, as in hmmlearn's `GMMHMM`.
    pub around_last_means: bool,
}

impl Priors {
    /// Returns priors that add nothing: maximum likelihood.
    pub fn none(model: &HiddenMarkov) -> Self {
        let (k, m, d) = (model.n_states(), model.n_mix(), model.n_features());
        Self {
            start: Array1::zeros(k),
            transitions: Array2::zeros((k, k)),
            weights: Array2::zeros((k, m)),
            means: Array2::zeros((k * m, d)),
            means_weight: Array1::zeros(k * m),
            scatter: Covariances::zeros(model.emissions().covariance_type(), k * m, d),
            divisor: Array1::zeros(k * m),
            around_last_means: false,
        }
    }

    /// Checks shapes and values.
    fn check(&self, model: &HiddenMarkov) -> Result<()> {
        let (k, m, d) = (model.n_states(), model.n_mix(), model.n_features());
        let any = f64::NEG_INFINITY;
        let arrays: [(&'static str, &[usize], ArrayViewD<'_, f64>, f64); 6] = [
            ("the prior of startprob", &[k], self.start.view().into_dyn(), any),
            ("the prior of transmat", &[k, k], self.transitions.view().into_dyn(), any),
            ("the prior of the weights", &[k, m], self.weights.view().into_dyn(), any),
            ("the prior means", &[k * m, d], self.means.view().into_dyn(), any),
            ("means_weight of the prior", &[k * m], self.means_weight.view().into_dyn(), 0.0),
            ("the divisor of the prior", &[k * m], self.divisor.view().into_dyn(), any),
        ];
        let check = |what: &'static str, value: f64, least| match value.is_finite() && value >= least {
            true => Ok(()),
            false => {
                let remedy = "numbers of a prior must be finite, and weights of means not negative";
                Err(Error::Parameter { what, value: value.to_string(), remedy })
            }
        };
        for (what, expected, got, least) in arrays {
            if expected != got.shape() {
                return Err(Error::Shape { what, expected: expected.to_vec(), got: got.shape().to_vec() });
            }
            got.iter().try_for_each(|v| check(what, *v, least))?;
        }
        self.scatter.check_type("the prior covariances", model.emissions().covariance_type(), k * m, d)?;
        self.scatter.iter().try_for_each(|v| check("a prior covariance", v, any))
    }
}

/// The least number of rows that divides the sums of a diagonal covariance.
const LEAST_DIVISOR: f64 = 1e-5;

/// Computes the M-step. A probability of zero stays zero; a state that nothing leaves keeps its transitions, and a
/// component without rows its mean and covariance.
pub(crate) fn m_step(
    model: &HiddenMarkov,
    expectations: &Expectations,
    priors: &Priors,
    frozen: Frozen,
    reg_covar: f64,
) -> Result<HiddenMarkov> {
    priors.check(model)?;
    let mut startprob = model.startprob().to_owned();
    if !frozen.start {
        let counts = &expectations.start + &priors.start;
        startprob.assign(&probabilities(counts.view(), model.startprob()));
    }
    let mut transmat = model.transmat().to_owned();
    if !frozen.transitions {
        let counts = &expectations.transitions + &priors.transitions;
        for ((mut row, counts), last) in
            transmat.outer_iter_mut().zip(counts.outer_iter()).zip(model.transmat().outer_iter())
        {
            row.assign(&probabilities(counts, last));
        }
    }
    let (k, m) = (model.n_states(), model.n_mix());
    let weights = if frozen.weights || m == 1 {
        model.weights()
    } else {
        let counts = expectations.statistics.counts();
        let last = model.weights();
        let mut weights = Array2::zeros((k, m));
        for (state, mut row) in weights.outer_iter_mut().enumerate() {
            let of_state: Array1<f64> = (0..m).map(|c| counts[state * m + c] + priors.weights[[state, c]]).collect();
            row.assign(&probabilities(of_state.view(), last.row(state)));
        }
        weights
    };
    let weights: Array1<f64> = weights.iter().map(|w| w / k as f64).collect();
    let emissions = update(model, &expectations.statistics, priors, frozen, reg_covar)?;
    let (covariances, factor) = (emissions.covariances().clone(), emissions.factor().cloned());
    let emissions = Mixture::from_parts(weights, emissions.means().to_owned(), covariances, factor)?
        .with_covariance_model(emissions.covariance_model())?;
    model.with(startprob, transmat, emissions)
}

/// Returns counts over their sum, where `last` is not zero; `last` if there are none.
fn probabilities(counts: ArrayView1<'_, f64>, last: ArrayView1<'_, f64>) -> Array1<f64> {
    let counts: Array1<f64> =
        counts.iter().zip(last).map(|(n, last)| if *last > 0.0 { n.max(0.0) } else { 0.0 }).collect();
    let sum = counts.sum();
    if sum > 0.0 { counts / sum } else { last.to_owned() }
}

/// Returns the mixture with new means and covariances, by the engine's M-step from statistics that include the priors.
fn update(
    model: &HiddenMarkov,
    statistics: &Statistics,
    priors: &Priors,
    frozen: Frozen,
    reg_covar: f64,
) -> Result<Mixture> {
    let last = model.emissions();
    let (n, d) = last.means().dim();
    let counts = statistics.counts();
    let mut means = last.means().to_owned();
    for c in (0..n).filter(|_| !frozen.means) {
        let (kappa, count) = (priors.means_weight[c], counts[c]);
        if kappa + count > 0.0 {
            // The difference, so that a mean far from the origin keeps its digits.
            let moved = (&priors.means.row(c) - &statistics.means().row(c)) * (kappa / (kappa + count));
            means.row_mut(c).assign(&(&statistics.means().row(c) + &moved));
        }
    }
    let mut second = statistics.scatter().clone();
    let mut divisors = Array1::zeros(n);
    let tied = last.covariance_type() == CovarianceType::Tied;
    for c in 0..n {
        let around = if priors.around_last_means { last.means().row(c).to_owned() } else { means.row(c).to_owned() };
        add_outer(&mut second, c, counts[c], &(&statistics.means().row(c) - &around));
        add_outer(&mut second, c, priors.means_weight[c], &(&means.row(c) - &priors.means.row(c)));
        divisors[c] = counts[c] + if tied { 0.0 } else { priors.divisor[c] };
    }
    match (&mut second, &priors.scatter) {
        (Covariances::Full(v), Covariances::Full(prior)) => *v += prior,
        (Covariances::Tied(v), Covariances::Tied(prior)) => *v += prior,
        (Covariances::Diag(v), Covariances::Diag(prior)) => *v += prior,
        (Covariances::Spherical(v), Covariances::Spherical(prior)) => *v += prior,
        _ => unreachable!("`check` has compared the covariance types"),
    }
    match &mut second {
        Covariances::Tied(_) if counts.sum() > 0.0 => divisors *= 1.0 + priors.divisor[0] / counts.sum(),
        Covariances::Full(v) if model.is_tied_within_states() => {
            let m = model.n_mix();
            for state in 0..model.n_states() {
                let own: Vec<usize> = (state * m..(state + 1) * m).collect();
                // The prior of a state stands once in each of its components.
                let sum =
                    v.select(Axis(0), &own).sum_axis(Axis(0)) - scatter_of(&priors.scatter, own[0]) * (m as f64 - 1.0);
                let count = own.iter().map(|c| counts[*c]).sum::<f64>() + priors.divisor[own[0]];
                for c in own {
                    v.index_axis_mut(Axis(0), c).assign(&sum);
                    divisors[c] = count;
                }
            }
        }
        _ => {}
    }
    if !last.covariance_type().has_matrices() {
        divisors.mapv_inplace(|v: f64| if v > 0.0 { v.max(LEAST_DIVISOR) } else { v });
    }
    let first = Array2::zeros((n, d));
    let sums =
        CentredSums { weight: divisors.sum(), log_likelihood: 0.0, centres: means, counts: divisors, first, second };
    let freeze = Freeze { means: frozen.means.into(), covariances: frozen.covariances.into(), ..Freeze::default() };
    Ok(Statistics::from_centred_sums(sums)?.into_update(last, reg_covar, &freeze, None)?.mixture)
}

fn scatter_of(scatter: &Covariances, c: usize) -> Array2<f64> {
    match scatter {
        Covariances::Full(v) => v.index_axis(Axis(0), c).to_owned(),
        _ => unreachable!("covariances tied within states are full"),
    }
}

/// Adds `factor`·δδᵀ to the scatter of a component.
fn add_outer(scatter: &mut Covariances, c: usize, factor: f64, delta: &Array1<f64>) {
    if factor == 0.0 {
        return;
    }
    let (d, matrices) = (delta.len(), scatter.covariance_type().has_matrices());
    let mut add = |i: usize, j: usize| {
        let product = factor * (delta[i] * delta[j]);
        match scatter {
            Covariances::Full(v) => v[[c, i, j]] += product,
            Covariances::Tied(v) => v[[i, j]] += product,
            Covariances::Diag(v) => v[[c, i]] += product,
            Covariances::Spherical(v) => v[c] += product,
        }
    };
    (0..d).for_each(|i| if matrices { (0..d).for_each(|j| add(i, j)) } else { add(i, i) });
}
