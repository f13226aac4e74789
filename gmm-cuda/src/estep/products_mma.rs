//! `products_mma`: the E-step on the tensor cores. `exponents` writes the exponents of a piece of the samples, `weigh`
//! adds up the samples' products weighted by responsibilities, slice by slice, and `reduce_slices` adds up the slices.
//! The kernels of `products_wgmma` have the same roles.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::pieces::{Division, InPieces, Launcher, Piece, PieceKernels, launch_piece};
use super::products_shapes::{MOST_WARPS, Shapes, loses_digits, warpgroups};
use super::products_wgmma::Warpgroups;
use super::split::split_grid;
use super::sums::Sums;
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::memory::{Numbers, allocate, copied};
use crate::device::require;
use crate::device::stream::Running;
use crate::plan::family::{CovarianceShapes, Facts, Family, Unit, Variant, at_most, no_room};
use crate::plan::task::{Multiplies, Operation, Shape, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::products_mma::{ExponentsArgs, STAGE, SplitArgs, TILE, WeighArgs};
use gmm_kernels::estep::products_wgmma;
use gmm_kernels::simt::WARP;
use std::ptr;

/// `products_mma`: the E-step of any shape by products of features on the tensor cores. Its split is the warps of a
/// block of `exponents` along the components, and its block that of `exponents`.
pub static PRODUCTS_MMA: ProductsFamily = ProductsFamily { unit: Unit::Mma };
/// `products_wgmma`: the same under diagonal covariances, with the products of warpgroups.
pub static PRODUCTS_WGMMA: ProductsFamily = ProductsFamily { unit: Unit::Wgmma };
pub struct ProductsFamily {
    unit: Unit,
}

/// Most features of samples with missing values for `products_wgmma`.
const MOST_OBSERVED: usize = products_wgmma::MAX_PARTS * products_wgmma::MAX_FEATURES_OBSERVED;

impl Family for ProductsFamily {
    fn facts(&self) -> Facts {
        let (name, covariances) = match self.unit {
            Unit::Wgmma => ("products_wgmma", CovarianceShapes::Diagonals),
            _ => ("products_mma", CovarianceShapes::All),
        };
        let about = "the E-step by products of features on the tensor cores";
        let complete = Facts::complete(name, about, &[Operation::EStep]);
        let gaps = self.unit == Unit::Wgmma;
        Facts { unit: self.unit, covariances, gaps, linear: true, large_memory: true, ..complete }
    }

    fn sizes(&self) -> String {
        if self.unit == Unit::Wgmma {
            format!("D ≤ {}, with missing values {}", products_wgmma::MAX_FEATURES, MOST_OBSERVED)
        } else {
            "any, as shared memory allows".into()
        }
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        if self.unit == Unit::Wgmma {
            let most = if task.gaps { MOST_OBSERVED } else { products_wgmma::MAX_FEATURES };
            return at_most("features", most, task.d).or_else(|| loses_digits(task, self.on_tensor_cores(task.full())));
        }
        loses_digits(task, self.on_tensor_cores(task.full()))
            .or_else(|| no_room(task, |task| !self.shapes(task, limits).is_empty()))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        if self.unit == Unit::Wgmma {
            return vec![Shape::new(1, products_wgmma::BLOCK, 1)];
        }
        let rows = task.k.div_ceil(Shapes::tiles(task.k) * TILE) as u32;
        let all = [(8, 512), (4, 512), (2, 512), (4, 256), (2, 256), (1, 256), (2, 128), (1, 128), (1, 64)];
        let useful = |shape: &Shape| shape.split == 1 || shape.split < 2 * rows;
        let fits = |shape: &Shape| self.shared_bytes(task, *shape) <= limits.shared_per_block;
        all.map(|(split, block)| Shape::new(split, block, 1)).into_iter().filter(useful).filter(fits).collect()
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        if self.unit == Unit::Wgmma {
            return shape.split == 1 && shape.block == products_wgmma::BLOCK;
        }
        // The other direction has a power of two of warps.
        let warps = shape.block / WARP;
        shape.split.is_power_of_two()
            && warps.is_multiple_of(shape.split)
            && (warps / shape.split).is_power_of_two()
            && warps <= MOST_WARPS
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        if self.unit == Unit::Wgmma {
            let shape = warpgroups(task);
            return shape.exponents_bytes().max(shape.weigh_bytes());
        }
        let shapes = Shapes::of_warps(task, shape);
        shapes.exponents.shared_bytes().max(shapes.weigh.shared_bytes())
    }

    fn on_tensor_cores(&self, _full: bool) -> Option<Multiplies> {
        Some(Multiplies::Products)
    }

    fn e_step(&self, gpu: &Gpu, variant: Variant, task: &Task, same: bool) -> Result<Box<dyn EStepKernels>> {
        if self.unit == Unit::Wgmma {
            Warpgroups::boxed(gpu, task, same)
        } else {
            Warps::boxed(gpu, variant.shape, task)
        }
    }
}

/// The limit of a thread's registers, so that sixteen warps share a multiprocessor.
const REGISTERS: u32 = 128;

/// The kernels in which each warp multiplies for itself, made ready for mixtures of one shape.
#[derive(Debug)]
struct Warps {
    split: Kernel<SplitArgs>,
    exponents: Kernel<ExponentsArgs>,
    weigh: Kernel<WeighArgs>,
    shapes: Shapes,
    weighted: bool,
    /// The features of each product, for `exponents` and for `weigh`.
    pairs: [DeviceBuffer<u32>; 2],
    /// The coefficients in float16, two numbers to an element.
    halves: DeviceBuffer<u32>,
}

impl Warps {
    /// Prepares the kernels for up to `task.n` samples at once. The device's context is current.
    fn boxed(gpu: &Gpu, shape: Shape, task: &Task) -> Result<Box<dyn EStepKernels>> {
        let shapes = Shapes::of_warps(task, shape);
        let (exponents, weigh, full) = (shapes.exponents, shapes.weigh, task.full());
        let (limits, multiprocessors) = (&gpu.limits, gpu.limits.multiprocessors);
        let resident = |block: u32, shared: usize| limits.resident_blocks(REGISTERS, block, shared);
        let blocks = multiprocessors * resident(exponents.block(), exponents.shared_bytes());
        let samples = exponents.samples();
        let most = Division::most(gpu, shapes.rows())?;
        let summing = multiprocessors * resident(weigh.block(), weigh.shared_bytes());
        let division = Division {
            n: task.n,
            piece: Division::piece(task.n, most, blocks as usize * samples, samples),
            granularity: STAGE,
            min_slice: 4,
            slices: (summing / weigh.blocks()) as usize,
            blocks,
            rows: shapes.rows(),
            sums: weigh.sums(),
            others: (0, 0),
        };
        let tiles = exponents.tiles as usize;
        let [of_exponents, of_weigh] = shapes.pairs(full);
        let kernels = Self {
            split: gpu.kernel(&entries::split_coefficients(), None)?,
            exponents: gpu.kernel(&entries::exponents(full, tiles), Some(REGISTERS))?,
            weigh: gpu.kernel(&entries::weigh(full, tiles), Some(REGISTERS))?,
            shapes,
            weighted: task.weighted,
            pairs: [copied(&of_exponents)?, copied(&of_weigh)?],
            halves: allocate(exponents.rows() * exponents.products())?,
        };
        InPieces::boxed(gpu, kernels, division)
    }
}

impl PieceKernels for Warps {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]) {
        layouts.tensor_cores(Multiplies::Products).write(&self.shapes, out);
    }

    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>> {
        at.launch(self.split, split_grid(self.halves.len()))
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, _: Wanted) -> Result<Running<'a, ()>> {
        let Shapes { exponents, weigh, .. } = self.shapes;
        let Piece { columns, blocks, slices, .. } = at.piece;
        let blocks = columns.n().div_ceil(exponents.samples()).min(blocks as usize) as u32;
        let running = at.launch(self.exponents, Grid::new(blocks, exponents.block(), exponents.shared_bytes()))?;
        let grid = Grid::new(weigh.blocks(), weigh.block(), weigh.shared_bytes()).slices(slices);
        Ok(running.followed_by(at.launch(self.weigh, grid)?))
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(Multiplies::Products).statistics(&self.shapes, sums)
    }
}

launch_piece!(Warps, (), SplitArgs, "split_coefficients", |launch, _grid, what| {
    let Warps { shapes, halves, .. } = launch.kernels;
    let ([coefficients, ..], shape) = (shapes.sections(), shapes.exponents);
    let count = shape.rows() * shape.products();
    Ok(SplitArgs {
        shape,
        coefficients: launch.parameters.part(coefficients)?.read(count, what)?,
        halves: Numbers::of(halves).write(count, what)?,
    })
});

launch_piece!(Warps, Piece<'_>, ExponentsArgs, "exponents", |launch, grid, what| {
    let (Warps { shapes, weighted, pairs, halves, .. }, Piece { columns, exponents, output, .. }) =
        (launch.kernels, launch.piece);
    let ([_, constants, _], shape) = (shapes.sections(), shapes.exponents);
    let (rows, products) = (shape.rows(), shape.products());
    require(what, columns.d() == shape.d as usize && grid.threads == shape.block())?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(ExponentsArgs {
        shape,
        columns: columns.argument(u32::MAX),
        factors: Numbers::of(&pairs[0]).read(products, what)?,
        coefficients: Numbers::of(halves).read(rows * products, what)?,
        constants: launch.parameters.part(constants)?.read(3 * rows, what)?,
        sample_weights: columns.weights_if(*weighted),
        samples: ptr::null_mut(),
        exponents: exponents.argument(rows, columns.n().next_multiple_of(shape.samples()))?,
        output: output.argument(grid.blocks.0)?,
    })
});

// Columns and exponents extend to whole stages, since their strides are multiples of these.
launch_piece!(Warps, Piece<'_>, WeighArgs, "weigh", |launch, grid, what| {
    let (Warps { shapes, pairs, .. }, Piece { columns, exponents, slices, add, sums, .. }) =
        (launch.kernels, launch.piece);
    let ([.., weights], shape) = (shapes.sections(), shapes.weigh);
    let samples = columns.n().next_multiple_of(STAGE);
    require(what, columns.d() == shape.d as usize && columns.stride() >= samples)?;
    require(what, grid.blocks == (shape.blocks(), slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(WeighArgs {
        shape,
        columns: columns.argument(u32::MAX),
        exponents: exponents.argument(shape.rows(), samples)?,
        weights: launch.parameters.part(weights)?.read(shape.rows(), what)?,
        factors: Numbers::of(&pairs[1]).read(shape.products(), what)?,
        slices: slices as u32,
        add: add.into(),
        sums: sums.write(slices * shape.sums(), what)?,
    })
});

const _: () = assert!(STAGE.is_multiple_of(QUAD));
