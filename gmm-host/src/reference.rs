//! The plain float64 evaluation that everything else is compared with.
use crate::evaluator::check_features;
use crate::{Description, Evaluator, Mixture, Result, Samples, View};
use ndarray::{Array1, Array2};

/// Plain float64, one thread, log-sum-exp with the maximum taken out, compensated sum over the samples: slow, and
/// the truth for all tests.
#[derive(Debug, Clone)]
pub struct ReferenceEvaluator {
    x: Array2<f64>,
}

impl ReferenceEvaluator {
    /// Takes a float64 copy of the samples.
    pub fn new(samples: Samples<'_>) -> Self {
        let x = match samples.view() {
            View::F32(x) => x.mapv(f64::from),
            View::F64(x) => x.to_owned(),
        };
        Self { x }
    }
}

impl Evaluator for ReferenceEvaluator {
    fn n_samples(&self) -> usize {
        self.x.nrows()
    }

    fn n_features(&self) -> usize {
        self.x.ncols()
    }

    fn describe(&self) -> Description {
        Description { device: "reference (float64, 1 thread)".into(), kernel: "reference".into() }
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        Ok(neumaier_sum(self.score_samples(mixture)?))
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        check_features(mixture, self.n_features())?;
        let (k, d) = mixture.means().dim();
        let mut log_norm = vec![0.0; k];
        for (c, log_norm) in log_norm.iter_mut().enumerate() {
            let log_det: f64 = (0..d).map(|j| (std::f64::consts::TAU * mixture.variance(c, j)).ln()).sum();
            *log_norm = mixture.weights()[c].ln() - 0.5 * log_det;
        }
        let mut log_p = vec![0.0; k];
        Ok(self
            .x
            .outer_iter()
            .map(|x| {
                for (c, log_p) in log_p.iter_mut().enumerate() {
                    let mean = mixture.means();
                    let q: f64 = (0..d).map(|j| (x[j] - mean[[c, j]]).powi(2) / mixture.variance(c, j)).sum();
                    *log_p = log_norm[c] - 0.5 * q;
                }
                log_sum_exp(&log_p)
            })
            .collect())
    }
}

/// log Σ exp(v), with the maximum taken out so that nothing overflows and a far sample keeps its finite value.
fn log_sum_exp(v: &[f64]) -> f64 {
    let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_infinite() {
        return max;
    }
    max + v.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

/// Neumaier's compensated sum (1974): error independent of the number of terms.
pub(crate) fn neumaier_sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut low) = (0.0f64, 0.0f64);
    for v in values {
        let t = sum + v;
        low += if sum.abs() >= v.abs() { (sum - t) + v } else { (v - t) + sum };
        sum = t;
    }
    sum + low
}
