//! The kernels of `warpgroup`: what [`tensor_cores`](super::tensor_cores) launches on a device
//! whose warpgroups multiply.
use super::operand::{Operand, forming_grid};
use super::pieces::{OnDevice, Piece};
use crate::backends::cuda::device::gpu::Gpu;
use crate::backends::cuda::device::kernel::{Grid, Kernel, Launch};
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::{check_suffices, mismatch};
use crate::error::Result;
use gmm_kernels::entries;
use gmm_kernels::estep::warpgroup::{
    BLOCK, CoefficientsArgs, ExponentsArgs, ProductsArgs, REGISTERS, SAMPLES, Shape, WeighArgs,
};
use std::ptr;

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
    pub fn new(gpu: &Gpu, k: usize, d: usize, piece: usize, same: Option<usize>) -> Result<Self> {
        let shape = Shape { d: d as u32, k: k as u32 };
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

// SAFETY: both lengths are checked here.
unsafe impl Launch for CoefficientsLaunch<'_> {
    type Argument = CoefficientsArgs;

    fn argument(&self, _grid: &Grid) -> Result<CoefficientsArgs> {
        let shape = self.shape;
        let needed = vec![shape.rows() * shape.products(), shape.coefficients_len()];
        check_suffices(
            "a launch of `warpgroup_coefficients`",
            needed,
            vec![self.coefficients.len(), self.halves.len()],
        )?;
        Ok(CoefficientsArgs { shape, coefficients: self.coefficients.pointer(), halves: self.halves.pointer_mut() })
    }
}

/// A launch that forms products.
#[derive(Clone, Copy)]
struct ProductsLaunch<'a> {
    shape: Shape,
    columns: Columns<'a>,
    products: Numbers<'a, u32>,
}

// SAFETY: the columns' lengths were checked when they were made; the products' is checked here.
unsafe impl Launch for ProductsLaunch<'_> {
    type Argument = ProductsArgs;

    fn argument(&self, _grid: &Grid) -> Result<ProductsArgs> {
        let shape = self.shape;
        let needed = vec![shape.d as usize, shape.products_len(self.columns.n())];
        let got = vec![self.columns.d(), self.products.len()];
        if needed[0] != got[0] {
            return Err(mismatch("a launch of `warpgroup_products`", needed, got));
        }
        check_suffices("a launch of `warpgroup_products`", needed, got)?;
        Ok(ProductsArgs { shape, columns: self.columns.argument(0), products: self.products.pointer_mut() })
    }
}

/// A launch that gives exponents.
#[derive(Clone, Copy)]
struct ExponentsLaunch<'a> {
    shape: Shape,
    products: Numbers<'a, u32>,
    parameters: OnDevice<'a>,
    piece: Piece<'a>,
}

// SAFETY: the columns' lengths were checked when they were made, and `Exponents` and `Output` check
// their own; products, coefficients and constants are checked here.
unsafe impl Launch for ExponentsLaunch<'_> {
    type Argument = ExponentsArgs;

    fn argument(&self, grid: &Grid) -> Result<ExponentsArgs> {
        let Self { shape, products, parameters, piece } = *self;
        let (n, rows) = (piece.columns.n(), shape.rows());
        let needed = vec![shape.products_len(n), shape.coefficients_len(), 3 * rows, shape.exponents_bytes()];
        let got = vec![products.len(), parameters.halves.len(), parameters.constants.len(), grid.shared];
        if grid.threads != BLOCK || piece.columns.d() != shape.d as usize {
            return Err(mismatch("a launch of `warpgroup_exponents`", needed, got));
        }
        check_suffices("a launch of `warpgroup_exponents`", needed, got)?;
        Ok(ExponentsArgs {
            shape,
            columns: piece.columns.argument(u32::MAX),
            products: products.pointer(),
            coefficients: parameters.halves.pointer(),
            constants: parameters.constants.pointer(),
            sample_weights: if parameters.weighted { piece.columns.weights() } else { ptr::null() },
            exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
            output: piece.output.argument(grid.blocks.0)?,
        })
    }
}

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct WeighLaunch<'a> {
    shape: Shape,
    products: Numbers<'a, u32>,
    weights: Numbers<'a, f32>,
    piece: Piece<'a>,
}

// SAFETY: `Exponents` checks its own lengths; products, weights and sums of all rows and slices are
// checked here.
unsafe impl Launch for WeighLaunch<'_> {
    type Argument = WeighArgs;

    fn argument(&self, grid: &Grid) -> Result<WeighArgs> {
        let Self { shape, products, weights, piece } = *self;
        let (n, rows) = (piece.columns.n(), shape.rows());
        let needed = vec![shape.products_len(n), rows, piece.slices * shape.sums(), shape.weigh_bytes()];
        let got = vec![products.len(), weights.len(), piece.sums.len(), grid.shared];
        if grid.threads != BLOCK || grid.blocks != (shape.groups() as u32, piece.slices as u32) {
            return Err(mismatch("a launch of `warpgroup_weigh`", needed, got));
        }
        check_suffices("a launch of `warpgroup_weigh`", needed, got)?;
        Ok(WeighArgs {
            shape,
            n: n as u64,
            products: products.pointer(),
            exponents: piece.exponents.argument(rows, n.next_multiple_of(SAMPLES))?,
            weights: weights.pointer(),
            slices: piece.slices as u32,
            add: piece.add.into(),
            sums: piece.sums.pointer_mut(),
        })
    }
}
