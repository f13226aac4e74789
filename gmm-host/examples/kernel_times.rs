//! Times the CUDA kernels and the way from parameters to total, D = 13, K = 8, beside what the
//! hardware allows.
//!
//! `cargo run --release -p gmm-host --features cuda --example kernel_times [N ...]`
use gmm_host::{Covariances, CudaEvaluator, CudaOptions, Error, Evaluator, Mixture, Samples, cuda_kernel_names};
use ndarray::{Array1, Array2, Array3, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

const D: usize = 13;
const K: usize = 8;
/// Parameter sets of the batch.
const SETS: usize = 64;
/// Bytes a second that a kernel that only reads reaches on an H200, measured.
const BYTES_PER_SECOND: f64 = 4.24e12;
/// Fused multiply-adds a second of an H200: 132 multiprocessors of 128 lanes at 1.98 GHz.
const FMAS_PER_SECOND: f64 = 33.4e12;

fn mixture(rng: &mut ChaCha8Rng) -> Result<Mixture, Error> {
    let weights = Array1::from_shape_simple_fn(K, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((K, D), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((K, D), || rng.random_range(0.3..2.0));
    Mixture::new(&weights / weights.sum(), means, Covariances::Diag(variances))
}

/// Covariances of each type that has matrices, and the multiply-adds of a sample's total under
/// them.
fn with_matrices(m: &Mixture) -> Result<[(&'static str, Mixture, usize); 2], Error> {
    let matrix = |c: usize| Array2::from_shape_fn((D, D), |(i, j)| if i == j { 1.2 + 0.1 * c as f64 } else { 0.2 });
    let mut full = Array3::zeros((K, D, D));
    full.axis_iter_mut(Axis(0)).enumerate().for_each(|(c, mut to)| to.assign(&matrix(c)));
    let with = |covariances| Mixture::new(m.weights().to_owned(), m.means().to_owned(), covariances);
    let triangle = D * (D + 1) / 2;
    Ok([
        ("full", with(Covariances::Full(full))?, K * (triangle + D + 1)),
        ("tied", with(Covariances::Tied(matrix(0)))?, triangle + K * (2 * D + 1)),
    ])
}

/// Mixtures beside another one, as far as a posterior of 10⁶ samples is wide.
fn beside(m: &Mixture) -> Result<Vec<Mixture>, Error> {
    let Covariances::Diag(variances) = m.covariances() else { unreachable!("a diagonal mixture") };
    let scaled = |i: usize| {
        let factor = 1.0 + 1e-5 * i as f64;
        Mixture::new(m.weights().to_owned(), m.means().mapv(|v| v * factor), Covariances::Diag(variances * factor))
    };
    (0..SETS).map(scaled).collect()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Median seconds of `work` over so many calls, after some that do not count.
fn seconds(calls: usize, mut work: impl FnMut(usize) -> Result<(), Error>) -> Result<f64, Error> {
    let mut times = Vec::with_capacity(calls);
    for i in 0..calls + calls / 10 + 1 {
        let start = Instant::now();
        work(i)?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(median(times.split_off(calls / 10 + 1)))
}

fn main() -> Result<(), Error> {
    match gmm_host::cuda_devices() {
        Ok(devices) => println!("{}", devices[0]),
        Err(error) => {
            println!("{error}\nThis example times CUDA kernels; there is nothing to time here.");
            return Ok(());
        }
    }
    let mut sizes: Vec<usize> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![100, 1_000_000, 10_000_000];
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let sets: Vec<Mixture> = (0..SETS).map(|_| mixture(&mut rng)).collect::<Result<_, _>>()?;
    let mut table = Vec::new();
    for n in sizes {
        let x = Array2::from_shape_simple_fn((n, D), || rng.sample::<f32, _>(StandardNormal));
        let load = |kernel: Option<String>| {
            let options = CudaOptions::default().with_kernel(kernel);
            CudaEvaluator::new(Samples::from_f32(x.view())?, 0, &options)
        };
        println!("\nN = {n}, D = {D}, K = {K}: kernel, back to back");
        for name in cuda_kernel_names() {
            let mut cuda = load(Some(name.clone()))?;
            cuda.kernel_seconds(&sets[0], 10)?;
            if !cuda.describe().kernel.starts_with(&name) {
                // The kernel is for other operations, and another one has evaluated the likelihood.
                continue;
            }
            let times: Result<Vec<f64>, Error> = (0..5).map(|_| cuda.kernel_seconds(&sets[0], 100)).collect();
            println!("  {:24} {:9.2} µs", cuda.describe().kernel, median(times?) * 1e6);
        }
        let mut cuda = load(None)?;
        cuda.kernel_seconds(&sets[0], 10)?;
        let kernel = median((0..5).map(|_| cuda.kernel_seconds(&sets[0], 200)).collect::<Result<_, _>>()?);
        let chosen = cuda.describe().kernel;
        let calls = if n > 5_000_000 { 500 } else { 2000 };
        let total = seconds(calls, |i| cuda.log_likelihood(&sets[i % SETS]).map(|_| ()))?;
        let batch = seconds(calls / 20, |_| cuda.log_likelihood_batch(&sets).map(|_| ()))? / SETS as f64;
        println!("  batch of {SETS}, far from each other: {}", cuda.describe().kernel);
        let sets_beside = beside(&sets[0])?;
        let near = seconds(calls / 20, |_| cuda.log_likelihood_batch(&sets_beside).map(|_| ()))? / SETS as f64;
        println!("  batch of {SETS} near to each other, a set: {:.2} µs, {}", near * 1e6, cuda.describe().kernel);
        let step = seconds(calls / 10, |i| cuda.statistics(&sets[i % SETS]).map(|_| ()))?;
        println!("  E-step, parameters to statistics: {:.1} µs", step * 1e6);
        let read = (n * D * size_of::<f32>()) as f64 / BYTES_PER_SECOND;
        let others = |cuda: &mut CudaEvaluator<'_>, name: &str, mixture: &Mixture, multiply_adds: usize| {
            cuda.kernel_seconds(mixture, 10)?;
            let kernel = median((0..5).map(|_| cuda.kernel_seconds(mixture, 100)).collect::<Result<_, Error>>()?);
            let chosen = cuda.describe().kernel;
            let total = seconds(calls / 10, |_| cuda.log_likelihood(mixture).map(|_| ()))?;
            let floor = read.max((n * multiply_adds) as f64 / FMAS_PER_SECOND);
            let [kernel, total, floor] = [kernel, total, floor].map(|s| s * 1e6);
            println!("  {name}: {chosen}, kernel {kernel:.1} µs, floor {floor:.1}, parameters to total {total:.1}");
            Ok::<(), Error>(())
        };
        let matrices = with_matrices(&sets[0])?;
        for (name, mixture, multiply_adds) in &matrices {
            others(&mut cuda, name, mixture, *multiply_adds)?;
        }
        let weights = Array1::from_shape_fn(n, |i| 0.5 + (i % 4) as f64 / 4.0);
        let samples = Samples::from_f32(x.view())?.with_weights(weights.view())?;
        let mut weighted = CudaEvaluator::new(samples, 0, &CudaOptions::default())?;
        others(&mut weighted, "weighted samples, diag", &sets[0], K * (2 * D + 1))?;
        let [(_, full, multiply_adds), _] = &matrices;
        others(&mut weighted, "weighted samples, full", full, *multiply_adds)?;
        let arithmetic = (n * K * (2 * D + 1)) as f64 / FMAS_PER_SECOND;
        table.push((n, chosen, [kernel, read.max(arithmetic), total, batch, arithmetic].map(|s| s * 1e6)));
    }
    println!("\nMicroseconds (medians); floors of an H200: one read of the data at 4.24 TB/s or the arithmetic");
    println!(
        "{:>10}  {:20} {:>10} {:>8} {:>18} {:>14} {:>8}",
        "N", "variant", "kernel", "floor", "parameters→total", "a set of 64", "floor"
    );
    for (n, chosen, [kernel, floor, total, batch, arithmetic]) in table {
        println!("{n:>10}  {chosen:20} {kernel:>10.2} {floor:>8.2} {total:>18.2} {batch:>14.2} {arithmetic:>8.2}");
    }
    Ok(())
}
