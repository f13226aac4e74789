//! The samples on a device: resident, or on the host and passed through the device in chunks.
use super::gpu::{Gpu, failed};
use super::launch::{Columns, Lane};
use super::layout::{self, STRIDE};
use super::memory::{HostBuffer, allocate};
use crate::data::frame::{Float, Frame};
use crate::{Error, Result, Samples, View};
use cust::memory::bytemuck::Zeroable;
use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy};

/// A type that samples have on the device.
pub(super) trait Element: Float + DeviceCopy + Zeroable + Default + std::fmt::Debug {
    /// How the names of its kernels end.
    const SUFFIX: &'static str;
}
impl Element for f32 {
    const SUFFIX: &'static str = "f32";
}
impl Element for f64 {
    const SUFFIX: &'static str = "f64";
}

/// Bytes of samples that are brought to the device or back at once.
const PIECE_BYTES: usize = 32 << 20;
/// Most samples of a launch, so that a 32-bit index of quads never overflows.
const MAX_SAMPLES: usize = 1 << 32;

/// Some of the samples, in the kernels' layout.
#[derive(Debug)]
struct Chunk<T: DeviceCopy> {
    n: usize,
    /// Where they are; on the device if nowhere else.
    host: Option<HostBuffer<T>>,
}

/// Samples in the kernels' layout, with the streams that they are used in. An evaluator has it as its first field: its
/// drop waits for the device and makes its context current, so that what follows can be freed.
#[derive(Debug)]
pub(super) struct Resident<T: DeviceCopy> {
    pub gpu: &'static Gpu,
    pub frame: Frame,
    pub n: usize,
    pub d: usize,
    pub total_weight: f64,
    /// The kernels see the samples' weights divided by this power of two, which brings the largest to about one.
    weight_scale: Option<f64>,
    chunks: Vec<Chunk<T>>,
    /// Chunk c passes through lane and buffer c modulo their number: one if all samples are resident, else two.
    pub lanes: Vec<Lane>,
    buffers: Vec<DeviceBuffer<T>>,
}

impl<T: Element> Resident<T> {
    /// Takes a copy of the samples to the device, or, where they need more than `memory_limit` bytes there (nearly all
    /// that is free, if none is given), to the host's memory in the kernels' layout.
    pub fn new(samples: &Samples<'_>, ordinal: usize, memory_limit: Option<usize>) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        gpu.enter()?;
        let (n, d) = (samples.n_samples(), samples.n_features());
        let weight_scale = samples.weights().map(|w| {
            let largest = w.iter().copied().fold(0.0, f64::max);
            largest.log2().ceil().clamp(-1000.0, 1000.0).exp2()
        });
        let mut this = Self {
            gpu,
            frame: match samples.view() {
                View::F32(x) => Frame::of(x),
                View::F64(x) => Frame::of(x),
            },
            n,
            d,
            total_weight: samples.total_weight(),
            weight_scale,
            chunks: Vec::new(),
            lanes: vec![Lane::new()?],
            buffers: Vec::new(),
        };
        let limit = match memory_limit {
            Some(limit) => limit,
            None => {
                let free = gpu.free_memory()?;
                free - (free / 16).max(256 << 20).min(free)
            }
        };
        let bytes = this.width() as u128 * layout::stride(n) as u128 * size_of::<T>() as u128;
        if bytes <= limit as u128 && n <= MAX_SAMPLES {
            this.load_resident(samples)?;
        } else {
            this.load_chunks(samples, limit)?;
        }
        Ok(this)
    }

    /// The device, and the precision.
    pub fn describe(&self) -> String {
        format!("cuda:{} {} ({})", self.gpu.info.ordinal, self.gpu.info.name, T::NAME)
    }

    /// Whether all samples are in the device's memory.
    pub fn is_resident(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.host.is_none())
    }

    pub fn n_chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Samples of the first chunk, the largest.
    pub fn chunk_size(&self) -> usize {
        self.chunks[0].n
    }

    pub fn weighted(&self) -> bool {
        self.weight_scale.is_some()
    }

    /// What the kernels' sums are to be multiplied by: they see the weights divided by this.
    pub fn weight_scale(&self) -> f64 {
        self.weight_scale.unwrap_or(1.0)
    }

    /// Columns on the device: the features, and the weights.
    fn width(&self) -> usize {
        self.d + usize::from(self.weighted())
    }

    fn load_resident(&mut self, samples: &Samples<'_>) -> Result<()> {
        let (n, width, stride) = (self.n, self.width(), layout::stride(self.n));
        let buffer: DeviceBuffer<T> = allocate(width * stride)?;
        let piece = (PIECE_BYTES / size_of::<T>() / width).next_multiple_of(STRIDE).clamp(STRIDE, stride);
        let mut staging = HostBuffer::zeroed(width * piece);
        for start in (0..n).step_by(piece) {
            let rows = samples.rows(start..n.min(start + piece));
            let len = layout::stride(rows.n_samples());
            let staging = &mut staging.as_mut_slice()[..width * len];
            layout::columns(&rows, &self.frame, self.weight_scale(), staging);
            for (j, column) in staging.chunks_exact(len).enumerate() {
                let mut to = buffer.index(j * stride + start..j * stride + start + len);
                // SAFETY: both are as long, and the copy is waited for before the staging memory is used again or freed.
                unsafe { to.async_copy_from(column, &self.lanes[0].stream) }.map_err(failed("cuMemcpyHtoDAsync"))?;
            }
            self.lanes[0].synchronize()?;
        }
        self.buffers.push(buffer);
        self.chunks.push(Chunk { n, host: None });
        Ok(())
    }

    fn load_chunks(&mut self, samples: &Samples<'_>, limit: usize) -> Result<()> {
        let (n, width) = (self.n, self.width());
        let size = (limit / 2 / size_of::<T>() / width / STRIDE * STRIDE).min(MAX_SAMPLES).min(layout::stride(n));
        if size == 0 {
            return Err(Error::Unsupported {
                what: format!("{width} columns within {limit} bytes of GPU memory"),
                backend: "the CUDA backend",
                remedy: "use device `cpu` or `reference`",
            });
        }
        self.lanes.push(Lane::new()?);
        for _ in 0..2 {
            self.buffers.push(allocate(width * size)?);
        }
        for start in (0..n).step_by(size) {
            let rows = samples.rows(start..n.min(start + size));
            let n = rows.n_samples();
            let mut host = HostBuffer::zeroed(width * layout::stride(n));
            layout::columns(&rows, &self.frame, self.weight_scale(), host.as_mut_slice());
            self.chunks.push(Chunk { n, host: Some(host) });
        }
        Ok(())
    }

    /// Starts to copy chunk `c` to its buffer, if it is not there anyway.
    pub fn copy(&mut self, c: usize) -> Result<()> {
        let at = c % self.buffers.len();
        if let Some(host) = &self.chunks[c].host {
            let from = host.as_slice();
            let mut to = self.buffers[at].index(..from.len());
            // SAFETY: the buffer is as large as the largest chunk; the host's memory is freed only after the stream has
            // been waited for.
            unsafe { to.async_copy_from(from, &self.lanes[at].stream) }.map_err(failed("cuMemcpyHtoDAsync"))?;
        }
        Ok(())
    }

    /// The lane of chunk `c`, and its samples, which are there when all that the lane has begun is done.
    pub fn at(&mut self, c: usize) -> Result<(&mut Lane, Columns<'_, T>)> {
        let weighted = self.weighted();
        let at = c % self.buffers.len();
        Ok((&mut self.lanes[at], Columns::new(&self.buffers[at], self.chunks[c].n, self.d, weighted)?))
    }

    /// [`copy`](Self::copy), and [`at`](Self::at).
    pub fn send(&mut self, c: usize) -> Result<(&mut Lane, Columns<'_, T>)> {
        self.copy(c)?;
        self.at(c)
    }

    /// The lane of chunk `c`.
    pub fn lane(&mut self, c: usize) -> &mut Lane {
        let at = c % self.lanes.len();
        &mut self.lanes[at]
    }
}

impl<T: DeviceCopy> Resident<T> {
    /// Waits for all work on the device.
    pub fn drain(&self) {
        for lane in &self.lanes {
            // Called after a failure that has been reported already, or at the end.
            let _ = lane.synchronize();
        }
    }
}

impl<T: DeviceCopy> Drop for Resident<T> {
    fn drop(&mut self) {
        // The memory is freed by the fields' own drops, which need the context.
        if self.gpu.enter().is_ok() {
            self.drain();
        }
    }
}
