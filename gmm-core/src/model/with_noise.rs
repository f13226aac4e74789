//! Mixtures with a component for noise, and without it.
use super::covariances::{CovarianceType, Covariances};
use super::mixture::Mixture;
use super::uniform::UniformDensity;
use crate::error::{Error, Result};
use ndarray::{Array1, Axis, concatenate};
use std::borrow::Cow;

impl Mixture {
    /// Adds a component for noise to K Gaussians. `weights` (K + 1,) replace theirs; the last one is that of the noise.
    /// Covariances of the form `tied` become one equal matrix for each Gaussian.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a volume or bounds that are not usable; [`Error::ShapeMismatch`]; as
    /// [`new`](Self::new) for the weights.
    pub fn with_noise(&self, weights: Array1<f64>, noise: UniformDensity) -> Result<Self> {
        let (k, d) = self.means().dim();
        noise.check(d)?;
        let means = concatenate![Axis(0), self.means(), noise.mean().insert_axis(Axis(0))];
        let variances = noise.variances();
        let form = self.covariance_type();
        let with_noise = if form == CovarianceType::Tied { CovarianceType::Full } else { form };
        let mut covariances = Covariances::zeros(with_noise, k + 1, d);
        match &mut covariances {
            Covariances::Full(v) => {
                (0..k).for_each(|c| v.index_axis_mut(Axis(0), c).assign(&self.matrix(c)));
                v.index_axis_mut(Axis(0), k).diag_mut().assign(&variances);
            }
            Covariances::Tied(_) => {}
            Covariances::Diag(v) => {
                (0..k).for_each(|c| v.row_mut(c).assign(&Array1::from_shape_fn(d, |j| self.variance(c, j))));
                v.row_mut(k).assign(&variances);
            }
            Covariances::Spherical(v) => {
                (0..k).for_each(|c| v[c] = self.variance(c, 0));
                v[k] = variances.sum() / d as f64;
            }
        }
        let model = self.covariance_model();
        Self::of_symmetric(weights, means, covariances)?.with_noise_of(Some(noise)).with_covariance_model(model)
    }

    /// Returns K, the number of components without the noise.
    pub fn n_gaussians(&self) -> usize {
        self.n_components() - usize::from(self.noise().is_some())
    }

    /// Returns whether a component is the noise.
    pub fn is_noise(&self, c: usize) -> bool {
        self.noise().is_some() && c + 1 == self.n_components()
    }

    /// Returns the label of a component in results: its number, or −1 of noise.
    pub fn label(&self, c: usize) -> i64 {
        if self.is_noise(c) { -1 } else { c as i64 }
    }

    /// Returns the Gaussians alone, with weights of sum 1; equal ones if the noise has all weight.
    pub fn without_noise(&self) -> Cow<'_, Self> {
        match self.noise() {
            None => Cow::Borrowed(self),
            Some(_) => Cow::Owned(self.first(self.n_gaussians())),
        }
    }

    /// Checks that a mixture has no noise.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn check_no_noise(&self, what: &str) -> Result<()> {
        match self.noise() {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported {
                what: format!("{what} of a mixture with noise"),
                backend: "this function",
                remedy: "take the Gaussians alone (`without_noise`)",
            }),
        }
    }
}
