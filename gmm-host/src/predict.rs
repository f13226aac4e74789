//! What a mixture says about samples, in one call.
use crate::adapt::Adaptation;
use crate::device::Device;
use crate::error::Result;
use crate::fit::Criterion;
use crate::gradient::{Gradient, gradient};
use crate::model::mixture::Mixture;
use crate::score_function::score_function;
use crate::source::DataSource;
use crate::variational::mixture::VariationalMixture;
use ndarray::{Array1, Array2};

/// A mixture together with the device that it is to be evaluated on, made by [`Mixture::on`].
#[derive(Debug, Clone, Copy)]
pub struct MixtureOn<'a> {
    mixture: &'a Mixture,
    device: Device,
}

/// # Evaluation
///
/// Each of these methods takes a [`DataSource`]: an array (N, D), samples, or an evaluator. Arrays
/// and samples are evaluated on the device [`Auto`](Device::Auto), or on another one as
/// [`on`](Mixture::on) says.
///
/// ```
/// use gmm_host::{Covariances, Device, Mixture};
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
/// All of them report what is wrong with the samples,
/// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch) where the samples have another D than the
/// mixture, and what the device reports.
impl Mixture {
    /// The same mixture, with the device on which its methods evaluate arrays and samples. An
    /// evaluator keeps to its own device.
    pub fn on(&self, device: Device) -> MixtureOn<'_> {
        MixtureOn { mixture: self, device }
    }

    /// The most probable component of each sample (N,), the first of equals.
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn predict(&self, data: impl DataSource) -> Result<Vec<usize>> {
        self.on(Device::Auto).predict(data)
    }

    /// The responsibilities p(k | xᵢ) (N, K), as
    /// [`Evaluator::predict_proba`](crate::Evaluator::predict_proba) gives them.
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn predict_proba(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.on(Device::Auto).predict_proba(data)
    }

    /// The log-likelihood of each sample (N,).
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn score_samples(&self, data: impl DataSource) -> Result<Array1<f64>> {
        self.on(Device::Auto).score_samples(data)
    }

    /// The score function ∇ₓ log p(xᵢ) (N, D): in which direction, and how steeply, the log-density
    /// rises at each sample. It is −Σₖ p(k | xᵢ) Σₖ⁻¹ (xᵢ − μₖ), with the responsibilities of the
    /// device and the rest on the host in float64. With [missing
    /// values](crate::Samples::with_missing) it is that of what is observed, and 0 for what is
    /// missing.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let mixture = Mixture::new(array![1.0], array![[1.0, 0.0]], Covariances::Diag(array![[4.0, 1.0]]))?;
    /// assert_eq!(mixture.score_function(&array![[3.0, -1.0]])?, array![[-0.5, 1.0]]);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`predict_proba`](Self::predict_proba).
    pub fn score_function(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.on(Device::Auto).score_function(data)
    }

    /// The total log-likelihood and its derivatives by weights, means and covariances, by one E-step. A
    /// component of weight 0 has one by its weight too.
    ///
    /// ```
    /// use gmm_host::{Covariances, Mixture};
    /// use ndarray::array;
    ///
    /// let covariances = Covariances::Spherical(array![1.0, 1.0]);
    /// let mixture = Mixture::new(array![1.0, 0.0], array![[0.0], [2.0]], covariances)?;
    /// let gradient = mixture.gradient(&array![[1.0], [1.0]])?;
    /// assert_eq!(gradient.means, array![[2.0], [0.0]]);
    /// assert!((gradient.weights - array![2.0, 2.0]).iter().all(|v| v.abs() < 1e-12));
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn gradient(&self, data: impl DataSource) -> Result<Gradient> {
        self.on(Device::Auto).gradient(data)
    }

    /// The mean log-likelihood of a sample (by weight, where samples have weights): scikit-learn's
    /// `score`.
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn score(&self, data: impl DataSource) -> Result<f64> {
        self.on(Device::Auto).score(data)
    }

    /// The Bayesian information criterion over the samples; the lower the better.
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn bic(&self, data: impl DataSource) -> Result<f64> {
        self.on(Device::Auto).bic(data)
    }

    /// The Akaike information criterion over the samples; the lower the better.
    ///
    /// # Errors
    /// As [above](Mixture#evaluation).
    pub fn aic(&self, data: impl DataSource) -> Result<f64> {
        self.on(Device::Auto).aic(data)
    }
}

/// # Adaptation
impl Mixture {
    /// The mixture adapted to samples; [`Adaptation`] says how.
    ///
    /// ```
    /// use gmm_host::{Adaptation, Covariances, Mixture};
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
    /// As [above](Mixture#evaluation), and as [`Adaptation::apply`].
    pub fn adapt(&self, data: impl DataSource, adaptation: &Adaptation) -> Result<Mixture> {
        self.on(Device::Auto).adapt(data, adaptation)
    }
}

impl MixtureOn<'_> {
    /// As [`Mixture::adapt`].
    ///
    /// # Errors
    /// As [`Mixture::adapt`].
    pub fn adapt(self, data: impl DataSource, adaptation: &Adaptation) -> Result<Mixture> {
        data.evaluate(self.device, |evaluator| adaptation.apply(self.mixture, &evaluator.statistics(self.mixture)?))
    }

    /// As [`Mixture::predict`].
    ///
    /// # Errors
    /// As [`Mixture::predict`].
    pub fn predict(self, data: impl DataSource) -> Result<Vec<usize>> {
        data.evaluate(self.device, |evaluator| evaluator.predict(self.mixture))
    }

    /// As [`Mixture::predict_proba`].
    ///
    /// # Errors
    /// As [`Mixture::predict_proba`].
    pub fn predict_proba(self, data: impl DataSource) -> Result<Array2<f64>> {
        data.evaluate(self.device, |evaluator| evaluator.predict_proba(self.mixture))
    }

    /// As [`Mixture::score_samples`].
    ///
    /// # Errors
    /// As [`Mixture::score_samples`].
    pub fn score_samples(self, data: impl DataSource) -> Result<Array1<f64>> {
        data.evaluate(self.device, |evaluator| evaluator.score_samples(self.mixture))
    }

    /// As [`Mixture::score_function`].
    ///
    /// # Errors
    /// As [`Mixture::score_function`].
    pub fn score_function(self, data: impl DataSource) -> Result<Array2<f64>> {
        data.evaluate(self.device, |evaluator| score_function(evaluator, self.mixture))
    }

    /// As [`Mixture::gradient`].
    ///
    /// # Errors
    /// As [`Mixture::gradient`].
    pub fn gradient(self, data: impl DataSource) -> Result<Gradient> {
        data.evaluate(self.device, |evaluator| gradient(evaluator, self.mixture))
    }

    /// As [`Mixture::score`].
    ///
    /// # Errors
    /// As [`Mixture::score`].
    pub fn score(self, data: impl DataSource) -> Result<f64> {
        data.evaluate(self.device, |evaluator| Ok(evaluator.log_likelihood(self.mixture)? / evaluator.total_weight()))
    }

    /// As [`Mixture::bic`].
    ///
    /// # Errors
    /// As [`Mixture::bic`].
    pub fn bic(self, data: impl DataSource) -> Result<f64> {
        self.criterion(Criterion::Bic, data)
    }

    /// As [`Mixture::aic`].
    ///
    /// # Errors
    /// As [`Mixture::aic`].
    pub fn aic(self, data: impl DataSource) -> Result<f64> {
        self.criterion(Criterion::Aic, data)
    }

    fn criterion(self, criterion: Criterion, data: impl DataSource) -> Result<f64> {
        let mixture = self.mixture;
        data.evaluate(self.device, |evaluator| {
            let log_likelihood = evaluator.log_likelihood(mixture)?;
            Ok(criterion.value(log_likelihood, mixture.n_parameters(), evaluator.total_weight(), mixture.n_features()))
        })
    }
}

/// # Evaluation
///
/// Each of these methods takes a [`DataSource`], which is evaluated on the device
/// [`Auto`](Device::Auto); for another one, [`density`](Self::density) has [`Mixture::on`]. The
/// errors are those of [`Mixture`].
impl VariationalMixture {
    /// The most probable component of each sample (N,), the first of equals.
    ///
    /// # Errors
    /// As [`Mixture::predict`].
    pub fn predict(&self, data: impl DataSource) -> Result<Vec<usize>> {
        self.density().predict(data)
    }

    /// The responsibilities p(k | xᵢ) (N, K).
    ///
    /// # Errors
    /// As [`Mixture::predict_proba`].
    pub fn predict_proba(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.density().predict_proba(data)
    }

    /// The log-density of each sample (N,) in the sense of [`density`](Self::density).
    ///
    /// # Errors
    /// As [`Mixture::score_samples`].
    pub fn score_samples(&self, data: impl DataSource) -> Result<Array1<f64>> {
        Ok(self.density().score_samples(data)? + self.log_total())
    }

    /// The score function ∇ₓ log p(xᵢ) (N, D) of that density.
    ///
    /// # Errors
    /// As [`Mixture::score_function`].
    pub fn score_function(&self, data: impl DataSource) -> Result<Array2<f64>> {
        self.density().score_function(data)
    }

    /// The mean of [`score_samples`](Self::score_samples), by weight.
    ///
    /// # Errors
    /// As [`Mixture::score`].
    pub fn score(&self, data: impl DataSource) -> Result<f64> {
        Ok(self.density().score(data)? + self.log_total())
    }
}
