//! `whitened_mma`, the E-step of matrices on the tensor cores: `whiten` leaves the exponents of a piece
//! of the samples, `outer` adds up products of features weighted by the responsibilities, slice by
//! slice, and `reduce_slices` adds up the slices' sums.
use super::launch::{EStepKernels, Layout, Wanted};
use super::pieces::{Division, Piece, Pieces, read_pieces};
use super::products_shapes::{MOST_WARPS, loses_digits};
use super::sums::Sums;
use super::tensor_cores_layout::TensorCoresLayout;
use super::whitened_shapes::{WhitenedSection, WhitenedShapes};
use crate::backends::cuda::device::gpu::{Gpu, Limits};
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::{Output, Workspace};
use crate::backends::cuda::device::{mismatch, require};
use crate::backends::cuda::likelihood::Exponents;
use crate::backends::cuda::plan::family::{CovarianceShapes, Family, Takes, Unit, Variant, holds_no_samples};
use crate::backends::cuda::plan::task::{Multiplies, Operation, Shape, Task};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::whitened_mma::{OuterArgs, OuterShape, STAGE, SplitMatricesArgs, WhitenArgs, WhitenShape};
use gmm_kernels::simt::WARP;
use std::sync::Arc;

/// `whitened_mma`: the E-step of matrices on the tensor cores, for many features. Its split is the
/// warps of a block of `whiten` along the components, and its block that of `whiten`.
pub static WHITENED_MMA: WhitenedMmaFamily = WhitenedMmaFamily;
pub struct WhitenedMmaFamily;

impl Family for WhitenedMmaFamily {
    fn name(&self) -> &'static str {
        "whitened_mma"
    }

    fn unit(&self) -> Unit {
        Unit::Mma
    }

    fn about(&self) -> &'static str {
        "the E-step of matrices by whitened features on the tensor cores"
    }

    fn sizes(&self) -> String {
        "D as shared memory allows".into()
    }

    fn takes(&self) -> Takes {
        Takes { covariances: CovarianceShapes::Matrices, ..Takes::complete(&[Operation::EStep]) }
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        loses_digits(task, self.on_tensor_cores(task.full)).or_else(|| holds_no_samples(self, task, limits))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // Of `whiten`: three blocks, or three warps for each of four schedulers.
        let all = [(2, 128), (4, 128), (1, 128), (3, 384), (6, 384), (2, 64), (1, 32)];
        let fits = |shape: &Shape| {
            shape.split as usize <= task.k && self.shared_bytes(task, *shape) <= limits.shared_per_block
        };
        all.map(|(split, block)| Shape::new(split, block, 1)).into_iter().filter(fits).collect()
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        let warps = shape.block / WARP;
        warps.is_multiple_of(shape.split) && (warps / shape.split).is_power_of_two() && warps <= MOST_WARPS
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        WhitenedShapes::of_warps(task, shape).map_or(usize::MAX, |shapes| shapes.shared_bytes())
    }

    fn entries(&self, _: &Task, _: Shape) -> Vec<String> {
        vec![entries::whiten().name().into(), entries::outer().name().into()]
    }

    fn on_tensor_cores(&self, full: bool) -> Option<Multiplies> {
        Some(if full { Multiplies::Features } else { Multiplies::Products })
    }

    fn has_large_memory(&self) -> bool {
        true
    }

    fn layout(&self, mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, frame: &Frame) -> Option<Layout> {
        layout(mixture, parameters, frame)
    }

    fn e_step(
        &self,
        gpu: &Gpu,
        _: &Layout,
        variant: Variant,
        task: &Task,
        _same: bool,
    ) -> Result<Box<dyn EStepKernels>> {
        Ok(Box::new(WhitenedMma::new(gpu, variant.shape, task)?))
    }
}

/// A mixture as kernels that multiply features read it.
pub(super) fn layout(mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, frame: &Frame) -> Option<Layout> {
    let layout = TensorCoresLayout::of(Multiplies::Features, Vec::new(), mixture, parameters.clone(), frame);
    Some(Layout::TensorCores(layout))
}

/// Most bytes of the exponents of a piece, unless a piece that keeps the device busy has more.
const EXPONENT_BYTES: usize = 512 << 20;
/// The same of their features in float16. Unit tests, of fewer samples, have several pieces too.
const FEATURE_BYTES: usize = if cfg!(test) { 0 } else { 256 << 20 };
/// Threads of a block of `split_matrices`.
const SPLIT_BLOCK: u32 = 256;
/// Registers that a thread of `whiten` may have, and one of `outer`.
const WHITEN_REGISTERS: u32 = 168;
const OUTER_REGISTERS: u32 = 128;

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub struct WhitenedMma {
    split: Kernel<SplitMatricesArgs>,
    whiten: Kernel<WhitenArgs>,
    outer: Kernel<OuterArgs>,
    task: Task,
    whiten_shape: WhitenShape,
    outer_shape: OuterShape,
    shapes: WhitenedShapes,
    /// The triangles in float16, two numbers to an element.
    fragments: DeviceBuffer<u32>,
    /// The features of a piece in float16, two numbers to an element.
    halves: DeviceBuffer<u32>,
    pieces: Pieces,
}

impl WhitenedMma {
    /// Makes the kernels ready for up to `task.n` samples at once. The device's context is current.
    fn new(gpu: &Gpu, shape: Shape, task: &Task) -> Result<Self> {
        let Some(shapes @ WhitenedShapes::Warps { whiten, outer }) = WhitenedShapes::of_warps(task, shape) else {
            return Err(mismatch("an E-step with matrices", vec![], vec![task.k, task.d]));
        };
        let (n, limits) = (task.n, &gpu.limits);
        let blocks =
            limits.multiprocessors * limits.resident_blocks(WHITEN_REGISTERS, whiten.block(), whiten.shared_bytes());
        let wave = blocks as usize * whiten.samples();
        let most = (EXPONENT_BYTES / shapes.rows()).min(FEATURE_BYTES / task.d) / size_of::<f32>();
        let most = most.max(wave) / wave * wave;
        let piece = most.min(n.next_multiple_of(whiten.samples().max(STAGE)));
        let room =
            limits.multiprocessors * limits.resident_blocks(OUTER_REGISTERS, outer.block(), outer.shared_bytes());
        let slices = (room / outer.blocks()) as usize;
        let division = Division {
            n,
            piece,
            granularity: STAGE,
            slices,
            blocks,
            rows: shapes.rows(),
            sums: outer.sums(),
            others: None,
        };
        Ok(Self {
            split: gpu.kernel(&entries::split_matrices(), None)?,
            whiten: gpu.kernel(&entries::whiten(), Some(WHITEN_REGISTERS))?,
            outer: gpu.kernel(&entries::outer(), Some(OUTER_REGISTERS))?,
            task: *task,
            whiten_shape: whiten,
            outer_shape: outer,
            shapes,
            fragments: allocate(task.k * whiten.fragments())?,
            halves: allocate(task.d * piece)?,
            pieces: Pieces::new(gpu, division)?,
        })
    }
}

impl EStepKernels for WhitenedMma {
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()> {
        prepare(&self.shapes, workspace, layout.tensor_cores()?)
    }

    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        _: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        _: Wanted,
    ) -> Result<Running<'a, ()>> {
        let section = |section: WhitenedSection| parameters.part(self.shapes.section(section));
        let (fragments, halves) = (Numbers::of(&self.fragments), Numbers::of(&self.halves));
        let (shape, outer) = (self.whiten_shape, self.outer_shape);
        let split = Split { shape, matrices: section(WhitenedSection::Matrices)?, fragments };
        let running = stream.launch(self.split, split.grid(), split)?.borrowed();
        let (shifts, constants) = (section(WhitenedSection::Shifts)?, section(WhitenedSection::Constants)?);
        let weights = section(WhitenedSection::Weights)?;
        self.pieces.start(stream, columns, running, Wanted::Statistics, |piece| {
            let Piece { columns, exponents, blocks, output, slices, add, sums, .. } = piece;
            let weighted = self.task.weighted;
            let likelihoods =
                WhitenLaunch { shape, columns, fragments, shifts, constants, weighted, exponents, halves, output };
            let blocks = columns.n().div_ceil(shape.samples()).min(blocks as usize) as u32;
            let grid = Grid::new(blocks, shape.block(), shape.shared_bytes());
            let running = stream.launch(self.whiten, grid, likelihoods)?.borrowed();
            let outer = OuterLaunch { shape: outer, n: columns.n(), halves, exponents, weights, slices, add, sums };
            Ok(running.followed_by(stream.launch(self.outer, outer.grid(), outer)?.borrowed()))
        })
    }

    read_pieces!(whitened_statistics);
}

/// Writes the parameters of a mixture with matrices for the launches of a workspace.
pub(super) fn prepare(shapes: &WhitenedShapes, workspace: &mut Workspace, layout: &TensorCoresLayout) -> Result<()> {
    let (k, d) = shapes.dim();
    if (layout.dim(), layout.full()) != ((k, d), true) {
        return Err(mismatch("a mixture for this E-step", vec![k, d], vec![layout.dim().0, layout.dim().1]));
    }
    workspace.parameters.fill(shapes.len(), |to| layout.write_whitened(shapes, to))
}

/// A launch that splits the triangles.
#[derive(Clone, Copy)]
struct Split<'a> {
    shape: WhitenShape,
    matrices: Numbers<'a, f32>,
    fragments: Numbers<'a, u32>,
}

impl Split<'_> {
    fn grid(&self) -> Grid {
        Grid::new((self.fragments.len() / 2).div_ceil(SPLIT_BLOCK as usize).min(1024) as u32, SPLIT_BLOCK, 0)
    }
}

launch!(Split<'_>, SplitMatricesArgs, "split_matrices", |launch, _grid, what| {
    let (k, d) = (launch.shape.k as usize, launch.shape.d as usize);
    Ok(SplitMatricesArgs {
        shape: launch.shape,
        matrices: launch.matrices.read(k * (d * (d + 1) / 2), what)?,
        fragments: launch.fragments.write(k * launch.shape.fragments(), what)?,
    })
});

/// A launch that gives exponents.
#[derive(Clone, Copy)]
struct WhitenLaunch<'a> {
    shape: WhitenShape,
    columns: Columns<'a>,
    fragments: Numbers<'a, u32>,
    shifts: Numbers<'a, f32>,
    constants: Numbers<'a, f32>,
    weighted: bool,
    exponents: Exponents<'a>,
    halves: Numbers<'a, u32>,
    output: Output<'a>,
}

launch!(WhitenLaunch<'_>, WhitenArgs, "whiten", |launch, grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    let k = shape.k as usize;
    require(what, columns.d() == shape.d as usize && grid.threads == shape.block())?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(WhitenArgs {
        shape,
        columns: columns.argument(u32::MAX),
        fragments: launch.fragments.read(k * shape.fragments(), what)?,
        shifts: launch.shifts.read(k * shape.shifts(), what)?,
        constants: launch.constants.read(3 * k, what)?,
        sample_weights: columns.weights_if(launch.weighted),
        exponents: launch.exponents.argument(k, columns.n().next_multiple_of(shape.samples()))?,
        halves: launch.halves.write(columns.d() * launch.exponents.stride, what)?,
        output: launch.output.argument(grid.blocks.0)?,
    })
});

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct OuterLaunch<'a> {
    shape: OuterShape,
    n: usize,
    halves: Numbers<'a, u32>,
    exponents: Exponents<'a>,
    weights: Numbers<'a, f32>,
    slices: usize,
    /// Whether to add to the sums that are there, or to replace them.
    add: bool,
    sums: Numbers<'a, f64>,
}

impl OuterLaunch<'_> {
    fn grid(&self) -> Grid {
        Grid::new(self.shape.blocks(), self.shape.block(), self.shape.shared_bytes()).slices(self.slices)
    }
}

// Features and exponents go on to whole stages, because their stride, at least N, is a multiple of
// those.
launch!(OuterLaunch<'_>, OuterArgs, "outer", |launch, grid, what| {
    let (shape, stride) = (launch.shape, launch.exponents.stride);
    let samples = launch.n.next_multiple_of(STAGE);
    require(what, stride.is_multiple_of(STAGE) && stride >= samples)?;
    require(what, grid.blocks == (shape.blocks(), launch.slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(OuterArgs {
        shape,
        n: launch.n as u64,
        halves: launch.halves.read(shape.d as usize * stride, what)?,
        exponents: launch.exponents.argument(shape.components(), samples)?,
        weights: launch.weights.read(shape.components(), what)?,
        slices: launch.slices as u32,
        add: launch.add.into(),
        sums: launch.sums.write(launch.slices * shape.sums(), what)?,
    })
});
