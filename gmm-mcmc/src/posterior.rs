//! The posterior density: the likelihood from an evaluator, the prior and the Jacobians from the model.
use crate::error::Result;
use crate::model::PosteriorModel;
use crate::samplers::reference::MANY_CHAINS;
use crate::target::{RunIdentity, Target, Variable, is_shared_work};
use gmm_host::{Evaluator, MetropolisSteps, MetropolisTarget, Mixture};
use rayon::prelude::*;
use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The approximate cost of a Metropolis step by the evaluator on a GPU: fused multiply-adds in a second, and the
/// overhead of each step in seconds.
const MULTIPLY_ADDS_PER_SECOND: f64 = 1e13;
const SECONDS_PER_STEP: f64 = 3e-6;
/// The multiply-adds of a step from which many chains are faster in batches, whose steps the host makes, than one after
/// another by the evaluator: for enough chains to let several threads prepare batches, and for fewer. Measured on
/// machines with an H200, N = 10⁶, D = 13, K = 8 (2.2·10⁸ multiply-adds): a step of 64 chains takes 20 µs by the
/// evaluator; in batches 6.3 µs with four threads, 7.9 with three.
const MULTIPLY_ADDS_OF_BATCHES: [(usize, f64); 2] = [(64, 1e8), (MANY_CHAINS, 3e8)];
/// The approximate time of a segment: for all chains together, and the least for each chain.
const SEGMENT_SECONDS: f64 = 0.1;
const LEAST_CHAIN_SECONDS: f64 = 0.025;

/// The posterior of a [`PosteriorModel`] over an evaluator's data. `E` is a borrowed evaluator, or an owned share of
/// another's ([`Target::share`]).
pub struct Posterior<'a, E = &'a mut (dyn Evaluator + 'a)> {
    model: &'a PosteriorModel,
    evaluator: E,
    is_share: bool,
    /// Includes the evaluations of its shares.
    evaluations: Arc<AtomicU64>,
    /// The density for an evaluator that makes the steps of random-walk Metropolis itself; `None` if the sampler makes
    /// them.
    metropolis_target: Option<MetropolisTarget>,
    /// Whether the evaluator has made such steps.
    evaluator_made_steps: bool,
    /// The point to which the evaluator compares batches.
    reference: Option<Vec<f64>>,
}

impl<'a> Posterior<'a> {
    /// Returns the posterior of a model, given the evaluator's data.
    ///
    /// # Errors
    /// [`gmm_host::Error::ShapeMismatch`] if N or D of the evaluator's data differ from the model's.
    pub fn new(model: &'a PosteriorModel, evaluator: &'a mut dyn Evaluator) -> Result<Self> {
        let expected = vec![model.data().n_samples, model.n_features()];
        let got = vec![evaluator.n_samples(), evaluator.n_features()];
        if got != expected {
            let what = "the evaluator's data (against the model's)";
            return Err(gmm_host::Error::ShapeMismatch { what, expected, got }.into());
        }
        // A chain compares log densities computed at different times, so they must all come from one device.
        evaluator.sampling().into_iter().for_each(|sampling| sampling.settle());
        let metropolis_target = model.metropolis_target();
        Ok(Self {
            model,
            evaluator,
            is_share: false,
            evaluations: Arc::default(),
            metropolis_target,
            evaluator_made_steps: false,
            reference: None,
        })
    }

    /// Returns the model.
    pub fn model(&self) -> &PosteriorModel {
        self.model
    }

    /// Returns the evaluator.
    pub fn evaluator(&self) -> &dyn Evaluator {
        self.evaluator
    }
}

impl<'a, E: DerefMut<Target = dyn Evaluator + 'a>> Posterior<'a, E> {
    fn count(&self, evaluations: usize) {
        self.evaluations.fetch_add(evaluations as u64, Ordering::Relaxed);
    }

    /// Returns the multiply-adds of a likelihood's exponents under diagonal covariances.
    fn multiply_adds(&self) -> f64 {
        let (n, k, d) = (self.model.data().n_samples, self.model.n_components(), self.model.n_features());
        n as f64 * (k * (2 * d + 1)) as f64
    }

    /// Returns the log density at a point by the evaluator's own steps; `None` if it makes none.
    fn step_in_place(&mut self, theta: &[f64]) -> Result<Option<f64>> {
        let mut step = StepInPlace { proposed: false, log_density: f64::NEG_INFINITY };
        // NaN stands for the unknown log density at the point. Comparisons with NaN are false, so the step is rejected,
        // and only the log density of its proposal is used.
        Ok(self.metropolis(theta, f64::NAN, &mut step)?.then_some(step.log_density))
    }
}

struct CountedSteps<'a> {
    steps: &'a mut dyn MetropolisSteps,
    evaluated: usize,
}

impl MetropolisSteps for CountedSteps<'_> {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        self.steps.propose(rows)
    }

    fn record(&mut self, rows: &[f64], log_densities: &[f64]) {
        self.evaluated += log_densities.len();
        self.steps.record(rows, log_densities);
    }
}

/// One step with an increment of 0 in each coordinate, whose proposal is the point itself.
struct StepInPlace {
    proposed: bool,
    log_density: f64,
}

impl MetropolisSteps for StepInPlace {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        rows.fill(0.0);
        usize::from(!std::mem::replace(&mut self.proposed, true))
    }

    fn record(&mut self, _: &[f64], log_densities: &[f64]) {
        self.log_density = log_densities[0];
    }
}

/// Returns the mixture and the log prior at a point; `None` if the density is 0.
fn prepare(model: &PosteriorModel, theta: &[f64]) -> Option<(Mixture, f64)> {
    let parameters = model.mixture_parameters(theta);
    let log_prior = model.log_prior(theta, &parameters);
    let mixture = Mixture::new(parameters.weights, parameters.means, parameters.covariances).ok()?;
    log_prior.is_finite().then_some((mixture, log_prior))
}

/// Returns the log-likelihood, or −∞ if the mixture is too far from the data for the evaluator's precision: the
/// likelihood is then practically 0, and a proposal is rejected. NaN, which no evaluator should return, is treated
/// alike.
fn or_impossible(log_likelihood: gmm_host::Result<f64>) -> Result<f64> {
    match log_likelihood {
        Ok(v) if v.is_nan() => Ok(f64::NEG_INFINITY),
        Ok(v) => Ok(v),
        Err(gmm_host::Error::OutOfRange { .. }) => Ok(f64::NEG_INFINITY),
        Err(e) => Err(e.into()),
    }
}

impl<'a, E: DerefMut<Target = dyn Evaluator + 'a>> Target for Posterior<'a, E> {
    fn dim(&self) -> usize {
        self.model.dim()
    }

    fn log_density(&mut self, theta: &[f64]) -> Result<f64> {
        let Some((mixture, log_prior)) = prepare(self.model, theta) else { return Ok(f64::NEG_INFINITY) };
        self.count(1);
        Ok(or_impossible(self.evaluator.log_likelihood(&mixture))? + log_prior)
    }

    fn log_density_batch(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        let (dim, model) = (self.dim(), self.model);
        let prepared: Vec<Option<(Mixture, f64)>> = if is_shared_work(thetas.len()) {
            thetas.par_chunks_exact(dim).map(|t| prepare(model, t)).collect()
        } else {
            thetas.chunks_exact(dim).map(|t| prepare(model, t)).collect()
        };
        out.fill(f64::NEG_INFINITY);
        let (mut mixtures, mut places) = (Vec::with_capacity(out.len()), Vec::with_capacity(out.len()));
        for (i, p) in prepared.into_iter().enumerate() {
            if let Some((mixture, log_prior)) = p {
                mixtures.push(mixture);
                places.push((i, log_prior));
            }
        }
        self.count(mixtures.len());
        match self.evaluator.log_likelihood_batch(&mixtures) {
            Ok(values) => {
                for ((i, log_prior), v) in places.into_iter().zip(values) {
                    out[i] = or_impossible(Ok(v))? + log_prior;
                }
            }
            // One mixture out of range fails the whole batch, so each is evaluated by itself.
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

    fn share(&self) -> Result<Box<dyn Target + Send + '_>> {
        Ok(Box::new(Posterior {
            model: self.model,
            evaluator: self.evaluator.share()?,
            is_share: true,
            evaluations: self.evaluations.clone(),
            metropolis_target: None,
            evaluator_made_steps: false,
            reference: None,
        }))
    }

    fn useful_shares(&mut self) -> usize {
        self.evaluator.sampling().map_or(1, |sampling| sampling.useful_shares())
    }

    fn fix_reference(&mut self, theta: &[f64]) {
        if self.reference.as_deref() != Some(theta) {
            self.reference = Some(theta.to_vec());
            if let (Some(mixture), Some(sampling)) = (self.model.mixture(theta), self.evaluator.sampling()) {
                sampling.fix_batch_reference(&mixture);
            }
        }
    }

    fn prefers_batches(&mut self, points: &[Vec<f64>]) -> Result<bool> {
        let Some((_, least)) = MULTIPLY_ADDS_OF_BATCHES.iter().find(|(chains, _)| points.len() >= *chains) else {
            return Ok(false);
        };
        Ok(self.multiply_adds() >= *least || self.step_in_place(&points[0])?.is_none())
    }

    fn log_density_gradient(&mut self, theta: &[f64], gradient: &mut [f64]) -> Result<f64> {
        let p = self.model.mixture_parameters(theta);
        let log_prior = self.model.log_prior(theta, &p);
        gradient.fill(0.0);
        let Ok(mixture) = Mixture::new(p.weights.clone(), p.means.clone(), p.covariances.clone()) else {
            return Ok(f64::NEG_INFINITY);
        };
        self.count(1);
        let statistics = match self.evaluator.statistics(&mixture) {
            Ok(s) => s,
            Err(gmm_host::Error::OutOfRange { .. } | gmm_host::Error::NonFiniteStatistic { .. }) => {
                return Ok(f64::NEG_INFINITY);
            }
            Err(e) => return Err(e.into()),
        };
        self.model.gradient(theta, &p, &statistics, gradient);
        Ok(or_impossible(Ok(statistics.log_likelihood()))? + log_prior)
    }

    fn why_unusable(&mut self, theta: &[f64]) -> Result<Option<String>> {
        if let Some(i) = theta.iter().position(|v| !v.is_finite()) {
            return Ok(Some(format!("{} is {}", self.coordinate(i), theta[i])));
        }
        let p = self.model.mixture_parameters(theta);
        let log_prior = self.model.log_prior(theta, &p);
        let mixture = match Mixture::new(p.weights, p.means, p.covariances) {
            Ok(mixture) => mixture,
            Err(e) => return Ok(Some(format!("its parameters are not a mixture ({e})"))),
        };
        if !log_prior.is_finite() {
            let farthest = self.coordinate(self.model.farthest_mean(theta));
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

    fn identity(&self) -> RunIdentity {
        let (model, description) = (self.model, self.evaluator.describe());
        let prior = serde_json::to_string(model.prior()).unwrap_or_else(|e| format!("unwritable: {e}"));
        RunIdentity {
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
        self.evaluations.load(Ordering::Relaxed)
    }

    /// As many steps as take a fraction of a second if the evaluator makes them itself, or several threads do; else
    /// one.
    fn segment_steps(&self, chains: usize) -> usize {
        let seconds = SEGMENT_SECONDS / chains as f64;
        let seconds = match (self.is_share, self.evaluator_made_steps) {
            (true, _) => seconds,
            (false, true) => seconds.max(LEAST_CHAIN_SECONDS),
            (false, false) => return 1,
        };
        let step = self.multiply_adds() / MULTIPLY_ADDS_PER_SECOND + SECONDS_PER_STEP;
        (seconds / step).max(1.0) as usize
    }

    fn metropolis(&mut self, point: &[f64], log_density: f64, steps: &mut dyn MetropolisSteps) -> Result<bool> {
        let Some(target) = &self.metropolis_target else { return Ok(false) };
        let mut counted = CountedSteps { steps, evaluated: 0 };
        let made = match self.evaluator.sampling() {
            Some(sampling) => sampling.metropolis(target, point, log_density, &mut counted)?,
            None => false,
        };
        self.count(counted.evaluated);
        if made {
            self.evaluator_made_steps = true;
        } else if self.evaluator_made_steps {
            // Another kernel's log densities may differ in the last bits, so the sampler cannot take over.
            let what = "Metropolis steps such as it made before".into();
            return Err(
                gmm_host::Error::Unsupported { what, backend: "the evaluator", remedy: "resume the run" }.into()
            );
        } else {
            self.metropolis_target = None;
        }
        Ok(made)
    }

    fn metropolis_densities(&mut self, thetas: &[f64], out: &mut [f64]) -> Result<()> {
        for (i, theta) in thetas.chunks_exact(self.dim()).enumerate() {
            match self.step_in_place(theta)? {
                Some(log_density) => out[i] = log_density,
                None => return self.log_density_batch(thetas, out),
            }
        }
        Ok(())
    }
}
