//! Times batches of parameter sets that are near to each other, as those of a sampler are: D = 13
//! and D = 20, K = 8, diagonal covariances.
//!
//! `cargo run --release -p gmm-host --features cuda --example batch_times [KERNEL ...]`, where a
//! KERNEL is a name or a variant, for example `batch_mma` or
//! `batch_mma/64:512x1:0`
use gmm_host::{Covariances, CudaEvaluator, CudaOptions, Error, Evaluator, Mixture, Samples};
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

const FEATURES: [usize; 2] = [13, 20];
const K: usize = 8;
/// Samples: few, whose time is that of everything else, and up to many.
const SIZES: [usize; 3] = [1000, 100_000, 1_000_000];
/// Parameter sets of a batch.
const SETS: [usize; 4] = [64, 32, 16, 8];
/// Threads that evaluate batches side by side, each with a share of the samples.
const THREADS: [usize; 5] = [1, 2, 3, 4, 6];

/// Mixtures about as far from each other as a posterior of 10⁶ samples is wide.
fn mixtures(rng: &mut ChaCha8Rng, d: usize, count: usize) -> Result<Vec<Mixture>, Error> {
    let weights = Array1::from_shape_simple_fn(K, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((K, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((K, d), || rng.random_range(0.3..2.0));
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

/// Microseconds a set where so many threads evaluate batches of these sets at the same time.
fn side_by_side(cuda: &CudaEvaluator<'_>, threads: usize, sets: &[Mixture]) -> Result<f64, Error> {
    const BATCHES: usize = 40;
    let mut shares: Vec<_> = (0..threads).map(|_| cuda.share()).collect::<Result<_, _>>()?;
    let mut times = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let of_threads = |share: &mut Box<dyn Evaluator + '_>| -> Result<(), Error> {
            (0..BATCHES / threads).try_for_each(|_| share.log_likelihood_batch(sets).map(drop))
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = shares.iter_mut().map(|share| scope.spawn(move || of_threads(share))).collect();
            running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        })?;
        let evaluated = BATCHES / threads * threads * sets.len();
        times.push(began.elapsed().as_secs_f64() * 1e6 / evaluated as f64);
    }
    Ok(median(times.split_off(2)))
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
    for d in FEATURES {
        println!("D = {d}, K = {K}; microseconds a set, medians; sets of a batch: {SETS:?}");
        for kernel in &kernels {
            times(d, kernel)?;
        }
    }
    Ok(())
}

/// Prints the times for data of `d` features, by a kernel if one is asked for.
fn times(d: usize, kernel: &Option<String>) -> Result<(), Error> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let sets = mixtures(&mut rng, d, SETS[0])?;
    let x = Array2::from_shape_simple_fn((SIZES[SIZES.len() - 1], d), || rng.sample::<f32, _>(StandardNormal));
    let options = CudaOptions::default().with_kernel(kernel.clone());
    for n in SIZES {
        let mut cuda = CudaEvaluator::new(Samples::from_f32(x.slice(ndarray::s![..n, ..]))?, 0, &options)?;
        // The reference of all batches, and the choice of the kernel.
        cuda.sampling().unwrap().fix_batch_reference(&sets[0]);
        cuda.log_likelihood_batch(&sets)?;
        for threads in THREADS {
            let row: Vec<String> = SETS
                .iter()
                .map(|&count| Ok(format!("{:7.2}", side_by_side(&cuda, threads, &sets[..count])?)))
                .collect::<Result<_, Error>>()?;
            println!("  N = {n:8}, {threads} threads {} {}", row.join(" "), cuda.describe().kernel);
        }
    }
    Ok(())
}
