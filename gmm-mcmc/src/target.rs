//! What the samplers need of the density that they sample from.
use crate::error::Result;
use gmm_host::MetropolisSteps;
use serde::{Deserialize, Serialize};

/// Whether work on several points, of so many coordinates in all, is shared between threads: not if
/// it is little, nor if other threads work on other points meanwhile.
pub(crate) fn is_shared_work(coordinates: usize) -> bool {
    coordinates >= 4096 && rayon::current_thread_index().is_none()
}

/// A named array of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl Variable {
    /// A variable of this name and shape.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), shape: shape.into() }
    }

    /// How many numbers it has.
    pub fn size(&self) -> usize {
        self.shape.iter().product()
    }
}

/// What a run was made with. A saved run is resumed with the same only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunIdentity {
    /// The model, in words.
    pub model: String,
    /// Its prior, as JSON.
    pub prior: String,
    /// The shape and the hash of the data.
    pub data: String,
    /// The device. It is recorded, but a run may be resumed on another one.
    pub device: String,
    /// The kernel that evaluates the likelihood.
    pub kernel: String,
}

/// A log density over ℝ^dim, as the samplers see it. [`Posterior`](crate::Posterior) is one; you
/// can sample from a target of your own as well.
///
/// A log density is a number, or −∞ where the density is 0. The same point must give the same bits
/// every time.
pub trait Target {
    /// Number of coordinates.
    fn dim(&self) -> usize;

    /// The log density at `theta` (dim,), up to a constant.
    fn log_density(&mut self, theta: &[f64]) -> Result<f64>;

    /// The log density of each of several points: `thetas` (points × dim, row by row) into `out`
    /// (points,). An implementation may share work between the points, but the value of a point
    /// must not depend on the others.
    fn log_density_batch(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        let dim = self.dim();
        for (theta, out) in thetas.chunks_exact(dim).zip(out) {
            *out = self.log_density(theta)?;
        }
        Ok(())
    }

    /// Fixes the point to which [`log_density_batch`](Self::log_density_batch) may compare the
    /// points of its batches, for targets that compute points near to each other faster by their
    /// differences. The value of a point may depend on this one in its last digits.
    fn fix_reference(&mut self, _theta: &[f64]) {}

    /// Whether random-walk Metropolis is to evaluate each step of all chains, which begin at these
    /// points, in a batch ([`fix_reference`](Self::fix_reference)), and not to ask for the steps of
    /// one chain after the other ([`metropolis`](Self::metropolis)).
    fn prefers_batches(&mut self, _points: &[Vec<f64>]) -> Result<bool> {
        Ok(false)
    }

    /// Another target of the same density, with the same bits, for a thread of its own. Evaluations
    /// that it makes count as this one's.
    ///
    /// # Errors
    /// [`gmm_host::Error::Unsupported`] if there can be none.
    fn share(&self) -> Result<Box<dyn Target + Send + '_>> {
        let what = "evaluation of a density by several threads".into();
        Err(gmm_host::Error::Unsupported { what, backend: "this target", remedy: "use one thread" }.into())
    }

    /// With how many [shares](Self::share), each in a thread of its own, many chains are sampled in
    /// the least time; one where the target itself is as fast.
    fn useful_shares(&self) -> usize {
        1
    }

    /// The log density at `theta` and its gradient, which is written to `gradient` (dim,).
    fn log_density_gradient(&mut self, theta: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Why a chain cannot begin at `theta`, in words; `None` if it can. It cannot where the log
    /// density or a part of the gradient is not finite, nor where a part of the gradient is 0,
    /// because NUTS takes its first scales from the gradient.
    fn why_unusable(&mut self, theta: &[f64]) -> Result<Option<String>> {
        let mut gradient = vec![0.0; self.dim()];
        let value = self.log_density_gradient(theta, &mut gradient)?;
        if !value.is_finite() {
            return Ok(Some(format!("the log density is {value}")));
        }
        let unusable = gradient.iter().position(|g| !g.is_finite() || *g == 0.0);
        Ok(unusable.map(|i| format!("the gradient by {} is {}", self.coordinate(i), gradient[i])))
    }

    /// The meaning of coordinate `i`, in words.
    fn coordinate(&self, i: usize) -> String {
        format!("coordinate {i} (counted from 0)")
    }

    /// The blocks of coordinates that component-wise Metropolis updates one after the other. The
    /// default is one block of all.
    fn blocks(&self) -> Vec<Vec<usize>> {
        vec![(0..self.dim()).collect()]
    }

    /// Names and shapes of the arrays in which a draw is recorded.
    fn variables(&self) -> Vec<Variable> {
        vec![Variable::new("theta", [self.dim()])]
    }

    /// The numbers of [`variables`](Self::variables) at a point, row-major, one variable after the
    /// other.
    fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        theta.to_vec()
    }

    /// What distinguishes this target from others. The kernel is that of the last evaluation.
    fn identity(&self) -> RunIdentity {
        RunIdentity::default()
    }

    /// The number of evaluations so far, of the density alone or with its gradient; 0 if the target
    /// does not count them.
    fn evaluations(&self) -> u64 {
        0
    }

    /// How many steps of random-walk Metropolis this target prefers to make in one call of
    /// [`metropolis`](Self::metropolis), if so many chains are run. The run calls back after each
    /// such segment. A segment ends at a multiple of this number (in whole draws) or at the end of
    /// the run.
    fn segment_steps(&self, _chains: usize) -> usize {
        1
    }

    /// Takes one chain of random-walk Metropolis, after warm-up, from `point`, whose log density is
    /// `log_density`, through all of `steps`: for targets that can make many steps where the data
    /// is, without waiting for the host between them.
    ///
    /// Returns false, without having asked `steps` for anything, if this target leaves the steps to
    /// the sampler. The sampler then makes the steps of all chains together, with one call of
    /// [`metropolis_densities`](Self::metropolis_densities) each.
    fn metropolis(&mut self, _point: &[f64], _log_density: f64, _steps: &mut dyn MetropolisSteps) -> Result<bool> {
        Ok(false)
    }

    /// The log densities of several points, to the bit as [`metropolis`](Self::metropolis) computes
    /// them. The arguments are those of [`log_density_batch`](Self::log_density_batch), which is
    /// the default.
    fn metropolis_densities(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        self.log_density_batch(thetas, out)
    }
}
