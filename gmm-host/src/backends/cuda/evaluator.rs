//! The CUDA backend's evaluator, in float32 or float64 depending on the type of the samples.
use super::arrays::DeviceArray;
use super::device::gpu::GpuInfo;
use super::float32::Float32;
use super::float64::Float64;
use super::missing::Missing;
use super::options::CudaOptions;
use super::source::Source;
use crate::backends::either_precision::EitherPrecision;
use crate::{Evaluator, Mixture, Result, Samples};

/// The CUDA backend: the samples are centred in float64 and laid out on the device once, and evaluated in the precision
/// they came in. Constants and the sum over the samples are formed in float64.
///
/// Samples that do not fit into the device's memory stay on the host in that layout and pass through the device chunk by
/// chunk.
///
/// In [`Evaluator::log_likelihood_batch`], the same sets in the same order give the same bits. A set's total may differ by rounding with the
/// first of them, to which those near to it are compared, and from [`Evaluator::log_likelihood`]'s.
#[derive(Debug)]
pub struct CudaEvaluator<'a> {
    engine: Engine<'a>,
}

#[derive(Debug)]
enum Engine<'a> {
    Float32(Box<EitherPrecision<'a, Float32<'a>>>),
    Float64(Box<Float64<'a>>),
    Missing(Missing<'a>),
}

impl CudaEvaluator<'static> {
    /// Makes the kernels' columns of an array that is in the memory of a GPU, on this GPU: the samples do not pass through the
    /// host. Results are those of [`new`](Self::new) for the same samples, to the bit.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::NonFiniteSample`](crate::Error::NonFiniteSample);
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the columns need more memory than there is beside the array.
    pub fn from_device_array(array: DeviceArray, options: &CudaOptions) -> Result<Self> {
        Self::of(Source::Device(array), options)
    }
}

impl<'a> CudaEvaluator<'a> {
    /// Takes a copy of the samples and their weights to the device of this number (counted from 0).
    ///
    /// float64 samples are evaluated in float64, and all else in float32 where its digits suffice ([`Evaluator::precision`]);
    /// so are float64 samples for which [`CudaOptions::kernel`] asks for a kernel. For a mixture that needs float64, a second
    /// copy of the samples in float64 is taken to the device when it is first needed.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`](crate::Error::NoCudaDevice); [`Error::Kernel`](crate::Error::Kernel) for a kernel of an unknown
    /// name; [`Error::Unsupported`](crate::Error::Unsupported) for a memory limit too small for any chunk;
    /// [`Error::Cuda`](crate::Error::Cuda) for a failure of the driver.
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        if samples.missing().is_some() {
            return Ok(Self { engine: Engine::Missing(Missing::new(samples, ordinal, options)?) });
        }
        Self::of(Source::Host(samples, ordinal), options)
    }

    fn of(samples: Source<'a>, options: &CudaOptions) -> Result<Self> {
        let engine = if samples.is_float64() && options.kernel.is_none() {
            Engine::Float64(Box::new(Float64::new(samples, options)?))
        } else {
            let float32 = Float32::new(samples.clone(), options)?;
            let float64 = CudaOptions { kernel: None, ..options.clone() };
            let open = move || Ok(Box::new(Float64::new(samples.clone(), &float64)?) as _);
            Engine::Float32(Box::new(EitherPrecision::new(float32, open)))
        };
        Ok(Self { engine })
    }

    /// The device.
    pub fn gpu(&self) -> &GpuInfo {
        match &self.engine {
            Engine::Float32(either) => &either.float32.data.gpu().info,
            Engine::Float64(float64) => &float64.data.gpu().info,
            Engine::Missing(missing) => &missing.gpu.info,
        }
    }

    /// Whether all samples are in the device's memory.
    pub fn is_resident(&self) -> bool {
        match &self.engine {
            Engine::Float32(either) => either.float32.data.is_resident(),
            Engine::Float64(float64) => float64.data.is_resident(),
            Engine::Missing(_) => true,
        }
    }

    /// Seconds of a launch of the kernels that evaluate `mixture`'s log-likelihood, by the device's clock, over `repeats`
    /// launches back to back. Samples that are not resident count as one chunk.
    ///
    /// # Errors
    /// As [`Evaluator::log_likelihood`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        match &mut self.engine {
            Engine::Float32(either) => either.float32.kernel_seconds(mixture, repeats),
            Engine::Float64(float64) => float64.kernel_seconds(mixture, repeats),
            Engine::Missing(_) => Err(crate::Error::Unsupported {
                what: "the time of one kernel for missing values".into(),
                backend: "the CUDA backend",
                remedy: "time `log_likelihood`",
            }),
        }
    }

    fn inner(&self) -> &(dyn Evaluator + 'a) {
        match &self.engine {
            Engine::Float32(either) => either.as_ref(),
            Engine::Float64(float64) => float64.as_ref(),
            Engine::Missing(missing) => missing.by_pattern.as_ref(),
        }
    }

    fn inner_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match &mut self.engine {
            Engine::Float32(either) => either.as_mut(),
            Engine::Float64(float64) => float64.as_mut(),
            Engine::Missing(missing) => missing.by_pattern.as_mut(),
        }
    }
}

crate::evaluator::pass_on!(CudaEvaluator);
