//! k-means on a few samples, on the host. The samples lie in blocks, column by column, so that the
//! distances of many samples to a centre are computed at once. The distance of a sample with
//! missing values is that of its observed ones.
use ndarray::{Array1, Array2, Axis};
use pulp::{Arch, Simd, WithSimd};
use rand::{Rng, RngExt};
use rayon::prelude::*;

/// The number of samples that one thread takes at a time: a multiple of `SIDE_BY_SIDE` that fits
/// into the first-level cache.
const BLOCK: usize = 512;
/// The number of samples whose distances are computed at once, in registers; it divides `BLOCK`.
const SIDE_BY_SIDE: usize = 32;
/// Lloyd's iterations by which centres that are samples with missing values find their place.
const GAP_LLOYD: usize = 2;
/// A variance that is this times the square of the largest number is narrow for any samples that
/// differ.
const NARROWEST: f64 = 1e-24;
/// Work of fewer multiply-adds than this is done by one thread.
const PARALLEL_WORK: usize = 1 << 18;

/// Samples with positive weights.
pub(super) struct Points {
    d: usize,
    /// Row by row (S, D).
    rows: Vec<f64>,
    /// The same (⌈S / 32⌉, D, 32), filled up with zeros.
    blocks: Vec<[f64; SIDE_BY_SIDE]>,
    weights: Vec<f64>,
    /// Which values are observed; none where all are. A missing value is the mean of its column in
    /// `rows` and `blocks`.
    observed: Option<Observed>,
    arch: Arch,
}

/// 1 for a value that is observed and 0 for one that is not.
struct Observed {
    /// Row by row (S, D).
    rows: Vec<f64>,
    /// The same in the order of the blocks.
    blocks: Vec<[f64; SIDE_BY_SIDE]>,
}

/// What is missing in the samples of each cluster.
pub(super) struct Gaps {
    /// The share of each column's values that is missing (K, D), by weight.
    share: Array2<f64>,
    /// The variance of each column within the clusters (D,).
    variance: Array1<f64>,
}

impl Gaps {
    /// What the missing values add to the variances of the clusters (K, D), or (1, D) for all.
    pub fn variances(&self) -> Array2<f64> {
        &self.share * &self.variance
    }

    /// The least variance of a column whose values differ.
    pub fn least_variance(&self) -> Option<f64> {
        self.variance.iter().copied().filter(|v| v.is_normal()).reduce(f64::min)
    }

    /// The same where the clusters' variances have so much for each missing value already.
    pub fn beside(mut self, variance: f64) -> Self {
        self.variance.mapv_inplace(|v| (v - variance).max(0.0));
        self
    }
}

impl Points {
    /// `x` (S, D), at least one row, NaN where a value is missing; `weights` (S,).
    pub fn new(x: &Array2<f64>, weights: &Array1<f64>) -> Self {
        let d = x.ncols();
        let mut rows: Vec<f64> = x.iter().copied().collect();
        let observed = rows.iter().any(|v| v.is_nan()).then(|| {
            let observed: Vec<f64> = rows.iter().map(|v| f64::from(u8::from(!v.is_nan()))).collect();
            for j in 0..d {
                fill_with_mean(&mut rows[j..], d, weights);
            }
            Observed { blocks: blocks(&observed, d), rows: observed }
        });
        Self { d, blocks: blocks(&rows, d), rows, weights: weights.to_vec(), observed, arch: Arch::new() }
    }

    /// Whether any value is missing.
    pub fn has_gaps(&self) -> bool {
        self.observed.is_some()
    }

    /// The samples, with the means of the columns where values are missing (S, D).
    pub fn filled(&self) -> Array2<f64> {
        Array2::from_shape_fn((self.weights.len(), self.d), |(i, j)| self.rows[i * self.d + j])
    }

    /// The mean of the samples (1, D).
    pub fn mean(&self) -> Array2<f64> {
        let (mut mean, mut weight) = (Array2::zeros((1, self.d)), 0.0);
        for (row, w) in self.rows.chunks_exact(self.d).zip(&self.weights) {
            weight += w;
            mean.iter_mut().zip(row).for_each(|(mean, v)| *mean += (v - *mean) * (w / weight));
        }
        mean
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.d..][..self.d]
    }

    /// Greedy k-means++ (Arthur and Vassilvitskii 2007): each centre is a sample drawn with a
    /// probability proportional to its weight times its squared distance to the nearest centre so
    /// far, the best of 2 + ⌊ln K⌋ draws or of `trials`, if those are fewer. The result is (K, D);
    /// rows repeat where there are fewer than K different samples.
    pub fn plus_plus(&self, k: usize, trials: usize, rng: &mut impl Rng) -> Array2<f64> {
        self.plus_plus_beside(&Array2::zeros((0, self.d)), k, trials, rng)
    }

    /// As [`plus_plus`](Self::plus_plus), `k` centres beside those that are known (C, D).
    pub fn plus_plus_beside(&self, known: &Array2<f64>, k: usize, trials: usize, rng: &mut impl Rng) -> Array2<f64> {
        let trials = trials.clamp(1, 2 + (k as f64).ln() as usize);
        let mut nearest = match known.is_empty() {
            true => vec![f64::INFINITY; self.weights.len()],
            false => self.distances(known),
        };
        let mut centres = Array2::zeros((k, self.d));
        for c in 0..k {
            // For the first centre, and if all samples are centres already, samples are drawn by
            // their weights alone.
            let mut potential = Vec::new();
            if c > 0 || !known.is_empty() {
                potential = running(nearest.iter().zip(&self.weights).map(|(d, w)| d * w));
            }
            let by_weight = potential.last().is_none_or(|sum| *sum <= 0.0);
            if by_weight {
                potential = running(self.weights.iter().copied());
            }
            let mut best: Option<(f64, usize, Vec<f64>)> = None;
            for _ in 0..if by_weight { 1 } else { trials } {
                let candidate = draw(&potential, rng);
                let mut distances = nearest.clone();
                self.blocks(&mut distances, self.d, |start, out| {
                    self.visit_distances(start, out, self.row(candidate), |nearest, d| *nearest = nearest.min(d));
                });
                let total = self.sum(&distances);
                if best.as_ref().is_none_or(|(least, ..)| total < *least) {
                    best = Some((total, candidate, distances));
                }
            }
            if let Some((_, chosen, distances)) = best {
                centres.row_mut(c).iter_mut().zip(self.row(chosen)).for_each(|(c, v)| *c = *v);
                nearest = distances;
            }
        }
        centres
    }

    /// Lloyd's iterations, until the squared moves of the centres sum to at most `tol`; returns
    /// whether that was reached in so many rounds. A centre without samples stays where it is.
    pub fn lloyd(&self, centres: &mut Array2<f64>, rounds: usize, tol: f64) -> bool {
        let d = self.d;
        for _ in 0..rounds {
            let old: Vec<f64> = centres.iter().copied().collect();
            if let Some(observed) = &self.observed {
                if self.move_to_observed(centres, observed) <= tol {
                    return true;
                }
                continue;
            }
            let mut sums = vec![0.0; old.len()];
            let mut counts = vec![0.0; centres.nrows()];
            for ((row, (_, label)), &w) in self.rows.chunks_exact(d).zip(self.labels(centres)).zip(&self.weights) {
                // Differences from the centre are summed, so that nothing is lost for data far from
                // the origin.
                let (sum, centre) = (&mut sums[label * d..][..d], &old[label * d..][..d]);
                for ((sum, v), c) in sum.iter_mut().zip(row).zip(centre) {
                    *sum += w * (v - c);
                }
                counts[label] += w;
            }
            let mut moved = 0.0;
            for ((mut centre, sum), n) in centres.outer_iter_mut().zip(sums.chunks_exact(d)).zip(counts) {
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

    /// Moves centres that are samples towards their neighbours, if values are missing: a centre
    /// then has the column's mean, which may be far from them.
    pub fn settle_gaps(&self, centres: &mut Array2<f64>) {
        if self.has_gaps() {
            self.lloyd(centres, GAP_LLOYD, 0.0);
        }
    }

    /// A variance that is narrow for any samples that differ in the digits of float64.
    pub fn smallest_variance(&self) -> f64 {
        let largest = self.rows.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        NARROWEST * if largest > 0.0 { largest * largest } else { 1.0 }
    }

    /// Moves each coordinate of each centre to the mean of the values that are observed in its
    /// samples, or leaves it where there are none. Returns the sum of the squared moves.
    fn move_to_observed(&self, centres: &mut Array2<f64>, observed: &Observed) -> f64 {
        let mut sums = Array2::<f64>::zeros(centres.dim());
        let mut counts = Array2::<f64>::zeros(centres.dim());
        for (i, ((_, label), &w)) in self.labels(centres).into_iter().zip(&self.weights).enumerate() {
            for (j, (v, seen)) in self.row(i).iter().zip(&observed.rows[i * self.d..]).enumerate() {
                sums[[label, j]] += w * seen * (v - centres[[label, j]]);
                counts[[label, j]] += w * seen;
            }
        }
        let mut moved = 0.0;
        for ((centre, sum), n) in centres.iter_mut().zip(&sums).zip(&counts).filter(|(_, n)| **n > 0.0) {
            *centre += sum / n;
            moved += (sum / n) * (sum / n);
        }
        moved
    }

    /// What is missing in the samples that are nearest to each of the centres; `None` where nothing
    /// is.
    pub fn gaps(&self, centres: &Array2<f64>) -> Option<Gaps> {
        let observed = self.observed.as_ref()?;
        let mut seen = Array2::<f64>::zeros(centres.dim());
        let mut counts = Array1::<f64>::zeros(centres.nrows());
        let mut squares = Array1::<f64>::zeros(self.d);
        for (i, ((_, label), &w)) in self.labels(centres).into_iter().zip(&self.weights).enumerate() {
            counts[label] += w;
            for (j, (v, observed)) in self.row(i).iter().zip(&observed.rows[i * self.d..]).enumerate() {
                seen[[label, j]] += w * observed;
                squares[j] += w * observed * (v - centres[[label, j]]).powi(2);
            }
        }
        let variance = squares / seen.sum_axis(Axis(0));
        let share = Array2::from_shape_fn(seen.dim(), |(c, j)| match counts[c] > 0.0 {
            true => 1.0 - seen[[c, j]] / counts[c],
            false => 0.0,
        });
        Some(Gaps { share, variance })
    }

    /// The squared distance of each sample to the nearest centre.
    pub fn distances(&self, centres: &Array2<f64>) -> Vec<f64> {
        self.labels(centres).into_iter().map(|(d, _)| d).collect()
    }

    /// Weighted mean of the squared distance to the nearest centre.
    pub fn inertia(&self, centres: &Array2<f64>) -> f64 {
        self.sum(&self.distances(centres)) / self.weights.iter().sum::<f64>()
    }

    /// Mean over the features of the weighted variance.
    pub fn mean_variance(&self) -> f64 {
        if self.observed.is_some() {
            let means = Array2::from_shape_fn((1, self.d), |(_, j)| self.column_mean(j));
            return self.gaps(&means).map_or(0.0, |gaps| gaps.variance.sum() / self.d as f64);
        }
        let total = self.weights.iter().sum::<f64>();
        let weighted = |centre: &[f64], f: fn(f64) -> f64| {
            let mut sums = vec![0.0; self.d];
            for (row, w) in self.rows.chunks_exact(self.d).zip(&self.weights) {
                for ((sum, v), c) in sums.iter_mut().zip(row).zip(centre) {
                    *sum += w * f(v - c);
                }
            }
            sums.into_iter().map(move |sum| sum / total)
        };
        let means: Vec<f64> = weighted(self.row(0), |v| v).zip(self.row(0)).map(|(v, c)| v + c).collect();
        weighted(&means, |v| v * v).sum::<f64>() / self.d as f64
    }

    /// The mean of a column, where what is missing is that mean already.
    fn column_mean(&self, j: usize) -> f64 {
        let column = || self.rows[j..].iter().step_by(self.d);
        let origin = self.rows[j];
        let sum: f64 = column().zip(&self.weights).map(|(v, w)| w * (v - origin)).sum();
        origin + sum / self.weights.iter().sum::<f64>()
    }

    /// Σᵢ wᵢ·vᵢ, in eight sums side by side, so that no addition waits for the one before.
    fn sum(&self, values: &[f64]) -> f64 {
        let mut sums = [0.0; 8];
        for (values, weights) in values.chunks(8).zip(self.weights.chunks(8)) {
            for ((sum, v), w) in sums.iter_mut().zip(values).zip(weights) {
                *sum += w * v;
            }
        }
        sums.iter().sum()
    }

    /// The squared distance of each sample to its nearest centre, and that centre, the first of
    /// equals.
    fn labels(&self, centres: &Array2<f64>) -> Vec<(f64, usize)> {
        let mut nearest = vec![(f64::INFINITY, 0); self.weights.len()];
        let all: Vec<f64> = centres.iter().copied().collect();
        self.blocks(&mut nearest, centres.len(), |start, out| {
            for (c, centre) in all.chunks_exact(self.d).enumerate() {
                self.visit_distances(start, out, centre, |nearest, d| {
                    if d < nearest.0 {
                        *nearest = (d, c);
                    }
                });
            }
        });
        nearest
    }

    /// Calls `f` with each block of `out`, which has one entry a sample, and the index of the
    /// block's first sample. Uses all threads if `work` multiply-adds a sample pay for that.
    fn blocks<T: Send>(&self, out: &mut [T], work: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        if out.len() * work < PARALLEL_WORK {
            out.chunks_mut(BLOCK).enumerate().for_each(|(b, out)| f(b * BLOCK, out));
        } else {
            out.par_chunks_mut(BLOCK).enumerate().for_each(|(b, out)| f(b * BLOCK, out));
        }
    }

    /// Calls `f` with the entries of a block and their samples' squared distances to `centre`.
    fn visit_distances<T>(&self, start: usize, out: &mut [T], centre: &[f64], f: impl Fn(&mut T, f64)) {
        let mut distances = [[0.0; SIDE_BY_SIDE]; BLOCK / SIDE_BY_SIDE];
        let distances = &mut distances[..out.len().div_ceil(SIDE_BY_SIDE)];
        let first = start / SIDE_BY_SIDE * self.d;
        let blocks = &self.blocks[first..];
        match &self.observed {
            None => self.arch.dispatch(Distances { blocks, centre, distances }),
            Some(observed) => {
                let observed = &observed.blocks[first..];
                self.arch.dispatch(ObservedDistances { blocks, observed, centre, distances });
            }
        }
        out.iter_mut().zip(distances.as_flattened()).for_each(|(out, d)| f(out, *d));
    }
}

/// Squared distances of blocks of samples (P, D, 32) to `centre` (D,), with the machine's widest
/// registers. Registers of any width give the same bits, because they make the same operations.
struct Distances<'a> {
    blocks: &'a [[f64; SIDE_BY_SIDE]],
    centre: &'a [f64],
    distances: &'a mut [[f64; SIDE_BY_SIDE]],
}

impl WithSimd for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (block, out) in self.blocks.chunks_exact(self.centre.len()).zip(self.distances) {
            let mut sums = [0.0; SIDE_BY_SIDE];
            for (values, centre) in block.iter().zip(self.centre) {
                for (sum, v) in sums.iter_mut().zip(values) {
                    *sum += (v - centre) * (v - centre);
                }
            }
            *out = sums;
        }
    }
}

/// As [`Distances`], of the values that are observed (P, D, 32).
struct ObservedDistances<'a> {
    blocks: &'a [[f64; SIDE_BY_SIDE]],
    observed: &'a [[f64; SIDE_BY_SIDE]],
    centre: &'a [f64],
    distances: &'a mut [[f64; SIDE_BY_SIDE]],
}

impl WithSimd for ObservedDistances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let d = self.centre.len();
        for ((block, observed), out) in
            self.blocks.chunks_exact(d).zip(self.observed.chunks_exact(d)).zip(self.distances)
        {
            let mut sums = [0.0; SIDE_BY_SIDE];
            for ((values, observed), centre) in block.iter().zip(observed).zip(self.centre) {
                for ((sum, v), observed) in sums.iter_mut().zip(values).zip(observed) {
                    *sum += observed * ((v - centre) * (v - centre));
                }
            }
            *out = sums;
        }
    }
}

/// Numbers row by row (S, D) in blocks (⌈S / 32⌉, D, 32), filled up with zeros.
fn blocks(rows: &[f64], d: usize) -> Vec<[f64; SIDE_BY_SIDE]> {
    let mut blocks = vec![[0.0; SIDE_BY_SIDE]; (rows.len() / d).div_ceil(SIDE_BY_SIDE) * d];
    for (i, row) in rows.chunks_exact(d).enumerate() {
        for (block, v) in blocks[i / SIDE_BY_SIDE * d..].iter_mut().zip(row) {
            block[i % SIDE_BY_SIDE] = *v;
        }
    }
    blocks
}

/// Fills the gaps in a column, every `d`th of `values`, with the mean of its other values by
/// weight; with 0 if there are none.
fn fill_with_mean(values: &mut [f64], d: usize, weights: &Array1<f64>) {
    let (mut sum, mut weight, mut origin) = (0.0, 0.0, None);
    for (v, w) in values.iter().step_by(d).zip(weights).filter(|(v, _)| !v.is_nan()) {
        // Differences are summed, so that nothing is lost far from zero.
        sum += w * (v - *origin.get_or_insert(*v));
        weight += w;
    }
    let mean = origin.map_or(0.0, |origin: f64| if weight > 0.0 { origin + sum / weight } else { origin });
    values.iter_mut().step_by(d).filter(|v| v.is_nan()).for_each(|v| *v = mean);
}

/// Running sums.
fn running(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let sums = values.scan(0.0, |sum, v| {
        *sum += v;
        Some(*sum)
    });
    sums.collect()
}

/// An index with a probability proportional to its entry, from the entries' running sums, of which
/// the last is positive and finite. An entry of zero is never drawn.
fn draw(running: &[f64], rng: &mut impl Rng) -> usize {
    let last = running.last().copied().unwrap_or(0.0);
    let at = rng.random::<f64>() * last;
    // The product may be rounded up to the last sum.
    running.partition_point(|sum| *sum <= at).min(running.partition_point(|sum| *sum < last))
}
