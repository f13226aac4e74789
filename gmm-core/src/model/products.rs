//! Products and sums of mixtures.
use super::gaussian::{Covariance, Gaussian};
use super::linalg;
use crate::error::{Error, Result};
use crate::memory;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::mixture::Mixture;
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Array3, Axis};

/// # Products and sums
impl Mixture {
    /// Returns the normalised product p·q / ∫p·q of two densities, as of two independent opinions, and ln ∫p·q. The
    /// product has a component for each pair (K·L), ordered by this mixture's component first, with the precision Σ⁻¹ +
    /// T⁻¹. If both mixtures are spherical, diagonal or tied, so is the product; spherical with diagonal gives
    /// diagonal; otherwise it is full.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the numbers of features differ, [`Error::Memory`], [`Error::NotPositiveDefinite`],
    /// [`Error::BadParameter`] if the mixtures are infinitely far from each other.
    pub fn product(&self, other: &Self) -> Result<(Self, f64)> {
        self.check_same_features(other)?;
        let (k, l, d) = (self.n_components(), other.n_components(), self.n_features());
        memory::check("the components of the product", &[k * l, d, d], size_of::<f64>(), "reduce the mixtures first")?;
        let own = Covariance::all(self);
        let pairs = self.pairs(other, |i, _, sum: &Gaussian, delta: &Array1<f64>, log_weight| {
            (log_weight, &self.means().row(i) + &own[i].times(&sum.solve(delta)))
        })?;
        let log_weights: Array1<f64> = pairs.iter().map(|(log_weight, _)| *log_weight).collect();
        if log_weights.iter().all(|v| !v.is_finite()) {
            let remedy = "their components are infinitely far from each other";
            return Err(Error::BadParameter { name: "the product", value: "zero everywhere".into(), remedy });
        }
        let means = Array2::from_shape_fn((k * l, d), |(c, j)| pairs[c].1[j]);
        let diagonal = |c: usize, j: usize| 1.0 / (1.0 / self.variance(c / l, j) + 1.0 / other.variance(c % l, j));
        let covariances = match common_type([self, other]) {
            CovarianceType::Spherical => Covariances::Spherical((0..k * l).map(|c| diagonal(c, 0)).collect()),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k * l, d), |(c, j)| diagonal(c, j))),
            CovarianceType::Tied => Covariances::Tied(self.inverse_of_sum(0, other, 0)?),
            CovarianceType::Full => {
                let mut v = Array3::zeros((k * l, d, d));
                for (c, mut v) in v.outer_iter_mut().enumerate() {
                    v.assign(&self.inverse_of_sum(c / l, other, c % l)?);
                }
                Covariances::Full(v)
            }
        };
        let product = Self::new(Array1::from_elem(k * l, 1.0 / (k * l) as f64), means, covariances)?;
        product.with_log_weights(log_weights)
    }

    fn inverse_of_sum(&self, i: usize, other: &Self, j: usize) -> Result<Array2<f64>> {
        let precision = |m: &Self, c| match m.factor_of(c) {
            Some(u) => Covariance::Matrix(linalg::gram(u)),
            None => Covariance::Diagonal((0..m.n_features()).map(|feature| 1.0 / m.variance(c, feature)).collect()),
        };
        let sum = precision(self, i).plus(&precision(other, j)).into_matrix();
        linalg::inverse(sum.view()).map_err(|pivot| Error::NotPositiveDefinite { component: Some(i), pivot })
    }

    /// Returns the weighted sum Σ sᵢ pᵢ of mixtures, with all their components in order. The `weights` sᵢ are divided
    /// by their sum. The covariances keep a type shared by all mixtures; a mix of spherical and diagonal becomes
    /// diagonal; all else, and different tied matrices, become full.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] if the numbers of features differ, or the number of weights is not that of the
    /// mixtures; [`Error::BadParameter`] for no mixtures, and for weights that are negative, not finite, or all zero.
    pub fn sum(mixtures: &[&Self], weights: &[f64]) -> Result<Self> {
        mixtures.iter().try_for_each(|mixture| mixture.check_no_noise("the sum"))?;
        let Some(&first) = mixtures.first() else {
            let remedy = "give at least one mixture";
            return Err(Error::BadParameter { name: "mixtures", value: "empty".into(), remedy });
        };
        if weights.len() != mixtures.len() {
            let (expected, got) = (vec![mixtures.len()], vec![weights.len()]);
            return Err(Error::ShapeMismatch { what: "the weights", expected, got });
        }
        mixtures.iter().try_for_each(|mixture| first.check_same_features(mixture))?;
        let total: f64 = weights.iter().sum();
        if weights.iter().any(|v| *v < 0.0) || !(total > 0.0 && total.is_finite()) {
            let remedy = "they must be finite and not negative, and at least one of them above zero";
            return Err(Error::BadParameter { name: "the weights", value: format!("{weights:?}"), remedy });
        }
        let all: Vec<(&Self, usize)> = mixtures.iter().flat_map(|m| (0..m.n_components()).map(|c| (*m, c))).collect();
        let (k, d) = (all.len(), first.n_features());
        let covariances = match common_type(mixtures.iter().copied()) {
            CovarianceType::Spherical => Covariances::Spherical(all.iter().map(|(m, c)| m.variance(*c, 0)).collect()),
            CovarianceType::Diag => {
                Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| all[c].0.variance(all[c].1, j)))
            }
            CovarianceType::Tied if mixtures.iter().all(|m| m.covariances() == first.covariances()) => {
                first.covariances().clone()
            }
            _ => {
                let mut v = Array3::zeros((k, d, d));
                for (mut v, (m, c)) in v.outer_iter_mut().zip(&all) {
                    v.assign(&Covariance::of(m, *c).into_matrix());
                }
                Covariances::Full(v)
            }
        };
        let views: Vec<_> = mixtures.iter().map(|m| m.means()).collect();
        let means = ndarray::concatenate(Axis(0), &views).map_err(|_| Error::ShapeMismatch {
            what: "the means of the mixtures",
            expected: vec![k, d],
            got: vec![k],
        })?;
        let log_weights = mixtures.iter().zip(weights).flat_map(|(m, weight)| {
            // Each mixture gets its full share, even if its weights do not sum to one exactly.
            let log_share = (weight / total).log_e() - m.weights().sum().log_e();
            (0..m.n_components()).map(move |c| m.log_weight(c) + log_share)
        });
        let sum = Self::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?;
        Ok(sum.with_log_weights(log_weights.collect())?.0)
    }
}

/// Returns the poorest type that holds the results for components of these types; tied only if all are.
fn common_type<'a>(mixtures: impl IntoIterator<Item = &'a Mixture>) -> CovarianceType {
    use CovarianceType::{Diag, Full, Spherical};
    let mut types = mixtures.into_iter().map(Mixture::covariance_type);
    let first = types.next().unwrap_or(Full);
    types.fold(first, |common, next| match (common, next) {
        _ if common == next => common,
        (Diag, Spherical) | (Spherical, Diag) => Diag,
        _ => Full,
    })
}
