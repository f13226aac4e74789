//! Launches: each kernel behind a function that checks what it is given. The only place that starts a kernel.
use super::gpu::{Gpu, Kernel, failed};
use super::layout;
use super::memory::{Slots, Upload, allocate};
use super::variant::{Kind, Task, Variant};
use crate::backends::device_parameters::DeviceParameters;
use crate::{Error, Result};
use cust::memory::{DeviceBuffer, DeviceCopy, DeviceSlice};
use cust::stream::{Stream, StreamFlags};
use gmm_kernels::data::{self, QUAD};
use gmm_kernels::likelihood::small_k as direct;
use gmm_kernels::likelihood::{batch, pair, tiled};
use gmm_kernels::reduce::Output;
use gmm_kernels::reduce::sets::ReduceSetsArgs;
use gmm_kernels::simt::WARP;
use std::ffi::c_void;
use std::ptr;

/// Most parameter sets of a launch.
pub(super) const MAX_SETS: usize = 64;

/// A variant made ready for a device and a task: its kernel compiled, its grid computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub variant: Variant,
    kernel: &'static Kernel,
    /// What adds up the blocks' sums, for `batch`.
    reduce: Option<&'static Kernel>,
    k: usize,
    d: usize,
    blocks: u32,
    keep: u32,
    shared: usize,
    group: usize,
}

impl Plan {
    /// Compiles the kernel if need be. The device's context is current.
    pub fn new(gpu: &Gpu, variant: Variant, task: &Task) -> Result<Self> {
        let Task { n, k, d, .. } = *task;
        let Variant { kind, .. } = variant;
        let shared = variant.shared_bytes(k, d);
        let too_much = || format!("needs {shared} bytes of shared memory here, more than the device has");
        let problem = kind.problem(k, d, &gpu.limits).or_else(|| (shared > gpu.limits.shared_per_block).then(too_much));
        if let Some(problem) = problem {
            let fitting = Kind::ALL.iter().filter(|kind| kind.problem(k, d, &gpu.limits).is_none());
            let available = fitting.map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
            return Err(Error::Kernel { name: variant.to_string(), problem, available });
        }
        let reduce = (kind == Kind::Batch).then(|| gpu.kernel("reduce_sets", None)).transpose()?;
        Ok(Self {
            variant,
            kernel: gpu.kernel(&kind.entry(d), kind.max_registers())?,
            reduce,
            k,
            d,
            blocks: variant.blocks(n, gpu.limits.multiprocessors),
            keep: variant.keep_quads(d),
            shared,
            group: variant.group(k, d),
        })
    }

    /// Numbers that its kernel reads as parameters of so many sets.
    fn parameters(&self, sets: usize) -> usize {
        let Self { k, d, .. } = *self;
        match self.variant.kind {
            // They travel with the launch.
            Kind::Direct => 0,
            Kind::Pair => k * layout::pair_row(d),
            Kind::Batch => sets * layout::filled_up(k) * direct::row(d),
            Kind::Tiled8 | Kind::Tiled16 => {
                let (_, sm, constants) = layout::tiled_sizes(k, d, self.variant.kind.tile());
                sm + constants
            }
        }
    }

    /// Checks that one launch can evaluate these sets.
    fn check(&self, sets: &[DeviceParameters<f32>]) -> Result<()> {
        let most = if self.variant.kind == Kind::Batch { MAX_SETS } else { 1 };
        if sets.is_empty() || sets.len() > most {
            return Err(shape("the parameter sets of a launch", vec![most], vec![sets.len()]));
        }
        match sets.iter().find(|p| (p.n_components, p.n_features) != (self.k, self.d)) {
            Some(p) => Err(shape("a mixture", vec![self.k, self.d], vec![p.n_components, p.n_features])),
            None => Ok(()),
        }
    }
}

/// Samples on the device: part of a buffer that holds columns.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, T: DeviceCopy = f32> {
    buffer: &'a DeviceSlice<T>,
    stride: usize,
    d: usize,
    weighted: bool,
    first: usize,
    n: usize,
}

impl<'a, T: DeviceCopy> Columns<'a, T> {
    /// The first `n` samples of a buffer that holds (D, `layout::stride(n)`) numbers or more, and behind them, if
    /// `weighted`, a column of sample weights.
    pub fn new(buffer: &'a DeviceSlice<T>, n: usize, d: usize, weighted: bool) -> Result<Self> {
        let stride = layout::stride(n);
        let width = d + usize::from(weighted);
        if n == 0 || d == 0 || width.checked_mul(stride).is_none_or(|len| len > buffer.len()) {
            return Err(shape("samples on the device", vec![n, width], vec![buffer.len()]));
        }
        Ok(Self { buffer, stride, d, weighted, first: 0, n })
    }

    /// Samples `first` to `first + n`; `first` is a multiple of a quad.
    pub fn part(self, first: usize, n: usize) -> Result<Self> {
        if n == 0 || !first.is_multiple_of(QUAD) || first + n > self.n {
            return Err(shape("a part of the samples", vec![self.n], vec![first, n]));
        }
        Ok(Self { first: self.first + first, n, ..self })
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
        // Within the buffer: `first` is below N.
        self.buffer.as_device_ptr().as_ptr().wrapping_add(self.first)
    }

    /// The samples' weights, null if they have none.
    pub fn weights(&self) -> *const T {
        if self.weighted { self.x().wrapping_add(self.d * self.stride) } else { ptr::null() }
    }
}

impl Columns<'_> {
    pub fn args(&self, keep: u32) -> data::Columns {
        data::Columns { x: self.x(), stride: self.stride as u64, n: self.n as u64, cached_quads: keep }
    }
}

pub(super) fn shape(what: &'static str, expected: Vec<usize>, got: Vec<usize>) -> Error {
    Error::ShapeMismatch { what, expected, got }
}

/// A stream and all that evaluations in it need besides the data. It is used by one evaluation at a time, which waits
/// for its result: that, and the wait on drop, is why no buffer is freed or rewritten under a running kernel.
#[derive(Debug)]
pub(super) struct Lane {
    pub stream: Stream,
    slots: Slots,
    ticket: DeviceBuffer<u32>,
    partials: DeviceBuffer<f64>,
    parameters: Upload<f32>,
}

impl Lane {
    pub fn new() -> Result<Self> {
        // `cust` drops this flag in favour of a stream that waits for the default one, which nothing here uses.
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("cuStreamCreate"))?;
        Ok(Self {
            stream,
            slots: Slots::new(MAX_SETS)?,
            ticket: DeviceBuffer::from_slice(&[0]).map_err(failed("cuMemcpyHtoD"))?,
            partials: allocate(1)?,
            parameters: Upload::new()?,
        })
    }

    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().map_err(failed("cuStreamSynchronize"))
    }

    /// Brings the parameters of one or several sets to the device, as the plan's kernel reads them.
    pub fn upload(&mut self, plan: &Plan, sets: &[DeviceParameters<f32>]) -> Result<()> {
        plan.check(sets)?;
        let d = plan.d;
        self.stage(plan.parameters(sets.len()), |to| match plan.variant.kind {
            Kind::Direct => {}
            Kind::Pair => layout::rows(&sets[0], layout::pair_row(d), to),
            Kind::Batch => {
                for (packed, to) in sets.iter().zip(to.chunks_exact_mut(layout::filled_up(plan.k) * direct::row(d))) {
                    layout::rows(packed, direct::row(d), to);
                }
            }
            Kind::Tiled8 | Kind::Tiled16 => {
                let t = plan.variant.kind.tile();
                let (sm, constants) = to.split_at_mut(layout::tiled_sizes(plan.k, d, t).1);
                layout::tiles(&sets[0], t, sm, constants);
            }
        })
    }

    /// Has `write` fill `len` numbers, and sends them to `parameters`.
    pub fn stage(&mut self, len: usize, write: impl FnOnce(&mut [f32])) -> Result<()> {
        self.parameters.send(len, &self.stream, write)
    }

    /// Starts the evaluation of the uploaded parameters over `columns`; [`Self::wait`] has its results. With `scores`,
    /// each sample's log₂-likelihood goes there.
    pub fn launch(
        &mut self,
        plan: &Plan,
        columns: Columns<'_>,
        sets: &[DeviceParameters<f32>],
        scores: Option<&mut DeviceBuffer<f32>>,
    ) -> Result<()> {
        plan.check(sets)?;
        if columns.d != plan.d || self.parameters.device().len() < plan.parameters(sets.len()) {
            return Err(shape("the samples' columns", vec![plan.d], vec![columns.d]));
        }
        if scores.as_ref().is_some_and(|s| s.len() < columns.n || !plan.variant.kind.scores()) {
            return Err(shape("the scores", vec![columns.n], vec![scores.map_or(0, |s| s.len())]));
        }
        let needed = plan.blocks as usize * sets.len();
        if self.partials.len() < needed {
            self.synchronize()?;
            self.partials = allocate(needed)?;
        }
        self.slots.clear(sets.len());
        let scores = scores.map_or(ptr::null_mut(), |s| s.as_device_ptr().as_mut_ptr());
        match plan.variant.kind {
            Kind::Direct => self.direct(plan, columns, &sets[0]),
            Kind::Pair => self.pair(plan, columns, scores),
            Kind::Batch => self.batch(plan, columns, sets.len()),
            Kind::Tiled8 | Kind::Tiled16 => self.tiled(plan, columns, scores),
        }
    }

    /// The results of the latest launch, one for each set.
    pub fn wait(&self, sets: usize) -> Result<Vec<f64>> {
        let totals: Vec<f64> = (0..sets).map(|i| self.slots.wait(i, &self.stream)).collect::<Result<_>>()?;
        match totals.iter().find(|total| !total.is_finite()) {
            Some(total) => {
                Err(Error::Cuda { op: "cuLaunchKernel", message: format!("the kernel's result is {total}") })
            }
            None => Ok(totals),
        }
    }

    /// Σ of the first `count` numbers of `partials`, by `reduce_sets`, once all before it in the stream is done.
    pub fn sum_up(&mut self, reduce: &Kernel, partials: &DeviceSlice<f64>, count: u32) -> Result<f64> {
        if partials.len() < count as usize {
            return Err(shape("sums of blocks", vec![count as usize], vec![partials.len()]));
        }
        self.slots.clear(1);
        let args =
            ReduceSetsArgs { partials: partials.as_device_ptr().as_ptr(), count, totals: self.slots.device_pointer() };
        // SAFETY: the arguments of this entry: `count` numbers of one set, and a slot for it.
        unsafe { self.start(reduce, (1, 1), WARP, 0, &[arg(&args)])? };
        self.wait(1).map(|totals| totals[0])
    }

    fn output(&self) -> Output {
        Output {
            partials: self.partials.as_device_ptr().as_mut_ptr(),
            ticket: self.ticket.as_device_ptr().as_mut_ptr(),
            total: self.slots.device_pointer(),
        }
    }

    pub fn parameters(&self) -> *const f32 {
        self.parameters.device().as_device_ptr().as_ptr()
    }

    fn direct(&self, plan: &Plan, columns: Columns<'_>, packed: &DeviceParameters<f32>) -> Result<()> {
        // An instance for each size that a component's row can have.
        macro_rules! by_row {
            ($($row:literal)*) => {
                match direct::row(plan.d) {
                    $($row => {
                        let args = direct::SmallKArgs::<$row> {
                            components: layout::direct_components(packed),
                            k: layout::filled_up(plan.k) as u32,
                            columns: columns.args(plan.keep),
                            output: self.output(),
                        };
                        // SAFETY: the arguments of this entry: its D has rows of this size. The columns are checked, and
                        // there is a partial sum for each block.
                        unsafe { self.start(plan.kernel, (plan.blocks, 1), plan.variant.block, plan.shared, &[arg(&args)]) }
                    })*
                    row => Err(shape("a component of `direct`", vec![36], vec![row])),
                }
            };
        }
        by_row!(4 8 12 16 20 24 28 32 36)
    }

    fn pair(&self, plan: &Plan, columns: Columns<'_>, samples: *mut f32) -> Result<()> {
        let args = pair::PairArgs {
            x: columns.x(),
            stride: columns.stride as u64,
            n: columns.n as u64,
            k: plan.k as u32,
            d: plan.d as u32,
            threads_per_sample: plan.variant.split,
            parameters: self.parameters(),
            samples,
            output: self.output(),
        };
        // SAFETY: the arguments of this entry; the columns and the scores are checked, `upload` brought K rows of
        // parameters, and there is a partial sum for each block.
        unsafe { self.start(plan.kernel, (plan.blocks, 1), plan.variant.block, plan.shared, &[arg(&args)]) }
    }

    fn tiled(&self, plan: &Plan, columns: Columns<'_>, samples: *mut f32) -> Result<()> {
        let (tiles, sm, _) = layout::tiled_sizes(plan.k, plan.d, plan.variant.kind.tile());
        let args = tiled::TiledArgs {
            columns: columns.args(plan.keep),
            d: plan.d as u32,
            tiles: tiles as u32,
            component_warps: plan.variant.split,
            scales_and_shifts: self.parameters(),
            weights_and_seeds: self.parameters().wrapping_add(sm),
            sample_weights: ptr::null(),
            samples,
            exponents: tiled::Exponents { q: ptr::null_mut(), normalisers: ptr::null_mut(), stride: 0 },
            output: self.output(),
        };
        // SAFETY: the arguments of this entry; the columns and the scores are checked, `upload` brought all tiles and
        // behind them their constants, and there is a partial sum for each block.
        unsafe { self.start(plan.kernel, (plan.blocks, 1), plan.variant.block, plan.shared, &[arg(&args)]) }
    }

    fn batch(&self, plan: &Plan, columns: Columns<'_>, sets: usize) -> Result<()> {
        let Some(reduce) = plan.reduce else {
            return Err(Error::Cuda { op: "cuLaunchKernel", message: "`batch` without its reduction".into() });
        };
        let partials = self.partials.as_device_ptr().as_mut_ptr();
        let (k, group) = (layout::filled_up(plan.k), plan.group.min(sets));
        let args = batch::BatchArgs {
            columns: columns.args(plan.keep),
            parameters: self.parameters(),
            sets: sets as u32,
            group: group as u32,
            k: k as u32,
            d: plan.d as u32,
            partials,
        };
        let grid = (plan.blocks, sets.div_ceil(group) as u32);
        let shared = batch::shared_bytes(plan.d, k, group, plan.variant.block);
        // SAFETY: the arguments of this entry; the columns are checked, `upload` brought the rows of all sets, and there
        // is a partial sum for each set and block.
        unsafe { self.start(plan.kernel, grid, plan.variant.block, shared, &[arg(&args)])? };
        let args = ReduceSetsArgs { partials, count: plan.blocks, totals: self.slots.device_pointer() };
        // SAFETY: as above, and a slot for each set.
        unsafe { self.start(reduce, (sets as u32, 1), WARP, 0, &[arg(&args)]) }
    }

    /// # Safety
    /// `args` point to the kernel's arguments, in order and of its types; the pointers within are valid for what the
    /// kernel does in a launch of this shape, until it has ended.
    pub unsafe fn start(
        &self,
        kernel: &Kernel,
        grid: (u32, u32),
        block: u32,
        shared: usize,
        args: &[*mut c_void],
    ) -> Result<()> {
        let function = kernel.function(shared)?;
        // SAFETY: the caller's.
        unsafe { self.stream.launch(function, grid, block, shared as u32, args) }.map_err(failed("cuLaunchKernel"))
    }
}

/// An argument, as the driver takes it.
pub(super) fn arg<T>(value: &T) -> *mut c_void {
    ptr::from_ref(value).cast_mut().cast()
}
