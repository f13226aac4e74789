//! Everything, for any K, D, covariance type and element type, with sample weights: launches of `density`, `posterior` and
//! `accumulate`. What the other kernels do for some shapes, faster.
use super::gpu::{Gpu, Kernel, failed};
use super::launch::{Columns, Lane, arg, shape};
use super::layout::STRIDE;
use super::memory::{Upload, allocate, zeroed};
use super::parameters::Parameters;
use super::resident::{Element, Resident};
use crate::backends::device_parameters::DeviceParameters;
use crate::{Mixture, Result, Statistics};
use cust::event::{Event, EventFlags};
use cust::memory::{AsyncCopyDestination, DeviceBuffer, DeviceCopy};
use gmm_kernels::general::accumulate::{self, AccumulateArgs};
use gmm_kernels::general::density::{self, COMPONENTS, DensityArgs};
use gmm_kernels::general::posterior::PosteriorArgs;
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;
use ndarray::{Array1, Array2, s};
use std::f64::consts::LN_2;
use std::ops::Range;
use std::ptr;

/// Numbers of qₖ, and of samples, that a part of the data has at most (but see [`MIN_PART`]): few enough for the L2 cache.
const PART: usize = 1 << 21;
/// Least samples of a part.
const MIN_PART: usize = 4 * STRIDE;
/// Threads of a block of `density` and `posterior`, and of `accumulate`, which needs twice the registers.
const BLOCK: u32 = 256;
const ACCUMULATE_BLOCK: u32 = 128;
/// Blocks of `posterior` for each multiprocessor, at most.
const POSTERIOR_BLOCKS: u32 = 8;
/// Warps of `accumulate` for each multiprocessor that are worth cutting the samples into slices for.
const ACCUMULATE_WARPS: usize = 16;
/// Least samples of a slice.
const MIN_SLICE: usize = 256;

/// Name of these kernels together.
pub(super) const NAME: &str = "general";

/// What a pass over the samples is to give, besides their total.
enum Goal<'a> {
    Total,
    /// log₂ of each sample's likelihood, less the mixture's offset.
    Scores(&'a mut Vec<f64>),
    Labels(&'a mut Vec<usize>),
    /// (N, K)
    Responsibilities(&'a mut Array2<f64>),
    /// The sums of `accumulate` over all samples.
    Sums(&'a mut Vec<f64>),
}

/// A mixture made ready for a data set.
struct Ready<'a, T> {
    mixture: &'a Mixture,
    packed: DeviceParameters<T>,
    layout: Parameters,
}

impl<'a, T: Element> Ready<'a, T> {
    /// # Errors
    /// As [`DeviceParameters::with_matrices`].
    fn new(mixture: &'a Mixture, data: &Resident<T>) -> Result<Self> {
        crate::evaluator::check_features(mixture, data.d)?;
        let packed = DeviceParameters::with_matrices(mixture, &data.frame)?;
        let layout = Parameters::new(&packed);
        Ok(Self { mixture, packed, layout })
    }
}

/// The launches' own memory.
#[derive(Debug)]
pub(super) struct General<T: DeviceCopy> {
    parameters: Upload<T>,
    /// qₖ, then responsibilities, (K, samples of a part).
    q: DeviceBuffer<T>,
    /// A total for each block of `posterior`.
    totals: DeviceBuffer<f64>,
    /// The sums of `accumulate`, slice by slice and over all of them.
    partials: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
}

/// The shape of the launches of one pass.
#[derive(Clone, Copy)]
struct Shape {
    /// Samples of a part.
    part: usize,
    posterior_blocks: u32,
    slices: usize,
}

impl<T: Element> General<T> {
    pub fn new() -> Result<Self> {
        Ok(Self {
            parameters: Upload::new()?,
            q: allocate(1)?,
            totals: allocate(1)?,
            partials: allocate(1)?,
            sums: allocate(1)?,
        })
    }

    pub fn log_likelihood(&mut self, data: &mut Resident<T>, mixture: &Mixture) -> Result<f64> {
        let ready = Ready::new(mixture, data)?;
        self.pass(data, &ready, Goal::Total)
    }

    pub fn score_samples(&mut self, data: &mut Resident<T>, mixture: &Mixture) -> Result<Array1<f64>> {
        let ready = Ready::new(mixture, data)?;
        let mut scores = Vec::with_capacity(data.n);
        self.pass(data, &ready, Goal::Scores(&mut scores))?;
        Ok(scores.into_iter().map(|score| LN_2 * (score + ready.packed.offset)).collect())
    }

    pub fn predict(&mut self, data: &mut Resident<T>, mixture: &Mixture) -> Result<Vec<usize>> {
        let ready = Ready::new(mixture, data)?;
        let mut labels = Vec::with_capacity(data.n);
        self.pass(data, &ready, Goal::Labels(&mut labels))?;
        Ok(labels)
    }

    pub fn predict_proba(&mut self, data: &mut Resident<T>, mixture: &Mixture) -> Result<Array2<f64>> {
        let ready = Ready::new(mixture, data)?;
        let mut r = Array2::zeros((data.n, ready.layout.k));
        self.pass(data, &ready, Goal::Responsibilities(&mut r))?;
        Ok(r)
    }

    pub fn statistics(&mut self, data: &mut Resident<T>, mixture: &Mixture) -> Result<Statistics> {
        let ready = Ready::new(mixture, data)?;
        let mut values = Vec::new();
        let log_likelihood = self.pass(data, &ready, Goal::Sums(&mut values))?;
        let Ready { packed, layout, .. } = ready;
        let mut sums = layout.centred_sums(&values, data.weight_scale(), mixture, &packed, &data.frame);
        (sums.weight, sums.log_likelihood) = (data.total_weight, log_likelihood);
        Statistics::from_centred_sums(sums)
    }

    /// Seconds of a total over the first chunk of the samples by the device's clock, the mean over `repeats` of them back
    /// to back.
    pub fn seconds(&mut self, data: &mut Resident<T>, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let ready = Ready::new(mixture, data)?;
        data.gpu.enter()?;
        let shape = self.prepare(data, &ready, false)?;
        let event = || Event::new(EventFlags::DEFAULT).map_err(failed("cuEventCreate"));
        let (start, end) = (event()?, event()?);
        // The first launches, which do not count, have the driver load the kernels.
        self.enqueue(data, &ready, shape, 0..1, &mut Goal::Total)?;
        start.record(&data.lane(0).stream).map_err(failed("cuEventRecord"))?;
        for _ in 0..repeats.max(1) {
            self.enqueue(data, &ready, shape, 0..1, &mut Goal::Total)?;
        }
        end.record(&data.lane(0).stream).map_err(failed("cuEventRecord"))?;
        end.synchronize().map_err(failed("cuEventSynchronize"))?;
        let milliseconds = end.elapsed_time_f32(&start).map_err(failed("cuEventElapsedTime"))?;
        Ok(f64::from(milliseconds) / 1e3 / f64::from(repeats.max(1)))
    }

    /// One pass over all samples; returns their total log-likelihood. After a failure no work is left behind.
    fn pass(&mut self, data: &mut Resident<T>, ready: &Ready<'_, T>, goal: Goal<'_>) -> Result<f64> {
        data.gpu.enter()?;
        self.all(data, ready, goal).inspect_err(|_| data.drain())
    }

    fn all(&mut self, data: &mut Resident<T>, ready: &Ready<'_, T>, mut goal: Goal<'_>) -> Result<f64> {
        let shape = self.prepare(data, ready, matches!(goal, Goal::Sums(_)))?;
        let chunks = data.n_chunks();
        self.enqueue(data, ready, shape, 0..chunks, &mut goal)?;
        let reduce = data.gpu.kernel("reduce_sets", None)?;
        let lane = data.lane(chunks - 1);
        if let Goal::Sums(values) = goal {
            let layout = ready.layout;
            let count = accumulate::values(layout.k, layout.d, layout.full);
            let args = ReduceSetsArgs {
                partials: self.partials.as_device_ptr().as_ptr(),
                count: shape.slices as u32,
                totals: self.sums.as_device_ptr().as_mut_ptr(),
            };
            // SAFETY: the arguments of this entry: `prepare` saw to a place for each value and slice, and for each sum.
            unsafe { lane.start(reduce, (count as u32, 1), WARP, 0, &[arg(&args)])? };
            *values = read(lane, &self.sums, count)?;
        }
        let total = lane.sum_up(reduce, &self.totals, shape.posterior_blocks)?;
        Ok(LN_2 * (total * data.weight_scale() + data.total_weight * ready.packed.offset))
    }

    /// Sends the parameters, and sees to memory for the launches.
    fn prepare(&mut self, data: &mut Resident<T>, ready: &Ready<'_, T>, statistics: bool) -> Result<Shape> {
        let Parameters { k, d, full, .. } = ready.layout;
        let gpu: &Gpu = data.gpu;
        let chunk = data.chunk_size();
        let part = (PART / k.max(d)).next_multiple_of(STRIDE).max(MIN_PART).min(chunk.next_multiple_of(STRIDE));
        let blocks = (part as u32).div_ceil(BLOCK).min(POSTERIOR_BLOCKS * gpu.limits.multiprocessors);
        let wanted = (ACCUMULATE_WARPS * gpu.limits.multiprocessors as usize).div_ceil(k * accumulate::tiles(d, full));
        let slices = wanted.clamp(1, part.div_ceil(MIN_SLICE));
        let enough = |buffer: &mut DeviceBuffer<f64>, len: usize| -> Result<()> {
            if buffer.len() < len {
                data.lanes.iter().try_for_each(Lane::synchronize)?;
                *buffer = allocate(len)?;
            }
            Ok(())
        };
        enough(&mut self.totals, blocks as usize)?;
        if statistics {
            let values = accumulate::values(k, d, full);
            enough(&mut self.partials, values * slices)?;
            enough(&mut self.sums, values)?;
        }
        if self.q.len() < k * part {
            data.lanes.iter().try_for_each(Lane::synchronize)?;
            // Numbers behind the samples are read, though nothing comes of them.
            self.q = zeroed(k * part)?;
        }
        let Ready { mixture, packed, layout } = ready;
        self.parameters.send(layout.len, &data.lanes[0].stream, |to| layout.write(packed, mixture, &data.frame, to))?;
        if data.lanes.len() > 1 {
            data.lanes[0].synchronize()?;
        }
        Ok(Shape { part, posterior_blocks: blocks, slices })
    }

    /// Starts the launches over some chunks, and waits for what the goal wants of each part of them.
    fn enqueue(
        &mut self,
        data: &mut Resident<T>,
        ready: &Ready<'_, T>,
        shape: Shape,
        chunks: Range<usize>,
        goal: &mut Goal<'_>,
    ) -> Result<()> {
        let (gpu, mut done) = (data.gpu, 0);
        for c in chunks {
            // The next chunk is on its way while this one is computed; but one part at a time has the memory.
            data.copy(c)?;
            if c > 0 {
                data.lane(c - 1).synchronize()?;
            }
            let (lane, all) = data.at(c)?;
            for first in (0..all.n()).step_by(shape.part) {
                let columns = all.part(first, shape.part.min(all.n() - first))?;
                let part = Part { gpu, lane, columns, layout: ready.layout, shape, done };
                self.density(part)?;
                self.posterior(part, goal)?;
                if let Goal::Sums(_) = goal {
                    self.accumulate(part)?;
                }
                done += columns.n();
            }
        }
        Ok(())
    }

    fn density(&self, part: Part<'_, T>) -> Result<()> {
        let Part { columns, layout, .. } = part;
        let parameters = self.parameters(layout)?;
        let args = DensityArgs {
            x: columns.x(),
            stride: columns.stride() as u64,
            n: columns.n() as u32,
            k: layout.k as u32,
            d: layout.d as u32,
            matrices: parameters,
            matrix_stride: layout.matrix_stride as u64,
            shifts: parameters.wrapping_add(layout.shifts),
            seeds: parameters.wrapping_add(layout.seeds),
            q: self.q.as_device_ptr().as_mut_ptr(),
            q_stride: part.shape.part as u64,
        };
        let units = if layout.full { layout.k } else { layout.k.div_ceil(COMPONENTS) };
        let blocks = (columns.n().div_ceil(density::TILE) * units).div_ceil((BLOCK / WARP) as usize);
        let kernel = part.kernel("density")?;
        // SAFETY: the arguments of this entry: the parameters lie as `layout` says, the samples' columns are padded to
        // whole strides, and `q` has a place for each component and sample of a part.
        unsafe { part.lane.start(kernel, (blocks as u32, 1), BLOCK, 0, &[arg(&args)]) }
    }

    fn posterior(&self, part: Part<'_, T>, goal: &mut Goal<'_>) -> Result<()> {
        let Part { lane, columns, layout, done, .. } = part;
        let (n, stride) = (columns.n(), part.shape.part);
        let scores = matches!(goal, Goal::Scores(_)).then(|| allocate::<f64>(n)).transpose()?;
        let labels = matches!(goal, Goal::Labels(_)).then(|| allocate::<u32>(n)).transpose()?;
        // What is asked for sample by sample does not depend on the samples' weights.
        let weighted = matches!(goal, Goal::Total | Goal::Sums(_));
        let args = PosteriorArgs {
            q: self.q.as_device_ptr().as_mut_ptr(),
            stride: stride as u64,
            n: n as u32,
            k: layout.k as u32,
            weights: self.parameters(layout)?.wrapping_add(layout.weights),
            sample_weights: if weighted { columns.weights() } else { ptr::null() },
            responsibilities: matches!(goal, Goal::Responsibilities(_) | Goal::Sums(_)).into(),
            add: (done > 0).into(),
            scores: scores.as_ref().map_or(ptr::null_mut(), |scores| scores.as_device_ptr().as_mut_ptr()),
            labels: labels.as_ref().map_or(ptr::null_mut(), |labels| labels.as_device_ptr().as_mut_ptr()),
            partials: self.totals.as_device_ptr().as_mut_ptr(),
        };
        let (kernel, grid) = (part.gpu.kernel(&format!("posterior_{}", T::SUFFIX), None)?, part.shape.posterior_blocks);
        // SAFETY: the arguments of this entry: `q` and the parameters as for `density`, a score or a label for each sample
        // of the part, and a total for each block.
        unsafe { lane.start(kernel, (grid, 1), BLOCK, FINISH_SHARED_BYTES, &[arg(&args)])? };
        match (goal, scores, labels) {
            (Goal::Scores(all), Some(scores), _) => all.extend(read(lane, &scores, n)?),
            (Goal::Labels(all), _, Some(labels)) => all.extend(read(lane, &labels, n)?.iter().map(|l| *l as usize)),
            (Goal::Responsibilities(all), ..) => {
                let r = read(lane, &self.q, layout.k * stride)?;
                for (c, r) in r.chunks_exact(stride).enumerate() {
                    let to = all.slice_mut(s![done..done + n, c]);
                    to.into_iter().zip(r).for_each(|(to, r)| *to = (*r).into());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn accumulate(&self, part: Part<'_, T>) -> Result<()> {
        let Part { columns, layout, shape, .. } = part;
        let slice = columns.n().div_ceil(shape.slices).next_multiple_of(WARP as usize);
        let args = AccumulateArgs {
            x: columns.x(),
            stride: columns.stride() as u64,
            n: columns.n() as u32,
            k: layout.k as u32,
            d: layout.d as u32,
            slices: shape.slices as u32,
            slice: slice as u32,
            add: (part.done > 0).into(),
            r: self.q.as_device_ptr().as_ptr(),
            r_stride: shape.part as u64,
            centres: self.parameters(layout)?.wrapping_add(layout.centres),
            partials: self.partials.as_device_ptr().as_mut_ptr(),
        };
        let tasks = layout.k * accumulate::tiles(layout.d, layout.full) * shape.slices;
        let blocks = tasks.div_ceil((ACCUMULATE_BLOCK / WARP) as usize) as u32;
        let kernel = part.kernel("accumulate")?;
        // SAFETY: the arguments of this entry: `q` holds the responsibilities of the part, the parameters lie as `layout`
        // says, and there is a place for each value and slice.
        unsafe { part.lane.start(kernel, (blocks, 1), ACCUMULATE_BLOCK, 0, &[arg(&args)]) }
    }

    /// The parameters on the device.
    fn parameters(&self, layout: Parameters) -> Result<*const T> {
        let device = self.parameters.device();
        if device.len() < layout.len {
            return Err(shape("parameters on the device", vec![layout.len], vec![device.len()]));
        }
        Ok(device.as_device_ptr().as_ptr())
    }
}

/// Some of the samples, to be launched over.
#[derive(Clone, Copy)]
struct Part<'a, T: DeviceCopy> {
    gpu: &'a Gpu,
    lane: &'a Lane,
    columns: Columns<'a, T>,
    layout: Parameters,
    shape: Shape,
    /// Samples before these.
    done: usize,
}

impl<T: Element> Part<'_, T> {
    /// The instance of a kernel that has one for each kind of A.
    fn kernel(&self, name: &str) -> Result<&'static Kernel> {
        let kind = if self.layout.full { "full" } else { "diag" };
        self.gpu.kernel(&format!("{name}_{kind}_{}", T::SUFFIX), None)
    }
}

/// The first `len` numbers of a buffer, when the work in the lane is done.
fn read<T: DeviceCopy + Default>(lane: &Lane, buffer: &DeviceBuffer<T>, len: usize) -> Result<Vec<T>> {
    let mut host = vec![T::default(); len];
    // SAFETY: both are as long, and the copy is waited for.
    unsafe { buffer.index(..len).async_copy_to(&mut host[..], &lane.stream) }.map_err(failed("cuMemcpyDtoHAsync"))?;
    lane.synchronize()?;
    Ok(host)
}
