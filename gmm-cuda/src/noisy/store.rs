//! The samples and their noise on the device.
use super::launches::NoiseOf;
use crate::device::gpu::Gpu;
use crate::device::layout;
use crate::device::memory::{Numbers, allocate};
use crate::device::place::{COPY_BYTES, ColumnsOf, MAX_SAMPLES, Place};
use crate::device::samples::{Columns, limit_or_free};
use crate::device::stream::Stream;
use gmm_core::data::frame::Frame;
use gmm_core::data::noise::Noise;
use gmm_core::data::samples::{Samples, weight_scale};
use gmm_core::error::{Error, Result};
use gmm_driver::DeviceBuffer;
use gmm_kernels::noisy::{MAX_FEATURES, NARROW};
use rayon::prelude::*;

/// Samples with their noise, shared by any number of evaluators.
#[derive(Debug)]
pub(super) struct Store {
    pub gpu: &'static Gpu,
    n: usize,
    d: usize,
    /// The kernels see the samples' weights divided by this power of two.
    pub weight_scale: Option<f64>,
    columns: DeviceBuffer<f64>,
    noise: DeviceBuffer<f64>,
    /// The numbers of a sample's noise.
    pub entries: usize,
}

impl Store {
    /// # Errors
    /// [`Error::Unsupported`] if the kernels do not evaluate such samples, or they do not fit into the memory.
    pub fn new(samples: &Samples<'_>, noise: &Noise<'_>, ordinal: usize, memory_limit: Option<usize>) -> Result<Self> {
        let (n, d) = (samples.n_samples(), samples.n_features());
        let unsupported = |what: String| {
            let remedy = "name the device cpu or auto, or give one noise for all samples or for groups of them";
            Err(Error::Unsupported { what, backend: "the CUDA backend", remedy })
        };
        if noise.is_projected() || samples.missing().is_some() || d > MAX_FEATURES {
            return unsupported(format!(
                "noise of each sample with a projection, missing values, or more than {MAX_FEATURES} features,"
            ));
        }
        let gpu = Gpu::open(ordinal)?;
        let _entered = gpu.enter()?;
        let places = noise.entries();
        let weight_scale = samples.weights().map(weight_scale);
        let width = d + usize::from(weight_scale.is_some()) + places.len();
        let (limit, bytes) = (limit_or_free(gpu, memory_limit)?, width as u128 * layout::stride(n) as u128 * 8);
        if bytes > limit as u128 || n >= MAX_SAMPLES {
            let of = format!("{bytes} bytes for {n} samples with noise");
            return unsupported(format!("{of}, where {limit} bytes of GPU memory can be used,"));
        }
        // Deviations are differences from each mean: no frame.
        let frame = Frame { shift: vec![0.0; d], scale: vec![1.0; d], inverse: vec![1.0; d], log2_scale: 0.0 };
        let Place::Device(columns) = (ColumnsOf { samples, frame: &frame, weight_scale }).place(gpu, limit)? else {
            return unsupported(format!("{n} samples within {limit} bytes of GPU memory"));
        };
        let entries = places.len();
        let buffer = allocate(entries * layout::stride(n))?;
        let store = Self { gpu, n, d, weight_scale, columns, noise: buffer, entries };
        store.write_noise(noise, &places)?;
        Ok(store)
    }

    /// Copies the noise to the device: number by number for pairs of a thread, sample by sample for those of a warp.
    fn write_noise(&self, noise: &Noise<'_>, places: &[(usize, usize)]) -> Result<()> {
        let (stream, by_sample) = (Stream::new()?, self.is_by_sample());
        let at_once = (COPY_BYTES / size_of::<f64>() / self.entries).clamp(1, self.n);
        let mut staging = vec![0.0; at_once * self.entries];
        for start in (0..self.n).step_by(at_once) {
            let rows = at_once.min(self.n - start);
            let part = &mut staging[..rows * self.entries];
            let of = |row: usize, (i, j): (usize, usize)| noise.at(start + row, i, j);
            if by_sample {
                part.par_chunks_exact_mut(self.entries).enumerate().for_each(|(row, to)| {
                    to.iter_mut().zip(places).for_each(|(to, place)| *to = of(row, *place));
                });
                let to = Numbers::of(&self.noise).part(start * self.entries..(start + rows) * self.entries)?;
                stream.write(to, part)?;
                continue;
            }
            part.par_chunks_exact_mut(rows).zip(places).for_each(|(to, place)| {
                to.iter_mut().enumerate().for_each(|(row, to)| *to = of(row, *place));
            });
            for (entry, column) in part.chunks_exact(rows).enumerate() {
                let start = entry * layout::stride(self.n) + start;
                stream.write(Numbers::of(&self.noise).part(start..start + rows)?, column)?;
            }
        }
        Ok(())
    }

    fn is_by_sample(&self) -> bool {
        self.d > NARROW
    }

    pub fn columns(&self) -> Result<Columns<'_, f64>> {
        Columns::new(Numbers::of(&self.columns), self.n, self.d, self.weight_scale.is_some())
    }

    /// Returns the noise from a sample on.
    pub fn noise(&self, first: usize) -> NoiseOf<'_> {
        let by_sample = self.is_by_sample();
        NoiseOf {
            numbers: Numbers::of(&self.noise),
            first,
            diagonal: self.entries == self.d,
            sample_stride: if by_sample { self.entries } else { 1 },
            entry_stride: if by_sample { 1 } else { layout::stride(self.n) },
        }
    }
}
