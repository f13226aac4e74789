//! The point to which the points of many chains are compared.
use crate::error::Result;
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// Chains from which on there is a reference. A GPU computes the log densities of so many points
/// together faster than one after the other.
pub(crate) const MANY_CHAINS: usize = 16;

/// The point that a target compares the points of many chains to ([`Target::fix_reference`]): in
/// each coordinate the median of where they were when it was last renewed, which is near to most of
/// them, also if some have gone elsewhere. That happens a few times during warm-up and never after
/// it, so that the chains then sample from one density. If the chains are few, or the target makes
/// their steps one chain after the other, there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reference(Option<Vec<f64>>);

impl Reference {
    pub fn none() -> Self {
        Self(None)
    }

    /// The reference of chains that are at these points now.
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

    /// Renews it for chains that are at these points now, and gives the log densities of the
    /// points, compared to it. After an error it is what it was.
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

    /// The log densities of proposals of random-walk Metropolis: compared to it, or where there is
    /// none, as the target's own steps have them.
    pub fn metropolis_densities(&self, target: &mut dyn Target, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        if self.fix(target) { target.log_density_batch(thetas, out) } else { target.metropolis_densities(thetas, out) }
    }

    /// Whether it is to be renewed before this iteration of the warm-up.
    pub fn is_due(&self, iteration: usize, warmup: usize) -> bool {
        self.0.is_some() && (iteration.is_power_of_two() || iteration + 1 == warmup)
    }

    /// Has the target compare to it. Returns whether there is one.
    pub fn fix(&self, target: &mut dyn Target) -> bool {
        self.0.iter().for_each(|point| target.fix_reference(point));
        self.0.is_some()
    }

    /// The point, if there is one.
    pub fn point(&self) -> Option<&[f64]> {
        self.0.as_deref()
    }
}
