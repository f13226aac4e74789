//! The sampler of a run, and the length of the run.
use crate::error::{Result, setting};
use crate::model::PosteriorModel;
use gmm_host::memory;
use serde::{Deserialize, Serialize};

/// Matrices of a chain of Metropolis: the covariance of the draws, and its factor.
const OF_A_PROPOSAL: usize = 2;
/// Numbers of a chain besides those of its points, mostly its random numbers.
const OF_A_CHAIN: usize = 64;

/// A sampler with its own settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sampler {
    /// Random-walk Metropolis, which adapts its proposals during warm-up. A step is one evaluation of the density, or
    /// with `by_component` one evaluation for the weights and one for each component.
    #[non_exhaustive]
    Metropolis {
        /// Whether weights and components are updated in turn instead of all at once.
        by_component: bool,
    },
    /// The affine-invariant ensemble of Goodman and Weare (2010). Some of its moves are differences of other walkers
    /// (ter Braak 2006). Each walker is a chain of the run.
    #[non_exhaustive]
    Ensemble {
        /// The largest stretch a > 1; Goodman and Weare take 2.
        stretch: f64,
    },
    /// The No-U-Turn sampler with a diagonal metric.
    #[non_exhaustive]
    Nuts {
        /// The acceptance probability at which warm-up aims, in (0, 1); Stan's is 0.8.
        target_accept: f64,
        /// A draw takes at most 2^max_depth − 1 gradients; Stan's depth is 10.
        max_depth: u64,
    },
}

impl Sampler {
    /// Random-walk Metropolis that updates all coordinates at once.
    pub const METROPOLIS: Self = Self::Metropolis { by_component: false };
    /// Random-walk Metropolis that updates the weights and each component in turn.
    pub const METROPOLIS_BY_COMPONENT: Self = Self::Metropolis { by_component: true };
    /// The ensemble with stretches up to 2.
    pub const ENSEMBLE: Self = Self::Ensemble { stretch: 2.0 };
    /// NUTS with Stan's settings.
    pub const NUTS: Self = Self::Nuts { target_accept: 0.8, max_depth: 10 };

    /// Returns the ensemble with stretches up to this number.
    pub const fn ensemble(stretch: f64) -> Self {
        Self::Ensemble { stretch }
    }

    /// Returns NUTS with this target acceptance probability and tree depth.
    pub const fn nuts(target_accept: f64, max_depth: u64) -> Self {
        Self::Nuts { target_accept, max_depth }
    }

    /// Returns the name: `metropolis`, `ensemble` or `nuts`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Metropolis { .. } => "metropolis",
            Self::Ensemble { .. } => "ensemble",
            Self::Nuts { .. } => "nuts",
        }
    }

    /// Returns CmdStan's names of the statistics recorded with each draw.
    pub fn statistics(&self) -> &'static [&'static str] {
        match self {
            Self::Nuts { .. } => {
                &["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__"]
            }
            _ => &["lp__", "accept_stat__"],
        }
    }
}

/// Settings of a run. The methods with the names of the fields set them:
///
/// ```
/// use gmm_mcmc::{Sampler, Settings};
///
/// let settings = Settings::new(Sampler::METROPOLIS).warmup(5000).thin(20).seed(7);
/// assert_eq!((settings.chains, settings.draws), (4, 1000));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// The sampler.
    pub sampler: Sampler,
    /// C, the number of chains. For the ensemble the number of walkers: even, more than dim, and at least 4; twice dim
    /// is a good start.
    pub chains: usize,
    /// Iterations of warm-up, whose draws are not recorded.
    pub warmup: usize,
    /// S, the number of recorded draws of each chain.
    pub draws: usize,
    /// Iterations for each recorded draw.
    pub thin: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Default for Settings {
    /// Returns NUTS with 4 chains, 1,000 iterations of warm-up and 1,000 draws, as in CmdStan.
    fn default() -> Self {
        Self { sampler: Sampler::NUTS, chains: 4, warmup: 1000, draws: 1000, thin: 1, seed: 0 }
    }
}

impl Settings {
    /// Returns this sampler with the default numbers of chains, iterations and draws. They suit NUTS;
    /// [`usual`](Self::usual) has better ones for the other samplers.
    pub fn new(sampler: Sampler) -> Self {
        Self { sampler, ..Self::default() }
    }

    /// Sets the sampler.
    pub fn sampler(self, sampler: Sampler) -> Self {
        Self { sampler, ..self }
    }

    /// Sets the number of chains.
    pub fn chains(self, chains: usize) -> Self {
        Self { chains, ..self }
    }

    /// Sets the number of warm-up iterations.
    pub fn warmup(self, warmup: usize) -> Self {
        Self { warmup, ..self }
    }

    /// Sets the number of draws of each chain.
    pub fn draws(self, draws: usize) -> Self {
        Self { draws, ..self }
    }

    /// Sets the number of iterations for each draw.
    pub fn thin(self, thin: usize) -> Self {
        Self { thin, ..self }
    }

    /// Sets the seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Returns settings with which the chains usually agree.
    ///
    /// For NUTS they are those of [`Settings::default`]. A step of random-walk Metropolis or of the ensemble covers
    /// about 1/√dim of the distance across the posterior, so an effective draw takes a few times dim steps (Gelman,
    /// Roberts and Gilks 1996: 3 dim at best). These settings take 2 dim steps for a draw, and 500 dim for the warm-up,
    /// which must learn the covariance (200 dim for the ensemble, which does not learn one). An iteration of Metropolis
    /// by component is one step in each block. The ensemble has 2 dim walkers with 200 draws each.
    pub fn usual(sampler: Sampler, model: &PosteriorModel) -> Self {
        let dim = model.dim();
        let usual = Self::new(sampler);
        match sampler {
            Sampler::Nuts { .. } => usual,
            Sampler::Metropolis { by_component } => {
                let blocks = if by_component { model.blocks().len() } else { 1 };
                usual.warmup((500 * dim).div_ceil(blocks)).thin((2 * dim).div_ceil(blocks))
            }
            Sampler::Ensemble { .. } => usual.chains((2 * dim).max(4)).warmup(200 * dim).draws(200).thin(2 * dim),
        }
    }

    /// Checks the settings for a target of `dim` coordinates.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting); [`Error::Host`](crate::Error::Host) if memory is too small for the
    /// chains.
    pub fn check(&self, dim: usize) -> Result<()> {
        for (what, value) in
            [("the number of chains", self.chains), ("the number of draws", self.draws), ("thin", self.thin)]
        {
            if value == 0 {
                return setting(what, value, "at least 1 is needed");
            }
        }
        self.check_memory(dim)?;
        match self.sampler {
            Sampler::Ensemble { stretch } => {
                if !(stretch > 1.0 && stretch.is_finite()) {
                    return setting("the stretch of the ensemble", stretch, "a finite number above 1 is needed");
                }
                if self.chains <= dim || self.chains < 4 || !self.chains.is_multiple_of(2) {
                    let even = (2 * dim).max(4);
                    let remedy = format!(
                        "an even number above the {dim} parameters, at least 4, is needed; {even} is a good start"
                    );
                    return setting("the number of walkers (chains) of the ensemble", self.chains, remedy);
                }
            }
            Sampler::Metropolis { .. } | Sampler::Nuts { .. } => {
                if self.warmup < MIN_WARMUP {
                    let remedy =
                        format!("{} adapts its steps then: at least {MIN_WARMUP} are needed", self.sampler.name());
                    return setting("the number of warm-up iterations", self.warmup, remedy);
                }
            }
        }
        if let Sampler::Metropolis { by_component: false } = self.sampler {
            let (what, remedy) = ("the covariances of the proposals", "use fewer chains, or metropolis by component");
            memory::check(what, &[self.chains, dim, dim], OF_A_PROPOSAL * size_of::<f64>(), remedy)?;
        }
        if let Sampler::Nuts { target_accept, max_depth } = self.sampler {
            if !(target_accept > 0.0 && target_accept < 1.0) {
                return setting("the target acceptance of NUTS", target_accept, "a number between 0 and 1 is needed");
            }
            if !(1..=20).contains(&max_depth) {
                return setting("the maximal tree depth of NUTS", max_depth, "1 to 20 is possible");
            }
        }
        Ok(())
    }

    /// Checks that memory is enough for all draws, of `dim` coordinates each: they stay in memory during the run. A run
    /// that will be stopped earlier needs no check.
    ///
    /// # Errors
    /// [`Error::Host`](crate::Error::Host).
    pub fn check_draws(&self, dim: usize) -> Result<()> {
        let width = dim.saturating_add(self.sampler.statistics().len());
        let remedy = "make fewer draws, and let more iterations pass for each (thin)";
        Ok(memory::check("the draws", &[self.chains, self.draws, width], size_of::<f64>(), remedy)?)
    }

    /// Checks that memory is enough for the chains: the start, the present and the proposed point of each with their
    /// data, and its random numbers. Errors: the engine's error for memory.
    pub(super) fn check_memory(&self, dim: usize) -> Result<()> {
        let numbers = dim.saturating_mul(4).saturating_add(OF_A_CHAIN);
        let checked = memory::check("the chains", &[self.chains, numbers], size_of::<f64>(), "use fewer chains");
        Ok(checked?)
    }
}

/// The shortest warm-up in which samplers can adapt.
const MIN_WARMUP: usize = 20;
