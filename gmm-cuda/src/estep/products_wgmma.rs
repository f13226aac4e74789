//! The kernels of `products_wgmma`, launched by [`products_mma`](super::products_mma) on devices with warpgroups.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::operand::{Operand, Tile, forming_grid};
use super::pieces::{Division, InPieces, Launched, Launcher, Piece, PieceKernels};
use super::products_shapes::{Shapes, warpgroups};
use super::sums::Sums;
use crate::device::gpu::Gpu;
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::{Numbers, allocate};
use crate::device::require;
use crate::device::stream::Running;
use crate::plan::task::{Multiplies, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::products_wgmma::{
    BLOCK, CoefficientsArgs, ExponentsArgs, ProductsArgs, REGISTERS, SAMPLES, Shape, WeighArgs,
};

#[derive(Debug)]
pub(super) struct Warpgroups {
    coefficients: Kernel<CoefficientsArgs>,
    products: Kernel<ProductsArgs>,
    exponents: Kernel<ExponentsArgs>,
    weigh: Kernel<WeighArgs>,
    shape: Shape,
    shapes: Shapes,
    weighted: bool,
    multiprocessors: u32,
    /// Written by `products`.
    operand: Operand,
    /// The coefficients in float16, two numbers to an element.
    halves: DeviceBuffer<u32>,
}

impl Warpgroups {
    /// Prepares the kernels for up to `task.n` samples, or if `same`, for the same ones each time, in the current
    /// context.
    pub fn boxed(gpu: &Gpu, task: &Task, same: bool) -> Result<Box<dyn EStepKernels>> {
        let (shape, shapes, n) = (warpgroups(task), Shapes::of_warpgroups(task), task.n);
        let blocks = gpu.limits.multiprocessors;
        let most = Division::most(gpu, shapes.rows())?;
        let piece = Division::piece(n, most, blocks as usize * SAMPLES, SAMPLES);
        let division = Division {
            n,
            piece,
            granularity: SAMPLES,
            min_slice: 4,
            slices: (blocks / shapes.weigh.blocks()) as usize,
            blocks,
            rows: shapes.rows(),
            sums: shapes.weigh.sums(),
            others: (0, 0),
        };
        let kernels = Self {
            coefficients: gpu.kernel(&entries::warpgroup_coefficients(), None)?,
            products: gpu.kernel(&entries::warpgroup_products(), None)?,
            exponents: gpu.kernel(&entries::warpgroup_exponents(), Some(REGISTERS))?,
            weigh: gpu.kernel(&entries::warpgroup_weigh(), Some(REGISTERS))?,
            shape,
            shapes,
            weighted: task.weighted,
            multiprocessors: blocks,
            operand: Operand::new(
                gpu,
                Tile { samples: SAMPLES, len: shape.products_len(1) },
                piece,
                same.then_some(n),
            )?,
            halves: allocate(shapes.exponents.rows() * shapes.exponents.products())?,
        };
        InPieces::boxed(gpu, kernels, division)
    }
}

impl PieceKernels for Warpgroups {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]) {
        layouts.tensor_cores(Multiplies::Products).write(&self.shapes, out);
    }

    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>> {
        at.launch(self.coefficients, forming_grid(self.multiprocessors, self.shape.rows() * self.shape.octets()))
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, _: Wanted) -> Result<Running<'a, ()>> {
        let (shape, Piece { columns, blocks, slices, .. }) = (self.shape, at.piece);
        let running = self.operand.form(at.stream, &at.piece, || {
            let items = columns.n().next_multiple_of(SAMPLES) / 4 * shape.octets();
            at.launch(self.products, forming_grid(self.multiprocessors, items))
        })?;
        let blocks = columns.n().div_ceil(SAMPLES).min(blocks as usize) as u32;
        let grid = Grid::new(blocks, BLOCK, shape.exponents_bytes());
        let running = running.followed_by(at.launch(self.exponents, grid)?);
        let grid = Grid::new(shape.groups() as u32, BLOCK, shape.weigh_bytes()).slices(slices);
        Ok(running.followed_by(at.launch(self.weigh, grid)?))
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(Multiplies::Products).statistics(&self.shapes, sums)
    }
}

launch!(
    Launched<'_, Warpgroups, (), CoefficientsArgs>,
    CoefficientsArgs,
    "warpgroup_coefficients",
    |launch, _grid, what| {
        let Warpgroups { shape, shapes, halves, .. } = launch.kernels;
        let [coefficients, ..] = shapes.sections();
        Ok(CoefficientsArgs {
            shape: *shape,
            coefficients: launch.parameters.part(coefficients)?.read(shape.rows() * shape.products(), what)?,
            halves: Numbers::of(halves).write(shape.coefficients_len(), what)?,
        })
    }
);

launch!(
    Launched<'_, Warpgroups, Piece<'_>, ProductsArgs>,
    ProductsArgs,
    "warpgroup_products",
    |launch, _grid, what| {
        let (Warpgroups { shape, operand, .. }, piece) = (launch.kernels, &launch.piece);
        require(what, piece.columns.d() == shape.d as usize)?;
        Ok(ProductsArgs {
            shape: *shape,
            columns: piece.columns.argument(0),
            products: operand.of_piece(piece)?.write(shape.products_len(piece.columns.n()), what)?,
        })
    }
);

launch!(
    Launched<'_, Warpgroups, Piece<'_>, ExponentsArgs>,
    ExponentsArgs,
    "warpgroup_exponents",
    |launch, grid, what| {
        let (Warpgroups { shape, shapes, operand, halves, weighted, .. }, piece) = (launch.kernels, &launch.piece);
        let (n, rows, [_, constants, _]) = (piece.columns.n(), shape.rows(), shapes.sections());
        require(what, grid.threads == BLOCK && piece.columns.d() == shape.d as usize)?;
        grid.require_shared(what, shape.exponents_bytes())?;
        Ok(ExponentsArgs {
            shape: *shape,
            columns: piece.columns.argument(u32::MAX),
            products: operand.of_piece(piece)?.read(shape.products_len(n), what)?,
            coefficients: Numbers::of(halves).read(shape.coefficients_len(), what)?,
            constants: launch.parameters.part(constants)?.read(3 * rows, what)?,
            sample_weights: piece.columns.weights_if(*weighted),
            exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
            output: piece.output.argument(grid.blocks.0)?,
        })
    }
);

launch!(Launched<'_, Warpgroups, Piece<'_>, WeighArgs>, WeighArgs, "warpgroup_weigh", |launch, grid, what| {
    let (Warpgroups { shape, shapes, operand, .. }, piece) = (launch.kernels, &launch.piece);
    let (n, rows, [.., weights]) = (piece.columns.n(), shape.rows(), shapes.sections());
    require(what, grid.threads == BLOCK && grid.blocks == (shape.groups() as u32, piece.slices as u32))?;
    grid.require_shared(what, shape.weigh_bytes())?;
    Ok(WeighArgs {
        shape: *shape,
        n: n as u64,
        products: operand.of_piece(piece)?.read(shape.products_len(n), what)?,
        exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
        weights: launch.parameters.part(weights)?.read(rows, what)?,
        slices: piece.slices as u32,
        add: piece.add.into(),
        sums: piece.sums.write(piece.slices * shape.sums(), what)?,
    })
});
