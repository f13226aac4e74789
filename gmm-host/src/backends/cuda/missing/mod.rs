//! Samples with missing values: `full` and `tied` covariances pattern by pattern.
pub(crate) mod by_pattern;

use super::device::gpu::Gpu;
use super::options::CudaOptions;
use crate::{Evaluator, Result, Samples};

/// The evaluator of samples with missing values.
pub(super) struct Missing<'a> {
    pub gpu: &'static Gpu,
    pub by_pattern: Box<dyn Evaluator + 'a>,
}

impl std::fmt::Debug for Missing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Missing").field("gpu", &self.gpu).finish()
    }
}

impl<'a> Missing<'a> {
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        Ok(Self { gpu: Gpu::open(ordinal)?, by_pattern: by_pattern::evaluator(samples, ordinal, options)? })
    }
}
