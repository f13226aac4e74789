//! The samples of an evaluator: on the device, or on the host and passed through the device in chunks.
use super::gpu::Gpu;
use super::layout;
use super::memory::{Numbers, allocate};
use super::mismatch;
use super::place::{ColumnsOf, Element, Place};
use super::staging::{BUFFER_BYTES, Staging};
use super::stream::{Running, Stream};
use super::workspace::Workspace;
use gmm_core::backends::device_parameters::{Deviations, DeviceParameters};
use gmm_core::contract::evaluator::check_features;
use gmm_core::data::frame::Frame;
use gmm_core::data::samples::{Samples, total_weight, weight_scale};
use gmm_core::error::Result;
use gmm_core::interrupt::Interrupt;
use gmm_core::model::mixture::Mixture;
use gmm_driver::{DeviceBuffer, Plain};
use gmm_kernels::data::{self, QUAD};

use ndarray::ArrayView1;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Samples on the device: part of a buffer with one column for each feature.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a, T: Plain = f32> {
    x: *const T,
    stride: usize,
    d: usize,
    weighted: bool,
    n: usize,
    buffer: PhantomData<&'a T>,
}

impl<'a, T: Plain> Columns<'a, T> {
    /// Takes the first `n` samples of (D, `layout::stride(n)`) numbers or more, and a column of weights if `weighted`.
    pub fn new(buffer: Numbers<'a, T>, n: usize, d: usize, weighted: bool) -> Result<Self> {
        let stride = layout::stride(n);
        let width = d + usize::from(weighted);
        let len = width.checked_mul(stride).filter(|_| n > 0 && d > 0);
        let len = len.ok_or_else(|| mismatch("samples on the device", vec![n, width], vec![buffer.len()]))?;
        let x = buffer.read(len, "samples on the device")?;
        Ok(Self { x, stride, d, weighted, n, buffer: PhantomData })
    }

    /// Returns samples `first` to `first + n`; `first` is a multiple of a quad.
    pub fn part(self, first: usize, n: usize) -> Result<Self> {
        if n == 0 || !first.is_multiple_of(QUAD) || first + n > self.n {
            return Err(mismatch("a part of the samples", vec![self.n], vec![first, n]));
        }
        // Within the buffer: `first` is below N.
        Ok(Self { x: self.x.wrapping_add(first), n, ..self })
    }

    /// Returns the samples of some columns alone, without weights.
    pub fn of_features(self, features: Range<usize>) -> Result<Self> {
        if features.is_empty() || features.end > self.d {
            return Err(mismatch("columns of the samples", vec![self.d], vec![features.start, features.end]));
        }
        let x = self.x.wrapping_add(features.start * self.stride);
        Ok(Self { x, d: features.len(), weighted: false, ..self })
    }

    pub fn n(&self) -> usize {
        self.n
    }

    pub fn d(&self) -> usize {
        self.d
    }

    pub fn stride(&self) -> usize {
        self.stride
    }

    pub fn x(&self) -> *const T {
        self.x
    }

    /// Returns the samples' weights, null without weights.
    pub fn weights(&self) -> *const T {
        if self.weighted { self.x().wrapping_add(self.d * self.stride) } else { ptr::null() }
    }

    /// Returns the samples' weights, null without weights or if they are not `wanted`.
    pub fn weights_if(&self, wanted: bool) -> *const T {
        if wanted { self.weights() } else { ptr::null() }
    }
}

impl Columns<'_> {
    /// Returns the columns as an argument of the kernels; the first `cached_quads` quads should stay in the L2 cache.
    pub fn argument(&self, cached_quads: u32) -> data::Columns {
        data::Columns { x: self.x(), stride: self.stride as u64, n: self.n as u64, cached_quads }
    }
}

/// Samples in the kernels' layout, shared by any number of evaluators.
#[derive(Debug)]

struct Store<T: Plain> {
    gpu: &'static Gpu,
    frame: Frame,
    deviations: Deviations,
    n: usize,
    d: usize,
    total_weight: f64,
    /// With missing values, the weight of the samples with a value in each column (D,).
    observed: Option<Vec<f64>>,
    /// The kernels see the samples' weights divided by this power of two, which scales the largest to about one.
    weight_scale: Option<f64>,
    place: Place<T>,
}

/// A stream with the memory for an evaluation in it.
#[derive(Debug)]
pub struct Pass<T: Plain> {
    pub stream: Stream,
    pub workspace: Workspace,
    chunk: Option<ChunkBuffer<T>>,
}

#[derive(Debug)]
struct ChunkBuffer<T: Plain> {
    device: DeviceBuffer<T>,
    staging: Staging<T>,
}

impl<T: Element> ChunkBuffer<T> {
    fn new(gpu: &'static Gpu, len: usize) -> Result<Self> {
        Ok(Self { device: allocate(len)?, staging: Staging::new(gpu, (BUFFER_BYTES / size_of::<T>()).min(len)) })
    }
}

/// The samples of one evaluator, with the streams of its evaluations. It must be the evaluator's first field: it is
/// dropped first and waits for the device, so that the other fields can be freed.
#[derive(Debug)]
pub struct DeviceSamples<T: Plain> {
    store: Arc<Store<T>>,
    /// Chunk c passes through pass c modulo their number: one if all samples are on the device, else two.
    passes: Vec<Pass<T>>,
}

pub struct Chunk<'a, T: Plain> {
    pub pass: &'a Pass<T>,
    pub columns: Columns<'a, T>,
    /// The copy that brings it there.
    pub started: Running<'a, ()>,
}

/// Most parameter sets, and so totals, of a launch.
pub const MAX_TOTALS: usize = 64;

impl<T: Element> DeviceSamples<T> {
    /// Copies the samples to the device or, if they need more than `memory_limit` bytes there (by default nearly all
    /// that is free), to the host's memory in the kernels' layout. `deviations` chooses how samples are compared with
    /// components; around means they keep all digits, in a frame that changes nothing.
    pub fn new(
        samples: &Samples<'_>,
        ordinal: usize,
        deviations: Deviations,
        memory_limit: Option<usize>,
    ) -> Result<Self> {
        let gpu = Gpu::open(ordinal)?;
        let _entered = gpu.enter()?;
        let (n, d) = (samples.n_samples(), samples.n_features());
        let weight_scale = samples.weights().map(weight_scale);
        let observed = samples.missing().map(|_| samples.observed_weights());
        let frame = deviations.frame(samples);
        let place = ColumnsOf { samples, frame: &frame, weight_scale }.place(gpu, limit_or_free(gpu, memory_limit)?)?;
        let total_weight = samples.total_weight();
        Self::of_store(Arc::new(Store { gpu, frame, deviations, n, d, total_weight, observed, weight_scale, place }))
    }

    /// Takes columns (D, or one more for the weights; stride) already on the device, in a frame.
    pub fn of_columns(
        gpu: &'static Gpu,
        columns: DeviceBuffer<T>,
        n: usize,
        frame: Frame,
        deviations: Deviations,
        weights: Option<ArrayView1<'_, f64>>,
    ) -> Result<Self> {
        let (d, weight_scale) = (frame.shift.len(), weights.map(weight_scale));
        let needed = (d + usize::from(weights.is_some())) * layout::stride(n);
        if columns.len() < needed {
            return Err(mismatch("the columns of samples", vec![needed], vec![columns.len()]));
        }
        if let (Some(weights), Some(scale)) = (weights, weight_scale) {
            let mut column = vec![T::default(); layout::stride(n)];
            layout::weights(weights.iter().copied(), scale, &mut column);
            let place = Numbers::of(&columns).part(d * column.len()..(d + 1) * column.len())?;
            Stream::new()?.write(place, &column)?;
        }
        let (total_weight, place) = (total_weight(weights, n), Place::Device(columns));
        let observed = None;
        Self::of_store(Arc::new(Store { gpu, frame, deviations, n, d, total_weight, observed, weight_scale, place }))
    }

    /// Returns the same samples, uncopied, for another evaluator.
    pub fn share(&self) -> Result<Self> {
        let _entered = self.gpu().enter()?;
        Self::of_store(self.store.clone())
    }

    fn of_store(store: Arc<Store<T>>) -> Result<Self> {
        let pass = |chunk: Option<usize>| -> Result<_> {
            let chunk = chunk.map(|len| ChunkBuffer::new(store.gpu, len)).transpose()?;
            Ok(Pass { stream: Stream::new()?, workspace: Workspace::new(MAX_TOTALS)?, chunk })
        };
        let passes = match &store.place {
            Place::Device(_) => vec![pass(None)?],
            Place::Host { largest, .. } => vec![pass(Some(*largest))?, pass(Some(*largest))?],
        };
        Ok(Self { store, passes })
    }

    pub fn describe(&self) -> String {
        let info = &self.store.gpu.info;
        let around = self.store.deviations.description();
        format!("cuda:{} {} ({}{around})", info.ordinal, info.name, T::NAME)
    }

    pub fn gpu(&self) -> &'static Gpu {
        self.store.gpu
    }

    pub fn frame(&self) -> &Frame {
        &self.store.frame
    }

    pub fn deviations(&self) -> Deviations {
        self.store.deviations
    }

    pub fn n(&self) -> usize {
        self.store.n
    }

    pub fn d(&self) -> usize {
        self.store.d
    }

    pub fn total_weight(&self) -> f64 {
        self.store.total_weight
    }

    /// Returns whether values are missing (NaN in the columns).
    pub fn gaps(&self) -> bool {
        self.store.observed.is_some()
    }

    /// Returns the mixture's parameters for these samples. With missing values its covariances must be diagonal or
    /// spherical. Errors: [`Error::FeatureMismatch`], and those of [`DeviceParameters::with_matrices`].
    pub fn parameters(&self, mixture: &Mixture) -> Result<DeviceParameters<T>> {
        self.parameters_in(None, mixture)
    }

    /// Returns the [`parameters`](Self::parameters) in the memory of former ones.
    pub fn parameters_in(&self, memory: Option<DeviceParameters<T>>, mixture: &Mixture) -> Result<DeviceParameters<T>> {
        check_features(mixture, self.d())?;
        match &self.store.observed {
            None => DeviceParameters::with_matrices_in(memory, mixture, self.frame(), self.store.deviations),
            Some(observed) => {
                let parameters = DeviceParameters::with_gaps(mixture, self.frame(), self.store.deviations)?;
                Ok(parameters.with_mean_offset(observed, self.total_weight()))
            }
        }
    }

    pub fn is_resident(&self) -> bool {
        matches!(self.store.place, Place::Device(_))
    }

    pub fn n_chunks(&self) -> usize {
        match &self.store.place {
            Place::Device(_) => 1,
            Place::Host { chunks, .. } => chunks.len(),
        }
    }

    /// Returns the samples of the first chunk, the largest.
    pub fn chunk_size(&self) -> usize {
        match &self.store.place {
            Place::Device(_) => self.store.n,
            Place::Host { chunks, .. } => chunks[0].0,
        }
    }

    pub fn weighted(&self) -> bool {
        self.store.weight_scale.is_some()
    }

    /// Returns the factor for the kernels' sums, by which the weights are divided.
    pub fn weight_scale(&self) -> f64 {
        self.store.weight_scale.unwrap_or(1.0)
    }

    pub fn passes(&mut self) -> &mut [Pass<T>] {
        &mut self.passes
    }

    pub fn pass(&self, c: usize) -> &Pass<T> {
        &self.passes[c % self.passes.len()]
    }

    /// Returns chunk `c`, with the started copy to the device. [`Error::Interrupted`] before anything starts.
    pub fn chunk(&self, c: usize) -> Result<Chunk<'_, T>> {
        Interrupt::current().check()?;
        let pass = self.pass(c);
        let (n, buffer, started) = match (&self.store.place, &pass.chunk) {
            (Place::Device(buffer), _) => (self.store.n, buffer, pass.stream.idle()),
            (Place::Host { chunks, .. }, Some(buffer)) => {
                let (n, numbers) = &chunks[c];
                (*n, &buffer.device, buffer.staging.upload(&pass.stream, &buffer.device, numbers)?)
            }
            (Place::Host { .. }, None) => return Err(mismatch("the passes of a chunked evaluation", vec![2], vec![1])),
        };
        Ok(Chunk { pass, columns: Columns::new(Numbers::of(buffer), n, self.store.d, self.weighted())?, started })
    }

    /// Evaluates each chunk in order, in all passes at once: `start` begins, `finish` waits, `add` takes its result.
    pub fn for_each_chunk<'a, R, V>(
        &'a self,
        mut start: impl FnMut(usize, Chunk<'a, T>) -> Result<R>,
        mut finish: impl FnMut(R) -> Result<V>,
        mut add: impl FnMut(V),
    ) -> Result<()> {
        if self.n_chunks() == 1 {
            return finish(start(0, self.chunk(0)?)?).map(add);
        }
        let mut under_way = std::collections::VecDeque::with_capacity(self.passes.len());
        for c in 0..self.n_chunks() {
            if under_way.len() == self.passes.len()
                && let Some(first) = under_way.pop_front()
            {
                add(finish(first)?);
            }
            under_way.push_back(start(c, self.chunk(c)?)?);
        }
        for running in under_way {
            add(finish(running)?);
        }
        Ok(())
    }

    /// Evaluates each chunk in order, one at a time, while the next is copied to the device.
    pub fn one_by_one<'a, R>(
        &'a self,
        mut start: impl FnMut(usize, Chunk<'a, T>) -> Result<R>,
        mut finish: impl FnMut(R) -> Result<()>,
    ) -> Result<()> {
        let mut next = Some(self.chunk(0)?);
        let mut c = 0;
        while let Some(chunk) = next.take() {
            let running = start(c, chunk)?;
            c += 1;
            next = (c < self.n_chunks()).then(|| self.chunk(c)).transpose()?;
            finish(running)?;
        }
        Ok(())
    }
}

impl<T: Plain> Drop for DeviceSamples<T> {
    fn drop(&mut self) {
        for pass in &self.passes {
            // A failure cannot be reported here.
            let _ = pass.stream.synchronize();
        }
    }
}

/// Returns the limit, or nearly all the device's free memory.
pub fn limit_or_free(gpu: &Gpu, limit: Option<usize>) -> Result<usize> {
    limit.map_or_else(|| free_for_samples(gpu), Ok)
}

/// Returns the free memory for samples: all but the needs of evaluations.
fn free_for_samples(gpu: &Gpu) -> Result<usize> {
    let free = gpu.free_memory()?;
    Ok(free - (free / 16).max(256 << 20).min(free))
}

/// Returns the bytes of a device's memory that samples can take now.
pub fn free_memory(ordinal: usize) -> Result<usize> {
    let gpu = Gpu::open(ordinal)?;
    let _entered = gpu.enter()?;
    free_for_samples(gpu)
}
