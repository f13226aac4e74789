//! `gmm fit --variational`: a fit by variational inference, and its report.
use super::labels::{self, Known};
use super::report::{computed_by, course, data, weights};
use super::{Finished, Fit, Outputs, draw};
use crate::exit_code::SUCCESS;
use crate::input::{Input, Source};
use crate::plot;
use crate::terminal::{ProgressLine, interrupt, text};
use gaussmix::evaluator::{Description, Evaluator, Operation};
use gaussmix::fit::{BayesianGaussianMixtureParams, Fit as Fitted};
use gaussmix::io::{self, Checkpoint, Identity};
use gaussmix::model::{CovarianceType, VariationalMixture};
use serde::Serialize;

/// What `--json` prints. Likelihoods and bounds are sums over all samples times their weights.
#[derive(Serialize)]
struct Report {
    n: usize,
    d: usize,
    k: usize,
    /// The components (counted from 0) whose expected number of samples is at least ½.
    alive: Vec<usize>,
    covariance_type: &'static str,
    weight_concentration_prior_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    feature_names: Option<Vec<String>>,
    n_iter: usize,
    converged: bool,
    /// The lower bound of the evidence, less what does not depend on the posterior, as scikit-learn
    /// has it; null without iterations.
    lower_bound: Option<f64>,
    /// The lower bound of the log-evidence; null without iterations.
    elbo: Option<f64>,
    /// Under the posterior, as scikit-learn's `score_samples`.
    log_likelihood: f64,
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

impl Fit {
    pub(super) fn run_variational(&self) -> anyhow::Result<u8> {
        let outputs = self.open()?;
        let init = self.init.as_ref().map(io::read_variational_model).transpose()?;
        let (init, init_names) = init.map_or((None, None), |(init, found)| (Some(init), found.feature_names));
        let density = init.as_ref().map(VariationalMixture::density);
        let (k, covariance_type) = self.shape(density)?;
        let resumed = self.resumed()?;
        let params = self.variational.params(&self.training, covariance_type)?.n_components(k).freeze(self.frozen());
        let known = self.labels.as_deref().map(Known::read).transpose()?;
        let selection = self.training.data.table.selection(init_names, None);
        let mut input = Input::open(&self.training.data, self.training.sample_weight.as_deref(), &selection)?;
        let made_with = match self.checkpoint {
            Some(_) => {
                let identity = self.identity(input.identity()?, known.as_ref(), k, covariance_type, density)?;
                self.variational.identify(identity, covariance_type)?
            }
            None => Identity::default(),
        };
        if let Some(resumed) = &resumed {
            self.check(resumed, &made_with)?;
        }
        let source = Source::new(&mut input, self.training.standardize)?;
        source.check_columns()?;
        let model = self.started(params, &source, covariance_type, init, resumed)?.check()?;
        let mut evaluator = labels::evaluator(&source, known, k)?;

        let finished = self.fit(&source, evaluator.as_mut(), &outputs, made_with, |evaluator, callback| {
            model.fit_with(evaluator, callback)
        })?;
        let Some(Finished { fit, own, iterated_by, seconds }) = finished else { return Ok(interrupt::EXIT_CODE) };
        let line = ProgressLine::start("evaluating the fit");
        let report = Report::new(&source, evaluator.as_mut(), iterated_by, &fit, &own, seconds)?;
        if let Some(plot) = &outputs.plot {
            let mixture = own.mixture.to_mixture()?;
            let fitted = plot::Fitted {
                mixture: &mixture,
                alive: &fit.mixture.alive(),
                bounds: &own.lower_bounds,
                bound: "lower bound, as scikit-learn counts",
            };
            draw(plot, &source, evaluator.as_mut(), fit.mixture.density(), &fitted)?;
        }
        drop(line);
        if self.json {
            text::print_json(&report)?;
        } else {
            text::print(report.text(&source, &own, self.training.max_iter, &outputs))?;
        }
        Ok(SUCCESS)
    }

    /// The parameters with priors in the units of the samples, and with the start.
    fn started(
        &self,
        mut params: BayesianGaussianMixtureParams,
        source: &Source<'_>,
        covariance_type: CovarianceType,
        init: Option<VariationalMixture>,
        resumed: Option<Checkpoint<VariationalMixture>>,
    ) -> anyhow::Result<BayesianGaussianMixtureParams> {
        if let Some(standard) = &source.standardization {
            params = params.standardized(standard)?;
        }
        if let Some(resumed) = resumed {
            let (present, best) = self.go_on(source, covariance_type, resumed)?;
            return Ok(params.resume(present, best));
        }
        let Some(init) = init else { return Ok(params) };
        Ok(params.start(self.start(source, covariance_type, init)?))
    }
}

impl Report {
    /// `fit` is in the units of the samples, `own` in those of the data.
    fn new(
        source: &Source<'_>,
        evaluator: &mut dyn Evaluator,
        iterated_by: Option<Description>,
        fit: &Fitted<VariationalMixture>,
        own: &Fitted<VariationalMixture>,
        seconds: f64,
    ) -> anyhow::Result<Self> {
        let (posterior, density) = (&own.mixture, fit.mixture.density());
        let weight = evaluator.total_weight();
        let log_likelihood =
            evaluator.log_likelihood(density)? + weight * (fit.mixture.log_total() - source.log_scale());
        let Description { device, kernel, .. } = iterated_by.unwrap_or_else(|| evaluator.describe());
        let (precision, computed_in_float64) = source.precision(evaluator, density, Operation::Statistics);
        Ok(Self {
            n: evaluator.n_samples(),
            d: evaluator.n_features(),
            k: posterior.n_components(),
            alive: alive(posterior),
            covariance_type: posterior.covariance_type().name(),
            weight_concentration_prior_type: posterior.prior().weight_concentration_type.name(),
            feature_names: source.names().map(<[String]>::to_vec),
            n_iter: own.n_iter(),
            converged: own.converged,
            lower_bound: own.lower_bounds.last().copied(),
            elbo: own.lower_bounds.last().map(|_| own.elbo()),
            log_likelihood,
            device,
            kernel,
            precision,
            computed_in_float64,
            seconds,
        })
    }

    fn text(
        &self,
        source: &Source<'_>,
        fit: &Fitted<VariationalMixture>,
        max_iter: usize,
        outputs: &Outputs,
    ) -> String {
        let mut lines = data(source, self.feature_names.as_deref());
        lines.push(format!("model           {}, {}", text::components(self.k), self.covariance_type));
        lines.push(format!("  alive         {} of them: the others have less than half a sample", self.alive.len()));
        lines.extend(weights(&fit.mixture.weights().to_vec()));
        lines.push(format!("iterations      {}", course(self.n_iter, self.converged, max_iter)));
        if let (Some(lower_bound), Some(elbo)) = (self.lower_bound, self.elbo) {
            lines.push(format!("lower bound     {lower_bound}, as scikit-learn counts"));
            lines.push(format!("ELBO            {elbo}, the lower bound of the log-evidence"));
        }
        lines.push(format!("log-likelihood  {}", self.log_likelihood));
        lines.push(format!("  per sample    {}", self.log_likelihood / source.samples.total_weight()));
        lines.extend(computed_by(&self.device, &self.kernel, self.seconds));
        lines.extend(self.computed_in_float64.map(String::from));
        lines.extend(outputs.model.as_ref().map(|model| format!("written         {model}")));
        lines.extend(outputs.plot.as_ref().map(|plot| format!("plot            {plot}")));
        lines.join("\n")
    }
}

/// The numbers of the components that are alive.
fn alive(posterior: &VariationalMixture) -> Vec<usize> {
    posterior.alive().iter().enumerate().filter_map(|(c, alive)| alive.then_some(c)).collect()
}
