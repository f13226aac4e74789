//! The place of samples in the kernels' layout: the device or the host.
use super::gpu::Gpu;
use super::layout::{self, STRIDE};
use super::memory::{Numbers, allocate};
use super::staging::{BUFFER_BYTES, Staging};
use super::stream::Stream;
use gmm_core::data::frame::{Float, Frame};
use gmm_core::data::samples::Samples;
use gmm_core::error::{Error, Result};
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::entries;

pub trait Element: Float + Plain + Default + entries::Element + std::fmt::Debug {}

impl Element for f32 {}

impl Element for f64 {}

/// Bytes of rows copied to or from the device at once.
pub const COPY_BYTES: usize = 32 << 20;
/// Most samples of a launch, so that a 32-bit index of quads never overflows.
pub const MAX_SAMPLES: usize = 1 << 32;

/// Most bytes of a chunk from the host. A larger chunk leaves no memory to other samples; the copy of this size takes
/// about 20 ms over a bus of 50 GB/s, long beside its launches.
const CHUNK_BYTES: usize = 1 << 30;

#[derive(Debug)]
pub enum Place<T: Plain> {
    /// All on the device.
    Device(DeviceBuffer<T>),
    /// On the host, in chunks of (samples, columns); a chunk needs at most `largest` numbers on the device.
    Host { chunks: Vec<(usize, Vec<T>)>, largest: usize },
}

/// Samples to be copied into the kernels' layout.
pub struct ColumnsOf<'a, 'x> {
    pub samples: &'a Samples<'x>,
    pub frame: &'a Frame,
    pub weight_scale: Option<f64>,
}

impl ColumnsOf<'_, '_> {
    /// Places the samples within `limit` bytes of the device's memory.
    pub fn place<T: Element>(&self, gpu: &'static Gpu, limit: usize) -> Result<Place<T>> {
        let n = self.samples.n_samples();
        let bytes = self.width() as u128 * layout::stride(n) as u128 * size_of::<T>() as u128;
        let fits = bytes <= limit as u128 && n <= MAX_SAMPLES;
        if fits { self.on_device(gpu).map(Place::Device) } else { self.on_host(limit) }
    }

    /// Returns the number of columns: features and weights.
    fn width(&self) -> usize {
        self.samples.n_features() + usize::from(self.weight_scale.is_some())
    }

    fn write<T: Element>(&self, rows: &Samples<'_>, out: &mut [T]) {
        layout::columns(rows, self.frame, self.weight_scale.unwrap_or(1.0), out);
    }

    fn on_device<T: Element>(&self, gpu: &'static Gpu) -> Result<DeviceBuffer<T>> {
        let (n, width) = (self.samples.n_samples(), self.width());
        let stride = layout::stride(n);
        let stream = Stream::new()?;
        let buffer: DeviceBuffer<T> = allocate(width * stride)?;
        let at_once = (BUFFER_BYTES / size_of::<T>() / width / STRIDE * STRIDE).clamp(STRIDE, stride);
        let staging = Staging::new(gpu, width * at_once);
        let mut running = stream.idle();
        for (turn, start) in (0..n).step_by(at_once).enumerate() {
            let rows = self.samples.rows(start..n.min(start + at_once));
            let of_column = |j: usize| j * stride + start..j * stride + start + layout::stride(rows.n_samples());
            let places: Vec<_> = (0..width).map(|j| Numbers::of(&buffer).part(of_column(j))).collect::<Result<_>>()?;
            running = running.followed_by(staging.send(&stream, turn, &places, |to| self.write(&rows, to))?);
        }
        running.wait()?;
        Ok(buffer)
    }

    fn on_host<T: Element>(&self, limit: usize) -> Result<Place<T>> {
        let (n, width) = (self.samples.n_samples(), self.width());
        let size = ((limit / 2).min(CHUNK_BYTES) / size_of::<T>() / width / STRIDE * STRIDE)
            .min(MAX_SAMPLES)
            .min(layout::stride(n));
        if size == 0 {
            return Err(Error::Unsupported {
                what: format!("{width} columns within {limit} bytes of GPU memory"),
                backend: "the CUDA backend",
                remedy: "use device `cpu` or `reference`",
            });
        }
        let chunks = (0..n).step_by(size).map(|start| {
            let rows = self.samples.rows(start..n.min(start + size));
            let n = rows.n_samples();
            let mut numbers = vec![T::default(); width * layout::stride(n)];
            self.write(&rows, &mut numbers);
            (n, numbers)
        });
        Ok(Place::Host { chunks: chunks.collect(), largest: width * size })
    }
}
