use anyhow::bail;
use clap::Args;
use gaussmix::data::Samples;
use gaussmix::device::{Device, LoadOptions};
use gaussmix::mcmc::{Chains, DataSummary, Posterior, PosteriorModel, Prior, Sampler, Settings, Start, Target};
use gaussmix::model::{CovarianceType, Mixture};
use gaussmix::program::whole_number;
use gaussmix_cli::bench::{MixtureOptions, Named, Problem, ProgressLine, print_rows, seconds, text, tuning_file};
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The number of evaluations in the talk.
const MILLION: f64 = 1e6;
/// The talk's figures for N = 10⁶, D = 13, K = 8: seconds of one evaluation.
const TALK: [(&str, f64); 3] =
    [("NumPy, 2018", 36.0), ("scikit-learn, 2018", 0.5), ("CUDA C on a GTX 970, 2018", 0.01)];
/// Most draws to record. A chain with more steps is thinned.
const MAX_DRAWS: usize = 2000;
/// Most iterations of warm-up.
const MAX_WARMUP: usize = 1000;
/// The fewest iterations of warm-up with which every sampler works.
const MIN_WARMUP: usize = 20;

/// A sampler to measure.
struct Case {
    sampler: Sampler,
    chains: usize,
    /// The kernel, if not the device's choice.
    kernel: Option<&'static str>,
}

/// The samplers to measure on a device.
fn cases(device: Device, dim: usize) -> Vec<Case> {
    let case = |sampler, chains| Case { sampler, chains, kernel: None };
    let mut cases = vec![case(Sampler::METROPOLIS, 1)];
    if let Device::Cuda(_) = device {
        // With this kernel the host decides on each step; the one that the device chooses decides by itself.
        cases.push(Case { kernel: Some("small_k"), ..case(Sampler::METROPOLIS, 1) });
    }
    cases.extend([case(Sampler::METROPOLIS, 64), case(Sampler::ENSEMBLE, 2 * dim), case(Sampler::NUTS, 1)]);
    cases
}

/// What `--json` prints for each measurement.
#[derive(Serialize)]
struct Row {
    device: String,
    kernel: String,
    sampler: &'static str,
    chains: usize,
    n: usize,
    k: usize,
    d: usize,
    /// The number of evaluations measured; for NUTS, of gradients.
    evaluations: u64,
    /// The time of one evaluation.
    seconds: f64,
    /// The time of a million evaluations.
    seconds_per_million: f64,
    acceptance: f64,
    /// The smallest effective sample size of a parameter, bulk or tail, per second; `None` if a run is too short to
    /// estimate it.
    ess_per_second: Option<f64>,
}

/// Time a million evaluations in a Markov chain
///
/// Shows the figures of the talk of 2018 from which this program grew ("Accelerating your Python Code For GMMs with
/// PyCUDA") beside them.
#[derive(Debug, Args)]
pub struct Mcmc {
    #[command(flatten)]
    mixture: MixtureOptions,
    /// Number of samples
    #[arg(long, value_parser = whole_number, default_value = "1e6")]
    n: usize,
    /// The most evaluations to measure
    #[arg(long, default_value = "1e6", value_name = "COUNT", value_parser = whole_number)]
    evaluations: usize,
    /// Seconds to spend on each measurement, besides warm-up
    #[arg(long, value_parser = seconds, default_value = "10")]
    seconds: Duration,
    /// Print the rows of the table as JSON
    #[arg(long)]
    json: bool,
}

impl Mcmc {
    /// Measures every case on every device and prints the table or the rows.
    pub fn run(self) -> anyhow::Result<()> {
        let mut line = ProgressLine::start("making random data");
        let problem = Problem::random([self.n, self.mixture.k, self.mixture.d], CovarianceType::Diag)?;
        let (samples, mixture) = (Samples::from_f32(problem.data.view())?, &problem.mixtures[0]);
        let bench = Bench { samples, mixture, budget: self.seconds, evaluations: self.evaluations };
        let data = DataSummary::new(&bench.samples);
        let model = PosteriorModel::new(self.mixture.k, CovarianceType::Diag, &Prior::default(), None, &data)?;
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for Named { name, device } in &self.mixture.device {
            for case in cases(*device, model.dim()) {
                let label = format!("{name}, {}, {} chains", case.sampler.name(), case.chains);
                line.show(format!("measuring {label}"));
                match measure(&bench, &model, *device, &case) {
                    Ok(row) => rows.push(Row { device: name.clone(), ..row }),
                    Err(error) => notes.push(format!("{label}: {error:#}")),
                }
            }
        }
        drop(line);
        print_rows(&rows, &notes, self.json, report)
    }
}

/// The data, the mixture, and the limits of a measurement.
struct Bench<'a> {
    samples: Samples<'a>,
    /// The mixture near which the chains begin.
    mixture: &'a Mixture,
    /// Longest time of each measurement, without warm-up.
    budget: Duration,
    /// Most evaluations of each measurement.
    evaluations: usize,
}

fn measure(bench: &Bench<'_>, model: &PosteriorModel, device: Device, case: &Case) -> anyhow::Result<Row> {
    let Case { sampler, chains, kernel } = *case;
    let mut evaluator = gaussmix::device::load(
        device,
        bench.samples.clone(),
        &LoadOptions::new().kernel(kernel.map(String::from)).tuning_file(tuning_file()),
    )?;
    evaluator.log_likelihood(bench.mixture)?;
    let begin = Instant::now();
    evaluator.log_likelihood(bench.mixture)?;
    let one = begin.elapsed().as_secs_f64().max(1e-9);
    // The iterations that fit into the budget. An iteration of NUTS takes some 30 gradients.
    let iteration = one * chains as f64 * if sampler == Sampler::NUTS { 30.0 } else { 1.0 };
    let room = (bench.budget.as_secs_f64() / iteration) as usize;
    if room < MIN_WARMUP {
        bail!("an iteration takes {}; give more --seconds to measure it", text::seconds(iteration));
    }
    let iterations = room.min((bench.evaluations / chains).max(1));
    let (warmup, thin) = (room.min(MAX_WARMUP), (iterations / MAX_DRAWS).max(1));
    let settings = Settings::new(sampler).chains(chains).warmup(warmup).draws(usize::MAX).thin(thin).seed(1);
    let start = Start::around(model, bench.mixture, &settings)?;
    let mut posterior = Posterior::new(model, evaluator.as_mut())?;
    let mut run = Chains::new(settings, start, &mut posterior)?;
    // Warm-up and the first draw are not measured.
    run.advance(&mut posterior, |p| if p.warming_up { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })?;
    let (before, begin) = (posterior.evaluations(), Instant::now());
    let limit = before + bench.evaluations as u64;
    run.advance(&mut posterior, |p| {
        let over = p.evaluations >= limit || begin.elapsed() >= bench.budget;
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let (seconds, evaluations) = (begin.elapsed().as_secs_f64(), posterior.evaluations() - before);
    let summary = run.summary();
    let enough = run.drawn() >= 100 && summary.min_ess().is_finite();
    Ok(Row {
        device: String::new(),
        kernel: run.identity().kernel.clone(),
        sampler: sampler.name(),
        chains,
        n: model.data().n_samples,
        k: model.n_components(),
        d: model.n_features(),
        evaluations,
        seconds: seconds / evaluations as f64,
        seconds_per_million: seconds / evaluations as f64 * MILLION,
        acceptance: run.acceptance(),
        ess_per_second: enough.then(|| summary.min_ess() / seconds),
    })
}

fn report(rows: &[Row], notes: &[String]) -> String {
    let first = &rows[0];
    let measured = rows.iter().map(|r| {
        vec![
            format!("{}, {}", r.device, r.sampler),
            r.kernel.clone(),
            r.chains.to_string(),
            text::grouped(r.evaluations),
            text::seconds(r.seconds),
            long_time(r.seconds_per_million),
            r.ess_per_second.map_or("–".into(), text::count),
        ]
    });
    let talk = TALK.iter().map(|&(name, seconds)| {
        let blank = String::new;
        vec![name.into(), blank(), "1".into(), blank(), text::seconds(seconds), long_time(seconds * MILLION), blank()]
    });
    let header = ["device", "kernel", "chains", "measured", "evaluation", "10⁶ evaluations", "ess/s"];
    let mut out = format!("N = {}, D = {}, K = {}, diagonal\n\n", text::grouped(first.n as u64), first.d, first.k);
    out += &text::table(&header, measured.chain(talk), 2);
    out += "\n\nA row of NUTS counts gradients. The rows of 2018 are the talk's, for N = 1,000,000, D = 13, K = 8.";
    if rows.iter().any(|r| r.kernel.starts_with("metropolis")) {
        out +=
            "\nWith the kernel `metropolis` the device decides on each step by itself; with the others the host does.";
    }
    for note in notes {
        out += "\n\n";
        out += note;
    }
    out
}

/// A time in seconds, minutes, hours, days or years.
fn long_time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => text::seconds(s),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s if s < 200.0 * 86_400.0 => format!("{:.1} days", s / 86_400.0),
        s => format!("{:.1} years", s / (365.25 * 86_400.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_talks_times_read_as_in_the_talk() {
        let times: Vec<String> = TALK.iter().map(|t| long_time(t.1 * MILLION)).collect();
        assert_eq!(times, ["1.1 years", "5.8 days", "2.8 h"]);
        assert_eq!(long_time(18.0), "18.0 s");
    }
}
