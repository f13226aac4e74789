//! `gmm bench`: the time of one evaluation for several devices and numbers of samples.
mod accuracy;
mod crossover;
mod markov_chain;
mod rows;
mod workload;

use super::timing;
use super::values::whole_number;
use crate::input::tuning_file;
use crate::plot::{self, Series};
use crate::terminal::text;
use anyhow::{anyhow, bail, ensure};
use clap::Args;
use crossover::Crossover;
use gaussmix::io::Output;
use gaussmix::{CovarianceType, Covariances, Device, Error, LoadOptions, Mixture, Samples, kernel_names, memory};
use ndarray::{Array1, Array2, Array3, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rows::{Row, read_rows};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use workload::Workload;

/// How many different parameter sets take turns, so that no evaluation can reuse anything from the
/// one before.
const PARAMETER_SETS: usize = 16;
const SEED: u64 = 2018;
/// Of any two features of a component with a matrix.
const CORRELATION: f64 = 0.3;

/// Time one evaluation of the log-likelihood, for several devices and numbers of samples
///
/// Random float32 data stays on the device. Each time is the median of repeated evaluations, from
/// the parameters of a mixture on the host to the total log-likelihood on the host, with other
/// parameters each time. The other workloads are timed from vectors on the host to products on the
/// host, with a resident matrix, and for resident pairs of rows.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gmm bench
  gmm bench --method cpu,cuda --n 1e3,1e5,1e7 --plot bench.svg
  gmm bench --method cuda --kernels --n 1e6 --json
  gmm bench --accuracy --method cpu --n 1e5     the error of each kernel beside its time
  gmm bench --accuracy --covariance-type full --method cuda -k 64 -d 32
  gmm bench --workload inner-products           vectors times a matrix, beside published times
  gmm bench --rows rows.json --plot bench.svg   draw what --json printed before
  gmm bench --mcmc --method cpu,cuda            a million evaluations in a Markov chain")]
pub struct Bench {
    /// What to time
    #[arg(long, value_enum, default_value_t = Workload::Likelihood)]
    workload: Workload,
    /// Devices to compare: reference, cpu, cuda, cuda:N, cuda:all or auto. Default:
    /// reference,cpu,cuda; other workloads cpu,cuda
    #[arg(long, value_delimiter = ',')]
    method: Vec<Method>,
    /// Numbers of samples, vectors or pairs. Default: powers of ten from 100 to a million; for
    /// inner-products 1 to 50000, for gaussian-kernel 10 to a million
    #[arg(long, value_delimiter = ',', value_parser = whole_number)]
    n: Vec<usize>,
    /// Number of mixture components, or of rows of the matrix. Default: 8; for inner-products 1000
    #[arg(short, value_parser = whole_number)]
    k: Option<usize>,
    /// Number of features, or of numbers of a vector. Default: 13; for inner-products 1000, for
    /// gaussian-kernel 20
    #[arg(short, value_parser = whole_number)]
    d: Option<usize>,
    /// Time each kernel (code variant) of each device, not only the one that the device chooses
    #[arg(long)]
    kernels: bool,
    /// Time a million evaluations in a Markov chain, over the largest N, beside the figures of the
    /// talk of 2018 that this program grew from ("Accelerating your Python Code For GMMs with
    /// PyCUDA")
    #[arg(long, conflicts_with_all = ["kernels", "plot"])]
    mcmc: bool,
    /// Show the error of each kernel of each device beside its time, over the largest N, in float32
    /// and float64: of the log-likelihood and of an E-step, against the float64 reference
    #[arg(long, conflicts_with_all = ["kernels", "plot", "mcmc"])]
    accuracy: bool,
    /// With --accuracy: the shape of the covariances: full, tied, diag or spherical
    #[arg(long, default_value = "diag", value_name = "TYPE", requires = "accuracy")]
    covariance_type: CovarianceType,
    /// With --mcmc: the most evaluations to measure
    #[arg(long, default_value = "1e6", value_name = "COUNT", value_parser = whole_number, requires = "mcmc")]
    evaluations: usize,
    /// Seconds to spend on each measurement. Default: 0.5, with --mcmc 10
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Measure nothing; report the rows of this file, as --json printed them on this machine or
    /// another
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["method", "n", "k", "d", "kernels", "mcmc", "accuracy", "seconds"])]
    rows: Option<PathBuf>,
    /// Print an array of rows `method, kernel, n, k, d, seconds` as JSON; --mcmc and --accuracy
    /// have more members
    #[arg(long)]
    json: bool,
    /// Draw the times over the number of samples, both axes logarithmic
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A device, and the name by which the user asked for it.
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

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|s| (0.0..=3600.0).contains(s)).ok_or_else(|| "must be between 0 and 3600".into())
}

/// A method, or one of its kernels, that could not be measured.
struct Missing {
    method: String,
    kernel: String,
    reason: Error,
}

impl Bench {
    pub fn run(mut self) -> anyhow::Result<()> {
        let likelihood = self.workload == Workload::Likelihood;
        ensure!(
            likelihood || !(self.mcmc || self.kernels),
            "--mcmc and --kernels are for the workload `likelihood`, not for `{}`",
            self.workload.name()
        );
        ensure!(
            self.workload != Workload::GaussianKernel || self.k.is_none(),
            "-k is not for the workload `gaussian-kernel`: pairs have N and D only"
        );
        let output = self.plot.as_ref().map(Output::create).transpose()?;
        let further_shapes = self.n.is_empty() && self.k.is_none() && self.d.is_none();
        if self.n.is_empty() {
            self.n = self.workload.sizes().to_vec();
        }
        if self.method.is_empty() {
            self.method = self.workload.methods().iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
        }
        self.n.sort_unstable();
        self.n.dedup();
        if self.mcmc {
            return self.markov_chain(&self.problem()?);
        }
        if self.accuracy {
            return self.accuracy(&self.problem()?);
        }
        let (rows, missing) = match &self.rows {
            Some(path) => (read_rows(path)?, Vec::new()),
            None if likelihood => self.measure_all(&self.problem()?),
            None => self.measure_workload(further_shapes),
        };
        if rows.is_empty() {
            let reason = missing.into_iter().next().map(|m| anyhow!(m.reason).context(m.method));
            return Err(reason.unwrap_or_else(|| anyhow!("there is nothing to report: no method, or no rows")));
        }
        if self.json {
            for m in &missing {
                text::note(format_args!("{} is left out: {}", m.label(), m.reason));
            }
            text::print_json(&rows)?;
        } else {
            text::print(report(self.workload, &rows, &missing))?;
        }
        if let Some(output) = output {
            let of_one_shape = of_one_shape(&rows);
            let items = format!("number of {} N", self.workload.items().0);
            let svg = plot::log_log(&self.workload.title(&rows[0]), (&items, "seconds"), &series(&of_one_shape))?;
            output.write(|file| file.write_all(svg.as_bytes()))?;
            if !self.json {
                text::print(format!("\nplot: {output}"))?;
            }
        }
        Ok(())
    }

    fn problem(&self) -> anyhow::Result<Problem> {
        let (k, d) = self.shape();
        Problem::random([self.n.iter().copied().max().unwrap_or(1), k, d], self.covariance_type)
    }

    /// K and D.
    fn shape(&self) -> (usize, usize) {
        let (k, d) = self.workload.shape();
        (self.k.unwrap_or(k), self.d.unwrap_or(d))
    }

    /// Times a workload that needs no mixture, for each N and, if they are asked for, the shapes of
    /// published times.
    fn measure_workload(&self, further_shapes: bool) -> (Vec<Row>, Vec<Missing>) {
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        let (k, d) = self.shape();
        let further = if further_shapes { self.workload.further_shapes() } else { &[] };
        let shapes: Vec<_> = self.n.iter().map(|&n| [n, d, k]).chain(further.iter().copied()).collect();
        for Method { name, device } in &self.method {
            for &[n, d, k] in &shapes {
                match workload::time(self.workload, *device, [n, d, k], self.budget(0.5)) {
                    Ok(seconds) => {
                        let kernel = self.workload.name().into();
                        rows.push(Row { method: name.clone(), kernel, n, k, d, seconds });
                    }
                    Err(reason) => {
                        missing.push(Missing { method: name.clone(), kernel: String::new(), reason });
                        break;
                    }
                }
            }
        }
        (rows, missing)
    }

    fn markov_chain(&self, problem: &Problem) -> anyhow::Result<()> {
        let bench = markov_chain::Bench {
            samples: Samples::from_f32(problem.data.view())?,
            mixture: &problem.mixtures[0],
            budget: self.budget(10.0),
            evaluations: self.evaluations,
        };
        markov_chain::run(&bench, &self.methods(), self.json)
    }

    fn accuracy(&self, problem: &Problem) -> anyhow::Result<()> {
        let bench = accuracy::Bench {
            samples: Samples::from_f32(problem.data.view())?,
            mixture: &problem.mixtures[0],
            budget: self.budget(0.5),
        };
        accuracy::run(&bench, &self.methods(), self.json)
    }

    fn methods(&self) -> Vec<(String, Device)> {
        self.method.iter().map(|m| (m.name.clone(), m.device)).collect()
    }

    fn budget(&self, default: f64) -> Duration {
        Duration::from_secs_f64(self.seconds.unwrap_or(default))
    }

    fn measure_all(&self, problem: &Problem) -> (Vec<Row>, Vec<Missing>) {
        let (mut rows, mut missing) = (Vec::new(), Vec::new());
        for method in &self.method {
            for kernel in self.kernels_of(method) {
                if let Err(reason) = self.measure(method, kernel.clone(), problem, &mut rows) {
                    let kernel = kernel.unwrap_or_default();
                    missing.push(Missing { method: method.name.clone(), kernel, reason });
                }
            }
        }
        (rows, missing)
    }

    /// The kernels to measure; `None` stands for the one that the device chooses.
    fn kernels_of(&self, method: &Method) -> Vec<Option<String>> {
        let names = if self.kernels { kernel_names(&method.device) } else { Vec::new() };
        // A device without kernels is loaded all the same: the error then says why it cannot be
        // used.
        if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() }
    }

    fn measure(
        &self,
        method: &Method,
        kernel: Option<String>,
        problem: &Problem,
        rows: &mut Vec<Row>,
    ) -> Result<(), Error> {
        let options = LoadOptions::new().kernel(kernel).tuning_file(tuning_file());
        for &n in &self.n {
            let mut evaluator =
                gaussmix::load(method.device, Samples::from_f32(problem.data.slice(s![..n, ..]))?, &options)?;
            let timing = timing::time(self.budget(0.5), |i| {
                evaluator.log_likelihood(&problem.mixtures[i % PARAMETER_SETS]).map(drop)
            })?;
            let used = evaluator.describe().kernel;
            if options.kernel.as_ref().is_some_and(|requested| !used.starts_with(requested.as_str())) {
                // The kernel is for other operations, and another one has evaluated the likelihood.
                return Ok(());
            }
            rows.push(Row {
                method: method.name.clone(),
                kernel: used,
                n,
                k: self.shape().0,
                d: self.shape().1,
                seconds: timing.median,
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

/// Random data, and parameter sets near those that the data was drawn from.
struct Problem {
    data: Array2<f32>,
    mixtures: Vec<Mixture>,
}

impl Problem {
    /// Of N, K and D.
    fn random([n, k, d]: [usize; 3], covariance_type: CovarianceType) -> anyhow::Result<Self> {
        let remedy = "use fewer samples, components or features";
        let per_set = [&[PARAMETER_SETS], &covariance_type.shape(k, d)[..]].concat();
        let device_copies = 3;
        memory::check("the samples and their copies", &[n, d], device_copies * size_of::<f32>(), remedy)?;
        memory::check("the parameter sets with their factors", &per_set, 3 * size_of::<f64>(), remedy)?;
        memory::check("the means of the parameter sets", &[PARAMETER_SETS, k, d], 3 * size_of::<f64>(), remedy)?;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let means = Array2::from_shape_simple_fn((k, d), || 2.0 * rng.sample::<f64, _>(StandardNormal));
        let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..2.0));
        let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
        let weights = &weights / weights.sum();
        // Which of the variances a component has along a feature.
        let variance = |component: usize, j: usize| match covariance_type {
            CovarianceType::Tied => variances[[0, j]],
            CovarianceType::Spherical => variances[[component, 0]],
            _ => variances[[component, j]],
        };
        let correlation = match covariance_type {
            CovarianceType::Full | CovarianceType::Tied => CORRELATION,
            _ => 0.0,
        };
        let covariance = |component: usize, i: usize, j: usize| {
            let deviations = f64::sqrt(variance(component, i) * variance(component, j));
            if i == j { deviations } else { correlation * deviations }
        };
        let covariances = match covariance_type {
            CovarianceType::Full => {
                Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| covariance(c, i, j)))
            }
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| covariance(0, i, j))),
            CovarianceType::Spherical => Covariances::Spherical(variances.column(0).to_owned()),
            CovarianceType::Diag => Covariances::Diag(variances.clone()),
            other => bail!("there are no random mixtures of type {}", other.name()),
        };
        let mut values = Vec::with_capacity(n * d);
        for _ in 0..n {
            let component = rng.random_range(0..k);
            // The part that all features of the sample share.
            let common: f64 = if correlation > 0.0 { rng.sample(StandardNormal) } else { 0.0 };
            values.extend((0..d).map(|j| {
                let own: f64 = rng.sample(StandardNormal);
                let z = f64::sqrt(correlation) * common + f64::sqrt(1.0 - correlation) * own;
                (means[[component, j]] + z * f64::sqrt(variance(component, j))) as f32
            }));
        }
        let mixtures =
            (0..PARAMETER_SETS).map(|i| Mixture::new(weights.clone(), &means + 1e-3 * i as f64, covariances.clone()));
        Ok(Self { data: Array2::from_shape_vec((n, d), values)?, mixtures: mixtures.collect::<Result<_, _>>()? })
    }
}

/// The rows of the first one's K and D.
fn of_one_shape(rows: &[Row]) -> Vec<Row> {
    let same = |r: &&Row| (r.k, r.d) == (rows[0].k, rows[0].d);
    rows.iter().filter(same).cloned().collect()
}

fn report(workload: Workload, rows: &[Row], missing: &[Missing]) -> String {
    let likelihood = workload == Workload::Likelihood;
    // The kernel's name is the workload's; in its place is the shape, which may differ from row to
    // row.
    let about = |r: &Row| match workload {
        Workload::Likelihood => r.kernel.clone(),
        Workload::InnerProducts => format!("{} × {}", text::grouped(r.k as u64), text::grouped(r.d as u64)),
        Workload::GaussianKernel => format!("D = {}", r.d),
    };
    let measured = rows.iter().map(|r| {
        vec![
            r.method.clone(),
            about(r),
            text::grouped(r.n as u64),
            text::seconds(r.seconds),
            text::seconds(r.seconds / r.n as f64),
        ]
    });
    let unavailable =
        missing.iter().map(|m| vec![m.method.clone(), m.kernel.clone(), "–".into(), "unavailable".into(), "–".into()]);
    let (second, fourth) = match workload {
        Workload::Likelihood => ("kernel", "evaluation"),
        Workload::InnerProducts => ("matrix", "products"),
        Workload::GaussianKernel => ("rows", "values"),
    };
    let header = ["method", second, "N", fourth, &format!("per {}", workload.items().1)];
    let mut out = text::table(&header, measured.chain(unavailable), 2);
    let notes = missing.iter().map(|m| format!("{}: {}", m.label(), m.reason));
    let crossover = Crossover::of(&of_one_shape(rows)).map(|c| c.to_string());
    let published = (!likelihood).then(|| workload.history(rows));
    for note in notes.chain(crossover).chain(published) {
        out.push_str("\n\n");
        out.push_str(&note);
    }
    out
}

/// A line of the plot for each method, and for each kernel where a method has several rows of the
/// same size.
fn series(rows: &[Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let several = |r: &Row| rows.iter().any(|o| o.method == r.method && o.n == r.n && o.kernel != r.kernel);
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

    fn row(method: &str, kernel: &str, n: usize) -> Row {
        Row { method: method.into(), kernel: kernel.into(), n, k: 8, d: 13, seconds: 1.0 }
    }

    #[test]
    fn a_plot_has_a_line_for_each_kernel_that_was_compared() {
        let names = |rows: &[Row]| series(rows).into_iter().map(|s| s.name).collect::<Vec<_>>();
        // The device chose another kernel for another size: still one line.
        let chosen = [row("cpu", "x", 10), row("cpu", "y", 20), row("reference", "z", 10)];
        assert_eq!(names(&chosen), ["cpu", "reference"]);
        let compared = [row("cpu", "x", 10), row("cpu", "y", 10), row("reference", "z", 10)];
        assert_eq!(names(&compared), ["cpu (x)", "cpu (y)", "reference"]);
    }
}
