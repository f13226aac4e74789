//! k-means on a few samples on the host. The samples are held by column, so that distances to a centre are formed for
//! many samples at once.
use ndarray::{Array1, Array2, ArrayView1};
use pulp::{Arch, Simd, WithSimd};
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
    weights: Vec<f64>,
    arch: Arch,
}

impl<'a> Points<'a> {
    /// `x` (S, D), at least one row; `weights` (S,).
    pub fn new(x: &'a Array2<f64>, weights: &'a Array1<f64>) -> Self {
        let s = x.nrows();
        let mut columns = vec![0.0; x.len()];
        for (i, row) in x.outer_iter().enumerate() {
            columns[i..].iter_mut().step_by(s).zip(row).for_each(|(to, v)| *to = *v);
        }
        Self { x, columns, weights: weights.to_vec(), arch: Arch::new() }
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
            // In the beginning, and where all samples are centres already, any will do.
            let mut potential = Vec::new();
            if c > 0 {
                potential = running(nearest.iter().zip(&self.weights).map(|(d, w)| d * w));
            }
            let any = potential.last().is_none_or(|sum| *sum <= 0.0);
            if any {
                potential = running(self.weights.iter().copied());
            }
            let mut best: Option<(f64, usize, Vec<f64>)> = None;
            for _ in 0..if any { 1 } else { trials } {
                let candidate = draw(&potential, rng);
                let mut distances = nearest.clone();
                self.blocks(&mut distances, d, |start, out| {
                    self.visit_distances(start, out, self.x.row(candidate), |nearest, d| *nearest = nearest.min(d));
                });
                let total = self.sum(&distances, |d| d);
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
            for ((i, (_, label)), &w) in self.labels(centres).into_iter().enumerate().zip(&self.weights) {
                // Around the centre, so that data far from the origin lose nothing.
                let columns = self.columns.chunks_exact(self.x.nrows());
                for ((sum, column), c) in sums.row_mut(label).iter_mut().zip(columns).zip(centres.row(label)) {
                    *sum += w * (column[i] - c);
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
        let distances: Vec<f64> = self.labels(centres).into_iter().map(|(d, _)| d).collect();
        self.sum(&distances, |d| d) / self.weights.iter().sum::<f64>()
    }

    /// Mean over the features of the weighted variance.
    pub fn mean_variance(&self) -> f64 {
        let (s, d) = self.x.dim();
        let total = self.weights.iter().sum::<f64>();
        let variances = self.columns.chunks_exact(s).map(|column| {
            let mean = column[0] + self.sum(column, |v| v - column[0]) / total;
            self.sum(column, |v| (v - mean) * (v - mean)) / total
        });
        variances.sum::<f64>() / d as f64
    }

    /// Σᵢ wᵢ·f(vᵢ), as a few sums side by side, so that none waits for the addition before.
    fn sum(&self, values: &[f64], f: impl Fn(f64) -> f64) -> f64 {
        let mut sums = [0.0; 8];
        for (values, weights) in values.chunks(8).zip(self.weights.chunks(8)) {
            for ((sum, v), w) in sums.iter_mut().zip(values).zip(weights) {
                *sum += w * f(*v);
            }
        }
        sums.iter().sum()
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
        self.arch.dispatch(Distances { columns: &self.columns, samples: self.x.nrows(), start, centre, distances });
        out.iter_mut().zip(distances).for_each(|(out, d)| f(out, *d));
    }
}

/// Squared distances of the samples from `start` on to `centre`, with the widest registers there are: the same operations,
/// and so the same bits, with any.
struct Distances<'a> {
    columns: &'a [f64],
    samples: usize,
    start: usize,
    centre: ArrayView1<'a, f64>,
    distances: &'a mut [f64],
}

impl WithSimd for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Samples whose sums stay in registers.
        const SIDE_BY_SIDE: usize = 32;
        for (piece, out) in self.distances.chunks_mut(SIDE_BY_SIDE).enumerate() {
            let mut sums = [0.0; SIDE_BY_SIDE];
            let at = self.start + piece * SIDE_BY_SIDE;
            for (column, centre) in self.columns.chunks_exact(self.samples).zip(self.centre) {
                let values = &column[at..at + out.len()];
                if let Ok(values) = <&[f64; SIDE_BY_SIDE]>::try_from(values) {
                    for (sum, v) in sums.iter_mut().zip(values) {
                        *sum += (v - centre) * (v - centre);
                    }
                } else {
                    for (sum, v) in sums.iter_mut().zip(values) {
                        *sum += (v - centre) * (v - centre);
                    }
                }
            }
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Running sums.
fn running(values: impl Iterator<Item = f64>) -> Vec<f64> {
    values
        .scan(0.0, |sum, v| {
            *sum += v;
            Some(*sum)
        })
        .collect()
}

/// An index with a probability proportional to its entry, from the entries' running sums, of which the last is positive
/// and finite. An entry of zero is never drawn.
fn draw(running: &[f64], rng: &mut impl Rng) -> usize {
    let last = running.last().copied().unwrap_or(0.0);
    let at = rng.random::<f64>() * last;
    // The product may be rounded up to the last sum.
    running.partition_point(|sum| *sum <= at).min(running.partition_point(|sum| *sum < last))
}
