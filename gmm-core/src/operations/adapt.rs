//! Adaptation of a background model to few samples.
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use ndarray::Array1;

/// The adaptation of a mixture to samples, as in speaker verification (Reynolds, Quatieri and Dunn 2000, "Speaker
/// verification using adapted Gaussian mixture models").
///
/// With the counts nₖ and moments Eₖ(x), Eₖ(x²) of T samples under the mixture, and αₖ = nₖ/(nₖ + r): weights in
/// proportion to αₖ·nₖ/T + (1 − αₖ)·πₖ, means αₖ·Eₖ(x) + (1 − αₖ)·μₖ, variances αₖ·Eₖ(x²) + (1 − αₖ)·(σₖ² + μₖ²) −
/// μ̂ₖ². The variances are formed as the scatter of the data and of r samples of the component around the new mean
/// (around the old one if means are not adapted), so they cannot be negative. `full` covariances are formed likewise,
/// and a `tied` one from r samples of each component.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adaptation {
    /// The relevance factor r > 0: a component with r samples moves half of the way; default 16.
    pub relevance: f64,
    /// Whether the weights are adapted; default false.
    pub weights: bool,
    /// Whether the means are adapted; default true.
    pub means: bool,
    /// Whether the covariances are adapted; default false.
    pub covariances: bool,
}

impl Default for Adaptation {
    fn default() -> Self {
        Self { relevance: 16.0, weights: false, means: true, covariances: false }
    }
}

impl Adaptation {
    /// Adapts the named parameters, separated by commas: `weights`, `means`, `covariances`.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn of(parameters: &str, relevance: f64) -> Result<Self> {
        let mut adaptation = Self { relevance, weights: false, means: false, covariances: false };
        for name in parameters.split(',').map(str::trim) {
            match name {
                "weights" => adaptation.weights = true,
                "means" => adaptation.means = true,
                "covariances" => adaptation.covariances = true,
                other => {
                    let (value, remedy) = (format!("`{other}`"), "use weights, means or covariances");
                    return Err(Error::BadParameter { name: "parameters", value, remedy });
                }
            }
        }
        adaptation.check()?;
        Ok(adaptation)
    }

    fn check(&self) -> Result<()> {
        if self.relevance > 0.0 && self.relevance.is_finite() {
            return Ok(());
        }
        let (value, remedy) = (self.relevance.to_string(), "it must be positive and finite");
        Err(Error::BadParameter { name: "relevance", value, remedy })
    }

    /// Adapts the mixture to the samples of an E-step under it.
    ///
    /// # Errors
    /// [`Error::BadParameter`]; [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] for statistics of another
    /// mixture; as [`Mixture::new`] if a covariance is not usable.
    pub fn apply(&self, mixture: &Mixture, statistics: &Statistics) -> Result<Mixture> {
        self.check()?;
        mixture.check_no_noise("the adaptation")?;
        let prior = Statistics::of_mixture(mixture, self.relevance);
        let mut joined = statistics.clone();
        joined.merge(&prior)?;
        let weights = if self.weights {
            let total: f64 = statistics.counts().sum();
            let alpha = |n: f64| n / (n + self.relevance);
            let counts = statistics.counts();
            let weights = Array1::from_shape_fn(counts.len(), |c| {
                let share = if total > 0.0 { counts[c] / total } else { 0.0 };
                alpha(counts[c]) * share + (1.0 - alpha(counts[c])) * mixture.weights()[c]
            });
            let sum = weights.sum();
            weights / sum
        } else {
            mixture.weights().to_owned()
        };
        let kept = (!self.means).then(|| mixture.means().to_owned());
        if self.covariances {
            let (means, covariances) = joined.into_covariances(kept, 0.0, 0.0);
            return Mixture::new(weights, means, covariances);
        }
        let means = kept.unwrap_or_else(|| joined.means().to_owned());
        let (covariances, factor) = (mixture.covariances().clone(), mixture.factor().cloned());
        Mixture::from_parts(weights, means, covariances, factor)?.with_covariance_model(mixture.covariance_model())
    }
}
