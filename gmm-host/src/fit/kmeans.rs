//! k-means on a few samples, for a fit's start: weighted, with missing values, with one result on any division.
use super::points::{Distance, Points, Rows, plus_plus, running, trials, weighted_sum};
use gmm_core::model::linalg::row_major;
use ndarray::{Array1, Array2, Axis};
use rand::{Rng, RngExt};

/// The Lloyd iterations that move centres which are samples with missing values.
const GAP_LLOYD: usize = 2;
/// The narrowest variance over the square of the largest number: narrow for any samples that differ.
const NARROWEST: f64 = 1e-24;

/// The missing values in the samples of each cluster.
pub(super) struct Gaps {
    /// The share of each column's values that is missing (K, D), by weight.
    share: Array2<f64>,
    /// The variance of each column within the clusters (D,).
    variance: Array1<f64>,
}

impl Gaps {
    /// Returns the variance that missing values add to the clusters (K, D), or (1, D) for all.
    pub fn variances(&self) -> Array2<f64> {
        &self.share * &self.variance
    }

    /// Returns the least variance of a column whose values differ.
    pub fn least_variance(&self) -> Option<f64> {
        self.variance.iter().copied().filter(|v| v.is_normal()).reduce(f64::min)
    }

    /// Returns the gaps of clusters whose variances already include `variance` for each missing value.
    pub fn beside(mut self, variance: f64) -> Self {
        self.variance.mapv_inplace(|v| (v - variance).max(0.0));
        self
    }
}

impl Points<f64> {
    /// Holds samples `x` (S, D) with positive `weights` (S,). A missing value, NaN, becomes the mean of its column.
    pub fn with_gaps(x: &Array2<f64>, weights: &Array1<f64>) -> Self {
        let d = x.ncols();
        let mut numbers: Vec<f64> = x.iter().copied().collect();
        let mut distance = Distance::Squared;
        if numbers.iter().any(|v| v.is_nan()) {
            let observed = numbers.iter().map(|v| f64::from(u8::from(!v.is_nan()))).collect();
            distance = Distance::Observed(Rows::new(observed, d));
            (0..d).for_each(|j| fill_with_mean(&mut numbers[j..], d, weights));
        }
        Self::new(numbers, d, weights.to_vec(), distance)
    }

    /// Returns whether any value is missing.
    pub fn has_gaps(&self) -> bool {
        matches!(self.distance, Distance::Observed(_))
    }

    /// Returns 1 for a value that is observed, 0 for one that is missing.
    fn observed(&self) -> impl Fn(usize, usize) -> f64 {
        move |i, j| match &self.distance {
            Distance::Observed(observed) => observed.numbers[i * self.d + j],
            _ => 1.0,
        }
    }

    /// Returns the samples (S, D), with column means in place of missing values.
    pub fn filled(&self) -> Array2<f64> {
        self.select(&(0..self.weights.len()).collect::<Vec<_>>())
    }

    fn select(&self, rows: &[usize]) -> Array2<f64> {
        Array2::from_shape_fn((rows.len(), self.d), |(i, j)| self.row(rows[i])[j])
    }

    /// Returns the mean of the samples (1, D).
    pub fn mean(&self) -> Array2<f64> {
        let (mut mean, mut weight) = (Array2::zeros((1, self.d)), 0.0);
        for (row, w) in self.iter().zip(&self.weights) {
            weight += w;
            mean.iter_mut().zip(row).for_each(|(mean, v)| *mean += (v - *mean) * (w / weight));
        }
        mean
    }

    /// Returns the centres (K, D) of greedy k-means++: samples drawn with probabilities proportional to weight times
    /// squared distance to the nearest centre, each the best of min(2 + ⌊ln K⌋, `trials`). Rows repeat if fewer than K
    /// samples differ.
    pub fn seeds(&self, k: usize, trials: usize, rng: &mut impl Rng) -> Array2<f64> {
        self.seeds_beside(&Array2::zeros((0, self.d)), k, trials, rng)
    }

    /// Returns `k` centres as [`seeds`](Self::seeds), beside known centres (C, D).
    pub fn seeds_beside(&self, known: &Array2<f64>, k: usize, most: usize, rng: &mut impl Rng) -> Array2<f64> {
        let trials = most.clamp(1, trials(k));
        let mut is_first = known.is_empty();
        let candidates = |nearest: &[f64]| {
            // Samples are drawn by weight alone for the first centre, and if all samples are centres already.
            let by_distance = running(nearest.iter().zip(&self.weights).map(|(d, w)| d * w));
            match by_distance.last() {
                Some(sum) if !std::mem::take(&mut is_first) && *sum > 0.0 => {
                    (0..trials).map(|_| draw(&by_distance, rng)).collect()
                }
                _ => vec![draw(&running(self.weights.iter().copied()), rng)],
            }
        };
        // Infinite without known centres.
        let nearest = self.distances(&row_major(known.view()));
        self.select(&plus_plus(self, k, &self.weights, nearest, candidates))
    }

    /// Makes Lloyd iterations until the centres' squared moves sum to at most `tol`; returns whether `rounds` suffice.
    pub fn lloyd(&self, centres: &mut Array2<f64>, rounds: usize, tol: f64) -> bool {
        (0..rounds).any(|_| self.move_to_means(centres) <= tol)
    }

    /// Moves centres that are samples with missing values to their neighbours, from which the column means may be far.
    pub fn settle_gaps(&self, centres: &mut Array2<f64>) {
        if self.has_gaps() {
            self.lloyd(centres, GAP_LLOYD, 0.0);
        }
    }

    /// Returns a variance that is narrow for any samples that differ in the digits of float64.
    pub fn smallest_variance(&self) -> f64 {
        let largest = self.rows.numbers.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        NARROWEST * if largest > 0.0 { largest * largest } else { 1.0 }
    }

    /// Moves each centre to the means of its samples' observed values, if any. Returns the sum of the squared moves.
    fn move_to_means(&self, centres: &mut Array2<f64>) -> f64 {
        let (mut sums, mut counts) = (vec![0.0; centres.len()], vec![0.0; centres.len()]);
        self.visit(centres, |place, _, w, observed, away| {
            // Sums differences from the centre, to lose nothing for data far from the origin.
            sums[place] += w * observed * away;
            counts[place] += w * observed;
        });
        let mut moved = 0.0;
        for ((centre, sum), n) in centres.iter_mut().zip(&sums).zip(&counts).filter(|(_, n)| **n > 0.0) {
            *centre += sum / n;
            moved += (sum / n) * (sum / n);
        }
        moved
    }

    /// Calls `f` for each value with the place of its column in its nearest centre, among those (K, D), the column, the
    /// weight, 1 if observed (else 0), and the difference.
    fn visit(&self, centres: &Array2<f64>, mut f: impl FnMut(usize, usize, f64, f64, f64)) {
        let observed = self.observed();
        let centres = row_major(centres.view());
        for (i, (label, w)) in self.labels(&centres).into_iter().zip(&self.weights).enumerate() {
            let places = label * self.d..;
            for (j, ((v, centre), place)) in self.row(i).iter().zip(&centres[places.clone()]).zip(places).enumerate() {
                f(place, j, *w, observed(i, j), v - centre);
            }
        }
    }

    /// Returns the missing values of the samples nearest to each centre, or `None` if no value is missing.
    pub fn gaps(&self, centres: &Array2<f64>) -> Option<Gaps> {
        self.has_gaps().then(|| self.spread(centres))
    }

    fn spread(&self, centres: &Array2<f64>) -> Gaps {
        let (k, d) = centres.dim();
        let mut seen = Array2::<f64>::zeros((k, d));
        let mut all = Array2::<f64>::zeros((k, d));
        let mut squares = Array1::<f64>::zeros(d);
        self.visit(centres, |place, j, w, observed, away| {
            let at = [place / d, j];
            seen[at] += w * observed;
            all[at] += w;
            squares[j] += w * observed * away.powi(2);
        });
        let variance = squares / seen.sum_axis(Axis(0));
        let share = seen / &all;
        Gaps { share: share.mapv(|share| if share.is_nan() { 0.0 } else { 1.0 - share }), variance }
    }

    /// Returns the weighted mean of the squared distance to the nearest centre.
    pub fn inertia(&self, centres: &Array2<f64>) -> f64 {
        weighted_sum(&self.distances(&row_major(centres.view())), &self.weights) / self.weights.iter().sum::<f64>()
    }

    /// Returns the mean over the features of the weighted variance.
    pub fn mean_variance(&self) -> f64 {
        let means = Array2::from_shape_fn((1, self.d), |(_, j)| self.column_mean(j));
        self.spread(&means).variance.iter().sum::<f64>() / self.d as f64
    }

    /// Returns the mean of a column, whose missing values are that mean already.
    fn column_mean(&self, j: usize) -> f64 {
        let column = || self.rows.numbers[j..].iter().step_by(self.d);
        let origin = self.rows.numbers[j];
        let sum: f64 = column().zip(&self.weights).map(|(v, w)| w * (v - origin)).sum();
        origin + sum / self.weights.iter().sum::<f64>()
    }
}

/// Fills the gaps in a column, every `d`th of `values`, with the weighted mean of its other values, or 0 without any.
fn fill_with_mean(values: &mut [f64], d: usize, weights: &Array1<f64>) {
    let (mut sum, mut weight, mut origin) = (0.0, 0.0, None);
    for (v, w) in values.iter().step_by(d).zip(weights).filter(|(v, _)| !v.is_nan()) {
        // Sums differences, to lose nothing far from zero.
        sum += w * (v - *origin.get_or_insert(*v));
        weight += w;
    }
    let mean = origin.map_or(0.0, |origin: f64| if weight > 0.0 { origin + sum / weight } else { origin });
    values.iter_mut().step_by(d).filter(|v| v.is_nan()).for_each(|v| *v = mean);
}

/// Draws an index with probability proportional to its entry, from running sums with a positive, finite end.
fn draw(running: &[f64], rng: &mut impl Rng) -> usize {
    let last = running.last().copied().unwrap_or(0.0);
    let at = rng.random::<f64>() * last;
    // The product may be rounded up to the last sum.
    running.partition_point(|sum| *sum <= at).min(running.partition_point(|sum| *sum < last))
}
