//! Predictions of a mixture for samples, in one call.
use crate::device::names::Device;
use crate::fit::Criterion;
use crate::source::DataSource;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;
use gmm_core::operations::adapt::Adaptation;
use gmm_core::operations::gradient::{Gradient, gradient};
use gmm_core::operations::score_function::score_function;
use gmm_core::variational::mixture::VariationalMixture;
use ndarray::{Array1, Array2};

/// A density and the device on which [`Predict`] evaluates arrays and samples.
#[derive(Debug, Clone, Copy)]
pub struct MixtureOn<'a> {
    mixture: &'a Mixture,
    device: Device,
    /// The logarithm of the density's integral.
    log_total: f64,
}

/// Predictions of a mixture for samples. Each method takes a [`DataSource`]: an array (N, D), samples, or an evaluator.
/// Arrays and samples are evaluated on the device [`Auto`](Device::Auto), or on the one given to [`on`](Self::on); an
/// evaluator keeps its own device.
///
/// ```
/// use gmm_host::{Covariances, Device, Mixture, Predict};
/// use ndarray::array;
///
/// let mixture = Mixture::new(
///     array![0.5, 0.5],
///     array![[0.0, 0.0], [5.0, 5.0]],
///     Covariances::Spherical(array![1.0, 1.0]),
/// )?;
/// let x = array![[0.1f32, -0.2], [4.8, 5.1], [5.3, 4.9]];
/// assert_eq!(mixture.predict(&x)?, [0, 1, 1]);
/// assert!(mixture.predict_proba(&x)?[[0, 0]] > 0.99);
/// let scores = mixture.score_samples(x.view())?;
/// assert!((mixture.score(&x)? - scores.mean().unwrap()).abs() < 1e-5);
/// assert_eq!(mixture.on(Device::Cpu).predict(&x)?, [0, 1, 1]);
/// # Ok::<(), gmm_host::Error>(())
/// ```
///
/// # Errors
/// Errors of the samples; [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) if their D is not the mixture's; errors
/// of the device.
pub trait Predict {
    /// Returns the same density, evaluated on `device`.
    fn on(&self, device: Device) -> MixtureOn<'_>;

    /// Returns the most probable component of each sample (N,), the first of equal ones.
    fn predict(&self, data: impl DataSource) -> Result<Vec<usize>> {
        self.on_its_device().evaluate(data, |evaluator, mixture| evaluator.predict(mixture))
    }

    /// Returns the responsibilities p(k | xᵢ) (N, K), as [`Evaluator::predict_proba`](crate::Evaluator::predict_proba)
    /// does.
    fn predict_proba(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.on_its_device().evaluate(data, |evaluator, mixture| evaluator.predict_proba(mixture))
    }

    /// Returns the log-density of each sample (N,).
    fn score_samples(&self, data: impl DataSource) -> Result<Array1<f64>> {
        let on = self.on_its_device();
        Ok(on.evaluate(data, |evaluator, mixture| evaluator.score_samples(mixture))? + on.log_total)
    }

    /// Returns the score function ∇ₓ log p(xᵢ) (N, D), the gradient of the log-density at each sample: −Σₖ p(k | xᵢ)
    /// Σₖ⁻¹ (xᵢ − μₖ). The device computes the responsibilities, the host the rest in float64. With [missing
    /// values](crate::Samples::with_missing) it is that of the observed values, and 0 for the missing ones.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Predict};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0, 0.0]], Covariances::Diag(array![[4.0, 1.0]]))?;
    /// assert_eq!(mixture.score_function(&array![[3.0, -1.0]])?, array![[-0.5, 1.0]]);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    fn score_function(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.on_its_device().evaluate(data, score_function)
    }

    /// Returns the total log-likelihood and its derivatives by weights, means and covariances, from one E-step. A
    /// component of weight 0 has a derivative by its weight too.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture, Predict};
    /// use ndarray::array;
    ///
    /// let covariances = Covariances::Spherical(array![1.0, 1.0]);
    /// let mixture = Mixture::new(array![1.0, 0.0], array![[0.0], [2.0]], covariances)?;
    /// let gradient = mixture.gradient(&array![[1.0], [1.0]])?;
    /// assert_eq!(gradient.means, array![[2.0], [0.0]]);
    /// assert!((gradient.weights - array![2.0, 2.0]).iter().all(|v| v.abs() < 1e-12));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    fn gradient(&self, data: impl DataSource) -> Result<Gradient> {
        self.on_its_device().evaluate(data, gradient)
    }

    /// Returns the weighted mean of [`score_samples`](Self::score_samples): scikit-learn's `score`.
    fn score(&self, data: impl DataSource) -> Result<f64> {
        let on = self.on_its_device();
        let mean = |evaluator: &mut dyn Evaluator, mixture: &Mixture| {
            Ok(evaluator.log_likelihood(mixture)? / evaluator.total_weight())
        };
        Ok(on.evaluate(data, mean)? + on.log_total)
    }

    /// Returns the Bayesian information criterion over the samples; lower is better.
    fn bic(&self, data: impl DataSource) -> Result<f64> {
        self.on_its_device().criterion(Criterion::Bic, data)
    }

    /// Returns the Akaike information criterion over the samples; lower is better.
    fn aic(&self, data: impl DataSource) -> Result<f64> {
        self.on_its_device().criterion(Criterion::Aic, data)
    }

    /// Returns the mixture adapted to samples, as [`Adaptation`] describes.
    ///
    /// ```
    /// use gmm_host::{Adaptation, Covariances, Mixture, Predict};
    /// use ndarray::array;
    ///
    /// let background = Mixture::new(array![1.0], array![[0.0]], Covariances::Spherical(array![1.0]))?;
    /// let adaptation = Adaptation { relevance: 4.0, ..Adaptation::default() };
    /// let adapted = background.adapt(&array![[3.0], [3.0]], &adaptation)?;
    /// assert!((adapted.supervector()[0] - 1.0).abs() < 1e-12);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// Also as [`Adaptation::apply`].
    fn adapt(&self, data: impl DataSource, adaptation: &Adaptation) -> Result<Mixture> {
        self.on_its_device()
            .evaluate(data, |evaluator, mixture| adaptation.apply(mixture, &evaluator.statistics(mixture)?))
    }

    /// Returns the same density on the device chosen for it, or on [`Auto`](Device::Auto).
    fn on_its_device(&self) -> MixtureOn<'_> {
        self.on(Device::Auto)
    }
}

impl Predict for Mixture {
    fn on(&self, device: Device) -> MixtureOn<'_> {
        MixtureOn { mixture: self, device, log_total: 0.0 }
    }
}

/// Predicts with the posterior's [`density`](VariationalMixture::density).
impl Predict for VariationalMixture {
    fn on(&self, device: Device) -> MixtureOn<'_> {
        MixtureOn { mixture: self.density(), device, log_total: self.log_total() }
    }
}

impl Predict for MixtureOn<'_> {
    fn on(&self, device: Device) -> MixtureOn<'_> {
        MixtureOn { device, ..*self }
    }

    fn on_its_device(&self) -> MixtureOn<'_> {
        *self
    }
}

impl MixtureOn<'_> {
    fn evaluate<T>(
        self,
        data: impl DataSource,
        work: impl FnOnce(&mut dyn Evaluator, &Mixture) -> Result<T>,
    ) -> Result<T> {
        data.evaluate(self.device, |evaluator| work(evaluator, self.mixture))
    }

    fn criterion(self, criterion: Criterion, data: impl DataSource) -> Result<f64> {
        self.evaluate(data, |evaluator, mixture| {
            let total_weight = evaluator.total_weight();
            let log_likelihood = evaluator.log_likelihood(mixture)? + self.log_total * total_weight;
            Ok(criterion.value(log_likelihood, mixture.n_parameters(), total_weight, mixture.n_features()))
        })
    }
}
