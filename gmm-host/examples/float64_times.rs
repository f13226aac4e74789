//! Times the CUDA backend in float64, and in float32 with sample weights, beside what the hardware
//! allows.
//!
//! `cargo run --release -p gmm-host --features cuda --example float64_times [N ...]`
use gmm_host::{CovarianceType, Covariances, CudaEvaluator, CudaOptions, Error, Evaluator, Mixture, Samples};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

/// D and K.
const SHAPES: [(usize, usize); 3] = [(13, 8), (32, 64), (64, 16)];
/// Fused multiply-adds a second of an H200: 132 multiprocessors of 64 (float64) or 128 lanes at
/// 1.98 GHz.
const FMAS_PER_SECOND: [f64; 2] = [16.7e12, 33.4e12];
/// Number of calls, of which the median is taken.
const CALLS: usize = 21;

fn mixture(rng: &mut ChaCha8Rng, t: CovarianceType, k: usize, d: usize) -> Result<Mixture, Error> {
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.3..2.0));
    let covariances =
        match t {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| {
                if i == j { variances[[c, i]] } else { 0.1 / d as f64 }
            })),
            _ => Covariances::Diag(variances),
        };
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)
}

fn seconds(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[CALLS / 2])
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
        sizes = vec![1000, 1_000_000];
    }
    println!("Microseconds (medians of {CALLS}); the floor is the arithmetic of an H200");
    let columns = ["kernels", "floor", "total", "E-step", "floor", "scores", "labels", "1000 rows"];
    print!("{:>9} {:>3} {:>4} {:5} {:9}", "N", "D", "K", "type", "precision");
    println!("{}", columns.map(|column| format!(" {column:>9}")).concat());
    for n in sizes {
        for (d, k) in SHAPES {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f64, _>(StandardNormal));
            let (single, weights) = (x.mapv(|v| v as f32), Array1::from_elem(n, 1.0));
            let rows: Vec<usize> = (0..1000).map(|i| i * 7919 % n).collect();
            for t in [CovarianceType::Diag, CovarianceType::Full] {
                let mixture = mixture(&mut rng, t, k, d)?;
                let samples =
                    [Samples::from_f64(x.view())?, Samples::from_f32(single.view())?.with_weights(weights.view())?];
                for (i, (samples, name)) in samples.into_iter().zip(["float64", "float32 w"]).enumerate() {
                    let mut cuda = CudaEvaluator::new(samples, 0, &CudaOptions::default())?;
                    // Multiply-adds of a sample and component: the exponent, and the moments
                    // besides.
                    let (exponent, moments) = match t {
                        CovarianceType::Full => (d * (d + 3) / 2, (d + 1) * (d + 2) / 2),
                        _ => (2 * d, 2 * d),
                    };
                    let floor = |work: usize| (n * k * work) as f64 / FMAS_PER_SECOND[i];
                    let times = [
                        cuda.kernel_seconds(&mixture, 10)?,
                        floor(exponent),
                        seconds(|| cuda.log_likelihood(&mixture).map(|_| ()))?,
                        seconds(|| cuda.statistics(&mixture).map(|_| ()))?,
                        floor(exponent + moments),
                        seconds(|| cuda.score_samples(&mixture).map(|_| ()))?,
                        seconds(|| cuda.predict(&mixture).map(|_| ()))?,
                        seconds(|| cuda.rows(&rows).map(|_| ()))?,
                    ];
                    print!("{n:>9} {d:>3} {k:>4} {:5} {name:9}", t.to_string());
                    println!("{}", times.map(|time| format!(" {:>9.1}", time * 1e6)).concat());
                }
            }
        }
    }
    Ok(())
}
