//! The report of `gmm fit`.
use crate::commands::training::Trainable;
use crate::input::Source;
use crate::terminal::text;
use gaussmix::evaluator::{Description, Evaluator, Operation};
use gaussmix::fit::{Criterion, Fit as Fitted};
use gaussmix::io::{ModelOutput, Output};
use serde::Serialize;

/// The report shows the weights of at most this many components.
const MAX_WEIGHTS: usize = 12;
/// The report shows the names of at most this many features.
const MAX_NAMES: usize = 12;

/// The report as `--json` prints it. Likelihoods are in the data's units. They and the lower bounds of --variational
/// are sums over all samples times their weights.
#[derive(Serialize)]
pub struct Report {
    n: usize,
    d: usize,
    k: usize,
    /// With --variational the components (counted from 0) whose expected number of samples is at least ½.
    #[serde(skip_serializing_if = "Option::is_none")]
    alive: Option<Vec<usize>>,
    covariance_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_concentration_prior_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_names: Option<Vec<String>>,
    n_iter: usize,
    converged: bool,
    /// Mean log-likelihood of a sample before the last M-step; with --variational the lower bound of the evidence
    /// without the terms that do not depend on the posterior, as in scikit-learn. Null without iterations.
    lower_bound: Option<f64>,
    /// The lower bound of the log-evidence; null without iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    elbo: Option<Option<f64>>,
    /// With --variational under the posterior, as in scikit-learn's `score_samples`.
    log_likelihood: f64,
    #[serde(flatten)]
    of_mixture: Option<OfMixture>,
    /// The device of the iterations; without iterations, of the log-likelihood.
    device: String,
    /// The kernel of the iterations; without iterations, of the log-likelihood.
    kernel: String,
    /// The number type of an iteration with the fitted model.
    precision: &'static str,
    #[serde(skip)]
    computed_in_float64: Option<&'static str>,
    seconds: f64,
}

#[derive(Serialize)]
struct OfNoise {
    weight: f64,
    volume: f64,
}

/// Figures of fits by EM alone.
#[derive(Serialize)]
struct OfMixture {
    bic: f64,
    aic: f64,
    /// The weight of the noise and the volume that it fills, with --noise-component.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise: Option<OfNoise>,
    /// Components (counted from 0) that kept their mean and covariance, because they had no samples or no usable
    /// covariance in the last iteration.
    retained: Vec<usize>,
}

impl Report {
    /// `iterated_by` describes the device and kernel of the iterations, if any. `fit` is in the units of the samples,
    /// `own` in the units of the data.
    pub fn new<M: Trainable>(
        source: &Source<'_>,
        evaluator: &mut dyn Evaluator,
        iterated_by: Option<Description>,
        (fit, own): (&Fitted<M>, &Fitted<M>),
        seconds: f64,
    ) -> anyhow::Result<Self> {
        let (density, weight) = (fit.mixture.density(), evaluator.total_weight());
        let log_likelihood =
            evaluator.log_likelihood(density)? + weight * (fit.mixture.log_factor() - source.log_scale());
        let (n, d) = (evaluator.n_samples(), evaluator.n_features());
        let alive = fit.mixture.alive();
        let of_mixture = alive.is_none().then(|| {
            let criterion = |c: Criterion| c.value(log_likelihood, density.n_parameters(), weight, d);
            let weight = density.weights().last().copied().unwrap_or(0.0);
            OfMixture {
                bic: criterion(Criterion::Bic),
                aic: criterion(Criterion::Aic),
                noise: own.mixture.density().noise().map(|noise| OfNoise { weight, volume: noise.volume }),
                retained: fit.retained.clone(),
            }
        });
        text::tell_gpu_problem(&evaluator.describe());
        let Description { device, kernel, .. } = iterated_by.unwrap_or_else(|| evaluator.describe());
        let (precision, computed_in_float64) = source.precision(evaluator, density, Operation::Statistics);
        Ok(Self {
            n,
            d,
            k: density.n_gaussians(),
            elbo: alive.is_some().then(|| M::elbo(own)),
            alive: alive.map(|alive| (0..alive.len()).filter(|&c| alive[c]).collect()),
            covariance_type: density.covariance_model().name(),
            weight_concentration_prior_type: fit.mixture.prior_type(),
            feature_names: source.names().map(<[String]>::to_vec),
            n_iter: own.n_iter(),
            converged: own.converged,
            lower_bound: own.lower_bounds.last().copied(),
            log_likelihood,
            of_mixture,
            device,
            kernel,
            precision,
            computed_in_float64,
            seconds,
        })
    }

    /// Returns the report in words. `own` is the fit in the data's units, which was written to `model`.
    pub fn text<M: Trainable>(
        &self,
        source: &Source<'_>,
        own: &Fitted<M>,
        max_iter: usize,
        model: Option<&ModelOutput>,
        plot: Option<&Output>,
    ) -> anyhow::Result<String> {
        let mut lines = data(source, self.feature_names.as_deref());
        lines.push(format!("model           {}, {}", text::components(self.k), self.covariance_type));
        if let Some(alive) = &self.alive {
            lines.push(format!("  alive         {} of them: the others have less than half a sample", alive.len()));
        }
        let mixture = own.mixture.parts()?.0;
        lines.extend(weights(&mixture.weights().to_vec()[..self.k]));
        if let Some(OfNoise { weight, volume }) = self.of_mixture.as_ref().and_then(|of| of.noise.as_ref()) {
            lines.push(format!("  noise         weight {weight:.4}, in a volume of {volume:.4}"));
        }
        lines.push(format!("iterations      {}", course(self.n_iter, self.converged, max_iter)));
        if let (Some(lower_bound), Some(Some(elbo))) = (self.lower_bound, self.elbo) {
            lines.push(format!("lower bound     {lower_bound}, as scikit-learn counts"));
            lines.push(format!("ELBO            {elbo}, the lower bound of the log-evidence"));
        }
        lines.push(format!("log-likelihood  {}", self.log_likelihood));
        lines.push(format!("  per sample    {}", self.log_likelihood / source.samples.total_weight()));
        if let Some(OfMixture { bic, aic, .. }) = &self.of_mixture {
            lines.push(format!("BIC             {bic}"));
            lines.push(format!("AIC             {aic}"));
        }
        lines.push(format!("computed by     {}, kernel {}", self.device, self.kernel));
        lines.push(format!("time            {}", text::seconds(self.seconds)));
        lines.extend(self.computed_in_float64.map(String::from));
        if let Some(OfMixture { retained, .. }) = self.of_mixture.as_ref().filter(|of| !of.retained.is_empty()) {
            lines.push(format!(
                "retained        components {retained:?} (counted from 0) had no samples or no usable covariance in the last \
                 iteration and retained their mean and covariance: try fewer components"
            ));
        }
        if let Some(model) = model {
            let other = mixture.covariance_model().name();
            let as_other = if other == self.covariance_type { String::new() } else { format!(", as {other}") };
            lines.push(format!("written         {model}{as_other}"));
        }
        lines.extend(plot.map(|plot| format!("plot            {plot}")));
        Ok(lines.join("\n"))
    }
}

pub(super) fn data(source: &Source<'_>, names: Option<&[String]>) -> Vec<String> {
    let mut lines = vec![format!("data            {}", source.describe())];
    let few = names.filter(|names| names.len() <= MAX_NAMES);
    lines.extend(few.map(|names| format!("  features      {}", names.join(", "))));
    lines
}

fn weights(weights: &[f64]) -> Option<String> {
    let weights: Vec<String> = weights.iter().map(|w| format!("{w:.4}")).collect();
    (2..=MAX_WEIGHTS).contains(&weights.len()).then(|| format!("  weights       {}", weights.join(", ")))
}

fn course(n_iter: usize, converged: bool, max_iter: usize) -> String {
    let converged = match (converged, max_iter) {
        (true, _) => "converged",
        (false, 0) => "not converged",
        (false, _) => "not converged; raise --max-iter or --tol",
    };
    format!("{n_iter}, {converged}")
}
