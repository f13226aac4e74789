//! A component for noise: a uniform density beside the Gaussians of a mixture (Banfield and Raftery 1993).
use crate::error::{Error, Result};
use ndarray::{Array1, ArrayView1};

/// The uniform density of a mixture's noise: 1/`volume` everywhere.
///
/// A mixture with noise has the noise as its last component, whose mean and variances are those of a uniform
/// distribution between `lower` and `upper`. Samples are drawn from there.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UniformDensity {
    /// The volume that noise fills.
    pub volume: f64,
    /// The least value of each feature (D,).
    pub lower: Vec<f64>,
    /// The largest value of each feature (D,).
    pub upper: Vec<f64>,
}

impl UniformDensity {
    pub(super) fn check(&self, n_features: usize) -> Result<()> {
        for bounds in [&self.lower, &self.upper] {
            if bounds.len() != n_features {
                let (what, expected) = ("the bounds of the noise", vec![n_features]);
                return Err(Error::ShapeMismatch { what, expected, got: vec![bounds.len()] });
            }
        }
        let bad = |value: f64, remedy| Err(Error::BadParameter { name: "noise", value: value.to_string(), remedy });
        if !(self.volume.is_normal() && self.volume > 0.0) {
            return bad(self.volume, "its volume must be positive and finite; is a column constant? give the volume");
        }
        match self.lower.iter().zip(&self.upper).find(|(a, b)| !(a.is_finite() && b.is_finite() && a <= b)) {
            Some((_, upper)) => bad(*upper, "its bounds must be finite, and the lower ones not above the upper ones"),
            None => Ok(()),
        }
    }

    /// Returns the mean (D,) of the uniform distribution.
    pub(super) fn mean(&self) -> Array1<f64> {
        self.lower.iter().zip(&self.upper).map(|(a, b)| a + (b - a) / 2.0).collect()
    }

    /// Returns the variances (D,) of the uniform distribution; 1 where the bounds are equal.
    pub(super) fn variances(&self) -> Array1<f64> {
        let ranges = self.lower.iter().zip(&self.upper).map(|(a, b)| b - a);
        ranges.map(|range| if range > 0.0 { range * range / 12.0 } else { 1.0 }).collect()
    }

    /// Returns the noise of samples scaled by `scale` (D,) and then shifted by `shift` (D,).
    pub fn moved(&self, scale: ArrayView1<'_, f64>, shift: ArrayView1<'_, f64>) -> Self {
        let moved = |bounds: &[f64]| {
            let columns = bounds.iter().zip(scale).zip(shift);
            columns.map(|((v, scale), shift)| v * scale + shift).collect()
        };
        Self { volume: self.volume * scale.product(), lower: moved(&self.lower), upper: moved(&self.upper) }
    }
}
