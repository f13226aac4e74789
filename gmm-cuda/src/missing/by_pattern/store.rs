//! The samples on the device.
use super::arrangement::Arrangement;
use crate::device::gpu::Gpu;
use crate::device::memory::{Numbers, copied};
use crate::device::place::Element;
use crate::device::samples::{Columns, limit_or_free};
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::{Samples, weight_scale};
use gmm_core::error::{Error, Result};
use gmm_driver::{DeviceBuffer, Plain};

/// Samples on the device in the order of their patterns, shared by any number of evaluators.
#[derive(Debug)]
pub(super) struct Store<T: Plain> {
    pub gpu: &'static Gpu,
    pub frame: Frame,
    pub arrangement: Arrangement,
    pub total_weight: f64,
    /// The kernels see the samples' weights divided by this power of two.
    pub weight_scale: Option<f64>,
    /// (D + 1, stride): the samples, and in the last column their weights, 0 for padding.
    pub columns: DeviceBuffer<T>,
    /// The patterns' masks, the pattern of each quad, and the patterns' weights.
    pub masks: DeviceBuffer<u32>,
    pub quads: DeviceBuffer<u32>,
    pub weights: DeviceBuffer<f64>,
}

impl<T: Element> Store<T> {
    pub fn new(samples: &Samples<'_>, ordinal: usize, memory_limit: Option<usize>) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let _entered = gpu.enter()?;
        let arrangement = Arrangement::new(samples);
        let limit = limit_or_free(gpu, memory_limit)?;
        let bytes = (arrangement.d + 1) as u128 * arrangement.stride() as u128 * size_of::<T>() as u128;
        if bytes > limit as u128 || arrangement.padded() > u32::MAX as usize {
            return Err(Error::Unsupported {
                what: format!(
                    "{bytes} bytes for {} samples with missing values, where {limit} bytes of GPU memory can be used,",
                    arrangement.n
                ),
                backend: "the CUDA backend",
                remedy: "free memory of the GPU, or use the CPU (device `cpu`)",
            });
        }
        let frame = Frame::of_samples(samples);
        let weight_scale = samples.weights().map(weight_scale);
        let mut columns = vec![T::default(); (arrangement.d + 1) * arrangement.stride()];
        arrangement.write_columns(samples, &frame, weight_scale.unwrap_or(1.0), &mut columns);
        let weights: Vec<f64> = arrangement.patterns.iter().map(|pattern| pattern.weight).collect();
        Ok(Self {
            gpu,
            frame,
            total_weight: samples.total_weight(),
            weight_scale,
            columns: copied(&columns)?,
            masks: copied(&arrangement.masks())?,
            quads: copied(&arrangement.quads())?,
            weights: copied(&weights)?,
            arrangement,
        })
    }

    pub fn columns(&self) -> Result<Columns<'_, T>> {
        Columns::new(Numbers::of(&self.columns), self.arrangement.padded(), self.arrangement.d, true)
    }
}
