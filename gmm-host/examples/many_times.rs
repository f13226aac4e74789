//! Times many fits in one call.
//!
//! `cargo run --release -p gmm-host --example many_times [ROUNDS] [DEVICE] [CASE]`.
use gmm_host::{CovarianceType, Device, Error, GaussianMixtureParams, Samples, fit_many};
use ndarray::{Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::time::Instant;

/// Name, sets, N, D, K, the centres' standard deviation, and whether fits go on to 100 iterations.
const CASES: [(&str, usize, usize, usize, usize, f64, bool); 5] = [
    ("groups", 1000, 500, 5, 3, 4.0, false),
    ("columns", 20, 100_000, 1, 10, 4.0, false),
    ("small fits", 10_000, 100, 2, 2, 4.0, false),
    ("images", 10_000, 1000, 8, 4, 1.0, false),
    ("histograms", 40_000, 2000, 1, 2, 1.0, true),
];
/// N and D of a selection: K = 1 to 11, ten starts each.
const SELECTION: (usize, usize) = (20_000, 10);

/// Samples (N, D) around K centres, with the standard deviation 1.
fn blobs(n: usize, d: usize, k: usize, apart: f64, rng: &mut ChaCha8Rng) -> Array2<f64> {
    let centres = Array2::from_shape_simple_fn((k, d), || apart * rng.sample::<f64, _>(StandardNormal));
    Array2::from_shape_fn((n, d), |(i, j)| centres[[i % k, j]] + rng.sample::<f64, _>(StandardNormal))
}

/// Prints the median time of some rounds of `fit`, which returns the number of fits and their
/// iterations.
fn time(name: &str, rounds: usize, fit: impl Fn() -> Result<(usize, usize), Error>) -> Result<(), Error> {
    let mut times = Vec::new();
    let (mut fits, mut iterations) = (0, 0);
    for _ in 0..rounds {
        let begin = Instant::now();
        (fits, iterations) = fit()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    let (each, mean) = (1e3 * median / fits as f64, iterations as f64 / fits as f64);
    println!("{name:>40}: {median:9.1} ms, {each:7.1} us for each of {fits} fits, {mean:.1} iterations a fit");
    Ok(())
}

fn main() -> Result<(), Error> {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let device: Device = std::env::args().nth(2).map_or(Ok(Device::Cpu), |name| name.parse())?;
    let case = std::env::args().nth(3);
    let asked = |name: &str| case.as_ref().is_none_or(|case| case == name);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    println!("float64, full covariances, {device}; milliseconds of all fits, median of {rounds} rounds");
    let params = GaussianMixtureParams::new(1).covariance_type(CovarianceType::Full).device(device);
    for (name, sets, n, d, k, apart, all_iterations) in CASES {
        if !asked(name) {
            continue;
        }
        let mut x = Array2::zeros((sets * n, d));
        for set in 0..sets {
            x.slice_mut(s![set * n..(set + 1) * n, ..]).assign(&blobs(n, d, k, apart, &mut rng));
        }
        let group: Vec<usize> = (0..sets * n).map(|row| row / n).collect();
        let sets = Samples::from_f64(x.view())?.groups(&group, sets)?;
        let params = params.clone().n_components(k).tol(if all_iterations { 0.0 } else { 1e-3 });
        time(&format!("{name}, {n}x{d}, K={k}"), rounds, || {
            let fits = params.fit_many(&sets, &())?;
            Ok((fits.len(), fits.iter().flatten().map(|fit| fit.n_iter()).sum()))
        })?;
    }
    if asked("selection") {
        let (n, d) = SELECTION;
        let x = blobs(n, d, 5, 1.0, &mut rng);
        let sets = [Samples::from_f64(x.view())?];
        let params: Vec<_> =
            (1..=11).map(|k| params.clone().n_components(k).n_init(10).check()).collect::<Result<_, _>>()?;
        // The longest first.
        let params: Vec<_> = params.into_iter().rev().collect();
        let sets = vec![sets[0].clone(); params.len()];
        time(&format!("selection, {n}x{d}, K=1 to 11"), rounds, || {
            let fits = fit_many(&sets, &|set| &params[set], &(), &());
            Ok((fits.len(), fits.iter().flatten().map(|fit| fit.n_iter()).sum()))
        })?;
    }
    Ok(())
}
