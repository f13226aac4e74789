//! What a model file holds besides its format: the parameters of a mixture, how a fit found them,
//! and the names of the features.
use crate::io::Problem;
use crate::io::data::short;
use gmm_host::{CovarianceModel, Covariances, Error, Fit, Mixture, VariationalMixture};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What a file says of a mixture besides its parameters, under scikit-learn's names: the names of
/// the features, and how a fit found it. A file need not say any of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FitSummary {
    /// The names of the features (D,), by which the columns of a table are found; in a `.npz` the
    /// member `feature_names_in_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_names: Option<Vec<String>>,
    /// Whether the last iteration changed the lower bound by less than the tolerance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
    /// Number of iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_iter: Option<u64>,
    /// The lower bound of the last iteration; `None` without iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// The lower bound of each iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bounds: Option<Vec<f64>>,
}

impl FitSummary {
    /// Sets the names of the features.
    #[must_use]
    pub fn with_feature_names(self, names: Option<&[String]>) -> Self {
        Self { feature_names: names.map(<[String]>::to_vec), ..self }
    }

    /// Makes sure that there is a name for each feature, and that no name stands for two.
    pub(super) fn check(&self, mixture: &Mixture) -> Result<(), Problem> {
        let Some(names) = &self.feature_names else { return Ok(()) };
        let (got, d) = (names.len(), mixture.n_features());
        if got != d {
            return Err(Problem::format(format!("there are {got} feature_names for {d} features (columns of means)")));
        }
        let mut seen = HashSet::new();
        match names.iter().find(|name| !seen.insert(*name)) {
            Some(twice) => Err(Problem::format(format!("feature_names has `{}` twice", short(twice)))),
            None => Ok(()),
        }
    }
}

impl<M> From<&Fit<M>> for FitSummary {
    fn from(fit: &Fit<M>) -> Self {
        Self {
            feature_names: None,
            converged: Some(fit.converged),
            n_iter: Some(fit.n_iter() as u64),
            lower_bound: fit.lower_bounds.last().copied(),
            lower_bounds: Some(fit.lower_bounds.clone()),
        }
    }
}

/// What a model file holds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// The mixture; of a posterior of variational inference, that of its means.
    pub mixture: Mixture,
    /// What the file says besides.
    pub summary: FitSummary,
    /// The posterior, if the file has one.
    pub posterior: Option<VariationalMixture>,
}

impl Model {
    /// A mixture, and what is known of it besides.
    pub fn new(mixture: Mixture, summary: FitSummary) -> Self {
        Self { mixture, summary, posterior: None }
    }

    /// A posterior beside the mixture of its means, and what is known of it besides.
    ///
    /// # Errors
    /// As [`VariationalMixture::to_mixture`].
    pub fn of_posterior(posterior: VariationalMixture, summary: FitSummary) -> gmm_host::Result<Self> {
        Ok(Self { mixture: posterior.to_mixture()?, summary, posterior: Some(posterior) })
    }

    /// The mixture whose responsibilities and log-densities are those of samples:
    /// [`VariationalMixture::density`] of a posterior, as in scikit-learn.
    pub fn density(&self) -> &Mixture {
        self.posterior.as_ref().map_or(&self.mixture, VariationalMixture::density)
    }

    /// What is to be added to log-densities under [`density`](Self::density).
    pub fn log_total(&self) -> f64 {
        self.posterior.as_ref().map_or(0.0, VariationalMixture::log_total)
    }
}

/// An array of any number of dimensions: its shape, and its values in row-major order.
pub(super) type Array = (Vec<usize>, Vec<f64>);

/// Makes a mixture of arrays as they were read: checks that their shapes agree, and then their
/// values.
pub(super) fn mixture_from_arrays(
    model: CovarianceModel,
    weights: Array,
    means: Array,
    covariances: Array,
) -> Result<Mixture, Problem> {
    let (shape, means) = means;
    let &[k, d] = &shape[..] else {
        return Err(Error::ShapeMismatch { what: "means (K, D)", expected: vec![1, 1], got: shape }.into());
    };
    let weights = values_of_shape("weights", weights, vec![k])?;
    let covariances = values_of_shape("covariances", covariances, model.form().shape(k, d))?;
    let means = Array2::from_shape_vec((k, d), means).map_err(|e| Problem::format(e.to_string()))?;
    let covariances = Covariances::from_vec(model.form(), k, d, covariances)?;
    Ok(Mixture::new(Array1::from_vec(weights), means, covariances)?.with_covariance_model(model)?)
}

fn values_of_shape(what: &'static str, (got, values): Array, expected: Vec<usize>) -> Result<Vec<f64>, Problem> {
    if got == expected { Ok(values) } else { Err(Error::ShapeMismatch { what, expected, got }.into()) }
}
