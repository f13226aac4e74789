//! The interface between the CUDA backend's evaluator and its engines, and the engine of complete samples.
use super::float32::Float32;
use super::float64::Float64;
use super::options::CudaOptions;
use super::source::Source;
use gmm_core::backends::device_parameters::Deviations;
use gmm_core::backends::enough_digits::EnoughDigits;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;

/// An evaluator over samples on a GPU.
pub(super) trait Engine: Evaluator {
    /// See [`CudaEvaluator::is_resident`](super::CudaEvaluator::is_resident).
    fn is_resident(&self) -> bool;

    /// See [`CudaEvaluator::kernel_seconds`](super::CudaEvaluator::kernel_seconds).
    fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64>;
}

macro_rules! engine_of {
    ($($precision:ident),*) => {$(
        impl<'a> Engine for EnoughDigits<'a, $precision<'a>> {
            fn is_resident(&self) -> bool {
                self.framed.data.is_resident()
            }

            fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
                self.framed.kernel_seconds(mixture, repeats)
            }
        }
    )*};
}
engine_of!(Float32, Float64);

/// Returns the engine, in float32 or float64, of complete samples, or of samples with missing values under diagonal
/// covariances; with more digits for the mixtures that need them.
pub(super) fn complete<'a>(samples: Source<'a>, options: &CudaOptions) -> Result<Box<dyn Engine + 'a>> {
    if samples.is_float64() && options.kernel.is_none() {
        return Ok(Box::new(float64(samples, options)?));
    }
    let float32 = Float32::new(samples.clone(), options)?;
    let options = CudaOptions { kernel: None, ..options.clone() };
    let open = move || Ok(Box::new(float64(samples.clone(), &options)?) as _);
    Ok(Box::new(EnoughDigits::new(float32, open)))
}

fn float64<'a>(samples: Source<'a>, options: &CudaOptions) -> Result<EnoughDigits<'a, Float64<'a>>> {
    let in_frame = Float64::new(samples.clone(), Deviations::InFrame, options)?;
    let options = options.clone();
    let open = move || Ok(Box::new(Float64::new(samples.clone(), Deviations::AroundMeans, &options)?) as _);
    Ok(EnoughDigits::new(in_frame, open))
}
