//! Variational inference.
use super::fitting::steps::{Iterated, Steps};
use super::fitting::{FitOptions, FittedModel, Fitting};
use super::init::find;
use super::moments::{covariance_of, moments};
use super::options::options;
use super::standard::Standardization;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::covariances::Covariances;
use gmm_core::model::linalg::on_pool_thread;
use gmm_core::model::mixture::Mixture;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::variational::mixture::VariationalMixture;
use gmm_core::variational::prior::{
    VariationalPrior, WeightConcentrationPriorType, check_degrees_of_freedom, check_positive,
};
use ndarray::{Array1, Array2};

/// A fit by variational inference, with the names and defaults of scikit-learn's `BayesianGaussianMixture`. It finds a
/// [`VariationalMixture`], the posterior of the parameters, in which unneeded components have hardly any weight.
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
pub type BayesianGaussianMixtureParams = Fitting<Variational>;

options! {
    /// Variational inference, for the posterior of the parameters. As arguments these need the flag `--variational`.
    pub struct Variational of fitting at fitting.method, for impl[] Fitting<Variational>;
    arguments {
        /// The prior of the weights: dirichlet_process or dirichlet_distribution.
        #[cfg_attr(feature = "clap", arg(long, value_name = "TYPE", requires = "variational"))]
        weight_concentration_prior_type: WeightConcentrationPriorType = WeightConcentrationPriorType::DirichletProcess,
    }
    fields {}
    converted {}
    optional {
        /// The concentration γ of that prior, above 0: the smaller, the fewer components have weight. Default: 1/K.
        #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true))]
        weight_concentration_prior: f64,
        /// β₀, above 0: the larger it is, the nearer the means are to the prior mean. Default: 1.
        #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true))]
        mean_precision_prior: f64,
        /// The prior mean m₀ (D,). Default: the mean of the samples.
        #[cfg_attr(feature = "clap", arg(skip))]
        mean_prior: Array1<f64>,
        /// The degrees of freedom ν₀ of the precisions' prior, above D − 1. Default: D.
        #[cfg_attr(feature = "clap", arg(long, value_name = "NUMBER", requires = "variational", allow_negative_numbers = true))]
        degrees_of_freedom_prior: f64,
        /// W₀⁻¹ in the covariance type's shape for one component: (1, D, D), (D, D), (1, D) or (1,).
        /// Default: the covariance of the samples (divisor N − 1), its diagonal, or the mean of that.
        #[cfg_attr(feature = "clap", arg(skip))]
        covariance_prior: Covariances,
    }
}

impl FittedModel for VariationalMixture {
    fn density(&self) -> &Mixture {
        Self::density(self)
    }

    fn log_factor(&self) -> f64 {
        self.log_total()
    }
}

impl Steps for Variational {
    type Model = VariationalMixture;
    type Prior = VariationalPrior;

    fn check(&self, options: &FitOptions, _: bool) -> Result<()> {
        options.freeze.check_whole()?;
        if !options.covariance_type.is_plain() {
            return Err(Error::BadParameter {
                name: "covariance_type",
                value: options.covariance_type.name().into(),
                remedy: "variational inference takes full, tied, diag and spherical",
            });
        }
        if let Some(value) = self.weight_concentration_prior {
            check_positive("weight_concentration_prior", value)?;
        }
        if let Some(value) = self.mean_precision_prior {
            check_positive("mean_precision_prior", value)?;
        }
        let Some(covariance) = &self.covariance_prior else { return Ok(()) };
        let d = match covariance {
            Covariances::Spherical(_) => 1,
            matrix => matrix.shape().last().copied().unwrap_or(1),
        };
        covariance.check_type("covariance_prior", options.covariance_type.form(), 1, d)?;
        Mixture::new(Array1::ones(1), Array2::zeros((1, d)), covariance.clone()).map(drop)
    }

    fn check_features(&self, _: &FitOptions, _: usize) -> Result<()> {
        Ok(())
    }

    fn standardized(mut self, options: &FitOptions, standard: &Standardization) -> Result<Self> {
        if let Some(mean) = &mut self.mean_prior {
            *mean = standard.standardized_mean("mean_prior", mean)?;
        }
        if let Some(covariance) = &mut self.covariance_prior {
            let what = "covariance_prior, in standardised units,";
            *covariance = standard.standardized_covariances(what, covariance, 1, options.covariance_type.form())?;
        }
        Ok(self)
    }

    /// Missing parts of the prior are as in scikit-learn.
    fn prior(&self, options: &FitOptions, evaluator: &mut dyn Evaluator) -> Result<VariationalPrior> {
        let (d, kind) = (evaluator.n_features(), options.covariance_type.form());
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
        let gamma = self.weight_concentration_prior.unwrap_or(1.0 / options.n_components as f64);
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

    fn find(
        &self,
        options: &FitOptions,
        prior: &VariationalPrior,
        evaluator: &mut dyn Evaluator,
        seed: (u64, u64),
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<VariationalMixture> {
        let weight = evaluator.total_weight();
        let statistics = find(options, evaluator, None, seed, check)?.into_statistics(weight);
        VariationalMixture::from_statistics(prior, &statistics, options.reg_covar)
    }

    fn of_statistics(
        &self,
        options: &FitOptions,
        prior: &VariationalPrior,
        statistics: &Statistics,
    ) -> Result<VariationalMixture> {
        VariationalMixture::from_statistics(prior, statistics, options.reg_covar)
    }

    fn begin_at(&self, _: &FitOptions, _: &VariationalPrior, given: VariationalMixture) -> Result<VariationalMixture> {
        Ok(given)
    }

    fn iterate(
        &self,
        FitOptions { reg_covar, freeze, .. }: &FitOptions,
        prior: &VariationalPrior,
        evaluator: &mut dyn Evaluator,
        before: &VariationalMixture,
    ) -> Result<Iterated<VariationalMixture>> {
        let statistics = evaluator.statistics(before.density())?;
        let (mixture, lower_bound) = on_pool_thread(before.density().n_numbers(), || -> Result<_> {
            let from = Some((before, freeze));
            if *freeze == Freeze::default() {
                let entropy = before.entropy(&statistics);
                let mixture = VariationalMixture::m_step(prior, statistics, *reg_covar, from)?;
                let lower_bound = mixture.lower_bound(entropy);
                return Ok((mixture, lower_bound));
            }
            let mixture = VariationalMixture::m_step(prior, statistics.clone(), *reg_covar, from)?;
            let lower_bound = mixture.lower_bound_of(before, &statistics, *reg_covar)?;
            Ok((mixture, lower_bound))
        })?;
        Ok(Iterated { mixture, lower_bound, retained: Vec::new() })
    }

    fn is_plain(&self) -> bool {
        false
    }

    fn of_mixture(_: Mixture) -> Option<VariationalMixture> {
        None
    }
}
