//! Model-based agglomerative clustering: every row begins as a group, and the two groups are merged
//! whose merger costs the least likelihood, until one is left (Banfield and Raftery 1993, Fraley 1998).
use super::pooled::{self, AT_ONCE};
use gmm_core::error::{Error, Result};
use gmm_core::interrupt::Interrupt;
use gmm_core::memory;
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::decomposition::eigen;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, Axis, s};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// How columns are transformed before groups are merged, with mclust's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transformation {
    /// VARS: as they are.
    None,
    /// STD: with mean 0 and deviation 1.
    Standardized,
    /// SPH: with the unit matrix as covariance.
    Sphered,
    /// PCS: along the principal components of the covariance.
    PrincipalComponents,
    /// PCR: along those of the correlation.
    PrincipalComponentsOfCorrelation,
    /// SVD: along those of the correlation, each over the root of its singular value (Scrucca and Raftery
    /// 2015).
    ScaledSvd,
}

impl std::str::FromStr for Transformation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "VARS" => Self::None,
            "STD" => Self::Standardized,
            "SPH" => Self::Sphered,
            "PCS" => Self::PrincipalComponents,
            "PCR" => Self::PrincipalComponentsOfCorrelation,
            "SVD" => Self::ScaledSvd,
            _ => {
                let (value, remedy) = (format!("`{name}`"), "use VARS, STD, SPH, PCS, PCR or SVD");
                return Err(Error::BadParameter { name: "use", value, remedy });
            }
        })
    }
}

impl Transformation {
    /// Returns the transformed rows (N, D'). D' is less than D if columns are constant or depend on others.
    fn apply(self, x: ArrayView2<'_, f64>) -> Array2<f64> {
        if self == Self::None {
            return x.to_owned();
        }
        let n = x.nrows() as f64;
        let mean = x.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(x.ncols()));
        let mut z = &x - &mean;
        if matches!(self, Self::Standardized | Self::PrincipalComponentsOfCorrelation | Self::ScaledSvd) {
            let deviations = z.map_axis(Axis(0), |column| (column.dot(&column) / (n - 1.0)).sqrt());
            z /= &deviations.mapv(|v| if v > 0.0 { v } else { 1.0 });
        }
        if self == Self::Standardized {
            return z;
        }
        // The squares of the singular values, and the right singular vectors.
        let (squares, axes) = eigen(z.t().dot(&z).view());
        let rank = squares.iter().take_while(|v| **v > f64::EPSILON * n * squares[0]).count().max(1);
        let mut along = z.dot(&axes.slice(s![.., ..rank]));
        let power = match self {
            Self::Sphered => -0.5,
            Self::ScaledSvd => -0.25,
            _ => return along,
        };
        along *= &squares.slice(s![..rank]).mapv(|v| v.powf(power));
        if self == Self::Sphered {
            along *= (n - 1.0).sqrt();
        }
        along
    }
}

/// The mergers of N rows, of which the first N − K leave K groups.
#[derive(Debug, Clone, PartialEq)]
pub struct Hierarchy {
    /// Two rows, the first of each of the groups that are merged; N − 1 mergers.
    pub mergers: Vec<(usize, usize)>,
}

impl Hierarchy {
    /// Merges rows (N, D) by the criterion of EII (Ward's), VII, EEE or VVV.
    ///
    /// For VII and VVV it holds N²/2 numbers. Among equal costs the order of groups decides, as in mclust: the last group takes the
    /// place of one that is merged into another.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for another model; [`Error::EmptyData`] for no row or column;
    /// [`Error::Memory`] where the memory cannot hold the numbers; [`Error::Interrupted`].
    pub fn new(x: ArrayView2<'_, f64>, model: CovarianceModel, transformation: Transformation) -> Result<Self> {
        let n = x.nrows();
        if x.is_empty() {
            return Err(Error::EmptyData { rows: n, columns: x.ncols() });
        }
        let known = [CovarianceModel::EII, CovarianceModel::VII, CovarianceModel::EEE, CovarianceModel::VVV];
        if !known.contains(&model) {
            let remedy = "groups are merged by EII, VII, EEE or VVV";
            return Err(Error::BadParameter { name: "model", value: model.mclust_name().into(), remedy });
        }
        if n == 1 {
            return Ok(Self { mergers: Vec::new() });
        }
        let rows = transformation.apply(x);
        if model.shares() {
            return Ok(Self { mergers: pooled::merge_all(&rows, model)? });
        }
        memory::check(
            "the costs of all pairs of rows",
            &[n, n],
            size_of::<f64>() / 2,
            "take fewer rows, or EII or EEE",
        )?;
        Ok(Self { mergers: Groups::new(&rows, model)?.merge_all()? })
    }

    /// Returns the group of each row (N,) when K are left, numbered from 0 in the order of their first rows.
    pub fn classes(&self, k: usize) -> Vec<usize> {
        let n = self.mergers.len() + 1;
        let mut first: Vec<usize> = (0..n).collect();
        for &(a, b) in &self.mergers[..n - k.clamp(1, n)] {
            first[a.max(b)] = a.min(b);
        }
        let mut numbers = vec![usize::MAX; n];
        let mut found = 0;
        // A row points at one before it, which has its number already.
        (0..n)
            .map(|row| {
                if first[row] == row {
                    numbers[row] = found;
                    found += 1;
                } else {
                    numbers[row] = numbers[first[row]];
                }
                numbers[row]
            })
            .collect()
    }

    /// Makes the hierarchy from which mclust starts. The last one is remembered, because fits of several K and models
    /// begin with the same.
    pub(super) fn of_start(x: ArrayView2<'_, f64>) -> Result<Self> {
        static LAST: Mutex<Option<(Array2<f64>, Hierarchy)>> = Mutex::new(None);
        if let Some((rows, known)) = &*LAST.lock().unwrap_or_else(PoisonError::into_inner)
            && rows == x
        {
            return Ok(known.clone());
        }
        let model = if x.nrows() > x.ncols() { CovarianceModel::VVV } else { CovarianceModel::EII };
        let made = Self::new(x, model, Transformation::ScaledSvd)?;
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some((x.to_owned(), made.clone()));
        Ok(made)
    }
}

/// Returns the groups of rows of one feature: K ranges between quantiles (mclust's `qclass`).
pub fn quantile_classes(x: ArrayView1<'_, f64>, k: usize) -> Vec<usize> {
    let mut sorted = x.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        // Counted from 1, as in R, which rounds.
        let at = 1.0 + share * (sorted.len() - 1) as f64;
        let (low, high, part) = (sorted[at.floor() as usize - 1], sorted[at.ceil() as usize - 1], at - at.floor());
        if low == high { low } else { (1.0 - part) * low + part * high }
    };
    let mut distinct = sorted.clone();
    distinct.dedup();
    if distinct.len() < k {
        return x.iter().map(|v| distinct.partition_point(|other| other < v)).collect();
    }
    // Where values are equal, finer quantiles, without the lower bounds of the narrowest ranges.
    let mut bounds: Vec<f64> = Vec::new();
    for parts in k..=k.saturating_add(sorted.len()) {
        let step = (parts as f64).recip();
        bounds = (0..=parts).map(|part| quantile((part as f64 * step).min(1.0))).collect();
        bounds.dedup();
        if bounds.len() > k {
            break;
        }
    }
    let mut ranges: Vec<usize> = (1..bounds.len()).collect();
    ranges.sort_by(|a, b| (bounds[*a] - bounds[a - 1]).total_cmp(&(bounds[*b] - bounds[b - 1])));
    let mut kept = ranges.split_off(ranges.len().saturating_sub(k));
    kept.sort_unstable();
    let inner: Vec<f64> = kept.iter().skip(1).map(|range| bounds[range - 1]).collect();
    x.iter().map(|v| inner.partition_point(|bound| bound <= v)).collect()
}

/// A group of rows: how many, the first of them, their sum, and the within scatter.
#[derive(Clone)]
struct Group {
    size: f64,
    first: usize,
    sum: Vec<f64>,
    /// The lower triangle of the scatter, row by row, where the criterion has determinants.
    scatter: Vec<f64>,
    trace: f64,
    /// The criterion's term.
    term: f64,
}

/// The groups that are left, and the costs of their mergers.
struct Groups {
    model: CovarianceModel,
    d: usize,
    /// The mean variance of all rows.
    alpha: f64,
    groups: Vec<Group>,
    /// For each group the costs of mergers with those before it.
    costs: Vec<Vec<f64>>,
    /// For each group but the first the least of them, of equals the last, and its place.
    best: Vec<(f64, usize)>,
}

impl Groups {
    fn new(x: &Array2<f64>, model: CovarianceModel) -> Result<Self> {
        let (n, d) = x.dim();
        let variances = x.var_axis(Axis(0), 0.0);
        let alpha = variances.sum() / d as f64;
        let triangle = if model == CovarianceModel::VVV { d * (d + 1) / 2 } else { 0 };
        let group = |(first, row): (usize, ArrayView1<'_, f64>)| Group {
            size: 1.0,
            first,
            sum: row.to_vec(),
            scatter: vec![0.0; triangle],
            trace: 0.0,
            term: 0.0,
        };
        let mut groups: Vec<Group> = x.outer_iter().enumerate().map(group).collect();
        let mut made =
            Self { model, d, alpha, groups: Vec::new(), costs: Vec::new(), best: vec![(f64::INFINITY, 0); n] };
        groups.iter_mut().for_each(|group| group.term = made.term(group.size, group.trace, &group.scatter));
        made.groups = groups;
        let interrupt = Interrupt::current();
        let costs = |j: usize| interrupt.check().map(|()| (0..j).map(|i| made.cost(i, j)).collect());
        made.costs = (0..n).into_par_iter().with_min_len(8).map(costs).collect::<Result<_>>()?;
        (1..n).for_each(|j| made.best[j] = least(&made.costs[j]));
        Ok(made)
    }

    /// Returns a group's term of the criterion.
    fn term(&self, size: f64, trace: f64, scatter: &[f64]) -> f64 {
        let rounded = (trace + self.alpha) / size;
        let has_volume = self.model == CovarianceModel::VVV && size > self.d as f64;
        let volume = if has_volume { determinant(scatter, self.d, size) } else { 0.0 };
        size * (volume + rounded).ln()
    }

    /// Returns the group of two together, without its term.
    fn merged(&self, a: &Group, b: &Group) -> Group {
        let size = a.size + b.size;
        let share = a.size * b.size / size;
        let delta: Vec<f64> = a.sum.iter().zip(&b.sum).map(|(p, q)| p / a.size - q / b.size).collect();
        let mut scatter = a.scatter.clone();
        if !scatter.is_empty() {
            let mut at = 0;
            for (i, p) in delta.iter().enumerate() {
                let row = scatter[at..].iter_mut().zip(&b.scatter[at..]);
                row.zip(&delta[..=i]).for_each(|((v, b), q)| *v += b + share * (p * q));
                at += i + 1;
            }
        }
        let trace = a.trace + b.trace + share * delta.iter().map(|v| v * v).sum::<f64>();
        let sum = a.sum.iter().zip(&b.sum).map(|(p, q)| p + q).collect();
        Group { size, first: a.first.min(b.first), sum, scatter, trace, term: 0.0 }
    }

    /// Returns what a merger adds to the criterion.
    fn cost(&self, i: usize, j: usize) -> f64 {
        let (a, b) = (&self.groups[i], &self.groups[j]);
        let size = a.size + b.size;
        if self.model == CovarianceModel::VVV && size > self.d as f64 {
            let merged = self.merged(a, b);
            return self.term(size, merged.trace, &merged.scatter) - a.term - b.term;
        }
        let share = a.size * b.size / size;
        let squared: f64 = a.sum.iter().zip(&b.sum).map(|(p, q)| (p / a.size - q / b.size).powi(2)).sum();
        self.term(size, a.trace + b.trace + share * squared, &[]) - a.term - b.term
    }

    /// Makes all mergers.
    fn merge_all(mut self) -> Result<Vec<(usize, usize)>> {
        let mut mergers = Vec::with_capacity(self.groups.len() - 1);
        while self.groups.len() > 1 {
            Interrupt::current().check()?;
            let (mut least, mut j) = (f64::INFINITY, 1);
            for (at, &(cost, _)) in self.best[..self.groups.len()].iter().enumerate().skip(1) {
                if cost <= least {
                    (least, j) = (cost, at);
                }
            }
            let i = self.best[j].1;
            mergers.push((self.groups[i].first, self.groups[j].first));
            self.join(i, j);
        }
        Ok(mergers)
    }

    /// Merges group j into group i before it. The last group takes the place of j.
    fn join(&mut self, i: usize, j: usize) {
        let mut merged = self.merged(&self.groups[i], &self.groups[j]);
        merged.term = self.term(merged.size, merged.trace, &merged.scatter);
        self.groups[i] = merged;
        self.groups.swap_remove(j);
        let n = self.groups.len();
        let of_last = self.costs.pop().unwrap_or_default();
        if j < n {
            self.costs[j].copy_from_slice(&of_last[..j]);
        }
        let work = self.d * if self.model == CovarianceModel::VVV { self.d * self.d / 6 } else { 1 };
        let new: Vec<f64> = (0..n)
            .into_par_iter()
            .with_min_len(AT_ONCE / (work + 1) + 1)
            .map(|a| if a == i { 0.0 } else { self.cost(a.min(i), a.max(i)) })
            .collect();
        self.costs[i].copy_from_slice(&new[..i]);
        for a in 1..n {
            let (costs, best) = (&mut self.costs[a], &mut self.best[a]);
            let stale = a == i || a == j || best.1 == i || best.1 == j;
            let mut changed = |at: usize, cost: f64| {
                costs[at] = cost;
                if cost < best.0 || cost == best.0 && at > best.1 {
                    *best = (cost, at);
                }
            };
            if a > i {
                changed(i, new[a]);
            }
            if a > j {
                changed(j, of_last[a]);
            }
            if stale {
                self.best[a] = least(&self.costs[a]);
            }
        }
    }
}

/// Returns the least number, of equals the last, and its place.
fn least(numbers: &[f64]) -> (f64, usize) {
    let all = numbers.iter().enumerate();
    all.fold((f64::INFINITY, 0), |(least, at), (i, &v)| if v <= least { (v, i) } else { (least, at) })
}

/// Returns the determinant of a scatter over `size`, given as its lower triangle row by row; 0 if a pivot is not
/// positive.
fn determinant(scatter: &[f64], d: usize, size: f64) -> f64 {
    let mut lower = scatter.to_vec();
    let mut product = 1.0;
    let start = |i: usize| i * (i + 1) / 2;
    for i in 0..d {
        for j in 0..=i {
            let (row, before) = (start(i), start(j));
            let sum: f64 = lower[row..row + j].iter().zip(&lower[before..before + j]).map(|(p, q)| p * q).sum();
            let v = lower[row + j] - sum;
            if i > j {
                lower[row + j] = v / lower[before + j];
            } else if v > 0.0 {
                product *= v / size;
                lower[row + j] = v.sqrt();
            } else {
                return 0.0;
            }
        }
    }
    product
}
