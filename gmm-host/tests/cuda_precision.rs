//! float32 samples that need more digits, on a real device.
#![allow(missing_docs)]
mod common;
mod gpu_harness;

use common::precision;
use gmm_host::CudaEvaluator;
use std::process::ExitCode;

const LOAD: precision::Load = |samples| Box::new(CudaEvaluator::new(samples, 0, &Default::default()).unwrap());

fn main() -> ExitCode {
    gpu_harness::run(precision::TESTS.iter().map(|&(name, test)| (name, move || test(LOAD))), [])
}
