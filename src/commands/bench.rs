//! `gmm bench`: the time of one evaluation for several methods and sizes.
use super::plot::{self, Series};
use super::{bench_mcmc, text, timing};
use anyhow::{anyhow, ensure};
use clap::Args;
use gmm::io::Output;
use gmm::{Covariances, Device, Error, LoadOptions, Mixture, Samples, kernel_names};
use ndarray::{Array1, Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How many different parameter sets take turns, so that nothing can be reused from the evaluation before.
const PARAMETER_SETS: usize = 16;
const SEED: u64 = 2018;

/// Time one evaluation of the log-likelihood, for several methods and sizes
///
/// Each time is the median of repeated evaluations of random float32 data that stays on the device: parameters in, total
/// log-likelihood out, other parameters each time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm bench
  gmm bench --method cpu,cuda --n 1e3,1e5,1e7 --plot bench.svg
  gmm bench --method cuda --kernels --n 1e6 --json
  gmm bench --mcmc --method cpu,cuda                          a million evaluations in a Markov chain")]
pub struct Bench {
    /// Devices to compare: reference, cpu, cuda, cuda:N or auto
    #[arg(long, value_delimiter = ',', default_value = "reference,cpu,cuda")]
    method: Vec<Method>,
    /// Numbers of samples
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000,100000,1000000", value_parser = whole_number)]
    n: Vec<usize>,
    /// Number of mixture components
    #[arg(short, default_value = "8", value_parser = whole_number)]
    k: usize,
    /// Number of features
    #[arg(short, default_value = "13", value_parser = whole_number)]
    d: usize,
    /// Time each kernel (code variant) of each device, not only the one it chooses
    #[arg(long)]
    kernels: bool,
    /// The time of a million evaluations in a Markov chain, beside the talk's, at the largest N
    #[arg(long, conflicts_with_all = ["kernels", "plot"])]
    mcmc: bool,
    /// With --mcmc: the most evaluations to measure
    #[arg(long, default_value = "1e6", value_name = "COUNT", value_parser = whole_number, requires = "mcmc")]
    evaluations: usize,
    /// Seconds to spend on each measurement; by default 0.5, and 10 with --mcmc
    #[arg(long, value_parser = budget)]
    seconds: Option<f64>,
    /// Print an array of rows `method, kernel, n, k, d, seconds` as JSON
    #[arg(long)]
    json: bool,
    /// Draw the times over the number of samples, both axes logarithmic
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A device under the name it was asked for by.
#[derive(Debug, Clone)]
struct Method {
    name: String,
    device: Device,
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(Self { name: name.into(), device: name.parse()? })
    }
}

pub fn whole_number(text: &str) -> Result<usize, String> {
    let number = text.parse::<usize>().ok().or_else(|| {
        // 1e6 and the like.
        let value: f64 = text.parse().ok()?;
        (value.fract() == 0.0 && (1.0..=1e15).contains(&value)).then_some(value as usize)
    });
    number.filter(|&n| n > 0).ok_or_else(|| "must be a whole number above 0, such as 1000 or 1e6".into())
}

fn budget(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s| (0.0..=3600.0).contains(s)).ok_or_else(|| "must be between 0 and 3600".into())
}

/// What `--json` prints for each measurement.
#[derive(Debug, Clone, Serialize)]
struct Row {
    method: String,
    kernel: String,
    n: usize,
    k: usize,
    d: usize,
    seconds: f64,
    #[serde(skip)]
    device: Device,
}

/// A method, or one of its kernels, that could not be measured.
struct Missing {
    method: String,
    kernel: String,
    reason: Error,
}

impl Bench {
    pub fn run(mut self) -> anyhow::Result<()> {
        let output = self.plot.as_ref().map(Output::create).transpose()?;
        self.n.sort_unstable();
        self.n.dedup();
        let problem = Problem::random(self.n.iter().copied().max().unwrap_or(1), self.k, self.d)?;
        if self.mcmc {
            return self.mcmc(&problem);
        }
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        for method in &self.method {
            for kernel in self.kernels_of(method) {
                if let Err(reason) = self.measure(method, kernel.clone(), &problem, &mut rows) {
                    let kernel = kernel.unwrap_or_default();
                    missing.push(Missing { method: method.name.clone(), kernel, reason });
                }
            }
        }
        if rows.is_empty() {
            let reason = missing.into_iter().next().map(|m| anyhow!(m.reason).context(m.method));
            return Err(reason.unwrap_or_else(|| anyhow!("no method was given")));
        }
        if self.json {
            for m in &missing {
                text::note(format_args!("{} is left out: {}", m.label(), m.reason));
            }
            text::print_json(&rows)?;
        } else {
            text::print(report(&rows, &missing))?;
        }
        if let Some(output) = output {
            let svg = plot::log_log(
                &format!("One evaluation of the log-likelihood, K = {}, D = {}", self.k, self.d),
                ("number of samples N", "seconds"),
                &series(&rows),
            )?;
            output.write(|file| file.write_all(svg.as_bytes()))?;
            if !self.json {
                text::print(format!("\nplot: {output}"))?;
            }
        }
        Ok(())
    }

    fn mcmc(&self, problem: &Problem) -> anyhow::Result<()> {
        let bench = bench_mcmc::Bench {
            samples: Samples::from_f32(problem.data.view())?,
            mixture: &problem.mixtures[0],
            budget: self.budget(10.0),
            evaluations: self.evaluations,
        };
        let methods: Vec<_> = self.method.iter().map(|m| (m.name.clone(), m.device)).collect();
        bench_mcmc::run(&bench, &methods, self.json)
    }

    fn budget(&self, default: f64) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(default))
    }

    fn kernels_of(&self, method: &Method) -> Vec<Option<String>> {
        let names = if self.kernels { kernel_names(&method.device) } else { Vec::new() };
        // A device without kernels is tried all the same: it then says why it cannot be used.
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
    }

    fn measure(
        &self,
        method: &Method,
        kernel: Option<String>,
        problem: &Problem,
        rows: &mut Vec<Row>,
    ) -> Result<(), Error> {
        let options = LoadOptions::new().kernel(kernel);
        for &n in &self.n {
            let mut evaluator =
                gmm::load(method.device, Samples::from_f32(problem.data.slice(s![..n, ..]))?, &options)?;
            let timing = timing::time(self.budget(0.5), |i| {
                evaluator.log_likelihood(&problem.mixtures[i % PARAMETER_SETS]).map(drop)
            })?;
            rows.push(Row {
                method: method.name.clone(),
                kernel: evaluator.describe().kernel,
                n,
                k: self.k,
                d: self.d,
                seconds: timing.median,
                device: method.device,
            });
        }
        Ok(())
    }
}

impl Missing {
    fn label(&self) -> String {
        if self.kernel.is_empty() { self.method.clone() } else { format!("{} ({})", self.method, self.kernel) }
    }
}

/// Random data and parameter sets near those that the data was drawn from.
struct Problem {
    data: Array2<f32>,
    mixtures: Vec<Mixture>,
}

impl Problem {
    fn random(n: usize, k: usize, d: usize) -> anyhow::Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let means = Array2::from_shape_simple_fn((k, d), || 2.0 * rng.sample::<f64, _>(StandardNormal));
        let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..2.0));
        let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
        let weights = &weights / weights.sum();
        let mut values = Vec::new();
        let size = n.checked_mul(d).filter(|&size| values.try_reserve_exact(size).is_ok());
        ensure!(size.is_some(), "there is no memory for {n} samples × {d} features");
        for _ in 0..n {
            let component = rng.random_range(0..k);
            values.extend((0..d).map(|j| {
                let z: f64 = rng.sample(StandardNormal);
                (means[[component, j]] + z * f64::sqrt(variances[[component, j]])) as f32
            }));
        }
        let mixtures = (0..PARAMETER_SETS)
            .map(|i| Mixture::new(weights.clone(), &means + 1e-3 * i as f64, Covariances::Diag(variances.clone())));
        Ok(Self { data: Array2::from_shape_vec((n, d), values)?, mixtures: mixtures.collect::<Result<_, _>>()? })
    }
}

fn report(rows: &[Row], missing: &[Missing]) -> String {
    let measured = rows.iter().map(|r| {
        vec![
            r.method.clone(),
            r.kernel.clone(),
            text::grouped(r.n as u64),
            text::seconds(r.seconds),
            text::seconds(r.seconds / r.n as f64),
        ]
    });
    let unavailable =
        missing.iter().map(|m| vec![m.method.clone(), m.kernel.clone(), "–".into(), "unavailable".into(), "–".into()]);
    let mut out = text::table(&["method", "kernel", "N", "evaluation", "per point"], measured.chain(unavailable), 2);
    let notes: Vec<String> = missing.iter().map(|m| format!("{}: {}", m.label(), m.reason)).collect();
    let notes = notes.into_iter().chain(crossover(rows).map(|c| c.to_string()));
    for note in notes {
        out.push_str("\n\n");
        out.push_str(&note);
    }
    out
}

/// Where the GPU overtakes the CPU.
#[derive(Debug, PartialEq)]
enum Crossover {
    /// Between two sizes that were measured: interpolated, both axes logarithmic.
    At(f64),
    /// The GPU is faster from the smallest size measured.
    Below(usize),
    /// The CPU is faster up to the largest size measured.
    Above(usize),
}

impl std::fmt::Display for Crossover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(n) => write!(f, "crossover: the GPU overtakes the CPU at about N = {}", text::count(*n)),
            Self::Below(n) => write!(f, "crossover: the GPU is faster at every N measured, from {n}"),
            Self::Above(n) => write!(f, "crossover: the CPU is faster at every N measured, up to {n}"),
        }
    }
}

/// The last size at which the faster side changes to the GPU; `None` unless both were measured at the same sizes.
fn crossover(rows: &[Row]) -> Option<Crossover> {
    let best = |n: usize, gpu: bool| {
        let times = rows
            .iter()
            .filter(|r| r.n == n && if gpu { matches!(r.device, Device::Cuda(_)) } else { r.device == Device::Cpu });
        times.map(|r| r.seconds).min_by(f64::total_cmp)
    };
    let mut sizes: Vec<usize> = rows.iter().map(|r| r.n).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // (log N, log of CPU time over GPU time)
    let lead: Vec<(usize, f64)> =
        sizes.into_iter().filter_map(|n| Some((n, (best(n, false)? / best(n, true)?).ln()))).collect();
    let (first, last) = (lead.first()?, lead.last()?);
    if last.1 <= 0.0 {
        return Some(Crossover::Above(last.0));
    }
    let change = lead.windows(2).rev().find(|w| w[0].1 <= 0.0 && w[1].1 > 0.0);
    Some(change.map_or(Crossover::Below(first.0), |w| {
        let (x0, x1) = ((w[0].0 as f64).ln(), (w[1].0 as f64).ln());
        Crossover::At((x0 + (x1 - x0) * -w[0].1 / (w[1].1 - w[0].1)).exp())
    }))
}

fn series(rows: &[Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let several = |r: &Row| rows.iter().any(|o| o.method == r.method && o.kernel != r.kernel);
    for row in rows {
        let name = if several(row) { format!("{} ({})", row.method, row.kernel) } else { row.method.clone() };
        let point = (row.n as f64, row.seconds);
        match all.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series { name, points: vec![point] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: Device, n: usize, seconds: f64) -> Row {
        Row { method: device.to_string(), kernel: "x".into(), n, k: 8, d: 13, seconds, device }
    }

    #[test]
    fn crossover_is_interpolated_on_logarithmic_axes() {
        let (cpu, gpu) = (Device::Cpu, Device::Cuda(0));
        // Times N and 1000 cross at N = 1000, which was not measured.
        let rows: Vec<Row> = [100usize, 10_000]
            .iter()
            .flat_map(|&n| [row(cpu, n, n as f64 * 1e-9), row(gpu, n, 1e-6), row(gpu, n, 2e-6)])
            .collect();
        let Some(Crossover::At(n)) = crossover(&rows) else { panic!("{:?}", crossover(&rows)) };
        // Exact but for a few roundings of ln and exp.
        assert!((n - 1000.0).abs() < 1e-6, "{n}");
        assert_eq!(crossover(&[row(cpu, 10, 1.0), row(gpu, 10, 0.5)]), Some(Crossover::Below(10)));
        assert_eq!(crossover(&[row(cpu, 10, 1.0), row(gpu, 10, 1.5)]), Some(Crossover::Above(10)));
        assert_eq!(crossover(&[row(cpu, 10, 1.0), row(gpu, 11, 1.5)]), None);
        assert_eq!(crossover(&[row(cpu, 10, 1.0), row(Device::Reference, 10, 1.5)]), None);
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(whole_number("1e6"), Ok(1_000_000));
        assert_eq!(whole_number("12"), Ok(12));
        for bad in ["0", "-1", "1.5", "1e99", "nan", "x", ""] {
            assert!(whole_number(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_plot_has_one_line_for_each_kernel() {
        let mut rows = vec![row(Device::Cpu, 10, 1.0), row(Device::Cpu, 20, 2.0), row(Device::Reference, 10, 9.0)];
        assert_eq!(series(&rows).iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["cpu", "reference"]);
        rows[1].kernel = "y".into();
        assert_eq!(
            series(&rows).iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
            ["cpu (x)", "cpu (y)", "reference"]
        );
    }
}
