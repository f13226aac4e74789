//! The CUDA backend's evaluator, in float32 or float64 depending on the type of the samples.
use super::arrays::DeviceArray;
use super::device::gpu::{Gpu, GpuInfo};
use super::engine::{self, Engine};
use super::missing;
use super::options::CudaOptions;
use super::source::Source;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;

/// The CUDA backend: the samples are centred in float64 and laid out on the device once, and
/// evaluated in the precision they came in. Constants and the sum over the samples are formed in
/// float64.
///
/// Samples that do not fit into the device's memory stay on the host in that layout and pass
/// through the device chunk by chunk.
///
/// In [`Evaluator::log_likelihood_batch`](gmm_core::contract::evaluator::Evaluator::log_likelihood_batch), the same sets in the same order give the same bits. A
/// set's total may differ by rounding with the first of them, to which those near to it are
/// compared, unless [`Sampling::fix_batch_reference`](gmm_core::contract::sampling::Sampling::fix_batch_reference) has been called; and it may differ from
/// [`Evaluator::log_likelihood`](gmm_core::contract::evaluator::Evaluator::log_likelihood)'s.
pub struct CudaEvaluator<'a> {
    gpu: &'static Gpu,
    engine: Box<dyn Engine + 'a>,
}

impl CudaEvaluator<'static> {
    /// Makes the kernels' columns of an array that is in the memory of a GPU, on this GPU: the
    /// samples do not pass through the host. Results are those of [`new`](Self::new) for the same
    /// samples, to the bit.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::NonFiniteSample`](gmm_core::error::Error::NonFiniteSample), also for
    /// missing values; [`Error::Unsupported`](gmm_core::error::Error::Unsupported) where the columns need
    /// more memory than there is beside the array.
    pub fn from_device_array(array: DeviceArray, options: &CudaOptions) -> Result<Self> {
        Ok(Self { gpu: array.enter()?, engine: engine::complete(Source::Device(array), options)? })
    }
}

impl<'a> CudaEvaluator<'a> {
    /// Takes a copy of the samples and their weights to the device of this number (counted from 0).
    ///
    /// float64 samples are evaluated in float64, and all else in float32 where its digits suffice
    /// ([`Evaluator::precision`](gmm_core::contract::evaluator::Evaluator::precision)); so are float64 samples for which [`CudaOptions::kernel`] asks
    /// for a kernel. For a mixture that needs float64, a second copy of the samples in float64 is
    /// taken to the device when it is first needed.
    ///
    /// Samples with missing values are taken to the device for the first evaluation: for diagonal
    /// and spherical covariances as they are, for others in the order of their patterns of missing
    /// values.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`](gmm_core::error::Error::NoCudaDevice); [`Error::Kernel`](gmm_core::error::Error::Kernel)
    /// for a kernel of an unknown name; [`Error::Unsupported`](gmm_core::error::Error::Unsupported) for a
    /// memory limit too small for any chunk, and from an evaluation under full or tied covariances,
    /// where samples with missing values do not all fit into the device's memory;
    /// [`Error::Cuda`](gmm_core::error::Error::Cuda) for a failure of the driver.
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let engine = match samples.missing() {
            None => engine::complete(Source::Host(samples, ordinal), options)?,
            Some(_) => missing::engine(samples, ordinal, options)?,
        };
        Ok(Self { gpu, engine })
    }

    /// The device.
    pub fn gpu(&self) -> &GpuInfo {
        &self.gpu.info
    }

    /// Whether all samples that are on the device are in its memory as a whole, not chunk by chunk.
    pub fn is_resident(&self) -> bool {
        self.engine.is_resident()
    }

    /// Seconds of a launch of the kernels that evaluate `mixture`'s log-likelihood, by the device's
    /// clock, over `repeats` launches back to back. Samples that are not resident count as one
    /// chunk.
    ///
    /// # Errors
    /// As [`Evaluator::log_likelihood`](gmm_core::contract::evaluator::Evaluator::log_likelihood).
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        self.engine.kernel_seconds(mixture, repeats)
    }
}

gmm_core::contract::evaluator::pass_on!([] CudaEvaluator<'_>, self, self.engine);

impl std::fmt::Debug for CudaEvaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaEvaluator").field("device", &self.describe().device).finish()
    }
}
