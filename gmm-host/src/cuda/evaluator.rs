//! The CUDA backend: samples resident on a device, or passed through it in chunks.
use super::gpu::{Gpu, GpuInfo, failed};
use super::launch::{Columns, Lane, MAX_SETS, Plan};
use super::layout::{self, STRIDE};
use super::memory::{HostBuffer, allocate};
use super::moments::{self, Moments};
use super::tuning::{self, Trial};
use super::variant::{Kind, Op, Task, Variant, candidates};
use super::whitened::Whitened;
use crate::evaluator::{check_features, check_rows};
use crate::packed::{Frame, Packed};
use crate::{Covariances, Description, Error, Evaluator, Mixture, Result, Rows, Samples, Statistics, View};
use cust::memory::{AsyncCopyDestination, DeviceBuffer};
use ndarray::{Array1, Array2};
use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::slice;

/// The names of the kernels that a CUDA device can be told to use.
pub fn cuda_kernel_names() -> Vec<String> {
    Kind::ALL.iter().map(|kind| kind.name().into()).collect()
}

/// How a data set is to be evaluated on a CUDA device.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// The kernel to use, one of [`cuda_kernel_names`], in the shape that is fastest by measured time; or a kernel and
    /// its shape, as [`Evaluator::describe`] prints them, which gives the same bits in every run on the same device. By
    /// default both are chosen by measured time. An operation that the kernel does not have uses another one.
    pub kernel: Option<String>,
    /// Most bytes of the device's memory to be used for samples; by default nearly all that is free. Samples that need
    /// more stay on the host and are sent in chunks, for each evaluation anew.
    pub memory_limit: Option<usize>,
}

/// Bytes of samples that are brought into the device's layout at once.
const PIECE_BYTES: usize = 32 << 20;
/// Samples whose scores are on the device at once.
const SCORES: usize = 1 << 22;
/// Most samples of a launch, so that a 32-bit index of quads never overflows.
const MAX_SAMPLES: usize = 1 << 32;

/// What the user asks for.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Kind(Kind),
    Variant(Variant),
}

impl Wish {
    fn new(name: &str) -> Result<Self> {
        let kind = name.parse().map(Self::Kind).or_else(|()| name.parse().map(Self::Variant));
        kind.map_err(|()| Error::Kernel {
            name: name.into(),
            problem: "is not one of the CUDA backend".into(),
            available: cuda_kernel_names().join(", "),
        })
    }

    fn kind(self) -> Kind {
        match self {
            Self::Kind(kind) => kind,
            Self::Variant(variant) => variant.kind,
        }
    }
}

/// Some of the samples, in the kernels' layout.
#[derive(Debug)]
struct Chunk {
    n: usize,
    /// Where they are; on the device if nowhere else.
    host: Option<HostBuffer>,
}

/// The CUDA backend, in float32: the samples are centred in float64 and laid out on the device once, constants and the
/// sum over the samples are formed in float64.
///
/// Samples that do not fit into the device's memory stay on the host in that layout and pass through the device chunk by
/// chunk. Sample weights are not there yet, nor scores of full and tied covariances; the
/// E-step takes up to 32 components and 16 features.
#[derive(Debug)]
pub struct CudaEvaluator {
    gpu: &'static Gpu,
    frame: Frame,
    n: usize,
    d: usize,
    chunks: Vec<Chunk>,
    /// Chunk c passes through lane and buffer c modulo their number: one if all samples are resident, else two.
    lanes: Vec<Lane>,
    buffers: Vec<DeviceBuffer<f32>>,
    wish: Option<Wish>,
    plans: HashMap<(usize, Op), Plan>,
    /// The E-step's kernels, by lanes and whether A is a triangle.
    moments: HashMap<(usize, bool), Moments>,
    latest: Option<Variant>,
}

impl CudaEvaluator {
    /// Takes a copy of the samples to the device of this number (counted from 0).
    ///
    /// # Errors
    /// [`Error::NoCudaDevice`], [`Error::Kernel`] for a kernel of an unknown name, [`Error::Unsupported`] for samples with
    /// weights or a memory limit too small for any chunk, [`Error::Cuda`] for a failure of the driver.
    pub fn new(samples: Samples<'_>, ordinal: usize, options: &CudaOptions) -> Result<Self> {
        let wish = options.kernel.as_deref().map(Wish::new).transpose()?;
        if samples.weights().is_some() {
            return Err(unsupported("an evaluation with sample weights".into()));
        }
        let gpu = Gpu::open(ordinal)?;
        gpu.enter()?;
        let (n, d) = (samples.n_samples(), samples.n_features());
        let frame = match samples.view() {
            View::F32(x) => Frame::of(x),
            View::F64(x) => Frame::of(x),
        };
        let mut this = Self {
            gpu,
            frame,
            n,
            d,
            chunks: Vec::new(),
            lanes: vec![Lane::new()?],
            buffers: Vec::new(),
            wish,
            plans: HashMap::new(),
            moments: HashMap::new(),
            latest: None,
        };
        let limit = match options.memory_limit {
            Some(limit) => limit,
            None => {
                let free = gpu.free_memory()?;
                free - (free / 16).max(256 << 20).min(free)
            }
        };
        let bytes = (d as u128) * (layout::stride(n) as u128) * size_of::<f32>() as u128;
        if bytes <= limit as u128 && n <= MAX_SAMPLES {
            this.load_resident(samples)?;
        } else {
            this.load_chunks(samples, limit)?;
        }
        Ok(this)
    }

    /// The device.
    pub fn gpu(&self) -> &GpuInfo {
        &self.gpu.info
    }

    /// Whether all samples are in the device's memory.
    pub fn is_resident(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.host.is_none())
    }

    fn load_resident(&mut self, samples: Samples<'_>) -> Result<()> {
        let Self { n, d, .. } = *self;
        let stride = layout::stride(n);
        let buffer: DeviceBuffer<f32> = allocate(d * stride)?;
        let piece = (PIECE_BYTES / size_of::<f32>() / d).next_multiple_of(STRIDE).clamp(STRIDE, stride);
        let mut staging = HostBuffer::zeroed(d * piece);
        for start in (0..n).step_by(piece) {
            let rows = samples.rows(start..n.min(start + piece));
            let len = layout::stride(rows.n_samples());
            let staging = &mut staging.as_mut_slice()[..d * len];
            layout::columns(&rows, &self.frame, staging);
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

    fn load_chunks(&mut self, samples: Samples<'_>, limit: usize) -> Result<()> {
        let Self { n, d, .. } = *self;
        let size = (limit / 2 / size_of::<f32>() / d / STRIDE * STRIDE).min(MAX_SAMPLES).min(layout::stride(n));
        if size == 0 {
            return Err(unsupported(format!("{d} columns within {limit} bytes of GPU memory")));
        }
        self.lanes.push(Lane::new()?);
        for _ in 0..2 {
            self.buffers.push(allocate(d * size)?);
        }
        for start in (0..n).step_by(size) {
            let rows = samples.rows(start..n.min(start + size));
            let n = rows.n_samples();
            let mut host = HostBuffer::zeroed(d * layout::stride(n));
            layout::columns(&rows, &self.frame, host.as_mut_slice());
            self.chunks.push(Chunk { n, host: Some(host) });
        }
        Ok(())
    }

    /// Sends chunk `c` to its buffer, if it is not there anyway; returns its lane, and its samples there.
    fn send(&mut self, c: usize) -> Result<(&mut Lane, Columns<'_>)> {
        let (lane, buffer) = (&mut self.lanes[c % self.buffers.len()], &self.buffers[c % self.buffers.len()]);
        if let Some(host) = &self.chunks[c].host {
            let from = host.as_slice();
            // SAFETY: the buffer is as large as the largest chunk; the host's memory is freed only after the stream has
            // been waited for.
            unsafe { buffer.index(..from.len()).async_copy_from(from, &lane.stream) }
                .map_err(failed("cuMemcpyHtoDAsync"))?;
        }
        Ok((lane, Columns::new(buffer, self.chunks[c].n, self.d)?))
    }

    /// The mixture in the data's frame.
    fn pack(&self, mixture: &Mixture) -> Result<Packed<f32>> {
        check_features(mixture, self.d)?;
        if let Covariances::Full(_) | Covariances::Tied(_) = mixture.covariances() {
            return Err(unsupported(format!("the covariance type `{}`", mixture.covariance_type())));
        }
        Packed::new(mixture, &self.frame)
    }

    /// The kernel of the user's wish, where it has the operation.
    fn wished(&self, op: Op) -> Option<Wish> {
        self.wish.filter(|wish| match op {
            Op::Total => true,
            Op::Batch => wish.kind() == Kind::Batch,
            Op::Scores => wish.kind().scores(),
        })
    }

    /// The variant to use for these parameters: chosen once for each K and operation.
    fn plan(&mut self, op: Op, sets: &[Packed<f32>]) -> Result<Plan> {
        let k = sets.first().map_or(0, |p| p.n_components);
        if let Some(plan) = self.plans.get(&(k, op)) {
            self.latest = Some(plan.variant);
            return Ok(*plan);
        }
        let (gpu, wish) = (self.gpu, self.wished(op));
        let n = if op == Op::Scores { self.chunks[0].n.min(SCORES) } else { self.chunks[0].n };
        let task = Task { n, k, d: self.d, op };
        let plan = if let Some(Wish::Variant(variant)) = wish {
            Plan::new(gpu, variant, &task)?
        } else {
            let mut scores = if op == Op::Scores { Some(allocate(n)?) } else { None };
            let (lane, columns) = self.send(0)?;
            let trial = Trial { lane, columns: columns.part(0, n)?, sets, scores: scores.as_mut() };
            tuning::choose(gpu, &task, wish.map(Wish::kind), trial)?
        };
        self.plans.insert((k, op), plan);
        self.latest = Some(plan.variant);
        Ok(plan)
    }

    /// Runs `work` with the device's context current; after a failure no work is left behind that could still write to
    /// what the next evaluation uses.
    fn with_device<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.gpu.enter()?;
        work(self).inspect_err(|_| self.drain())
    }

    fn drain(&self) {
        for lane in &self.lanes {
            // The failure that matters has been reported already.
            let _ = lane.synchronize();
        }
    }

    /// Each set's total, as a natural logarithm.
    fn totals(&mut self, op: Op, sets: &[Packed<f32>]) -> Result<Vec<f64>> {
        let plan = self.plan(op, sets)?;
        for lane in &mut self.lanes {
            lane.upload(&plan, sets)?;
        }
        let mut totals = vec![0.0; sets.len()];
        let mut add = |lane: &Lane| -> Result<()> {
            totals.iter_mut().zip(lane.wait(sets.len())?).for_each(|(sum, total)| *sum += total);
            Ok(())
        };
        let lanes = self.lanes.len();
        for c in 0..self.chunks.len() {
            if c >= lanes {
                add(&self.lanes[c % lanes])?;
            }
            let (lane, columns) = self.send(c)?;
            lane.launch(&plan, columns, sets, None)?;
        }
        for c in self.chunks.len().saturating_sub(lanes)..self.chunks.len() {
            add(&self.lanes[c % lanes])?;
        }
        let bias = plan.variant.kind.bias();
        Ok(totals.iter().zip(sets).map(|(total, packed)| layout::total(*total, self.n, packed, bias)).collect())
    }

    /// The sums of the E-step's kernel over all samples.
    fn moments(&mut self, whitened: &Whitened) -> Result<Vec<f64>> {
        let key = (moments::lanes(whitened.dim().0), whitened.full());
        let mut kernel = match self.moments.remove(&key) {
            Some(kernel) => kernel,
            None => Moments::new(self.gpu, whitened)?,
        };
        let mut sums: Vec<f64> = Vec::new();
        for c in 0..self.chunks.len() {
            let (lane, columns) = self.send(c)?;
            let chunk = kernel.run(lane, columns, whitened)?;
            if sums.is_empty() {
                sums = chunk;
            } else {
                sums.iter_mut().zip(chunk).for_each(|(sum, v)| *sum += v);
            }
        }
        self.moments.insert(key, kernel);
        Ok(sums)
    }

    /// Seconds of a launch of the kernel that evaluates `mixture`, by the device's clock, over `repeats` launches back to
    /// back. Samples that are not resident count as one chunk, without its copy.
    ///
    /// # Errors
    /// As [`Evaluator::log_likelihood`].
    pub fn kernel_seconds(&mut self, mixture: &Mixture, repeats: u32) -> Result<f64> {
        let packed = self.pack(mixture)?;
        let sets = slice::from_ref(&packed);
        self.with_device(|this| {
            let plan = this.plan(Op::Total, sets)?;
            let (lane, columns) = this.send(0)?;
            lane.upload(&plan, sets)?;
            let mut trial = Trial { lane, columns, sets, scores: None };
            trial.seconds(&plan, 1)?;
            trial.seconds(&plan, repeats.max(1))
        })
    }
}

impl Evaluator for CudaEvaluator {
    fn n_samples(&self) -> usize {
        self.n
    }

    fn n_features(&self) -> usize {
        self.d
    }

    fn total_weight(&self) -> f64 {
        self.n as f64
    }

    fn describe(&self) -> Description {
        let wish = || match self.wish {
            Some(Wish::Variant(variant)) => variant.to_string(),
            Some(Wish::Kind(kind)) => kind.name().into(),
            None => "not chosen yet".into(),
        };
        Description {
            device: format!("cuda:{} {}", self.gpu.info.ordinal, self.gpu.info.name),
            kernel: self.latest.map_or_else(wish, |variant| variant.to_string()),
        }
    }

    fn log_likelihood(&mut self, mixture: &Mixture) -> Result<f64> {
        if let Covariances::Full(_) | Covariances::Tied(_) = mixture.covariances() {
            return Ok(self.statistics(mixture)?.log_likelihood());
        }
        let packed = self.pack(mixture)?;
        self.with_device(|this| this.totals(Op::Total, slice::from_ref(&packed))).map(|totals| totals[0])
    }

    /// A set's total does not depend on which other sets it is evaluated with. It may differ from
    /// [`Self::log_likelihood`]'s by rounding.
    fn log_likelihood_batch(&mut self, mixtures: &[Mixture]) -> Result<Vec<f64>> {
        let packed: Vec<_> = mixtures.iter().map(|m| self.pack(m)).collect::<Result<_>>()?;
        self.with_device(|this| {
            let mut totals = Vec::with_capacity(packed.len());
            for same_k in packed.chunk_by(|a, b| a.n_components == b.n_components) {
                let task = Task { n: this.chunks[0].n, k: same_k[0].n_components, d: this.d, op: Op::Batch };
                let together = (this.wish.is_none() || this.wished(Op::Batch).is_some())
                    && !candidates(&task, None, &this.gpu.limits).is_empty();
                let (op, most) = if together { (Op::Batch, MAX_SETS) } else { (Op::Total, 1) };
                for sets in same_k.chunks(most) {
                    totals.extend(this.totals(op, sets)?);
                }
            }
            Ok(totals)
        })
    }

    fn score_samples(&mut self, mixture: &Mixture) -> Result<Array1<f64>> {
        let packed = self.pack(mixture)?;
        let sets = slice::from_ref(&packed);
        self.with_device(|this| {
            let plan = this.plan(Op::Scores, sets)?;
            let mut scores: DeviceBuffer<f32> = allocate(this.n.min(SCORES))?;
            let mut host = vec![0.0f32; scores.len()];
            let mut all = Vec::with_capacity(this.n);
            for c in 0..this.chunks.len() {
                let (lane, columns) = this.send(c)?;
                lane.upload(&plan, sets)?;
                for first in (0..columns.n()).step_by(SCORES) {
                    let n = SCORES.min(columns.n() - first);
                    lane.launch(&plan, columns.part(first, n)?, sets, Some(&mut scores))?;
                    // SAFETY: both are as long, and the copy is waited for.
                    unsafe { scores.index(..n).async_copy_to(&mut host[..n], &lane.stream) }
                        .map_err(failed("cuMemcpyDtoHAsync"))?;
                    lane.synchronize()?;
                    all.extend(host[..n].iter().map(|v| LN_2 * (f64::from(*v) + packed.offset)));
                }
            }
            Ok(Array1::from_vec(all))
        })
    }

    fn statistics(&mut self, mixture: &Mixture) -> Result<Statistics> {
        check_features(mixture, self.d)?;
        let whitened = Whitened::new(mixture, &self.frame)?;
        let sums = self.with_device(|this| this.moments(&whitened))?;
        let lanes = moments::lanes(mixture.n_components());
        whitened.statistics(&sums, lanes, self.n as f64, layout::EXP2_BIAS, &self.frame)
    }

    fn rows(&mut self, rows: &[usize]) -> Result<Rows> {
        check_rows(rows, self.n)?;
        let size = self.chunks[0].n;
        let mut x = Array2::zeros((rows.len(), self.d));
        self.with_device(|this| {
            let mut at = 0;
            // Neighbours in one chunk come together.
            for run in rows.chunk_by(|a, b| *b == a + 1 && a / size == b / size) {
                let (c, first) = (run[0] / size, run[0] % size);
                let stride = layout::stride(this.chunks[c].n);
                let mut column = vec![0.0f32; run.len()];
                for j in 0..this.d {
                    let range = j * stride + first..j * stride + first + run.len();
                    match &this.chunks[c].host {
                        Some(host) => column.copy_from_slice(&host.as_slice()[range]),
                        None => {
                            let (lane, buffer) = (&this.lanes[0], &this.buffers[0]);
                            // SAFETY: both are as long, and the copy is waited for.
                            unsafe { buffer.index(range).async_copy_to(&mut column[..], &lane.stream) }
                                .map_err(failed("cuMemcpyDtoHAsync"))?;
                            lane.synchronize()?;
                        }
                    }
                    for (r, v) in column.iter().enumerate() {
                        x[[at + r, j]] = f64::from(*v) / this.frame.scale[j] + this.frame.shift[j];
                    }
                }
                at += run.len();
            }
            Ok(())
        })?;
        Ok(Rows { x, weights: Array1::ones(rows.len()) })
    }
}

impl Drop for CudaEvaluator {
    fn drop(&mut self) {
        // The memory is freed by the fields' own drops, which need the context.
        if self.gpu.enter().is_ok() {
            self.drain();
        }
    }
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { what, backend: "the CUDA backend", remedy: "use device `cpu` or `reference`" }
}
