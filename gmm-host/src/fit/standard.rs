//! Fitting in standardised units.
use super::outcome::Fit;
use crate::data::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use crate::statistics::{CentredSums, Statistics};
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
        Standardization { mean, scale, observed }
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

    /// A mixture of z as one of x. A `spherical` one becomes `diag`, because its variances differ
    /// by column then.
    ///
    /// # Errors
    /// As [`Mixture::new`], where the parameters leave the range of float64.
    pub fn restore(&self, mixture: &Mixture) -> Result<Mixture> {
        let means = &mixture.means() * &self.scale + &self.mean;
        let covariances = match mixture.covariances() {
            Covariances::Spherical(v) => Covariances::Diag(spread(v, self.scale.len())),
            other => other.clone(),
        };
        Mixture::new(mixture.weights().to_owned(), means, scaled(covariances, &self.scale))
    }

    /// A mixture of x as one of z, of the covariance type wanted; the inverse of
    /// [`restore`](Self::restore).
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another D; [`Error::WrongCovarianceType`]; as [`Mixture::new`].
    pub fn standardize(&self, mixture: &Mixture, covariance_type: CovarianceType) -> Result<Mixture> {
        let (k, d) = mixture.means().dim();
        if d != self.mean.len() {
            return Err(Error::ShapeMismatch {
                what: "the mixture's means (against the data's columns)",
                expected: vec![k, self.mean.len()],
                got: vec![k, d],
            });
        }
        let means = (&mixture.means() - &self.mean) / &self.scale;
        let covariances = match mixture.covariances() {
            Covariances::Spherical(v) => Covariances::Diag(spread(v, d)),
            other => other.clone(),
        };
        let mut covariances = scaled(covariances, &self.scale.mapv(|s| 1.0 / s));
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
        covariances.check_type("the covariances, in standardised units,", covariance_type, k, d)?;
        Mixture::new(mixture.weights().to_owned(), means, covariances)
    }

    /// A fit to z as one to x: its mixture and its lower bounds.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn restore_fit(&self, fit: &Fit) -> Result<Fit> {
        let lower_bounds = fit.lower_bounds.iter().map(|b| b - self.log_scale()).collect();
        Ok(Fit { mixture: self.restore(&fit.mixture)?, lower_bounds, ..fit.clone() })
    }

    /// The inverse of [`restore_fit`](Self::restore_fit).
    ///
    /// # Errors
    /// As [`standardize`](Self::standardize).
    pub fn standardize_fit(&self, fit: &Fit, covariance_type: CovarianceType) -> Result<Fit> {
        let lower_bounds = fit.lower_bounds.iter().map(|b| b + self.log_scale()).collect();
        Ok(Fit { mixture: self.standardize(&fit.mixture, covariance_type)?, lower_bounds, ..fit.clone() })
    }
}

fn wide(samples: &Samples<'_>) -> Array2<f64> {
    match samples.view() {
        View::F32(x) => x.mapv(f64::from),
        View::F64(x) => x.to_owned(),
    }
}

/// One variance for each component as variances (K, D).
fn spread(v: &Array1<f64>, d: usize) -> Array2<f64> {
    Array2::from_shape_fn((v.len(), d), |(c, _)| v[c])
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
