//! The starts of chains, and their draws.
use super::settings::{Sampler, Settings};
use crate::error::{Error, Result};
use crate::model::PosteriorModel;
use crate::rng;
use crate::target::Target;
use gmm_host::Mixture;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// One recorded draw of one chain.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PosteriorDraw {
    /// The chain, counted from 0.
    pub chain: usize,
    /// The point of the chain (dim,).
    pub point: Vec<f64>,
    /// The statistics that [`Sampler::statistics`] names.
    pub statistics: Vec<f64>,
    /// The numbers of [`Target::variables`] at the point.
    pub parameters: Vec<f64>,
}

impl PosteriorDraw {
    pub(super) fn new(chain: usize, point: Vec<f64>, statistics: Vec<f64>, target: &dyn Target) -> Self {
        Self { chain, parameters: target.parameters(&point), point, statistics }
    }

    /// Returns empty memory for [`fill`](Self::fill).
    pub(super) fn empty() -> Self {
        Self { chain: 0, point: Vec::new(), statistics: Vec::new(), parameters: Vec::new() }
    }

    /// Like [`new`](Self::new), in the memory of the previous draw: allocating memory for many draws takes longer than
    /// filling it.
    pub(super) fn fill(&mut self, chain: usize, point: &[f64], statistics: &[f64], target: &dyn Target) {
        self.chain = chain;
        self.parameters = target.parameters(point);
        for (numbers, from) in [(&mut self.point, point), (&mut self.statistics, statistics)] {
            numbers.clear();
            numbers.extend_from_slice(from);
        }
    }
}

/// The start of a run's chains.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Start {
    /// One point for each chain.
    pub points: Vec<Vec<f64>>,
    /// A rough guess of the posterior's standard deviations (dim,), with which the samplers begin to adapt their steps.
    pub scale: Vec<f64>,
}

/// The stream of random numbers for a chain's starting point is the chain's number plus this: different from the stream
/// of any chain.
const START_STREAMS: usize = 1 << 40;

impl Start {
    /// Returns a start at these points, one for each chain, with a rough guess of the posterior's standard deviations
    /// (dim,). [`Chains::new`](crate::Chains::new) checks both lengths.
    pub fn new(points: Vec<Vec<f64>>, scale: Vec<f64>) -> Self {
        Self { points, scale }
    }

    /// Returns a start around a mixture, for example a fitted one. Each chain begins at the mixture's point plus normal
    /// noise of twice (for the ensemble, once) the posterior's rough standard deviations, so that no two chains begin
    /// at the same point.
    ///
    /// # Errors
    /// [`Error::Start`], as [`PosteriorModel::unconstrain`]; [`Error::Host`] if memory is too small for the chains.
    pub fn around(model: &PosteriorModel, mixture: &Mixture, settings: &Settings) -> Result<Self> {
        settings.check_memory(model.dim())?;
        let centre = model.unconstrain(mixture)?;
        let scale = model.typical_scale(&centre);
        let spread = if matches!(settings.sampler, Sampler::Ensemble { .. }) { 1.0 } else { 2.0 };
        let points = (0..settings.chains)
            .map(|c| {
                let mut rng = rng::stream(settings.seed, START_STREAMS + c);
                let mut noise = || -> f64 { StandardNormal.sample(&mut rng) };
                centre.iter().zip(&scale).map(|(x, s)| x + spread * s * noise()).collect()
            })
            .collect();
        Ok(Self { points, scale })
    }

    /// Returns a start with each chain at a draw from the prior.
    ///
    /// # Errors
    /// [`Error::Start`], as [`PosteriorModel::sample_prior`]; as [`Settings::check`].
    pub fn from_prior(model: &PosteriorModel, settings: &Settings) -> Result<Self> {
        settings.check(model.dim())?;
        let points: Vec<Vec<f64>> = (0..settings.chains)
            .map(|c| model.sample_prior(&mut rng::stream(settings.seed, START_STREAMS + c)))
            .collect::<Result<_>>()?;
        let scale = model.typical_scale(&points[0]);
        Ok(Self { points, scale })
    }
}

pub(crate) struct ChainStart {
    pub point: Vec<f64>,
    pub log_density: f64,
    pub rng: ChaCha8Rng,
}

/// Returns the error of a chain that cannot begin at its point. `otherwise` is the reason if the target knows none.
pub(crate) fn cannot_start(target: &mut dyn Target, chain: usize, point: &[f64], otherwise: &str) -> Result<Error> {
    let why = target.why_unusable(point)?.unwrap_or_else(|| otherwise.into());
    Ok(Error::Start(format!(
        "gives chain {chain} (counted from 0) no start: {why}; start from another model, narrow the prior, or bring the \
         columns of the data to a similar scale"
    )))
}
