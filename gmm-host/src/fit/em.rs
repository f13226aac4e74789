//! Expectation-maximisation.
use super::extent::with_noise;
use super::fitting::steps::{Iterated, Steps};
use super::fitting::{Checked, FitOptions, Fitting};
use super::init::find;
use super::map_prior::MapPrior;
use super::moments::{covariance_of, moments};
use super::noise::NoiseComponent;
use super::options::options;
use super::standard::Standardization;
use super::subset::check_columns;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::memory;
use gmm_core::model::covariance_model::CovarianceModel;
use gmm_core::model::covariances::{CovarianceType, Covariances};
use gmm_core::model::linalg::on_pool_thread;
use gmm_core::model::mixture::Mixture;
use gmm_core::model::uniform::UniformDensity;
use gmm_core::reproducible::Functions;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::statistics::prior::ConjugatePrior;
use ndarray::{Array1, Array2, Axis};

/// A fit by EM, which finds a [`Mixture`].
pub type GaussianMixtureParams = Fitting<Em>;

options! {
    /// Expectation-maximisation: the likeliest parameters, or the mode of their posterior under a prior.
    pub struct Em of fitting at fitting.method, for impl[] Fitting<Em>;
    arguments {}
    fields {}
    converted {}
    optional {
        /// Find the mode of the posterior under a prior (MAP), so that no component collapses: default, or numbers that
        /// differ from it, as in mean_precision=1,degrees_of_freedom=9,weight_concentration=2.
        ///
        /// Each lower bound is then the sum of the log-likelihood and the logarithm of the prior's density, up to a
        /// constant, divided by the weight of the samples.
        #[cfg_attr(feature = "clap", arg(long, value_name = "PRIOR"))]
        prior: MapPrior,
        /// Add a component of uniform density for outliers: default, its share at the start, or numbers that differ from
        /// the defaults, as in share=0.1,volume=30.
        ///
        /// The mixture has K + 1 components then, of which the last is the noise. Samples must be complete.
        #[cfg_attr(feature = "clap", arg(id = "noise_component", long = "noise-component", value_name = "NOISE"))]
        noise: NoiseComponent,
        /// Initial weights (K,), in place of the weights that `init_params` finds.
        #[cfg_attr(feature = "clap", arg(skip))]
        weights_init: Array1<f64>,
        /// Initial means (K, D), in place of the means that `init_params` finds.
        #[cfg_attr(feature = "clap", arg(skip))]
        means_init: Array2<f64>,
        /// Initial precisions (inverse covariances) in the covariance type's shape, in place of those of `init_params`.
        #[cfg_attr(feature = "clap", arg(skip))]
        precisions_init: Covariances,
    }
}

impl Checked<Fitting<Em>> {
    /// Returns the fit from a mixture of another K. The caller's initial parameters are not for this start.
    pub(super) fn restarted(&self, at: Mixture) -> Fitting<Em> {
        let next = self.clone().into_inner().weights_init(None).means_init(None).precisions_init(None);
        next.n_components(at.n_components()).start(at)
    }
}

impl Em {
    /// Checks that the fit has no noise.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub(super) fn check_no_noise(&self, what: &str) -> Result<()> {
        match self.noise {
            None => Ok(()),
            Some(_) => Err(Error::BadParameter {
                name: "noise",
                value: format!("given beside {what}"),
                remedy: "leave it out, or fit each number of components from its own start",
            }),
        }
    }

    fn has_initial_parameters(&self) -> bool {
        self.weights_init.is_some() || self.means_init.is_some() || self.precisions_init.is_some()
    }

    /// Returns the mixture of clusters. A component without samples has mean 0 and variance `reg_covar`, as
    /// scikit-learn's.
    ///
    /// # Errors
    /// As [`Statistics::to_mixture`].
    pub fn mixture_of(statistics: &Statistics, model: CovarianceModel, reg_covar: f64) -> Result<Mixture> {
        if reg_covar <= 0.0 || statistics.counts().iter().all(|count| *count > 0.0) {
            return statistics.to_mixture_of(model, reg_covar, None);
        }
        let (k, d) = statistics.means().dim();
        let narrow = Covariances::isotropic(statistics.covariance_type(), k, d, reg_covar);
        let empty = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), Array2::zeros((k, d)), narrow)?;
        Ok(statistics.update(&empty.with_covariance_model(model)?, reg_covar, &Freeze::default())?.mixture)
    }

    /// Checks each given initial parameter, in a mixture whose other parameters are neutral.
    fn check_initial_parameters(&self, options: &FitOptions) -> Result<()> {
        let k = options.n_components;
        let d = match (&self.means_init, &self.precisions_init) {
            (Some(means), _) => means.ncols(),
            (_, Some(Covariances::Spherical(_)) | None) => 1,
            (_, Some(precisions)) => precisions.shape().last().copied().unwrap_or(1),
        };
        if let Some(means) = self.means_init.as_ref().filter(|means| means.nrows() != k) {
            return Err(Error::ShapeMismatch { what: "means_init", expected: vec![k, d], got: means.shape().to_vec() });
        }
        if let Some(weights) = self.weights_init.as_ref().filter(|weights| weights.len() != k) {
            return Err(Error::ShapeMismatch { what: "weights_init", expected: vec![k], got: vec![weights.len()] });
        }
        if let Some(precisions) = &self.precisions_init {
            precisions.check_type("precisions_init", options.covariance_type.form(), k, d)?;
        }
        if !self.has_initial_parameters() {
            return Ok(());
        }
        memory::check("the initial parameters", &[k, d], 3 * size_of::<f64>(), "use fewer components")?;
        let means = self.means_init.clone().unwrap_or_else(|| Array2::zeros((k, d)));
        let weights = self.weights_init.clone().unwrap_or_else(|| Array1::from_elem(k, 1.0 / k as f64));
        let precisions = match &self.precisions_init {
            Some(precisions) => precisions.clone(),
            None => Covariances::isotropic(CovarianceType::Spherical, k, d, 1.0),
        };
        Mixture::from_precisions(weights, means, precisions).map(drop)
    }

    /// Returns the start with the initial parameters, if all of them are given.
    fn given_start(&self) -> Option<Result<Mixture>> {
        let (weights, means) = (self.weights_init.clone()?, self.means_init.clone()?);
        Some(Mixture::from_precisions(weights, means, self.precisions_init.clone()?))
    }

    /// Returns `found` with its parameters replaced by the given initial parameters.
    fn with_initial_parameters(&self, found: Mixture) -> Result<Mixture> {
        if !self.has_initial_parameters() {
            return Ok(found);
        }
        let weights = self.weights_init.clone().unwrap_or_else(|| found.weights().to_owned());
        let means = self.means_init.clone().unwrap_or_else(|| found.means().to_owned());
        match &self.precisions_init {
            Some(precisions) => Mixture::from_precisions(weights, means, precisions.clone()),
            None => Mixture::from_parts(weights, means, found.covariances().clone(), found.factor().cloned()),
        }
    }
}

/// What a fit by EM takes from the samples.
pub struct EmPrior {
    parameters: Option<ConjugatePrior>,
    /// The noise, and its weight at the start.
    noise: Option<(UniformDensity, f64)>,
}

impl Steps for Em {
    type Model = Mixture;
    type Prior = EmPrior;

    fn check(&self, options: &FitOptions, has_start: bool) -> Result<()> {
        if has_start && self.has_initial_parameters() {
            return Err(Error::BadParameter {
                name: "start",
                value: "given together with initial parameters".into(),
                remedy: "leave out either the start or weights_init, means_init and precisions_init",
            });
        }
        self.check_initial_parameters(options)?;
        self.prior.as_ref().map_or(Ok(()), |prior| prior.check(options.covariance_type))?;
        self.noise.as_ref().map_or(Ok(()), NoiseComponent::check)?;
        options.freeze.check(options.n_components, options.covariance_type)
    }

    fn check_features(&self, options: &FitOptions, d: usize) -> Result<()> {
        let k = options.n_components;
        if let Some(means) = self.means_init.as_ref().filter(|means| means.ncols() != d) {
            let (what, got) = ("means_init (against the data's columns)", means.shape().to_vec());
            return Err(Error::ShapeMismatch { what, expected: vec![k, d], got });
        }
        match &self.precisions_init {
            Some(precisions) => precisions.check_shape("precisions_init (against the data's columns)", k, d),
            None => Ok(()),
        }
    }

    fn standardized(mut self, options: &FitOptions, standard: &Standardization) -> Result<Self> {
        self.check_features(options, standard.scale().len())?;
        for mut mean in self.means_init.iter_mut().flat_map(|means| means.axis_iter_mut(Axis(0))) {
            let of_standardized = standard.standardized_mean("means_init", &mean.to_owned())?;
            mean.assign(&of_standardized);
        }
        // A precision scales as the inverse of a covariance.
        self.precisions_init = self.precisions_init.map(|precisions| standard.restored_covariances(&precisions));
        if let Some(volume) = self.noise.as_mut().and_then(|noise| noise.volume.as_mut()) {
            *volume /= standard.scale().product();
        }
        let Some(prior) = &mut self.prior else { return Ok(self) };
        for mut mean in prior.mean.iter_mut().flat_map(|means| means.axis_iter_mut(Axis(0))) {
            let of_standardized = standard.standardized_mean("the prior's mean", &mean.to_owned())?;
            mean.assign(&of_standardized);
        }
        if let Some(covariance) = &mut prior.covariance {
            let what = "the prior's covariance, in standardised units,";
            *covariance = standard.standardized_covariances(what, covariance, 1, options.covariance_type.form())?;
        }
        Ok(self)
    }

    fn prior(&self, options: &FitOptions, evaluator: &mut dyn Evaluator) -> Result<EmPrior> {
        let noise = self.noise.as_ref().map(|noise| noise.of_samples(evaluator)).transpose()?;
        let Some(prior) = &self.prior else { return Ok(EmPrior { parameters: None, noise }) };
        let (k, d, kind) = (options.n_components, evaluator.n_features(), options.covariance_type.form());
        let MapPrior { weight_concentration, mean_precision, mean, degrees_of_freedom, covariance } = prior.clone();
        let (mean, covariance) = match (mean, covariance) {
            (Some(mean), Some(covariance)) => (mean, covariance),
            (mean, covariance) => {
                check_columns(evaluator)?;
                let moments = moments(evaluator, kind)?;
                let of_data = || {
                    let mut covariance = covariance_of(&moments, kind);
                    covariance.map_inplace(|v| *v /= (k as f64).power(2.0 / d as f64));
                    covariance
                };
                let mean = mean.unwrap_or_else(|| moments.means().to_owned());
                (mean, covariance.unwrap_or_else(of_data))
            }
        };
        let nu = degrees_of_freedom.unwrap_or(d as f64 + 2.0);
        let known = ConjugatePrior::new(weight_concentration, mean_precision, mean, nu, covariance)?;
        known.check(k, d, options.covariance_type)?;
        Ok(EmPrior { parameters: Some(known), noise })
    }

    fn find(
        &self,
        options: &FitOptions,
        prior: &EmPrior,
        evaluator: &mut dyn Evaluator,
        seed: (u64, u64),
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Mixture> {
        if let Some(given) = self.given_start() {
            check_columns(evaluator)?;
            return given;
        }
        find(options, evaluator, self.noise.as_ref(), seed, check)?.into_mixture(options, prior.parameters.as_ref())
    }

    fn of_statistics(&self, options: &FitOptions, _: &EmPrior, statistics: &Statistics) -> Result<Mixture> {
        Self::mixture_of(statistics, options.covariance_type, options.reg_covar)
    }

    fn begin_at(&self, options: &FitOptions, prior: &EmPrior, given: Mixture) -> Result<Mixture> {
        // Noise goes on from the start's own.
        let (own, gaussians) = match given.noise() {
            Some(noise) => {
                (Some((noise.clone(), given.weights()[given.n_gaussians()])), given.without_noise().into_owned())
            }
            None => (None, given),
        };
        let start = self.with_initial_parameters(gaussians)?;
        let start = options.freeze.start(start.with_covariance_model(options.covariance_type)?)?;
        match &prior.noise {
            Some(noise) => with_noise(&start, own.as_ref().unwrap_or(noise)),
            None => Ok(start),
        }
    }

    fn iterate(
        &self,
        FitOptions { reg_covar, freeze, .. }: &FitOptions,
        EmPrior { parameters: prior, .. }: &EmPrior,
        evaluator: &mut dyn Evaluator,
        mixture: &Mixture,
    ) -> Result<Iterated<Mixture>> {
        let statistics = evaluator.statistics(mixture)?;
        let of_prior = prior.as_ref().map_or(0.0, |prior| prior.log_density(mixture) / statistics.weight());
        let lower_bound = statistics.lower_bound() + of_prior;
        let update = on_pool_thread(mixture.n_numbers(), || {
            statistics.into_update(mixture, *reg_covar, freeze, prior.as_ref())
        })?;
        Ok(Iterated { mixture: update.mixture, lower_bound, retained: update.retained })
    }

    fn is_plain(&self) -> bool {
        self.prior.is_none() && self.noise.is_none() && !self.has_initial_parameters()
    }

    fn of_mixture(mixture: Mixture) -> Option<Mixture> {
        Some(mixture)
    }
}
