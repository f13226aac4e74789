//! Expectation-maximisation over any evaluator.
use super::init::check_columns;
use super::iterate::{self, Iterated, Method};
use super::map_prior::MapPrior;
use super::moments::{covariance_of, moments};
use super::outcome::{Callback, Fit};
use super::params::{GaussianMixtureParams, GaussianMixtureValidParams, Start};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use crate::model::linalg::on_pool_thread;
use crate::model::mixture::Mixture;
use crate::prior::ConjugatePrior;
use crate::source::DataSource;
use std::ops::ControlFlow;

impl GaussianMixtureParams {
    /// Checks the parameters and fits to an array (N, D), to [`Samples`](crate::Samples), or to the
    /// samples of an [`Evaluator`].
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`GaussianMixtureValidParams::fit`].
    pub fn fit(&self, data: impl DataSource) -> Result<Fit> {
        self.checked()?.fit(data)
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// ```
    /// use gmm_host::GaussianMixtureParams;
    /// use ndarray::array;
    ///
    /// let x = array![[1.0f32, 2.0], [1.0, 4.0], [10.0, 2.0], [10.0, 4.0]];
    /// let (fit, labels) = GaussianMixtureParams::new(2).fit_predict(&x)?;
    /// assert!(labels[0] == labels[1] && labels[1] != labels[2] && labels[2] == labels[3]);
    /// assert_eq!(labels, fit.mixture.predict(&x)?);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit, Vec<usize>)> {
        self.checked()?.fit_predict(data)
    }
}

impl GaussianMixtureValidParams {
    /// Fits to an array (N, D), to [`Samples`](crate::Samples), or to the samples of an
    /// [`Evaluator`].
    ///
    /// # Errors
    /// What the data source reports; [`Error::TooFewSamples`] (N < K); [`Error::ShapeMismatch`]
    /// where given initial parameters have another D; [`Error::UnobservedColumn`] where all values
    /// of a column are missing; a component error where the data leave no usable covariance (a
    /// constant column with `reg_covar` zero); what the backend reports.
    pub fn fit(&self, data: impl DataSource) -> Result<Fit> {
        data.evaluate(self.device, |evaluator| self.fit_with(evaluator, &mut |_| ControlFlow::Continue(())))
    }

    /// As [`fit`](Self::fit); also gives the most probable component of each sample (N,).
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_predict(&self, data: impl DataSource) -> Result<(Fit, Vec<usize>)> {
        data.evaluate(self.device, |evaluator| {
            let fit = self.fit_with(evaluator, &mut |_| ControlFlow::Continue(()))?;
            let labels = evaluator.predict(&fit.mixture)?;
            Ok((fit, labels))
        })
    }

    /// Fits to the evaluator's samples, and calls `callback` after each iteration. When the
    /// callback breaks, the fit ends with the best of the runs so far, including the one that was
    /// broken off.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn fit_with(&self, evaluator: &mut dyn Evaluator, callback: Callback<'_>) -> Result<Fit> {
        let prior = self.prior.as_ref().map(|prior| self.conjugate(prior, evaluator)).transpose()?;
        iterate::fit(&Em { settings: self, prior }, evaluator, callback)
    }

    /// The prior, with what is not given of it from the samples.
    fn conjugate(&self, prior: &MapPrior, evaluator: &mut dyn Evaluator) -> Result<ConjugatePrior> {
        let (k, d, kind) = (self.n_components, evaluator.n_features(), self.covariance_type);
        let MapPrior { weight_concentration, mean_precision, mean, degrees_of_freedom, covariance } = prior.clone();
        let (mean, covariance) = match (mean, covariance) {
            (Some(mean), Some(covariance)) => (mean, covariance),
            (mean, covariance) => {
                check_columns(evaluator)?;
                let moments = moments(evaluator, kind)?;
                let of_data = || {
                    let mut covariance = covariance_of(&moments, kind);
                    covariance.map_inplace(|v| *v /= (k as f64).powf(2.0 / d as f64));
                    covariance
                };
                let mean = mean.unwrap_or_else(|| moments.means().to_owned());
                (mean, covariance.unwrap_or_else(of_data))
            }
        };
        let nu = degrees_of_freedom.unwrap_or(d as f64 + 2.0);
        let known = ConjugatePrior::new(weight_concentration, mean_precision, mean, nu, covariance)?;
        known.check(k, d, kind)?;
        Ok(known)
    }

    /// Checks the initial parameters against the data's D.
    fn check_features(&self, d: usize) -> Result<()> {
        let k = self.n_components;
        let mismatch =
            |what, got: &[usize]| Err(Error::ShapeMismatch { what, expected: vec![k, d], got: got.to_vec() });
        for start in self.start.iter().flat_map(Start::mixtures) {
            if start.n_features() != d {
                return mismatch("the start's means (against the data's columns)", start.means().shape());
            }
        }
        if let Some(means) = &self.means_init
            && means.ncols() != d
        {
            return mismatch("means_init (against the data's columns)", means.shape());
        }
        match &self.precisions_init {
            Some(precisions) => precisions.check_shape("precisions_init (against the data's columns)", k, d),
            None => Ok(()),
        }
    }
}

/// A fit whose prior is known, if it has one.
struct Em<'a> {
    settings: &'a GaussianMixtureValidParams,
    prior: Option<ConjugatePrior>,
}

impl Method for Em<'_> {
    type Model = Mixture;

    fn settings(&self) -> &GaussianMixtureValidParams {
        self.settings
    }

    fn start(&self) -> Option<&Start> {
        self.settings.start.as_ref()
    }

    fn check(&self, evaluator: &dyn Evaluator) -> Result<()> {
        self.settings.check_features(evaluator.n_features())
    }

    fn initialise(&self, evaluator: &mut dyn Evaluator, run: usize) -> Result<Mixture> {
        self.begin_at(self.settings.initialise(evaluator, run, self.prior.as_ref())?)
    }

    fn begin_at(&self, given: Mixture) -> Result<Mixture> {
        self.settings.freeze.start(given)
    }

    fn iterate(&self, evaluator: &mut dyn Evaluator, mixture: &Mixture) -> Result<Iterated<Mixture>> {
        let statistics = evaluator.statistics(mixture)?;
        let of_prior = self.prior.as_ref().map_or(0.0, |prior| prior.log_density(mixture) / statistics.weight());
        let lower_bound = statistics.lower_bound() + of_prior;
        let GaussianMixtureValidParams { reg_covar, freeze, .. } = self.settings;
        let update = on_pool_thread(mixture.n_numbers(), || {
            statistics.into_update(mixture, *reg_covar, freeze, self.prior.as_ref())
        })?;
        Ok(Iterated { mixture: update.mixture, lower_bound, retained: update.retained })
    }
}
