//! `weighted_sums`: the E-step for any K and D. `tiled` leaves the exponents of a piece of the
//! samples, `weighted_sums` adds up the samples weighted by their responsibilities, slice by slice,
//! and `reduce_slices` adds up the slices' sums.
use super::launch::{EStepKernels, Layout, Wanted};
use super::reduce_slices::ReduceSlices;
use super::sums::Sums;
use super::weighted_sums_layout::{Section, WeightedSumsLayout, shape};
use crate::backends::cuda::device::gpu::{Gpu, Limits, REGISTERS};
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate, copied, zeroed};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::{BlockSums, Output, Total, Workspace};
use crate::backends::cuda::device::{mismatch, require};
use crate::backends::cuda::likelihood::{Exponents, Tiled};
use crate::backends::cuda::plan::family::{Family, Takes, Variant};
use crate::backends::cuda::plan::task::{Operation, Shape, Task};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::error::{Error, Result};
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::weighted_sums::{self, PatchShape, WeightedSumsArgs};
use gmm_kernels::likelihood::tiled::{self, TiledArgs};
use gmm_kernels::reduce::slices::ReduceSlicesArgs;
use gmm_kernels::simt::WARP;
use std::sync::Arc;

/// Threads of a block of `tiled`.
const TILED_BLOCK: u32 = 128;
/// Most bytes of the exponents of a piece, unless a piece that keeps the device busy has more. They
/// are read again from the L2 cache, of which this is about half on a large device. In tests few
/// samples make several pieces.
const EXPONENT_BYTES: usize = if cfg!(test) { 1 << 10 } else { 64 << 20 };
/// Registers of a thread of `weighted_sums`.
const WEIGHTED_SUMS_REGISTERS: u32 = 168;
/// Least samples of a slice.
const MIN_SLICE: usize = 128;

/// `weighted_sums`: the E-step of any shape in float32. Its split is the rows of a tile of the
/// kernel that goes before it, and its block the most threads of one.
pub static WEIGHTED_SUMS: WeightedSumsFamily = WeightedSumsFamily;
pub struct WeightedSumsFamily;

impl Family for WeightedSumsFamily {
    fn name(&self) -> &'static str {
        "weighted_sums"
    }

    fn about(&self) -> &'static str {
        "the E-step in float32, from the exponents of `tiled`"
    }

    fn sizes(&self) -> String {
        "any, as shared memory allows".into()
    }

    fn takes(&self) -> Takes {
        Takes::complete(&[Operation::EStep])
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let too_wide = shape(task, 128, 0).shared_bytes() > limits.shared_per_block;
        too_wide.then(|| format!("cannot hold samples of {} features in shared memory", task.d))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // Rows of a tile of `tiled`, which is launched before `weighted_sums`.
        let rows = if task.full && task.d <= 32 || !task.full && task.k <= 8 { 8 } else { 16 };
        // The fastest of 64, 128, 192 and 256 threads on an H200 comes first.
        let threads = if task.full { [128, 192, 256] } else { [192, 128, 256] };
        let of = |threads: u32| {
            let block = shape(task, threads as usize, limits.shared_per_block).block();
            Shape::new(rows, threads, (REGISTERS / (WEIGHTED_SUMS_REGISTERS * block)).clamp(1, 64))
        };
        let few = if task.is_long() { 3 } else { 1 };
        threads[..few].iter().map(|threads| of(*threads)).collect()
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        matches!(shape.split, 8 | 16)
    }

    fn shared_bytes(&self, task: &Task, launch: Shape) -> usize {
        // With two stages, the fewest that the kernel can use.
        shape(task, launch.block as usize, 0).shared_bytes()
    }

    fn entries(&self, task: &Task, launch: Shape) -> Vec<String> {
        let Task { full, central, .. } = *task;
        vec![
            entries::tiled(launch.split as usize, full, false).name().into(),
            entries::weighted_sums(full, central).name().into(),
        ]
    }

    fn has_large_memory(&self) -> bool {
        true
    }

    fn layout(&self, mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, frame: &Frame) -> Option<Layout> {
        Some(Layout::WeightedSums(WeightedSumsLayout::new(mixture, parameters.as_ref().clone(), frame)))
    }

    fn e_step(
        &self,
        gpu: &Gpu,
        layout: &Layout,
        variant: Variant,
        task: &Task,
        _same: bool,
    ) -> Result<Box<dyn EStepKernels>> {
        Ok(Box::new(WeightedSums::new(gpu, layout.weighted_sums()?, variant, task)?))
    }
}

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub struct WeightedSums {
    tiled: Kernel<TiledArgs>,
    weighted_sums: Kernel<WeightedSumsArgs>,
    reduce: Kernel<ReduceSlicesArgs>,
    task: Task,
    variant: Variant,
    shape: PatchShape,
    /// Warps of a block of `tiled` along the components.
    across: u32,
    /// Blocks of `tiled`, at most.
    tiled_blocks: u32,
    /// Samples of a piece: a multiple of those of a block of `tiled`.
    piece: usize,
    slices: usize,
    /// Pair and quad of features of each patch, where patches are pairs.
    pairs: DeviceBuffer<u32>,
    exponents: DeviceBuffer<f32>,
    normalisers: DeviceBuffer<f32>,
    sums: DeviceBuffer<f64>,
    totals: DeviceBuffer<f64>,
    block_sums: BlockSums,
    /// Log₂-likelihood of each piece.
    log2: DeviceBuffer<f64>,
}

impl WeightedSums {
    /// Makes the kernels ready for up to `task.n` samples at once. The device's context is current.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a stage of samples does not fit into shared memory.
    pub fn new(gpu: &Gpu, layout: &WeightedSumsLayout, variant: Variant, task: &Task) -> Result<Self> {
        let Task { n, k, d, full, central, .. } = *task;
        let rows = variant.shape.split as usize;
        let kernel = gpu.kernel(&entries::weighted_sums(full, central), Some(WEIGHTED_SUMS_REGISTERS))?;
        let shape = shape(task, variant.shape.block as usize, kernel.most_shared());
        let shared = shape.shared_bytes();
        if shared > kernel.most_shared() {
            return Err(Error::Unsupported {
                what: format!("an E-step with {d} features and covariance matrices"),
                backend: "the CUDA backend",
                remedy: "use the device `cpu`, or covariances of type `diag`",
            });
        }
        // As many blocks of `tiled` as their registers allow.
        let per_multiprocessor = if rows == 8 { 4 } else { 2 };
        let groups = if full { k } else { k.div_ceil(rows) };
        let across = (groups.min((TILED_BLOCK / WARP) as usize)).next_power_of_two() as u32;
        let across = if across as usize > groups { across / 2 } else { across };
        let per_block = Tiled::block_samples(TILED_BLOCK, across);
        let multiprocessors = gpu.limits.multiprocessors;
        let tiled_blocks = multiprocessors * per_multiprocessor;
        let components = k.next_multiple_of(16);
        let wave = tiled_blocks as usize * per_block;
        let most = (EXPONENT_BYTES / size_of::<f32>() / components).max(wave) / wave * wave;
        let piece = most.min(n.next_multiple_of(per_block));
        let resident = variant.shape.per_multiprocessor.min(gpu.limits.blocks_by_shared(shared)).max(1);
        let room = (multiprocessors * resident) as usize;
        let slices = room.div_ceil(shape.blocks() as usize).min(piece.min(n).div_ceil(MIN_SLICE)).max(1);
        let pairs = layout.pairs.as_flattened();
        Ok(Self {
            tiled: gpu.kernel(&entries::tiled(rows, full, false), None)?,
            weighted_sums: kernel,
            reduce: gpu.kernel(&entries::reduce_slices(), None)?,
            task: *task,
            variant,
            shape,
            across,
            tiled_blocks,
            piece,
            slices,
            pairs: copied(if pairs.is_empty() { &[0] } else { pairs })?,
            // The kernels read the rows behind K too, and multiply them by zero.
            exponents: zeroed(components * piece)?,
            normalisers: allocate(2 * piece)?,
            sums: allocate(slices * shape.sums())?,
            totals: allocate(shape.sums())?,
            block_sums: BlockSums::new(tiled_blocks as usize)?,
            log2: allocate(n.div_ceil(piece))?,
        })
    }

    /// The number of slices for `n` samples. Each slice must have a stage of samples in the first
    /// piece, because that launch initialises its sums.
    fn slices_of(&self, n: usize) -> usize {
        self.slices.min(self.piece.min(n).div_ceil(weighted_sums::STAGE))
    }
}

impl EStepKernels for WeightedSums {
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()> {
        let layout = layout.weighted_sums()?;
        let Task { k, d, full, central, .. } = self.task;
        if (layout.dim(), layout.full(), layout.central()) != ((k, d), full, central) {
            return Err(mismatch("a mixture for this E-step", vec![k, d], vec![layout.dim().0, layout.dim().1]));
        }
        let rows = self.variant.shape.split as usize;
        workspace.parameters.fill(layout.len(rows), |to| layout.write(rows, to))
    }

    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        layout: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        _: Wanted,
    ) -> Result<Running<'a, ()>> {
        let layout = layout.weighted_sums()?;
        let rows = self.variant.shape.split as usize;
        let section = |section: Section| parameters.part(layout.section(section, rows));
        let exponents = Exponents {
            exponents: Numbers::of(&self.exponents),
            normalisers: Numbers::of(&self.normalisers),
            stride: self.piece,
        };
        let slices = self.slices_of(columns.n());
        let mut running = stream.idle();
        for (p, first) in (0..columns.n()).step_by(self.piece).enumerate() {
            let piece = columns.part(first, self.piece.min(columns.n() - first))?;
            let log2 = Numbers::of(&self.log2);
            let likelihoods = Tiled {
                columns: piece,
                cached_quads: u32::MAX,
                k: self.task.k,
                rows,
                full: self.shape.full,
                gaps: false,
                across: self.across,
                parameters: section(Section::Likelihood)?,
                weighted: self.task.weighted,
                scores: None,
                exponents: Some(exponents),
                output: Output { blocks: &self.block_sums, total: Total::Device(log2.part(p..log2.len())?) },
            };
            let blocks = piece.n().div_ceil(Tiled::block_samples(TILED_BLOCK, self.across));
            let grid = Grid::new(
                blocks.min(self.tiled_blocks as usize) as u32,
                TILED_BLOCK,
                tiled::shared_bytes(rows, false, TILED_BLOCK, self.across),
            );
            running = running.followed_by(stream.launch(self.tiled, grid, likelihoods)?.borrowed());
            let sums = WeightedSumsLaunch {
                shape: self.shape,
                columns: piece,
                exponents,
                weights: section(Section::Weights)?,
                centres: section(Section::Centres)?,
                pairs: Numbers::of(&self.pairs),
                slices,
                add: p > 0,
                sums: Numbers::of(&self.sums),
            };
            running = running.followed_by(stream.launch(self.weighted_sums, sums.grid(), sums)?.borrowed());
        }
        let (sums, totals) = (Numbers::of(&self.sums), Numbers::of(&self.totals));
        let reduce = ReduceSlices { sums, slices, count: self.shape.sums(), totals };
        Ok(running.followed_by(stream.launch(self.reduce, reduce.grid(), reduce)?).borrowed())
    }

    fn read(
        &self,
        running: Running<'_, ()>,
        stream: &Stream,
        n: usize,
        read: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()> {
        running.wait()?;
        let mut values = vec![0.0; self.shape.sums()];
        stream.read(&self.totals, &mut values)?;
        let mut log2 = vec![0.0; n.div_ceil(self.piece)];
        stream.read(&self.log2, &mut log2)?;
        read(&values, log2.iter().sum());
        Ok(())
    }

    fn statistics(&self, layout: &Layout, sums: &Sums<'_>) -> Result<Statistics> {
        Statistics::from_centred_sums(layout.weighted_sums()?.centred_sums(&self.task, sums))
    }
}

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct WeightedSumsLaunch<'a> {
    shape: PatchShape,
    columns: Columns<'a>,
    exponents: Exponents<'a>,
    weights: Numbers<'a, f32>,
    centres: Numbers<'a, f32>,
    pairs: Numbers<'a, u32>,
    slices: usize,
    /// Whether to add to the sums that are there, or to replace them.
    add: bool,
    sums: Numbers<'a, f64>,
}

impl WeightedSumsLaunch<'_> {
    fn grid(&self) -> Grid {
        Grid::new(self.shape.blocks(), self.shape.block(), self.shape.shared_bytes()).slices(self.slices)
    }
}

// Columns and exponents go on to whole stages of samples, as their strides are multiples of those.
launch!(WeightedSumsLaunch<'_>, WeightedSumsArgs, "weighted_sums", |launch, grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    let PatchShape { d, tiles, patches, full, central, .. } = shape;
    let components = tiles as usize * weighted_sums::COMPONENTS;
    let samples = columns.n().next_multiple_of(weighted_sums::STAGE);
    require(what, columns.d() == d as usize && columns.stride() >= samples)?;
    require(what, grid.blocks == (shape.blocks(), launch.slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(WeightedSumsArgs {
        shape,
        columns: columns.argument(u32::MAX),
        exponents: launch.exponents.argument(components, samples)?,
        weights: launch.weights.read(components, what)?,
        centres: launch.centres.read(if central { components * d as usize } else { 0 }, what)?,
        pairs: launch.pairs.read(if full { 2 * patches as usize } else { 0 }, what)?,
        slices: launch.slices as u32,
        add: launch.add.into(),
        sums: launch.sums.write(launch.slices * shape.sums(), what)?,
    })
});
