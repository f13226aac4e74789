//! Times an EM iteration (parameters in to new parameters out) and a total on the GPU, beside what
//! the arithmetic needs.
//!
//! `cargo run --release -p gmm-host --features cuda --example estep_times [N [CASES [KERNEL]]]`,
//! where CASES are the numbers of some of the cases, from 0 and with commas between them, or `all`
use gmm_host::{CovarianceType, Covariances, CudaEvaluator, CudaOptions, Error, Evaluator, Freeze, Mixture, Samples};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

/// Fused multiply-adds a second of an H200: 132 multiprocessors of 128 lanes at 1.98 GHz.
const FMAS_PER_SECOND: f64 = 33.4e12;
/// D, K, type, and the aim in milliseconds for N = 10⁶.
const CASES: [(usize, usize, CovarianceType, f64); 8] = [
    (13, 8, CovarianceType::Diag, 0.03),
    (13, 8, CovarianceType::Full, 0.09),
    (32, 64, CovarianceType::Diag, 0.25),
    (32, 64, CovarianceType::Full, 1.5),
    (64, 32, CovarianceType::Diag, f64::NAN),
    (64, 32, CovarianceType::Full, 3.0),
    (128, 1024, CovarianceType::Diag, 6.0),
    (128, 16, CovarianceType::Full, 6.0),
];

/// Components as wide as the data and near its centre, so that every sample belongs to several of
/// them.
fn mixture(rng: &mut ChaCha8Rng, k: usize, d: usize, covariance_type: CovarianceType) -> Result<Mixture, Error> {
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.5..1.5));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal) / (d as f64).sqrt());
    let covariances = if covariance_type == CovarianceType::Full {
        Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 1.2 } else { 0.2 }))
    } else {
        Covariances::Diag(Array2::from_shape_simple_fn((k, d), || rng.random_range(0.9..1.1)))
    };
    Mixture::new(&weights / weights.sum(), means, covariances)
}

fn main() -> Result<(), Error> {
    if let Err(error) = gmm_host::cuda_devices() {
        println!("{error}\nThis example times CUDA kernels; there is nothing to time here.");
        return Ok(());
    }
    let n = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let cases = std::env::args().nth(2).unwrap_or_else(|| "all".into());
    let is_chosen = |i: usize| cases == "all" || cases.split(',').any(|case| case == i.to_string());
    let options = CudaOptions::default().with_kernel(std::env::args().nth(3));
    println!("N = {n}, float32; milliseconds, medians of 29; floor: arithmetic at 33.4·10¹² multiply-adds a second");
    println!("   D     K  type      E-step  iteration    floor      aim      total    floor  kernel of the total");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (i, (d, k, covariance_type, aim)) in CASES.into_iter().enumerate() {
        if !is_chosen(i) {
            continue;
        }
        let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
        let mut cuda = CudaEvaluator::new(Samples::from_f32(x.view())?, 0, &options)?;
        let start = mixture(&mut rng, k, d, covariance_type)?;
        let (mut steps, mut iterations) = (Vec::new(), Vec::new());
        // From one start each time, so that the responsibilities stay spread over the components.
        for _ in 0..30 {
            let began = Instant::now();
            let statistics = match cuda.statistics(&start) {
                Err(error @ Error::Kernel { .. }) => {
                    println!("{d:4} {k:5}  {covariance_type:6} {error}");
                    break;
                }
                statistics => statistics?,
            };
            steps.push(began.elapsed().as_secs_f64() * 1e3);
            statistics.update(&start, 1e-6, &Freeze::default())?;
            iterations.push(began.elapsed().as_secs_f64() * 1e3);
        }
        if steps.is_empty() {
            continue;
        }
        let median = |times: &mut Vec<f64>| {
            times.remove(0);
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let per_pair = if covariance_type == CovarianceType::Full { d * (d + 1) + 2 * d } else { 4 * d };
        let floor = (n * k * per_pair) as f64 / FMAS_PER_SECOND * 1e3;
        let (step, iteration) = (median(&mut steps), median(&mut iterations));
        let mut totals = Vec::new();
        for _ in 0..30 {
            let began = Instant::now();
            cuda.log_likelihood(&start)?;
            totals.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let (total, kernel) = (median(&mut totals), cuda.describe().kernel);
        let of_total =
            (n * k * if covariance_type == CovarianceType::Full { d * (d + 1) / 2 + d } else { 2 * d }) as f64;
        let floor_of_total = of_total / FMAS_PER_SECOND * 1e3;
        println!(
            "{d:4} {k:5}  {covariance_type:6} {step:9.3} {iteration:10.3} {floor:8.3} {aim:8.3} {total:10.3} \
             {floor_of_total:8.3}  {kernel}"
        );
    }
    Ok(())
}
