//! The interface of the density from which samplers draw.
use crate::error::Result;
use gmm_host::MetropolisSteps;
use serde::{Deserialize, Serialize};

/// Whether to share work on several points, of `coordinates` coordinates in all, between threads: not if it is little,
/// or if other threads work on other points meanwhile.
pub(crate) fn is_shared_work(coordinates: usize) -> bool {
    coordinates >= 4096 && rayon::current_thread_index().is_none()
}

/// A named array of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
}

impl Variable {
    /// Returns a variable of this name and shape.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), shape: shape.into() }
    }

    /// Returns the count of its numbers.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The identity of a run. A saved run is resumed only with the same identity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunIdentity {
    /// The model, in words.
    pub model: String,
    /// The prior, as JSON.
    pub prior: String,
    /// The shape and the hash of the data.
    pub data: String,
    /// The device. It is recorded, but a run may be resumed on another one.
    pub device: String,
    /// The kernel that evaluates the likelihood.
    pub kernel: String,
}

/// A log density over ℝ^dim, as the samplers see it. [`Posterior`](crate::Posterior) is one; you can also sample from
/// your own target.
///
/// A log density is a number, or −∞ where the density is 0. The same point must always give the same bits.
pub trait Target {
    /// Returns the number of coordinates.
    fn dim(&self) -> usize;

    /// Returns the log density at `theta` (dim,), up to a constant.
    fn log_density(&mut self, theta: &[f64]) -> Result<f64>;

    /// Computes the log density of each of several points: `thetas` (points × dim, row by row) into `out` (points,). An
    /// implementation may share work between the points, but the value of a point must not depend on the others.
    fn log_density_batch(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        let dim = self.dim();
        for (theta, out) in thetas.chunks_exact(dim).zip(out) {
            *out = self.log_density(theta)?;
        }
        Ok(())
    }

    /// Fixes the point to which [`log_density_batch`](Self::log_density_batch) may compare the points of its batches,
    /// for targets that compute nearby points faster by their differences. The value of a point may depend on this one
    /// in its last digits.
    fn fix_reference(&mut self, _theta: &[f64]) {}

    /// Whether random-walk Metropolis should evaluate each step of all chains, which begin at these points, in a batch
    /// ([`fix_reference`](Self::fix_reference)), instead of asking for the steps of one chain after another
    /// ([`metropolis`](Self::metropolis)).
    fn prefers_batches(&mut self, _points: &[Vec<f64>]) -> Result<bool> {
        Ok(false)
    }

    /// Returns another target of the same density, with the same bits, for another thread. Its evaluations are counted
    /// by this target. Errors: [`gmm_host::Error::Unsupported`] if the target cannot be shared.
    fn share(&self) -> Result<Box<dyn Target + Send + '_>> {
        let what = "evaluation of a density by several threads".into();
        Err(gmm_host::Error::Unsupported { what, backend: "this target", remedy: "use one thread" }.into())
    }

    /// Returns the number of [shares](Self::share), each in its own thread, that sample many chains fastest; 1 if the
    /// target itself is as fast.
    fn useful_shares(&mut self) -> usize {
        1
    }

    /// Returns the log density at `theta` and writes its gradient to `gradient` (dim,).
    fn log_density_gradient(&mut self, theta: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Returns the reason why a chain cannot begin at `theta`, in words; `None` if it can. It cannot if the log density
    /// or a part of the gradient is not finite, or if a part of the gradient is 0, because NUTS takes its first scales
    /// from the gradient.
    fn why_unusable(&mut self, theta: &[f64]) -> Result<Option<String>> {
        let mut gradient = vec![0.0; self.dim()];
        let value = self.log_density_gradient(theta, &mut gradient)?;
        if !value.is_finite() {
            return Ok(Some(format!("the log density is {value}")));
        }
        let unusable = gradient.iter().position(|g| !g.is_finite() || *g == 0.0);
        Ok(unusable.map(|i| format!("the gradient by {} is {}", self.coordinate(i), gradient[i])))
    }

    /// Describes coordinate `i` in words.
    fn coordinate(&self, i: usize) -> String {
        format!("coordinate {i} (counted from 0)")
    }

    /// Returns the blocks of coordinates that component-wise Metropolis updates in turn; by default one block of all.
    fn blocks(&self) -> Vec<Vec<usize>> {
        vec![(0..self.dim()).collect()]
    }

    /// Returns the names and shapes of the arrays in which a draw is recorded.
    fn variables(&self) -> Vec<Variable> {
        vec![Variable::new("theta", [self.dim()])]
    }

    /// Returns the numbers of [`variables`](Self::variables) at a point, row-major, variable by variable.
    fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        theta.to_vec()
    }

    /// Returns the features that distinguish this target from others. The kernel is that of the last evaluation.
    fn identity(&self) -> RunIdentity {
        RunIdentity::default()
    }

    /// Returns the number of evaluations so far, of the density alone or with its gradient; 0 if the target does not
    /// count them.
    fn evaluations(&self) -> u64 {
        0
    }

    /// Returns the number of steps of random-walk Metropolis that this target prefers to make in one call of
    /// [`metropolis`](Self::metropolis), for a run of this many chains. The run calls back after each such segment. A
    /// segment ends at a multiple of this number (in whole draws) or at the end of the run.
    fn segment_steps(&self, _chains: usize) -> usize {
        1
    }

    /// Takes one chain of random-walk Metropolis, after warm-up, from `point`, whose log density is `log_density`,
    /// through all of `steps`: for targets that can make many steps near the data without waiting for the host between
    /// them.
    ///
    /// Returns false, without having used `steps`, if this target leaves the steps to the sampler. The sampler then
    /// makes the steps of all chains together, with one call of [`metropolis_densities`](Self::metropolis_densities)
    /// each.
    fn metropolis(&mut self, _point: &[f64], _log_density: f64, _steps: &mut dyn MetropolisSteps) -> Result<bool> {
        Ok(false)
    }

    /// Computes the log densities of several points, with the bits of [`metropolis`](Self::metropolis). The arguments
    /// are those of [`log_density_batch`](Self::log_density_batch), which is the default.
    fn metropolis_densities(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        self.log_density_batch(thetas, out)
    }
}
