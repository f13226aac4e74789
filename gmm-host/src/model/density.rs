//! The log-density of each component in float64, for the reference backend and for what the host computes itself.
use crate::{Covariances, Mixture};
use ndarray::{ArrayView1, ArrayView2};

/// A mixture with its normalising constants, to be evaluated sample by sample.
pub(crate) struct Density<'a> {
    mixture: &'a Mixture,
    /// log πₖ − ½ log |2πΣₖ| (K,).
    log_norm: Vec<f64>,
    /// Uᵀ(x − μ) of one component.
    y: Vec<f64>,
    difference: Vec<f64>,
}

impl<'a> Density<'a> {
    pub fn new(mixture: &'a Mixture) -> Self {
        let (k, d) = mixture.means().dim();
        let half_log_det = |u: ArrayView2<'_, f64>| -> f64 { -u.diag().iter().map(|v| v.ln()).sum::<f64>() };
        let tied = match mixture.factor() {
            Some(Covariances::Tied(u)) => half_log_det(u.view()),
            _ => 0.0,
        };
        let log_norm = (0..k).map(|c| {
            let half_log_det = match mixture.factor() {
                Some(Covariances::Full(u)) => half_log_det(u.index_axis(ndarray::Axis(0), c)),
                Some(_) => tied,
                None => 0.5 * (0..d).map(|j| mixture.variance(c, j).ln()).sum::<f64>(),
            };
            mixture.weights()[c].ln() - half_log_det - 0.5 * d as f64 * std::f64::consts::TAU.ln()
        });
        Self { mixture, log_norm: log_norm.collect(), y: vec![0.0; d], difference: vec![0.0; d] }
    }

    /// Writes log(πₖ N(x; μₖ, Σₖ)) of every component into `log_p` (K,) and returns log Σₖ of them.
    pub fn evaluate(&mut self, x: ArrayView1<'_, f64>, log_p: &mut [f64]) -> f64 {
        for (c, log_p) in log_p.iter_mut().enumerate() {
            let means = self.mixture.means();
            for ((d, x), m) in self.difference.iter_mut().zip(x).zip(means.row(c)) {
                *d = x - m;
            }
            let square: f64 = match self.mixture.factor() {
                Some(Covariances::Full(u)) => self.mahalanobis(u.index_axis(ndarray::Axis(0), c)),
                Some(Covariances::Tied(u)) => self.mahalanobis(u.view()),
                _ => (self.difference.iter().enumerate()).map(|(j, d)| d * d / self.mixture.variance(c, j)).sum(),
            };
            *log_p = self.log_norm[c] - 0.5 * square;
        }
        log_sum_exp(log_p)
    }

    /// |Uᵀ(x − μ)|²
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

/// log Σ exp(v), with the maximum taken out so that nothing overflows and a far sample keeps its finite value.
pub(crate) fn log_sum_exp(v: &[f64]) -> f64 {
    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_infinite() {
        return max;
    }
    max + v.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}
