//! Marginal and conditional distributions of some features: mixtures with the same covariance type.
use super::density::Density;
use super::linalg::{self, vectorised};
use super::marginal::{Dependence, dependences, observed, restrict};
use crate::compensated::{log_softmax, log_sum_exp};
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Array3, ArrayView1, ArrayView2, Axis, s};
use std::borrow::Cow;

/// # Parts of a mixture
impl Mixture {
    /// Returns the distribution of some features alone, in the given order.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0, 2.0, 3.0]], Covariances::Diag(array![[0.1, 0.2, 0.3]]))?;
    /// let marginal = mixture.marginal(&[2, 0])?;
    /// assert_eq!((marginal.means(), marginal.variance(0, 0)), (array![[3.0, 1.0]].view(), 0.3));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`], [`Error::RepeatedFeature`], [`Error::BadParameter`] for no features,
    /// [`Error::NotPositiveDefinite`] if rounding makes a part of a nearly singular covariance singular.
    pub fn marginal(&self, features: &[usize]) -> Result<Self> {
        self.check_distinct(features)?;
        if features.is_empty() {
            let remedy = "name at least one feature to keep";
            return Err(Error::BadParameter { name: "features", value: "empty".into(), remedy });
        }
        restrict(self, features)
    }

    /// Returns the distribution of the other features, in their order, given the values of some. Each component has the
    /// mean μₐ + Σₐᵦ Σᵦᵦ⁻¹ (xᵦ − μᵦ), the covariance Σₐₐ − Σₐᵦ Σᵦᵦ⁻¹ Σᵦₐ, and a weight in proportion to πₖ N(xᵦ; μₖ,ᵦ,
    /// Σₖ,ᵦᵦ). [`impute`](Self::impute) fills in its mean.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, 0.5], [0.5, 1.0]]))?;
    /// let given = mixture.condition(&[(0, 2.0)])?;
    /// assert!((given.means()[[0, 0]] - 1.0).abs() < 1e-15 && (given.variance(0, 0) - 0.75).abs() < 1e-15);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchFeature`], [`Error::RepeatedFeature`]; [`Error::BadParameter`] for a value that is not finite, or
    /// if all features are given; [`Error::NotPositiveDefinite`] as [`marginal`](Self::marginal).
    pub fn condition(&self, given: &[(usize, f64)]) -> Result<Self> {
        let d = self.n_features();
        let features: Vec<usize> = given.iter().map(|(feature, _)| *feature).collect();
        self.check_distinct(&features)?;
        if let Some((feature, value)) = given.iter().find(|(_, value)| !value.is_finite()) {
            let value = format!("{value} for feature {feature} (counted from 0)");
            return Err(Error::BadParameter { name: "a given value", value, remedy: "give a finite number" });
        }
        if given.len() == d {
            let value = d.to_string();
            let remedy = "leave at least one out: its distribution is the result";
            return Err(Error::BadParameter { name: "the number of given features", value, remedy });
        }
        let rest: Vec<usize> = (0..d).filter(|j| !features.contains(j)).collect();
        let values: Array1<f64> = given.iter().map(|(_, value)| *value).collect();
        Conditional::new(self, &features, &rest)?.at(values.view())
    }

    pub(crate) fn check_distinct(&self, features: &[usize]) -> Result<()> {
        let n_features = self.n_features();
        let mut seen = vec![false; n_features];
        for &feature in features {
            let seen = seen.get_mut(feature).ok_or(Error::NoSuchFeature { feature, n_features })?;
            if std::mem::replace(seen, true) {
                return Err(Error::RepeatedFeature { feature });
            }
        }
        Ok(())
    }
}

/// The distribution of some features given others: each component has the mean μₐ + B·(xᵦ − μᵦ), B = Σₐᵦ Σᵦᵦ⁻¹, the
/// covariance Σₐₐ − B·Σᵦₐ, and a weight in proportion to πₖ N(xᵦ; μₖ,ᵦ, Σₖ,ᵦᵦ).
#[derive(Debug, Clone)]
pub(crate) struct Conditional {
    /// The mixture of the given features, if any.
    pub marginal: Option<Mixture>,
    /// The wanted features: their marginal weights and means, and their covariances given the rest.
    pub wanted: Mixture,
    /// B (wanted, given) of each component, or one for all; empty if zero.
    slopes: Vec<Array2<f64>>,
}

/// The weights and means of a [`Conditional`] for rows of given values.
pub(crate) struct Conditioned {
    /// The logarithms of the weights (B, K).
    pub log_weights: Array2<f64>,
    /// The means (K, B, wanted).
    pub means: Array3<f64>,
}

impl Conditional {
    /// Takes distinct features of `mixture`, at least one of them wanted. Fails if rounding makes
    /// a part of a nearly singular covariance singular.
    pub fn new(mixture: &Mixture, given: &[usize], wanted: &[usize]) -> Result<Self> {
        let alone = || restrict(mixture, wanted);
        if given.is_empty() {
            return Ok(Self { marginal: None, wanted: alone()?, slopes: Vec::new() });
        }
        let marginal = restrict(mixture, given)?;
        if marginal.factor().is_none() {
            return Ok(Self { marginal: Some(marginal), wanted: alone()?, slopes: Vec::new() });
        }
        let t = wanted.len();
        let (mut slopes, mut covariances) = (Vec::new(), Vec::new());
        for Dependence { slope, mut covariance } in dependences(mixture, &marginal, given, wanted) {
            linalg::mirror(covariance.as_slice_mut().unwrap_or_default(), t);
            slopes.extend(slope);
            covariances.extend(covariance);
        }
        let covariances = Covariances::from_vec(mixture.covariance_type(), mixture.n_components(), t, covariances)?;
        let wanted = mixture.with_parts(mixture.means().select(Axis(1), wanted), covariances)?;
        Ok(Self { marginal: Some(marginal), wanted, slopes })
    }

    /// Returns B of a component; `None` if it is zero.
    pub fn slope(&self, c: usize) -> Option<&Array2<f64>> {
        self.slopes.get(c.min(self.slopes.len().saturating_sub(1)))
    }

    /// Returns the mixture of the wanted features given x.
    pub fn at(self, x: ArrayView1<'_, f64>) -> Result<Mixture> {
        let Conditioned { log_weights, means } = self.rows(x.insert_axis(Axis(0)));
        let (weights, covariances) = (self.wanted.weights().to_owned(), self.wanted.covariances().clone());
        let factor = self.wanted.factor().cloned();
        let means = means.index_axis_move(Axis(1), 0);
        let mixture = Mixture::from_parts(weights, means, covariances, factor)?;
        Ok(mixture.with_log_weights(log_weights.row(0).to_owned())?.0)
    }

    /// Returns the weights and means given each row of x (B, given).
    pub fn rows(&self, x: ArrayView2<'_, f64>) -> Conditioned {
        let (n, (k, t)) = (x.nrows(), self.wanted.means().dim());
        let mut log_weights = Array2::zeros((n, k));
        let mut means = Array3::zeros((k, n, t));
        let Some(marginal) = &self.marginal else {
            for (mut means, mean) in means.outer_iter_mut().zip(self.wanted.means().outer_iter()) {
                means.assign(&mean);
            }
            for mut row in log_weights.outer_iter_mut() {
                row.iter_mut().enumerate().for_each(|(c, v)| *v = self.wanted.log_weight(c));
                log_softmax(row.as_slice_mut().unwrap_or_default());
            }
            return Conditioned { log_weights, means };
        };
        let mut density = Density::new(marginal);
        let x = x.as_standard_layout();
        let (means_given, means_wanted) = (marginal.means(), self.wanted.means());
        for c in 0..k {
            let factor = marginal.factor_of(c);
            let lanes = Lanes {
                mean: linalg::row_major(means_given.row(c)),
                variances: (0..x.ncols()).map(|j| marginal.variance(c, j)).collect(),
                factor: factor.map(linalg::row_major),
                slope: self.slope(c).map(|slope| linalg::row_major(slope.view())),
                wanted: linalg::row_major(means_wanted.row(c)),
            };
            let norm = density.log_norm(c);
            let log_weights = log_weights.as_slice_mut().unwrap_or_default();
            let mut of_component = means.index_axis_mut(Axis(0), c);
            let means = of_component.as_slice_mut().unwrap_or_default();
            lanes.evaluate(x.as_slice().unwrap_or_default(), means, |row, square| {
                log_weights[row * k + c] = norm - 0.5 * square;
            });
        }
        for (mut row, x) in log_weights.outer_iter_mut().zip(x.outer_iter()) {
            let row = row.as_slice_mut().unwrap_or_default();
            // NaN, or all squares too large for float64.
            if row.iter().any(|v| v.is_nan()) || row.iter().all(|v| *v == f64::NEG_INFINITY) {
                density.log_responsibilities(x, row);
            }
            log_softmax(row);
        }
        Conditioned { log_weights, means }
    }

    /// Returns the log-density at y (B, wanted) given [`rows`](Self::rows). A NaN in y is missing: the rest counts.
    pub fn log_densities(&self, given: &Conditioned, y: ArrayView2<'_, f64>) -> Result<Array1<f64>> {
        let mut logs = given.log_weights.clone();
        let constant = y.ncols() as f64 * std::f64::consts::TAU.log_e();
        for (c, means) in given.means.outer_iter().enumerate() {
            let norm = -0.5 * (constant + self.wanted.log_det(c));
            let squares = squares(&self.wanted, c, &(&y - &means));
            // Squares that overflow may be differences of infinities.
            let log_density = |square: f64| if square.is_nan() { f64::NEG_INFINITY } else { norm - 0.5 * square };
            logs.column_mut(c).iter_mut().zip(squares).for_each(|(v, square)| *v += log_density(square));
        }
        let mut log_densities: Array1<f64> =
            logs.outer_iter().map(|row| log_sum_exp(&linalg::row_major(row))).collect();
        for row in (0..y.nrows()).filter(|&row| y.row(row).iter().any(|v| v.is_nan())) {
            log_densities[row] = self.of_observed(given, y.row(row), row)?;
        }
        Ok(log_densities)
    }

    /// Returns the log-density of the observed values of y (wanted,), given a row of `given`.
    fn of_observed(&self, given: &Conditioned, y: ArrayView1<'_, f64>, row: usize) -> Result<f64> {
        let columns = observed(y);
        if columns.is_empty() {
            return Ok(0.0);
        }
        let part = Self { marginal: None, wanted: restrict(&self.wanted, &columns)?, slopes: Vec::new() };
        let given = Conditioned {
            log_weights: given.log_weights.slice(s![row..=row, ..]).to_owned(),
            means: given.means.slice(s![.., row..=row, ..]).select(Axis(2), &columns),
        };
        let y = y.select(Axis(0), &columns);
        Ok(part.log_densities(&given, y.view().insert_axis(Axis(0)))?[0])
    }

    /// Returns a matrix V with V·Vᵀ the covariance, for each component or once if tied. V comes from the inverse of the
    /// precision, so nothing cancels.
    pub fn roots(&self) -> Result<Vec<Array2<f64>>> {
        let of_matrix = |(component, u)| {
            let root = linalg::precision_cholesky(linalg::gram(u).view());
            root.map_err(|pivot| Error::NotPositiveDefinite { component, pivot })
        };
        let (k, t) = self.wanted.means().dim();
        match self.wanted.factor() {
            Some(factor) => factor.matrices().into_iter().map(of_matrix).collect(),
            None => {
                let one = |c| (0..t).map(|j| self.wanted.variance(c, j).sqrt()).collect::<Array1<f64>>();
                Ok((0..k).map(|c| Array2::from_diag(&one(c))).collect())
            }
        }
    }
}

/// Rows computed side by side, in vector instructions.
const LANES: usize = 16;

/// A component's parameters for rows: the mean of the given features, their variances or the factor U of their
/// precision, B unless zero, and the mean of the wanted features.
struct Lanes<'a> {
    mean: Cow<'a, [f64]>,
    variances: Vec<f64>,
    factor: Option<Cow<'a, [f64]>>,
    slope: Option<Cow<'a, [f64]>>,
    wanted: Cow<'a, [f64]>,
}

impl Lanes<'_> {
    /// Calls `square` with the number and (x − μ)ᵀΣ⁻¹(x − μ) of each row of `x` (B, given), and writes the means of the
    /// wanted features (B, wanted).
    fn evaluate(&self, x: &[f64], means: &mut [f64], mut square: impl FnMut(usize, f64)) {
        let (d, t) = (self.mean.len(), self.wanted.len());
        let mut deviations = vec![[0.0; LANES]; d];
        vectorised(
            #[inline(always)]
            || {
                for (first, (x, means)) in x.chunks(LANES * d).zip(means.chunks_mut(LANES * t)).enumerate() {
                    for (lane, x) in x.chunks_exact(d).enumerate() {
                        for ((to, x), mean) in deviations.iter_mut().zip(x).zip(&*self.mean) {
                            to[lane] = x - mean;
                        }
                    }
                    let squares = match &self.factor {
                        Some(u) => of_matrix(u, &deviations),
                        None => of_variances(&self.variances, &deviations),
                    };
                    let rows = x.len() / d;
                    (0..rows).for_each(|lane| square(first * LANES + lane, squares[lane]));
                    for (j, mean) in self.wanted.iter().enumerate() {
                        let mut sums = [*mean; LANES];
                        if let Some(slope) = &self.slope {
                            add_products(&mut sums, &slope[j * d..][..d], &deviations);
                        }
                        (0..rows).for_each(|lane| means[lane * t + j] = sums[lane]);
                    }
                }
            },
        );
    }
}

#[inline(always)]
fn add_products<'a>(sums: &mut [f64; LANES], a: impl IntoIterator<Item = &'a f64>, deviations: &[[f64; LANES]]) {
    for (a, deviations) in a.into_iter().zip(deviations) {
        sums.iter_mut().zip(deviations).for_each(|(sum, v)| *sum += a * v);
    }
}

/// Returns |Uᵀδ|² of each lane, for an upper triangular U.
#[inline(always)]
fn of_matrix(u: &[f64], deviations: &[[f64; LANES]]) -> [f64; LANES] {
    let d = deviations.len();
    let mut squares = [0.0; LANES];
    for j in 0..d {
        let mut sums = [0.0; LANES];
        add_products(&mut sums, u[j..].iter().step_by(d).take(j + 1), deviations);
        squares.iter_mut().zip(sums).for_each(|(square, v)| *square += v * v);
    }
    squares
}

/// Returns Σⱼ δⱼ² / σⱼ² of each lane.
#[inline(always)]
fn of_variances(variances: &[f64], deviations: &[[f64; LANES]]) -> [f64; LANES] {
    let mut squares = [0.0; LANES];
    for (variance, deviations) in variances.iter().zip(deviations) {
        squares.iter_mut().zip(deviations).for_each(|(square, v)| *square += v * v / variance);
    }
    squares
}

/// Returns δᵀΣ⁻¹δ of each row δ under the covariance of a component.
fn squares(mixture: &Mixture, c: usize, deviations: &Array2<f64>) -> Array1<f64> {
    match mixture.factor_of(c) {
        Some(u) => linalg::product(deviations.view(), u).map_axis(Axis(1), |row| row.dot(&row)),
        None => {
            let variances: Array1<f64> = (0..deviations.ncols()).map(|j| mixture.variance(c, j)).collect();
            deviations.map_axis(Axis(1), |row| row.iter().zip(&variances).map(|(d, v)| d * d / v).sum())
        }
    }
}
