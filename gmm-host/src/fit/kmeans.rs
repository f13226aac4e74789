//! k-means on a few samples on the host. The samples are held by column, so that distances to a centre are formed for
//! many samples at once.
use ndarray::{Array1, Array2, ArrayView1};
use rand::{Rng, RngExt};
use rayon::prelude::*;

/// Samples that one thread takes at a time; a multiple of the vector width that stays in the first cache.
const BLOCK: usize = 512;
/// Multiply-adds below which a second thread is not worth waking.
const PARALLEL_WORK: usize = 1 << 18;

/// Samples with positive weights.
pub(super) struct Points<'a> {
    x: &'a Array2<f64>,
    /// x by column (D, S), contiguous.
    columns: Vec<f64>,
    weights: &'a Array1<f64>,
}

impl<'a> Points<'a> {
    /// `x` (S, D), at least one row; `weights` (S,).
    pub fn new(x: &'a Array2<f64>, weights: &'a Array1<f64>) -> Self {
        Self { x, columns: x.t().iter().copied().collect(), weights }
    }

    /// Greedy k-means++ (Arthur and Vassilvitskii 2007): each centre is a sample drawn with a probability proportional
    /// to its weight times its squared distance to the nearest centre so far, the best of 2 + ⌊ln K⌋ draws or of `trials`, if
    /// those are fewer. The result is (K, D); rows repeat where there are fewer than K different samples.
    pub fn plus_plus(&self, k: usize, trials: usize, rng: &mut impl Rng) -> Array2<f64> {
        let (s, d) = self.x.dim();
        let trials = trials.clamp(1, 2 + (k as f64).ln() as usize);
        let mut nearest = vec![f64::INFINITY; s];
        let mut centres = Array2::zeros((k, d));
        for c in 0..k {
            let potential: Vec<f64> =
                if c == 0 { Vec::new() } else { nearest.iter().zip(self.weights).map(|(d, w)| d * w).collect() };
            // In the beginning, and where all samples are centres already, any will do.
            let any = potential.iter().sum::<f64>() <= 0.0;
            let mut best: Option<(f64, usize, Vec<f64>)> = None;
            for _ in 0..if any { 1 } else { trials } {
                let candidate = if any { draw(self.weights.iter(), rng) } else { draw(potential.iter(), rng) };
                let mut distances = nearest.clone();
                self.blocks(&mut distances, d, |start, out| {
                    self.visit_distances(start, out, self.x.row(candidate), |nearest, d| *nearest = nearest.min(d));
                });
                let total = distances.iter().zip(self.weights).map(|(d, w)| d * w).sum::<f64>();
                if best.as_ref().is_none_or(|(least, ..)| total < *least) {
                    best = Some((total, candidate, distances));
                }
            }
            if let Some((_, chosen, distances)) = best {
                centres.row_mut(c).assign(&self.x.row(chosen));
                nearest = distances;
            }
        }
        centres
    }

    /// Lloyd's iterations, until the squared moves of the centres sum to at most `tol`; whether they came to that. A centre
    /// without samples stays.
    pub fn lloyd(&self, centres: &mut Array2<f64>, rounds: usize, tol: f64) -> bool {
        for _ in 0..rounds {
            let mut sums = Array2::<f64>::zeros(centres.raw_dim());
            let mut counts = vec![0.0; centres.nrows()];
            for ((row, (_, label)), &w) in self.x.outer_iter().zip(self.labels(centres)).zip(self.weights) {
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
                return true;
            }
        }
        false
    }

    /// Weighted mean of the squared distance to the nearest centre.
    pub fn inertia(&self, centres: &Array2<f64>) -> f64 {
        let total: f64 = self.labels(centres).iter().zip(self.weights).map(|((d, _), w)| d * w).sum();
        total / self.weights.sum()
    }

    /// Mean over the features of the weighted variance.
    pub fn mean_variance(&self) -> f64 {
        let (s, d) = self.x.dim();
        let total = self.weights.sum();
        let weighted = |column: &[f64], centre: f64, power: i32| -> f64 {
            column.iter().zip(self.weights).map(|(v, w)| w * (v - centre).powi(power)).sum::<f64>() / total
        };
        let variances = self.columns.chunks_exact(s).map(|column| {
            let mean = column[0] + weighted(column, column[0], 1);
            weighted(column, mean, 2)
        });
        variances.sum::<f64>() / d as f64
    }

    /// The squared distance of each sample to its nearest centre, and that centre, the first of equals.
    fn labels(&self, centres: &Array2<f64>) -> Vec<(f64, usize)> {
        let mut nearest = vec![(f64::INFINITY, 0); self.x.nrows()];
        self.blocks(&mut nearest, centres.len(), |start, out| {
            for (c, centre) in centres.outer_iter().enumerate() {
                self.visit_distances(start, out, centre, |nearest, d| {
                    if d < nearest.0 {
                        *nearest = (d, c);
                    }
                });
            }
        });
        nearest
    }

    /// Calls `f` with each block of `out`, one entry a sample, and the index of its first; on all threads where
    /// `work` multiply-adds a sample make that worth while.
    fn blocks<T: Send>(&self, out: &mut [T], work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        if out.len() * work < PARALLEL_WORK {
            out.chunks_mut(BLOCK).enumerate().for_each(|(b, out)| f(b * BLOCK, out));
        } else {
            out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| f(b * BLOCK, out));
        }
    }

    /// Calls `f` with the entries of a block and their samples' squared distances to `centre`.
    fn visit_distances<T>(&self, start: usize, out: &mut [T], centre: ArrayView1<'_, f64>, f: impl Fn(&mut T, f64)) {
        let mut distances = [0.0; BLOCK];
        let distances = &mut distances[..out.len()];
        for (column, c) in self.columns.chunks_exact(self.x.nrows()).zip(centre) {
            for (distance, v) in distances.iter_mut().zip(&column[start..]) {
                *distance += (v - c) * (v - c);
            }
        }
        out.iter_mut().zip(distances).for_each(|(out, d)| f(out, *d));
    }
}

/// An index with a probability proportional to its entry; the sum is positive and finite.
fn draw<'a>(potential: impl Iterator<Item = &'a f64> + Clone, rng: &mut impl Rng) -> usize {
    let mut left = rng.random::<f64>() * potential.clone().sum::<f64>();
    let mut last = 0;
    for (i, &p) in potential.enumerate().filter(|(_, p)| **p > 0.0) {
        last = i;
        if left < p {
            break;
        }
        left -= p;
    }
    last
}
