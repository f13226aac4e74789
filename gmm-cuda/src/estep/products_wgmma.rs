//! The kernels of `products_wgmma`, launched by [`products_mma`](super::products_mma) on devices with warpgroups.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::operand::{Operand, Tile, forming_grid};
use super::pieces::{Division, InPieces, Launcher, Piece, PieceKernels, launch_piece};
use super::products_shapes::{Shapes, warpgroups};
use super::sums::Sums;
use crate::device::gpu::Gpu;
use crate::device::kernel::{Grid, Kernel};
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
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Warpgroups {
    coefficients: Kernel<CoefficientsArgs>,
    products: Kernel<ProductsArgs>,
    exponents: Kernel<ExponentsArgs>,
    weigh: Kernel<WeighArgs>,
    parts: Vec<Part>,
    shapes: Shapes,
    weighted: bool,
    multiprocessors: u32,
}

/// A part of the features, and its operands.
#[derive(Debug)]
struct Part {
    number: usize,
    features: Range<usize>,
    shape: Shape,
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
            sums: shapes.sums(),
            others: (0, 0),
        };
        let part = |(number, features): (usize, Range<usize>)| {
            let tile = Tile { samples: SAMPLES, len: shape.products_len(1) };
            Ok(Part {
                number,
                shape: Shape { d: features.len() as u32, ..shape },
                features,
                operand: Operand::new(gpu, tile, piece, same.then_some(n))?,
                halves: allocate(shapes.exponents.rows() * shapes.exponents.products())?,
            })
        };
        let kernels = Self {
            coefficients: gpu.kernel(&entries::warpgroup_coefficients(), None)?,
            products: gpu.kernel(&entries::warpgroup_products(), None)?,
            exponents: gpu.kernel(&entries::warpgroup_exponents(), Some(REGISTERS))?,
            weigh: gpu.kernel(&entries::warpgroup_weigh(), Some(REGISTERS))?,
            parts: shapes.parts().enumerate().map(part).collect::<Result<_>>()?,
            shapes,
            weighted: task.weighted,
            multiprocessors: blocks,
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
        self.parts.iter().try_fold(at.stream.idle(), |running, part| {
            let grid = forming_grid(self.multiprocessors, part.shape.rows() * part.shape.octets());
            Ok(running.followed_by(at.over(part).launch(self.coefficients, grid)?))
        })
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, _: Wanted) -> Result<Running<'a, ()>> {
        let Piece { columns, blocks, slices, .. } = at.piece;
        let exponents_blocks = columns.n().div_ceil(SAMPLES).min(blocks as usize) as u32;
        let mut running = at.stream.idle();
        for part in &self.parts {
            let (at, shape) = (at.over((at.piece, part)), part.shape);
            let formed = part.operand.form(at.stream, &at.piece.0, || {
                let items = columns.n().next_multiple_of(SAMPLES) / 4 * shape.octets();
                at.launch(self.products, forming_grid(self.multiprocessors, items))
            })?;
            let grid = Grid::new(exponents_blocks, BLOCK, shape.exponents_bytes());
            running = running.followed_by(formed).followed_by(at.launch(self.exponents, grid)?);
        }
        for part in &self.parts {
            let grid = Grid::new(part.shape.groups() as u32, BLOCK, part.shape.weigh_bytes()).slices(slices);
            running = running.followed_by(at.over((at.piece, part)).launch(self.weigh, grid)?);
        }
        Ok(running)
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(Multiplies::Products).statistics(&self.shapes, sums)
    }
}

launch_piece!(Warpgroups, &'_ Part, CoefficientsArgs, "warpgroup_coefficients", |launch, _grid, what| {
    let (Warpgroups { shapes, .. }, Part { number, shape, halves, .. }) = (launch.kernels, launch.piece);
    let ([coefficients, ..], count) = (shapes.sections(), shape.rows() * shape.products());
    let first = coefficients.start + number * count;
    Ok(CoefficientsArgs {
        shape: *shape,
        coefficients: launch.parameters.part(first..first + count)?.read(count, what)?,
        halves: Numbers::of(halves).write(shape.coefficients_len(), what)?,
    })
});

launch_piece!(Warpgroups, (Piece<'_>, &'_ Part), ProductsArgs, "warpgroup_products", |launch, _grid, what| {
    let (piece, Part { features, shape, operand, .. }) = (&launch.piece.0, launch.piece.1);
    Ok(ProductsArgs {
        shape: *shape,
        columns: piece.columns.of_features(features.clone())?.argument(0),
        products: operand.of_piece(piece)?.write(shape.products_len(piece.columns.n()), what)?,
    })
});

launch_piece!(Warpgroups, (Piece<'_>, &'_ Part), ExponentsArgs, "warpgroup_exponents", |launch, grid, what| {
    let (Warpgroups { parts, shapes, weighted, .. }, (piece, part)) = (launch.kernels, &launch.piece);
    let Part { number, shape, operand, halves, .. } = part;
    let (n, rows, [_, constants, _]) = (piece.columns.n(), shape.rows(), shapes.sections());
    require(what, grid.threads == BLOCK && piece.columns.d() == shapes.exponents.d as usize)?;
    grid.require_shared(what, shape.exponents_bytes())?;
    Ok(ExponentsArgs {
        shape: *shape,
        columns: piece.columns.argument(u32::MAX),
        products: operand.of_piece(piece)?.read(shape.products_len(n), what)?,
        coefficients: Numbers::of(halves).read(shape.coefficients_len(), what)?,
        constants: launch.parameters.part(constants)?.read(3 * rows, what)?,
        later: (*number > 0).into(),
        partial: (number + 1 < parts.len()).into(),
        sample_weights: piece.columns.weights_if(*weighted),
        exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
        output: piece.output.argument(grid.blocks.0)?,
    })
});

launch_piece!(Warpgroups, (Piece<'_>, &'_ Part), WeighArgs, "warpgroup_weigh", |launch, grid, what| {
    let (Warpgroups { shapes, .. }, (piece, part)) = (launch.kernels, &launch.piece);
    let Part { number, shape, operand, .. } = part;
    let (n, rows, [.., weights]) = (piece.columns.n(), shape.rows(), shapes.sections());
    require(what, grid.threads == BLOCK && grid.blocks == (shape.groups() as u32, piece.slices as u32))?;
    grid.require_shared(what, shape.weigh_bytes())?;
    let (first, all) = (number * shape.sums(), piece.slices * shapes.sums());
    Ok(WeighArgs {
        shape: *shape,
        n: n as u64,
        products: operand.of_piece(piece)?.read(shape.products_len(n), what)?,
        exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
        weights: launch.parameters.part(weights)?.read(rows, what)?,
        slices: piece.slices as u32,
        add: piece.add.into(),
        sums: piece.sums.part(first..all)?.write(all - first, what)?,
        stride: shapes.sums() as u32,
    })
});
