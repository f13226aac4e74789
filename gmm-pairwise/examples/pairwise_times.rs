//! Times the comparisons of vectors with vectors on a device, beside what the hardware allows:
//! inner products, pairs of rows, rows with centres.
//!
//! `cargo run --release -p gmm-pairwise --features cuda --example pairwise_times [device]`
use gmm_pairwise::{Centres, Device, Error, GaussianKernel, InnerProducts, RowPairs};
use ndarray::Array2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Instant;

const REPEATS: u32 = 10;

fn uniform(n: usize, d: usize) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64((n + d) as u64);
    Array2::from_shape_simple_fn((n, d), || rng.random_range(-1.0..1.0))
}

/// Median seconds of a call from arrays of the host to arrays of the host.
fn wall(mut work: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    work()?;
    let mut times = Vec::new();
    for _ in 0..5 {
        let begin = Instant::now();
        work()?;
        times.push(begin.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[2])
}

/// Prints the time of a kernel, if the device has its own clock, with a figure made of it; and the
/// time of a call.
fn report(what: &str, kernel: Result<f64, Error>, figure: impl Fn(f64) -> String, wall: f64) -> Result<(), Error> {
    match kernel {
        Ok(seconds) => {
            println!("{what}: kernel {:.1} µs, {}; call {:.1} µs", seconds * 1e6, figure(seconds), wall * 1e6)
        }
        Err(Error::Unsupported { .. }) => println!("{what}: call {:.1} µs, {}", wall * 1e6, figure(wall)),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let device: Device = std::env::args().nth(1).as_deref().unwrap_or("cpu").parse()?;
    println!("device {device}");
    let few = [1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 1000, 50_000].map(|n| (n, 1000, 1000));
    for (n, d, m) in few.into_iter().chain([1, 8, 64, 2000].map(|n| (n, 40_000, 2000))) {
        let (vectors, matrix) = (uniform(n, d), uniform(m, d));
        let mut resident = InnerProducts::load(device, matrix.view())?;
        let kernel = resident.kernel_seconds(vectors.view(), REPEATS);
        let mut out = vec![0.0; n * m];
        let wall = wall(|| resident.products_into(vectors.view(), &mut out))?;
        let operations = 2.0 * n as f64 * d as f64 * m as f64;
        report(
            &format!("products N={n} D={d} M={m}"),
            kernel,
            |s| format!("{:.2} TFLOP/s", operations / s / 1e12),
            wall,
        )?;
    }
    let kernel = GaussianKernel::new(0.1)?;
    for (n, d) in [(1000, 20), (1_000_000, 20), (10_000_000, 20)] {
        let (a, b) = (uniform(n, d), uniform(n, d) + 0.01);
        let mut pairs = RowPairs::load(device, a.view(), b.view())?;
        let seconds = pairs.kernel_seconds(&kernel, REPEATS);
        let mut out = vec![0.0; n];
        let wall = wall(|| pairs.gaussian_into(&kernel, &mut out))?;
        let bytes = 8.0 * n as f64 * d as f64;
        report(&format!("pairs N={n} D={d}"), seconds, |s| format!("{:.3} TB/s read", bytes / s / 1e12), wall)?;
    }
    for (n, d, m) in [(1000, 20, 10), (1000, 20, 1000), (100_000, 20, 1000)] {
        let (x, centres) = (uniform(n, d), uniform(m, d));
        let mut centres = Centres::load(device, centres.view())?;
        let seconds = centres.kernel_seconds(&kernel, x.view(), REPEATS);
        let wall = wall(|| centres.gaussian(&kernel, x.view()).map(drop))?;
        let operations = 2.0 * n as f64 * d as f64 * m as f64;
        report(
            &format!("centres N={n} D={d} M={m}"),
            seconds,
            |s| format!("{:.2} Top/s", operations / s / 1e12),
            wall,
        )?;
    }
    Ok(())
}
