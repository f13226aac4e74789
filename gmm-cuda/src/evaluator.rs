//! The CUDA backend's evaluator, in float32 or float64 depending on the type of the samples.
use super::arrays::DeviceArray;
use super::device::gpu::{Gpu, GpuInfo};
use super::engine::{self, Engine};
use super::missing;
use super::noisy::OwnNoise;
use super::options::CudaOptions;
use super::source::Source;
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::samples::Samples;
use gmm_core::error::Result;
use gmm_core::model::mixture::Mixture;

/// The CUDA backend: samples are centred in float64, laid out on the device once, and evaluated in the precision they
/// came in. Constants and the sum over the samples are formed in float64.
///
/// Samples that exceed the device's memory stay on the host in that layout and pass through the device in chunks.
///
/// [`Evaluator::log_likelihood_batch`](gmm_core::contract::evaluator::Evaluator::log_likelihood_batch) returns the same
/// bits for the same sets in the same order. It compares near sets to the first, so rounding in a set's total may
/// depend on the first set, unless
/// [`Sampling::fix_batch_reference`](gmm_core::contract::sampling::Sampling::fix_batch_reference) has been called, and
/// may differ from [`Evaluator::log_likelihood`](gmm_core::contract::evaluator::Evaluator::log_likelihood)'s.
pub struct CudaEvaluator<'a> {
    gpu: &'static Gpu,
    engine: Box<dyn Engine + 'a>,
}

impl CudaEvaluator<'static> {
    /// Makes the kernels' columns on the GPU that holds the array, without a copy to the host. Results equal those of
    /// [`new`](Self::new) for the same samples, bit for bit.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::NonFiniteSample`](gmm_core::error::Error::NonFiniteSample), also for missing
    /// values; [`Error::Unsupported`](gmm_core::error::Error::Unsupported) if the memory beside the array cannot hold
    /// the columns.
    pub fn from_device_array(array: DeviceArray, options: &CudaOptions) -> Result<Self> {
        let (gpu, _entered) = array.enter()?;
        Ok(Self { gpu, engine: engine::complete(Source::Device(array), options)? })
    }
}

impl<'a> CudaEvaluator<'a> {
    /// Copies the samples and their weights to the device of this number (from 0).
    ///
    /// float64 samples are evaluated in float64, unless [`CudaOptions::kernel`] asks for a kernel; all else is
    /// evaluated in float32 if its digits suffice
    /// ([`Evaluator::precision`](gmm_core::contract::evaluator::Evaluator::precision)). The first mixture that needs
    /// float64 makes a second copy of the samples in float64.
    ///
    /// Samples with missing values are copied in the first evaluation: as they are for diagonal and spherical
    /// covariances, in the order of their patterns of missing values for others.
    ///
    /// Samples with noise are evaluated in float64, each with its own.
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`]; [`Error::Kernel`] for an unknown kernel; [`Error::Unsupported`] for samples with noise
    /// that have projections, missing values or more than 64 features, or do not all fit into the device's memory; for
    /// a memory limit too small for any chunk; and, in evaluations under full or tied covariances, if samples with
    /// missing values do not fit; [`Error::Cuda`] for a failure of the driver.
    ///
    /// [`Error::NoCudaDevice`]: gmm_core::error::Error::NoCudaDevice
    /// [`Error::Kernel`]: gmm_core::error::Error::Kernel
    /// [`Error::Unsupported`]: gmm_core::error::Error::Unsupported
    /// [`Error::Cuda`]: gmm_core::error::Error::Cuda
    pub fn new(samples: Samples<'a>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let engine: Box<dyn Engine + 'a> = match (samples.noise().cloned(), samples.missing()) {
            (Some(noise), _) => Box::new(OwnNoise::new(samples, &noise, ordinal, options)?),
            (None, None) => engine::complete(Source::Host(samples, ordinal), options)?,
            (None, Some(_)) => missing::engine(samples, ordinal, options)?,
        };
        Ok(Self { gpu, engine })
    }

    /// Returns the device.
    pub fn gpu(&self) -> &GpuInfo {
        &self.gpu.info
    }

    /// Returns whether the device holds all samples, rather than chunks in turn.
    pub fn is_resident(&self) -> bool {
        self.engine.is_resident()
    }

    /// Returns the seconds, by the device's clock, of a launch of the kernels for `mixture`'s log-likelihood, the mean
    /// over `repeats` launches back to back. Samples that are not resident count as one chunk.
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
