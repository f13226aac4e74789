//! The prior of a fit by EM, as the caller gives it.
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::Covariances;
use gmm_core::statistics::prior::check_numbers;
use ndarray::Array2;

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
    /// ν, above D − 1. Default D + 2.
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
    pub(super) fn check(&self) -> Result<()> {
        check_numbers(self.weight_concentration, self.mean_precision)
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
        prior.check()?;
        Ok(prior)
    }
}
