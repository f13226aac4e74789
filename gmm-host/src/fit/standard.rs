//! Fitting in standardised units.
use super::outcome::Fit;
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Functions;
use gmm_core::variational::mixture::VariationalMixture;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayViewMut2, Zip};

/// The number of samples that are read at a time.
const CHUNK: usize = 8192;
/// The relative difference up to which a component's variances count as equal.
const SPHERICAL_TOLERANCE: f64 = 1e-9;

/// z = (x − mean) / scale, column by column, as scikit-learn's StandardScaler. A fit to z treats all columns alike,
/// above all in its start and `reg_covar`; its parameters and likelihood have exact counterparts in the units of x.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Standardization {
    mean: Array1<f64>,
    scale: Array1<f64>,
    /// The weighted sum of each column's squared differences from its mean.
    scatter: Array1<f64>,
    /// The weight of each column's observed values.
    observed: Array1<f64>,
    weight: f64,
    /// Whether one number scales all columns.
    isotropic: bool,
}

/// A model with a counterpart in other units: a mixture, or the posterior of one.
pub trait Standardizable: Sized + Clone {
    /// Returns the model of x: [`Standardization::restore`].
    ///
    /// # Errors
    /// As there.
    fn restored(&self, standard: &Standardization) -> Result<Self>;

    /// Returns the model of z: [`Standardization::standardize`].
    ///
    /// # Errors
    /// As there.
    fn standardized(&self, standard: &Standardization, model: CovarianceModel) -> Result<Self>;

    /// Returns by how much the lower bound falls from a fit to standardised samples to one in the samples' units.
    fn lower_bound_shift(&self, standard: &Standardization) -> f64;
}

impl Standardization {
    /// Computes the weighted mean and standard deviation (divisor Σᵢ wᵢ) of each column's observed values; the scale of
    /// a constant column is 1.
    ///
    /// # Errors
    /// [`Error::NonFiniteStatistic`] if a sum overflows.
    pub fn of(samples: &Samples<'_>) -> Result<Self> {
        let n = samples.n_samples();
        let zeros = || Array1::zeros(samples.n_features());
        let nothing = Self::new(0.0, zeros(), zeros(), zeros());
        let part = |start: usize| Self::of_part(&samples.rows(start..n.min(start + CHUNK)));
        (0..n).step_by(CHUNK).try_fold(nothing, |all, start| all.merged(&part(start)))
    }

    /// Returns the standardisation of these samples and others together.
    ///
    /// # Errors
    /// [`Error::NonFiniteStatistic`] if a sum overflows.
    pub fn merged(&self, other: &Self) -> Result<Self> {
        let observed = &self.observed + &other.observed;
        let difference = &other.mean - &self.mean;
        let share = &other.observed / &observed.mapv(|weight| if weight > 0.0 { weight } else { 1.0 });
        let mut mean = &self.mean + &(&share * &difference);
        Zip::from(&mut mean).and(&self.observed).and(&other.mean).for_each(|mean, &observed, &other| {
            if observed == 0.0 {
                *mean = other;
            }
        });
        let between = &self.observed * &share * &difference * &difference;
        let scatter = &self.scatter + &other.scatter + between;
        for (what, sums) in [("the first moment", &mean), ("the second moment", &scatter)] {
            if let Some(&value) = sums.iter().find(|sum| !sum.is_finite()) {
                return Err(Error::NonFiniteStatistic { what, component: 0, value });
            }
        }
        let all = Self::new(self.weight + other.weight, observed, mean, scatter);
        Ok(if self.isotropic { all.isotropic() } else { all })
    }

    /// Returns the standardisation with one scale for all columns, the square root of their mean variance, so that
    /// `spherical` covariances have counterparts of their type.
    #[must_use]
    pub fn isotropic(mut self) -> Self {
        let of_observed = Zip::from(&self.scatter)
            .and(&self.observed)
            .map_collect(|scatter, weight| if *weight > 0.0 { scatter / weight } else { 0.0 });
        self.scale.fill(of_variance(of_observed.sum() / of_observed.len() as f64));
        self.isotropic = true;
        self
    }

    fn new(weight: f64, observed: Array1<f64>, mean: Array1<f64>, scatter: Array1<f64>) -> Self {
        let scale = Zip::from(&scatter).and(&observed).map_collect(|scatter, weight| of_variance(scatter / weight));
        Self { mean, scale, scatter, observed, weight, isotropic: false }
    }

    fn of_part(samples: &Samples<'_>) -> Self {
        let x = wide(samples);
        let weights = samples.weights().map_or_else(|| Array1::ones(x.nrows()), |weights| weights.to_owned());
        // Differences from a column's first value lose nothing far from zero, and are zero in a constant column.
        let first = |column: ArrayView1<'_, f64>| column.iter().copied().find(|v| !v.is_nan()).unwrap_or(0.0);
        let origin: Array1<f64> = x.columns().into_iter().map(first).collect();
        let sums = |centre: &Array1<f64>, of: fn(f64) -> f64| {
            let mut sums = Array1::zeros(origin.len());
            for (row, &weight) in x.outer_iter().zip(&weights) {
                Zip::from(&mut sums).and(row).and(&origin).and(centre).for_each(|sum, v, origin, centre| {
                    if !v.is_nan() {
                        *sum += weight * of((v - origin) - centre);
                    }
                });
            }
            sums
        };
        let zeros = Array1::zeros(origin.len());
        let observed = sums(&zeros, |_| 1.0);
        let shift = sums(&zeros, |v| v) / observed.mapv(|weight| if weight > 0.0 { weight } else { 1.0 });
        let scatter = sums(&shift, |v| v * v);
        Self::new(weights.iter().sum(), observed, origin + shift, scatter)
    }

    /// Returns the mean of each column (D,).
    pub fn mean(&self) -> &Array1<f64> {
        &self.mean
    }

    /// Returns the divisor of each column (D,).
    pub fn scale(&self) -> &Array1<f64> {
        &self.scale
    }

    /// Returns Σⱼ ln scaleⱼ, each term times the share of the column's values that is observed: the mean log-likelihood
    /// of the samples in the units of x is that of z minus this. Without missing values, so is that of each sample.
    pub fn log_scale(&self) -> f64 {
        self.scale.iter().zip(&self.observed).map(|(s, observed)| observed / self.weight * s.log_e()).sum()
    }

    /// Standardises samples (N, D) in place, computing in float64 and rounding to `T`.
    ///
    /// # Panics
    /// If D is another.
    pub fn apply<T: Copy + Into<f64>>(&self, mut x: ArrayViewMut2<'_, T>, round: impl Fn(f64) -> T) {
        for ((mut column, mean), scale) in x.columns_mut().into_iter().zip(&self.mean).zip(&self.scale) {
            column.map_inplace(|v| *v = round(((*v).into() - mean) / scale));
        }
    }

    /// Returns a mixture or posterior of z as one of x, with the prior of a posterior. A `spherical` model becomes
    /// `diag`, because its variances then differ by column, unless one number scales all columns.
    ///
    /// # Errors
    /// As [`Mixture::new`], if the parameters leave the range of float64.
    pub fn restore<M: Standardizable>(&self, mixture: &M) -> Result<M> {
        mixture.restored(self)
    }

    /// Returns a mixture or posterior of x as one of z, of this covariance type; inverts [`restore`](Self::restore).
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another D; [`Error::WrongCovarianceType`]; as [`Mixture::new`].
    pub fn standardize<M: Standardizable>(&self, mixture: &M, model: impl Into<CovarianceModel>) -> Result<M> {
        mixture.standardized(self, model.into())
    }

    /// Returns a fit to z as one to x: its mixture and its lower bounds.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    pub fn restore_fit<M: Standardizable>(&self, fit: &Fit<M>) -> Result<Fit<M>> {
        let shift = fit.mixture.lower_bound_shift(self);
        let lower_bounds = fit.lower_bounds.iter().map(|b| b - shift).collect();
        Ok(Fit { mixture: self.restore(&fit.mixture)?, lower_bounds, ..fit.clone() })
    }

    /// Returns a fit to x as one to z; the inverse of [`restore_fit`](Self::restore_fit).
    ///
    /// # Errors
    /// As [`standardize`](Self::standardize).
    pub fn standardize_fit<M: Standardizable>(
        &self,
        fit: &Fit<M>,
        model: impl Into<CovarianceModel>,
    ) -> Result<Fit<M>> {
        let shift = fit.mixture.lower_bound_shift(self);
        let lower_bounds = fit.lower_bounds.iter().map(|b| b + shift).collect();
        Ok(Fit { mixture: self.standardize(&fit.mixture, model)?, lower_bounds, ..fit.clone() })
    }

    /// Returns whether all columns have one scale.
    pub(super) fn is_isotropic(&self) -> bool {
        self.isotropic
    }

    /// Returns a mean of z as one of x.
    fn restored_mean(&self, mean: &Array1<f64>) -> Array1<f64> {
        mean * &self.scale + &self.mean
    }

    pub(super) fn restored_covariances(&self, covariances: &Covariances) -> Covariances {
        match covariances {
            Covariances::Spherical(v) if self.isotropic => Covariances::Spherical(v * (self.scale[0] * self.scale[0])),
            others => scaled(with_variances_by_column(others, self.scale.len()), &self.scale),
        }
    }

    /// Inverts [`restored_mean`](Self::restored_mean). Errors: [`Error::ShapeMismatch`].
    pub(super) fn standardized_mean(&self, what: &'static str, mean: &Array1<f64>) -> Result<Array1<f64>> {
        if mean.len() != self.mean.len() {
            return Err(Error::ShapeMismatch { what, expected: vec![self.mean.len()], got: vec![mean.len()] });
        }
        Ok((mean - &self.mean) / &self.scale)
    }

    /// Inverts [`restored_covariances`](Self::restored_covariances), for `k` components and the requested type. Errors:
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`].
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
        if let Some(noise) = self.noise() {
            let restored = self.without_noise().restored(standard)?;
            return restored
                .with_noise(self.weights().to_owned(), noise.moved(standard.scale.view(), standard.mean.view()));
        }
        let means = &self.means() * &standard.scale + &standard.mean;
        let restored = Self::new(self.weights().to_owned(), means, standard.restored_covariances(self.covariances()))?;
        // Standardised units have what components share; spheres can become `diag`.
        let same_form = restored.covariance_type() == self.covariance_type();
        if same_form { restored.with_covariance_model(self.covariance_model()) } else { Ok(restored) }
    }

    fn standardized(&self, standard: &Standardization, model: CovarianceModel) -> Result<Self> {
        if let Some(noise) = self.noise() {
            let (scale, shift) = (standard.scale.mapv(f64::recip), &standard.mean / &standard.scale);
            let gaussians = self.without_noise().standardized(standard, model)?;
            return gaussians.with_noise(self.weights().to_owned(), noise.moved(scale.view(), (-shift).view()));
        }
        let (means, covariances) = standardized_parts(standard, self.means(), self.covariances(), model.form())?;
        Self::new(self.weights().to_owned(), means, covariances)?.with_covariance_model(model)
    }

    fn lower_bound_shift(&self, standard: &Standardization) -> f64 {
        standard.log_scale()
    }
}

impl Standardizable for VariationalMixture {
    fn restored(&self, standard: &Standardization) -> Result<Self> {
        let mut prior = self.prior().clone();
        prior.mean = standard.restored_mean(&prior.mean);
        prior.covariance = standard.restored_covariances(&prior.covariance);
        let means = &self.means() * &standard.scale + &standard.mean;
        self.with(prior, means, standard.restored_covariances(self.covariances()))
    }

    fn standardized(&self, standard: &Standardization, model: CovarianceModel) -> Result<Self> {
        let (means, covariances) = standardized_parts(standard, self.means(), self.covariances(), model.form())?;
        let mut prior = self.prior().clone();
        prior.mean = standard.standardized_mean("mean_prior", &prior.mean)?;
        let what = "covariance_prior, in standardised units,";
        prior.covariance = standard.standardized_covariances(what, &prior.covariance, 1, model.form())?;
        self.with(prior, means, covariances)
    }

    /// The samples' densities are scaled, and of the precisions' prior density lower bounds hold only these factors.
    fn lower_bound_shift(&self, standard: &Standardization) -> f64 {
        let of_prior = self.n_components() as f64 * self.prior().degrees_of_freedom;
        standard.weight * standard.log_scale() + of_prior * standard.scale.mapv(f64::ln).sum()
    }
}

/// Returns means and covariances of x as those of z.
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

/// Returns the scale of a column of this variance.
fn of_variance(variance: f64) -> f64 {
    let deviation = variance.sqrt();
    if deviation > 0.0 { deviation } else { 1.0 }
}

fn wide(samples: &Samples<'_>) -> Array2<f64> {
    match samples.view() {
        View::F32(x) => x.mapv(f64::from),
        View::F64(x) => x.to_owned(),
    }
}

/// Returns covariances in which each column has its own variance.
fn with_variances_by_column(covariances: &Covariances, d: usize) -> Covariances {
    match covariances {
        Covariances::Spherical(v) => Covariances::Diag(Array2::from_shape_fn((v.len(), d), |(c, _)| v[c])),
        other => other.clone(),
    }
}

/// Returns each entry (i, j) times scaleᵢ·scaleⱼ.
fn scaled(mut covariances: Covariances, scale: &Array1<f64>) -> Covariances {
    let outer = |m: ArrayView2<'_, f64>| Array2::from_shape_fn(m.dim(), |(i, j)| m[[i, j]] * (scale[i] * scale[j]));
    match &mut covariances {
        Covariances::Full(v) => v.outer_iter_mut().for_each(|mut m| {
            let scaled = outer(m.view());
            m.assign(&scaled);
        }),
        Covariances::Tied(v) => *v = outer(v.view()),
        Covariances::Diag(v) => *v *= &(scale * scale),
        // Not reached: both callers convert it to `Diag`, because a single variance cannot be scaled column by column.
        Covariances::Spherical(_) => {}
    }
    covariances
}
