//! The posterior distribution of a mixture's parameters: the M-step of variational inference, and
//! the density of its E-step.
//!
//! q(π) is a product of Beta distributions, or a Dirichlet distribution, and for each component
//! q(μ, Λ) = N(μ; m, (β·Λ)⁻¹)·Wishart(Λ; W, ν), with the formulas of Bishop (2006, section 10.2) and
//! of scikit-learn, which has the other covariance types too. There q(Λ) is the best approximation
//! of the posterior by Wishart distributions with a diagonal W (`diag`), with a multiple of the unit
//! matrix (`spherical`), or with one and the same for all components (`tied`), each of which has a
//! precision of its own a priori: so each step of the iteration raises one and the same bound.
use super::gamma::{digamma_sum, ln_gamma_sum};
use super::prior::{VariationalPrior, WeightConcentrationPriorType};
use crate::compensated::neumaier_sum;
use crate::error::{Error, Result};
use crate::freeze::Freeze;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{
    LogProduct, at_once, for_each_matrix, map_rows, row_major, squared_length, sum_of, trace_of_product, vectorised,
};
use crate::model::mixture::Mixture;
use crate::statistics::{COUNT_FLOOR, Statistics};
use libm::lgamma;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, Zip};
use rayon::prelude::*;
use statrs::function::gamma::digamma;
use std::borrow::Cow;

/// The posterior distribution of the parameters of a mixture, given a prior and some samples.
///
/// [`to_mixture`](Self::to_mixture) is the mixture of its means. What it says of samples is, as in
/// scikit-learn, that of [`density`](Self::density), whose constants are expectations of logarithms.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "serialised::Parts", into = "serialised::Parts")
)]
pub struct VariationalMixture {
    prior: VariationalPrior,
    /// (2, K) or (1, K).
    weight_concentration: Array2<f64>,
    /// β (K,).
    mean_precision: Array1<f64>,
    /// ν (K,).
    degrees_of_freedom: Array1<f64>,
    /// The m, the covariances (ν·W)⁻¹, and weights exp E\[log …] over their sum.
    density: Mixture,
    /// The logarithm of that sum.
    log_total: f64,
    /// log |U| for each component's E\[Λ\] = U·Uᵀ (K,).
    log_det_factors: Array1<f64>,
}

impl VariationalMixture {
    /// The posterior of these parameters: `weight_concentration` (2, K) for a Dirichlet process, the
    /// two parameters of each Beta distribution, and (1, K) for a Dirichlet distribution;
    /// `mean_precision` β and `degrees_of_freedom` ν (K,), the same for all components if their
    /// covariance is tied; `means` (K, D), and `covariances` (ν·W)⁻¹ in their type's shape.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::BadParameter`] for a number that is not in its range; as
    /// [`Mixture::new`].
    pub fn new(
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    ) -> Result<Self> {
        let (k, d) = means.dim();
        let rows = match prior.weight_concentration_type {
            WeightConcentrationPriorType::DirichletProcess => 2,
            WeightConcentrationPriorType::DirichletDistribution => 1,
        };
        let shapes = [
            ("weight_concentration", vec![rows, k], weight_concentration.shape()),
            ("mean_precision", vec![k], mean_precision.shape()),
            ("degrees_of_freedom", vec![k], degrees_of_freedom.shape()),
            ("mean_prior", vec![d], prior.mean.shape()),
        ];
        for (what, expected, got) in shapes {
            if expected != got {
                return Err(Error::ShapeMismatch { what, expected, got: got.to_vec() });
            }
        }
        covariances.check_type("covariances", prior.covariance_type(), k, d)?;
        let numbers = [
            ("weight_concentration", 0.0, weight_concentration.view().into_dyn()),
            ("mean_precision", 0.0, mean_precision.view().into_dyn()),
            ("degrees_of_freedom", d as f64 - 1.0, degrees_of_freedom.view().into_dyn()),
        ];
        for (name, least, values) in numbers {
            if let Some(value) = values.iter().find(|v| !(v.is_finite() && **v > least)) {
                let remedy =
                    "it must be finite and positive, and degrees of freedom above the number of features less one";
                return Err(Error::BadParameter { name, value: value.to_string(), remedy });
            }
        }
        if let (Covariances::Tied(_), Some(value)) =
            (&covariances, degrees_of_freedom.iter().find(|v| **v != degrees_of_freedom[0]))
        {
            let remedy = "it must be the same for all components, whose covariance is tied";
            return Err(Error::BadParameter { name: "degrees_of_freedom", value: value.to_string(), remedy });
        }
        let parts = Mixture::new(uniform(k), means, covariances)?;
        Self::with_density_of(prior, weight_concentration, mean_precision, degrees_of_freedom, parts)
    }

    /// The posterior with another prior, means and covariances, for example in other units.
    pub(crate) fn with(&self, prior: VariationalPrior, means: Array2<f64>, covariances: Covariances) -> Result<Self> {
        let (concentration, beta) = (self.weight_concentration.clone(), self.mean_precision.clone());
        Self::new(prior, concentration, beta, self.degrees_of_freedom.clone(), means, covariances)
    }

    /// Gives the density the weights that follow from the other parameters.
    fn with_density_of(
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        parts: Mixture,
    ) -> Result<Self> {
        let (k, d) = parts.means().dim();
        let of_component = |c: usize| {
            let (nu, beta) = (degrees_of_freedom[c], mean_precision[c]);
            // ½·(E[log |Λ|] − log |νW|) and the trace's ½·D/β.
            0.5 * (expected_log_det(nu, d) - d as f64 * nu.ln() - d as f64 / beta)
        };
        let log_weights =
            expected_log_weights(&weight_concentration) + Array1::from(for_each_component(k, d, of_component));
        let (density, log_total) = parts.with_log_weights(log_weights)?;
        let log_det_factors = log_det_factors(&density);
        Ok(Self {
            prior,
            weight_concentration,
            mean_precision,
            degrees_of_freedom,
            density,
            log_total,
            log_det_factors,
        })
    }

    /// The M-step: the posterior given responsibilities, of which these are the statistics. As in
    /// scikit-learn `reg_covar` is added to the variances of each component's samples, and
    /// [`COUNT_FLOOR`] to their number.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] where the prior is for another D or
    /// covariance type; as [`Mixture::new`] where a covariance is not usable.
    pub fn from_statistics(prior: &VariationalPrior, statistics: &Statistics, reg_covar: f64) -> Result<Self> {
        Self::m_step(prior, statistics.clone(), reg_covar, None)
    }

    /// The M-step of an iteration that began at this posterior, of which it leaves what `freeze`
    /// says: the distribution of the weights, that of the means given the precisions (m and β), or
    /// that of the precisions (W and ν). The others are the best beside those: no lower bound falls.
    ///
    /// # Errors
    /// As [`from_statistics`](Self::from_statistics).
    pub fn update(&self, statistics: &Statistics, reg_covar: f64, freeze: &Freeze) -> Result<Self> {
        Self::m_step(&self.prior, statistics.clone(), reg_covar, Some((self, freeze)))
    }

    /// The M-step, which leaves parts of a posterior. The new covariances lie in the memory of the
    /// scatter.
    pub(crate) fn m_step(
        prior: &VariationalPrior,
        statistics: Statistics,
        reg_covar: f64,
        frozen: Option<(&Self, &Freeze)>,
    ) -> Result<Self> {
        let (k, d) = statistics.means().dim();
        if prior.n_features() != d {
            let (what, got) = ("mean_prior (against the data's columns)", vec![prior.n_features()]);
            return Err(Error::ShapeMismatch { what, expected: vec![d], got });
        }
        prior.covariance.check_type("covariance_prior", statistics.covariance_type(), 1, d)?;
        if let Some((before, freeze)) = frozen {
            before.check_statistics(&statistics)?;
            freeze.check_whole()?;
        }
        let frozen_part =
            |part: fn(&Freeze) -> bool| frozen.filter(|(_, freeze)| part(freeze)).map(|(before, _)| before);
        let counts = &statistics.counts() + COUNT_FLOOR;
        let concentration = match frozen_part(|freeze| freeze.weights.any()) {
            Some(before) if before.prior.weight_concentration_type == prior.weight_concentration_type => {
                before.weight_concentration.clone()
            }
            Some(before) => {
                return Err(Error::BadParameter {
                    name: "freeze",
                    value: format!("weights, of a {}", before.prior.weight_concentration_type),
                    remedy: "the weights of a start can be frozen under a prior of the same weight_concentration_prior_type",
                });
            }
            None => prior.weight_concentration_of(&counts),
        };
        let (means, beta, offsets) = match frozen_part(|freeze| freeze.means.any()) {
            Some(before) => {
                let (means, of_prior) = (before.means().to_owned(), Array1::from_elem(k, prior.mean_precision));
                let mut away = &statistics.means() - &means;
                for (c, mut away) in away.outer_iter_mut().enumerate() {
                    if statistics.counts()[c] <= COUNT_FLOOR {
                        away.fill(0.0);
                    }
                }
                let offsets = vec![(counts.clone(), away), (of_prior, &means - &prior.mean)];
                (means, before.mean_precision.clone(), offsets)
            }
            None => posterior_means(prior, &statistics, &counts),
        };
        let (parts, nu) = match frozen_part(|freeze| freeze.covariances.any()) {
            Some(before) => {
                let (covariances, factor) = (before.covariances().clone(), before.density.factor().cloned());
                (Mixture::from_parts(uniform(k), means, covariances, factor)?, before.degrees_of_freedom.clone())
            }
            None => {
                let (covariances, nu) =
                    posterior_covariances(prior, statistics.into_scatter(), reg_covar, &counts, &offsets);
                let (factor, failures) = covariances.factorise();
                if let Some(failure) = failures.into_iter().next() {
                    return Err(failure);
                }
                (Mixture::from_parts(uniform(k), means, covariances, factor)?, nu)
            }
        };
        Self::with_density_of(prior.clone(), concentration, beta, nu, parts)
    }

    /// The prior.
    pub fn prior(&self) -> &VariationalPrior {
        &self.prior
    }

    /// K.
    pub fn n_components(&self) -> usize {
        self.density.n_components()
    }

    /// D.
    pub fn n_features(&self) -> usize {
        self.density.n_features()
    }

    /// The covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.density.covariance_type()
    }

    /// The parameters of q(π): (2, K) for a Dirichlet process, (1, K) for a Dirichlet distribution.
    pub fn weight_concentration(&self) -> ArrayView2<'_, f64> {
        self.weight_concentration.view()
    }

    /// β (K,).
    pub fn mean_precision(&self) -> ArrayView1<'_, f64> {
        self.mean_precision.view()
    }

    /// ν (K,): the same for all components, if their covariance is tied.
    pub fn degrees_of_freedom(&self) -> ArrayView1<'_, f64> {
        self.degrees_of_freedom.view()
    }

    /// E\[π\] (K,), over its sum: the sticks of a Dirichlet process leave a rest.
    pub fn weights(&self) -> Array1<f64> {
        let sums = self.weight_concentration.sum_axis(Axis(0));
        let mut left = 1.0;
        let mut weights = self.weight_concentration.row(0).to_owned();
        if let WeightConcentrationPriorType::DirichletProcess = self.prior.weight_concentration_type {
            for (c, weight) in weights.iter_mut().enumerate() {
                *weight *= left / sums[c];
                left *= self.weight_concentration[[1, c]] / sums[c];
            }
        }
        let sum = weights.sum();
        weights / sum
    }

    /// How many samples each component has in expectation (K,), by weight.
    pub fn expected_counts(&self) -> Array1<f64> {
        &self.mean_precision - self.prior.mean_precision
    }

    /// Which components are alive (K,): those whose expected number of samples is at least ½, so that
    /// it rounds to one or more. The others have hardly anything but their prior.
    pub fn alive(&self) -> Vec<bool> {
        self.expected_counts().iter().map(|&count| count >= 0.5).collect()
    }

    /// E\[μ\] (K, D).
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.density.means()
    }

    /// E\[Λ\]⁻¹ in the covariance type's shape.
    pub fn covariances(&self) -> &Covariances {
        self.density.covariances()
    }

    /// E\[Λ\], as [`Mixture::precisions`].
    pub fn precisions(&self) -> Covariances {
        self.density.precisions()
    }

    /// Its Cholesky factors, as [`Mixture::precisions_cholesky`].
    pub fn precisions_cholesky(&self) -> Cow<'_, Covariances> {
        self.density.precisions_cholesky()
    }

    /// The mixture of the posterior means E\[π\], E\[μ\] and E\[Λ\]⁻¹.
    ///
    /// # Errors
    /// [`Error::BadComponent`] where the weights leave the range of float64.
    pub fn to_mixture(&self) -> Result<Mixture> {
        let (covariances, factor) = (self.covariances().clone(), self.density.factor().cloned());
        Mixture::from_parts(self.weights(), self.means().to_owned(), covariances, factor)
    }

    /// The mixture of which the responsibilities of samples are, and with
    /// [`log_total`](Self::log_total) their log-densities in the sense of scikit-learn's
    /// `score_samples`: log Σₖ exp E\[log πₖ + log N(x; μₖ, Λₖ⁻¹)].
    pub fn density(&self) -> &Mixture {
        &self.density
    }

    /// What is to be added to log-densities under [`density`](Self::density), whose weights sum to
    /// one.
    pub fn log_total(&self) -> f64 {
        self.log_total
    }

    /// The lower bound of the evidence after an M-step, with the entropy of the E-step
    /// ([`entropy`](Self::entropy)): that of scikit-learn, in which what does not depend on the
    /// posterior is left out ([`constant_terms`](Self::constant_terms)). It is that of all samples,
    /// not their mean.
    pub(crate) fn lower_bound(&self, entropy: f64) -> f64 {
        let (n, d) = (&self.degrees_of_freedom, self.n_features());
        let chol = &self.log_det_factors;
        let wishart = for_each_component(n.len(), d, |c| -log_wishart_norm(n[c], chol[c], d));
        let means = self.mean_precision.iter().map(|beta| -0.5 * d as f64 * beta.ln());
        let terms = wishart.into_iter().chain(means);
        neumaier_sum(terms.chain([entropy, -log_weight_norm(&self.weight_concentration)]))
    }

    /// What scikit-learn's lower bound leaves out of the bound of the log-evidence: the normalising
    /// constants of the prior and of the samples' densities. With `reg_covar` above zero, the sum is
    /// slightly too low, because that counts as scatter of the samples.
    pub fn constant_terms(&self) -> f64 {
        let (prior, k, d) = (&self.prior, self.n_components(), self.n_features());
        let counts = self.expected_counts();
        let log_det: f64 = match &prior.covariance {
            Covariances::Diag(v) => v.iter().map(|v| v.ln()).sum(),
            Covariances::Spherical(v) => d as f64 * v[0].ln(),
            matrix => match matrix.factorise() {
                (Some(Covariances::Full(u)), failures) if failures.is_empty() => {
                    log_det_of_factor(u.index_axis(Axis(0), 0))
                }
                (Some(Covariances::Tied(u)), failures) if failures.is_empty() => log_det_of_factor(u.view()),
                // The prior is improper.
                _ => f64::NEG_INFINITY,
            },
        };
        let nu = prior.degrees_of_freedom;
        // That of νW for the factor, as `log_wishart_norm` takes it.
        let chol = -0.5 * log_det + 0.5 * d as f64 * nu.ln();
        let components = k as f64 * (log_wishart_norm(nu, chol, d) + 0.5 * d as f64 * prior.mean_precision.ln());
        let weights = log_weight_norm(&prior.weight_concentration_of(&Array1::zeros(k)));
        components + weights - 0.5 * counts.sum() * d as f64 * std::f64::consts::TAU.ln()
    }

    /// The entropy of the responsibilities, −Σᵢ wᵢ Σₖ rᵢₖ log rᵢₖ, and of what is missing, under
    /// this posterior. With ρᵢₖ = rᵢₖ·Σₖ ρᵢₖ, the density of sample and component, it is the
    /// log-likelihood less the mean of log ρ, which the statistics give.
    pub(crate) fn entropy(&self, statistics: &Statistics) -> f64 {
        let (density, d) = (&self.density, self.n_features() as f64);
        let chol = &self.log_det_factors;
        let counts = statistics.counts();
        let of_component = |c: usize| {
            let constant = density.log_weight(c) + chol[c] - 0.5 * d * std::f64::consts::TAU.ln();
            if counts[c] > 0.0 { 0.5 * self.expected_squares(statistics, c) - counts[c] * constant } else { 0.0 }
        };
        let tied = match statistics.scatter() {
            Covariances::Tied(_) => 0.5 * self.expected_trace(0, statistics.scatter(), 0),
            _ => 0.0,
        };
        let of_components = for_each_component(self.n_components(), self.numbers_of_component(), of_component);
        neumaier_sum(of_components.into_iter().chain([statistics.log_likelihood(), tied]))
    }

    /// The lower bound of the evidence of samples with these statistics, made under `before`; the
    /// same as the fit's, of any posterior, where the fit's takes this one for what the M-step makes
    /// of the statistics. [`constant_terms`](Self::constant_terms) are left out.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] where `before` or the statistics are
    /// of another K, D or covariance type.
    pub fn lower_bound_of(&self, before: &Self, statistics: &Statistics, reg_covar: f64) -> Result<f64> {
        before.check_statistics(statistics)?;
        self.check_statistics(statistics)?;
        Ok(self.lower_bound(before.entropy(statistics)) + self.lower_bound_correction(statistics, reg_covar))
    }

    /// Whether the statistics are of as many components and features, and of the same type.
    fn check_statistics(&self, statistics: &Statistics) -> Result<()> {
        let (k, d) = statistics.means().dim();
        if self.means().dim() != (k, d) {
            let (what, got) = ("means of the posterior (against the statistics)", self.means().shape().to_vec());
            return Err(Error::ShapeMismatch { what, expected: vec![k, d], got });
        }
        self.covariances().check_type("the posterior's covariances", statistics.covariance_type(), k, d)
    }

    /// What is to be added to [`lower_bound`](Self::lower_bound), which counts on the M-step, where
    /// this posterior is not what the M-step makes of the statistics: where parts of it were frozen,
    /// or other samples count too.
    fn lower_bound_correction(&self, statistics: &Statistics, reg_covar: f64) -> f64 {
        let (prior, d) = (&self.prior, self.n_features() as f64);
        let counts = &statistics.counts() + COUNT_FLOOR;
        let missing = prior.weight_concentration_of(&counts) - &self.weight_concentration;
        let weights = (missing * expected_logs(&self.weight_concentration)).sum();
        let chol = &self.log_det_factors;
        // The scatter of a spherical prior is that of one feature.
        let features = if let Covariances::Spherical(_) = prior.covariance { d } else { 1.0 };
        let of_component = |c: usize| {
            let (n, nu, beta) = (counts[c], self.degrees_of_freedom[c], self.mean_precision[c]);
            let log_det = expected_log_det(nu, self.n_features()) - d * nu.ln() + 2.0 * chol[c];
            let away = &self.means().row(c) - &prior.mean;
            let of_prior = features * self.expected_trace(c, &prior.covariance, 0)
                + prior.mean_precision * self.expected_square(c, away.view());
            let of_samples = self.expected_squares(statistics, c) + n * reg_covar * self.trace_of_precision(c);
            let precisions = (n + prior.degrees_of_freedom - nu) * log_det + nu * d - of_prior - of_samples;
            let means = d - d * (n + prior.mean_precision) / beta;
            let constants = (beta - prior.mean_precision - n) * d * std::f64::consts::TAU.ln();
            0.5 * (precisions + means + constants)
        };
        let tied = match statistics.scatter() {
            Covariances::Tied(_) => -0.5 * self.expected_trace(0, statistics.scatter(), 0),
            _ => 0.0,
        };
        let of_components = for_each_component(self.n_components(), self.numbers_of_component(), of_component);
        neumaier_sum(of_components.into_iter().chain([weights, tied]))
    }

    /// How many numbers would take as long to go through as what a bound has of a component: with
    /// matrices, the product of two.
    fn numbers_of_component(&self) -> usize {
        let d = self.n_features();
        if self.density.factor().is_some() { d + d * d * d / 64 } else { d }
    }

    /// tr(E[Λ]·Σᵢ rᵢ(xᵢ − m)(xᵢ − m)ᵀ) of a component; of a tied covariance without the samples'
    /// scatter around their means, which is that of all components.
    fn expected_squares(&self, statistics: &Statistics, c: usize) -> f64 {
        let (count, means) = (statistics.counts()[c], self.means());
        let (mean, of_samples) = (means.row(c), statistics.means());
        let of_samples = if count > 0.0 { of_samples.row(c) } else { mean };
        if let (Covariances::Diag(s), Covariances::Diag(v)) = (statistics.scatter(), self.covariances()) {
            let rows = [s.row(c), of_samples, mean, v.row(c)].map(row_major);
            return vectorised(
                #[inline(always)]
                || sum_of(rows.each_ref().map(|row| &row[..]), |[s, x, m, v]| (s + count * (x - m) * (x - m)) / v),
            );
        }
        let around_mean = match statistics.scatter() {
            Covariances::Tied(_) => 0.0,
            scatter => self.expected_trace(c, scatter, c),
        };
        around_mean + count * self.expected_square(c, (&of_samples - &mean).view())
    }

    /// xᵀ·E[Λ]·x for the precision of a component.
    fn expected_square(&self, c: usize, x: ArrayView1<'_, f64>) -> f64 {
        match (self.covariances(), self.density.factor_of(c)) {
            (_, Some(u)) => squared_length(u, &row_major(x)),
            (Covariances::Diag(v), _) => x.iter().zip(v.row(c)).map(|(x, v)| x * x / v).sum(),
            _ => x.iter().map(|x| x * x).sum::<f64>() / self.density.variance(c, 0),
        }
    }

    /// tr(E[Λ]·S) for the precision of a component and the matrix `i` of `scatter`; of `spherical`
    /// ones, S is a trace.
    fn expected_trace(&self, c: usize, scatter: &Covariances, i: usize) -> f64 {
        match (scatter, self.covariances(), self.density.factor_of(c)) {
            (Covariances::Full(s), _, Some(u)) => trace_of_product(s.index_axis(Axis(0), i), u),
            (Covariances::Tied(s), _, Some(u)) => trace_of_product(s.view(), u),
            (Covariances::Diag(s), Covariances::Diag(v), _) => s.row(i).iter().zip(v.row(c)).map(|(s, v)| s / v).sum(),
            (Covariances::Spherical(s), Covariances::Spherical(v), _) => s[i] / v[c],
            // Not reached: the statistics and the prior are of the covariance type of the posterior.
            _ => f64::NAN,
        }
    }

    /// tr E[Λ] for the precision of a component.
    fn trace_of_precision(&self, c: usize) -> f64 {
        match self.density.factor_of(c) {
            Some(u) => u.iter().map(|v| v * v).sum(),
            None => (0..self.n_features()).map(|j| 1.0 / self.density.variance(c, j)).sum(),
        }
    }
}

/// The components' factors and directions: of each outer product that their means add to the
/// scatter.
type Offsets = Vec<(Array1<f64>, Array2<f64>)>;

/// The means m and β of the M-step, and what the distances of the samples' means and of m₀ from
/// them add to the scatter.
fn posterior_means(
    prior: &VariationalPrior,
    statistics: &Statistics,
    counts: &Array1<f64>,
) -> (Array2<f64>, Array1<f64>, Offsets) {
    let beta = counts + prior.mean_precision;
    let mut means = statistics.means().to_owned();
    // From m₀ to the samples' mean; of no component without samples.
    let mut away = Array2::zeros(means.raw_dim());
    let rows = means.axis_iter_mut(Axis(0)).into_par_iter().zip(away.axis_iter_mut(Axis(0))).enumerate();
    map_rows(rows, at_once(prior.n_features()), |(c, (mut mean, away))| {
        let (count, beta) = (statistics.counts()[c], beta[c]);
        if count <= COUNT_FLOOR {
            mean.assign(&prior.mean);
        }
        Zip::from(&mut mean).and(away).and(&prior.mean).for_each(|mean, away, prior| {
            *away = *mean - prior;
            *mean = (prior * (beta - count) + count * *mean) / beta;
        });
    });
    // nₖ·β₀/βₖ: both distances together.
    let pulls = counts * prior.mean_precision / &beta;
    (means, beta, vec![(pulls, away)])
}

/// The covariances (ν·W)⁻¹ and ν of the M-step, in the place of the scatter.
fn posterior_covariances(
    prior: &VariationalPrior,
    mut scatter: Covariances,
    reg_covar: f64,
    counts: &Array1<f64>,
    offsets: &Offsets,
) -> (Covariances, Array1<f64>) {
    let (k, d) = (counts.len(), prior.n_features());
    let mut nu = counts + prior.degrees_of_freedom;
    match (&mut scatter, &prior.covariance) {
        (Covariances::Full(v), Covariances::Full(of_prior)) => {
            let of_prior = of_prior.index_axis(Axis(0), 0);
            for_each_matrix(v, |c, mut v| {
                offsets.iter().for_each(|(factors, away)| add_outer(&mut v, factors[c], away.row(c)));
                v.diag_mut().map_inplace(|v| *v += counts[c] * reg_covar);
                Zip::from(v).and(of_prior).for_each(|v, of_prior| *v = (*v + of_prior) / nu[c]);
            });
        }
        (Covariances::Tied(v), Covariances::Tied(of_prior)) => {
            // Of a prior for each component there is one posterior: their mean.
            nu.fill(prior.degrees_of_freedom + counts.sum() / k as f64);
            for (factors, away) in offsets {
                away.outer_iter().zip(factors).for_each(|(away, factor)| add_outer(&mut v.view_mut(), *factor, away));
            }
            v.diag_mut().map_inplace(|v| *v += counts.sum() * reg_covar);
            *v /= k as f64;
            *v += of_prior;
            *v /= nu[0];
        }
        (Covariances::Diag(v), Covariances::Diag(of_prior)) => {
            let rows = v.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
            map_rows(rows, at_once(d), |(c, mut v)| {
                for (factors, away) in offsets {
                    Zip::from(&mut v).and(away.row(c)).for_each(|v, away| *v += factors[c] * away * away);
                }
                let regular = counts[c] * reg_covar;
                Zip::from(v).and(of_prior.row(0)).for_each(|v, of_prior| *v = (*v + regular + of_prior) / nu[c]);
            });
        }
        (Covariances::Spherical(v), Covariances::Spherical(of_prior)) => {
            let squares = |c: usize| -> f64 {
                let one = |(factors, away): &(Array1<f64>, Array2<f64>)| {
                    factors[c] * away.row(c).iter().map(|v| v * v).sum::<f64>()
                };
                offsets.iter().map(one).sum()
            };
            for (c, v) in v.iter_mut().enumerate() {
                *v = ((*v + squares(c)) / d as f64 + counts[c] * reg_covar + of_prior[0]) / nu[c];
            }
        }
        _ => unreachable!("`m_step` has compared the covariance types"),
    }
    (scatter, nu)
}

/// K equal weights.
fn uniform(k: usize) -> Array1<f64> {
    Array1::from_elem(k, 1.0 / k as f64)
}

/// The expectations of the logarithms of what the weights' distributions are of, in the shape of
/// their parameters: of vₖ and 1 − vₖ (2, K), or of π (1, K).
fn expected_logs(concentration: &Array2<f64>) -> Array2<f64> {
    let sums = match concentration.nrows() {
        1 => Array1::from_elem(concentration.ncols(), concentration.sum()),
        _ => concentration.sum_axis(Axis(0)),
    };
    let digammas = |values: ArrayView1<'_, f64>| -> Array1<f64> {
        for_each_component(values.len(), OF_GAMMA, |c| digamma(values[c])).into()
    };
    let of_sums = digammas(sums.view());
    let mut logs = Array2::zeros(concentration.raw_dim());
    for (mut logs, values) in logs.outer_iter_mut().zip(concentration.outer_iter()) {
        logs.assign(&(digammas(values) - &of_sums));
    }
    logs
}

/// E\[log π] (K,).
fn expected_log_weights(concentration: &Array2<f64>) -> Array1<f64> {
    let logs = expected_logs(concentration);
    let mut log_weights = logs.row(0).to_owned();
    if logs.nrows() == 2 {
        let mut left = 0.0;
        for (log_weight, log_rest) in log_weights.iter_mut().zip(logs.row(1)) {
            *log_weight += left;
            left += log_rest;
        }
    }
    log_weights
}

/// E\[log |Λ|] − log |W| under a Wishart distribution.
fn expected_log_det(nu: f64, d: usize) -> f64 {
    digamma_sum(nu, d) + d as f64 * std::f64::consts::LN_2
}

/// The logarithm of a Wishart distribution's normalising constant, less what does not depend on its
/// parameters: of ν, and of the logarithm of the determinant of the Cholesky factor of ν·W.
fn log_wishart_norm(nu: f64, log_det_factor: f64, d: usize) -> f64 {
    let log_det_factor = log_det_factor - 0.5 * d as f64 * nu.ln();
    -(nu * log_det_factor + 0.5 * nu * d as f64 * std::f64::consts::LN_2 + ln_gamma_sum(nu, d))
}

/// The logarithm of the normalising constant of the distribution of the weights.
fn log_weight_norm(concentration: &Array2<f64>) -> f64 {
    if concentration.nrows() == 1 {
        return lgamma(concentration.sum()) - concentration.iter().map(|&a| lgamma(a)).sum::<f64>();
    }
    let of_stick = |c: usize| {
        let (a, b) = (concentration[[0, c]], concentration[[1, c]]);
        lgamma(a + b) - lgamma(a) - lgamma(b)
    };
    for_each_component(concentration.ncols(), 3 * OF_GAMMA, of_stick).iter().sum()
}

/// The logarithm of the determinant of each component's Cholesky factor of its precision (K,).
fn log_det_factors(mixture: &Mixture) -> Array1<f64> {
    let (k, d) = mixture.means().dim();
    let of_component = |c: usize| match (mixture.covariances(), mixture.factor_of(c)) {
        (_, Some(u)) => -0.5 * log_det_of_factor(u),
        (Covariances::Diag(v), _) => -0.5 * ln_of_product(&row_major(v.row(c))),
        _ => -0.5 * d as f64 * mixture.variance(c, 0).ln(),
    };
    for_each_component(k, d, of_component).into()
}

/// How many numbers one could go through in the time of a gamma function.
const OF_GAMMA: usize = 16;

/// A number for each of `k` components, with all threads where that pays for work as that of going
/// through so many numbers each.
fn for_each_component(k: usize, numbers: usize, of_component: impl Fn(usize) -> f64 + Sync + Send) -> Vec<f64> {
    map_rows((0..k).into_par_iter(), at_once(numbers), of_component)
}

/// log |Σ| of U with Σ⁻¹ = U·Uᵀ.
fn log_det_of_factor(u: ArrayView2<'_, f64>) -> f64 {
    -2.0 * ln_of_product(&u.diag().to_vec())
}

/// The logarithm of the product of positive normal numbers.
fn ln_of_product(numbers: &[f64]) -> f64 {
    let mut product = LogProduct::default();
    vectorised(
        #[inline(always)]
        || product.multiply_all(numbers),
    );
    product.log2() * std::f64::consts::LN_2
}

/// Adds `factor`·xxᵀ.
fn add_outer(matrix: &mut ndarray::ArrayViewMut2<'_, f64>, factor: f64, x: ArrayView1<'_, f64>) {
    for (row, a) in matrix.outer_iter_mut().zip(x) {
        Zip::from(row).and(x).for_each(|v, b| *v += factor * (a * b));
    }
}

#[cfg(feature = "serde")]
mod serialised {
    use super::{Covariances, Result, VariationalMixture, VariationalPrior};
    use crate::error::Error;
    use ndarray::{Array1, Array2};

    /// What a posterior is serialised as: its parameters, without what is computed from them.
    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Parts {
        prior: VariationalPrior,
        weight_concentration: Array2<f64>,
        mean_precision: Array1<f64>,
        degrees_of_freedom: Array1<f64>,
        means: Array2<f64>,
        covariances: Covariances,
    }

    impl From<VariationalMixture> for Parts {
        fn from(m: VariationalMixture) -> Self {
            let (means, covariances) = (m.means().to_owned(), m.covariances().clone());
            let VariationalMixture { prior, weight_concentration, mean_precision, degrees_of_freedom, .. } = m;
            Self { prior, weight_concentration, mean_precision, degrees_of_freedom, means, covariances }
        }
    }

    impl TryFrom<Parts> for VariationalMixture {
        type Error = Error;

        fn try_from(p: Parts) -> Result<Self> {
            let prior = VariationalPrior::new(
                p.prior.weight_concentration_type,
                p.prior.weight_concentration,
                p.prior.mean_precision,
                p.prior.mean,
                p.prior.degrees_of_freedom,
                p.prior.covariance,
            )?;
            let (beta, nu) = (p.mean_precision, p.degrees_of_freedom);
            Self::new(prior, p.weight_concentration, beta, nu, p.means, p.covariances)
        }
    }
}
