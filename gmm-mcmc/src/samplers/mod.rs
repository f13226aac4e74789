//! The samplers behind one interface.
mod chain;
mod ensemble;
mod metropolis;
mod nuts;
pub(crate) mod reference;
mod settings;
pub(crate) mod team;

pub use chain::{PosteriorDraw, Start};
pub use settings::{Sampler, Settings};

use crate::error::{Error, Result};
use crate::rng;
use crate::target::Target;
use chain::{ChainStart, cannot_start};
use ensemble::Ensemble;
use metropolis::Metropolis;
use nuts::Nuts;
use reference::{MANY_CHAINS, Reference};
use serde::{Deserialize, Serialize};

/// The state of a sampler between two iterations, sufficient for resuming a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum State {
    Metropolis(Metropolis),
    Ensemble(Ensemble),
    Nuts(Nuts),
}

impl State {
    /// Returns the state before the first iteration. Errors: [`Error::Setting`], and [`Error::Start`] if a starting
    /// point does not fit or its density is 0.
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
        let reference = match settings.sampler {
            Sampler::Nuts { .. } => Reference::none(),
            Sampler::Metropolis { .. } if !target.prefers_batches(&start.points)? => Reference::none(),
            _ => Reference::of(start.points.iter().map(Vec::as_slice)),
        };
        let log_densities = evaluate(settings, target, &reference, &start.points)?;
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
        let chains = start.points.into_iter().zip(log_densities).enumerate();
        let starts: Vec<ChainStart> = chains
            .map(|(c, (point, log_density))| ChainStart { point, log_density, rng: rng::stream(settings.seed, c) })
            .collect();
        Ok(match settings.sampler {
            Sampler::Metropolis { by_component } => {
                Self::Metropolis(Metropolis::new(starts, &target.blocks(), by_component, &start.scale, reference))
            }
            Sampler::Ensemble { stretch } => Self::Ensemble(Ensemble::new(starts, stretch, reference)),
            Sampler::Nuts { target_accept, max_depth } => Self::Nuts(Nuts::new(starts, target_accept, max_depth)),
        })
    }

    /// Returns the chains' points, and the log densities there.
    pub fn points(&self) -> (Vec<Vec<f64>>, Vec<f64>) {
        let owned = |(point, log_density): (&[f64], f64)| (point.to_vec(), log_density);
        match self {
            Self::Metropolis(s) => s.points().map(owned).unzip(),
            Self::Ensemble(s) => s.points().map(owned).unzip(),
            Self::Nuts(s) => s.points().map(owned).unzip(),
        }
    }

    pub fn reference(&self) -> Reference {
        match self {
            Self::Metropolis(s) => s.reference().clone(),
            Self::Ensemble(s) => s.reference().clone(),
            Self::Nuts(_) => Reference::none(),
        }
    }

    /// Checks that a state read from a file belongs to the settings and is consistent, so that the sampler can
    /// continue. Errors: the mismatch.
    pub fn check(&self, settings: &Settings) -> Result<(), String> {
        let (points, _) = self.points();
        let dim = points.first().map_or(0, Vec::len);
        if points.len() != settings.chains || dim == 0 || points.iter().any(|p| p.len() != dim) {
            return Err("its number of chains differs from its settings, or its points differ in length".into());
        }
        settings.check(dim).map_err(|e| format!("its settings are invalid: {e}"))?;
        let many = points.len() >= MANY_CHAINS;
        let reference_fits = match self.reference().point() {
            Some(reference) => many && reference.len() == dim && reference.iter().all(|v| v.is_finite()),
            None => !many || !matches!(self, Self::Ensemble(_)),
        };
        if !reference_fits {
            return Err("the point that its log densities are compared to does not fit its chains".into());
        }
        let fits = match (self, settings.sampler) {
            (Self::Metropolis(s), Sampler::Metropolis { .. }) => s.fits_together(dim),
            (Self::Ensemble(s), Sampler::Ensemble { stretch }) => s.fits_together(stretch),
            (Self::Nuts(s), Sampler::Nuts { target_accept, max_depth }) => {
                s.fits_together(dim, target_accept, max_depth)
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err("the state of its sampler does not fit its settings".into()) }
    }
}

/// Returns the log densities of the chains' points, by the same call as the sampler's. The kernel that the target
/// reports afterwards is then the one that the sampler uses for points near the reference.
pub(crate) fn evaluate(
    settings: &Settings,
    target: &mut dyn Target,
    reference: &Reference,
    points: &[Vec<f64>],
) -> Result<Vec<f64>> {
    let mut values = vec![0.0; points.len()];
    match settings.sampler {
        Sampler::Nuts { .. } => {
            let mut gradient = vec![0.0; target.dim()];
            for (value, point) in values.iter_mut().zip(points) {
                *value = target.log_density_gradient(point, &mut gradient)?;
            }
        }
        Sampler::Metropolis { .. } => reference.metropolis_densities(target, &points.concat(), &mut values)?,
        Sampler::Ensemble { .. } => {
            reference.fix(target);
            target.log_density_batch(&points.concat(), &mut values)?;
        }
    }
    if let Some(point) = reference.point() {
        target.log_density_batch(point, &mut [0.0])?;
    }
    Ok(values)
}
