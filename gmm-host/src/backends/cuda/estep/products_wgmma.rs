//! The kernels of `products_wgmma`: what [`products_mma`](super::products_mma) launches on a device
//! whose warpgroups multiply.
use super::operand::{Operand, forming_grid};
use super::pieces::{OnDevice, Piece};
use super::products_shapes::warpgroups;
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::require;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::plan::task::Task;
use crate::error::Result;
use gmm_kernels::entries;
use gmm_kernels::estep::products_wgmma::{
    BLOCK, CoefficientsArgs, ExponentsArgs, ProductsArgs, REGISTERS, SAMPLES, Shape, WeighArgs,
};

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub(super) struct Warpgroups {
    shape: Shape,
    multiprocessors: u32,
    coefficients: Kernel<CoefficientsArgs>,
    products: Kernel<ProductsArgs>,
    exponents: Kernel<ExponentsArgs>,
    weigh: Kernel<WeighArgs>,
    /// What `products` writes.
    operand: Operand,
}

impl Warpgroups {
    /// Makes the kernels ready for pieces of so many samples; `same` as for [`Operand::new`].
    pub fn new(gpu: &Gpu, task: &Task, piece: usize, same: Option<usize>) -> Result<Self> {
        let shape = warpgroups(task);
        Ok(Self {
            shape,
            operand: Operand::new(gpu, |n| shape.products_len(n), piece, same)?,
            multiprocessors: gpu.limits.multiprocessors,
            coefficients: gpu.kernel(&entries::warpgroup_coefficients(), None)?,
            products: gpu.kernel(&entries::warpgroup_products(), None)?,
            exponents: gpu.kernel(&entries::warpgroup_exponents(), Some(REGISTERS))?,
            weigh: gpu.kernel(&entries::warpgroup_weigh(), Some(REGISTERS))?,
        })
    }

    /// Starts to split the coefficients.
    pub fn split<'a>(
        &self,
        stream: &'a Stream,
        coefficients: Numbers<'a, f32>,
        halves: Numbers<'a, u32>,
    ) -> Result<Running<'a, ()>> {
        let launch = CoefficientsLaunch { shape: self.shape, coefficients, halves };
        let grid = forming_grid(self.multiprocessors, self.shape.rows() * self.shape.octets());
        Ok(stream.launch(self.coefficients, grid, launch)?.borrowed())
    }

    /// Starts the work on a piece.
    pub fn start<'a>(
        &'a self,
        stream: &'a Stream,
        parameters: OnDevice<'a>,
        piece: Piece<'a>,
    ) -> Result<Running<'a, ()>> {
        let (shape, columns) = (self.shape, piece.columns);
        let form = |products| {
            let items = columns.n().next_multiple_of(SAMPLES) / 4 * shape.octets();
            let launch = ProductsLaunch { shape, columns, products };
            Ok(stream.launch(self.products, forming_grid(self.multiprocessors, items), launch)?.borrowed())
        };
        let (products, running) = self.operand.of_piece(stream, &piece, |n| shape.products_len(n), form)?;
        let blocks = columns.n().div_ceil(SAMPLES).min(piece.blocks as usize) as u32;
        let grid = Grid::new(blocks, BLOCK, shape.exponents_bytes());
        let launch = ExponentsLaunch { shape, products, parameters, piece };
        let running = running.followed_by(stream.launch(self.exponents, grid, launch)?.borrowed());
        let launch = WeighLaunch { shape, products, weights: parameters.weights, piece };
        let grid = Grid::new(shape.groups() as u32, BLOCK, shape.weigh_bytes()).slices(piece.slices);
        Ok(running.followed_by(stream.launch(self.weigh, grid, launch)?.borrowed()))
    }
}

/// A launch that splits the coefficients.
#[derive(Clone, Copy)]
struct CoefficientsLaunch<'a> {
    shape: Shape,
    coefficients: Numbers<'a, f32>,
    halves: Numbers<'a, u32>,
}

launch!(CoefficientsLaunch<'_>, CoefficientsArgs, "warpgroup_coefficients", |launch, _grid, what| {
    let shape = launch.shape;
    Ok(CoefficientsArgs {
        shape,
        coefficients: launch.coefficients.read(shape.rows() * shape.products(), what)?,
        halves: launch.halves.write(shape.coefficients_len(), what)?,
    })
});

/// A launch that forms products.
#[derive(Clone, Copy)]
struct ProductsLaunch<'a> {
    shape: Shape,
    columns: Columns<'a>,
    products: Numbers<'a, u32>,
}

launch!(ProductsLaunch<'_>, ProductsArgs, "warpgroup_products", |launch, _grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    require(what, columns.d() == shape.d as usize)?;
    Ok(ProductsArgs {
        shape,
        columns: columns.argument(0),
        products: launch.products.write(shape.products_len(columns.n()), what)?,
    })
});

/// A launch that gives exponents.
#[derive(Clone, Copy)]
struct ExponentsLaunch<'a> {
    shape: Shape,
    products: Numbers<'a, u32>,
    parameters: OnDevice<'a>,
    piece: Piece<'a>,
}

launch!(ExponentsLaunch<'_>, ExponentsArgs, "warpgroup_exponents", |launch, grid, what| {
    let ExponentsLaunch { shape, products, parameters, piece } = *launch;
    let (n, rows) = (piece.columns.n(), shape.rows());
    require(what, grid.threads == BLOCK && piece.columns.d() == shape.d as usize)?;
    grid.require_shared(what, shape.exponents_bytes())?;
    Ok(ExponentsArgs {
        shape,
        columns: piece.columns.argument(u32::MAX),
        products: products.read(shape.products_len(n), what)?,
        coefficients: parameters.halves.read(shape.coefficients_len(), what)?,
        constants: parameters.constants.read(3 * rows, what)?,
        sample_weights: piece.columns.weights_if(parameters.weighted),
        exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
        output: piece.output.argument(grid.blocks.0)?,
    })
});

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct WeighLaunch<'a> {
    shape: Shape,
    products: Numbers<'a, u32>,
    weights: Numbers<'a, f32>,
    piece: Piece<'a>,
}

launch!(WeighLaunch<'_>, WeighArgs, "warpgroup_weigh", |launch, grid, what| {
    let WeighLaunch { shape, products, weights, piece } = *launch;
    let (n, rows) = (piece.columns.n(), shape.rows());
    require(what, grid.threads == BLOCK && grid.blocks == (shape.groups() as u32, piece.slices as u32))?;
    grid.require_shared(what, shape.weigh_bytes())?;
    Ok(WeighArgs {
        shape,
        n: n as u64,
        products: products.read(shape.products_len(n), what)?,
        exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
        weights: weights.read(rows, what)?,
        slices: piece.slices as u32,
        add: piece.add.into(),
        sums: piece.sums.write(piece.slices * shape.sums(), what)?,
    })
});
