//! What `gmm fit` reports.
use crate::input::Source;
use crate::terminal::text;
use gaussmix::evaluator::{Description, Evaluator, Operation};
use gaussmix::fit::{Criterion, Fit as Fitted};
use gaussmix::io::{ModelOutput, Output};
use serde::Serialize;

/// Up to so many components the report shows the weights.
const MAX_WEIGHTS: usize = 12;
/// Up to so many features the report shows their names.
const MAX_NAMES: usize = 12;

/// What `--json` prints. Likelihoods are in the data's units, and sums over all samples times their
/// weights.
#[derive(Serialize)]
pub struct Report {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    /// The names of the features, if they have any.
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_names: Option<Vec<String>>,
    n_iter: usize,
    converged: bool,
    /// Mean log-likelihood of a sample before the last M-step; null without iterations.
    lower_bound: Option<f64>,
    log_likelihood: f64,
    bic: f64,
    aic: f64,
    /// Components (counted from 0) that had no samples or no usable covariance in the last
    /// iteration, so that they retained their mean and covariance.
    retained: Vec<usize>,
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

impl Report {
    /// `iterated_by` describes what computed the iterations, if there were any. `n_iter` counts
    /// those before a checkpoint too.
    pub fn new(
        source: &Source<'_>,
        evaluator: &mut dyn Evaluator,
        iterated_by: Option<Description>,
        fit: &Fitted,
        n_iter: usize,
        seconds: f64,
    ) -> anyhow::Result<Self> {
        let (mixture, weight) = (&fit.mixture, evaluator.total_weight());
        let log_likelihood = evaluator.log_likelihood(mixture)? - weight * source.log_scale();
        let (n, d) = (evaluator.n_samples(), evaluator.n_features());
        let criterion = |c: Criterion| c.value(log_likelihood, mixture.n_parameters(), weight, d);
        let Description { device, kernel, .. } = iterated_by.unwrap_or_else(|| evaluator.describe());
        let (precision, computed_in_float64) = source.precision(evaluator, mixture, Operation::Statistics);
        Ok(Self {
            n,
            d,
            k: mixture.n_components(),
            covariance_type: mixture.covariance_type().name(),
            feature_names: source.names().map(<[String]>::to_vec),
            n_iter,
            converged: fit.converged,
            lower_bound: fit.lower_bounds.last().map(|bound| bound - source.log_scale()),
            log_likelihood,
            bic: criterion(Criterion::Bic),
            aic: criterion(Criterion::Aic),
            retained: fit.retained.clone(),
            device,
            kernel,
            precision,
            computed_in_float64,
            seconds,
        })
    }

    /// The report in words. `own` is the fit in the data's own units, which was written to `model`.
    pub fn text(
        &self,
        source: &Source<'_>,
        own: &Fitted,
        max_iter: usize,
        model: Option<&ModelOutput>,
        plot: Option<&Output>,
    ) -> String {
        let mut lines = data(source, self.feature_names.as_deref());
        lines.push(format!("model           {}, {}", text::components(self.k), self.covariance_type));
        lines.extend(weights(&own.mixture.weights().to_vec()));
        lines.push(format!("iterations      {}", course(self.n_iter, self.converged, max_iter)));
        lines.push(format!("log-likelihood  {}", self.log_likelihood));
        lines.push(format!("  per sample    {}", self.log_likelihood / source.samples.total_weight()));
        lines.push(format!("BIC             {}", self.bic));
        lines.push(format!("AIC             {}", self.aic));
        lines.extend(computed_by(&self.device, &self.kernel, self.seconds));
        lines.extend(self.computed_in_float64.map(String::from));
        if !self.retained.is_empty() {
            lines.push(format!(
                "retained        components {:?} (counted from 0) had no samples or no usable covariance in the last \
                 iteration and retained their mean and covariance: try fewer components",
                self.retained
            ));
        }
        if let Some(model) = model {
            let other = own.mixture.covariance_type().name();
            let as_other = if other == self.covariance_type { String::new() } else { format!(", as {other}") };
            lines.push(format!("written         {model}{as_other}"));
        }
        lines.extend(plot.map(|plot| format!("plot            {plot}")));
        lines.join("\n")
    }
}

/// The data, and the names of a few features.
pub(super) fn data(source: &Source<'_>, names: Option<&[String]>) -> Vec<String> {
    let mut lines = vec![format!("data            {}", source.describe())];
    let few = names.filter(|names| names.len() <= MAX_NAMES);
    lines.extend(few.map(|names| format!("  features      {}", names.join(", "))));
    lines
}

/// The weights of a few components.
pub(super) fn weights(weights: &[f64]) -> Option<String> {
    let weights: Vec<String> = weights.iter().map(|w| format!("{w:.4}")).collect();
    (2..=MAX_WEIGHTS).contains(&weights.len()).then(|| format!("  weights       {}", weights.join(", ")))
}

/// The number of iterations, and whether they ended by themselves.
pub(super) fn course(n_iter: usize, converged: bool, max_iter: usize) -> String {
    let converged = match (converged, max_iter) {
        (true, _) => "converged",
        (false, 0) => "not converged",
        (false, _) => "not converged; raise --max-iter or --tol",
    };
    format!("{n_iter}, {converged}")
}

pub(super) fn computed_by(device: &str, kernel: &str, seconds: f64) -> [String; 2] {
    let time = format!("time            {}", text::seconds(seconds));
    [format!("computed by     {device}, kernel {kernel}"), time]
}
