//! Sums as backends form them, and their conversion to statistics.
use super::Statistics;
use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{all, at_once, for_a_row, map_rows, mirror, product, try_for_each_row, vectorised};
use crate::model::mixture::Mixture;
use ndarray::parallel::prelude::*;
use ndarray::{Array, Array1, Array2, ArrayView2, ArrayViewMut, Axis, Dimension};

/// Rows of samples whose products are formed at once.
const ROWS: usize = 512;

/// Raw float64 sums of a backend: moments around centres near the data.
#[derive(Debug, Clone)]
pub struct CentredSums {
    /// The total weight Σᵢ wᵢ of the samples (their number, without weights).
    pub weight: f64,
    /// Σᵢ wᵢ log p(xᵢ).
    pub log_likelihood: f64,
    /// The centres cₖ (K, D); rows may be equal. The nearer they are to the means, the less cancels.
    pub centres: Array2<f64>,
    /// Σᵢ rᵢₖ (K,).
    pub counts: Array1<f64>,
    /// Σᵢ rᵢₖ (xᵢ − cₖ) (K, D).
    pub first: Array2<f64>,
    /// Σᵢ rᵢₖ (xᵢ − cₖ)(xᵢ − cₖ)ᵀ in the shape of the covariance type: `tied` summed over k, `diag` the diagonals,
    /// `spherical` the traces. Only the lower triangle (row ≥ column) of a matrix is read.
    pub second: Covariances,
}

impl CentredSums {
    /// Returns the means, around which the first moments are zero, and the centres of components without samples.
    pub fn new_centres(&self) -> Array2<f64> {
        let mut means = self.centres.clone();
        for ((c, j), mean) in means.indexed_iter_mut() {
            if self.counts[c] > 0.0 {
                *mean += self.first[[c, j]] / self.counts[c];
            }
        }
        means
    }

    /// Whether moving the second moments to the means would lose more than 20 of their 53 binary digits in some
    /// feature. This happens when close samples have just become a component, whose mean moves by many of its new
    /// standard deviations. A mean that moves by less than a thousandth of its standard deviation in `mixture` does not
    /// count: the fit would not notice.
    pub fn cancel(&self, mixture: &Mixture) -> bool {
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

    /// Adds the moments of missing values in features that do not covary (`diag`, `spherical`): a missing value has the
    /// component's mean and variance in its column. `observed(c, j)` returns Σᵢ rᵢₖ over the samples with a value in
    /// column j.
    pub fn add_missing(&mut self, mixture: &Mixture, observed: impl Fn(usize, usize) -> f64 + Sync) {
        let Self { centres, counts, first, second, .. } = self;
        let moments = |c: usize, j: usize| {
            // If no value is missing, rounding leaves a small difference.
            let missing = (counts[c] - observed(c, j)).max(0.0);
            let delta = mixture.means()[[c, j]] - centres[[c, j]];
            if missing > 0.0 {
                (missing * delta, missing * (mixture.variance(c, j) + delta * delta))
            } else {
                (0.0, 0.0)
            }
        };
        match second {
            Covariances::Diag(v) => {
                let at_once = at_once(first.ncols());
                let rows = first.axis_iter_mut(Axis(0)).into_par_iter().zip(v.axis_iter_mut(Axis(0))).enumerate();
                map_rows(rows, at_once, |(c, (first, second))| {
                    for (j, (first, second)) in first.into_iter().zip(second).enumerate() {
                        let (of_first, of_second) = moments(c, j);
                        *first += of_first;
                        *second += of_second;
                    }
                });
            }
            Covariances::Spherical(v) => {
                for ((c, j), first) in first.indexed_iter_mut() {
                    let (of_first, of_second) = moments(c, j);
                    *first += of_first;
                    v[c] += of_second;
                }
            }
            Covariances::Full(_) | Covariances::Tied(_) => {}
        }
    }
}

impl Statistics {
    /// Moves the moments from the centres to the means: x̄ₖ = cₖ + δₖ with δₖ = first/count, and scatter = second − Nₖ
    /// δₖ δₖᵀ. A diagonal entry that rounding makes negative becomes zero. A component with count zero has the mean cₖ.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::NonFiniteStatistic`] for a sum that is NaN or infinite, or a negative count.
    pub fn from_centred_sums(sums: CentredSums) -> Result<Self> {
        Self::from_sums(sums, |_, _, _| {})
    }

    /// As [`from_centred_sums`](Self::from_centred_sums), but `write` first writes the moments of each component with
    /// its own diagonal or full covariance: first moments (D,), and second moments (D,) or (D, D), row by row. The
    /// moments thus stay in a core's cache.
    pub fn from_sums(sums: CentredSums, write: impl Fn(usize, &mut [f64], &mut [f64]) + Sync) -> Result<Self> {
        let CentredSums { weight, log_likelihood, mut centres, counts, first, second } = sums;
        let (k, d) = centres.dim();
        if first.dim() != (k, d) {
            let (expected, got) = (vec![k, d], first.shape().into());
            return Err(Error::ShapeMismatch { what: "first moments", expected, got });
        }
        if counts.len() != k {
            return Err(Error::ShapeMismatch { what: "counts", expected: vec![k], got: vec![counts.len()] });
        }
        second.check_shape("second moments", k, d)?;
        check_totals(log_likelihood, &counts)?;
        let mut deltas = row_by_row(first);
        let scatter = match second {
            Covariances::Diag(v) => {
                let mut v = row_by_row(v);
                try_for_each_row(&mut deltas, &mut v, |c, mut first, mut second| {
                    let (first, second) = (numbers(&mut first), numbers(&mut second));
                    write(c, first, second);
                    move_to_mean(c, counts[c], first, second)
                })?;
                Covariances::Diag(v)
            }
            Covariances::Full(v) => {
                let mut v = row_by_row(v);
                try_for_each_row(&mut deltas, &mut v, |c, mut first, mut second| {
                    let (first, second) = (numbers(&mut first), numbers(&mut second));
                    write(c, first, second);
                    move_matrix_to_mean(c, counts[c], first, second)
                })?;
                Covariances::Full(v)
            }
            shared => {
                let mut rows = deltas.outer_iter_mut().enumerate();
                rows.try_for_each(|(c, mut row)| check_finite("the first moment", c, numbers(&mut row)))?;
                move_shared_to_means(&counts, &mut deltas, shared)?
            }
        };
        centres += &deltas;
        Ok(Self { weight, log_likelihood, counts, means: centres, scatter })
    }

    /// Returns the statistics of responsibilities (N, K) from elsewhere, such as labels of another clustering or random
    /// numbers. The log-likelihood is 0.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`]; [`Error::NonFiniteStatistic`] for a responsibility that is not finite or a negative
    /// count.
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
        // In blocks that stay in the cache.
        let blocks = || x.axis_chunks_iter(Axis(0), ROWS).zip(responsibilities.axis_chunks_iter(Axis(0), ROWS));
        let matrices = covariance_type.has_matrices();
        let of_component = |c: usize| {
            let mut centre = Array1::zeros(d);
            if counts[c] > 0.0 {
                blocks().for_each(|(x, r)| centre += &x.t().dot(&r.column(c)));
                centre /= counts[c];
            }
            let mut second = Array2::zeros((if matrices { d } else { 1 }, d));
            for (x, r) in blocks() {
                let centred = &x - &centre;
                let weighted = &centred * &r.column(c).insert_axis(Axis(1));
                second += &match matrices {
                    true => product(weighted.t(), centred.view()),
                    false => (weighted * centred).sum_axis(Axis(0)).insert_axis(Axis(0)),
                };
            }
            (centre, second)
        };
        let of_each = map_rows((0..k).into_par_iter(), at_once(n * d), of_component);
        let mut centres = Array2::zeros((k, d));
        let mut second = Covariances::zeros(covariance_type, k, d);
        for (c, (centre, of_component)) in of_each.into_iter().enumerate() {
            centres.row_mut(c).assign(&centre);
            match &mut second {
                Covariances::Full(v) => v.index_axis_mut(Axis(0), c).assign(&of_component),
                Covariances::Tied(v) => *v += &of_component,
                Covariances::Diag(v) => v.row_mut(c).assign(&of_component.row(0)),
                Covariances::Spherical(v) => v[c] = of_component.sum(),
            }
        }
        let (weight, first) = (counts.sum(), Array2::zeros((k, d)));
        Self::from_centred_sums(CentredSums { weight, log_likelihood: 0.0, centres, counts, first, second })
    }
}

/// Returns the error for a log-likelihood that is not finite, or for a negative or infinite count.
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

fn row_by_row<D: Dimension>(v: Array<f64, D>) -> Array<f64, D> {
    if v.is_standard_layout() { v } else { v.as_standard_layout().into_owned() }
}

fn numbers<'a, D: Dimension>(v: &'a mut ArrayViewMut<'_, f64, D>) -> &'a mut [f64] {
    v.as_slice_mut().unwrap_or_default()
}

#[inline(always)]
fn divide(first: &mut [f64], count: f64) {
    if count > 0.0 {
        first.iter_mut().for_each(|v| *v /= count);
    } else {
        first.fill(0.0);
    }
}

fn check_finite(what: &'static str, component: usize, moments: &[f64]) -> Result<()> {
    // `all` is many times as fast as the search.
    if !all(moments, f64::is_finite)
        && let Some(&value) = moments.iter().find(|v| !v.is_finite())
    {
        return Err(Error::NonFiniteStatistic { what, component, value });
    }
    Ok(())
}

/// Moves the second moments (D,) of a component with a diagonal covariance from its centre to its mean, and replaces
/// its first moments by the mean less the centre.
fn move_to_mean(component: usize, count: f64, first: &mut [f64], second: &mut [f64]) -> Result<()> {
    check_finite("the first moment", component, first)?;
    check_finite("the second moment", component, second)?;
    for_a_row(
        first.len(),
        #[inline(always)]
        || {
            divide(first, count);
            second.iter_mut().zip(first).for_each(|(v, d)| *v = (*v - count * *d * *d).max(0.0));
        },
    );
    Ok(())
}

/// As [`move_to_mean`], for a full covariance: second moments (D, D) by rows, of which the lower triangle is read.
fn move_matrix_to_mean(component: usize, count: f64, first: &mut [f64], second: &mut [f64]) -> Result<()> {
    check_finite("the first moment", component, first)?;
    divide(first, count);
    let (delta, d) = (&*first, first.len());
    let finite = vectorised(
        #[inline(always)]
        || {
            let mut finite = true;
            for (i, row) in second.chunks_exact_mut(d).enumerate() {
                let row = &mut row[..=i];
                if count > 0.0 {
                    // (a * b) first keeps the result symmetric, as in `add_outer`.
                    let a = delta[i];
                    row.iter_mut().zip(delta).for_each(|(v, b)| *v -= count * (a * b));
                }
                // A value that was not finite is still not finite.
                finite &= all(row, f64::is_finite);
            }
            finite
        },
    );
    if !finite {
        let mut rows = second.chunks_exact(d).enumerate();
        rows.try_for_each(|(i, row)| check_finite("the second moment", component, &row[..=i]))?;
    }
    tidy_matrix(second, d);
    Ok(())
}

/// As [`move_to_mean`], for second moments that are sums over the components or over the features.
fn move_shared_to_means(counts: &Array1<f64>, first: &mut Array2<f64>, mut second: Covariances) -> Result<Covariances> {
    match &second {
        Covariances::Spherical(v) => {
            v.iter().enumerate().try_for_each(|(c, v)| check_finite("the second moment", c, &[*v]))?;
        }
        matrix => {
            let mut numbers = matrix.iter();
            numbers.try_for_each(|v| check_finite("the second moment", 0, &[v]))?;
        }
    }
    for (mut first, &count) in first.outer_iter_mut().zip(counts) {
        divide(numbers(&mut first), count);
    }
    if let Covariances::Tied(v) = second {
        let (mut v, d) = (row_by_row(v), first.ncols());
        let weighted = &*first * &counts.view().insert_axis(Axis(1));
        v -= &product(weighted.t(), first.view());
        tidy_matrix(v.as_slice_mut().unwrap_or_default(), d);
        return Ok(Covariances::Tied(v));
    }
    for ((c, mut first), &count) in first.outer_iter_mut().enumerate().zip(counts) {
        second.add_outer(c, -count, numbers(&mut first));
    }
    second.map_inplace(clamp);
    Ok(second)
}

/// Clamps the diagonal of a matrix of D rows at zero, and mirrors its lower triangle.
fn tidy_matrix(matrix: &mut [f64], d: usize) {
    matrix.iter_mut().step_by(d + 1).for_each(clamp);
    mirror(matrix, d);
}

fn clamp(v: &mut f64) {
    *v = v.max(0.0);
}
