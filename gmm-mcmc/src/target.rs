//! What a sampler needs of the density it samples from.
use crate::Result;
use crate::walk::Walk;
use serde::{Deserialize, Serialize};

/// A named array of parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// What a run was made of; a resumed run must be made of the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Identity {
    /// The model, in words.
    pub model: String,
    /// Its prior, as JSON.
    pub prior: String,
    /// The data: shape and hash.
    pub data: String,
    /// The device (told, but free to change).
    pub device: String,
    /// The kernel that evaluates the likelihood.
    pub kernel: String,
}

/// A log density over ℝ^dim, as the samplers see it. [`Posterior`](crate::Posterior) is one; a target of your own can be
/// sampled as well.
///
/// A value is a number or −∞ (impossible); the same point gives the same bits every time.
pub trait Target {
    /// Number of coordinates.
    fn dim(&self) -> usize;

    /// The log density at `theta` (dim,), up to a constant.
    fn log_density(&mut self, theta: &[f64]) -> Result<f64>;

    /// The log density of each of several points: `thetas` (points × dim, row by row) into `out` (points,). Implementors
    /// may share the work; a point's value must not depend on the others.
    fn log_density_batch(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        let dim = self.dim();
        for (theta, out) in thetas.chunks_exact(dim).zip(out) {
            *out = self.log_density(theta)?;
        }
        Ok(())
    }

    /// The log density at `theta` and its gradient, into `gradient` (dim,).
    fn log_density_gradient(&mut self, theta: &[f64], gradient: &mut [f64]) -> Result<f64>;

    /// Why a chain cannot begin at `theta`, in words: what makes the log density there not finite, or its gradient not
    /// finite or 0, which NUTS cannot take its first scale from; `None` if nothing does.
    fn why_unusable(&mut self, theta: &[f64]) -> Result<Option<String>> {
        let mut gradient = vec![0.0; self.dim()];
        let value = self.log_density_gradient(theta, &mut gradient)?;
        if !value.is_finite() {
            return Ok(Some(format!("the log density is {value}")));
        }
        let unusable = gradient.iter().position(|g| !g.is_finite() || *g == 0.0);
        Ok(unusable.map(|i| format!("the gradient by {} is {}", self.coordinate(i), gradient[i])))
    }

    /// What coordinate `i` is, in words.
    fn coordinate(&self, i: usize) -> String {
        format!("coordinate {i} (counted from 0)")
    }

    /// The coordinates in blocks that component-wise Metropolis updates one after the other; all in one, if not said.
    fn blocks(&self) -> Vec<Vec<usize>> {
        vec![(0..self.dim()).collect()]
    }

    /// What the draws are recorded as: names and shapes.
    fn variables(&self) -> Vec<Variable> {
        vec![Variable { name: "theta".into(), shape: vec![self.dim()] }]
    }

    /// The numbers of [`variables`](Self::variables) at a point, row-major, one variable after the other.
    fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        theta.to_vec()
    }

    /// What tells this target from another. The kernel is that of the last evaluation.
    fn identity(&self) -> Identity {
        Identity::default()
    }

    /// Evaluations so far, of the density or of density and gradient; 0 where nobody counts.
    fn evaluations(&self) -> u64 {
        0
    }

    /// How many steps of random-walk Metropolis this target prefers to do at once for each of so many chains, in
    /// [`metropolis`](Self::metropolis). The run's callback comes after each such segment, and a segment
    /// ends only at a multiple of these (in whole draws) or at the end of the run.
    fn segment_steps(&self, _chains: usize) -> usize {
        1
    }

    /// The log densities of several points as [`metropolis`](Self::metropolis) computes them, to the bit.
    fn walk_densities(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        self.log_density_batch(thetas, out)
    }

    /// Runs a segment of random-walk Metropolis after warm-up. The provided method proposes and accepts on the host, with
    /// one [`walk_densities`](Self::walk_densities) per step; a target that can do the whole segment where the data
    /// is (many steps without a round trip) does it here, by [`Walk::each_chain`].
    fn metropolis(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        walk.run(self)
    }
}
