//! `products_mma`: the E-step on the tensor cores. `exponents` leaves the exponents of a piece of
//! the samples, `weigh` adds up the samples' products weighted by their responsibilities, slice by
//! slice, and `reduce_slices` adds up the slices' sums. The kernels of `products_wgmma` do the same in
//! their way.
use super::launch::{EStepKernels, Layout, Wanted};
use super::pieces::{Division, OnDevice, Piece, Pieces, read_pieces};
use super::products_shapes::{MOST_WARPS, Section, Shapes, loses_digits, warpgroups};
use super::products_wgmma::Warpgroups;
use super::sums::Sums;
use super::tensor_cores_layout::TensorCoresLayout;
use crate::backends::cuda::device::gpu::{Gpu, Limits};
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate, copied};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::{Output, Workspace};
use crate::backends::cuda::device::{mismatch, require};
use crate::backends::cuda::likelihood::Exponents;
use crate::backends::cuda::plan::family::{CovarianceShapes, Family, Takes, Unit, Variant, at_most, holds_no_samples};
use crate::backends::cuda::plan::task::{Multiplies, Operation, Shape, Task};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::data::QUAD;
use gmm_kernels::entries;
use gmm_kernels::estep::products_mma::{ExponentsArgs, ExponentsShape, STAGE, SplitArgs, TILE, WeighArgs, WeighShape};
use gmm_kernels::estep::products_wgmma;
use gmm_kernels::simt::WARP;
use std::ptr;
use std::sync::Arc;

/// `products_mma`: the E-step of any shape by products of features on the tensor cores. Its split
/// is the warps of a block of `exponents` along the components, and its block that of `exponents`.
pub static PRODUCTS_MMA: ProductsFamily = ProductsFamily { unit: Unit::Mma };
/// `products_wgmma`: the same under diagonal covariances, with the products of warpgroups.
pub static PRODUCTS_WGMMA: ProductsFamily = ProductsFamily { unit: Unit::Wgmma };
pub struct ProductsFamily {
    unit: Unit,
}

impl Family for ProductsFamily {
    fn name(&self) -> &'static str {
        if self.unit == Unit::Wgmma { "products_wgmma" } else { "products_mma" }
    }

    fn unit(&self) -> Unit {
        self.unit
    }

    fn about(&self) -> &'static str {
        "the E-step by products of features on the tensor cores"
    }

    fn sizes(&self) -> String {
        if self.unit == Unit::Wgmma {
            let (most, observed) = (products_wgmma::MAX_FEATURES, products_wgmma::MAX_FEATURES_OBSERVED);
            format!("D ≤ {most}, with missing values {observed}")
        } else {
            "any, as shared memory allows".into()
        }
    }

    fn takes(&self) -> Takes {
        let covariances = if self.unit == Unit::Wgmma { CovarianceShapes::Diagonals } else { CovarianceShapes::All };
        Takes { covariances, gaps: self.unit == Unit::Wgmma, ..Takes::complete(&[Operation::EStep]) }
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        if self.unit == Unit::Wgmma {
            let most = match task.gaps {
                true => products_wgmma::MAX_FEATURES_OBSERVED,
                false => products_wgmma::MAX_FEATURES,
            };
            return at_most("features", most, task.d).or_else(|| loses_digits(task, self.on_tensor_cores(task.full)));
        }
        loses_digits(task, self.on_tensor_cores(task.full)).or_else(|| holds_no_samples(self, task, limits))
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

    fn entries(&self, task: &Task, _: Shape) -> Vec<String> {
        if self.unit == Unit::Wgmma {
            return vec![
                entries::warpgroup_products().name().into(),
                entries::warpgroup_exponents().name().into(),
                entries::warpgroup_weigh().name().into(),
            ];
        }
        let (full, tiles) = (task.full, Shapes::tiles(task.k));
        vec![entries::exponents(full, tiles).name().into(), entries::weigh(full, tiles).name().into()]
    }

    fn on_tensor_cores(&self, _full: bool) -> Option<Multiplies> {
        Some(Multiplies::Products)
    }

    fn has_large_memory(&self) -> bool {
        true
    }

    fn layout(&self, mixture: &Mixture, parameters: &Arc<DeviceParameters<f32>>, frame: &Frame) -> Option<Layout> {
        let layout = TensorCoresLayout::of(Multiplies::Products, Vec::new(), mixture, parameters.clone(), frame);
        Some(Layout::TensorCores(layout))
    }

    fn e_step(
        &self,
        gpu: &Gpu,
        _: &Layout,
        variant: Variant,
        task: &Task,
        same: bool,
    ) -> Result<Box<dyn EStepKernels>> {
        let shapes =
            if self.unit == Unit::Wgmma { Shapes::of_warpgroups(task) } else { Shapes::of_warps(task, variant.shape) };
        Ok(Box::new(Products::new(gpu, shapes, self.unit, task, same)?))
    }
}

/// The part of the device's free memory that the exponents of a piece take at most, unless a piece
/// that keeps the device busy takes more. They come from the device's memory, whose bandwidth
/// suffices for kernels of so much arithmetic; each piece costs the writing of all slices' sums.
const EXPONENTS: usize = 8;
/// Threads of a block of `split_coefficients`.
const SPLIT_BLOCK: u32 = 256;

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub struct Products {
    kernels: Kernels,
    task: Task,
    shapes: Shapes,
    /// The coefficients in float16, two numbers to an element.
    halves: DeviceBuffer<u32>,
    pieces: Pieces,
}

/// The kernels that make exponents and sums.
#[derive(Debug)]
enum Kernels {
    Warps(Warps),
    Warpgroups(Warpgroups),
}

/// The kernels in which each warp multiplies for itself.
#[derive(Debug)]
struct Warps {
    shapes: Shapes,
    split: Kernel<SplitArgs>,
    exponents: Kernel<ExponentsArgs>,
    weigh: Kernel<WeighArgs>,
    /// The features of each product, for `exponents` and for `weigh`.
    pairs: [DeviceBuffer<u32>; 2],
}

impl Warps {
    fn new(gpu: &Gpu, shapes: Shapes, full: bool) -> Result<Self> {
        let tiles = shapes.exponents.tiles as usize;
        let [of_exponents, of_weigh] = shapes.pairs(full);
        Ok(Self {
            shapes,
            split: gpu.kernel(&entries::split_coefficients(), None)?,
            exponents: gpu.kernel(&entries::exponents(full, tiles), Some(REGISTERS))?,
            weigh: gpu.kernel(&entries::weigh(full, tiles), Some(REGISTERS))?,
            pairs: [copied(&of_exponents)?, copied(&of_weigh)?],
        })
    }

    /// Starts to split the coefficients.
    fn split<'a>(
        &self,
        stream: &'a Stream,
        coefficients: Numbers<'a, f32>,
        halves: Numbers<'a, u32>,
    ) -> Result<Running<'a, ()>> {
        let launch = Split { shape: self.shapes.exponents, coefficients, halves };
        Ok(stream.launch(self.split, launch.grid(), launch)?.borrowed())
    }

    /// Starts the work on a piece.
    fn start<'a>(&'a self, stream: &'a Stream, parameters: OnDevice<'a>, piece: Piece<'a>) -> Result<Running<'a, ()>> {
        let OnDevice { halves, constants, weights, weighted } = parameters;
        let Piece { columns, exponents, slices, add, sums, .. } = piece;
        let shape = self.shapes.exponents;
        let likelihoods = ExponentsLaunch {
            shape,
            columns,
            pairs: Numbers::of(&self.pairs[0]),
            coefficients: halves,
            constants,
            weighted,
            exponents,
            output: piece.output,
        };
        let blocks = columns.n().div_ceil(shape.samples()).min(piece.blocks as usize) as u32;
        let grid = Grid::new(blocks, shape.block(), shape.shared_bytes());
        let running = stream.launch(self.exponents, grid, likelihoods)?.borrowed();
        let pairs = Numbers::of(&self.pairs[1]);
        let weigh = WeighLaunch { shape: self.shapes.weigh, columns, exponents, weights, pairs, slices, add, sums };
        Ok(running.followed_by(stream.launch(self.weigh, weigh.grid(), weigh)?.borrowed()))
    }
}

/// Registers that a thread may have, so that sixteen warps share a multiprocessor.
const REGISTERS: u32 = 128;

impl Products {
    /// Makes the kernels ready for up to `task.n` samples at once; `same`: for the same `task.n`
    /// samples each time. The device's context is current.
    fn new(gpu: &Gpu, shapes: Shapes, unit: Unit, task: &Task, same: bool) -> Result<Self> {
        let Task { n, full, .. } = *task;
        let (exponents, weigh) = (shapes.exponents, shapes.weigh);
        let limits = &gpu.limits;
        let resident = |block: u32, shared: usize| limits.resident_blocks(REGISTERS, block, shared);
        // Blocks of a multiprocessor, and their samples; blocks of the sums; samples that are not
        // divided among slices.
        let (per, samples, summing, granularity) = if unit == Unit::Wgmma {
            (1, products_wgmma::SAMPLES, 1, products_wgmma::SAMPLES)
        } else {
            let per = resident(exponents.block(), exponents.shared_bytes());
            (per, exponents.samples(), resident(weigh.block(), weigh.shared_bytes()), STAGE)
        };
        let blocks = limits.multiprocessors * per;
        let wave = blocks as usize * samples;
        let most = (gpu.free_memory()? / EXPONENTS / size_of::<f32>() / shapes.rows()).max(wave) / wave * wave;
        let piece = most.min(n.next_multiple_of(samples));
        let slices = (limits.multiprocessors * summing / weigh.blocks()) as usize;
        let division =
            Division { n, piece, granularity, slices, blocks, rows: shapes.rows(), sums: weigh.sums(), others: None };
        let kernels = if unit == Unit::Wgmma {
            Kernels::Warpgroups(Warpgroups::new(gpu, task, piece, same.then_some(n))?)
        } else {
            Kernels::Warps(Warps::new(gpu, shapes, full)?)
        };
        let halves = allocate(exponents.rows() * exponents.products())?;
        Ok(Self { kernels, task: *task, shapes, halves, pieces: Pieces::new(gpu, division)? })
    }
}

impl EStepKernels for Products {
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()> {
        let layout = layout.tensor_cores()?;
        let Task { k, d, full, .. } = self.task;
        if (layout.dim(), layout.full()) != ((k, d), full) {
            return Err(mismatch("a mixture for this E-step", vec![k, d], vec![layout.dim().0, layout.dim().1]));
        }
        workspace.parameters.fill(self.shapes.len(), |to| layout.write(&self.shapes, to))
    }

    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        _: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        _: Wanted,
    ) -> Result<Running<'a, ()>> {
        let section = |section: Section| parameters.part(self.shapes.section(section));
        let (coefficients, halves) = (section(Section::Coefficients)?, Numbers::of(&self.halves));
        let running = match &self.kernels {
            Kernels::Warps(kernels) => kernels.split(stream, coefficients, halves)?,
            Kernels::Warpgroups(kernels) => kernels.split(stream, coefficients, halves)?,
        };
        let (constants, weights) = (section(Section::Constants)?, section(Section::Weights)?);
        let parameters = OnDevice { halves, constants, weights, weighted: self.task.weighted };
        self.pieces.start(stream, columns, running, Wanted::Statistics, |piece| match &self.kernels {
            Kernels::Warps(kernels) => kernels.start(stream, parameters, piece),
            Kernels::Warpgroups(kernels) => kernels.start(stream, parameters, piece),
        })
    }

    read_pieces!(statistics);
}

/// A launch that splits the coefficients.
#[derive(Clone, Copy)]
struct Split<'a> {
    shape: ExponentsShape,
    coefficients: Numbers<'a, f32>,
    halves: Numbers<'a, u32>,
}

impl Split<'_> {
    fn grid(&self) -> Grid {
        Grid::new((self.coefficients.len() / 2).div_ceil(SPLIT_BLOCK as usize).min(1024) as u32, SPLIT_BLOCK, 0)
    }
}

launch!(Split<'_>, SplitArgs, "split_coefficients", |launch, _grid, what| {
    let count = launch.shape.rows() * launch.shape.products();
    Ok(SplitArgs {
        shape: launch.shape,
        coefficients: launch.coefficients.read(count, what)?,
        halves: launch.halves.write(count, what)?,
    })
});

/// A launch that gives exponents.
#[derive(Clone, Copy)]
struct ExponentsLaunch<'a> {
    shape: ExponentsShape,
    columns: Columns<'a>,
    pairs: Numbers<'a, u32>,
    coefficients: Numbers<'a, u32>,
    constants: Numbers<'a, f32>,
    weighted: bool,
    exponents: Exponents<'a>,
    output: Output<'a>,
}

launch!(ExponentsLaunch<'_>, ExponentsArgs, "exponents", |launch, grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    let (rows, products) = (shape.rows(), shape.products());
    require(what, columns.d() == shape.d as usize && grid.threads == shape.block())?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(ExponentsArgs {
        shape,
        columns: columns.argument(u32::MAX),
        factors: launch.pairs.read(products, what)?,
        coefficients: launch.coefficients.read(rows * products, what)?,
        constants: launch.constants.read(3 * rows, what)?,
        sample_weights: columns.weights_if(launch.weighted),
        samples: ptr::null_mut(),
        exponents: launch.exponents.argument(rows, columns.n().next_multiple_of(shape.samples()))?,
        output: launch.output.argument(grid.blocks.0)?,
    })
});

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct WeighLaunch<'a> {
    shape: WeighShape,
    columns: Columns<'a>,
    exponents: Exponents<'a>,
    weights: Numbers<'a, f32>,
    pairs: Numbers<'a, u32>,
    slices: usize,
    /// Whether to add to the sums that are there, or to replace them.
    add: bool,
    sums: Numbers<'a, f64>,
}

impl WeighLaunch<'_> {
    fn grid(&self) -> Grid {
        Grid::new(self.shape.blocks(), self.shape.block(), self.shape.shared_bytes()).slices(self.slices)
    }
}

// Columns and exponents go on to whole stages, as their strides are multiples of those.
launch!(WeighLaunch<'_>, WeighArgs, "weigh", |launch, grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    let samples = columns.n().next_multiple_of(STAGE);
    require(what, columns.d() == shape.d as usize && columns.stride() >= samples)?;
    require(what, grid.blocks == (shape.blocks(), launch.slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    Ok(WeighArgs {
        shape,
        columns: columns.argument(u32::MAX),
        exponents: launch.exponents.argument(shape.rows(), samples)?,
        weights: launch.weights.read(shape.rows(), what)?,
        factors: launch.pairs.read(shape.products(), what)?,
        slices: launch.slices as u32,
        add: launch.add.into(),
        sums: launch.sums.write(launch.slices * shape.sums(), what)?,
    })
});

const _: () = assert!(STAGE.is_multiple_of(QUAD));
