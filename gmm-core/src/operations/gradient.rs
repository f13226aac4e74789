//! The gradient of the log-likelihood, from the sufficient statistics.
use crate::contract::evaluator::Evaluator;
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use crate::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, array};

/// Below this weight, float32 responsibilities may underflow (10⁻³⁸), so counts do not give the derivative.
const SMALL_WEIGHT: f64 = 1e-20;

const ROWS_AT_ONCE: usize = 1 << 13;

/// The total log-likelihood and its derivatives. Each entry of an array is its own variable: the weights need not sum
/// to 1, and mirrored entries of a matrix are two variables.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Gradient {
    /// Σᵢ wᵢ log p(xᵢ).
    pub log_likelihood: f64,
    /// The derivatives by the weights (K,).
    pub weights: Array1<f64>,
    /// The derivatives by the means (K, D).
    pub means: Array2<f64>,
    /// The derivatives by the covariances, in their shape.
    pub covariances: Covariances,
}

/// # Gradient
impl Statistics {
    /// Returns the derivatives of the log-likelihood at `mixture`, whose statistics these are. With the precision P,
    /// count N, mean x̄ and scatter S of a component, and δ = x̄ − μ: ∂/∂π = N/π, ∂/∂μ = N·P·δ, ∂/∂Σ = ½ (P·(S +
    /// N·δδᵀ)·P − N·P).
    ///
    /// The derivative by a weight of 0 is NaN, and by one below 10⁻²⁰ it may be wrong, because float32 responsibilities
    /// underflow: `Predict::gradient` computes both from the samples.
    ///
    /// ```
    /// use gmm_host::{Covariances, CpuEvaluator, Evaluator, Mixture, Samples};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0]], Covariances::Spherical(array![2.0]))?;
    /// let x = array![[3.0], [4.0]];
    /// let statistics = CpuEvaluator::new(Samples::from_f64(x.view())?)?.statistics(&mixture)?;
    /// let gradient = statistics.gradient(&mixture)?;
    /// assert!((gradient.means[[0, 0]] - (2.0 + 3.0) / 2.0).abs() < 1e-15);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the mixture has another K or D, [`Error::WrongCovarianceType`].
    pub fn gradient(&self, mixture: &Mixture) -> Result<Gradient> {
        mixture.check_no_noise("the gradient")?;
        let (k, d) = self.means().dim();
        if mixture.means().dim() != (k, d) {
            let got = mixture.means().shape().to_vec();
            return Err(Error::ShapeMismatch { what: "means of the mixture", expected: vec![k, d], got });
        }
        mixture.covariances().check_type("the mixture's covariances", self.covariance_type(), k, d)?;
        let counts = self.counts();
        let mut delta = &self.means() - &mixture.means();
        // The mean of no samples is meaningless.
        delta.outer_iter_mut().zip(counts).filter(|(_, n)| **n == 0.0).for_each(|(mut delta, _)| delta.fill(0.0));
        let precisions = mixture.precisions();
        let mut means = Array2::zeros(delta.raw_dim());
        for (k, (mut out, delta)) in means.outer_iter_mut().zip(delta.outer_iter()).enumerate() {
            out.assign(&(times(&precisions, k, delta) * counts[k]));
        }
        let outer = |k: usize| {
            let column = delta.row(k).insert_axis(Axis(1));
            column.dot(&column.t()) * counts[k]
        };
        let covariances = match (&precisions, self.scatter()) {
            (Covariances::Full(p), Covariances::Full(scatter)) => {
                let mut out = scatter.clone();
                for (k, (mut out, p)) in out.outer_iter_mut().zip(p.outer_iter()).enumerate() {
                    let part = matrix_part(p, &(&out + &outer(k)), counts[k]);
                    out.assign(&part);
                }
                Covariances::Full(out)
            }
            (Covariances::Tied(p), Covariances::Tied(scatter)) => {
                let total = (0..counts.len()).fold(scatter.clone(), |sum, k| sum + outer(k));
                Covariances::Tied(matrix_part(p.view(), &total, counts.sum()))
            }
            (Covariances::Diag(p), Covariances::Diag(scatter)) => {
                let n = counts.insert_axis(Axis(1));
                Covariances::Diag((p * p * (scatter + &delta * &delta * n) - p * &n) * 0.5)
            }
            (Covariances::Spherical(p), Covariances::Spherical(scatter)) => {
                let total = scatter + (&delta * &delta).sum_axis(Axis(1)) * counts;
                Covariances::Spherical((p * p * total - p * &counts * delta.ncols() as f64) * 0.5)
            }
            _ => unreachable!("the types were compared"),
        };
        let (log_likelihood, weights) = (self.log_likelihood(), &counts / &mixture.weights());
        Ok(Gradient { log_likelihood, weights, means, covariances })
    }
}

/// Returns the gradient at `mixture` from one E-step, plus more evaluations for weights that are nearly zero: their
/// ∂/∂π = Σᵢ wᵢ N(xᵢ; μ, Σ) / p(xᵢ) is formed from the components' log densities.
pub fn gradient(evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Result<Gradient> {
    let mut gradient = evaluator.statistics(mixture)?.gradient(mixture)?;
    by_small_weights(evaluator, mixture, &mut gradient.weights)?;
    Ok(gradient)
}

fn by_small_weights(data: &mut dyn Evaluator, mixture: &Mixture, out: &mut Array1<f64>) -> Result<()> {
    let is_small = |c: &usize| mixture.weights()[*c] < SMALL_WEIGHT;
    let small: Vec<usize> = (0..mixture.n_components()).filter(is_small).collect();
    if small.is_empty() {
        return Ok(());
    }
    let n = data.n_samples();
    let mut sample_weights = Vec::with_capacity(n);
    for start in (0..n).step_by(ROWS_AT_ONCE) {
        let rows: Vec<usize> = (start..n.min(start + ROWS_AT_ONCE)).collect();
        sample_weights.extend(data.rows(&rows)?.weights);
    }
    let labels = data.labels().cloned();
    let scores_under = |data: &mut dyn Evaluator, c: usize| {
        let mut scores = data.score_samples(&component(mixture, c)?)?;
        // Labels do not restrict a mixture of one component.
        if let Some(labels) = &labels {
            let others = scores.iter_mut().enumerate().filter(|(row, _)| !labels.allowed(*row).contains(&c));
            others.for_each(|(_, score)| *score = f64::NEG_INFINITY);
        }
        Ok::<_, Error>(scores)
    };
    // Σₖ πₖ exp(log pₖ − largest), and the largest: the density of a far sample, without rounding its logarithm.
    let mut shares = vec![(0.0, f64::NEG_INFINITY); n];
    for c in (0..mixture.n_components()).filter(|c| mixture.weights()[*c] > 0.0) {
        let weight = mixture.weights()[c];
        for ((sum, largest), own) in shares.iter_mut().zip(scores_under(data, c)?) {
            if own > *largest {
                (*sum, *largest) = (*sum * (*largest - own).exp_e() + weight, own);
            } else if own != f64::NEG_INFINITY {
                *sum += weight * (own - *largest).exp_e();
            }
        }
    }
    for c in small {
        let of_component = scores_under(data, c)?;
        let samples = of_component.iter().zip(&shares).zip(&sample_weights);
        // A sample without weight does not count, even if its density is zero.
        let counted = samples.filter(|((own, _), w)| **w > 0.0 && **own > f64::NEG_INFINITY);
        out[c] = counted.map(|((own, (sum, largest)), w)| w * ((own - largest).exp_e() / sum)).sum();
    }
    Ok(())
}

fn component(mixture: &Mixture, c: usize) -> Result<Mixture> {
    Mixture::new(array![1.0], mixture.means().select(Axis(0), &[c]), mixture.covariances().select(&[c]))
}

fn times(precisions: &Covariances, k: usize, delta: ArrayView1<'_, f64>) -> Array1<f64> {
    match precisions {
        Covariances::Full(p) => p.index_axis(Axis(0), k).dot(&delta),
        Covariances::Tied(p) => p.dot(&delta),
        Covariances::Diag(p) => &p.row(k) * &delta,
        Covariances::Spherical(p) => &delta * p[k],
    }
}

fn matrix_part(p: ArrayView2<'_, f64>, scatter: &Array2<f64>, count: f64) -> Array2<f64> {
    (p.dot(scatter).dot(&p) - &p * count) * 0.5
}
