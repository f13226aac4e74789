//! The prior of a fit by EM, as the caller gives it.
use super::moments::{covariance_of, moments};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::statistics::Statistics;
use gmm_core::statistics::prior::{ConjugatePrior, check_numbers};
use ndarray::{Array2, Axis};

/// The prior under which EM finds the mode of the posterior ([`Em::prior`](field@super::Em::prior)), with the symbols
/// of [`ConjugatePrior`](crate::ConjugatePrior). Missing parts follow from the samples.
///
/// ```
/// use gmm_host::{GaussianMixtureParams, MapPrior};
/// use ndarray::array;
///
/// // Two rows are equal: without a prior, a component would collapse onto them.
/// let x = array![[1.0, 2.0], [1.0, 2.0], [7.0, 9.0], [8.0, 7.0], [9.0, 8.0]];
/// let fit = GaussianMixtureParams::new(2).reg_covar(0.0).prior(MapPrior::default()).fit(&x)?;
/// assert!(fit.retained.is_empty());
/// # Ok::<(), gmm_host::Error>(())
/// ```
///
/// The defaults are those of Fraley and Raftery 2007, "Bayesian regularization for normal mixture estimation and
/// model-based clustering".
///
/// ```
/// let prior: gmm_host::MapPrior = "mean_precision=0.5,weight_concentration=2".parse()?;
/// assert_eq!((prior.mean_precision, prior.weight_concentration), (0.5, 2.0));
/// assert_eq!("default".parse::<gmm_host::MapPrior>()?, gmm_host::MapPrior::default());
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct MapPrior {
    /// α, at least 1: adds α − 1 counts to each weight. Default 1.
    pub weight_concentration: f64,
    /// κ, at least 0: the number of samples that a mean's prior counts as. Default 0.01.
    pub mean_precision: f64,
    /// m (K, D), or (1, D) for all components. Default: the mean of the samples.
    pub mean: Option<Array2<f64>>,
    /// ν, above −D − 1; a distribution if above D − 1. Default D + 2.
    pub degrees_of_freedom: Option<f64>,
    /// Ψ in the covariance type's shape for one component: (1, D, D), (D, D), (1, D) or (1,). Default: the covariance
    /// of the samples over K^(2/D), a K-th of their volume.
    pub covariance: Option<Covariances>,
}

impl Default for MapPrior {
    fn default() -> Self {
        Self { weight_concentration: 1.0, mean_precision: 0.01, mean: None, degrees_of_freedom: None, covariance: None }
    }
}

impl MapPrior {
    pub(super) fn check(&self, model: CovarianceModel) -> Result<()> {
        ConjugatePrior::check_model(model)?;
        check_numbers(self.weight_concentration, self.mean_precision)
    }

    /// Returns the mean and scatter of all samples, from which [`of_mclust`](Self::of_mclust) takes missing parts.
    ///
    /// # Errors
    /// As [`Evaluator::statistics`].
    pub fn moments(evaluator: &mut dyn Evaluator) -> Result<Statistics> {
        moments(evaluator, CovarianceType::Full)
    }

    /// Returns the prior of K components of a model as mclust's `defaultPrior` makes it: [`ConjugatePrior::of_mclust`].
    /// A given covariance is (1, D, D).
    ///
    /// # Errors
    /// As [`ConjugatePrior::of_mclust`] and [`ConjugatePrior::check`].
    pub fn of_mclust(&self, moments: &Statistics, model: CovarianceModel, k: usize) -> Result<ConjugatePrior> {
        let d = moments.means().ncols();
        let mean = self.mean.clone().unwrap_or_else(|| moments.means().to_owned());
        let mut covariance =
            match self.covariance.clone().unwrap_or_else(|| covariance_of(moments, CovarianceType::Full)) {
                Covariances::Full(v) => v.index_axis_move(Axis(0), 0),
                other => {
                    return Err(Error::WrongCovarianceType {
                        what: "the prior's covariance",
                        expected: "full",
                        got: other.covariance_type().name(),
                    });
                }
            };
        if self.covariance.is_none() {
            covariance /= (k as f64).powf(2.0 / d as f64);
            if moments.weight() <= d as f64 {
                covariance = Array2::from_diag(&covariance.diag());
            }
        }
        let nu = self.degrees_of_freedom.unwrap_or(d as f64 + 2.0);
        let prior = ConjugatePrior::of_mclust(model, self.mean_precision, mean, nu, covariance)?;
        prior.check(k, d, model)?;
        Ok(prior)
    }
}

impl std::str::FromStr for MapPrior {
    type Err = Error;

    /// Parses `default`, or numbers that differ from it, such as `mean_precision=1,degrees_of_freedom=9`.
    fn from_str(text: &str) -> Result<Self> {
        let mut prior = Self::default();
        if text == "default" {
            return Ok(prior);
        }
        for part in text.split(',').map(str::trim) {
            let bad = || Error::BadParameter {
                name: "prior",
                value: format!("`{part}`"),
                remedy: "use default, or weight_concentration, mean_precision or degrees_of_freedom with a number, as in mean_precision=1",
            };
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            let value: f64 = value.trim().parse().map_err(|_| bad())?;
            match name.trim() {
                "weight_concentration" => prior.weight_concentration = value,
                "mean_precision" => prior.mean_precision = value,
                "degrees_of_freedom" => prior.degrees_of_freedom = Some(value),
                _ => return Err(bad()),
            }
        }
        check_numbers(prior.weight_concentration, prior.mean_precision)?;
        Ok(prior)
    }
}
