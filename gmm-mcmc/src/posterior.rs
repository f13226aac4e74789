//! The posterior density: likelihood from an evaluator, prior and Jacobians from the model.
use crate::target::{Identity, Target, Variable};
use crate::walk::Walk;
use crate::{Model, Result};
use gmm_host::{Evaluator, MetropolisSteps, MetropolisTarget, Mixture};
use rayon::prelude::*;

/// From this many coordinates (points × dim) on, several threads share the work on a batch.
pub(crate) const PARALLEL: usize = 4096;

/// Fused multiply-adds in a second, and seconds of a step besides them: a rough estimate of a step on a device.
const SPEED: f64 = 1e13;
const STEP: f64 = 3e-6;
/// About how long a segment may take, in seconds: of all chains, and of each at least.
const SEGMENT: (f64, f64) = (0.1, 0.025);

/// The posterior of a [`Model`] over the data that an evaluator holds.
pub struct Posterior<'a> {
    model: &'a Model,
    evaluator: &'a mut dyn Evaluator,
    evaluations: u64,
    /// The posterior as the evaluator takes it if it walks by itself; none once it is known not to.
    walk: Option<MetropolisTarget>,
    /// Whether it is known to.
    walks: bool,
}

impl<'a> Posterior<'a> {
    /// # Errors
    /// [`gmm_host::Error::ShapeMismatch`] when the evaluator's data has not the N and D that the model was made for.
    pub fn new(model: &'a Model, evaluator: &'a mut dyn Evaluator) -> Result<Self> {
        let expected = vec![model.data().n_samples, model.n_features()];
        let got = vec![evaluator.n_samples(), evaluator.n_features()];
        if got != expected {
            let what = "the evaluator's data (against the model's)";
            return Err(gmm_host::Error::ShapeMismatch { what, expected, got }.into());
        }
        // A chain compares densities of different times: all of them come from one device.
        evaluator.settle();
        Ok(Self { model, evaluator, evaluations: 0, walk: model.walk_target(), walks: false })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        self.model
    }

    /// The evaluator.
    pub fn evaluator(&self) -> &dyn Evaluator {
        self.evaluator
    }

    /// The log densities of points by the evaluator's walk, one at a time; false if it does not walk.
    fn walk_to(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<bool> {
        let Some(target) = &self.walk else { return Ok(false) };
        for (theta, out) in thetas.chunks_exact(target.dim()).zip(out) {
            let mut here = Here { left: 1, log_density: f64::NEG_INFINITY };
            // From nowhere, where every step is rejected.
            if !self.evaluator.metropolis(target, theta, f64::NAN, &mut here)? {
                self.walk = None;
                return Ok(false);
            }
            self.evaluations += 1;
            *out = here.log_density;
        }
        self.walks = true;
        Ok(true)
    }
}

/// One step that stays where it is.
struct Here {
    left: usize,
    log_density: f64,
}

impl MetropolisSteps for Here {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        rows.fill(0.0);
        std::mem::take(&mut self.left)
    }

    fn record(&mut self, _: &[f64], log_densities: &[f64]) {
        self.log_density = log_densities[0];
    }
}

/// The mixture and the log prior at a point; `None` where it has no density.
fn prepare(model: &Model, theta: &[f64]) -> Option<(Mixture, f64)> {
    let point = model.point(theta);
    let log_prior = model.log_prior(theta, &point);
    let mixture = Mixture::new(point.weights, point.means, point.covariances).ok()?;
    log_prior.is_finite().then_some((mixture, log_prior))
}

/// A mixture so far from the data that the backend's precision cannot evaluate it has no density to speak of: the
/// proposal is rejected. NaN, which no evaluator should give, is treated alike.
fn or_impossible(log_likelihood: gmm_host::Result<f64>) -> Result<f64> {
    match log_likelihood {
        Ok(v) if v.is_nan() => Ok(f64::NEG_INFINITY),
        Ok(v) => Ok(v),
        Err(gmm_host::Error::OutOfRange { .. }) => Ok(f64::NEG_INFINITY),
        Err(e) => Err(e.into()),
    }
}

impl Target for Posterior<'_> {
    fn dim(&self) -> usize {
        self.model.dim()
    }

    fn log_density(&mut self, theta: &[f64]) -> Result<f64> {
        let Some((mixture, log_prior)) = prepare(self.model, theta) else { return Ok(f64::NEG_INFINITY) };
        self.evaluations += 1;
        Ok(or_impossible(self.evaluator.log_likelihood(&mixture))? + log_prior)
    }

    fn log_density_batch(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        let (dim, model) = (self.dim(), self.model);
        let prepared: Vec<Option<(Mixture, f64)>> = if thetas.len() < PARALLEL {
            thetas.chunks_exact(dim).map(|t| prepare(model, t)).collect()
        } else {
            thetas.par_chunks_exact(dim).map(|t| prepare(model, t)).collect()
        };
        out.fill(f64::NEG_INFINITY);
        let (mut mixtures, mut places) = (Vec::with_capacity(out.len()), Vec::with_capacity(out.len()));
        for (i, p) in prepared.into_iter().enumerate() {
            if let Some((mixture, log_prior)) = p {
                mixtures.push(mixture);
                places.push((i, log_prior));
            }
        }
        self.evaluations += mixtures.len() as u64;
        match self.evaluator.log_likelihood_batch(&mixtures) {
            Ok(values) => {
                for ((i, log_prior), v) in places.into_iter().zip(values) {
                    out[i] = or_impossible(Ok(v))? + log_prior;
                }
            }
            // One is too far out, which fails the batch: find out which.
            Err(gmm_host::Error::OutOfRange { .. }) => {
                for ((i, log_prior), mixture) in places.into_iter().zip(&mixtures) {
                    let one = self.evaluator.log_likelihood_batch(std::slice::from_ref(mixture)).map(|v| v[0]);
                    out[i] = or_impossible(one)? + log_prior;
                }
            }
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn log_density_gradient(&mut self, theta: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let point = self.model.point(theta);
        let log_prior = self.model.log_prior(theta, &point);
        gradient.fill(0.0);
        let parts = (point.weights.clone(), point.means.clone(), point.covariances.clone());
        let Ok(mixture) = Mixture::new(parts.0, parts.1, parts.2) else { return Ok(f64::NEG_INFINITY) };
        self.evaluations += 1;
        let statistics = match self.evaluator.statistics(&mixture) {
            Ok(s) => s,
            Err(gmm_host::Error::OutOfRange { .. } | gmm_host::Error::NonFiniteStatistic { .. }) => {
                return Ok(f64::NEG_INFINITY);
            }
            Err(e) => return Err(e.into()),
        };
        self.model.gradient(theta, &point, &statistics, gradient);
        Ok(or_impossible(Ok(statistics.log_likelihood()))? + log_prior)
    }

    fn why_unusable(&mut self, theta: &[f64]) -> Result<Option<String>> {
        if let Some(i) = theta.iter().position(|v| !v.is_finite()) {
            return Ok(Some(format!("{} is {}", self.coordinate(i), theta[i])));
        }
        let point = self.model.point(theta);
        let log_prior = self.model.log_prior(theta, &point);
        let mixture = match Mixture::new(point.weights, point.means, point.covariances) {
            Ok(mixture) => mixture,
            Err(e) => return Ok(Some(format!("its parameters are no mixture ({e})"))),
        };
        if !log_prior.is_finite() {
            let farthest = self.coordinate(self.model.farthest_mean(theta, &self.model.point(theta)));
            return Ok(Some(format!("the log density of the prior is {log_prior} (farthest from it is {farthest})")));
        }
        match self.evaluator.score_samples(&mixture) {
            Err(e @ gmm_host::Error::OutOfRange { .. }) => return Ok(Some(e.to_string())),
            Err(e) => return Err(e.into()),
            Ok(scores) => {
                if let Some(i) = scores.iter().position(|v| !v.is_finite()) {
                    return Ok(Some(format!("the log density of sample {i} (counted from 0) is {}", scores[i])));
                }
            }
        }
        let mut gradient = vec![0.0; self.dim()];
        let value = self.log_density_gradient(theta, &mut gradient)?;
        if let Some(i) = gradient.iter().position(|g| !g.is_finite() || *g == 0.0) {
            return Ok(Some(format!("the gradient by {} is {}", self.coordinate(i), gradient[i])));
        }
        Ok((!value.is_finite()).then(|| format!("the log density is {value}, or its gradient is not finite")))
    }

    fn coordinate(&self, i: usize) -> String {
        self.model.coordinate(i)
    }

    fn blocks(&self) -> Vec<Vec<usize>> {
        self.model.blocks()
    }

    fn variables(&self) -> Vec<Variable> {
        self.model.variables()
    }

    fn parameters(&self, theta: &[f64]) -> Vec<f64> {
        self.model.parameters(theta)
    }

    fn identity(&self) -> Identity {
        let (model, description) = (self.model, self.evaluator.describe());
        let prior = serde_json::to_string(model.prior()).unwrap_or_else(|e| format!("unwritable: {e}"));
        Identity {
            model: format!(
                "K = {}, D = {}, {}, {}",
                model.n_components(),
                model.n_features(),
                model.covariance_type(),
                model.order().map_or("unordered".into(), |c| format!("ordered by column {c}"))
            ),
            prior,
            data: format!("N = {}, sha256 {}", model.data().n_samples, model.data().hash),
            device: description.device,
            kernel: description.kernel,
        }
    }

    fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// One on the host; as many as take a fraction of a second where the evaluator walks by itself.
    fn segment_steps(&self, chains: usize) -> usize {
        if !self.walks {
            return 1;
        }
        let (n, k, d) = (self.model.data().n_samples, self.model.n_components(), self.model.n_features());
        let step = n as f64 * (k * (2 * d + 1)) as f64 / SPEED + STEP;
        ((SEGMENT.0 / chains as f64).max(SEGMENT.1) / step).max(1.0) as usize
    }

    fn walk_densities(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        if self.walk_to(thetas, out)? { Ok(()) } else { self.log_density_batch(thetas, out) }
    }

    /// By the evaluator where it walks by itself.
    fn metropolis(&mut self, walk: &mut Walk<'_>) -> Result<()> {
        if !self.walks {
            self.walk_to(walk.point(0), &mut [0.0])?;
        }
        let Some(target) = &self.walk else { return walk.run(self) };
        let (steps, evaluator, evaluations) = (walk.steps() as u64, &mut *self.evaluator, &mut self.evaluations);
        walk.each_chain(|point, log_density, each| {
            if !evaluator.metropolis(target, point, log_density, each)? {
                let (what, remedy) = ("a walk in the middle of a run".into(), "resume it");
                return Err(gmm_host::Error::Unsupported { what, backend: "the evaluator", remedy }.into());
            }
            *evaluations += steps;
            Ok(())
        })
    }
}
