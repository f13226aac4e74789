//! The gradient of the log-likelihood, from the sufficient statistics.
use gaussmix::{Covariances, Mixture, Statistics};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis};

/// Derivatives of the total log-likelihood, each entry of an array being a variable of its own.
pub struct Gradient {
    pub weights: Array1<f64>,
    pub means: Array2<f64>,
    pub covariances: Covariances,
}

/// With the precision P, the count N, the mean x̄ and the scatter S of a component, and δ = x̄ − μ:
/// ∂/∂π = N/π, ∂/∂μ = N·P·δ, ∂/∂Σ = ½ (P·(S + N·δδᵀ)·P − N·P). A component of weight 0 has no counts; its derivative by the
/// weight cannot be had from them and is NaN.
pub fn gradient(mixture: &Mixture, statistics: &Statistics) -> Gradient {
    let counts = statistics.counts();
    let weights = &counts / &mixture.weights();
    let mut delta = &statistics.means() - &mixture.means();
    // The mean of no samples has no meaning.
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
    let covariances = match (&precisions, statistics.scatter()) {
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
        // Statistics are of the mixture's type.
        (_, scatter) => scatter.clone(),
    };
    Gradient { weights, means, covariances }
}

/// The precision of component `k` times a vector.
fn times(precisions: &Covariances, k: usize, delta: ArrayView1<'_, f64>) -> Array1<f64> {
    match precisions {
        Covariances::Full(p) => p.index_axis(Axis(0), k).dot(&delta),
        Covariances::Tied(p) => p.dot(&delta),
        Covariances::Diag(p) => &p.row(k) * &delta,
        Covariances::Spherical(p) => &delta * p[k],
        _ => delta.to_owned(),
    }
}

fn matrix_part(p: ArrayView2<'_, f64>, scatter: &Array2<f64>, count: f64) -> Array2<f64> {
    (p.dot(scatter).dot(&p) - &p * count) * 0.5
}
