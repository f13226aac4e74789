//! `gmm compare`: the distances between two mixtures.
use crate::input::read_alike;
use crate::terminal::text;
use clap::Args;
use gaussmix::model::Estimate;
use gaussmix::program::whole_number;
use ndarray::Array2;
use serde::Serialize;
use std::path::PathBuf;

/// Measure the distances between two mixtures
///
/// Divergences are in nats. The Kullback-Leibler and Jensen-Shannon divergences are estimated from random samples and
/// have standard errors; the others are exact. `transport` is the cost of moving the components of the first mixture to
/// those of the second, in the units of the data: an upper bound of the 2-Wasserstein distance between the mixtures.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm compare before.json after.json
  gmm compare before.json after.json -n 1e6 --seed 1 --json")]
pub struct Compare {
    /// The first mixture, .json or .npz
    first: PathBuf,
    /// The second mixture, .json or .npz, with the same features
    second: PathBuf,
    /// Number of samples of each mixture for the estimates
    #[arg(short, value_parser = whole_number, default_value = "100000")]
    n: usize,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the result as JSON, with the transport plan
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Estimated {
    value: f64,
    standard_error: f64,
}

impl From<Estimate> for Estimated {
    fn from(Estimate { value, standard_error }: Estimate) -> Self {
        Self { value, standard_error }
    }
}

impl std::fmt::Display for Estimated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.6} ± {:.1e}", self.value, self.standard_error)
    }
}

#[derive(Serialize)]
struct Row {
    kl_divergence: Estimated,
    kl_divergence_back: Estimated,
    js_divergence: Estimated,
    cauchy_schwarz: f64,
    l2_distance: f64,
    transport: f64,
    /// The weight moved from each component of the first mixture to each of the second.
    plan: Vec<Vec<f64>>,
    /// The 2-Wasserstein distances between the components.
    wasserstein: Vec<Vec<f64>>,
    hellinger_affinity: Vec<Vec<f64>>,
}

impl Compare {
    pub fn run(self) -> anyhow::Result<()> {
        let (mixtures, _) = read_alike(&[&self.first, &self.second])?;
        let (first, second) = (&mixtures[0], &mixtures[1]);
        let transport = first.transport(second)?;
        let row = Row {
            kl_divergence: first.kl_divergence(second, self.n, self.seed)?.into(),
            kl_divergence_back: second.kl_divergence(first, self.n, self.seed)?.into(),
            js_divergence: first.js_divergence(second, self.n, self.seed)?.into(),
            cauchy_schwarz: first.cauchy_schwarz(second)?,
            l2_distance: first.l2_distance(second)?,
            transport: transport.distance,
            plan: rows(&transport.plan),
            wasserstein: rows(&first.wasserstein(second)?),
            hellinger_affinity: rows(&first.hellinger_affinity(second)?),
        };
        let of = |file: &PathBuf, k| format!("{}: {}", file.display(), text::components(k));
        let lines = [
            format!("first                       {}", of(&self.first, first.n_components())),
            format!("second                      {}", of(&self.second, second.n_components())),
            format!("Kullback-Leibler            {} of the second from the first", row.kl_divergence),
            format!("                            {} of the first from the second", row.kl_divergence_back),
            format!("Jensen-Shannon              {}", row.js_divergence),
            format!("Cauchy-Schwarz              {}", number(row.cauchy_schwarz)),
            format!("L2 distance                 {}", number(row.l2_distance)),
            format!("transport                   {}", number(row.transport)),
            String::new(),
            nearest(&row),
        ];
        text::report(self.json, &row, || lines.join("\n"))
    }
}

fn rows(matrix: &Array2<f64>) -> Vec<Vec<f64>> {
    matrix.outer_iter().map(|row| row.to_vec()).collect()
}

fn number(v: f64) -> String {
    if v != 0.0 && !(1e-4..1e6).contains(&v.abs()) { format!("{v:.5e}") } else { format!("{v:.6}") }
}

/// Returns a line for each component of the first mixture, with the nearest one of the second.
fn nearest(row: &Row) -> String {
    let lines = row.wasserstein.iter().zip(&row.hellinger_affinity).enumerate().map(|(i, (distances, affinities))| {
        let least = distances.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(j, _)| j);
        vec![i.to_string(), least.to_string(), number(distances[least]), number(affinities[least])]
    });
    let header = ["component", "nearest of the second", "Wasserstein", "Hellinger affinity"];
    text::table(&header, lines, 0)
}
