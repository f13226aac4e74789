//! The samplers behind one interface: settings, starting points, and how to go on.
use crate::ensemble::Ensemble;
use crate::error::setting;
use crate::metropolis::Metropolis;
use crate::nuts::Nuts;
use crate::target::Target;
use crate::{Error, Model, Result, rng};
use gmm_host::Mixture;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde::{Deserialize, Serialize};

/// Which sampler, with its own settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sampler {
    /// Random-walk Metropolis, adapted during warm-up. A draw is one evaluation, or with `by_component` a sweep over the
    /// weights and each component, an evaluation each.
    Metropolis {
        /// Update component by component.
        by_component: bool,
    },
    /// The affine-invariant ensemble of Goodman and Weare (2010), of whose moves some are differences of other walkers (ter
    /// Braak 2006); its chains are its walkers.
    Ensemble {
        /// a > 1, the largest stretch; 2 is theirs.
        stretch: f64,
    },
    /// The No-U-Turn sampler with a diagonal metric.
    Nuts {
        /// The acceptance that warm-up steers towards, in (0, 1); 0.8 is Stan's.
        target_accept: f64,
        /// At most 2^max_depth − 1 gradients a draw; 10 is Stan's.
        max_depth: u64,
    },
}

impl Sampler {
    /// Random-walk Metropolis in one block.
    pub const METROPOLIS: Self = Self::Metropolis { by_component: false };
    /// The ensemble with a = 2.
    pub const ENSEMBLE: Self = Self::Ensemble { stretch: 2.0 };
    /// NUTS with Stan's settings.
    pub const NUTS: Self = Self::Nuts { target_accept: 0.8, max_depth: 10 };

    /// The name: `metropolis`, `ensemble` or `nuts`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Metropolis { .. } => "metropolis",
            Self::Ensemble { .. } => "ensemble",
            Self::Nuts { .. } => "nuts",
        }
    }

    /// The statistics recorded with each draw, with CmdStan's names.
    pub fn statistics(&self) -> &'static [&'static str] {
        match self {
            Self::Nuts { .. } => {
                &["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__", "energy__"]
            }
            _ => &["lp__", "accept_stat__"],
        }
    }
}

/// How to sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The sampler.
    pub sampler: Sampler,
    /// C, the number of chains (for the ensemble: walkers, an even number above dim, at least 4; twice dim is a good start).
    pub chains: usize,
    /// Iterations of warm-up, which are not recorded.
    pub warmup: usize,
    /// S, the draws recorded of each chain.
    pub draws: usize,
    /// Iterations for each draw recorded.
    pub thin: usize,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for Settings {
    /// NUTS, 4 chains, 1,000 iterations of warm-up and 1,000 draws, as in CmdStan.
    fn default() -> Self {
        Self { sampler: Sampler::NUTS, chains: 4, warmup: 1000, draws: 1000, thin: 1, seed: 0 }
    }
}

impl Settings {
    /// What usually leads to chains that agree.
    ///
    /// NUTS: as [`Settings::default`]. A step of random-walk Metropolis or of the ensemble goes about 1/√dim of the way, so that an
    /// effective draw takes a few times dim steps (Gelman, Roberts and Gilks 1996: 3 dim, at best): hence 2 dim steps a
    /// draw, and 500 dim of warm-up, of which most serve to learn the covariance (200 dim in the ensemble, which has none to
    /// learn). Metropolis by component counts sweeps, of a step in each block. The ensemble has 2 dim walkers of 200 draws.
    pub fn usual(sampler: Sampler, model: &Model) -> Self {
        let dim = model.dim();
        let usual = Self { sampler, ..Self::default() };
        match sampler {
            Sampler::Nuts { .. } => usual,
            Sampler::Metropolis { by_component } => {
                let blocks = if by_component { model.blocks().len() } else { 1 };
                Self { warmup: (500 * dim).div_ceil(blocks), thin: (2 * dim).div_ceil(blocks), ..usual }
            }
            Sampler::Ensemble { .. } => {
                Self { chains: (2 * dim).max(4), warmup: 200 * dim, draws: 200, thin: 2 * dim, ..usual }
            }
        }
    }
}

/// The shortest warm-up in which the samplers that adapt can do so.
const MIN_WARMUP: usize = 20;

impl Settings {
    /// Checks the settings for a target of `dim` coordinates.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check(&self, dim: usize) -> Result<()> {
        for (what, value) in
            [("the number of chains", self.chains), ("the number of draws", self.draws), ("thin", self.thin)]
        {
            if value == 0 {
                return setting(what, value, "at least 1 is needed");
            }
        }
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
}

/// One recorded draw of one chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// The chain.
    pub chain: usize,
    /// Where it was (dim,).
    pub point: Vec<f64>,
    /// What [`Sampler::statistics`] names.
    pub statistics: Vec<f64>,
}

/// Points, their log densities, and the generators of the chains.
pub(crate) type Starts = Vec<(Vec<f64>, f64, ChaCha8Rng)>;

/// Where chains begin: points, and the scale of a step along each coordinate.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// One point for each chain.
    pub points: Vec<Vec<f64>>,
    /// A rough guess of the posterior's standard deviations (dim,), from which adaptation begins.
    pub scale: Vec<f64>,
}

/// Streams of the starting points are apart from those of the chains.
const START_STREAMS: usize = 1 << 40;

impl Start {
    /// Around a mixture, for example a fit: each chain begins at it plus normal noise of twice (for the ensemble, once)
    /// the posterior's rough standard deviations, so that the chains do not begin together.
    ///
    /// # Errors
    /// [`Error::Start`], as [`Model::unconstrain`].
    pub fn around(model: &Model, mixture: &Mixture, settings: &Settings) -> Result<Self> {
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

    /// Each chain at a draw from the prior.
    ///
    /// # Errors
    /// [`Error::Start`], as [`Model::sample_prior`].
    pub fn from_prior(model: &Model, settings: &Settings) -> Result<Self> {
        let points: Vec<Vec<f64>> = (0..settings.chains)
            .map(|c| model.sample_prior(&mut rng::stream(settings.seed, START_STREAMS + c)))
            .collect::<Result<_>>()?;
        let scale = model.typical_scale(&points[0]);
        Ok(Self { points, scale })
    }
}

/// The state of a sampler, between two iterations: all that a resumed run needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum State {
    Metropolis(Metropolis),
    Ensemble(Ensemble),
    Nuts(Nuts),
}

/// The error of a chain that cannot begin at its point; `otherwise` is the reason if the target knows none.
pub(crate) fn cannot_start(target: &mut dyn Target, chain: usize, point: &[f64], otherwise: &str) -> Result<Error> {
    let why = target.why_unusable(point)?.unwrap_or_else(|| otherwise.into());
    Ok(Error::Start(format!(
        "gives chain {chain} (counted from 0) no start: {why}; start from another model, narrow the prior, or bring the \
         columns of the data to a similar scale"
    )))
}

impl State {
    /// # Errors
    /// [`Error::Setting`], [`Error::Start`] where a starting point has no density.
    pub fn new(settings: &Settings, start: Start, target: &mut dyn Target) -> Result<Self> {
        let dim = target.dim();
        settings.check(dim)?;
        let fits = start.points.len() == settings.chains && start.points.iter().all(|p| p.len() == dim);
        if !fits || start.scale.len() != dim {
            return Err(Error::Start(format!(
                "must give {} chains a point of {dim} coordinates each",
                settings.chains
            )));
        }
        let log_densities = evaluate(settings, target, &start.points)?;
        if let Some(c) = log_densities.iter().position(|v| !v.is_finite()) {
            let value = log_densities[c];
            return Err(cannot_start(target, c, &start.points[c], &format!("the log density is {value}"))?);
        }
        if let Sampler::Nuts { .. } = settings.sampler {
            let mut gradient = vec![0.0; dim];
            for (c, point) in start.points.iter().enumerate() {
                target.log_density_gradient(point, &mut gradient)?;
                if gradient.iter().any(|g| !g.is_finite() || *g == 0.0) {
                    return Err(cannot_start(target, c, point, "a part of the gradient is 0 or not finite")?);
                }
            }
        }
        let starts: Starts = start
            .points
            .into_iter()
            .zip(log_densities)
            .enumerate()
            .map(|(c, (p, v))| (p, v, rng::stream(settings.seed, c)))
            .collect();
        Ok(match settings.sampler {
            Sampler::Metropolis { by_component } => {
                Self::Metropolis(Metropolis::new(starts, &target.blocks(), by_component, &start.scale))
            }
            Sampler::Ensemble { stretch } => Self::Ensemble(Ensemble::new(starts, stretch)),
            Sampler::Nuts { target_accept, max_depth } => Self::Nuts(Nuts::new(starts, target_accept, max_depth)),
        })
    }

    /// Where the chains are, and the log densities there.
    pub fn positions(&self) -> (Vec<Vec<f64>>, Vec<f64>) {
        let own = |(point, log_density): (&[f64], f64)| (point.to_vec(), log_density);
        match self {
            Self::Metropolis(s) => s.positions().map(own).unzip(),
            Self::Ensemble(s) => s.positions().map(own).unzip(),
            Self::Nuts(s) => s.positions().map(own).unzip(),
        }
    }
}

/// The log densities of the chains' points, by the call that the sampler itself will make, so that the kernel that the
/// target reports afterwards is the sampler's.
pub(crate) fn evaluate(settings: &Settings, target: &mut dyn Target, points: &[Vec<f64>]) -> Result<Vec<f64>> {
    let mut values = vec![0.0; points.len()];
    match settings.sampler {
        Sampler::Nuts { .. } => {
            let mut gradient = vec![0.0; target.dim()];
            for (value, point) in values.iter_mut().zip(points) {
                *value = target.log_density_gradient(point, &mut gradient)?;
            }
        }
        Sampler::Metropolis { .. } => target.walk_densities(&points.concat(), &mut values)?,
        Sampler::Ensemble { .. } => target.log_density_batch(&points.concat(), &mut values)?,
    }
    Ok(values)
}
