//! The target and the steps of random-walk Metropolis on a backend's device.
use crate::error::{Error, Result};
use crate::model::covariances::Covariances;
use crate::model::mixture::Mixture;
use ndarray::Array2;

/// A posterior density over the coordinates θ of a mixture with diagonal or spherical covariances.
///
/// θ holds, for K components, D features and S scales of a component (D, or 1 if spherical):
/// - K − 1 numbers for the weights, by stick-breaking: zₖ = 1 / (1 + (K−1−k)·e^−θₖ), πₖ = zₖ Π_{j<k} (1 − zⱼ);
/// - K·D means μ;
/// - K·S logarithms of standard deviations σ.
#[derive(Debug, Clone, PartialEq)]
pub struct MetropolisTarget {
    /// K.
    pub n_components: usize,
    /// D.
    pub n_features: usize,
    /// Whether each component has one σ for all features.
    pub spherical: bool,
    /// The log prior density, added to the log-likelihood.
    pub prior: MetropolisPrior,
}

/// The logarithm of a prior density, of the form
///
/// constant + Σₖ αₖ log πₖ − ½ Σ (μ − location)²·(precision + scaled precision / σ²) + Σ (a·log σ − b·σ² − c/σ²),
///
/// with the Jacobian of θ in α and a.
#[derive(Debug, Clone, PartialEq)]
pub struct MetropolisPrior {
    /// α (K,).
    pub concentration: Vec<f64>,
    /// Location of each mean (K·D,).
    pub location: Vec<f64>,
    /// Precision of each mean (K·D,).
    pub precision: Vec<f64>,
    /// Precision of each mean in units of its component's 1/σ² (K·D,).
    pub scaled_precision: Vec<f64>,
    /// a (K·S,).
    pub by_log_scale: Vec<f64>,
    /// b (K·S,).
    pub by_variance: Vec<f64>,
    /// c (K·S,).
    pub by_precision: Vec<f64>,
    /// The constant.
    pub constant: f64,
}

impl MetropolisTarget {
    /// Returns S, the number of scales of a component.
    pub fn scales(&self) -> usize {
        if self.spherical { 1 } else { self.n_features }
    }

    /// Returns the number of coordinates.
    pub fn dim(&self) -> usize {
        self.n_components - 1 + self.n_components * (self.n_features + self.scales())
    }

    /// Returns the length of a step (see [`MetropolisSteps`]).
    pub fn step_width(&self) -> usize {
        (self.dim() + 1).next_multiple_of(2)
    }

    /// Returns the mixture at a point; `None` if θ is so extreme that the parameters leave float64's range.
    ///
    /// # Panics
    /// If `theta` does not have `dim` coordinates.
    pub fn mixture(&self, theta: &[f64]) -> Option<Mixture> {
        assert_eq!(theta.len(), self.dim(), "coordinates of the point");
        let (k, d) = (self.n_components, self.n_features);
        let (sticks, rest) = theta.split_at(k - 1);
        let (means, log_scales) = rest.split_at(k * d);
        let mut left = 1.0;
        let mut weights: Vec<f64> = sticks
            .iter()
            .enumerate()
            .map(|(c, t)| {
                let z = 1.0 / (1.0 + (k - 1 - c) as f64 * (-t).exp());
                let weight = z * left;
                left *= 1.0 - z;
                weight
            })
            .collect();
        weights.push(left);
        let variances: Vec<f64> = log_scales.iter().map(|u| (2.0 * u).exp()).collect();
        let covariances = if self.spherical {
            Covariances::Spherical(variances.into())
        } else {
            Covariances::Diag(Array2::from_shape_vec((k, d), variances).ok()?)
        };
        Mixture::new(weights.into(), Array2::from_shape_vec((k, d), means.to_vec()).ok()?, covariances).ok()
    }

    /// Returns the log prior density at a point, whose mixture is `mixture`.
    ///
    /// # Panics
    /// If the shapes are not the target's.
    pub fn log_prior(&self, theta: &[f64], mixture: &Mixture) -> f64 {
        let (k, d, s, p) = (self.n_components, self.n_features, self.scales(), &self.prior);
        let log_scales = &theta[k - 1 + k * d..];
        let variances: Vec<f64> = log_scales.iter().map(|u| (2.0 * u).exp()).collect();
        let mut sum = p.constant;
        for (weight, alpha) in mixture.weights().iter().zip(&p.concentration) {
            sum += alpha * weight.ln();
        }
        for (i, mean) in mixture.means().iter().enumerate() {
            let precision = p.precision[i] + p.scaled_precision[i] / variances[i / d * s + i % d % s];
            sum -= 0.5 * (mean - p.location[i]).powi(2) * precision;
        }
        for (i, (u, v)) in log_scales.iter().zip(variances).enumerate() {
            sum += p.by_log_scale[i] * u - p.by_variance[i] * v - p.by_precision[i] / v;
        }
        sum
    }

    /// Checks the shapes of the target, the point and the data.
    pub fn check(&self, n_features: usize, point: &[f64]) -> Result<()> {
        let (k, d, s, prior) = (self.n_components, self.n_features, self.scales(), &self.prior);
        if d != n_features || k == 0 {
            return Err(Error::ShapeMismatch {
                what: "the components and features of the Metropolis target (against the data's columns)",
                expected: vec![k.max(1), n_features],
                got: vec![k, d],
            });
        }
        let lengths = [
            ("the concentrations in a Metropolis prior", k, prior.concentration.len()),
            ("the locations in a Metropolis prior", k * d, prior.location.len()),
            ("the precisions in a Metropolis prior", k * d, prior.precision.len()),
            ("the scaled precisions in a Metropolis prior", k * d, prior.scaled_precision.len()),
            ("the factors of the log scales in a Metropolis prior", k * s, prior.by_log_scale.len()),
            ("the factors of the variances in a Metropolis prior", k * s, prior.by_variance.len()),
            ("the factors of the precisions in a Metropolis prior", k * s, prior.by_precision.len()),
            ("the point that Metropolis steps begin at", self.dim(), point.len()),
        ];
        match lengths.into_iter().find(|(_, expected, got)| expected != got) {
            Some((what, expected, got)) => Err(Error::ShapeMismatch { what, expected: vec![expected], got: vec![got] }),
            None => Ok(()),
        }
    }
}

/// The source of a chain's steps, and the receiver of their results.
///
/// A step is a row of [`MetropolisTarget::step_width`] numbers: the increments of the coordinates, log u of a uniform
/// number u, and, if the number of coordinates is even, an unused number. The proposal θ + increments is accepted if
/// log u < log p(proposal) − log p(θ).
pub trait MetropolisSteps {
    /// Writes the remaining steps, as many as fit, and returns their number; 0 ends the chain.
    ///
    /// May be called before the densities of the preceding steps are known.
    fn propose(&mut self, rows: &mut [f64]) -> usize;

    /// Receives the steps again, in order, with the log density of each proposal (−∞ for a zero density).
    fn record(&mut self, rows: &[f64], log_densities: &[f64]);
}
