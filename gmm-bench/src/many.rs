use crate::median;
use clap::Args;
use gaussmix::Result;
use gaussmix::data::Samples;
use gaussmix::device::Device;
use gaussmix::fit::{GaussianMixtureParams, fit_many};
use gaussmix::model::CovarianceType;
use gaussmix_cli::bench::text;
use ndarray::{Array2, s};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Name, sets, N, D, K, the centres' standard deviation, and whether fits continue to 100 iterations.
const CASES: [(&str, usize, usize, usize, usize, f64, bool); 5] = [
    ("groups", 1000, 500, 5, 3, 4.0, false),
    ("columns", 20, 100_000, 1, 10, 4.0, false),
    ("small fits", 10_000, 100, 2, 2, 4.0, false),
    ("images", 10_000, 1000, 8, 4, 1.0, false),
    ("histograms", 40_000, 2000, 1, 2, 1.0, true),
];
/// N and D of a selection: K = 1 to 11, ten starts each.
const SELECTION: (usize, usize) = (20_000, 10);

/// Time many fits in one call
///
/// Samples in float64 around centres, full covariances.
#[derive(Debug, Args)]
pub struct Many {
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Cases to time: groups, columns, small fits, images, histograms, selection
    #[arg(long, value_delimiter = ',')]
    case: Vec<String>,
}

/// Samples (N, D) around K centres, with the standard deviation 1.
fn blobs(n: usize, d: usize, k: usize, apart: f64, rng: &mut ChaCha8Rng) -> Array2<f64> {
    let centres = Array2::from_shape_simple_fn((k, d), || apart * rng.sample::<f64, _>(StandardNormal));
    Array2::from_shape_fn((n, d), |(i, j)| centres[[i % k, j]] + rng.sample::<f64, _>(StandardNormal))
}

/// The row of a case; `fit` returns the number of fits and their iterations.
fn row(name: String, fit: impl Fn() -> Result<(usize, usize)>) -> Result<Vec<String>> {
    let (mut fits, mut iterations) = (0, 0);
    let seconds = median(|_| fit().map(|found| (fits, iterations) = found))?;
    let mean = format!("{:.1}", iterations as f64 / fits as f64);
    Ok(vec![name, text::seconds(seconds), text::grouped(fits as u64), text::seconds(seconds / fits as f64), mean])
}

impl Many {
    pub fn run(self) -> anyhow::Result<()> {
        let asked = |name: &str| self.case.is_empty() || self.case.iter().any(|case| case == name);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let params = GaussianMixtureParams::new(1).covariance_type(CovarianceType::Full).device(self.device);
        let mut rows = Vec::new();
        for (name, sets, n, d, k, apart, all_iterations) in CASES.into_iter().filter(|case| asked(case.0)) {
            let mut x = Array2::zeros((sets * n, d));
            for set in 0..sets {
                x.slice_mut(s![set * n..(set + 1) * n, ..]).assign(&blobs(n, d, k, apart, &mut rng));
            }
            let group: Vec<usize> = (0..sets * n).map(|row| row / n).collect();
            let sets = Samples::from_f64(x.view())?.groups(&group, sets)?;
            let params = params.clone().n_components(k).tol(if all_iterations { 0.0 } else { 1e-3 });
            rows.push(row(format!("{name}, {n} × {d}, K = {k}"), || {
                let fits = params.fit_many(&sets, &())?;
                Ok((fits.len(), fits.iter().flatten().map(|fit| fit.n_iter()).sum()))
            })?);
        }
        if asked("selection") {
            let (n, d) = SELECTION;
            let x = blobs(n, d, 5, 1.0, &mut rng);
            // The longest first.
            let params = (1..=11).rev().map(|k| params.clone().n_components(k).n_init(10).check());
            let params: Vec<_> = params.collect::<Result<_>>()?;
            let sets = vec![Samples::from_f64(x.view())?; params.len()];
            rows.push(row(format!("selection, {n} × {d}, K = 1 to 11"), || {
                let fits = fit_many(&sets, &|set| &params[set], &(), &());
                Ok((fits.len(), fits.iter().flatten().map(|fit| fit.n_iter()).sum()))
            })?);
        }
        text::print(text::table(&["case", "time", "fits", "one fit", "iterations"], rows, 1))
    }
}
