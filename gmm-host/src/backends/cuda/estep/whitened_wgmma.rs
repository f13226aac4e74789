//! `whitened_wgmma`, the E-step of matrices on a device whose warpgroups multiply:
//! `warpgroup_whiten` leaves the exponents of a piece of the samples, `warpgroup_normalise` their
//! log-sum-exps, `warpgroup_respond` responsibilities and their sums, and `warpgroup_outer` adds up
//! products of features, slice by slice.
use super::launch::{EStepKernels, Layout, Wanted};
use super::operand::{Operand, forming_grid, most_forming_blocks};
use super::pieces::{Division, Others, Piece, Pieces, read_pieces};
use super::products_shapes::loses_digits;
use super::sums::Sums;
use super::whitened_mma::{layout, prepare};
use super::whitened_shapes::{WhitenedSection, WhitenedShapes};
use crate::backends::cuda::device::gpu::{Gpu, Limits, REGISTERS};
use crate::backends::cuda::device::kernel::{Grid, Kernel};
use crate::backends::cuda::device::launch::launch;
use crate::backends::cuda::device::memory::{Numbers, allocate};
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::Workspace;
use crate::backends::cuda::device::{mismatch, require};
use crate::backends::cuda::plan::family::{CovarianceShapes, Family, Takes, Unit, Variant, at_most};
use crate::backends::cuda::plan::task::{Multiplies, Operation, Shape as LaunchShape, Task};
use crate::backends::device_parameters::DeviceParameters;
use crate::data::frame::Frame;
use crate::error::Result;
use crate::model::mixture::Mixture;
use crate::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::whitened_wgmma::{
    FeaturesArgs, MAX_FEATURES, NormaliseArgs, OUTER_BLOCK, OUTER_REGISTERS, OuterArgs, RESPOND_BLOCK, RespondArgs,
    SAMPLES, Shape, TILE, TrianglesArgs, WHITEN_BLOCKS, WhitenArgs,
};
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use gmm_kernels::simt::WARPGROUP;
use std::sync::Arc;

/// `whitened_wgmma`: the E-step of matrices with the products of warpgroups. Its block is that
/// of `warpgroup_whiten`.
pub static WHITENED_WGMMA: WhitenedWgmmaFamily = WhitenedWgmmaFamily;
pub struct WhitenedWgmmaFamily;

impl Family for WhitenedWgmmaFamily {
    fn name(&self) -> &'static str {
        "whitened_wgmma"
    }

    fn unit(&self) -> Unit {
        Unit::Wgmma
    }

    fn about(&self) -> &'static str {
        "the E-step and long totals of matrices by whitened features on the tensor cores"
    }

    fn sizes(&self) -> String {
        format!("D ≤ {MAX_FEATURES}")
    }

    fn takes(&self) -> Takes {
        Takes { covariances: CovarianceShapes::Matrices, ..Takes::complete(&[Operation::EStep]) }
    }

    fn limit(&self, task: &Task, _: &Limits) -> Option<String> {
        at_most("features", MAX_FEATURES, task.d).or_else(|| loses_digits(task, self.on_tensor_cores(task.full)))
    }

    fn shapes(&self, task: &Task, _: &Limits) -> Vec<LaunchShape> {
        let [three, four] = WHITEN_BLOCKS;
        vec![LaunchShape::new(1, if task.d <= 64 { four } else { three }, 1)]
    }

    fn is_launchable(&self, shape: LaunchShape) -> bool {
        shape.split == 1 && WHITEN_BLOCKS.contains(&shape.block)
    }

    fn shared_bytes(&self, task: &Task, _: LaunchShape) -> usize {
        WhitenedShapes::of_warpgroups(task).map_or(usize::MAX, |shapes| shapes.shared_bytes())
    }

    fn entries(&self, task: &Task, _: LaunchShape) -> Vec<String> {
        let shape = Shape { d: task.d as u32, k: task.k as u32 };
        vec![
            entries::warpgroup_whiten(shape).name().into(),
            entries::warpgroup_respond(shape).name().into(),
            entries::warpgroup_outer(shape).name().into(),
        ]
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
        same: bool,
    ) -> Result<Box<dyn EStepKernels>> {
        Ok(Box::new(WhitenedWgmma::new(gpu, variant, task, same)?))
    }
}

/// The part of the device's free memory that the exponents of a piece take at most.
const EXPONENTS: usize = 8;

/// The kernels made ready for mixtures of one shape.
#[derive(Debug)]
pub struct WhitenedWgmma {
    split: Kernel<TrianglesArgs>,
    forming: Kernel<FeaturesArgs>,
    whiten: Kernel<WhitenArgs>,
    normalise: Kernel<NormaliseArgs>,
    respond: Kernel<RespondArgs>,
    outer: Kernel<OuterArgs>,
    task: Task,
    variant: Variant,
    shape: Shape,
    shapes: WhitenedShapes,
    multiprocessors: u32,
    /// The triangles in float16, two numbers to an element.
    triangles: DeviceBuffer<u32>,
    /// What `forming` writes.
    features: Operand,
    /// The responsibilities of a piece in float16.
    responsibilities: DeviceBuffer<u32>,
    pieces: Pieces,
}

impl WhitenedWgmma {
    /// Makes the kernels ready for up to `task.n` samples at once; `same`: for the same `task.n`
    /// samples each time. The device's context is current.
    fn new(gpu: &Gpu, variant: Variant, task: &Task, same: bool) -> Result<Self> {
        let Some(shapes @ WhitenedShapes::Warpgroups(shape)) = WhitenedShapes::of_warpgroups(task) else {
            return Err(mismatch("an E-step with matrices", vec![], vec![task.k, task.d]));
        };
        let (n, multiprocessors) = (task.n, gpu.limits.multiprocessors);
        let free = gpu.free_memory()?;
        let wave = multiprocessors as usize * TILE;
        let most = (free / EXPONENTS / size_of::<f32>() / shape.rows()).max(wave) / wave * wave;
        let piece = most.min(n.next_multiple_of(TILE));
        let features = Operand::new(gpu, |n| shape.features_len(n), piece, same.then_some(n))?;
        let slices = (multiprocessors / shape.outer_blocks()) as usize;
        // Two blocks, of which one computes while the other waits, even if that takes a few more
        // registers than they have: measured for D = 64, K = 32 and D = 32, K = 64, 0.32 and
        // 0.41 ms; one block of twice the registers, 0.37 and 0.51.
        let respond_blocks = gpu.limits.blocks_by_shared(shape.respond_bytes()).clamp(1, 2);
        let respond_registers = REGISTERS / RESPOND_BLOCK / respond_blocks;
        let others = Others {
            slices: ((multiprocessors * respond_blocks / shape.respond_groups()) as usize)
                .clamp(1, piece.div_ceil(TILE)),
            sums: shape.respond_sums(),
        };
        let division = Division {
            n,
            piece,
            granularity: TILE,
            slices,
            blocks: most_forming_blocks(multiprocessors),
            rows: shape.rows(),
            sums: shape.outer_sums(),
            others: Some(others),
        };
        Ok(Self {
            split: gpu.kernel(&entries::warpgroup_triangles(), None)?,
            forming: gpu.kernel(&entries::warpgroup_features(), None)?,
            whiten: gpu.kernel(&entries::warpgroup_whiten(shape), Some(REGISTERS / variant.shape.block / 8 * 8))?,
            normalise: gpu.kernel(&entries::warpgroup_normalise(), None)?,
            respond: gpu.kernel(&entries::warpgroup_respond(shape), Some(respond_registers))?,
            outer: gpu.kernel(&entries::warpgroup_outer(shape), Some(OUTER_REGISTERS))?,
            task: *task,
            variant,
            shape,
            shapes,
            multiprocessors,
            triangles: allocate(shape.triangles_len())?,
            features,
            responsibilities: allocate(shape.responsibilities_len(piece))?,
            pieces: Pieces::new(gpu, division)?,
        })
    }
}

impl EStepKernels for WhitenedWgmma {
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()> {
        prepare(&self.shapes, workspace, layout.tensor_cores()?)
    }

    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        _: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        wanted: Wanted,
    ) -> Result<Running<'a, ()>> {
        let section = |section: WhitenedSection| parameters.part(self.shapes.section(section));
        let (shape, triangles) = (self.shape, Numbers::of(&self.triangles));
        let split = Split { shape, matrices: section(WhitenedSection::Matrices)?, triangles };
        let simple = |items| forming_grid(self.multiprocessors, items);
        let running = stream.launch(self.split, simple(triangles.len() / 8), split)?.borrowed();
        let (shifts, constants) = (section(WhitenedSection::Shifts)?, section(WhitenedSection::Constants)?);
        let (weights, weighted) = (section(WhitenedSection::Weights)?, self.task.weighted);
        let responsibilities = Numbers::of(&self.responsibilities);
        self.pieces.start(stream, columns, running, wanted, |piece| {
            let n = piece.columns.n();
            let form = |features| {
                let items = n.next_multiple_of(TILE) / 4 * shape.octets();
                let forming = Forming { shape, columns: piece.columns, features };
                Ok(stream.launch(self.forming, simple(items), forming)?.borrowed())
            };
            let (features, running) = self.features.of_piece(stream, &piece, |n| shape.features_len(n), form)?;
            let whitening = Whitening { shape, features, triangles, shifts, constants, piece };
            let groups = shape.groups() as u32;
            let tiles = n.div_ceil(SAMPLES).div_ceil((self.variant.shape.block / WARPGROUP) as usize);
            let blocks = (self.multiprocessors / groups).clamp(1, tiles as u32);
            let grid = Grid::new(blocks, self.variant.shape.block, shape.whiten_bytes()).slices(groups as usize);
            let running = running.followed_by(stream.launch(self.whiten, grid, whitening)?.borrowed());
            let normalising = Normalising { shape, weights, weighted, piece };
            let grid = Grid { shared: FINISH_SHARED_BYTES, ..simple(n) };
            let running = running.followed_by(stream.launch(self.normalise, grid, normalising)?.borrowed());
            if wanted == Wanted::Total {
                return Ok(running);
            }
            let responding = Responding { shape, features, weights, responsibilities, piece };
            let grid = Grid::new(shape.respond_groups(), RESPOND_BLOCK, shape.respond_bytes()).slices(piece.others.0);
            let running = running.followed_by(stream.launch(self.respond, grid, responding)?.borrowed());
            let summing = Summing { shape, features, responsibilities, piece };
            let grid = Grid::new(shape.outer_blocks(), OUTER_BLOCK, shape.outer_bytes()).slices(piece.slices);
            Ok(running.followed_by(stream.launch(self.outer, grid, summing)?.borrowed()))
        })
    }

    read_pieces!(whitened_statistics);

    fn read_total(&self, running: Running<'_, ()>, stream: &Stream, n: usize) -> Result<f64> {
        self.pieces.read_total(running, stream, n)
    }
}

/// A launch that splits the triangles.
#[derive(Clone, Copy)]
struct Split<'a> {
    shape: Shape,
    matrices: Numbers<'a, f32>,
    triangles: Numbers<'a, u32>,
}

launch!(Split<'_>, TrianglesArgs, "warpgroup_triangles", |launch, _grid, what| {
    let shape = launch.shape;
    let (k, d) = (shape.k as usize, shape.d as usize);
    Ok(TrianglesArgs {
        shape,
        matrices: launch.matrices.read(k * (d * (d + 1) / 2), what)?,
        triangles: launch.triangles.write(shape.triangles_len(), what)?,
    })
});

/// A launch that splits features.
#[derive(Clone, Copy)]
struct Forming<'a> {
    shape: Shape,
    columns: Columns<'a>,
    features: Numbers<'a, u32>,
}

launch!(Forming<'_>, FeaturesArgs, "warpgroup_features", |launch, _grid, what| {
    let (shape, columns) = (launch.shape, launch.columns);
    require(what, columns.d() == shape.d as usize)?;
    Ok(FeaturesArgs {
        shape,
        columns: columns.argument(0),
        features: launch.features.write(shape.features_len(columns.n()), what)?,
    })
});

/// A launch that gives exponents.
#[derive(Clone, Copy)]
struct Whitening<'a> {
    shape: Shape,
    features: Numbers<'a, u32>,
    triangles: Numbers<'a, u32>,
    shifts: Numbers<'a, f32>,
    constants: Numbers<'a, f32>,
    piece: Piece<'a>,
}

launch!(Whitening<'_>, WhitenArgs, "warpgroup_whiten", |launch, grid, what| {
    let (shape, n) = (launch.shape, launch.piece.columns.n());
    let k = shape.k as usize;
    require(what, WHITEN_BLOCKS.contains(&grid.threads) && grid.blocks.1 as usize >= shape.groups())?;
    grid.require_shared(what, shape.whiten_bytes())?;
    Ok(WhitenArgs {
        shape,
        n: n as u64,
        group_units: shape.group_units() as u32,
        features: launch.features.read(shape.features_len(n), what)?,
        triangles: launch.triangles.read(shape.triangles_len(), what)?,
        shifts: launch.shifts.read(k * shape.width(), what)?,
        constants: launch.constants.read(2 * k, what)?,
        q: launch.piece.exponents.argument(shape.rows(), n.next_multiple_of(TILE))?.q,
    })
});

/// A launch that gives maxima, factors and the total.
#[derive(Clone, Copy)]
struct Normalising<'a> {
    shape: Shape,
    weights: Numbers<'a, f32>,
    weighted: bool,
    piece: Piece<'a>,
}

launch!(Normalising<'_>, NormaliseArgs, "warpgroup_normalise", |launch, grid, what| {
    let (shape, Piece { columns, exponents, output, .. }) = (launch.shape, launch.piece);
    grid.require_shared(what, FINISH_SHARED_BYTES)?;
    Ok(NormaliseArgs {
        shape,
        columns: columns.argument(0),
        weights: launch.weights.read(shape.k as usize, what)?,
        sample_weights: columns.weights_if(launch.weighted),
        exponents: exponents.argument(shape.rows(), columns.n().next_multiple_of(TILE))?,
        output: output.argument(grid.blocks.0)?,
    })
});

/// A launch that gives responsibilities and their sums.
#[derive(Clone, Copy)]
struct Responding<'a> {
    shape: Shape,
    features: Numbers<'a, u32>,
    weights: Numbers<'a, f32>,
    responsibilities: Numbers<'a, u32>,
    piece: Piece<'a>,
}

launch!(Responding<'_>, RespondArgs, "warpgroup_respond", |launch, grid, what| {
    let (shape, piece) = (launch.shape, launch.piece);
    let (n, (slices, sums)) = (piece.columns.n(), piece.others);
    require(what, piece.exponents.stride.is_multiple_of(TILE))?;
    require(what, grid.threads == RESPOND_BLOCK && grid.blocks == (shape.respond_groups(), slices as u32))?;
    grid.require_shared(what, shape.respond_bytes())?;
    Ok(RespondArgs {
        shape,
        n: n as u64,
        features: launch.features.read(shape.features_len(n), what)?,
        exponents: piece.exponents.argument(shape.rows(), n.next_multiple_of(TILE))?,
        weights: launch.weights.read(shape.rows(), what)?,
        responsibilities: launch.responsibilities.write(shape.responsibilities_len(n), what)?,
        slices: slices as u32,
        add: piece.add.into(),
        sums: sums.write(slices * shape.respond_sums(), what)?,
    })
});

/// A launch that adds up the sums of each slice of the samples.
#[derive(Clone, Copy)]
struct Summing<'a> {
    shape: Shape,
    features: Numbers<'a, u32>,
    responsibilities: Numbers<'a, u32>,
    piece: Piece<'a>,
}

launch!(Summing<'_>, OuterArgs, "warpgroup_outer", |launch, grid, what| {
    let (shape, Piece { slices, sums, add, .. }, n) = (launch.shape, launch.piece, launch.piece.columns.n());
    require(what, grid.threads == OUTER_BLOCK && grid.blocks == (shape.outer_blocks(), slices as u32))?;
    grid.require_shared(what, shape.outer_bytes())?;
    Ok(OuterArgs {
        shape,
        n: n as u64,
        features: launch.features.read(shape.features_len(n), what)?,
        responsibilities: launch.responsibilities.read(shape.responsibilities_len(n), what)?,
        slices: slices as u32,
        add: add.into(),
        sums: sums.write(slices * shape.outer_sums(), what)?,
    })
});
