//! The point to which the points of many chains are compared.
use crate::error::Result;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// The number of chains from which there is a reference. A GPU computes the log densities of that many points faster
/// together than one after another.
pub(crate) const MANY_CHAINS: usize = 16;

/// The point to which a target compares the points of many chains ([`Target::fix_reference`]): in each coordinate the
/// median of the points at the last renewal, which is near most points even if some have gone elsewhere. It is renewed
/// a few times during warm-up and never after it, so that the chains then sample from one density. There is no
/// reference if the chains are few, or if the target makes their steps one chain after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reference(Option<Vec<f64>>);

impl Reference {
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the reference of chains at these points.
    pub fn of<'p>(points: impl ExactSizeIterator<Item = &'p [f64]>) -> Self {
        if points.len() < MANY_CHAINS {
            return Self::none();
        }
        let points: Vec<&[f64]> = points.collect();
        let median = |i: usize| {
            let mut values: Vec<f64> = points.iter().map(|point| point[i]).collect();
            let middle = values.len() / 2;
            *values.select_nth_unstable_by(middle, f64::total_cmp).1
        };
        Self(Some((0..points[0].len()).map(median).collect()))
    }

    /// Renews the reference for chains at these points, and returns the points' log densities, compared to it. After an
    /// error it is unchanged.
    pub fn renew<'p>(
        &mut self,
        target: &mut dyn Target,
        points: impl ExactSizeIterator<Item = &'p [f64]> + Clone,
    ) -> Result<Vec<f64>> {
        let renewed = Self::of(points.clone());
        renewed.fix(target);
        let mut log_densities = vec![0.0; points.len()];
        target.log_density_batch(&points.collect::<Vec<_>>().concat(), &mut log_densities)?;
        *self = renewed;
        Ok(log_densities)
    }

    /// Computes the log densities of proposals of random-walk Metropolis: compared to the reference, or without one as
    /// in the target's own steps.
    pub fn metropolis_densities(&self, target: &mut dyn Target, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        if self.fix(target) { target.log_density_batch(thetas, out) } else { target.metropolis_densities(thetas, out) }
    }

    /// Whether to renew the reference before this iteration of the warm-up.
    pub fn is_due(&self, iteration: usize, warmup: usize) -> bool {
        self.0.is_some() && (iteration.is_power_of_two() || iteration + 1 == warmup)
    }

    /// Makes the target compare to the reference. Returns whether there is one.
    pub fn fix(&self, target: &mut dyn Target) -> bool {
        self.0.iter().for_each(|point| target.fix_reference(point));
        self.0.is_some()
    }

    /// Returns the point, if any.
    pub fn point(&self) -> Option<&[f64]> {
        self.0.as_deref()
    }
}
