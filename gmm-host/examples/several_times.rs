//! Times totals and E-steps over one, two, … GPUs, and says how much of the linear gain is reached.
//!
//! `cargo run --release -p gmm-host --features cuda --example several_times [GIGABYTES]`: the
//! largest case takes so much memory of the host at most (default 11).
use gmm_host::{Covariances, Device, DeviceSet, Error, Evaluator, LoadOptions, Mixture, Samples, cuda_devices, load};
use ndarray::{Array1, Array2};
use rayon::prelude::*;
use std::time::Instant;

/// N, D, K of mixtures with diagonal covariances.
const CASES: [(usize, usize, usize); 3] = [(200_000_000, 13, 8), (10_000_000, 13, 8), (8_000_000, 128, 1024)];

/// Numbers that look random, made by all cores at once: a hash of their place, uniform in -2 to 2.
fn numbers(n: usize, d: usize) -> Array2<f32> {
    let mut x = Array2::zeros((n, d));
    if let Some(all) = x.as_slice_mut() {
        all.par_iter_mut().enumerate().for_each(|(i, v)| {
            let hash = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *v = ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1u64 << 22) as f32 - 2.0;
        });
    }
    x
}

fn mixture(k: usize, d: usize, shift: f64) -> Result<Mixture, Error> {
    let mean = |(c, j): (usize, usize)| ((c * 31 + j * 7) as f64).sin() + shift;
    let variances = Covariances::Diag(Array2::from_elem((k, d), 1.3));
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), Array2::from_shape_fn((k, d), mean), variances)
}

fn median(mut seconds: impl FnMut(usize) -> Result<f64, Error>) -> Result<f64, Error> {
    let mut all = (0..21).map(&mut seconds).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

fn main() -> Result<(), Error> {
    let gpus = match cuda_devices() {
        Ok(gpus) => gpus.len(),
        Err(error) => {
            println!("{error}\nThis example times GPUs; there is nothing to time here.");
            return Ok(());
        }
    };
    let most = std::env::args().nth(1).and_then(|g| g.parse::<f64>().ok()).unwrap_or(11.0) * 1e9;
    println!("float32; milliseconds, medians of 21; the share of the linear gain behind them");
    println!("{:>11} {:>4} {:>5} {:>5} {:>10} {:>6} {:>10} {:>6}", "N", "D", "K", "GPUs", "total", "", "E-step", "");
    for (n, d, k) in CASES.into_iter().filter(|&(n, d, _)| (4 * n * d) as f64 <= most) {
        let x = numbers(n, d);
        let mixtures = (0..4).map(|i| mixture(k, d, 0.01 * i as f64)).collect::<Result<Vec<_>, _>>()?;
        let mut one = [f64::NAN; 2];
        for count in (0..).map(|i| 1 << i).take_while(|count| *count <= gpus) {
            let device = if count == 1 { Device::Cuda(0) } else { Device::Several(DeviceSet::cuda(0..count)) };
            let mut data = load(device, Samples::from_f32(x.view())?, &LoadOptions::new())?;
            let timed = |data: &mut dyn Evaluator, e_step: bool, i: usize| -> Result<f64, Error> {
                let (begin, m) = (Instant::now(), &mixtures[i % mixtures.len()]);
                if e_step {
                    data.statistics(m)?;
                } else {
                    data.log_likelihood(m)?;
                }
                Ok(begin.elapsed().as_secs_f64())
            };
            let times = [median(|i| timed(data.as_mut(), false, i))?, median(|i| timed(data.as_mut(), true, i))?];
            if count == 1 {
                one = times;
            }
            let share = |i: usize| one[i] / times[i] / count as f64;
            let [total, e_step] = times.map(|t| t * 1e3);
            println!(
                "{n:>11} {d:>4} {k:>5} {count:>5} {total:>10.3} {:>6.2} {e_step:>10.3} {:>6.2}",
                share(0),
                share(1)
            );
        }
    }
    Ok(())
}
