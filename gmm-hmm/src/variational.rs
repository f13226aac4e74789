//! Variational inference: the posterior distribution of a model's parameters, in hmmlearn's form.
use crate::chunks::{CHUNK, Chain};
use crate::emissions::Emissions;
use crate::error::{Error, Result};
use crate::expectations::{Expectations, expectations, on_device};
use crate::lattice::Transitions;
use crate::model::{HiddenMarkov, check_features};
use crate::priors::Frozen;
use crate::sequences::Sequences;
use gmm_core::model::linalg::trace_of_product;
use gmm_core::reproducible::Functions;
use gmm_core::variational::gamma::{digamma, digamma_sum, ln_gamma_sum};
use gmm_host::{CovarianceType, Covariances, Mixture};
use ndarray::{Array1, Array2, ArrayView1, Axis};

/// The parameters of a prior or of a posterior distribution of K states, each with one Gaussian: π and each row of a
/// have Dirichlet distributions, precision matrices Λ ~ Wishart(S⁻¹, ν), and means μ | Λ ~ N(m, (β·Λ)⁻¹) (Beal 2003;
/// McGrory and Titterington 2009; Gruhl and Sick 2016).
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparameters {
    /// The parameters of π's distribution (K,).
    pub start: Array1<f64>,
    /// The parameters of the distributions of a's rows (K, K).
    pub transitions: Array2<f64>,
    /// m (K, D).
    pub means: Array2<f64>,
    /// β (K,).
    pub beta: Array1<f64>,
    /// ν (K,), equal for all states with a tied covariance.
    pub dof: Array1<f64>,
    /// S in the shape of the covariance type.
    pub scale: Covariances,
}

impl Hyperparameters {
    fn check(&self, what: &'static str) -> Result<()> {
        let (k, d) = self.means.dim();
        let lengths =
            [self.start.len(), self.transitions.nrows(), self.transitions.ncols(), self.beta.len(), self.dof.len()];
        if k == 0 || d == 0 || lengths.iter().any(|n| *n != k) {
            return Err(Error::Shape { what, expected: vec![k; 5], got: lengths.to_vec() });
        }
        self.scale.check_shape("the scale matrices", k, d)?;
        let mut positive = self.start.iter().chain(&self.transitions).chain(&self.beta);
        if let Some(value) = positive.find(|v| !(v.is_finite() && **v > 0.0)) {
            let remedy = "the parameters of Dirichlet distributions, and β, must be finite and positive";
            return Err(Error::Parameter { what, value: value.to_string(), remedy });
        }
        if let Some(value) = self.dof.iter().find(|v| !(v.is_finite() && **v > d as f64 - 1.0)) {
            let remedy = "the degrees of freedom must be above the number of features less one, and finite";
            return Err(Error::Parameter { what, value: value.to_string(), remedy });
        }
        Ok(())
    }

    /// Returns the mixture of the states' means, with S in place of covariances, for determinants and inverses.
    fn of_scale(&self) -> Result<Mixture> {
        Ok(Mixture::new(self.uniform(), self.means.clone(), self.scale.clone())?)
    }

    fn uniform(&self) -> Array1<f64> {
        Array1::from_elem(self.start.len(), 1.0 / self.start.len() as f64)
    }

    /// Returns the mixture of the means m and the covariances S/ν.
    fn mixture(&self) -> Result<Mixture> {
        let mut covariances = self.scale.clone();
        match &mut covariances {
            Covariances::Full(v) => v.outer_iter_mut().zip(&self.dof).for_each(|(mut v, dof)| v /= *dof),
            Covariances::Tied(v) => *v /= self.dof[0],
            Covariances::Diag(v) => *v /= &self.dof.view().insert_axis(Axis(1)),
            Covariances::Spherical(v) => *v /= &self.dof,
        }
        Ok(Mixture::new(self.uniform(), self.means.clone(), covariances)?)
    }
}

/// A hidden Markov model of Gaussians whose parameters have a posterior distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct VariationalHiddenMarkov {
    prior: Hyperparameters,
    posterior: Hyperparameters,
}

impl VariationalHiddenMarkov {
    /// Builds a model from a prior and a posterior to start with.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Parameter`], [`Error::Host`] for a scale matrix that is not positive definite.
    pub fn new(prior: Hyperparameters, posterior: Hyperparameters) -> Result<Self> {
        prior.check("a parameter of the prior")?;
        posterior.check("a parameter of the posterior")?;
        if prior.means.dim() != posterior.means.dim() {
            let (expected, got) = (prior.means.shape().to_vec(), posterior.means.shape().to_vec());
            return Err(Error::Shape { what: "the posterior means", expected, got });
        }
        let (k, d) = prior.means.dim();
        posterior.scale.check_type("the posterior scale matrices", prior.scale.covariance_type(), k, d)?;
        prior.of_scale()?;
        posterior.of_scale()?;
        Ok(Self { prior, posterior })
    }

    /// Returns the prior.
    pub fn prior(&self) -> &Hyperparameters {
        &self.prior
    }

    /// Returns the posterior.
    pub fn posterior(&self) -> &Hyperparameters {
        &self.posterior
    }

    /// Returns the model of the posterior means E\[π\], E\[a\], m and S/ν, which scores and decodes.
    ///
    /// # Errors
    /// As [`HiddenMarkov::new`].
    pub fn model(&self) -> Result<HiddenMarkov> {
        let Hyperparameters { start, transitions, .. } = &self.posterior;
        let transmat = transitions / &transitions.sum_axis(Axis(1)).insert_axis(Axis(1));
        HiddenMarkov::new(start / start.sum(), transmat, self.posterior.mixture()?)
    }

    /// Computes an iteration. Returns the new posterior, and the lower bound of the evidence of the one given, without
    /// the constant −½·N·D·log 2π.
    ///
    /// # Errors
    /// As [`HiddenMarkov::expectations`].
    pub fn step(&self, sequences: &Sequences<'_>, frozen: Frozen) -> Result<(Self, f64)> {
        let expectations = self.expectations(sequences)?;
        let bound = expectations.log_likelihood - self.divergence()?;
        Ok((Self { prior: self.prior.clone(), posterior: self.update(&expectations, frozen) }, bound))
    }

    fn expectations(&self, sequences: &Sequences<'_>) -> Result<Expectations> {
        let Hyperparameters { start, transitions, means, beta, dof, .. } = &self.posterior;
        let (k, d) = (start.len(), means.ncols() as f64);
        check_features(means.ncols(), sequences)?;
        let mixture = self.posterior.mixture()?;
        let ln_2 = std::f64::consts::LN_2;
        let offsets: Vec<f64> = (0..k)
            .map(|c| {
                let of_precision = digamma_sum(dof[c], means.ncols()) + d * (ln_2 - dof[c].log_e());
                0.5 * (of_precision - d / beta[c] + d * std::f64::consts::TAU.log_e())
            })
            .collect();
        let mut expected = Array2::zeros((k, k));
        for (mut row, parameters) in expected.outer_iter_mut().zip(transitions.outer_iter()) {
            row.assign(&expected_logarithms(parameters).mapv(f64::exp_e));
        }
        let start = expected_logarithms(start.view());
        let probabilities = start.mapv(f64::exp_e);
        if let Some(found) = on_device(&mixture, (probabilities.view(), expected.view(), &offsets), sequences)? {
            return Ok(found.into());
        }
        let chain = Chain {
            start: start.to_vec(),
            transitions: Transitions::new(&expected),
            emissions: Emissions::new(&mixture, k, &offsets),
        };
        expectations(&chain, sequences, CHUNK)
    }

    /// Returns the divergence of the posterior from the prior (Kullback and Leibler 1951).
    fn divergence(&self) -> Result<f64> {
        let (prior, posterior) = (&self.prior, &self.posterior);
        let (k, d) = (prior.start.len(), prior.means.ncols());
        let mut sum = of_dirichlet(posterior.start.view(), prior.start.view());
        for (q, p) in posterior.transitions.outer_iter().zip(prior.transitions.outer_iter()) {
            sum += of_dirichlet(q, p);
        }
        let (q, p) = (posterior.of_scale()?, prior.of_scale()?);
        let wide = d as f64;
        let tied = prior.scale.covariance_type() == CovarianceType::Tied;
        for c in 0..k {
            let (ratio, dof) = (prior.beta[c] / posterior.beta[c], posterior.dof[c]);
            let delta = &posterior.means.row(c) - &prior.means.row(c);
            let (square, trace) = match q.factor_of(c) {
                Some(u) => {
                    let trace = match &prior.scale {
                        Covariances::Full(v) => trace_of_product(v.index_axis(Axis(0), c), u),
                        Covariances::Tied(v) => trace_of_product(v.view(), u),
                        _ => unreachable!("`new` has compared the covariance types"),
                    };
                    (u.t().dot(&delta).mapv(|v| v * v).sum(), trace)
                }
                None => {
                    let squares = delta.iter().enumerate().map(|(j, v)| v * v / q.variance(c, j));
                    (squares.sum(), (0..d).map(|j| p.variance(c, j) / q.variance(c, j)).sum())
                }
            };
            sum += 0.5 * (wide * (ratio - 1.0 - ratio.log_e()) + prior.beta[c] * dof * square);
            if c == 0 || !tied {
                // log |S/2|.
                let log_det = |of: &Mixture| of.log_det(c) - wide * std::f64::consts::LN_2;
                let log_norm = |dof: f64, of: &Mixture| ln_gamma_sum(dof, d) - 0.5 * dof * log_det(of);
                let expected = digamma_sum(dof, d) - log_det(&q);
                sum += 0.5 * ((dof - prior.dof[c]) * expected + dof * (trace - wide));
                sum += log_norm(prior.dof[c], &p) - log_norm(dof, &q);
            }
        }
        Ok(sum)
    }

    /// Returns the posterior of the M-step.
    fn update(&self, expectations: &Expectations, frozen: Frozen) -> Hyperparameters {
        let (prior, statistics) = (&self.prior, &expectations.statistics);
        let mut posterior = self.posterior.clone();
        let counts = statistics.counts();
        if !frozen.start {
            posterior.start = &prior.start + &expectations.start;
        }
        if !frozen.transitions {
            posterior.transitions = &prior.transitions + &expectations.transitions;
        }
        if !frozen.means {
            posterior.beta = &prior.beta + &counts;
            for (c, mut mean) in posterior.means.outer_iter_mut().enumerate() {
                let moved = (&statistics.means().row(c) - &prior.means.row(c)) * (counts[c] / posterior.beta[c]);
                mean.assign(&(&prior.means.row(c) + &moved));
            }
        }
        if !frozen.covariances {
            let d = prior.means.ncols() as f64;
            let mut scatter = statistics.scatter().clone();
            if let Covariances::Spherical(v) = &mut scatter {
                *v /= d;
            }
            for (c, mean) in posterior.means.outer_iter().enumerate() {
                let samples = (counts[c], &statistics.means().row(c) - &mean);
                let of_prior = (prior.beta[c], &prior.means.row(c) - &mean);
                for (factor, delta) in [samples, of_prior] {
                    let outer = |i: usize, j: usize| factor * (delta[i] * delta[j]);
                    match &mut scatter {
                        Covariances::Full(v) => {
                            v.index_axis_mut(Axis(0), c).indexed_iter_mut().for_each(|((i, j), v)| *v += outer(i, j));
                        }
                        Covariances::Tied(v) => v.indexed_iter_mut().for_each(|((i, j), v)| *v += outer(i, j)),
                        Covariances::Diag(v) => v.row_mut(c).indexed_iter_mut().for_each(|(i, v)| *v += outer(i, i)),
                        Covariances::Spherical(v) => v[c] += factor * delta.mapv(|v| v * v).sum() / d,
                    }
                }
            }
            match (&mut scatter, &prior.scale) {
                (Covariances::Full(v), Covariances::Full(scale)) => *v += scale,
                (Covariances::Tied(v), Covariances::Tied(scale)) | (Covariances::Diag(v), Covariances::Diag(scale)) => {
                    *v += scale
                }
                (Covariances::Spherical(v), Covariances::Spherical(scale)) => *v += scale,
                _ => unreachable!("`new` has compared the covariance types"),
            }
            posterior.scale = scatter;
            let all = counts.sum();
            let tied = prior.scale.covariance_type() == CovarianceType::Tied;
            posterior.dof = Array1::from_shape_fn(counts.len(), |c| prior.dof[c] + if tied { all } else { counts[c] });
        }
        posterior
    }
}

/// Returns E\[log p\] of p ~ Dirichlet(parameters).
fn expected_logarithms(parameters: ArrayView1<'_, f64>) -> Array1<f64> {
    let of_sum = digamma(parameters.sum());
    parameters.mapv(|v| digamma(v) - of_sum)
}

/// Returns the divergence of one Dirichlet distribution from another.
fn of_dirichlet(q: ArrayView1<'_, f64>, p: ArrayView1<'_, f64>) -> f64 {
    let gamma = |v: f64| libm::lgamma(v);
    let of_sum = digamma(q.sum());
    let terms = q.iter().zip(p).map(|(q, p)| gamma(*p) - gamma(*q) + (q - p) * (digamma(*q) - of_sum));
    gamma(q.sum()) - gamma(p.sum()) + terms.sum::<f64>()
}
