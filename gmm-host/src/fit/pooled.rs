//! Mergers by the scatter W that all groups share: by its trace (EII, Ward's), or by |W/N| + tr W/N (EEE).
use gmm_core::error::Result;
use gmm_core::interrupt::Interrupt;
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::decomposition::eigen;
use gmm_core::model::linalg::{sum_of, vectorised};
use ndarray::{Array1, Array2, Axis};
use rayon::prelude::*;

/// In the place of a group or a metric.
const NONE: usize = usize::MAX;
/// Multiply-adds that are worth another thread.
pub(super) const AT_ONCE: usize = 1 << 16;

/// What a group knows of its mergers with those before it. Costs only grow, so each known one is a bound.
#[derive(Clone, Copy)]
struct Nearest {
    /// The least cost, or less.
    bound: f64,
    /// The group of the least cost, of equals the last, as far as is known; or none.
    to: usize,
    /// The least cost with any other group, or less.
    next: f64,
    /// The metric in which all this is exact.
    exact_in: usize,
    /// The metric of the last look at all groups.
    seen_in: usize,
}

impl Nearest {
    /// Takes a cost in a metric.
    #[inline(always)]
    fn insert(&mut self, cost: f64, at: usize, metric: usize) {
        if cost < self.bound || cost == self.bound && self.to != NONE && at > self.to {
            *self = Self { bound: cost, to: at, next: self.bound, exact_in: metric, ..*self };
        } else {
            self.next = self.next.min(cost);
        }
    }
}

/// The groups that are left. Merging two whose means differ by δ costs c·δᵀMδ, where 1/c is the sum of their inverse
/// sizes, and M = 1, or of EEE |W/N|·(W/N)⁻¹ + 1, which grows with W. So known costs are bounds, and few are computed.
struct Groups {
    d: usize,
    sizes: Vec<f64>,
    first: Vec<usize>,
    sums: Vec<f64>,
    nearest: Vec<Nearest>,
    /// M (D, D), if it is not 1, and R with M = R·Rᵀ.
    metric: Option<(Array2<f64>, Array2<f64>)>,
    /// The number of the metric.
    number: usize,
    /// The means times the R of a metric, which may be an earlier one, that R, and its metric's number.
    along: Vec<f64>,
    root: Option<Array2<f64>>,
    of_along: usize,
}

/// Makes all mergers of rows (N, D) by EII or EEE: pairs of the first rows of groups.
pub(super) fn merge_all(x: &Array2<f64>, model: CovarianceModel) -> Result<Vec<(usize, usize)>> {
    let (n, d) = x.dim();
    let rows: Vec<f64> = x.iter().copied().collect();
    let mut groups = Groups {
        d,
        sizes: vec![1.0; n],
        first: (0..n).collect(),
        sums: rows.clone(),
        nearest: Vec::new(),
        metric: None,
        number: 0,
        along: rows,
        root: None,
        of_along: 0,
    };
    let interrupt = Interrupt::current();
    let nearest = |j| interrupt.check().map(|()| groups.nearest_of(j));
    groups.nearest = (0..n).into_par_iter().with_min_len(8).map(nearest).collect::<Result<_>>()?;
    let mut pooled = Array2::<f64>::zeros((d, d));
    let mut mergers = Vec::with_capacity(n - 1);
    while groups.sizes.len() > 1 {
        interrupt.check()?;
        let (i, j) = groups.cheapest();
        mergers.push((groups.first[i], groups.first[j]));
        if model == CovarianceModel::EEE {
            let (delta, share) = (Array1::from(groups.delta(i, j)), groups.share(i, j));
            let (row, column) = (delta.view().insert_axis(Axis(0)), delta.view().insert_axis(Axis(1)));
            pooled += &((&column * &row) * share);
            groups.measure(&(&pooled / n as f64), n as f64);
        }
        groups.join(i, j);
    }
    Ok(mergers)
}

impl Groups {
    fn share(&self, i: usize, j: usize) -> f64 {
        self.sizes[i] * self.sizes[j] / (self.sizes[i] + self.sizes[j])
    }

    fn mean(&self, i: usize) -> Vec<f64> {
        self.sums[i * self.d..(i + 1) * self.d].iter().map(|sum| sum / self.sizes[i]).collect()
    }

    fn delta(&self, i: usize, j: usize) -> Vec<f64> {
        self.mean(i).iter().zip(&self.mean(j)).map(|(a, b)| a - b).collect()
    }

    /// Takes the metric of a pooled covariance. While that is singular, the metric stays.
    fn measure(&mut self, covariance: &Array2<f64>, n_rows: f64) {
        let (values, axes) = eigen(covariance.view());
        if values[self.d - 1] > f64::EPSILON * values[0] * n_rows {
            let root = (values.product() / &values + 1.0).mapv(f64::sqrt);
            if root.iter().any(|v| *v > 1.0) {
                let root = axes * root;
                self.metric = Some((root.dot(&root.t()), root));
                self.number += 1;
            }
        }
    }

    /// Returns a bound of the cost of a merger.
    #[inline(always)]
    fn bound(&self, i: usize, j: usize) -> f64 {
        let row = |i: usize| &self.along[i * self.d..(i + 1) * self.d];
        self.share(i, j) * sum_of([row(i), row(j)], |[p, q]| (p - q) * (p - q))
    }

    /// Returns the cost of a merger.
    fn cost(&self, i: usize, j: usize) -> f64 {
        let delta = Array1::from(self.delta(i, j));
        self.share(i, j)
            * self.metric.as_ref().map_or_else(|| delta.dot(&delta), |(metric, _)| delta.dot(&metric.dot(&delta)))
    }

    /// Returns what is known of a group after a look at all before it.
    fn nearest_of(&self, j: usize) -> Nearest {
        vectorised(
            #[inline(always)]
            || {
                let (bound, seen_in) = (f64::INFINITY, self.of_along);
                let mut nearest = Nearest { bound, to: NONE, next: bound, exact_in: NONE, seen_in };
                (0..j).for_each(|i| nearest.insert(self.bound(i, j), i, self.of_along));
                nearest
            },
        )
    }

    /// Returns the bounds of the costs of a group's mergers with all.
    fn bounds(&self, i: usize) -> Vec<f64> {
        let n = self.sizes.len();
        let of_part = |part: usize| -> Vec<f64> {
            let rows = part * AT_ONCE / self.d..((part + 1) * AT_ONCE / self.d).min(n);
            vectorised(
                #[inline(always)]
                || rows.map(|a| self.bound(a, i)).collect(),
            )
        };
        let parts = (n * self.d).div_ceil(AT_ONCE);
        if parts == 1 { of_part(0) } else { (0..parts).into_par_iter().flat_map_iter(of_part).collect() }
    }

    /// Finds the cheapest merger, of equals the last.
    fn cheapest(&mut self) -> (usize, usize) {
        loop {
            let all = self.nearest.iter().enumerate().skip(1);
            let least = |best: (f64, usize), (j, nearest): (usize, &Nearest)| {
                if nearest.bound <= best.0 { (nearest.bound, j) } else { best }
            };
            let j = all.fold((f64::INFINITY, 1), least).1;
            let Nearest { to, next, exact_in, seen_in, .. } = self.nearest[j];
            if exact_in == self.number && to != NONE {
                return (to, j);
            }
            if to != NONE {
                let cost = self.cost(to, j);
                if cost <= next {
                    self.nearest[j] = Nearest { bound: cost, exact_in: self.number, ..self.nearest[j] };
                    continue;
                }
                let is_old = seen_in == self.of_along && self.of_along != self.number;
                if let Some((_, root)) = self.metric.as_ref().filter(|_| is_old) {
                    let shape = (self.sizes.len(), self.d);
                    let means = Array2::from_shape_fn(shape, |(i, l)| self.sums[i * self.d + l] / self.sizes[i]);
                    self.along = means.dot(root).iter().copied().collect();
                    (self.root, self.of_along) = (Some(root.clone()), self.number);
                }
            }
            self.nearest[j] = self.nearest_of(j);
            if self.nearest[j].to == NONE {
                // All costs are infinite.
                return (j - 1, j);
            }
        }
    }

    /// Merges group j into group i before it. The last group takes the place of j.
    fn join(&mut self, i: usize, j: usize) {
        let (d, n) = (self.d, self.sizes.len() - 1);
        (0..d).for_each(|l| self.sums[i * d + l] += self.sums[j * d + l]);
        self.sizes[i] += self.sizes[j];
        self.first[i] = self.first[i].min(self.first[j]);
        self.sizes.swap_remove(j);
        self.first.swap_remove(j);
        for rows in [&mut self.sums, &mut self.along] {
            rows.copy_within(n * d.., j * d);
            rows.truncate(n * d);
        }
        self.nearest.pop();
        let mean = self.mean(i);
        let along = self.root.as_ref().map_or(mean.clone(), |root| Array1::from(mean).dot(root).to_vec());
        self.along[i * d..(i + 1) * d].copy_from_slice(&along);
        let (merged, moved) = (self.bounds(i), if j < n { self.bounds(j) } else { Vec::new() });
        for (a, nearest) in self.nearest.iter_mut().enumerate().skip(i + 1) {
            if nearest.to == i || nearest.to == j {
                *nearest = Nearest { bound: nearest.next, to: NONE, exact_in: NONE, ..*nearest };
            }
            nearest.insert(merged[a], i, self.of_along);
            if a > j {
                nearest.insert(moved[a], j, self.of_along);
            }
        }
        for changed in [i, j].into_iter().filter(|changed| *changed < n) {
            self.nearest[changed] = self.nearest_of(changed);
        }
    }
}
