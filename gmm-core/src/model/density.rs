//! The log-density of each component in float64, for the reference backend and for the host.
use super::marginal::{Marginal, observed};
use crate::compensated::{log_sum_exp, softmax};
use crate::model::covariances::CovarianceType;
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{ArrayView1, ArrayView2, Axis};

/// The factor of distances whose squares overflow.
const FROM_AFAR: f64 = 1e-200;

/// A mixture with its normalising constants, evaluated sample by sample.
pub struct Density<'a> {
    mixture: &'a Mixture,
    /// log πₖ − ½ log |2πΣₖ| (K,); of noise log(πₖ / volume).
    log_norm: Vec<f64>,
    /// Uᵀ(x − μ) of one component.
    y: Vec<f64>,
    difference: Vec<f64>,
    /// The mixture of the observed features in the last sample with missing values.
    marginal: Option<Marginal>,
}

impl<'a> Density<'a> {
    /// Prepares a mixture's factors and constants.
    pub fn new(mixture: &'a Mixture) -> Self {
        let (k, d) = mixture.means().dim();
        let tied = (mixture.covariance_type() == CovarianceType::Tied).then(|| mixture.log_det(0));
        let log_norm = (0..k).map(|c| {
            if let (true, Some(noise)) = (mixture.is_noise(c), mixture.noise()) {
                return mixture.log_weight(c) - noise.volume.log_e();
            }
            let half_log_det = 0.5 * tied.unwrap_or_else(|| mixture.log_det(c));
            mixture.log_weight(c) - half_log_det - 0.5 * d as f64 * std::f64::consts::TAU.log_e()
        });
        Self { mixture, log_norm: log_norm.collect(), y: vec![0.0; d], difference: vec![0.0; d], marginal: None }
    }

    /// Returns log πₖ − ½ log |2πΣₖ| of a component; of noise log(πₖ / volume).
    pub fn log_norm(&self, c: usize) -> f64 {
        self.log_norm[c]
    }

    /// Writes log(πₖ N(x; μₖ, Σₖ)) of every component into `log_p` (K,) and returns their log-sum-exp. A NaN in x is a
    /// missing value, and the densities are those of the observed values. If x has none, `log_p` is log πₖ up to a
    /// constant, and the result 0.
    pub fn evaluate(&mut self, x: ArrayView1<'_, f64>, log_p: &mut [f64]) -> f64 {
        if x.iter().any(|v| v.is_nan()) {
            return self.of_observed(x, log_p, |density, x, log_p| density.evaluate(x, log_p));
        }
        self.squares(x, 1.0, log_p);
        log_p.iter_mut().zip(&self.log_norm).for_each(|(v, norm)| *v = norm - 0.5 * *v);
        log_sum_exp(log_p)
    }

    /// Writes the probability of every component given x into `r` (K,) and returns the log-density. If it is −∞, the
    /// nearest component has probability 1.
    pub fn responsibilities(&mut self, x: ArrayView1<'_, f64>, r: &mut [f64]) -> f64 {
        let log_density = self.log_responsibilities(x, r);
        softmax(r);
        log_density
    }

    /// As [`responsibilities`](Self::responsibilities), but writes the logarithms, up to a constant.
    pub fn log_responsibilities(&mut self, x: ArrayView1<'_, f64>, log_r: &mut [f64]) -> f64 {
        let log_density = self.evaluate(x, log_r);
        if log_density == f64::NEG_INFINITY {
            self.evaluate_from_afar(x, log_r);
        }
        log_density
    }

    /// Writes 0 for the component with the least Mahalanobis distance to x (ties: their constants) and −∞ for all
    /// others; returns their log-sum-exp.
    fn evaluate_from_afar(&mut self, x: ArrayView1<'_, f64>, log_r: &mut [f64]) -> f64 {
        if x.iter().any(|v| v.is_nan()) {
            return self.of_observed(x, log_r, |density, x, log_r| density.evaluate_from_afar(x, log_r));
        }
        self.squares(x, FROM_AFAR, log_r);
        let possible = log_r.iter().zip(&self.log_norm).filter(|(_, norm)| norm.is_finite());
        let nearest = possible.map(|(square, _)| *square).fold(f64::INFINITY, f64::min);
        let of_nearest = log_r.iter_mut().zip(&self.log_norm);
        of_nearest.for_each(|(v, norm)| *v = if *v <= nearest { *norm } else { f64::NEG_INFINITY });
        log_sum_exp(log_r)
    }

    /// Calls `evaluate` with the density of the observed values of x.
    fn of_observed(
        &mut self,
        x: ArrayView1<'_, f64>,
        log_p: &mut [f64],
        evaluate: impl FnOnce(&mut Density<'_>, ArrayView1<'_, f64>, &mut [f64]) -> f64,
    ) -> f64 {
        let columns = observed(x);
        if columns.is_empty() {
            let log_sum = self.mixture.weights().sum().log_e();
            log_p.iter_mut().enumerate().for_each(|(c, log_p)| *log_p = self.mixture.log_weight(c) - log_sum);
            return 0.0;
        }
        if self.marginal.as_ref().is_none_or(|marginal| marginal.observed != columns) {
            self.marginal = Marginal::new(self.mixture, &columns).ok();
        }
        match &self.marginal {
            Some(marginal) => evaluate(&mut Density::new(&marginal.mixture), x.select(Axis(0), &columns).view(), log_p),
            // A part of a nearly singular covariance is singular. Callers report a result that is not a number.
            None => {
                log_p.fill(f64::NAN);
                f64::NAN
            }
        }
    }

    /// Writes |Uᵀ(x − μ)|² of every component into `out` (K,), with distances multiplied by `scale`.
    fn squares(&mut self, x: ArrayView1<'_, f64>, scale: f64, out: &mut [f64]) {
        for (c, out) in out.iter_mut().enumerate() {
            if self.mixture.is_noise(c) {
                *out = 0.0;
                continue;
            }
            let means = self.mixture.means();
            for ((d, x), m) in self.difference.iter_mut().zip(x).zip(means.row(c)) {
                *d = x * scale - m * scale;
            }
            let square: f64 = match self.mixture.factor_of(c) {
                Some(u) => self.mahalanobis(u),
                None => (self.difference.iter().enumerate()).map(|(j, d)| d * d / self.mixture.variance(c, j)).sum(),
            };
            // NaN is a difference of infinities.
            *out = if square.is_nan() { f64::INFINITY } else { square };
        }
    }

    fn mahalanobis(&mut self, u: ArrayView2<'_, f64>) -> f64 {
        self.y.fill(0.0);
        for (i, (row, d)) in u.outer_iter().zip(&self.difference).enumerate() {
            for (y, u) in self.y[i..].iter_mut().zip(row.iter().skip(i)) {
                *y += u * d;
            }
        }
        self.y.iter().map(|y| y * y).sum()
    }
}
