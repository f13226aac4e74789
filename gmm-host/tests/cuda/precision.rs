//! Samples that need more digits, on a real device.
use crate::common::{far, precision};
use gmm_host::CudaEvaluator;

const LOAD: precision::Load = |samples| Box::new(CudaEvaluator::new(samples, 0, &Default::default()).unwrap());

pub fn tests() -> impl Iterator<Item = (&'static str, impl FnOnce() + Send)> {
    precision::TESTS.iter().chain(far::TESTS).map(|&(name, test)| (name, move || test(LOAD)))
}
