//! The contents of a model file: the parameters of a mixture, the record of its fit, and the names of the features.
use crate::io::Problem;
use crate::io::data::short;
use gmm_host::{CovarianceModel, Covariances, Error, Fit, Mixture, UniformDensity, VariationalMixture};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// The names of the features and the record of a fit, under scikit-learn's names. A file may lack any of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FitSummary {
    /// The names of the features (D,), by which the columns of a table are found; in a `.npz` the member
    /// `feature_names_in_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_names: Option<Vec<String>>,
    /// Whether the last iteration changed the lower bound by less than the tolerance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converged: Option<bool>,
    /// The number of iterations.
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

    /// Checks that each feature has a name, and that names are distinct.
    pub(super) fn check(&self, mixture: &Mixture) -> Result<(), Problem> {
        let Some(names) = &self.feature_names else { return Ok(()) };
        let (got, d) = (names.len(), mixture.n_features());
        if got != d {
            return Err(Problem::format(format!(
                "expected {d} feature_names, one for each column of means, got {got}"
            )));
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

/// The contents of a model file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Model {
    /// The mixture; for a posterior of variational inference, that of its means.
    pub mixture: Mixture,
    /// The names of the features and the record of the fit.
    pub summary: FitSummary,
    /// The posterior, if the file has one.
    pub posterior: Option<VariationalMixture>,
}

impl Model {
    /// Returns a model of a mixture.
    pub fn new(mixture: Mixture, summary: FitSummary) -> Self {
        Self { mixture, summary, posterior: None }
    }

    /// Returns a model of a mixture, or of a posterior and the mixture of its means. Errors: as
    /// [`ModelInFile::parts`].
    pub fn with_summary(model: &impl ModelInFile, summary: FitSummary) -> gmm_host::Result<Self> {
        let (mixture, posterior) = model.parts()?;
        Ok(Self { mixture, summary, posterior: posterior.cloned() })
    }

    /// Returns the mixture whose responsibilities and log-densities are those of samples: for a posterior
    /// [`VariationalMixture::density`], as in scikit-learn.
    pub fn density(&self) -> &Mixture {
        self.posterior.as_ref().map_or(&self.mixture, VariationalMixture::density)
    }

    /// Returns the constant to add to log-densities under [`density`](Self::density).
    pub fn log_total(&self) -> f64 {
        self.posterior.as_ref().map_or(0.0, VariationalMixture::log_total)
    }
}

/// What a model file may hold: a mixture, or a posterior of variational inference beside the mixture of its means.
pub trait ModelInFile: Sized {
    /// Returns the mixture, and the posterior, if the model is one. Errors: as [`VariationalMixture::to_mixture`].
    fn parts(&self) -> gmm_host::Result<(Mixture, Option<&VariationalMixture>)>;

    /// Takes the model from the contents of a file.
    ///
    /// # Errors
    /// If it is a posterior and the file has none.
    fn of(model: Model) -> Result<Self, Problem>;
}

impl ModelInFile for Mixture {
    fn parts(&self) -> gmm_host::Result<(Mixture, Option<&VariationalMixture>)> {
        Ok((self.clone(), None))
    }

    fn of(model: Model) -> Result<Self, Problem> {
        Ok(model.mixture)
    }
}

impl ModelInFile for Model {
    fn parts(&self) -> gmm_host::Result<(Mixture, Option<&VariationalMixture>)> {
        Ok((self.mixture.clone(), self.posterior.as_ref()))
    }

    fn of(model: Self) -> Result<Self, Problem> {
        Ok(model)
    }
}

impl ModelInFile for VariationalMixture {
    fn parts(&self) -> gmm_host::Result<(Mixture, Option<&VariationalMixture>)> {
        Ok((self.to_mixture()?, Some(self)))
    }

    fn of(model: Model) -> Result<Self, Problem> {
        let problem = "it is a mixture without a posterior of variational inference; read it as a GaussianMixture";
        model.posterior.ok_or_else(|| Problem::format(problem))
    }
}

/// An array of any number of dimensions: its shape, and its values in row-major order.
pub(super) type Array = (Vec<usize>, Vec<f64>);

/// Makes a mixture from arrays, after a check that their shapes agree and their values are usable. With noise there is
/// one weight more.
pub(super) fn mixture_from_arrays(
    model: CovarianceModel,
    weights: Array,
    means: Array,
    covariances: Array,
    noise: Option<UniformDensity>,
) -> Result<Mixture, Problem> {
    let (shape, means) = means;
    let &[k, d] = &shape[..] else {
        return Err(Error::ShapeMismatch { what: "means (K, D)", expected: vec![1, 1], got: shape }.into());
    };
    let weights = values_of_shape("weights", weights, vec![k + usize::from(noise.is_some())])?;
    let covariances = values_of_shape("covariances", covariances, model.form().shape(k, d))?;
    let means = Array2::from_shape_vec((k, d), means).map_err(|e| Problem::format(e.to_string()))?;
    let covariances = Covariances::from_vec(model.form(), k, d, covariances)?;
    let weights = Array1::from_vec(weights);
    let Some(noise) = noise else {
        return Ok(Mixture::new(weights, means, covariances)?.with_covariance_model(model)?);
    };
    let gaussians = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?;
    Ok(gaussians.with_covariance_model(model)?.with_noise(weights, noise)?)
}

fn values_of_shape(what: &'static str, (got, values): Array, expected: Vec<usize>) -> Result<Vec<f64>, Problem> {
    if got == expected { Ok(values) } else { Err(Error::ShapeMismatch { what, expected, got }.into()) }
}
