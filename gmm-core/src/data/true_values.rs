//! The distribution of a sample's true values given its measurement, in float64, sample by sample.
use super::patterns::gather;
use super::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::gaussian::Covariance;
use crate::model::linalg::{cholesky, inverse, precision_cholesky, product};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use crate::statistics::{CentredSums, Statistics};
use ndarray::{Array1, Array2, Axis};
use std::f64::consts::TAU;

/// A component's part in the distribution of the true values (D,) of a sample.
pub(crate) struct OfComponent {
    /// log πₖ N(x; Rμ, T), with T = RΣRᵀ + S.
    pub log_p: f64,
    /// μ + ΣRᵀT⁻¹(x − Rμ).
    pub mean: Array1<f64>,
    /// Σ − ΣRᵀT⁻¹RΣ.
    pub covariance: Array2<f64>,
}

/// The true values of samples under a mixture.
pub(crate) struct TrueValues<'s, 'a> {
    samples: &'s Samples<'a>,
    mixture: &'s Mixture,
    covariances: Vec<Array2<f64>>,
}

impl<'s, 'a> TrueValues<'s, 'a> {
    pub fn new(samples: &'s Samples<'a>, mixture: &'s Mixture) -> Self {
        let covariances = Covariance::all(mixture).into_iter().map(Covariance::into_matrix).collect();
        Self { samples, mixture, covariances }
    }

    /// Returns each component's part for a row.
    ///
    /// # Errors
    /// [`Error::NoSpread`].
    pub fn of_row(&self, row: usize) -> Result<Vec<OfComponent>> {
        let columns = observed(self.samples, row);
        let mut x = vec![0.0; columns.len()];
        gather(self.samples, row, &columns, &mut x);
        let x = Array1::from(x);
        let projection = projection(self.samples, row, &columns);
        let noise = self.samples.noise().filter(|_| !self.mixture.is_of_measurements());
        let noise = Array2::from_shape_fn((columns.len(), columns.len()), |(i, j)| {
            noise.map_or(0.0, |noise| noise.at(row, columns[i], columns[j]))
        });
        let part = |(c, v): (usize, &Array2<f64>)| {
            let mean = self.mixture.means().row(c).to_owned();
            let log_weight = self.mixture.log_weight(c);
            if columns.is_empty() {
                return Ok(OfComponent { log_p: log_weight, mean, covariance: v.clone() });
            }
            let across = product(projection.view(), v.view());
            let total = product(across.view(), projection.t()) + &noise;
            let u = precision_cholesky(total.view()).map_err(|_| Error::NoSpread { row })?;
            let delta = &x - &projection.dot(&mean);
            let y = u.t().dot(&delta);
            // ΣRᵀU, so that T⁻¹ is formed as U·Uᵀ.
            let gain = product(across.t(), u.view());
            let log_det: f64 = u.diag().iter().map(|v| v.log_e()).sum();
            let square: f64 = y.iter().map(|v| v * v).sum();
            Ok(OfComponent {
                log_p: log_weight + log_det - 0.5 * (square + columns.len() as f64 * TAU.log_e()),
                mean: mean + gain.dot(&y),
                covariance: v - &product(gain.view(), gain.t()),
            })
        };
        self.covariances.iter().enumerate().map(part).collect()
    }
}

/// Returns the columns in which a row has a value.
pub(crate) fn observed(samples: &Samples<'_>, row: usize) -> Vec<usize> {
    let c = samples.n_features();
    match (samples.missing(), samples.view()) {
        (None, _) => (0..c).collect(),
        (_, View::F32(x)) => (0..c).filter(|&j| !x[[row, j]].is_nan()).collect(),
        (_, View::F64(x)) => (0..c).filter(|&j| !x[[row, j]].is_nan()).collect(),
    }
}

/// Returns the matrix that projects the true values of a row to some columns.
fn projection(samples: &Samples<'_>, row: usize, columns: &[usize]) -> Array2<f64> {
    match samples.noise().and_then(|noise| noise.projection(row)) {
        Some(projection) => projection.select(Axis(0), columns),
        None => Array2::from_shape_fn((columns.len(), samples.n_features()), |(i, j)| f64::from(columns[i] == j)),
    }
}

/// Returns true values (D,) whose projections are nearest to a row's values, of these the least; NaN where no value
/// depends on them. The start of a fit takes them for the true ones.
pub(crate) fn guess(samples: &Samples<'_>, row: usize) -> Array1<f64> {
    let columns = observed(samples, row);
    let mut x = vec![0.0; columns.len()];
    gather(samples, row, &columns, &mut x);
    let r = projection(samples, row, &columns);
    let seen: Vec<usize> = (0..r.ncols()).filter(|&j| r.column(j).iter().any(|v| *v != 0.0)).collect();
    let mut out = Array1::from_elem(r.ncols(), f64::NAN);
    if seen.is_empty() {
        return out;
    }
    let r = r.select(Axis(1), &seen);
    let wide = r.nrows() <= r.ncols();
    let square = if wide { r.dot(&r.t()) } else { r.t().dot(&r) };
    if let Ok(inverse) = inverse(square.view()) {
        let x = Array1::from(x);
        let values = if wide { r.t().dot(&inverse.dot(&x)) } else { inverse.dot(&r.t().dot(&x)) };
        seen.iter().zip(values).for_each(|(&j, v)| out[j] = v);
    }
    out
}

/// Returns the statistics of the true values, from the samples' weight and log-likelihood. Of component c, `sums(c, i)`
/// are in turn n = Σr, h = Σr·u, and the lower triangle of E = Σr·(u·uᵀ − RᵀT⁻¹R), row by row, with the
/// responsibilities r and u = RᵀT⁻¹(x − Rμ): around μ, the true values have the first moments Σ·h and the second
/// moments n·Σ + Σ·E·Σ. With Σ = L·Lᵀ these are L·Lᵀh and L·(n·I + Lᵀ·E·L)·Lᵀ, which keep digits where Σ is
/// ill-conditioned.
///
/// # Errors
/// [`Error::NotPositiveDefinite`]; those of [`Statistics::from_centred_sums`].
pub fn statistics(
    mixture: &Mixture,
    (weight, log_likelihood): (f64, f64),
    sums: impl Fn(usize, usize) -> f64,
) -> Result<Statistics> {
    let (k, d) = mixture.means().dim();
    let mut counts = Array1::zeros(k);
    let mut first = Array2::zeros((k, d));
    let mut second = Covariances::zeros(mixture.covariance_type(), k, d);
    for c in 0..k {
        counts[c] = sums(c, 0);
        if counts[c] == 0.0 {
            continue;
        }
        let sigma = Covariance::of(mixture, c).into_matrix();
        let h: Array1<f64> = (0..d).map(|i| sums(c, 1 + i)).collect();
        let l = cholesky(sigma.view()).map_err(|pivot| Error::NotPositiveDefinite { component: Some(c), pivot })?;
        first.row_mut(c).assign(&l.dot(&l.t().dot(&h)));
        let e = Array2::from_shape_fn((d, d), |(i, j)| {
            let (i, j) = (i.max(j), i.min(j));
            sums(c, 1 + d + i * (i + 1) / 2 + j)
        });
        let mut inner = product(product(l.t(), e.view()).view(), l.view());
        inner.diag_mut().map_inplace(|v| *v += counts[c]);
        second.add_matrix(c, &product(product(l.view(), inner.view()).view(), l.t()));
    }
    let centres = mixture.means().to_owned();
    Statistics::from_centred_sums(CentredSums { weight, log_likelihood, centres, counts, first, second })
}
