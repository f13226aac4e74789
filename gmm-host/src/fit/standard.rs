//! Fitting in standardised units.
use super::outcome::Fit;
use crate::data::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use crate::statistics::{CentredSums, Statistics};
use crate::variational::mixture::VariationalMixture;
use crate::variational::prior::VariationalPrior;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis};

/// The number of samples that are read at a time.
const CHUNK: usize = 8192;
/// The relative difference up to which the variances of a component count as equal.
const SPHERICAL_TOLERANCE: f64 = 1e-9;

/// z = (x − mean) / scale, column by column: what `--standardize` and scikit-learn's StandardScaler
/// do. A fit to z treats all columns alike, above all its start and `reg_covar`; its parameters,
/// and its likelihood, have exact counterparts in the units of x.
#[derive(Debug, Clone, PartialEq)]
pub struct Standardization {
    mean: Array1<f64>,
    scale: Array1<f64>,
    /// The share of each column's values that is observed, by weight.
    observed: Array1<f64>,
    /// The weight of all samples.
    weight: f64,
}

/// What has a counterpart in other units: a mixture, or the posterior of one.
pub trait Standardizable: Sized + Clone {
    /// As [`Standardization::restore`].
    ///
    /// # Errors
    /// As there.
    fn restored(&self, standard: &Standardization) -> Result<Self>;

    /// As [`Standardization::standardize`].
    ///
    /// # Errors
    /// As there.
    fn standardized(&self, standard: &Standardization, covariance_type: CovarianceType) -> Result<Self>;

    /// How much lower the lower bound of a fit to samples in their units is than that of the fit to
    /// standardised ones.
    fn lower_bound_shift(&self, standard: &Standardization) -> f64;
}

/// Finds a [`Standardization`] from samples that come in parts.
#[derive(Debug, Clone)]
pub struct StandardizationBuilder {
    /// The first sample, which is subtracted from all: so nothing is lost for samples far from
    /// zero, and a constant column is exactly zero.
    origin: Array1<f64>,
    /// Those of all columns together while nothing is missing; then those of each column.
    moments: Moments,
    /// The total weight of the samples.
    weight: f64,
}

#[derive(Debug, Clone)]
enum Moments {
    Complete(Statistics),
    Columns(Vec<Statistics>),
}

impl StandardizationBuilder {
    /// Takes D and an origin from the first of some samples (for each column, from the first that
    /// has a value there), without counting any.
    pub fn new(samples: &Samples<'_>) -> Self {
        let mut origin = wide(&samples.rows(0..1)).row(0).to_owned();
        if samples.missing().is_some() {
            for (j, origin) in origin.iter_mut().enumerate().filter(|(_, v)| v.is_nan()) {
                let first = match samples.view() {
                    View::F32(x) => x.column(j).iter().find(|v| !v.is_nan()).map(|&v| v.into()),
                    View::F64(x) => x.column(j).iter().find(|v| !v.is_nan()).copied(),
                };
                *origin = first.unwrap_or(0.0);
            }
        }
        let moments = Statistics::empty(CovarianceType::Diag, 1, origin.len());
        Self { origin, moments: Moments::Complete(moments), weight: 0.0 }
    }

    /// Counts samples. Errors: [`Error::NonFiniteStatistic`] where a sum overflows.
    pub fn add(&mut self, samples: &Samples<'_>) -> Result<()> {
        let n = samples.n_samples();
        self.weight += samples.total_weight();
        for start in (0..n).step_by(CHUNK) {
            let chunk = samples.rows(start..n.min(start + CHUNK));
            let weights = chunk.weights().map_or_else(|| Array1::ones(chunk.n_samples()), |w| w.to_owned());
            let x = wide(&chunk) - &self.origin;
            if chunk.missing().is_some()
                && let Moments::Complete(moments) = &self.moments
            {
                self.moments = Moments::Columns(by_column(moments)?);
            }
            let moments_of = |x: ArrayView2<'_, f64>, weights: &Array1<f64>| {
                let weights = weights.view().insert_axis(Axis(1));
                Statistics::from_responsibilities(x, weights, CovarianceType::Diag)
            };
            match &mut self.moments {
                Moments::Complete(moments) => moments.merge(&moments_of(x.view(), &weights)?)?,
                Moments::Columns(columns) => {
                    for (moments, x) in columns.iter_mut().zip(x.columns()) {
                        let rows: Vec<usize> = (0..x.len()).filter(|&i| !x[i].is_nan()).collect();
                        let (x, weights) = (x.select(Axis(0), &rows), weights.select(Axis(0), &rows));
                        moments.merge(&moments_of(x.view().insert_axis(Axis(1)), &weights)?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The mean and the standard deviation of the samples that were counted.
    pub fn finish(self) -> Standardization {
        let columns: Vec<_> = match &self.moments {
            Moments::Complete(m) => {
                m.means().iter().zip(m.scatter().iter()).map(|(mean, v)| (m.weight(), *mean, v)).collect()
            }
            Moments::Columns(columns) => {
                columns.iter().map(|m| (m.weight(), m.means()[[0, 0]], m.scatter().iter().sum())).collect()
            }
        };
        let deviation = |&(weight, _, scatter): &(f64, f64, f64)| (scatter / weight).sqrt();
        let scale = columns.iter().map(deviation).map(|s| if s > 0.0 { s } else { 1.0 }).collect();
        let mean = columns.iter().zip(&self.origin).map(|((_, mean, _), origin)| mean + origin).collect();
        let observed = match &self.moments {
            Moments::Complete(_) => Array1::ones(self.origin.len()),
            Moments::Columns(_) => columns.iter().map(|(weight, ..)| weight / self.weight).collect(),
        };
        Standardization { mean, scale, observed, weight: self.weight }
    }
}

/// The moments of each column, from those of all.
fn by_column(moments: &Statistics) -> Result<Vec<Statistics>> {
    let weight = moments.weight();
    let columns = moments.means().row(0).to_vec().into_iter().zip(moments.scatter().iter().collect::<Vec<_>>());
    let one = |(mean, scatter)| {
        Statistics::from_centred_sums(CentredSums {
            weight,
            log_likelihood: 0.0,
            centres: Array2::from_elem((1, 1), mean),
            counts: Array1::from_elem(1, weight),
            first: Array2::zeros((1, 1)),
            second: Covariances::Diag(Array2::from_elem((1, 1), scatter)),
        })
    };
    columns.map(one).collect()
}

impl Standardization {
    /// Mean and standard deviation (divisor Σᵢ wᵢ) of each column, by sample weight and of its
    /// observed values; the scale of a constant column is 1.
    ///
    /// # Errors
    /// [`Error::NonFiniteStatistic`] where a sum overflows.
    pub fn of(samples: &Samples<'_>) -> Result<Self> {
        let mut parts = StandardizationBuilder::new(samples);
        parts.add(samples)?;
        Ok(parts.finish())
    }

    /// Mean of each column (D,).
    pub fn mean(&self) -> &Array1<f64> {
        &self.mean
    }

    /// The divisor of each column (D,).
    pub fn scale(&self) -> &Array1<f64> {
        &self.scale
    }

    /// Σⱼ ln scaleⱼ, each term times the share of the column's values that is observed: the mean
    /// log-likelihood of the samples in the units of x is that of z minus this. Where nothing is
    /// missing, so is that of each sample.
    pub fn log_scale(&self) -> f64 {
        self.scale.iter().zip(&self.observed).map(|(s, observed)| observed * s.ln()).sum()
    }

    /// Standardises samples (N, D) in place; computed in float64, rounded to `T`.
    ///
    /// # Panics
    /// If D is another.
    pub fn apply<T: Copy + Into<f64>>(&self, mut x: ArrayViewMut2<'_, T>, round: impl Fn(f64) -> T) {
        for ((mut column, mean), scale) in x.columns_mut().into_iter().zip(&self.mean).zip(&self.scale) {
            column.map_inplace(|v| *v = round(((*v).into() - mean) / scale));
        }
    }

    /// A mixture or posterior of z as one of x. A `spherical` one becomes `diag`, because its
    /// variances differ by column then; the prior of a posterior comes along.
    ///
    /// # Errors
    /// As [`Mixture::new`], where the parameters leave the range of float64.
    pub fn restore<M: Standardizable>(&self, mixture: &M) -> Result<M> {
        mixture.restored(self)
    }

    /// A mixture or posterior of x as one of z, of the covariance type wanted; the inverse of
    /// [`restore`](Self::restore).
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another D; [`Error::WrongCovarianceType`]; as [`Mixture::new`].
    pub fn standardize<M: Standardizable>(&self, mixture: &M, covariance_type: CovarianceType) -> Result<M> {
        mixture.standardized(self, covariance_type)
    }

    /// A fit to z as one to x: its mixture and its lower bounds.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn restore_fit<M: Standardizable>(&self, fit: &Fit<M>) -> Result<Fit<M>> {
        let shift = fit.mixture.lower_bound_shift(self);
        let lower_bounds = fit.lower_bounds.iter().map(|b| b - shift).collect();
        Ok(Fit { mixture: self.restore(&fit.mixture)?, lower_bounds, ..fit.clone() })
    }

    /// The inverse of [`restore_fit`](Self::restore_fit).
    ///
    /// # Errors
    /// As [`standardize`](Self::standardize).
    pub fn standardize_fit<M: Standardizable>(&self, fit: &Fit<M>, covariance_type: CovarianceType) -> Result<Fit<M>> {
        let shift = fit.mixture.lower_bound_shift(self);
        let lower_bounds = fit.lower_bounds.iter().map(|b| b + shift).collect();
        Ok(Fit { mixture: self.standardize(&fit.mixture, covariance_type)?, lower_bounds, ..fit.clone() })
    }

    /// A mean of z as one of x.
    fn restored_mean(&self, mean: &Array1<f64>) -> Array1<f64> {
        mean * &self.scale + &self.mean
    }

    /// Covariances of z as those of x.
    fn restored_covariances(&self, covariances: &Covariances) -> Covariances {
        scaled(with_variances_by_column(covariances, self.scale.len()), &self.scale)
    }

    /// The inverse of [`restored_mean`](Self::restored_mean). Errors: [`Error::ShapeMismatch`].
    pub(super) fn standardized_mean(&self, what: &'static str, mean: &Array1<f64>) -> Result<Array1<f64>> {
        if mean.len() != self.mean.len() {
            return Err(Error::ShapeMismatch { what, expected: vec![self.mean.len()], got: vec![mean.len()] });
        }
        Ok((mean - &self.mean) / &self.scale)
    }

    /// The inverse of [`restored_covariances`](Self::restored_covariances), of `k` components and in
    /// the type wanted. Errors: [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`].
    pub(super) fn standardized_covariances(
        &self,
        what: &'static str,
        covariances: &Covariances,
        k: usize,
        covariance_type: CovarianceType,
    ) -> Result<Covariances> {
        let d = self.mean.len();
        covariances.check_shape(what, k, d)?;
        let mut covariances = scaled(with_variances_by_column(covariances, d), &self.scale.mapv(|s| 1.0 / s));
        if covariance_type == CovarianceType::Spherical
            && let Covariances::Diag(v) = &covariances
        {
            let one = |row: ndarray::ArrayView1<'_, f64>| {
                let mean = row.sum() / d as f64;
                row.iter().all(|v| (v - mean).abs() <= SPHERICAL_TOLERANCE * mean).then_some(mean)
            };
            if let Some(v) = v.outer_iter().map(one).collect() {
                covariances = Covariances::Spherical(v);
            }
        }
        covariances.check_type(what, covariance_type, k, d)?;
        Ok(covariances)
    }
}

impl Standardizable for Mixture {
    fn restored(&self, standard: &Standardization) -> Result<Self> {
        let means = &self.means() * &standard.scale + &standard.mean;
        Self::new(self.weights().to_owned(), means, standard.restored_covariances(self.covariances()))
    }

    fn standardized(&self, standard: &Standardization, covariance_type: CovarianceType) -> Result<Self> {
        let (means, covariances) = standardized_parts(standard, self.means(), self.covariances(), covariance_type)?;
        Self::new(self.weights().to_owned(), means, covariances)
    }

    fn lower_bound_shift(&self, standard: &Standardization) -> f64 {
        standard.log_scale()
    }
}

impl Standardizable for VariationalMixture {
    fn restored(&self, standard: &Standardization) -> Result<Self> {
        let prior = VariationalPrior {
            mean: standard.restored_mean(&self.prior().mean),
            covariance: standard.restored_covariances(&self.prior().covariance),
            ..self.prior().clone()
        };
        let means = &self.means() * &standard.scale + &standard.mean;
        self.with(prior, means, standard.restored_covariances(self.covariances()))
    }

    fn standardized(&self, standard: &Standardization, covariance_type: CovarianceType) -> Result<Self> {
        let (means, covariances) = standardized_parts(standard, self.means(), self.covariances(), covariance_type)?;
        let of_prior = &self.prior().covariance;
        let prior = VariationalPrior {
            mean: standard.standardized_mean("mean_prior", &self.prior().mean)?,
            covariance: standard.standardized_covariances(
                "covariance_prior, in standardised units,",
                of_prior,
                1,
                covariance_type,
            )?,
            ..self.prior().clone()
        };
        self.with(prior, means, covariances)
    }

    /// Of the samples' densities, and of those of the precisions a priori, which lower bounds leave
    /// out but for these factors.
    fn lower_bound_shift(&self, standard: &Standardization) -> f64 {
        let of_prior = self.n_components() as f64 * self.prior().degrees_of_freedom;
        standard.weight * standard.log_scale() + of_prior * standard.scale.mapv(f64::ln).sum()
    }
}

/// Means and covariances of x as those of z.
fn standardized_parts(
    standard: &Standardization,
    means: ArrayView2<'_, f64>,
    covariances: &Covariances,
    covariance_type: CovarianceType,
) -> Result<(Array2<f64>, Covariances)> {
    let (k, d) = means.dim();
    if d != standard.mean.len() {
        return Err(Error::ShapeMismatch {
            what: "the mixture's means (against the data's columns)",
            expected: vec![k, standard.mean.len()],
            got: vec![k, d],
        });
    }
    let what = "the covariances, in standardised units,";
    let covariances = standard.standardized_covariances(what, covariances, k, covariance_type)?;
    Ok(((&means - &standard.mean) / &standard.scale, covariances))
}

fn wide(samples: &Samples<'_>) -> Array2<f64> {
    match samples.view() {
        View::F32(x) => x.mapv(f64::from),
        View::F64(x) => x.to_owned(),
    }
}

/// Covariances in which each column has its own variance.
fn with_variances_by_column(covariances: &Covariances, d: usize) -> Covariances {
    match covariances {
        Covariances::Spherical(v) => Covariances::Diag(Array2::from_shape_fn((v.len(), d), |(c, _)| v[c])),
        other => other.clone(),
    }
}

/// Each entry (i, j) times scaleᵢ·scaleⱼ.
fn scaled(mut covariances: Covariances, scale: &Array1<f64>) -> Covariances {
    let outer = |m: ArrayView2<'_, f64>| Array2::from_shape_fn(m.dim(), |(i, j)| m[[i, j]] * (scale[i] * scale[j]));
    match &mut covariances {
        Covariances::Full(v) => v.outer_iter_mut().for_each(|mut m| {
            let scaled = outer(m.view());
            m.assign(&scaled);
        }),
        Covariances::Tied(v) => *v = outer(v.view()),
        Covariances::Diag(v) => *v *= &(scale * scale),
        // Not reached: a single variance cannot be scaled column by column, so that both callers
        // convert it to `Diag`.
        Covariances::Spherical(_) => {}
    }
    covariances
}
