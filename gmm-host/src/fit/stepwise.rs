//! Fitting to a stream of chunks.
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Functions;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::variational::mixture::VariationalMixture;
use gmm_core::variational::prior::check_positive;

/// A moving average of the statistics per sample, as [`StepwiseEm`] defines it.
#[derive(Debug, Clone)]
struct MovingAverage {
    average: Option<Statistics>,
    steps: u64,
    decay: f64,
    reg_covar: f64,
}

impl MovingAverage {
    fn new(decay: f64, reg_covar: f64) -> Result<Self> {
        let bad = |name, value: f64, remedy| Err(Error::BadParameter { name, value: value.to_string(), remedy });
        if !(decay > 0.5 && decay <= 1.0) {
            return bad("decay", decay, "it must be above 0.5 and at most 1");
        }
        if !(reg_covar >= 0.0 && reg_covar.is_finite()) {
            return bad("reg_covar", reg_covar, "it must be zero or positive, and finite");
        }
        Ok(Self { average: None, steps: 0, decay, reg_covar })
    }

    /// Returns the average with one more chunk.
    fn with(&self, statistics: Statistics) -> Result<Statistics> {
        moving_average(self.average.as_ref(), statistics, self.steps, self.decay)
    }

    fn set(&mut self, average: Statistics) {
        self.average = Some(average);
        self.steps += 1;
    }
}

/// Returns the statistics per sample of earlier chunks and chunk `steps` (from 0), as [`StepwiseEm`] takes them.
///
/// # Errors
/// [`Error::NonFiniteStatistic`] if a sum overflows; [`Error::ShapeMismatch`].
pub fn moving_average(before: Option<&Statistics>, chunk: Statistics, steps: u64, decay: f64) -> Result<Statistics> {
    let eta = ((steps + 1) as f64).power(-decay);
    let per_sample = eta / chunk.weight();
    let mut average = chunk.scaled(per_sample);
    if let Some(before) = before {
        average.merge(&before.clone().scaled(1.0 - eta))?;
    }
    Ok(average)
}

/// Stepwise EM (Cappé and Moulines 2009): the statistics per sample are a moving average over the chunks seen, s ← (1 −
/// ηₜ)·s + ηₜ·sₜ with ηₜ = (t + 1)^−α for chunk t = 0, 1, …, and each chunk is followed by an M-step.
///
/// Chunks may be of any size, but should be random samples of the same data: shuffle it first.
#[derive(Debug, Clone)]
pub struct StepwiseEm {
    mixture: Mixture,
    average: MovingAverage,
    freeze: Freeze,
}

impl StepwiseEm {
    /// The default of α.
    pub const DEFAULT_DECAY: f64 = 0.7;

    /// Begins at a mixture, for example one fitted to the first chunk. `decay` is α, with ½ < α ≤ 1: at ½ the average
    /// never converges; at 1 all chunks count alike, so that early ones, seen with poor parameters, are never
    /// forgotten.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(start: Mixture, decay: f64, reg_covar: f64, freeze: Freeze) -> Result<Self> {
        Ok(Self { mixture: start, average: MovingAverage::new(decay, reg_covar)?, freeze })
    }

    /// Learns from a chunk, and returns its mean log-likelihood under the old parameters. An error changes nothing.
    ///
    /// # Errors
    /// Errors of the backend; see also [`Statistics::update`].
    pub fn partial_fit(&mut self, chunk: &mut dyn Evaluator) -> Result<f64> {
        let statistics = chunk.statistics(&self.mixture)?;
        let lower_bound = statistics.lower_bound();
        let average = self.average.with(statistics)?;
        self.mixture = average.update(&self.mixture, self.average.reg_covar, &self.freeze)?.mixture;
        self.average.set(average);
        Ok(lower_bound)
    }

    /// Returns the parameters after the chunks so far.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Returns the number of chunks so far.
    pub fn steps(&self) -> u64 {
        self.average.steps
    }
}

/// Stochastic variational inference (Hoffman, Blei, Wang and Paisley 2013): for each chunk t = 0, 1, … of the samples,
/// a step of size ηₜ = (t + 1)^−α along the natural gradient.
///
/// The natural parameters of the posterior are those of the prior plus the statistics of all samples. So the step is a
/// moving average of statistics per sample, as in [`StepwiseEm`], and the posterior is that of the whole stream with
/// these statistics. Chunks may be of any size, but should be random samples of the same data: shuffle it first.
#[derive(Debug, Clone)]
pub struct StochasticVariational {
    mixture: VariationalMixture,
    average: MovingAverage,
    freeze: Freeze,
    /// The weight of the samples so far, and of all samples if it is known.
    seen: f64,
    total_samples: Option<f64>,
}

impl StochasticVariational {
    /// Begins at a posterior, for example one fitted to the first chunk, with its prior. `decay` is α, as for
    /// [`StepwiseEm::new`], with the same default.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(start: VariationalMixture, decay: f64, reg_covar: f64, freeze: Freeze) -> Result<Self> {
        let average = MovingAverage::new(decay, reg_covar)?;
        Ok(Self { mixture: start, average, freeze, seen: 0.0, total_samples: None })
    }

    /// Sets the weight of all samples of the stream, which the posterior counts from the first chunk on. By default it
    /// counts the samples seen so far.
    ///
    /// # Errors
    /// [`Error::BadParameter`] if it is not positive and finite.
    pub fn total_samples(mut self, total: f64) -> Result<Self> {
        check_positive("total_samples", total)?;
        self.total_samples = Some(total);
        Ok(self)
    }

    /// Learns from a chunk, and returns the lower bound of a stream of such samples. An error changes nothing.
    ///
    /// # Errors
    /// Errors of the backend; see also [`VariationalMixture::update`].
    pub fn partial_fit(&mut self, chunk: &mut dyn Evaluator) -> Result<f64> {
        let statistics = chunk.statistics(self.mixture.density())?;
        let (weight, reg_covar) = (statistics.weight(), self.average.reg_covar);
        let seen = self.seen + weight;
        let total = self.total_samples.unwrap_or(seen);
        let average = self.average.with(statistics.clone())?;
        let mixture = self.mixture.update(&average.clone().scaled(total), reg_covar, &self.freeze)?;
        let lower_bound = mixture.lower_bound_of(&self.mixture, &statistics.scaled(total / weight), reg_covar)?;
        self.mixture = mixture;
        self.seen = seen;
        self.average.set(average);
        Ok(lower_bound)
    }

    /// Returns the posterior after the chunks so far.
    pub fn mixture(&self) -> &VariationalMixture {
        &self.mixture
    }

    /// Returns the number of chunks so far.
    pub fn steps(&self) -> u64 {
        self.average.steps
    }
}
