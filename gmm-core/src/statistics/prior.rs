//! The conjugate prior of a mixture's parameters, for EM to the mode of the posterior (MAP).
use crate::error::{Error, Result};
use crate::model::covariance_model::CovarianceModel;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::{squared_length, trace_of_product};
use crate::model::mixture::{Mixture, check_symmetric};
use crate::reproducible::Functions;
use ndarray::{Array1, Array2, Axis};

/// The prior of a mixture's parameters: weights π ~ Dirichlet(α, …, α), covariances Σₖ ~ InverseWishart(Ψ, ν), and
/// means μₖ | Σₖ ~ N(mₖ, Σₖ/κ).
///
/// Covariances other than `full` have the inverse Wishart density of the matrices they stand for. For every type, the
/// mode of the posterior is the estimate from the samples joined by ν + D + 1 samples (one more if κ > 0) with the
/// scatter Ψ, by κ samples at mₖ, and by α − 1 counts of each component (Fraley and Raftery 2007, for `full`).
///
/// Components that share the whole covariance (EII, EEI, EEE) have one such prior. Those of EVI, VEI, EEV and VEV have
/// the scatter Ψ each, and as many samples as in mclust. EVE, VEE, VVE and EVV have no prior, as in mclust.
#[derive(Debug, Clone, PartialEq)]
pub struct ConjugatePrior {
    weight_concentration: f64,
    mean_precision: f64,
    means: Array2<f64>,
    /// The samples that Ψ stands for: ν + D + 1.
    samples: f64,
    covariance: Covariances,
}

impl ConjugatePrior {
    /// Builds a prior from α ≥ 1; κ ≥ 0; m (K, D), or (1, D) for all components; ν > −D − 1; and Ψ in the covariance
    /// type's shape for one component: (1, D, D), (D, D), (1, D) or (1,). It is a distribution if ν > D − 1. With
    /// ν = −D, κ = 0 and Ψ = w·I it is the floor w of extreme deconvolution (Bovy, Hogg and Roweis 2011).
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a number out of its range or not finite; [`Error::ShapeMismatch`],
    /// [`Error::NotSymmetric`].
    pub fn new(
        weight_concentration: f64,
        mean_precision: f64,
        means: Array2<f64>,
        degrees_of_freedom: f64,
        covariance: Covariances,
    ) -> Result<Self> {
        let samples = degrees_of_freedom + means.ncols() as f64 + 1.0;
        if !(samples.is_finite() && samples > 0.0) {
            let remedy = "it must exceed −D − 1";
            return Err(Error::BadParameter {
                name: "degrees_of_freedom",
                value: degrees_of_freedom.to_string(),
                remedy,
            });
        }
        Self { weight_concentration, mean_precision, means, samples, covariance }.checked()
    }

    /// Builds mclust's prior from κ, m (1, D), ν and Ψ (D, D): of ellipsoids as [`new`](Self::new); variances of spheres
    /// and along axes are inverse gamma with ν/2 and ψ/2, where ψ is the mean of Ψ's diagonal.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for inverse gamma any ν above 0 will do.
    pub fn of_mclust(
        model: CovarianceModel,
        mean_precision: f64,
        means: Array2<f64>,
        degrees_of_freedom: f64,
        covariance: Array2<f64>,
    ) -> Result<Self> {
        let d = means.ncols();
        let form = model.form();
        check_degrees_of_freedom(degrees_of_freedom, if form.has_matrices() { d } else { 1 })?;
        let matrices = covariance.insert_axis(Axis(0));
        let psi = Covariances::Full(matrices.clone());
        psi.check_shape("the prior's covariance", 1, d)?;
        let variance = (0..d).map(|j| psi.variance(0, j)).sum::<f64>() / d as f64;
        let d = d as f64;
        let (samples, covariance) = match form {
            CovarianceType::Full | CovarianceType::Tied => {
                (degrees_of_freedom + d + 1.0, Covariances::of_matrices(form, matrices))
            }
            CovarianceType::Diag => {
                (degrees_of_freedom + 2.0, Covariances::isotropic(form, 1, means.ncols(), variance))
            }
            CovarianceType::Spherical => {
                ((degrees_of_freedom + 2.0) / d, Covariances::isotropic(form, 1, means.ncols(), variance / d))
            }
        };
        Self { weight_concentration: 1.0, mean_precision, means, samples, covariance }.checked()
    }

    fn checked(self) -> Result<Self> {
        let d = self.means.ncols();
        check_numbers(self.weight_concentration, self.mean_precision)?;
        self.covariance.check_shape("the prior's covariance", 1, d)?;
        let bad = |value: f64, remedy| Err(Error::BadParameter { name: "prior", value: value.to_string(), remedy });
        if let Some(value) = self.means.iter().copied().chain(self.covariance.iter()).find(|v| !v.is_finite()) {
            return bad(value, "its mean and covariance must be finite");
        }
        if let Some(value) = (0..d).map(|j| self.covariance.variance(0, j)).find(|v| *v < 0.0) {
            return bad(value, "its variances must not be negative");
        }
        self.covariance.matrix(0).map_or(Ok(()), |matrix| check_symmetric(matrix, None))?;
        Ok(self)
    }

    /// Returns α − 1.
    pub(crate) fn pseudo_count(&self) -> f64 {
        self.weight_concentration - 1.0
    }

    /// Returns κ.
    pub fn mean_precision(&self) -> f64 {
        self.mean_precision
    }

    /// Returns mₖ.
    pub fn mean(&self, component: usize) -> ndarray::ArrayView1<'_, f64> {
        self.means.row(component.min(self.means.nrows() - 1))
    }

    /// Returns the number added to each component's count before it divides a scatter, or the sum of them a shared one.
    pub(crate) fn divisor(&self, model: CovarianceModel, n_components: usize) -> f64 {
        let (samples, d, k) = (self.samples, self.means.ncols() as f64, n_components as f64);
        let of_mean = if self.mean_precision > 0.0 { 1.0 } else { 0.0 };
        match model {
            CovarianceModel::EII | CovarianceModel::EEI | CovarianceModel::EEE => samples / k + of_mean,
            CovarianceModel::EVI => (samples - 1.0 + of_mean) / k,
            CovarianceModel::EEV => (samples + of_mean) / k,
            CovarianceModel::VEI => (samples + of_mean) / d,
            CovarianceModel::VEV => 0.0,
            _ => samples + of_mean,
        }
    }

    /// Returns the number of components that share a Ψ.
    fn sharing(model: CovarianceModel, n_components: usize) -> usize {
        let shared = matches!(model, CovarianceModel::EII | CovarianceModel::EEI | CovarianceModel::EEE);
        if shared { n_components } else { 1 }
    }

    /// Adds Ψ to the scatter of components, or to a tied scatter.
    pub(crate) fn add_scatter(&self, scatter: &mut Covariances, model: CovarianceModel, n_components: usize) {
        let d = self.means.ncols() as f64;
        let sharing = Self::sharing(model, n_components) as f64;
        match (scatter, &self.covariance) {
            (Covariances::Full(v), Covariances::Full(psi)) => *v += psi,
            // Beside noise each Gaussian has its own scatter.
            (Covariances::Full(v), Covariances::Tied(psi)) => *v += &(psi / sharing),
            (Covariances::Tied(v), Covariances::Tied(psi)) => *v += psi,
            (Covariances::Diag(v), Covariances::Diag(psi)) => *v += &(psi / sharing),
            (Covariances::Spherical(v), Covariances::Spherical(psi)) => *v += d * psi[0] / sharing,
            _ => unreachable!("`check` has compared the covariance types"),
        }
    }

    /// Checks that a model has a prior.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for EVE, VEE, VVE and EVV.
    pub fn check_model(model: CovarianceModel) -> Result<()> {
        match model {
            CovarianceModel::EVE | CovarianceModel::VEE | CovarianceModel::VVE | CovarianceModel::EVV => {
                let value = format!("given for {model}");
                Err(Error::BadParameter {
                    name: "prior",
                    value,
                    remedy: "EVE, VEE, VVE and EVV have none; take another model",
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks the prior against a mixture's shape and model.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`]; as [`check_model`](Self::check_model).
    pub fn check(&self, n_components: usize, n_features: usize, model: CovarianceModel) -> Result<()> {
        Self::check_model(model)?;
        let (rows, d) = self.means.dim();
        if d != n_features || rows != 1 && rows != n_components {
            let (what, expected) = ("the prior's means", vec![n_components, n_features]);
            return Err(Error::ShapeMismatch { what, expected, got: vec![rows, d] });
        }
        self.covariance.check_type("the prior's covariance", model.form(), 1, n_features)
    }

    /// Returns the logarithm of the prior's density at a mixture of the same shape, up to a constant. A weight of 0
    /// counts only if α > 1: the density is 0 there.
    pub fn log_density(&self, mixture: &Mixture) -> f64 {
        let (k, d) = (mixture.n_gaussians(), mixture.n_features());
        let alpha = self.pseudo_count();
        let of_weights: f64 = if alpha > 0.0 { mixture.weights().iter().map(|w| alpha * w.log_e()).sum() } else { 0.0 };
        let model = mixture.covariance_model();
        let sharing = Self::sharing(model, k);
        let of_mean = if self.mean_precision > 0.0 { 1.0 } else { 0.0 };
        let samples = sharing as f64 * (self.divisor(model, k) - of_mean);
        let mut twice = 0.0;
        for c in 0..k {
            let factor = mixture.factor_of(c);
            let log_det = mixture.log_det(c);
            if c % sharing == 0 {
                let trace = match (factor, self.covariance.matrix(0)) {
                    (Some(u), Some(psi)) => trace_of_product(psi, u),
                    _ => (0..d).map(|j| self.covariance.variance(0, j) / mixture.variance(c, j)).sum(),
                };
                twice += samples * log_det + trace;
            }
            if self.mean_precision > 0.0 {
                let delta: Array1<f64> = &mixture.means().row(c) - &self.mean(c);
                let length = match factor {
                    Some(u) => squared_length(u, &delta.to_vec()),
                    None => (0..d).map(|j| delta[j] * delta[j] / mixture.variance(c, j)).sum(),
                };
                twice += log_det + self.mean_precision * length;
            }
        }
        of_weights - 0.5 * twice
    }
}

/// Checks α and κ.
pub fn check_numbers(weight_concentration: f64, mean_precision: f64) -> Result<()> {
    let bad = |value: f64, remedy| Err(Error::BadParameter { name: "prior", value: value.to_string(), remedy });
    if !(weight_concentration >= 1.0 && weight_concentration.is_finite()) {
        return bad(weight_concentration, "its weight_concentration must be at least 1, and finite");
    }
    if !(mean_precision >= 0.0 && mean_precision.is_finite()) {
        return bad(mean_precision, "its mean_precision must be zero or positive, and finite");
    }
    Ok(())
}

/// Checks ν.
pub fn check_degrees_of_freedom(value: f64, n_features: usize) -> Result<()> {
    if value > n_features as f64 - 1.0 && value.is_finite() {
        return Ok(());
    }
    let remedy = "its degrees_of_freedom must be above the number of features less one, and finite";
    Err(Error::BadParameter { name: "prior", value: value.to_string(), remedy })
}
