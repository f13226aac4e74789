//! float32 samples that need more digits, on a real device.
use crate::common::precision;
use gmm_host::CudaEvaluator;

const LOAD: precision::Load = |samples| Box::new(CudaEvaluator::new(samples, 0, &Default::default()).unwrap());

pub fn tests() -> impl Iterator<Item = (&'static str, impl FnOnce() + Send)> {
    precision::TESTS.iter().map(|&(name, test)| (name, move || test(LOAD)))
}
