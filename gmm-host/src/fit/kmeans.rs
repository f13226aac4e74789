//! k-means on a few samples on the host.
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, ArrayView1, Axis};
use rand::{Rng, RngExt};

/// Multiply-adds of seeding above which each centre is drawn once instead of being the best of several.
const GREEDY_WORK: usize = 1 << 31;
/// Elements of work that are worth a thread.
const GRAIN: usize = 1 << 15;

/// Greedy k-means++ (Arthur and Vassilvitskii 2007): each centre is a sample drawn with a probability proportional to
/// its weight times its squared distance to the nearest centre so far, the best of 2 + ⌊ln K⌋ draws. `x` (S, D) has at
/// least one row and positive `weights` (S,); the result is (K, D). Rows repeat where there are fewer than K.
pub(super) fn plus_plus(x: &Array2<f64>, weights: &Array1<f64>, k: usize, rng: &mut impl Rng) -> Array2<f64> {
    let (s, d) = x.dim();
    let greedy = 2 + (k as f64).ln() as usize;
    let trials = (GREEDY_WORK / (s * d).saturating_mul(k).max(1)).clamp(1, greedy);
    let mut nearest = Array1::from_elem(s, f64::INFINITY);
    let mut centres = Array2::zeros((k, d));
    for c in 0..k {
        let potential = if c == 0 { weights.to_owned() } else { weights * &nearest };
        // Where all samples are centres already, any will do.
        let potential = if potential.sum() > 0.0 { potential } else { weights.to_owned() };
        let trials = if c == 0 { 1 } else { trials };
        let mut best: Option<(f64, usize, Array1<f64>)> = None;
        for _ in 0..trials {
            let candidate = draw(&potential, rng);
            let distances = nearer(x, x.row(candidate), &nearest);
            let total = weights.dot(&distances);
            if best.as_ref().is_none_or(|(least, ..)| total < *least) {
                best = Some((total, candidate, distances));
            }
        }
        if let Some((_, chosen, distances)) = best {
            centres.row_mut(c).assign(&x.row(chosen));
            nearest = distances;
        }
    }
    centres
}

/// An index with a probability proportional to its entry; the sum is positive and finite.
fn draw(potential: &Array1<f64>, rng: &mut impl Rng) -> usize {
    let mut left = rng.random::<f64>() * potential.sum();
    let mut last = 0;
    for (i, &p) in potential.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        last = i;
        if left < p {
            break;
        }
        left -= p;
    }
    last
}

/// The smaller of `nearest` and the squared distance to `centre`, for each row.
fn nearer(x: &Array2<f64>, centre: ArrayView1<'_, f64>, nearest: &Array1<f64>) -> Array1<f64> {
    let mut out = nearest.clone();
    let rows = x.axis_iter(Axis(0)).into_par_iter().zip(out.as_slice_mut().unwrap_or_default());
    rows.with_min_len(GRAIN / x.ncols().max(1) + 1).for_each(|(row, out)| *out = out.min(square_distance(row, centre)));
    out
}

fn square_distance(a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>) -> f64 {
    match (a.as_slice(), b.as_slice()) {
        (Some(a), Some(b)) => a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum(),
        _ => a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum(),
    }
}

/// The nearest centre of each row and its squared distance.
fn labels(x: &Array2<f64>, centres: &Array2<f64>) -> Vec<(usize, f64)> {
    x.axis_iter(Axis(0))
        .into_par_iter()
        .with_min_len(GRAIN / centres.len().max(1) + 1)
        .map(|row| {
            let mut best = (0, f64::INFINITY);
            for (c, centre) in centres.outer_iter().enumerate() {
                let distance = square_distance(row, centre);
                if distance < best.1 {
                    best = (c, distance);
                }
            }
            best
        })
        .collect()
}

/// Lloyd's iterations, until the squared moves of the centres sum to at most `tol`. A centre without samples stays.
pub(super) fn lloyd(x: &Array2<f64>, weights: &Array1<f64>, centres: &mut Array2<f64>, rounds: usize, tol: f64) {
    for _ in 0..rounds {
        let mut sums = Array2::<f64>::zeros(centres.raw_dim());
        let mut counts = vec![0.0; centres.nrows()];
        for ((row, (label, _)), &w) in x.outer_iter().zip(labels(x, centres)).zip(weights) {
            // Around the centre, so that data far from the origin lose nothing.
            for ((sum, v), c) in sums.row_mut(label).iter_mut().zip(row).zip(centres.row(label)) {
                *sum += w * (v - c);
            }
            counts[label] += w;
        }
        let mut moved = 0.0;
        for ((mut centre, sum), n) in centres.outer_iter_mut().zip(sums.outer_iter()).zip(counts) {
            if n > 0.0 {
                for (c, s) in centre.iter_mut().zip(sum) {
                    *c += s / n;
                    moved += (s / n) * (s / n);
                }
            }
        }
        if moved <= tol {
            break;
        }
    }
}

/// Weighted mean of the squared distance to the nearest centre.
pub(super) fn inertia(x: &Array2<f64>, weights: &Array1<f64>, centres: &Array2<f64>) -> f64 {
    labels(x, centres).iter().zip(weights).map(|((_, d), w)| d * w).sum::<f64>() / weights.sum()
}

/// Mean over the features of the weighted variance.
pub(super) fn mean_variance(x: &Array2<f64>, weights: &Array1<f64>) -> f64 {
    let total = weights.sum();
    let variances = x.columns().into_iter().map(|column| {
        let mean = column[0] + column.iter().zip(weights).map(|(v, w)| w * (v - column[0])).sum::<f64>() / total;
        column.iter().zip(weights).map(|(v, w)| w * (v - mean) * (v - mean)).sum::<f64>() / total
    });
    variances.sum::<f64>() / x.ncols() as f64
}
