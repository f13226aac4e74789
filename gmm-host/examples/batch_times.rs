//! Times batches of parameter sets that are near to each other, as those of a sampler are: D = 13, K = 8, diagonal covariances.
//!
//! `cargo run --release -p gmm-host --features cuda --example batch_times [KERNEL ...]`, where a KERNEL is a name or a variant, for example
//! `batch_tensor_cores` or `batch_tensor_cores/64:512x1:0`
use gmm_host::{Covariances, CudaEvaluator, CudaOptions, Error, Evaluator, Mixture, Samples};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

const D: usize = 13;
const K: usize = 8;
/// Samples: few, whose time is that of everything else, and many.
const SIZES: [usize; 2] = [1000, 1_000_000];
/// Parameter sets of a batch.
const SETS: [usize; 3] = [64, 32, 16];

/// Mixtures about as far from each other as a posterior of 10⁶ samples is wide.
fn mixtures(rng: &mut ChaCha8Rng, count: usize) -> Result<Vec<Mixture>, Error> {
    let weights = Array1::from_shape_simple_fn(K, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((K, D), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((K, D), || rng.random_range(0.3..2.0));
    let mut near = |scale: f64| -> Result<Mixture, Error> {
        let mut step = || scale * rng.sample::<f64, _>(StandardNormal);
        let weights = weights.mapv(|v: f64| v * (1.0 + step()));
        let means = means.mapv(|v| v + step());
        let variances = variances.mapv(|v: f64| v * (1.0 + step()));
        Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances))
    };
    (0..count).map(|_| near(3e-3)).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Error> {
    if let Err(error) = gmm_host::cuda_devices() {
        println!("{error}\nThis example times CUDA kernels; there is nothing to time here.");
        return Ok(());
    }
    let mut kernels: Vec<Option<String>> = std::env::args().skip(1).map(Some).collect();
    if kernels.is_empty() {
        kernels.push(None);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let sets = mixtures(&mut rng, SETS[0])?;
    let x = Array2::from_shape_simple_fn((SIZES[1], D), || rng.sample::<f32, _>(StandardNormal));
    println!("D = {D}, K = {K}; microseconds a set, medians; sets of a batch: {SETS:?}");
    for kernel in kernels {
        let options = CudaOptions::default().with_kernel(kernel);
        for n in SIZES {
            let mut cuda = CudaEvaluator::new(Samples::from_f32(x.slice(ndarray::s![..n, ..]))?, 0, &options)?;
            let mut row = Vec::new();
            for count in SETS {
                let mut times = Vec::new();
                for _ in 0..50 {
                    let began = Instant::now();
                    cuda.log_likelihood_batch(&sets[..count])?;
                    times.push(began.elapsed().as_secs_f64() * 1e6 / count as f64);
                }
                row.push(median(times.split_off(10)));
            }
            let row: Vec<String> = row.iter().map(|time| format!("{time:7.2}")).collect();
            println!("  N = {n:8} {} {}", row.join(" "), cuda.describe().kernel);
        }
    }
    Ok(())
}
