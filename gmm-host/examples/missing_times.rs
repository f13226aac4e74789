//! Times of an evaluation and of an E-step over samples with missing values, beside those over
//! complete ones.
//!
//! ```sh
//! cargo run --release -p gmm-host --example missing_times -- [N] [D] [K] [DEVICE]
//! ```
//!
//! With the feature `cuda` the device may be `cuda`.
#![allow(missing_docs)]
use gmm_host::{CovarianceType, Covariances, Device, Error, LoadOptions, Mixture, Result, Samples, load};
use ndarray::{Array1, Array2, Array3};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::collections::HashSet;
use std::time::Instant;

/// The share of the values that is missing, and the most patterns of missing values (none: each row
/// has its own draw).
const CASES: [(f64, Option<usize>); 5] =
    [(0.1, Some(10)), (0.1, Some(100)), (0.1, Some(1000)), (0.1, None), (0.5, None)];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut sizes = arguments.iter().take(3).map(|v| v.parse::<f64>().expect("a number") as usize);
    let device: Device = arguments.get(3).map_or("cpu", String::as_str).parse()?;
    let (n, d, k) = (sizes.next().unwrap_or(1_000_000), sizes.next().unwrap_or(13), sizes.next().unwrap_or(8));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
    println!("N = {n}, D = {d}, K = {k}, float32, {device}; medians of 5 or more");
    for (share, most) in [(0.0, None)].into_iter().chain(CASES) {
        let (holes, patterns) = with_holes(&mut rng, &x, share, most);
        let begin = Instant::now();
        let mut evaluator = load(device, Samples::with_missing(holes.view())?, &LoadOptions::new())?;
        let loaded = begin.elapsed().as_secs_f64();
        println!("{:.0} % missing, {patterns} patterns: loaded in {:.0} ms", 100.0 * share, 1e3 * loaded);
        for covariance_type in CovarianceType::ALL {
            let mixture = mixture(covariance_type, k, d)?;
            let score = match median(|| evaluator.log_likelihood(&mixture).map(drop)) {
                Err(Error::Unsupported { .. }) => {
                    println!("  {covariance_type:9}  not supported");
                    continue;
                }
                score => score?,
            };
            let kernel = evaluator.describe().kernel;
            let estep = median(|| evaluator.statistics(&mixture).map(drop))?;
            let (score, estep, other) = (1e3 * score, 1e3 * estep, evaluator.describe().kernel);
            println!(
                "  {covariance_type:9}  log-likelihood {score:9.3} ms ({kernel}), E-step {estep:9.3} ms ({other})"
            );
        }
    }
    Ok(())
}

/// Makes a share of the values missing, and counts the patterns.
fn with_holes(rng: &mut ChaCha8Rng, x: &Array2<f32>, share: f64, most: Option<usize>) -> (Array2<f32>, usize) {
    let d = x.ncols();
    let mut draw = || (0..d).map(|_| rng.random::<f64>() < share).collect::<Vec<bool>>();
    // So many different patterns, as they come.
    let some: Option<Vec<_>> = most.map(|most| {
        let (mut seen, mut some) = (HashSet::new(), Vec::new());
        while some.len() < most {
            let pattern = draw();
            if seen.insert(pattern.clone()) {
                some.push(pattern);
            }
        }
        some
    });
    let mut holes = x.clone();
    let mut patterns = HashSet::new();
    for (i, mut row) in holes.outer_iter_mut().enumerate() {
        let pattern = some.as_ref().map_or_else(&mut draw, |some| some[i % some.len()].clone());
        row.iter_mut().zip(&pattern).filter(|(_, missing)| **missing).for_each(|(v, _)| *v = f32::NAN);
        patterns.insert(pattern);
    }
    (holes, patterns.len())
}

fn mixture(covariance_type: CovarianceType, k: usize, d: usize) -> Result<Mixture> {
    let matrix = |i: usize, j: usize| if i == j { 1.5 } else { 0.3 / (1.0 + i.abs_diff(j) as f64) };
    let covariances = match covariance_type {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| matrix(i, j))),
        CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| matrix(i, j))),
        CovarianceType::Diag => Covariances::Diag(Array2::from_elem((k, d), 1.5)),
        _ => Covariances::Spherical(Array1::from_elem(k, 1.5)),
    };
    let means = Array2::from_shape_fn((k, d), |(c, j)| ((c * d + j) as f64).sin());
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)
}

fn median(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    f()?;
    let begin = Instant::now();
    f()?;
    let repeats = (0.1 / begin.elapsed().as_secs_f64()).clamp(5.0, 200.0) as usize;
    let mut times = Vec::new();
    for _ in 0..repeats {
        let begin = Instant::now();
        f()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[repeats / 2])
}
