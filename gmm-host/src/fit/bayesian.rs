//! Variational inference: the parameters of a fit, and the fit.
use super::iterate::{self, Iterated, Method};
use super::moments::{covariance_of, moments};
use super::outcome::{Callback, Fit};
use super::params::{GaussianMixtureValidParams, InitParams, Start};
use super::standard::Standardization;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::freeze::Freeze;
use crate::model::covariances::{CovarianceType, Covariances};
use crate::model::linalg::on_pool_thread;
use crate::model::mixture::Mixture;
use crate::source::DataSource;
use crate::statistics::Statistics;
use crate::variational::mixture::VariationalMixture;
use crate::variational::prior::{
    VariationalPrior, WeightConcentrationPriorType, check_degrees_of_freedom, check_positive,
};
use ndarray::{Array1, Array2};
use std::ops::ControlFlow;

/// The parameters of a fit by variational inference, with the names and defaults of scikit-learn's
/// `BayesianGaussianMixture`.
///
/// What a fit has in common with EM is that of [`GaussianMixtureParams`](super::params::GaussianMixtureParams): starts, runs, callbacks.
/// The fit finds a [`VariationalMixture`]: the posterior of the parameters, of which components that
/// the samples do not need have hardly any weight.
///
/// ```
/// use gmm_host::BayesianGaussianMixtureParams;
/// use ndarray::Array2;
///
/// let x = Array2::from_shape_fn((200, 1), |(i, _)| (i as f64 * 0.7).sin() + 20.0 * (i % 2) as f64);
/// let fit = BayesianGaussianMixtureParams::new(5).max_iter(500).fit(&x)?;
/// let alive = fit.mixture.weights().iter().filter(|w| **w > 0.01).count();
/// assert!(fit.converged && alive < 5);
/// # Ok::<(), gmm_host::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BayesianGaussianMixtureParams(BayesianGaussianMixtureValidParams);

/// Parameters of a fit that [`BayesianGaussianMixtureParams::check`] has checked.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(remote = "Self", default))]
pub struct BayesianGaussianMixtureValidParams {
    /// What EM has too; without its start and initial parameters.
    settings: GaussianMixtureValidParams,
    weight_concentration_prior_type: WeightConcentrationPriorType,
    weight_concentration_prior: Option<f64>,
    mean_precision_prior: Option<f64>,
    mean_prior: Option<Array1<f64>>,
    degrees_of_freedom_prior: Option<f64>,
    covariance_prior: Option<Covariances>,
    start: Option<BayesianStart>,
}

/// Where a fit begins instead of at what `init_params` finds.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum BayesianStart {
    At(Start<VariationalMixture>),
    /// At the M-step of these statistics.
    #[cfg_attr(feature = "serde", serde(skip))]
    Statistics(Box<Statistics>),
}

/// Setters of `GaussianMixtureParams`, for the parameters that both kinds of fits have.
macro_rules! settings {
    ($($name:ident: $type:ty),* $(,)?) => {
        impl BayesianGaussianMixtureParams {
            $(
                #[doc = concat!("As [`GaussianMixtureParams::", stringify!($name), "`](super::params::GaussianMixtureParams::", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $type) -> Self {
                    self.0.settings.$name = $name;
                    self
                }
            )*
        }
    };
}

settings! {
    n_components: usize,
    covariance_type: CovarianceType,
    reg_covar: f64,
    max_iter: usize,
    n_init: usize,
    halving: bool,
    init_params: InitParams,
    random_state: u64,
    device: Device,
}

impl BayesianGaussianMixtureParams {
    /// The default parameters for at most K components.
    pub fn new(n_components: usize) -> Self {
        Self::default().n_components(n_components)
    }

    /// A fit has converged when an iteration changes the lower bound by less than this; default
    /// 1e-3. As in scikit-learn the bound is that of all samples, not of one in the mean.
    #[must_use]
    pub fn tol(mut self, tol: f64) -> Self {
        self.0.settings.tol = tol;
        self
    }

    /// Default [`WeightConcentrationPriorType::DirichletProcess`].
    #[must_use]
    pub fn weight_concentration_prior_type(mut self, kind: WeightConcentrationPriorType) -> Self {
        self.0.weight_concentration_prior_type = kind;
        self
    }

    /// γ, above 0: the smaller, the fewer components have weight; default 1/K.
    #[must_use]
    pub fn weight_concentration_prior(mut self, weight_concentration: f64) -> Self {
        self.0.weight_concentration_prior = Some(weight_concentration);
        self
    }

    /// β₀, above 0: the larger, the nearer are the means to `mean_prior`; default 1.
    #[must_use]
    pub fn mean_precision_prior(mut self, mean_precision: f64) -> Self {
        self.0.mean_precision_prior = Some(mean_precision);
        self
    }

    /// m₀ (D,); default the mean of the samples.
    #[must_use]
    pub fn mean_prior(mut self, mean: Array1<f64>) -> Self {
        self.0.mean_prior = Some(mean);
        self
    }

    /// ν₀, above D − 1; default D.
    #[must_use]
    pub fn degrees_of_freedom_prior(mut self, degrees_of_freedom: f64) -> Self {
        self.0.degrees_of_freedom_prior = Some(degrees_of_freedom);
        self
    }

    /// W₀⁻¹ in the covariance type's shape for one component: (1, D, D), (D, D), (1, D) or (1,); default
    /// the covariance of the samples (divisor N − 1), its diagonal, or the mean of that.
    #[must_use]
    pub fn covariance_prior(mut self, covariance: Covariances) -> Self {
        self.0.covariance_prior = Some(covariance);
        self
    }

    /// Parts of the posterior that stay as the start has them: the distribution of the weights, that
    /// of the means given the precisions (m and β), that of the precisions (W and ν). The lower bound
    /// never falls with them either.
    #[must_use]
    pub fn freeze(mut self, freeze: Freeze) -> Self {
        self.0.settings.freeze = freeze;
        self
    }

    /// Has the priors that are given, which are in the units of x, in the standardised units of a fit
    /// to z. What is not given of the prior follows from z.
    ///
    /// # Errors
    /// [`Error::ShapeMismatch`] for another D; [`Error::WrongCovarianceType`] where a `spherical`
    /// prior covariance is none in standardised units.
    pub fn standardized(mut self, standard: &Standardization) -> Result<Self> {
        if let Some(mean) = &mut self.0.mean_prior {
            *mean = standard.standardized_mean("mean_prior", mean)?;
        }
        if let Some(covariance) = &mut self.0.covariance_prior {
            let what = "covariance_prior, in standardised units,";
            *covariance = standard.standardized_covariances(what, covariance, 1, self.0.settings.covariance_type)?;
        }
        Ok(self)
    }

    /// Starts at a posterior, of the same K and covariance type; `n_init` is then ignored. The prior
    /// is that of these parameters.
    #[must_use]
    pub fn start(mut self, mixture: VariationalMixture) -> Self {
        self.0.start = Some(BayesianStart::At(Start::At(Box::new(mixture), None)));
        self
    }

    /// Starts at the posterior of these statistics, for example of the clusters that another method
    /// has found; `n_init` is then ignored.
    #[must_use]
    pub fn start_statistics(mut self, statistics: Statistics) -> Self {
        self.0.start = Some(BayesianStart::Statistics(Box::new(statistics)));
        self
    }

    /// As [`GaussianMixtureParams::warm_start`](super::params::GaussianMixtureParams::warm_start).
    #[must_use]
    pub fn warm_start(mut self, fit: &Fit<VariationalMixture>) -> Self {
        let start = Start::At(Box::new(fit.mixture.clone()), fit.lower_bounds.last().copied());
        self.0.start = Some(BayesianStart::At(start));
        self
    }

    /// As [`GaussianMixtureParams::resume`](super::params::GaussianMixtureParams::resume).
    #[must_use]
    pub fn resume(mut self, present: Fit<VariationalMixture>, best: Option<Fit<VariationalMixture>>) -> Self {
        self.0.start = Some(BayesianStart::At(Start::Resume(Box::new((present, best)))));
        self
    }

    /// Checks everything that does not need the data.
    ///
    /// # Errors
    /// [`Error::BadParameter`]; [`Error::ShapeMismatch`], [`Error::WrongCovarianceType`] and errors
    /// about components for the priors and the start.
    pub fn check(self) -> Result<BayesianGaussianMixtureValidParams> {
        self.checked()?;
        Ok(self.0)
    }

    /// As [`check`](Self::check), by reference.
    pub(crate) fn checked(&self) -> Result<&BayesianGaussianMixtureValidParams> {
        let params = &self.0;
        params.settings.check_numbers()?;
        params.settings.freeze.check_whole()?;
        if let Some(value) = params.weight_concentration_prior {
            check_positive("weight_concentration_prior", value)?;
        }
        if let Some(value) = params.mean_precision_prior {
            check_positive("mean_precision_prior", value)?;
        }
        params.check_covariance_prior()?;
        params.check_start()?;
        Ok(params)
    }

    /// Checks the parameters and fits to an array (N, D), to [`Samples`](crate::Samples), or to the
    /// samples of an [`Evaluator`].
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`BayesianGaussianMixtureValidParams::fit`].
    pub fn fit(&self, data: impl DataSource) -> Result<Fit<VariationalMixture>> {
        self.checked()?.fit(data)
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit<VariationalMixture>, Vec<usize>)> {
        self.checked()?.fit_predict(data)
    }
}

impl BayesianGaussianMixtureValidParams {
    /// Fits to an array (N, D), to [`Samples`](crate::Samples), or to the samples of an
    /// [`Evaluator`].
    ///
    /// # Errors
    /// What the data source reports; [`Error::TooFewSamples`] (N < K); [`Error::ShapeMismatch`] and
    /// [`Error::BadParameter`] where priors or the start do not fit to the data's D;
    /// [`Error::UnobservedColumn`] where all values of a column are missing; a component error where
    /// a covariance is not usable (a constant column, by whose variance a covariance prior that is
    /// not given is singular); what the backend reports.
    pub fn fit(&self, data: impl DataSource) -> Result<Fit<VariationalMixture>> {
        data.evaluate(self.settings.device, |evaluator| self.fit_with(evaluator, &mut |_| ControlFlow::Continue(())))
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit<VariationalMixture>, Vec<usize>)> {
        data.evaluate(self.settings.device, |evaluator| {
            let fit = self.fit_with(evaluator, &mut |_| ControlFlow::Continue(()))?;
            let labels = evaluator.predict(fit.mixture.density())?;
            Ok((fit, labels))
        })
    }

    /// Fits to the evaluator's samples, and calls `callback` after each iteration. When the
    /// callback breaks, the fit ends with the best of the runs so far, including the one that was
    /// broken off.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(
        &self,
        evaluator: &mut dyn Evaluator,
        callback: Callback<'_, VariationalMixture>,
    ) -> Result<Fit<VariationalMixture>> {
        let prior = self.prior(evaluator)?;
        let made;
        let start = match &self.start {
            None => None,
            Some(BayesianStart::At(start)) => Some(start),
            Some(BayesianStart::Statistics(statistics)) => {
                let mixture = VariationalMixture::from_statistics(&prior, statistics, self.settings.reg_covar)?;
                made = Start::At(Box::new(mixture), None);
                Some(&made)
            }
        };
        iterate::fit(&Variational { settings: &self.settings, prior, start }, evaluator, callback)
    }

    /// The parameters, so that some of them can be changed and all be checked again.
    pub fn into_params(self) -> BayesianGaussianMixtureParams {
        BayesianGaussianMixtureParams(self)
    }

    /// The parameters that fits of all kinds have.
    pub(super) fn settings(&self) -> &GaussianMixtureValidParams {
        &self.settings
    }

    /// K.
    pub fn n_components(&self) -> usize {
        self.settings.n_components()
    }

    /// The covariance type.
    pub fn covariance_type(&self) -> CovarianceType {
        self.settings.covariance_type()
    }

    /// Most iterations of one run.
    pub fn max_iter(&self) -> usize {
        self.settings.max_iter()
    }

    fn check_covariance_prior(&self) -> Result<()> {
        let Some(covariance) = &self.covariance_prior else { return Ok(()) };
        let d = match covariance {
            Covariances::Spherical(_) => 1,
            matrix => matrix.shape().last().copied().unwrap_or(1),
        };
        covariance.check_type("covariance_prior", self.covariance_type(), 1, d)?;
        Mixture::new(Array1::ones(1), Array2::zeros((1, d)), covariance.clone()).map(drop)
    }

    /// A given start against K and the covariance type.
    fn check_start(&self) -> Result<()> {
        let (k, kind) = (self.n_components(), self.covariance_type());
        let check = |means: &[usize], got: CovarianceType| {
            if means[0] != k {
                let expected = vec![k, means[1]];
                return Err(Error::ShapeMismatch { what: "the start's means", expected, got: means.to_vec() });
            }
            if got != kind {
                let what = "the start's covariances";
                return Err(Error::WrongCovarianceType { what, expected: kind.name(), got: got.name() });
            }
            Ok(())
        };
        match &self.start {
            None => Ok(()),
            Some(BayesianStart::Statistics(statistics)) => {
                check(statistics.means().shape(), statistics.covariance_type())
            }
            Some(BayesianStart::At(start)) => {
                self.settings.check_resumed(Some(start))?;
                start.mixtures().try_for_each(|mixture| check(mixture.means().shape(), mixture.covariance_type()))
            }
        }
    }

    /// The prior; what is not given of it is as in scikit-learn.
    fn prior(&self, evaluator: &mut dyn Evaluator) -> Result<VariationalPrior> {
        let (d, kind) = (evaluator.n_features(), self.covariance_type());
        let nu = self.degrees_of_freedom_prior.unwrap_or(d as f64);
        check_degrees_of_freedom(nu, d)?;
        let (mean, covariance) = match (&self.mean_prior, &self.covariance_prior) {
            (Some(mean), Some(covariance)) => (mean.clone(), covariance.clone()),
            (mean, covariance) => {
                let moments = moments(evaluator, kind)?;
                let mean = mean.clone().unwrap_or_else(|| moments.means().row(0).to_owned());
                (mean, covariance.clone().unwrap_or_else(|| covariance_of(&moments, kind)))
            }
        };
        let gamma = self.weight_concentration_prior.unwrap_or(1.0 / self.n_components() as f64);
        let beta = self.mean_precision_prior.unwrap_or(1.0);
        let of_data = |what, expected, got: &[usize]| Error::ShapeMismatch { what, expected, got: got.to_vec() };
        if mean.len() != d {
            return Err(of_data("mean_prior (against the data's columns)", vec![d], mean.shape()));
        }
        let shape = kind.shape(1, d);
        if covariance.shape() != shape {
            return Err(of_data("covariance_prior (against the data's columns)", shape, covariance.shape()));
        }
        VariationalPrior::new(self.weight_concentration_prior_type, gamma, beta, mean, nu, covariance)
    }
}

/// A fit whose prior is known.
struct Variational<'a> {
    settings: &'a GaussianMixtureValidParams,
    prior: VariationalPrior,
    start: Option<&'a Start<VariationalMixture>>,
}

impl Method for Variational<'_> {
    type Model = VariationalMixture;

    fn settings(&self) -> &GaussianMixtureValidParams {
        self.settings
    }

    fn start(&self) -> Option<&Start<VariationalMixture>> {
        self.start
    }

    fn check(&self, evaluator: &dyn Evaluator) -> Result<()> {
        let (k, d) = (self.settings.n_components(), evaluator.n_features());
        for start in self.start.iter().flat_map(|start| start.mixtures()) {
            if start.n_features() != d {
                let what = "the start's means (against the data's columns)";
                return Err(Error::ShapeMismatch { what, expected: vec![k, d], got: start.means().shape().to_vec() });
            }
        }
        Ok(())
    }

    fn initialise(&self, evaluator: &mut dyn Evaluator, run: usize) -> Result<VariationalMixture> {
        let weight = evaluator.total_weight();
        let statistics = self.settings.find(evaluator, run)?.into_statistics(weight);
        VariationalMixture::from_statistics(&self.prior, &statistics, self.settings.reg_covar)
    }

    fn iterate(
        &self,
        evaluator: &mut dyn Evaluator,
        before: &VariationalMixture,
    ) -> Result<Iterated<VariationalMixture>> {
        let (reg_covar, freeze) = (self.settings.reg_covar, &self.settings.freeze);
        let statistics = evaluator.statistics(before.density())?;
        let (mixture, lower_bound) = on_pool_thread(before.density().n_numbers(), || -> Result<_> {
            let from = Some((before, freeze));
            if *freeze == Freeze::default() {
                let entropy = before.entropy(&statistics);
                let mixture = VariationalMixture::m_step(&self.prior, statistics, reg_covar, from)?;
                let lower_bound = mixture.lower_bound(entropy);
                return Ok((mixture, lower_bound));
            }
            let mixture = VariationalMixture::m_step(&self.prior, statistics.clone(), reg_covar, from)?;
            let lower_bound = mixture.lower_bound_of(before, &statistics, reg_covar)?;
            Ok((mixture, lower_bound))
        })?;
        Ok(Iterated { mixture, lower_bound, retained: Vec::new() })
    }
}

#[cfg(feature = "serde")]
mod serialisation {
    use super::{BayesianGaussianMixtureParams, BayesianGaussianMixtureValidParams};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    impl Serialize for BayesianGaussianMixtureValidParams {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            // The derived function of this name, which takes the place of a trait's method.
            BayesianGaussianMixtureValidParams::serialize(self, serializer)
        }
    }

    impl Serialize for BayesianGaussianMixtureParams {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            BayesianGaussianMixtureValidParams::serialize(&self.0, serializer)
        }
    }

    impl<'de> Deserialize<'de> for BayesianGaussianMixtureParams {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            BayesianGaussianMixtureValidParams::deserialize(deserializer).map(Self)
        }
    }

    impl<'de> Deserialize<'de> for BayesianGaussianMixtureValidParams {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            BayesianGaussianMixtureParams::deserialize(deserializer)?.check().map_err(D::Error::custom)
        }
    }
}
