//! The kernels of `whitened_mma`, launched by [`whitened_wgmma`](super::whitened_wgmma): `whiten` writes the exponents of
//! a piece, `outer` adds up products of features weighted by responsibilities, slice by slice, and `reduce_slices` adds
//! up the slices.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::pieces::{Division, InPieces, Launcher, Piece, PieceKernels, launch_piece};
use super::split::split_grid;
use super::sums::Sums;
use super::whitened_shapes::WhitenedShapes;
use crate::device::gpu::Gpu;
use crate::device::kernel::{Grid, Kernel};
use crate::device::memory::{Numbers, allocate};
use crate::device::stream::Running;
use crate::device::{mismatch, require};
use crate::plan::task::{Multiplies, Shape, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::whitened_mma::{OuterArgs, OuterShape, STAGE, SplitMatricesArgs, WhitenArgs, WhitenShape};

/// Most bytes of the exponents of a piece, unless a piece that keeps the device busy has more.
const EXPONENT_BYTES: usize = 512 << 20;
/// The same for their features in float16. Unit tests, with fewer samples, have several pieces too.
const FEATURE_BYTES: usize = if cfg!(test) { 0 } else { 256 << 20 };
/// Limits of registers of `whiten` and of `outer`.
const WHITEN_REGISTERS: u32 = 168;
const OUTER_REGISTERS: u32 = 128;

#[derive(Debug)]
pub(super) struct WhitenedMma {
    split: Kernel<SplitMatricesArgs>,
    whiten: Kernel<WhitenArgs>,
    outer: Kernel<OuterArgs>,
    weighted: bool,
    whiten_shape: WhitenShape,
    outer_shape: OuterShape,
    shapes: WhitenedShapes,
    /// The triangles in float16, two numbers to an element.
    fragments: DeviceBuffer<u32>,
    /// The features of a piece in float16, two numbers to an element.
    halves: DeviceBuffer<u32>,
}

impl WhitenedMma {
    /// Prepares the kernels for up to `task.n` samples at once. The device's context is current.
    pub fn boxed(gpu: &Gpu, shape: Shape, task: &Task) -> Result<Box<dyn EStepKernels>> {
        let Some(shapes @ WhitenedShapes::Warps { whiten, outer }) = WhitenedShapes::of_warps(task, shape) else {
            return Err(mismatch("an E-step with matrices", vec![], vec![task.k, task.d]));
        };
        let (n, limits) = (task.n, &gpu.limits);
        let resident =
            |registers, block, shared| limits.multiprocessors * limits.resident_blocks(registers, block, shared);
        let blocks = resident(WHITEN_REGISTERS, whiten.block(), whiten.shared_bytes());
        let most = (EXPONENT_BYTES / shapes.rows()).min(FEATURE_BYTES / task.d) / size_of::<f32>();
        let piece = Division::piece(n, most, blocks as usize * whiten.samples(), whiten.samples().max(STAGE));
        let division = Division {
            n,
            piece,
            granularity: STAGE,
            min_slice: 4,
            slices: (resident(OUTER_REGISTERS, outer.block(), outer.shared_bytes()) / outer.blocks()) as usize,
            blocks,
            rows: shapes.rows(),
            sums: outer.sums(),
            others: (0, 0),
        };
        let kernels = Self {
            split: gpu.kernel(&entries::split_matrices(), None)?,
            whiten: gpu.kernel(&entries::whiten(), Some(WHITEN_REGISTERS))?,
            outer: gpu.kernel(&entries::outer(), Some(OUTER_REGISTERS))?,
            weighted: task.weighted,
            whiten_shape: whiten,
            outer_shape: outer,
            shapes,
            fragments: allocate(task.k * whiten.fragments())?,
            halves: allocate(task.d * piece)?,
        };
        InPieces::boxed(gpu, kernels, division)
    }
}

impl PieceKernels for WhitenedMma {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]) {
        layouts.tensor_cores(Multiplies::Features).write_whitened(&self.shapes, out);
    }

    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>> {
        at.launch(self.split, split_grid(self.fragments.len()))
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, _: Wanted) -> Result<Running<'a, ()>> {
        let (whiten, outer) = (self.whiten_shape, self.outer_shape);
        let Piece { columns, blocks, slices, .. } = at.piece;
        let blocks = columns.n().div_ceil(whiten.samples()).min(blocks as usize) as u32;
        let running = at.launch(self.whiten, Grid::new(blocks, whiten.block(), whiten.shared_bytes()))?;
        let grid = Grid::new(outer.blocks(), outer.block(), outer.shared_bytes()).slices(slices);
        Ok(running.followed_by(at.launch(self.outer, grid)?))
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(Multiplies::Features).whitened_statistics(&self.shapes, sums)
    }
}

launch_piece!(WhitenedMma, (), SplitMatricesArgs, "split_matrices", |launch, _grid, what| {
    let WhitenedMma { shapes, whiten_shape: shape, fragments, .. } = launch.kernels;
    let ((k, d), [matrices, ..]) = (shapes.dim(), shapes.sections());
    Ok(SplitMatricesArgs {
        shape: *shape,
        matrices: launch.parameters.part(matrices)?.read(k * (d * (d + 1) / 2), what)?,
        fragments: Numbers::of(fragments).write(k * shape.fragments(), what)?,
    })
});

launch_piece!(WhitenedMma, Piece<'_>, WhitenArgs, "whiten", |launch, grid, what| {
    let (WhitenedMma { shapes, whiten_shape: shape, fragments, halves, weighted, .. }, piece) =
        (launch.kernels, &launch.piece);
    let (columns, (k, d), [_, shifts, constants, _]) = (piece.columns, shapes.dim(), shapes.sections());
    require(what, columns.d() == d && grid.threads == shape.block())?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(WhitenArgs {
        shape: *shape,
        columns: columns.argument(u32::MAX),
        fragments: Numbers::of(fragments).read(k * shape.fragments(), what)?,
        shifts: launch.parameters.part(shifts)?.read(k * shape.shifts(), what)?,
        constants: launch.parameters.part(constants)?.read(3 * k, what)?,
        sample_weights: columns.weights_if(*weighted),
        exponents: piece.exponents.argument(k, columns.n().next_multiple_of(shape.samples()))?,
        halves: Numbers::of(halves).write(d * piece.exponents.stride, what)?,
        output: piece.output.argument(grid.blocks.0)?,
    })
});

// Features and exponents extend to whole stages, because their stride, at least N, is a multiple of these.
launch_piece!(WhitenedMma, Piece<'_>, OuterArgs, "outer", |launch, grid, what| {
    let (WhitenedMma { shapes, outer_shape: shape, halves, .. }, piece) = (launch.kernels, &launch.piece);
    let (n, stride, [.., weights]) = (piece.columns.n(), piece.exponents.stride, shapes.sections());
    let samples = n.next_multiple_of(STAGE);
    require(what, stride.is_multiple_of(STAGE) && stride >= samples)?;
    require(what, grid.blocks == (shape.blocks(), piece.slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(OuterArgs {
        shape: *shape,
        n: n as u64,
        halves: Numbers::of(halves).read(shape.d as usize * stride, what)?,
        exponents: piece.exponents.argument(shape.components(), samples)?,
        weights: launch.parameters.part(weights)?.read(shape.components(), what)?,
        slices: piece.slices as u32,
        add: piece.add.into(),
        sums: piece.sums.write(piece.slices * shape.sums(), what)?,
    })
});
