//! What a backend needs to know to run random-walk Metropolis where the data is.
use crate::{Error, Result};

/// A posterior density over the coordinates θ of a mixture with diagonal or spherical covariances.
///
/// θ holds, for K components, D features and S scales of a component (D, or 1 if spherical):
/// - K − 1 numbers of the weights, by stick-breaking: zₖ = 1 / (1 + (K−1−k)·e^−θₖ), πₖ = zₖ Π_{j<k} (1 − zⱼ);
/// - K·D means μ;
/// - K·S logarithms of standard deviations σ.
///
/// log p(θ) = log-likelihood + constant + Σₖ αₖ log πₖ − ½ Σ (μ − location)²·(precision + scaled precision / σ²)
/// + Σ (a·log σ − b·σ² − c/σ²), where Jacobians are part of the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct WalkTarget {
    /// K.
    pub n_components: usize,
    /// D.
    pub n_features: usize,
    /// Whether a component has one σ for all its features.
    pub spherical: bool,
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
    /// What all points have in common.
    pub constant: f64,
}

impl WalkTarget {
    /// S, the scales of a component.
    pub fn scales(&self) -> usize {
        if self.spherical { 1 } else { self.n_features }
    }

    /// Number of coordinates.
    pub fn dim(&self) -> usize {
        self.n_components - 1 + self.n_components * (self.n_features + self.scales())
    }

    /// Numbers of a step (see [`WalkSteps`]).
    pub fn step_width(&self) -> usize {
        (self.dim() + 1).next_multiple_of(2)
    }

    /// # Errors
    /// [`Error::ShapeMismatch`].
    pub(crate) fn check(&self, n_features: usize, point: &[f64]) -> Result<()> {
        let (k, d, s) = (self.n_components, self.n_features, self.scales());
        if d != n_features || k == 0 {
            return Err(Error::ShapeMismatch {
                what: "the walk's components and features (against the data's columns)",
                expected: vec![k.max(1), n_features],
                got: vec![k, d],
            });
        }
        let lengths = [
            ("the concentrations of a walk", k, self.concentration.len()),
            ("the locations of a walk", k * d, self.location.len()),
            ("the precisions of a walk", k * d, self.precision.len()),
            ("the scaled precisions of a walk", k * d, self.scaled_precision.len()),
            ("the factors of a walk's log scales", k * s, self.by_log_scale.len()),
            ("the factors of a walk's variances", k * s, self.by_variance.len()),
            ("the factors of a walk's precisions", k * s, self.by_precision.len()),
            ("the point of a walk", self.dim(), point.len()),
        ];
        match lengths.into_iter().find(|(_, expected, got)| expected != got) {
            Some((what, expected, got)) => {
                Err(Error::ShapeMismatch { what, expected: vec![expected], got: vec![got] })
            }
            None => Ok(()),
        }
    }
}

/// Where the steps of a walk come from, and where they go.
///
/// A step is a row of [`WalkTarget::step_width`] numbers: the increments of the coordinates, log u of a uniform number u,
/// and for an odd number of coordinates nothing behind. The proposal θ + increments is accepted where
/// log u < log p(proposal) − log p(θ).
pub trait WalkSteps {
    /// Fills as many rows as there are steps left and room for, and returns their number; 0 ends the walk.
    ///
    /// It may be called before the densities of the steps before are known.
    fn propose(&mut self, rows: &mut [f64]) -> usize;

    /// Takes the steps back, in order, with the log density of each proposal (−∞ for one that has none).
    fn record(&mut self, rows: &[f64], log_densities: &[f64]);
}
