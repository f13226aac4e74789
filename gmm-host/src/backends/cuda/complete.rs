//! The evaluators of complete samples, and of samples with missing values under diagonal
//! covariances, with enough digits for each mixture.
use super::device::gpu::Gpu;
use super::float32::Float32;
use super::float64::Float64;
use super::options::CudaOptions;
use super::source::Source;
use crate::backends::device_parameters::Deviations;
use crate::backends::enough_digits::EnoughDigits;
use crate::{Evaluator, Mixture, Result};

/// Samples on a GPU, complete ones or with missing values.
#[derive(Debug)]
pub(super) enum Complete<'a> {
    Float32(Box<EnoughDigits<'a, Float32<'a>>>),
    Float64(Box<EnoughDigits<'a, Float64<'a>>>),
}

impl<'a> Complete<'a> {
    pub fn new(samples: Source<'a>, options: &CudaOptions) -> Result<Self> {
        if samples.is_float64() && options.kernel.is_none() {
            return Ok(Self::Float64(Box::new(Self::float64(samples, options)?)));
        }
        let float32 = Float32::new(samples.clone(), options)?;
        let float64 = CudaOptions { kernel: None, ..options.clone() };
        let open = move || Ok(Box::new(Self::float64(samples.clone(), &float64)?) as _);
        Ok(Self::Float32(Box::new(EnoughDigits::new(float32, open))))
    }

    fn float64(samples: Source<'a>, options: &CudaOptions) -> Result<EnoughDigits<'a, Float64<'a>>> {
        let in_frame = Float64::new(samples.clone(), Deviations::InFrame, options)?;
        let options = options.clone();
        let open = move || Ok(Box::new(Float64::new(samples.clone(), Deviations::AroundMeans, &options)?) as _);
        Ok(EnoughDigits::new(in_frame, open))
    }

    fn inner(&self) -> &(dyn Evaluator + 'a) {
        match self {
            Self::Float32(either) => either.as_ref(),
            Self::Float64(float64) => float64.as_ref(),
        }
    }

    fn inner_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match self {
            Self::Float32(either) => either.as_mut(),
            Self::Float64(float64) => float64.as_mut(),
        }
    }

    pub fn gpu(&self) -> &'static Gpu {
        match self {
            Self::Float32(either) => either.framed.data.gpu(),
            Self::Float64(float64) => float64.framed.data.gpu(),
        }
    }

    /// See [`CudaEvaluator::is_resident`].
    pub fn is_resident(&self) -> bool {
        match self {
            Self::Float32(either) => either.framed.data.is_resident(),
            Self::Float64(float64) => float64.framed.data.is_resident(),
        }
    }

    /// See [`CudaEvaluator::kernel_seconds`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        match self {
            Self::Float32(either) => either.framed.kernel_seconds(mixture, repeats),
            Self::Float64(float64) => float64.framed.kernel_seconds(mixture, repeats),
        }
    }
}

crate::evaluator::pass_on!(Complete);
