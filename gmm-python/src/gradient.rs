//! The gradient of the log-likelihood, from the sufficient statistics.
use gaussmix::evaluator::Evaluator;
use gaussmix::model::{Covariances, Mixture};
use gaussmix::statistics::Statistics;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, array, s};

/// A component of a smaller weight may have responsibilities below the range of float32, whose
/// numbers end at 10⁻³⁸, so that its count does not give the derivative by the weight.
const SMALL_WEIGHT: f64 = 1e-20;

/// Samples whose weights are asked for at a time.
const ROWS_AT_ONCE: usize = 1 << 13;

/// Derivatives of the total log-likelihood, each entry of an array being a variable of its own.
pub struct Gradient {
    pub weights: Array1<f64>,
    pub means: Array2<f64>,
    pub covariances: Covariances,
}

/// With the precision P, the count N, the mean x̄ and the scatter S of a component, and δ = x̄ − μ:
/// ∂/∂π = N/π, ∂/∂μ = N·P·δ, ∂/∂Σ = ½ (P·(S + N·δδᵀ)·P − N·P). Where π is zero or nearly so,
/// ∂/∂π = Σᵢ wᵢ N(xᵢ; μ, Σ) / p(xᵢ) is formed from the components' log densities.
pub fn gradient(data: &mut dyn Evaluator, mixture: &Mixture, statistics: &Statistics) -> gaussmix::Result<Gradient> {
    let counts = statistics.counts();
    let mut weights = &counts / &mixture.weights();
    by_small_weights(data, mixture, &mut weights)?;
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
    Ok(Gradient { weights, means, covariances })
}

/// Writes the derivatives by weights that are zero or nearly so.
fn by_small_weights(data: &mut dyn Evaluator, mixture: &Mixture, out: &mut Array1<f64>) -> gaussmix::Result<()> {
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
    // Σₖ πₖ exp(log pₖ − largest), and the largest: the density of a far sample, whose logarithm is rounded.
    let mut shares = vec![(0.0, f64::NEG_INFINITY); n];
    for c in (0..mixture.n_components()).filter(|c| mixture.weights()[*c] > 0.0) {
        let weight = mixture.weights()[c];
        for ((sum, largest), own) in shares.iter_mut().zip(data.score_samples(&component(mixture, c)?)?) {
            if own > *largest {
                (*sum, *largest) = (*sum * (*largest - own).exp() + weight, own);
            } else if own != f64::NEG_INFINITY {
                *sum += weight * (own - *largest).exp();
            }
        }
    }
    for c in small {
        let of_component = data.score_samples(&component(mixture, c)?)?;
        let samples = of_component.iter().zip(&shares).zip(&sample_weights);
        // A sample without weight has no part, even where its density is zero.
        let counted = samples.filter(|((own, _), w)| **w > 0.0 && **own > f64::NEG_INFINITY);
        out[c] = counted.map(|((own, (sum, largest)), w)| w * ((own - largest).exp() / sum)).sum();
    }
    Ok(())
}

/// A component as a mixture of its own.
fn component(mixture: &Mixture, c: usize) -> gaussmix::Result<Mixture> {
    let rows = c..c + 1;
    let covariances = match mixture.covariances() {
        Covariances::Full(v) => Covariances::Full(v.slice(s![rows.clone(), .., ..]).to_owned()),
        Covariances::Diag(v) => Covariances::Diag(v.slice(s![rows.clone(), ..]).to_owned()),
        Covariances::Spherical(v) => Covariances::Spherical(v.slice(s![rows.clone()]).to_owned()),
        tied => tied.clone(),
    };
    Mixture::new(array![1.0], mixture.means().slice(s![rows, ..]).to_owned(), covariances)
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
