//! The lower bound of the evidence.
use super::expectations::{
    expected_log_det, expected_logs, for_each_component, log_det_of_factor, log_weight_norm, log_wishart_norm,
};
use super::mixture::VariationalMixture;
use crate::compensated::neumaier_sum;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::linalg::{row_major, squared_length, sum_of, trace_of_product, vectorised};
use crate::reproducible::Functions;
use crate::statistics::{COUNT_FLOOR, Statistics};
use ndarray::{Array1, ArrayView1};

impl VariationalMixture {
    /// Returns the lower bound of the evidence after an M-step, with the [`entropy`](Self::entropy) of the E-step. As
    /// in scikit-learn, it omits the terms that do not depend on the posterior
    /// ([`constant_terms`](Self::constant_terms)); it is the total over all samples, not their mean.
    pub fn lower_bound(&self, entropy: f64) -> f64 {
        let (n, d) = (&self.degrees_of_freedom, self.n_features());
        let chol = &self.log_det_factors;
        let wishart = for_each_component(n.len(), d, |c| -log_wishart_norm(n[c], chol[c], d));
        let means = self.mean_precision.iter().map(|beta| -0.5 * d as f64 * beta.log_e());
        let terms = wishart.into_iter().chain(means);
        neumaier_sum(terms.chain([entropy, -log_weight_norm(&self.weight_concentration)]))
    }

    /// Returns the terms of the bound that scikit-learn omits: the normalising constants of the prior and of the
    /// samples' densities. With `reg_covar` above zero the sum is slightly too low, because `reg_covar` counts as
    /// scatter of the samples.
    pub fn constant_terms(&self) -> f64 {
        let (prior, k, d) = (&self.prior, self.n_components(), self.n_features());
        let counts = self.expected_counts();
        let log_det: f64 = match &prior.covariance {
            Covariances::Diag(v) => v.iter().map(|v| v.log_e()).sum(),
            Covariances::Spherical(v) => d as f64 * v[0].log_e(),
            matrix => match matrix.checked_factor() {
                Ok(Some(factor)) => factor.matrix(0).map_or(0.0, log_det_of_factor),
                // The prior is improper.
                _ => f64::NEG_INFINITY,
            },
        };
        let nu = prior.degrees_of_freedom;
        // log |U| of νW, as `log_wishart_norm` takes it.
        let chol = -0.5 * log_det + 0.5 * d as f64 * nu.log_e();
        let components = k as f64 * (log_wishart_norm(nu, chol, d) + 0.5 * d as f64 * prior.mean_precision.log_e());
        let weights = log_weight_norm(&prior.weight_concentration_of(&Array1::zeros(k)));
        components + weights - 0.5 * counts.sum() * d as f64 * std::f64::consts::TAU.log_e()
    }

    /// Returns the entropy of the responsibilities, −Σᵢ wᵢ Σₖ rᵢₖ log rᵢₖ, and of the missing values, under this
    /// posterior. With ρᵢₖ = rᵢₖ·Σₖ ρᵢₖ, the density of sample and component, it is the log-likelihood less the mean of
    /// log ρ, which the statistics give.
    pub fn entropy(&self, statistics: &Statistics) -> f64 {
        let (density, d) = (&self.density, self.n_features() as f64);
        let chol = &self.log_det_factors;
        let counts = statistics.counts();
        let of_component = |c: usize| {
            let constant = density.log_weight(c) + chol[c] - 0.5 * d * std::f64::consts::TAU.log_e();
            if counts[c] > 0.0 { 0.5 * self.expected_squares(statistics, c) - counts[c] * constant } else { 0.0 }
        };
        let tied = match statistics.scatter() {
            Covariances::Tied(_) => 0.5 * self.expected_trace(0, statistics.scatter(), 0),
            _ => 0.0,
        };
        let of_components = for_each_component(self.n_components(), self.numbers_of_component(), of_component);
        neumaier_sum(of_components.into_iter().chain([statistics.log_likelihood(), tied]))
    }

    /// Returns the lower bound of the evidence of samples with these statistics, computed under `before`. It holds for
    /// any posterior; the fit's bound assumes the posterior that the M-step makes of the statistics.
    /// [`constant_terms`](Self::constant_terms) are omitted.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] if K, D or the covariance type differ.
    pub fn lower_bound_of(&self, before: &Self, statistics: &Statistics, reg_covar: f64) -> Result<f64> {
        before.check_statistics(statistics)?;
        self.check_statistics(statistics)?;
        Ok(self.lower_bound(before.entropy(statistics)) + self.lower_bound_correction(statistics, reg_covar))
    }

    pub(super) fn check_statistics(&self, statistics: &Statistics) -> Result<()> {
        let (k, d) = statistics.means().dim();
        if self.means().dim() != (k, d) {
            let (what, got) = ("means of the posterior (against the statistics)", self.means().shape().to_vec());
            return Err(Error::ShapeMismatch { what, expected: vec![k, d], got });
        }
        self.covariances().check_type("the posterior's covariances", statistics.covariance_type(), k, d)
    }

    /// Returns the correction to [`lower_bound`](Self::lower_bound), which assumes an M-step, for a posterior that is
    /// not the M-step's: parts were frozen, or other samples count too.
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
            let log_det = expected_log_det(nu, self.n_features()) - d * nu.log_e() + 2.0 * chol[c];
            let away = &self.means().row(c) - &prior.mean;
            let of_prior = features * self.expected_trace(c, &prior.covariance, 0)
                + prior.mean_precision * self.expected_square(c, away.view());
            let of_samples = self.expected_squares(statistics, c) + n * reg_covar * self.trace_of_precision(c);
            let precisions = (n + prior.degrees_of_freedom - nu) * log_det + nu * d - of_prior - of_samples;
            let means = d - d * (n + prior.mean_precision) / beta;
            let constants = (beta - prior.mean_precision - n) * d * std::f64::consts::TAU.log_e();
            0.5 * (precisions + means + constants)
        };
        let tied = match statistics.scatter() {
            Covariances::Tied(_) => -0.5 * self.expected_trace(0, statistics.scatter(), 0),
            _ => 0.0,
        };
        let of_components = for_each_component(self.n_components(), self.numbers_of_component(), of_component);
        neumaier_sum(of_components.into_iter().chain([weights, tied]))
    }

    /// Returns the work of a bound for a component, as a number of numbers: with matrices, the product of two.
    fn numbers_of_component(&self) -> usize {
        let d = self.n_features();
        if self.density.factor().is_some() { d + d * d * d / 64 } else { d }
    }

    /// Returns tr(E[Λ]·Σᵢ rᵢ(xᵢ − m)(xᵢ − m)ᵀ) of a component; for a tied covariance, without the scatter around the
    /// samples' means, which all components share.
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

    fn expected_square(&self, c: usize, x: ArrayView1<'_, f64>) -> f64 {
        match (self.covariances(), self.density.factor_of(c)) {
            (_, Some(u)) => squared_length(u, &row_major(x)),
            (Covariances::Diag(v), _) => x.iter().zip(v.row(c)).map(|(x, v)| x * x / v).sum(),
            _ => x.iter().map(|x| x * x).sum::<f64>() / self.density.variance(c, 0),
        }
    }

    /// Returns tr(E[Λ]·S) for a component's precision and matrix `i` of `scatter`; for `spherical`, S is a trace.
    fn expected_trace(&self, c: usize, scatter: &Covariances, i: usize) -> f64 {
        match (scatter, scatter.matrix(i), self.density.factor_of(c)) {
            (_, Some(s), Some(u)) => trace_of_product(s, u),
            (Covariances::Diag(s), ..) => (0..s.ncols()).map(|j| s[[i, j]] / self.density.variance(c, j)).sum(),
            _ => scatter.variance(i, 0) / self.density.variance(c, 0),
        }
    }

    fn trace_of_precision(&self, c: usize) -> f64 {
        match self.density.factor_of(c) {
            Some(u) => u.iter().map(|v| v * v).sum(),
            None => (0..self.n_features()).map(|j| 1.0 / self.density.variance(c, j)).sum(),
        }
    }
}
