//! The sufficient statistics of an E-step, and the M-step.
use crate::error::{Error, Result};
use crate::freeze::Freeze;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{
    all, at_once, for_each_matrix, map_rows, matrices_at_once, mirror, row_major, sum_of, trace_of_product,
    try_for_each_row, vectorised,
};
use crate::model::mixture::Mixture;
use crate::prior::ConjugatePrior;
use ndarray::parallel::prelude::*;
#[cfg(feature = "cuda")]
use ndarray::{Array, Array3, ArrayViewMut, RemoveAxis};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis};

/// Added to every count before it divides, as in scikit-learn (10·ε); see [`Statistics::update`].
pub const COUNT_FLOOR: f64 = 10.0 * f64::EPSILON;

/// The sufficient statistics of a mixture over some samples: made in one pass over a chunk of data,
/// merged with those of other chunks in any grouping, turned into parameters.
///
/// With responsibilities rᵢₖ (each times its sample's weight): counts Nₖ = Σᵢ rᵢₖ, means x̄ₖ = Σᵢ
/// rᵢₖ xᵢ / Nₖ, and the scatter around each component's own x̄ₖ, in the shape of the mixture's
/// covariance type: `full` Σᵢ rᵢₖ (xᵢ−x̄ₖ)(xᵢ−x̄ₖ)ᵀ, `tied` the sum of these over k, `diag` their
/// diagonals, `spherical` their traces (sums over the features, not means).
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    weight: f64,
    log_likelihood: f64,
    counts: Array1<f64>,
    means: Array2<f64>,
    scatter: Covariances,
}

/// Raw sums as a backend forms them, in float64: moments around centres near the data.
#[derive(Debug, Clone)]
pub struct CentredSums {
    /// Σᵢ wᵢ, the total weight of the samples (their number, without weights).
    pub weight: f64,
    /// Σᵢ wᵢ log p(xᵢ).
    pub log_likelihood: f64,
    /// The centres cₖ (K, D); all rows may be equal. The nearer to the means, the less cancels.
    pub centres: Array2<f64>,
    /// Σᵢ rᵢₖ (K,).
    pub counts: Array1<f64>,
    /// Σᵢ rᵢₖ (xᵢ − cₖ) (K, D).
    pub first: Array2<f64>,
    /// Σᵢ rᵢₖ (xᵢ − cₖ)(xᵢ − cₖ)ᵀ in the shape of the covariance type: `tied` summed over k, `diag`
    /// the diagonals, `spherical` the traces. Of a matrix only the lower triangle (row ≥ column) is
    /// read.
    pub second: Covariances,
}

impl CentredSums {
    /// The means: around them the first moments are zero. The centres of components without
    /// samples.
    pub(crate) fn new_centres(&self) -> Array2<f64> {
        let mut means = self.centres.clone();
        for ((c, j), mean) in means.indexed_iter_mut() {
            if self.counts[c] > 0.0 {
                *mean += self.first[[c, j]] / self.counts[c];
            }
        }
        means
    }

    /// Whether the second moments around the means, as differences of those around the centres,
    /// would lose more than 20 of their 53 binary digits in some feature. This is so where samples
    /// that lie close together have just become a component of their own, whose mean moves by many
    /// of its new standard deviations. A mean that moves by less than a thousandth of the standard
    /// deviation that it had in `mixture` does not count: the moments around a centre so near
    /// change nothing that the fit could notice.
    pub(crate) fn cancel(&self, mixture: &Mixture) -> bool {
        const LOST: f64 = (1u64 << 20) as f64;
        const MOVED: f64 = 1e-3;
        let (k, d) = self.centres.dim();
        let cancels = |second: f64, of_mean: f64| of_mean > LOST * (second - of_mean).max(0.0);
        // nδ² of a component and a feature.
        let of_mean = |c: usize, j: usize| {
            let (n, first) = (self.counts[c], self.first[[c, j]]);
            if n > 0.0 { first * (first / n) } else { 0.0 }
        };
        let moves = |c: usize, j: usize| {
            let moved = self.first[[c, j]] / self.counts[c];
            self.counts[c] > 0.0 && moved.abs() > MOVED * mixture.variance(c, j).sqrt()
        };
        let each = || (0..k).flat_map(|c| (0..d).map(move |j| (c, j)));
        match &self.second {
            Covariances::Full(v) => each().any(|(c, j)| moves(c, j) && cancels(v[[c, j, j]], of_mean(c, j))),
            Covariances::Diag(v) => each().any(|(c, j)| moves(c, j) && cancels(v[[c, j]], of_mean(c, j))),
            Covariances::Spherical(v) => {
                (0..k).any(|c| (0..d).any(|j| moves(c, j)) && cancels(v[c], (0..d).map(|j| of_mean(c, j)).sum()))
            }
            Covariances::Tied(v) => {
                (0..d).any(|j| (0..k).any(|c| moves(c, j)) && cancels(v[[j, j]], (0..k).map(|c| of_mean(c, j)).sum()))
            }
        }
    }

    /// Adds the moments of values that are missing, of features that do not depend on each other
    /// (`diag`, `spherical`): a value has the mean and the variance that the component has in its
    /// column. `observed`: Σᵢ rᵢₖ over the samples that have a value in the column, of a component
    /// and a column.
    pub(crate) fn add_missing(&mut self, mixture: &Mixture, observed: impl Fn(usize, usize) -> f64) {
        for ((c, j), first) in self.first.indexed_iter_mut() {
            // Rounding leaves a little where nothing is missing.
            let missing = (self.counts[c] - observed(c, j)).max(0.0);
            if missing > 0.0 {
                let delta = mixture.means()[[c, j]] - self.centres[[c, j]];
                *first += missing * delta;
                let second = missing * (mixture.variance(c, j) + delta * delta);
                match &mut self.second {
                    Covariances::Diag(v) => v[[c, j]] += second,
                    Covariances::Spherical(v) => v[c] += second,
                    Covariances::Full(_) | Covariances::Tied(_) => {}
                }
            }
        }
    }
}

/// The result of an M-step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Update {
    /// The new parameters.
    pub mixture: Mixture,
    /// Components (ascending) that lost their samples or collapsed onto a point, and retained their
    /// earlier parameters.
    pub retained: Vec<usize>,
}

/// The error of a sum that is NaN or infinite, or of a negative count.
fn check_totals(log_likelihood: f64, counts: &Array1<f64>) -> Result<()> {
    if !log_likelihood.is_finite() {
        let (what, value) = ("the log-likelihood", log_likelihood);
        return Err(Error::NonFiniteStatistic { what, component: 0, value });
    }
    match counts.iter().enumerate().find(|(_, count)| !(count.is_finite() && **count >= 0.0)) {
        Some((component, &value)) => Err(Error::NonFiniteStatistic { what: "the count", component, value }),
        None => Ok(()),
    }
}

/// A component's first moments over its count.
fn divide(mut first: ArrayViewMut1<'_, f64>, count: f64) {
    if count > 0.0 {
        first /= count;
    } else {
        first.fill(0.0);
    }
}

/// The error of a component's moment that is NaN or infinite.
fn check_finite<'a>(
    what: &'static str,
    component: usize,
    rows: impl IntoIterator<Item = ArrayView1<'a, f64>>,
) -> Result<()> {
    for row in rows {
        // All of a row at once first, which is many times as fast.
        if !row.fold(true, |finite, v| finite & v.is_finite())
            && let Some(&value) = row.iter().find(|v| !v.is_finite())
        {
            return Err(Error::NonFiniteStatistic { what, component, value });
        }
    }
    Ok(())
}

/// Moves the second moments (D,) of a component with a diagonal covariance from its centre to its
/// mean, and makes its first moments what its mean is from the centre.
fn move_to_mean(
    component: usize,
    count: f64,
    mut first: ArrayViewMut1<'_, f64>,
    mut second: ArrayViewMut1<'_, f64>,
) -> Result<()> {
    check_finite("the first moment", component, [first.view()])?;
    check_finite("the second moment", component, [second.view()])?;
    divide(first.view_mut(), count);
    second.zip_mut_with(&first, |v, d| *v = (*v - count * d * d).max(0.0));
    Ok(())
}

/// As [`move_to_mean`], of a component with a full covariance: its second moments (D, D), row by
/// row, of which only the lower triangle is read.
fn move_matrix_to_mean(
    component: usize,
    count: f64,
    mut first: ArrayViewMut1<'_, f64>,
    mut second: ArrayViewMut2<'_, f64>,
) -> Result<()> {
    check_finite("the first moment", component, [first.view()])?;
    divide(first.view_mut(), count);
    let (delta, d) = (row_major(first.view()), first.len());
    let second = second.as_slice_mut().unwrap_or_default();
    let finite = vectorised(
        #[inline(always)]
        || {
            let mut finite = true;
            for (i, row) in second.chunks_exact_mut(d).enumerate() {
                let row = &mut row[..=i];
                if count > 0.0 {
                    // The product of the deltas first, as everywhere.
                    let a = delta[i];
                    row.iter_mut().zip(&*delta).for_each(|(v, b)| *v -= count * (a * b));
                }
                // What was not finite still is not.
                finite &= all(row, f64::is_finite);
            }
            finite
        },
    );
    if !finite {
        let rows = second.chunks_exact(d).enumerate().map(|(i, row)| ArrayView1::from(&row[..=i]));
        check_finite("the second moment", component, rows)?;
    }
    tidy_matrix(second, d);
    Ok(())
}

/// The means (K, D): `write` writes a component's first and second moments around `centre` (D,),
/// and `move_to_mean` moves them to its mean. One component at a time, whose moments stay in a
/// core's cache.
#[cfg(feature = "cuda")]
fn means_of_sums<D: RemoveAxis<Smaller: Send + Sync> + Send + Sync>(
    counts: &Array1<f64>,
    centre: ArrayView1<'_, f64>,
    second: &mut Array<f64, D>,
    write: impl Fn(usize, ArrayViewMut1<'_, f64>, ArrayViewMut<'_, f64, D::Smaller>) + Sync,
    move_to_mean: impl Fn(usize, f64, ArrayViewMut1<'_, f64>, ArrayViewMut<'_, f64, D::Smaller>) -> Result<()> + Sync,
) -> Result<Array2<f64>> {
    let mut means = Array2::zeros((counts.len(), centre.len()));
    try_for_each_row(&mut means, second, |c, mut first, mut second| {
        write(c, first.view_mut(), second.view_mut());
        move_to_mean(c, counts[c], first.view_mut(), second)?;
        first += &centre;
        Ok::<(), Error>(())
    })?;
    Ok(means)
}

impl Statistics {
    /// The statistics of no samples, the neutral element of [`merge`](Self::merge).
    pub fn empty(covariance_type: CovarianceType, n_components: usize, n_features: usize) -> Self {
        Self {
            weight: 0.0,
            log_likelihood: 0.0,
            counts: Array1::zeros(n_components),
            means: Array2::zeros((n_components, n_features)),
            scatter: Covariances::zeros(covariance_type, n_components, n_features),
        }
    }

    /// The statistics that so many samples of each component would have, spread as the component is.
    pub(crate) fn of_mixture(mixture: &Mixture, samples: f64) -> Self {
        let (k, d) = mixture.means().dim();
        let factor = match mixture.covariance_type() {
            CovarianceType::Tied => samples * k as f64,
            CovarianceType::Spherical => samples * d as f64,
            CovarianceType::Full | CovarianceType::Diag => samples,
        };
        let mut scatter = mixture.covariances().clone();
        scatter.map_inplace(|v| *v *= factor);
        let counts = Array1::from_elem(k, samples);
        Self { weight: counts.sum(), log_likelihood: 0.0, counts, means: mixture.means().to_owned(), scatter }
    }

    /// Moves the moments from the given centres to each component's own mean: x̄ₖ = cₖ + δₖ with
    /// δₖ = first/count, and scatter = second − Nₖ δₖ δₖᵀ. What rounding leaves below zero on a
    /// diagonal becomes zero. A component with count zero has the mean cₖ.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::NonFiniteStatistic`] where a sum is NaN or infinite, or a
    /// count negative.
    pub fn from_centred_sums(sums: CentredSums) -> Result<Self> {
        let CentredSums { weight, log_likelihood, mut centres, counts, first, second: mut scatter } = sums;
        let dim = centres.dim();
        let deltas = Self::move_to_means(dim, log_likelihood, &counts, first, &mut scatter)?;
        centres += &deltas;
        Ok(Self { weight, log_likelihood, counts, means: centres, scatter })
    }

    /// As [`from_centred_sums`](Self::from_centred_sums) for diagonal covariances, with one centre
    /// (D,) for all components: `write` writes a component's first and second moments (D,).
    #[cfg(feature = "cuda")]
    pub(crate) fn from_diagonal_sums(
        weight: f64,
        log_likelihood: f64,
        counts: Array1<f64>,
        centre: ArrayView1<'_, f64>,
        write: impl Fn(usize, ArrayViewMut1<'_, f64>, ArrayViewMut1<'_, f64>) + Sync,
    ) -> Result<Self> {
        check_totals(log_likelihood, &counts)?;
        let mut second = Array2::zeros((counts.len(), centre.len()));
        let means = means_of_sums(&counts, centre, &mut second, write, move_to_mean)?;
        Ok(Self { weight, log_likelihood, counts, means, scatter: Covariances::Diag(second) })
    }

    /// As [`from_diagonal_sums`](Self::from_diagonal_sums) for full covariances: `write` writes the
    /// first moments (D,) and the lower triangle of the second ones (D, D).
    #[cfg(feature = "cuda")]
    pub(crate) fn from_full_sums(
        weight: f64,
        log_likelihood: f64,
        counts: Array1<f64>,
        centre: ArrayView1<'_, f64>,
        write: impl Fn(usize, ArrayViewMut1<'_, f64>, ArrayViewMut2<'_, f64>) + Sync,
    ) -> Result<Self> {
        check_totals(log_likelihood, &counts)?;
        let mut second = Array3::zeros((counts.len(), centre.len(), centre.len()));
        let means = means_of_sums(&counts, centre, &mut second, write, move_matrix_to_mean)?;
        Ok(Self { weight, log_likelihood, counts, means, scatter: Covariances::Full(second) })
    }

    /// As [`from_centred_sums`](Self::from_centred_sums), with one centre (D,) for all components,
    /// whatever `sums` has.
    #[cfg(feature = "cuda")]
    pub(crate) fn from_sums_around(centre: ArrayView1<'_, f64>, sums: CentredSums) -> Result<Self> {
        let CentredSums { weight, log_likelihood, counts, first, second: mut scatter, .. } = sums;
        let dim = (counts.len(), centre.len());
        let mut means = Self::move_to_means(dim, log_likelihood, &counts, first, &mut scatter)?;
        means += &centre;
        Ok(Self { weight, log_likelihood, counts, means, scatter })
    }

    /// Moves second moments from the centres to the means, and returns what the means are from the
    /// centres.
    fn move_to_means(
        (k, d): (usize, usize),
        log_likelihood: f64,
        counts: &Array1<f64>,
        first: Array2<f64>,
        scatter: &mut Covariances,
    ) -> Result<Array2<f64>> {
        if first.dim() != (k, d) {
            return Err(Error::ShapeMismatch {
                what: "first moments",
                expected: vec![k, d],
                got: first.shape().into(),
            });
        }
        if counts.len() != k {
            return Err(Error::ShapeMismatch { what: "counts", expected: vec![k], got: vec![counts.len()] });
        }
        scatter.check_shape("second moments", k, d)?;
        check_totals(log_likelihood, counts)?;
        let mut deltas = first;
        // Matrices are gone through row by row.
        match scatter {
            Covariances::Full(v) if !v.is_standard_layout() => *v = v.as_standard_layout().into_owned(),
            Covariances::Tied(v) if !v.is_standard_layout() => *v = v.as_standard_layout().into_owned(),
            _ => {}
        }
        match scatter {
            Covariances::Diag(v) => {
                try_for_each_row(&mut deltas, v, |c, first, second| move_to_mean(c, counts[c], first, second))?;
            }
            Covariances::Full(v) => {
                try_for_each_row(&mut deltas, v, |c, first, second| move_matrix_to_mean(c, counts[c], first, second))?;
            }
            scatter => {
                let mut rows = deltas.outer_iter().enumerate();
                rows.try_for_each(|(c, row)| check_finite("the first moment", c, [row]))?;
                match scatter {
                    Covariances::Spherical(v) => {
                        let mut numbers = v.axis_chunks_iter(Axis(0), 1).enumerate();
                        numbers.try_for_each(|(c, v)| check_finite("the second moment", c, [v]))?;
                    }
                    Covariances::Tied(v) => check_finite("the second moment", 0, v.outer_iter())?,
                    // See above.
                    Covariances::Diag(_) | Covariances::Full(_) => {}
                }
                deltas.outer_iter_mut().zip(counts).for_each(|(delta, count)| divide(delta, *count));
                let delta = |c: usize| deltas.row(c).to_vec();
                (0..k).filter(|c| counts[*c] > 0.0).for_each(|c| scatter.add_outer(c, -counts[c], &delta(c)));
                match scatter {
                    Covariances::Tied(v) => tidy_matrix(v.as_slice_mut().unwrap_or_default(), d),
                    scatter => scatter.map_inplace(clamp),
                }
            }
        }
        Ok(deltas)
    }

    /// From responsibilities (N, K) that no mixture gave, for example the labels of another
    /// clustering or random numbers. The log-likelihood is 0.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::NonFiniteStatistic`] for a responsibility that is not
    /// finite or a negative count.
    pub fn from_responsibilities(
        x: ArrayView2<'_, f64>,
        responsibilities: ArrayView2<'_, f64>,
        covariance_type: CovarianceType,
    ) -> Result<Self> {
        let ((n, k), d) = (responsibilities.dim(), x.ncols());
        if x.nrows() != n {
            let (expected, got) = (vec![x.nrows(), k], vec![n, k]);
            return Err(Error::ShapeMismatch { what: "responsibilities", expected, got });
        }
        let counts = responsibilities.sum_axis(Axis(0));
        let mut centres = Array2::zeros((k, d));
        let mut second = Covariances::zeros(covariance_type, k, d);
        for c in 0..k {
            let r = responsibilities.column(c);
            if counts[c] > 0.0 {
                centres.row_mut(c).assign(&(x.t().dot(&r) / counts[c]));
            }
            let centred = &x - &centres.row(c);
            let weighted = &centred * &r.insert_axis(Axis(1));
            let diagonal = || (&weighted * &centred).sum_axis(Axis(0));
            match &mut second {
                Covariances::Full(v) => v.index_axis_mut(Axis(0), c).assign(&weighted.t().dot(&centred)),
                Covariances::Tied(v) => *v += &weighted.t().dot(&centred),
                Covariances::Diag(v) => v.row_mut(c).assign(&diagonal()),
                Covariances::Spherical(v) => v[c] = diagonal().sum(),
            }
        }
        let (weight, first) = (counts.sum(), Array2::zeros((k, d)));
        Self::from_centred_sums(CentredSums { weight, log_likelihood: 0.0, centres, counts, first, second })
    }

    /// Total weight of the samples (their number, without sample weights).
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// Σᵢ wᵢ log p(xᵢ) under the mixture of the E-step.
    pub fn log_likelihood(&self) -> f64 {
        self.log_likelihood
    }

    /// Mean log-likelihood of a sample: scikit-learn's `lower_bound_`.
    pub fn lower_bound(&self) -> f64 {
        self.log_likelihood / self.weight
    }

    /// Nₖ (K,).
    pub fn counts(&self) -> ArrayView1<'_, f64> {
        self.counts.view()
    }

    /// x̄ₖ (K, D); of no meaning where the count is zero.
    pub fn means(&self) -> ArrayView2<'_, f64> {
        self.means.view()
    }

    /// The scatter, in the shape of the covariance type.
    pub fn scatter(&self) -> &Covariances {
        &self.scatter
    }

    /// The scatter in its own memory, which an M-step takes for the covariances.
    pub(crate) fn into_scatter(self) -> Covariances {
        self.scatter
    }

    /// Type of the mixture's covariances and of the scatter.
    pub fn covariance_type(&self) -> CovarianceType {
        self.scatter.covariance_type()
    }

    /// K.
    pub fn n_components(&self) -> usize {
        self.means.nrows()
    }

    /// D.
    pub fn n_features(&self) -> usize {
        self.means.ncols()
    }

    /// Adds the statistics of other samples under the same mixture, by the pairwise formula of
    /// Chan, Golub and LeVeque (1979): nothing is ever moved to the origin, so nothing cancels.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where K or D differ, [`Error::WrongCovarianceType`].
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        let (k, d) = self.means.dim();
        if other.means.dim() != (k, d) {
            let got = other.means.shape().to_vec();
            return Err(Error::ShapeMismatch { what: "statistics to be merged", expected: vec![k, d], got });
        }
        other.scatter.check_type("statistics to be merged", self.covariance_type(), k, d)?;
        match (&mut self.scatter, &other.scatter) {
            (Covariances::Full(a), Covariances::Full(b)) => *a += b,
            (Covariances::Tied(a), Covariances::Tied(b)) | (Covariances::Diag(a), Covariances::Diag(b)) => *a += b,
            (Covariances::Spherical(a), Covariances::Spherical(b)) => *a += b,
            _ => {}
        }
        let mut delta = vec![0.0; d];
        for c in 0..k {
            let (a, b) = (self.counts[c], other.counts[c]);
            if b == 0.0 {
                continue;
            }
            if a == 0.0 {
                self.means.row_mut(c).assign(&other.means.row(c));
            } else {
                let share = b / (a + b);
                for ((delta, mean), other) in delta.iter_mut().zip(self.means.row_mut(c)).zip(other.means.row(c)) {
                    *delta = other - *mean;
                    *mean += *delta * share;
                }
                self.scatter.add_outer(c, a * share, &delta);
            }
            self.counts[c] = a + b;
        }
        self.weight += other.weight;
        self.log_likelihood += other.log_likelihood;
        Ok(())
    }

    /// The statistics of samples that only these components of `mixture` can have generated: those of
    /// the part that they are of it, with weights of sum one, where exp(`log_share`) is their sum in
    /// the mixture.
    pub(crate) fn as_part_of(&self, mixture: &Mixture, components: &[usize], log_share: f64) -> Self {
        let (k, d) = mixture.means().dim();
        let mut counts = Array1::zeros(k);
        let mut means = mixture.means().to_owned();
        let mut scatter = Covariances::zeros(self.covariance_type(), k, d);
        for (of_part, &c) in components.iter().enumerate() {
            counts[c] = self.counts[of_part];
            means.row_mut(c).assign(&self.means.row(of_part));
            scatter.copy_component_from(c, &self.scatter, of_part);
        }
        let log_likelihood = self.log_likelihood + self.weight * log_share;
        Self { weight: self.weight, log_likelihood, counts, means, scatter }
    }

    /// The statistics as if every sample's weight were multiplied by `factor` (not negative).
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.weight *= factor;
        self.log_likelihood *= factor;
        self.counts *= factor;
        self.scatter.map_inplace(|v| *v *= factor);
        self
    }

    /// With so much more variance (K, D) of each component's samples; (1, D) for all components.
    pub(crate) fn with_variances(mut self, added: ArrayView2<'_, f64>) -> Self {
        for (c, &count) in self.counts.iter().enumerate() {
            let added = added.row(c.min(added.nrows() - 1));
            match &mut self.scatter {
                Covariances::Full(v) => v.index_axis_mut(Axis(0), c).diag_mut().scaled_add(count, &added),
                Covariances::Tied(v) => v.diag_mut().scaled_add(count, &added),
                Covariances::Diag(v) => v.row_mut(c).scaled_add(count, &added),
                Covariances::Spherical(v) => v[c] += count * added.sum(),
            }
        }
        self
    }

    /// The M-step when there is no previous mixture: every component must have samples and a usable
    /// covariance.
    ///
    /// The formulas are those of [`update`](Self::update).
    ///
    /// # Errors
    /// [`Error::EmptyComponent`]; as [`Mixture::new`] where a covariance is not usable (with
    /// `reg_covar` zero, a constant column is enough).
    pub fn to_mixture(&self, reg_covar: f64) -> Result<Mixture> {
        if let Some((component, &count)) = self.counts.iter().enumerate().find(|(_, n)| **n <= self.floor()) {
            return Err(Error::EmptyComponent { component, count });
        }
        let floor = self.floor();
        let covariances = self.clone().into_covariances(self.means.view(), reg_covar, 0.0);
        let (factor, failures) = covariances.factorise();
        if let Some(failure) = failures.into_iter().next() {
            return Err(failure);
        }
        let mixture = Mixture::from_parts(weights(&self.counts, floor), self.means.clone(), covariances, factor)?;
        let all: Vec<usize> = (0..mixture.n_components()).collect();
        let failure = |(of, rounding): (_, Rounding)| rounding.failure(of, self.covariance_type());
        match Rounding::of_each(&mixture, &all, reg_covar).into_iter().find_map(failure) {
            Some(failure) => Err(failure),
            None => Ok(mixture),
        }
    }

    /// The M-step of an EM iteration that began at `previous`, with scikit-learn's formulas: with
    /// nₖ = Nₖ + 10·ε ([`COUNT_FLOOR`]), weights nₖ / Σ nₖ, means x̄ₖ, covariances scatter / nₖ
    /// (`tied`: / Σ nₖ; `spherical`: the mean over the features) with `reg_covar` added to the
    /// diagonal. (scikit-learn's means are Σ r x / nₖ, which draws a component that has almost
    /// nothing towards the origin; here they do not depend on the origin.)
    ///
    /// Frozen parameters stay those of `previous`; covariances are then taken around frozen means, and
    /// weights share what frozen ones leave of 1, so that each is the best beside what is frozen.
    ///
    /// A component with Nₖ ≤ 10·ε has lost its samples: it retains its mean and its covariance, and
    /// its weight nₖ / Σ nₖ is nearly zero. A component whose new covariance is not positive
    /// definite, because it collapsed onto a point or a plane and `reg_covar` is too small, retains
    /// its last covariance. Neither lowers the likelihood, because the M-step of each parameter is
    /// a maximum whatever the other parameter is. [`Update::retained`] lists both.
    ///
    /// A covariance counts as positive definite only if rounding leaves no doubt of it. With
    /// P = Σ⁻¹, the variance of feature j given the others is 1/Pⱼⱼ: it must be at least 16·D·2⁻⁵²
    /// of the variance Σⱼⱼ and, without `reg_covar`, the square of 64·2⁻⁵² of the mean μⱼ, because
    /// less is what rounding of the scatter and of the mean leaves of zero. Where rounding could
    /// still take noticeably from the likelihood, the new covariance is taken only if it gains more
    /// than that over the last one.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] where `previous` has another K or D,
    /// [`Error::WrongCovarianceType`]. As [`Mixture::new`] where not one component with samples has
    /// a usable covariance: the data are degenerate then, and `reg_covar` is too small.
    pub fn update(&self, previous: &Mixture, reg_covar: f64, freeze: &Freeze) -> Result<Update> {
        self.clone().into_update(previous, reg_covar, freeze, None)
    }

    /// As [`update`](Self::update), to the mode of the posterior under a prior: nothing collapses that
    /// the prior keeps from it, and the sum of the log-likelihood and the
    /// [logarithm of the prior's density](ConjugatePrior::log_density) never falls.
    ///
    /// # Errors
    /// As [`update`](Self::update), and for a prior of another shape.
    pub fn update_under(
        &self,
        prior: &ConjugatePrior,
        previous: &Mixture,
        reg_covar: f64,
        freeze: &Freeze,
    ) -> Result<Update> {
        self.clone().into_update(previous, reg_covar, freeze, Some(prior))
    }

    /// As [`update`](Self::update) or [`update_under`](Self::update_under), with the new covariances
    /// in the memory of the scatter. Large matrices in new memory would take a good part of the time
    /// of an M-step.
    ///
    /// # Errors
    /// As [`update_under`](Self::update_under).
    pub fn into_update(
        mut self,
        previous: &Mixture,
        reg_covar: f64,
        freeze: &Freeze,
        prior: Option<&ConjugatePrior>,
    ) -> Result<Update> {
        let (k, d) = self.means.dim();
        if previous.means().dim() != (k, d) {
            let got = previous.means().shape().to_vec();
            return Err(Error::ShapeMismatch { what: "means of the previous mixture", expected: vec![k, d], got });
        }
        previous.covariances().check_type("the previous covariances", self.covariance_type(), k, d)?;
        freeze.check(k, self.covariance_type())?;
        let pseudo_count = self.floor() + prior.map_or(0.0, ConjugatePrior::pseudo_count);
        let weights = if freeze.weights.any() || freeze.equal_weights {
            freeze.weights(&self.counts + pseudo_count, previous)
        } else {
            weights(&self.counts, pseudo_count)
        };
        let mut divisor = 0.0;
        if let Some(prior) = prior {
            prior.check(k, d, self.covariance_type())?;
            self.add_prior(prior);
            divisor = prior.divisor(k);
        }
        let empty: Vec<usize> = (0..k).filter(|&c| self.counts[c] <= self.floor()).collect();
        // Those whose covariance follows from nothing.
        let bare = if prior.is_some() { &[][..] } else { &empty };
        let mut means = self.means.clone();
        for c in (0..k).filter(|&c| freeze.means.has(c)).chain(empty.iter().copied()) {
            means.row_mut(c).assign(&previous.means().row(c));
        }
        if freeze.equal_means {
            let shared = freeze.shared_mean(self.counts.view(), self.means.view(), previous);
            for c in (0..k).filter(|&c| !freeze.means.has(c)) {
                match &shared {
                    Some(shared) => means.row_mut(c).assign(shared),
                    None => means.row_mut(c).assign(&previous.means().row(c)),
                }
            }
        }
        let frozen: Vec<usize> = (0..k).filter(|&c| freeze.covariances.has(c)).collect();
        if frozen.len() == k {
            let (covariances, factor) = (previous.covariances().clone(), previous.factor().cloned());
            return Ok(Update { mixture: Mixture::from_parts(weights, means, covariances, factor)?, retained: empty });
        }
        let covariance_type = self.covariance_type();
        let tied = covariance_type == CovarianceType::Tied;
        let mut covariances = self.into_covariances(means.view(), reg_covar, divisor);
        if !tied {
            for &c in bare.iter().chain(&frozen) {
                covariances.copy_component(c, previous.covariances());
            }
        }
        let (factor, mut failures) = covariances.factorise();
        let n_alive = if tied { 1 } else { k - bare.len() };
        let mut mixture = Mixture::from_parts(weights, means, covariances, factor)?;
        // With the factors that they have, which may come from precisions.
        frozen.iter().for_each(|&c| mixture.copy_covariance(c, previous));
        failures.retain(|failure| component_of(failure).is_none_or(|c| !freeze.covariances.has(c)));
        let failed: Vec<usize> = failures.iter().filter_map(component_of).collect();
        let sound: Vec<usize> =
            (0..k).filter(|c| !bare.contains(c) && !failed.contains(c) && !freeze.covariances.has(*c)).collect();
        let mut doubtful = Vec::new();
        if !tied || failures.is_empty() {
            for (of, rounding) in Rounding::of_each(&mixture, &sound, reg_covar) {
                match rounding.failure(of, covariance_type) {
                    Some(failure) => failures.push(failure),
                    None if rounding.loss > LOSS && gain(&mixture, previous, of.unwrap_or(0)) <= rounding.loss => {
                        doubtful.push(of);
                    }
                    None => {}
                }
            }
        }
        if failures.len() == n_alive
            && let Some(failure) = failures.drain(..).min_by_key(component_of)
        {
            return Err(failure);
        }
        let mut retained = empty;
        for of in failures.iter().map(component_of).chain(doubtful) {
            mixture.copy_covariance(of.unwrap_or(0), previous);
            match of {
                Some(c) => retained.push(c),
                None => retained = (0..k).collect(),
            }
        }
        retained.sort_unstable();
        Ok(Update { mixture, retained })
    }

    /// Joins the samples that a prior stands for: κ at each mean, and Ψ.
    fn add_prior(&mut self, prior: &ConjugatePrior) {
        let kappa = prior.mean_precision();
        for c in 0..self.n_components() {
            let (count, joined) = (self.counts[c], self.counts[c] + kappa);
            if kappa > 0.0 && count > 0.0 {
                let delta = &prior.mean(c) - &self.means.row(c);
                self.means.row_mut(c).scaled_add(kappa / joined, &delta);
                self.scatter.add_outer(c, count * (kappa / joined), &delta.to_vec());
            } else if kappa > 0.0 {
                self.means.row_mut(c).assign(&prior.mean(c));
            }
            self.counts[c] = joined;
        }
        prior.add_scatter(&mut self.scatter);
    }

    /// [`COUNT_FLOOR`], or proportionally less if the total weight is less than one.
    fn floor(&self) -> f64 {
        COUNT_FLOOR * self.weight.min(1.0)
    }

    /// Scatter around the given means over the counts and `more` (of each component, or of a tied
    /// covariance), with the diagonal raised.
    pub(crate) fn into_covariances(self, means: ArrayView2<'_, f64>, reg_covar: f64, more: f64) -> Covariances {
        let (k, d) = self.means.dim();
        let floor = self.floor();
        let mut covariances = self.scatter;
        if means != self.means {
            let mut delta = vec![0.0; d];
            for c in (0..k).filter(|&c| self.counts[c] > floor) {
                for ((delta, own), mean) in delta.iter_mut().zip(self.means.row(c)).zip(means.row(c)) {
                    *delta = own - mean;
                }
                covariances.add_outer(c, self.counts[c], &delta);
            }
        }
        let counts = &self.counts + floor;
        match &mut covariances {
            Covariances::Full(v) => for_each_matrix(v, |c, mut v| {
                v /= counts[c] + more;
                v.diag_mut().map_inplace(|v| *v += reg_covar);
            }),
            Covariances::Tied(v) => {
                *v /= counts.sum() + more;
                v.diag_mut().map_inplace(|v| *v += reg_covar);
            }
            Covariances::Diag(v) => {
                *v /= &(counts + more).insert_axis(Axis(1));
                *v += reg_covar;
            }
            Covariances::Spherical(v) => {
                *v /= &((counts + more) * d as f64);
                *v += reg_covar;
            }
        }
        covariances
    }
}

/// How much of the mean log-likelihood of a component's samples rounding of its covariance may take
/// without being noticed.
const LOSS: f64 = 1e-9;

/// What rounding does to a new covariance.
#[derive(Debug, Clone, Copy)]
struct Rounding {
    /// The last feature of which rounding leaves nothing, and its variance given the other
    /// features.
    unusable: Option<(usize, f64)>,
    /// What rounding may take from the mean log-likelihood of the component's samples.
    loss: f64,
}

impl Rounding {
    /// For each of the components (of the one covariance of all, if it is tied) whose factors are
    /// sound.
    ///
    /// The sums of a scatter S are off by a few units in the last place of √(Sᵢᵢ·Sⱼⱼ), as is the
    /// Cholesky factorisation by about D of them. With ε for both, P = Σ⁻¹, and vⱼ = Pⱼⱼ·Σⱼⱼ ≥ 1
    /// (by how many times the other features reduce the variance of feature j), this moves tr(P·S)
    /// by at most η = ε·(Σⱼ √vⱼ)². The likelihood has its maximum at S, so that it loses the
    /// square, η²/4. A mean that is off by a unit in its last place takes at most D/2·Σⱼ
    /// Pⱼⱼ·(2⁻⁵²·μⱼ)².
    fn of_each(mixture: &Mixture, components: &[usize], reg_covar: f64) -> Vec<(Option<usize>, Self)> {
        let means = mixture.means();
        if mixture.covariance_type() == CovarianceType::Tied {
            let largest = means.fold_axis(Axis(0), 0.0, |most: &f64, v| v.abs().max(*most));
            return vec![(None, Self::new(mixture, 0, largest.view(), reg_covar))];
        }
        if mixture.factor().is_none() && reg_covar > 0.0 {
            return Vec::new();
        }
        let (k, d) = means.dim();
        let at_once = if mixture.factor().is_some() { matrices_at_once(k, d, d * d / 8) } else { at_once(d / 8) };
        let of = |&c: &usize| (Some(c), Self::new(mixture, c, means.row(c), reg_covar));
        map_rows(components.par_iter(), at_once, of)
    }

    fn new(mixture: &Mixture, c: usize, mean: ArrayView1<'_, f64>, reg_covar: f64) -> Self {
        let d = mean.len() as f64;
        let factor = mixture.factor_of(c).map(|u| (u.ncols(), row_major(u)));
        let (mut unusable, mut roots, mut of_mean) = (None, 0.0, 0.0);
        for (j, mean) in mean.iter().enumerate() {
            let variance = mixture.variance(c, j);
            let precision = match &factor {
                Some((d, u)) => vectorised(
                    #[inline(always)]
                    || sum_of([&u[j * d + j..(j + 1) * d]], |[u]| u * u),
                ),
                None => 1.0 / variance,
            };
            let (reduced, unit) = (precision * variance, f64::EPSILON * mean);
            // The mean of a constant column, of which `reg_covar` is the variance, is exact.
            let units = if reg_covar > 0.0 { 0.0 } else { precision * unit * unit };
            roots += reduced.sqrt();
            of_mean += units;
            let clear = 16.0 * d * f64::EPSILON * reduced <= 1.0 && 64.0 * 64.0 * units <= 1.0;
            if !clear {
                unusable = Some((j, 1.0 / precision));
            }
        }
        let moved = if factor.is_some() { 4.0 * (d + 4.0) * f64::EPSILON * roots * roots } else { 0.0 };
        Self { unusable, loss: 0.25 * moved * moved + 0.5 * d * of_mean }
    }

    /// The error about the covariance of a component, or about that of all.
    fn failure(&self, component: Option<usize>, covariance_type: CovarianceType) -> Option<Error> {
        let (feature, variance) = self.unusable?;
        if covariance_type.has_matrices() {
            return Some(Error::NotPositiveDefinite { component, pivot: feature });
        }
        let remedy = "that is less than rounding of the mean; was a column constant? add reg_covar";
        let what = format!("variance in column {feature}");
        Some(Error::BadComponent { what, component: component.unwrap_or(0), value: variance, remedy })
    }
}

/// The component that an error about a covariance names; none for the covariance of all.
fn component_of(failure: &Error) -> Option<usize> {
    match failure {
        Error::NotPositiveDefinite { component, .. } => *component,
        Error::BadComponent { component, .. } => Some(*component),
        _ => None,
    }
}

/// By how much the mean log-likelihood of the samples of component `c` (of all, if the covariance
/// is tied), of which Σ is the covariance, is larger under Σ than under the covariance Σ' of the
/// mixture before: ½·(log |Σ'| − log |Σ| + tr(Σ'⁻¹·Σ) − D).
fn gain(new: &Mixture, before: &Mixture, c: usize) -> f64 {
    let sigma = match new.covariances() {
        Covariances::Full(v) => Some(v.index_axis(Axis(0), c)),
        Covariances::Tied(v) => Some(v.view()),
        Covariances::Diag(_) | Covariances::Spherical(_) => None,
    };
    let twice: f64 = match (sigma, new.factor_of(c), before.factor_of(c)) {
        (Some(sigma), Some(u), Some(of_before)) => {
            let trace = trace_of_product(sigma, of_before);
            let log_ratio: f64 = u.diag().iter().zip(of_before.diag()).map(|(new, before)| (new / before).ln()).sum();
            2.0 * log_ratio + trace - new.n_features() as f64
        }
        _ => {
            let ratios = (0..new.n_features()).map(|j| new.variance(c, j) / before.variance(c, j));
            ratios.map(|ratio| ratio - 1.0 - ratio.ln()).sum()
        }
    };
    0.5 * twice
}

/// The weights of components with these counts, to each of which `floor` is added.
fn weights(counts: &Array1<f64>, floor: f64) -> Array1<f64> {
    let counts = counts + floor;
    let sum = counts.sum();
    counts / sum
}

/// Sets diagonal entries that rounding left below zero to zero, and mirrors the lower triangle, of
/// a matrix of D rows.
fn tidy_matrix(matrix: &mut [f64], d: usize) {
    matrix.iter_mut().step_by(d + 1).for_each(clamp);
    mirror(matrix, d);
}

/// Sets a variance that rounding left below zero to zero.
fn clamp(v: &mut f64) {
    *v = v.max(0.0);
}
