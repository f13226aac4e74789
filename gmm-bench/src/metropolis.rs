use crate::batch::kernels;
use crate::{median, normal};
use clap::Args;
use gaussmix::Error;
use gaussmix::cuda::{CudaEvaluator, CudaOptions};
use gaussmix::data::Samples;
use gaussmix::evaluator::{Evaluator, MetropolisPrior, MetropolisSteps, MetropolisTarget};
use gaussmix::model::CovarianceType;
use gaussmix::program::whole_number;
use gaussmix_cli::bench::{Rates, Task, text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const D: usize = 13;
const K: usize = 8;

/// Time a step of random-walk Metropolis on a GPU, beside a step decided by the host
///
/// D = 13, K = 8, diagonal covariances. `by the host` is an evaluation from parameters to total.
#[derive(Debug, Args)]
pub struct Metropolis {
    /// Numbers of samples
    #[arg(long, value_delimiter = ',', value_parser = whole_number, default_value = "1e2,1e3,1e4,1e5,1e6,1e7")]
    n: Vec<usize>,
    /// Shapes of the launch instead of the device's choice, as metropolis:BLOCKxBLOCKS/RESIDENT:CACHED
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    #[command(flatten)]
    rates: Rates,
}

/// The same few steps repeated, so that making them takes no time.
struct Steps<'a> {
    rows: &'a [f64],
    width: usize,
    left: usize,
}

impl MetropolisSteps for Steps<'_> {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let count = self.left.min(rows.len() / self.width).min(self.rows.len() / self.width);
        rows[..count * self.width].copy_from_slice(&self.rows[..count * self.width]);
        self.left -= count;
        count
    }

    fn record(&mut self, _: &[f64], _: &[f64]) {}
}

impl Metropolis {
    pub fn run(self) -> anyhow::Result<()> {
        let prior = MetropolisPrior {
            concentration: vec![1.0; K],
            location: vec![0.0; K * D],
            precision: vec![1.0; K * D],
            scaled_precision: vec![0.0; K * D],
            by_log_scale: vec![1.0; K * D],
            by_variance: vec![0.5; K * D],
            by_precision: vec![0.0; K * D],
            constant: 0.0,
        };
        let target = MetropolisTarget { n_components: K, n_features: D, spherical: false, prior };
        let (dim, width) = (target.dim(), target.step_width());
        let mut table = Vec::new();
        for &n in &self.n {
            let x = normal(n, D)?;
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let point: Vec<f64> = (0..dim).map(|_| 0.3 * rng.sample::<f64, _>(StandardNormal)).collect();
            let mixture = target.mixture(&point).ok_or(Error::UnreachableSample { row: 0 })?;
            // Long enough that some are accepted.
            let length = 1.0 / (n as f64 * dim as f64).sqrt();
            let mut rows = vec![0.0; 512 * width];
            for row in rows.chunks_exact_mut(width) {
                row[..dim].fill_with(|| length * rng.sample::<f64, _>(StandardNormal));
                row[dim] = rng.random::<f64>().ln();
            }
            let count = ((0.05 / (n as f64 * 2e-11 + 3e-6)) as usize).clamp(512, 50_000);
            let floor = self.rates.floor(Task::Total, CovarianceType::Diag, [n, K, D]);
            for kernel in kernels(&self.kernel) {
                let options = CudaOptions::default().with_kernel(kernel);
                let mut cuda = CudaEvaluator::new(Samples::from_f32(x.view())?, 0, &options)?;
                let by_host = median(|_| cuda.log_likelihood(&mixture).map(drop))?;
                let mut possible = true;
                let steps = median(|_| {
                    let mut steps = Steps { rows: &rows, width, left: count };
                    let sampling = cuda.sampling();
                    possible &= sampling
                        .map_or(Ok(false), |on| on.metropolis(&target, &point, f64::NEG_INFINITY, &mut steps))?;
                    Ok::<_, Error>(())
                })?;
                let step = if possible { text::seconds(steps / count as f64) } else { "not possible".into() };
                let times = [step, text::seconds(by_host), text::seconds(floor)];
                table.push([text::grouped(n as u64), cuda.describe().kernel].into_iter().chain(times).collect());
            }
        }
        text::print(text::table(&["N", "kernel", "step", "by the host", "floor"], table, 0))
    }
}
