//! The report of `gmm mcmc`.
use crate::plot::Trace;
use crate::terminal::text;
use gaussmix::io::Output;
use gaussmix::mcmc::{Chains, PosteriorModel, Row, Summary};
use serde::Serialize;
use std::path::PathBuf;

/// The report shows at most this many parameters; `--json` has all.
const MAX_SHOWN: usize = 40;
/// The plot shows at most this many quantities.
const MAX_PLOTTED: usize = 32;

#[derive(Serialize)]
pub struct Report {
    n: usize,
    d: usize,
    k: usize,
    covariance_type: &'static str,
    sampler: String,
    chains: usize,
    draws: usize,
    acceptance: f64,
    divergences: usize,
    max_r_hat: f64,
    min_ess: f64,
    /// The work of this process, without that of earlier processes of a resumed run.
    #[serde(flatten)]
    work: Work,
    device: String,
    kernel: String,
    files: Vec<PathBuf>,
    warnings: Vec<String>,
    parameters: Vec<Row>,
}

#[derive(Serialize)]
pub struct Work {
    pub evaluations: u64,
    pub seconds: f64,
    evaluations_per_second: f64,
    ess_per_second: f64,
}

impl Work {
    /// `share` is the part of the draws that this process made.
    pub fn new(evaluations: u64, seconds: f64, share: f64, min_ess: f64) -> Self {
        let evaluations_per_second = evaluations as f64 / seconds;
        Self { evaluations, seconds, evaluations_per_second, ess_per_second: min_ess * share / seconds }
    }
}

impl Report {
    pub fn new(model: &PosteriorModel, run: &Chains, summary: &Summary, work: Work, files: Vec<PathBuf>) -> Self {
        Self {
            n: model.data().n_samples,
            d: model.n_features(),
            k: model.n_components(),
            covariance_type: model.covariance_type().name(),
            sampler: summary.sampler.clone(),
            chains: summary.chains,
            draws: summary.draws,
            acceptance: summary.acceptance,
            divergences: summary.divergences,
            max_r_hat: summary.max_r_hat(),
            min_ess: summary.min_ess(),
            work,
            device: run.identity().device.clone(),
            kernel: run.identity().kernel.clone(),
            files,
            warnings: summary.warnings(),
            parameters: summary.rows.clone(),
        }
    }

    /// Returns the report in words. `evaluations` names the unit of work: evaluations or gradients. `names` are those
    /// of the features.
    pub fn text(
        &self,
        evaluations: &str,
        mut summary: Summary,
        names: Option<&[String]>,
        plot: Option<&Output>,
    ) -> String {
        let hidden = summary.rows.len().saturating_sub(MAX_SHOWN);
        summary.rows.iter_mut().for_each(|row| row.name = with_features(&row.name, names));
        let mut lines = vec![format!("{summary:.MAX_SHOWN$}")];
        if hidden > 0 {
            lines.push(format!("({hidden} more parameters: --json)"));
        }
        let work = &self.work;
        // Resuming a finished run without more draws makes no evaluations.
        if work.evaluations > 0 {
            let mut line = format!(
                "{} {evaluations} in {}: {} each, {} a second",
                text::grouped(work.evaluations),
                text::seconds(work.seconds),
                text::seconds(work.seconds / work.evaluations as f64),
                text::count(work.evaluations_per_second),
            );
            if work.ess_per_second > 0.0 {
                line += &format!("; {} effective draws a second, at least", text::count(work.ess_per_second));
            }
            lines.push(line);
        }
        lines.push(format!("computed by {}, kernel {}", self.device, self.kernel));
        let name = |path: Option<&PathBuf>| path.map_or(String::new(), |p| p.display().to_string());
        let (csv, npz) = self.files.split_at(self.files.len().saturating_sub(1));
        lines.push(format!("written: {} … {}, {}", name(csv.first()), name(csv.last()), name(npz.first())));
        lines.extend(plot.map(|plot| format!("plot: {plot}")));
        lines.join("\n")
    }
}

/// Adds the names of a parameter's features: `means.2.1 width`, or `covariances.1.1.2 width, height`.
fn with_features(parameter: &str, names: Option<&[String]>) -> String {
    let mut parts = parameter.split('.');
    let (variable, component) = (parts.next(), parts.next());
    let feature = |index: &str| names?.get(index.parse::<usize>().ok()?.checked_sub(1)?);
    let features: Vec<&str> = parts.filter_map(feature).map(String::as_str).collect();
    match (variable, component) {
        (Some("means" | "covariances"), Some(_)) if !features.is_empty() => {
            format!("{parameter} {}", features.join(", "))
        }
        _ => parameter.into(),
    }
}

/// Returns the draws of the log density and of the first parameters, chain by chain, for the plot. `names` are those of
/// the features.
pub fn traces(run: &Chains, names: Option<&[String]>) -> Vec<Trace> {
    let mut traces = Vec::new();
    for variable in ["lp__", "weights", "means", "covariances"] {
        let Some(draws) = run.draws(variable) else { continue };
        let (chains, n) = (draws.shape()[0], draws.shape()[1]);
        let flat: Vec<f64> = draws.iter().copied().collect();
        let size = flat.len() / (chains * n).max(1);
        for i in 0..size {
            if traces.len() == MAX_PLOTTED {
                return traces;
            }
            let index = index_suffix(&draws.shape()[2..], i);
            let column = |rows: &[f64]| rows.chunks(size).map(|row| row[i]).collect();
            traces.push(Trace {
                name: with_features(&format!("{variable}{index}"), names),
                chains: flat.chunks(n * size).map(column).collect(),
            });
        }
    }
    traces
}

/// Returns the index of element `i` of an array in row-major order, counted from 1 as in CmdStan's files: for example
/// `.2.1`.
fn index_suffix(shape: &[usize], mut i: usize) -> String {
    let mut suffix = String::new();
    for &n in shape.iter().rev() {
        suffix = format!(".{}{suffix}", i % n + 1);
        i /= n;
    }
    suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_names_of_their_features() {
        let names = ["width".to_string(), "height".to_string()];
        for (parameter, shown) in [
            ("means.2.1", "means.2.1 width"),
            ("covariances.1.1.2", "covariances.1.1.2 width, height"),
            ("covariances.1.2", "covariances.1.2 height"),
            ("covariances.1", "covariances.1"),
            ("weights.2", "weights.2"),
            ("lp__", "lp__"),
        ] {
            assert_eq!(with_features(parameter, Some(&names)), shown);
            assert_eq!(with_features(parameter, None), parameter);
        }
    }
}
