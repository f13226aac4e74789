//! Fitting to a stream of chunks.
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use gmm_core::reproducible::Functions;
use gmm_core::statistics::Statistics;
use gmm_core::statistics::freeze::Freeze;
use gmm_core::variational::mixture::VariationalMixture;
use gmm_core::variational::prior::check_positive;

/// The statistics per sample of the chunks so far, s ← (1 − ηₜ)·s + ηₜ·sₜ with ηₜ = (t + 1)^−α for
/// chunk t = 0, 1, …
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

    /// The average with one more chunk.
    fn with(&self, statistics: Statistics) -> Result<Statistics> {
        moving_average(self.average.as_ref(), statistics, self.steps, self.decay)
    }

    /// Takes what [`with`](Self::with) gave.
    fn set(&mut self, average: Statistics) {
        self.average = Some(average);
        self.steps += 1;
    }
}

/// The statistics per sample of the chunks before, and of one more, of number `steps` (from 0), as
/// [`StepwiseEm`] takes them.
///
/// # Errors
/// [`Error::NonFiniteStatistic`] where a sum overflows; [`Error::ShapeMismatch`].
pub fn moving_average(before: Option<&Statistics>, chunk: Statistics, steps: u64, decay: f64) -> Result<Statistics> {
    let eta = ((steps + 1) as f64).power(-decay);
    let per_sample = eta / chunk.weight();
    let mut average = chunk.scaled(per_sample);
    if let Some(before) = before {
        average.merge(&before.clone().scaled(1.0 - eta))?;
    }
    Ok(average)
}

/// Stepwise EM (Cappé and Moulines 2009): the statistics per sample are a moving average over the
/// chunks seen, s ← (1 − ηₜ)·s + ηₜ·sₜ with ηₜ = (t + 1)^−α for chunk t = 0, 1, …, and each chunk
/// is followed by an M-step.
///
/// Chunks may be of any size, but should be random samples of the same data (shuffle it first).
#[derive(Debug, Clone)]
pub struct StepwiseEm {
    mixture: Mixture,
    average: MovingAverage,
    freeze: Freeze,
}

impl StepwiseEm {
    /// The default of α.
    pub const DEFAULT_DECAY: f64 = 0.7;

    /// Begins at a mixture, for example one that was fitted to the first chunk. `decay` is α, with
    /// ½ < α ≤ 1: at ½ the average would never converge; at 1 all chunks count alike, so that early
    /// ones, seen with poor parameters, are never forgotten.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(start: Mixture, decay: f64, reg_covar: f64, freeze: Freeze) -> Result<Self> {
        Ok(Self { mixture: start, average: MovingAverage::new(decay, reg_covar)?, freeze })
    }

    /// Learns from a chunk, and gives the chunk's mean log-likelihood under the parameters before
    /// that. An error leaves everything unchanged.
    ///
    /// # Errors
    /// What the backend reports; see also [`Statistics::update`].
    pub fn partial_fit(&mut self, chunk: &mut dyn Evaluator) -> Result<f64> {
        let statistics = chunk.statistics(&self.mixture)?;
        let lower_bound = statistics.lower_bound();
        let average = self.average.with(statistics)?;
        self.mixture = average.update(&self.mixture, self.average.reg_covar, &self.freeze)?.mixture;
        self.average.set(average);
        Ok(lower_bound)
    }

    /// The parameters after the chunks so far.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// Number of chunks so far.
    pub fn steps(&self) -> u64 {
        self.average.steps
    }
}

/// Stochastic variational inference (Hoffman, Blei, Wang and Paisley 2013): a step along the natural
/// gradient for each chunk t = 0, 1, … of the samples, of the size ηₜ = (t + 1)^−α.
///
/// The natural parameters of the posterior are those of the prior and the statistics of all samples
/// added to them. So the step is a moving average of statistics per sample, as that of
/// [`StepwiseEm`], and the posterior is that of as many samples with these statistics as the stream
/// has. Chunks may be of any size, but should be random samples of the same data (shuffle it first).
#[derive(Debug, Clone)]
pub struct StochasticVariational {
    mixture: VariationalMixture,
    average: MovingAverage,
    freeze: Freeze,
    /// The weight of the samples so far, and of all, where that is known.
    seen: f64,
    total_samples: Option<f64>,
}

impl StochasticVariational {
    /// Begins at a posterior, for example one that was fitted to the first chunk; the prior is its
    /// own. `decay` is α, as for [`StepwiseEm::new`], which has its default too.
    ///
    /// # Errors
    /// [`Error::BadParameter`].
    pub fn new(start: VariationalMixture, decay: f64, reg_covar: f64, freeze: Freeze) -> Result<Self> {
        let average = MovingAverage::new(decay, reg_covar)?;
        Ok(Self { mixture: start, average, freeze, seen: 0.0, total_samples: None })
    }

    /// How many samples the whole stream has, by weight: of so many the posterior is from the first
    /// chunk on. By default it is of those seen so far.
    ///
    /// # Errors
    /// [`Error::BadParameter`] where it is not positive and finite.
    pub fn total_samples(mut self, total: f64) -> Result<Self> {
        check_positive("total_samples", total)?;
        self.total_samples = Some(total);
        Ok(self)
    }

    /// Learns from a chunk, and gives what the lower bound would be if all samples were as those of
    /// the chunk. An error leaves everything unchanged.
    ///
    /// # Errors
    /// What the backend reports; see also [`VariationalMixture::update`].
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

    /// The posterior after the chunks so far.
    pub fn mixture(&self) -> &VariationalMixture {
        &self.mixture
    }

    /// Number of chunks so far.
    pub fn steps(&self) -> u64 {
        self.average.steps
    }
}
