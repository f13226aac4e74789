//! Times many fits in one call.
//!
//! `cargo run --release -p gmm-host --example many_times [ROUNDS] [DEVICE] [CASE]`.
use gmm_host::{CovarianceType, Device, Error, GaussianMixtureParams, Samples};
use ndarray::{Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

/// Name, sets, N, D and K.
const CASES: [(&str, usize, usize, usize, usize); 6] = [
    ("groups", 1000, 500, 5, 3),
    ("columns", 20, 100_000, 1, 10),
    ("small fits", 10_000, 100, 2, 2),
    ("images", 10_000, 1000, 8, 4),
    ("bulkem", 40_000, 2000, 1, 2),
    ("selection", 10, 20_000, 10, 11),
];

/// Samples (N, D) around K centres of a few standard deviations' distance.
fn blobs(n: usize, d: usize, k: usize, rng: &mut ChaCha8Rng) -> Array2<f64> {
    let centres = Array2::from_shape_simple_fn((k, d), || 4.0 * rng.sample::<f64, _>(StandardNormal));
    Array2::from_shape_fn((n, d), |(i, j)| centres[[i % k, j]] + rng.sample::<f64, _>(StandardNormal))
}

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let device: Device = std::env::args().nth(2).map_or(Ok(Device::Cpu), |name| name.parse())?;
    let case = std::env::args().nth(3);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    println!("float64, full covariances, {device}; milliseconds of all fits, median of {rounds} rounds");
    for (name, sets, n, d, k) in CASES {
        if case.as_ref().is_some_and(|case| case != name) {
            continue;
        }
        let mut x = Array2::zeros((sets * n, d));
        for set in 0..sets {
            x.slice_mut(s![set * n..(set + 1) * n, ..]).assign(&blobs(n, d, k, &mut rng));
        }
        let group: Vec<usize> = (0..sets * n).map(|row| row / n).collect();
        let sets = Samples::from_f64(x.view())?.groups(&group, sets)?;
        let params = GaussianMixtureParams::new(k).covariance_type(CovarianceType::Full).device(device);
        let mut times = Vec::new();
        let mut iterations = 0;
        for _ in 0..rounds {
            let begin = Instant::now();
            let fits = params.fit_many(&sets, &())?;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
            iterations = fits.iter().flatten().map(|fit| fit.n_iter()).sum();
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{name:>15}: {} sets of {n}x{d}, K={k}: {median:9.1} ms, {:7.1} us a fit, {:.1} iterations a fit",
            sets.len(),
            1e3 * median / sets.len() as f64,
            iterations as f64 / sets.len() as f64
        );
    }
    Ok(())
}
