//! The likelihood on a GPU from the source of the kernel to the number, with a thread for each sample and component:
//! `pair` (gmm-kernels/src/likelihood/pair/kernel.rs) is compiled to PTX (with the feature `rust-cuda` by build.rs) and
//! launched through cust (launch.rs); its total is compared with the float64 reference. `benches/pair.rs` measures its
//! time; docs/rust-cuda.md explains how to run both.
#[path = "../../gmm-host/tests/gpu_harness/mod.rs"]
mod gpu_harness;
mod launch;

use approx::assert_relative_eq;
use gmm_host::{Covariances, Evaluator, Mixture, ReferenceEvaluator, Samples};
use launch::Pair;
use ndarray::{Array1, Array2};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "rust-cuda")]
    if std::env::var_os("GMM_TEST_KERNELS").is_none() {
        gaussmix::use_rust_cuda_kernels().expect("no kernel was used before");
    }
    let tests: [gpu_harness::Test; 1] = [("totals_are_those_of_the_reference", totals_are_those_of_the_reference)];
    gpu_harness::run([gpu_harness::suite("pair", tests)])
}

/// Returns samples of a standard normal distribution (N, D), and a mixture of K components among them.
fn problem(n: usize, d: usize, k: usize) -> (Array2<f32>, Mixture) {
    let mut rng = ChaCha8Rng::seed_from_u64(52);
    let x = Array2::from_shape_simple_fn((n, d), || rng.sample::<f32, _>(StandardNormal));
    let weights = Array1::from_shape_simple_fn(k, || rng.random_range(0.1..1.0));
    let means = Array2::from_shape_simple_fn((k, d), || rng.sample::<f64, _>(StandardNormal));
    let variances = Array2::from_shape_simple_fn((k, d), || rng.random_range(0.5..1.5));
    let weights = &weights / weights.sum();
    (x, Mixture::new(weights, means, Covariances::Diag(variances)).expect("usable parameters"))
}

fn totals_are_those_of_the_reference() {
    // One thread with work; less than a warp; parts of a quad; the size of the benchmark, with several rounds a block;
    // more components than a block has warps.
    for (n, d, k) in [(1, 1, 1), (31, 2, 3), (1_001, 5, 7), (300_000, 13, 8), (4_099, 40, 70)] {
        let (x, mixture) = problem(n, d, k);
        let mut reference = ReferenceEvaluator::new(Samples::from_f32(x.view()).expect("finite samples"));
        let expected = reference.log_likelihood(&mixture).expect("a likelihood");
        let mut pair = Pair::new(x.view(), k).expect("samples on the GPU");
        let total = pair.log_likelihood(&mixture).expect("a total");
        // A sample's error is a few units of 2⁻²⁴ for each of its D terms.
        assert_relative_eq!(total, expected, max_relative = 1e-6);
        // A launch leaves the memory ready for the next one, and every launch adds in the same order.
        assert_eq!(pair.log_likelihood(&mixture).expect("a total").to_bits(), total.to_bits());
    }
}
