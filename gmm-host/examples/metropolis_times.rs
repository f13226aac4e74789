//! Times a step of random-walk Metropolis on a CUDA device, D = 13, K = 8, beside a step that the
//! host decides on: an evaluation from parameters to total.
//!
//! `cargo run --release -p gmm-host --features cuda --example metropolis_times [N | SHAPE ...]`:
//! each size is timed in the shape that the backend chooses, and in each SHAPE
//! (`metropolis:BLOCKxBLOCKS/RESIDENT:CACHED`).
use gmm_host::{
    CudaEvaluator, CudaOptions, Error, Evaluator, MetropolisPrior, MetropolisSteps, MetropolisTarget, Samples,
};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

const D: usize = 13;
const K: usize = 8;
/// Bytes a second that a kernel that only reads reaches on an H200, and its fused multiply-adds a
/// second.
const BYTES_PER_SECOND: f64 = 4.24e12;
const FMAS_PER_SECOND: f64 = 33.4e12;

/// The same few steps again and again, so that making them takes no time.
struct Steps {
    rows: Vec<f64>,
    width: usize,
    left: usize,
    seen: usize,
}

impl MetropolisSteps for Steps {
    fn propose(&mut self, rows: &mut [f64]) -> usize {
        let count = self.left.min(rows.len() / self.width).min(self.rows.len() / self.width);
        rows[..count * self.width].copy_from_slice(&self.rows[..count * self.width]);
        self.left -= count;
        count
    }

    fn record(&mut self, _: &[f64], log_densities: &[f64]) {
        self.seen += log_densities.len();
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Error> {
    match gmm_host::cuda_devices() {
        Ok(devices) => println!("{}", devices[0]),
        Err(error) => {
            println!("{error}\nThis example times CUDA kernels; there is nothing to time here.");
            return Ok(());
        }
    }
    let (mut sizes, mut shapes) = (Vec::new(), vec![None]);
    for argument in std::env::args().skip(1) {
        match argument.parse::<usize>() {
            Ok(n) => sizes.push(n),
            Err(_) => shapes.push(Some(argument)),
        }
    }
    if sizes.is_empty() {
        sizes = vec![100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
    }
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
    println!(
        "microseconds of a step (medians), and the larger of two floors: reading the data once, or the arithmetic"
    );
    println!("{:>10}  {:24} {:>8} {:>14} {:>8}", "N", "shape", "metropolis", "round trip", "floor");
    for n in sizes {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let x = Array2::from_shape_simple_fn((n, D), || rng.sample::<f32, _>(StandardNormal));
        let point: Vec<f64> = (0..dim).map(|_| 0.3 * rng.sample::<f64, _>(StandardNormal)).collect();
        // So long that some are accepted.
        let length = 1.0 / (n as f64 * dim as f64).sqrt();
        let mut rows = vec![0.0; 512 * width];
        for row in rows.chunks_exact_mut(width) {
            row[..dim].fill_with(|| length * rng.sample::<f64, _>(StandardNormal));
            row[dim] = rng.random::<f64>().ln();
        }
        let floor = (n * D * size_of::<f32>()) as f64 / BYTES_PER_SECOND;
        let floor = floor.max((n * K * (2 * D + 1)) as f64 / FMAS_PER_SECOND);
        for kernel in &shapes {
            let options = CudaOptions::default().with_kernel(kernel.clone());
            let mut cuda = CudaEvaluator::new(Samples::from_f32(x.view())?, 0, &options)?;
            let mixture = target.mixture(&point).ok_or(Error::UnreachableSample { row: 0 })?;
            let calls = if n > 5_000_000 { 200 } else { 2000 };
            let mut times = Vec::new();
            for _ in 0..calls {
                let start = Instant::now();
                cuda.log_likelihood(&mixture)?;
                times.push(start.elapsed().as_secs_f64());
            }
            let trip = median(times);
            let count = ((0.3 / (n as f64 * 2e-11 + 3e-6)) as usize).clamp(512, 50_000);
            let mut times = Vec::new();
            for _ in 0..6 {
                let mut steps = Steps { rows: rows.clone(), width, left: count, seen: 0 };
                let start = Instant::now();
                if !cuda.sampling().unwrap().metropolis(&target, &point, f64::NEG_INFINITY, &mut steps)? {
                    println!("{n:>10}  not possible on the device");
                    break;
                }
                assert_eq!(steps.seen, count);
                times.push(start.elapsed().as_secs_f64() / count as f64);
            }
            if times.len() > 1 {
                let step = median(times.split_off(1));
                let name = cuda.describe().kernel;
                println!("{n:>10}  {name:24} {:>8.2} {:>14.2} {:>8.2}", step * 1e6, trip * 1e6, floor * 1e6);
            }
        }
    }
    Ok(())
}
