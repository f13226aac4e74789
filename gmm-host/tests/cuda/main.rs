//! The CUDA backend on a real device. A test's name begins with its module's: the argument `shapes::` runs one module.
#[path = "../common/mod.rs"]
mod common;
#[path = "../gpu_harness/mod.rs"]
mod gpu_harness;

mod arrays;
mod evaluator;
mod fit_many;
mod markov;
mod metropolis;
mod missing;
mod missing_patterns;
mod noise;
mod precision;
mod several;
mod shapes;
mod short;
mod variational;

use common::normal;
use gmm_host::{CudaEvaluator, Samples};
use gpu_harness::{suite, timed};
use ndarray::{Array1, Array2};
use std::process::ExitCode;

/// Returns an evaluator of float32 samples, by a kernel if one is given.
fn evaluator<'a>(x: &'a Array2<f32>, kernel: Option<&str>) -> CudaEvaluator<'a> {
    common::cuda(Samples::from_f32(x.view()).unwrap(), kernel, None)
}

/// Returns samples in float32, and the same numbers in float64 for the reference.
fn data(seed: u64, n: usize, d: usize) -> (Array2<f32>, Array2<f64>) {
    let x = normal(seed, n, d, 0.0).mapv(|v| v as f32);
    let wide = x.mapv(f64::from);
    (x, wide)
}

/// Returns bounds of the errors of a total and of each sample, from the samples' true log-likelihoods: `evaluator.rs`.
fn tolerances(truth: &Array1<f64>, d: usize) -> (f64, Array1<f64>) {
    let e = truth.mapv(|v| 16.0 * (d as f64 + 4.0).sqrt() * 2f64.powi(-24) * v.abs().max(1.0));
    let n = truth.len() as f64;
    (e.sum() / n.sqrt() + e.iter().copied().fold(0.0, f64::max) + 5e-8 * n, e)
}

fn main() -> ExitCode {
    gpu_harness::run([
        suite("short", short::tests()),
        suite("evaluator", evaluator::tests()),
        timed("evaluator", evaluator::TIMED),
        suite("shapes", shapes::tests()),
        timed("shapes", shapes::TIMED),
        suite("arrays", arrays::tests()),
        suite("fit_many", fit_many::tests()),
        suite("markov", markov::tests()),
        suite("metropolis", metropolis::tests()),
        suite("missing", missing::tests()),
        suite("missing_patterns", missing_patterns::tests()),
        suite("noise", noise::tests()),
        suite("precision", precision::tests()),
        suite("several", several::tests()),
        suite("variational", variational::tests()),
    ])
}
