//! The E-step of matrices on the tensor cores, by warps (`whitened_mma`) or, on a device whose warpgroups multiply, by
//! these (`whitened_wgmma`): `warpgroup_whiten` writes the exponents of a piece of the samples, `warpgroup_normalise`
//! their log-sum-exps, `warpgroup_respond` responsibilities and their sums, and `warpgroup_outer` adds up products of
//! features, slice by slice.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::operand::{Operand, Tile, forming_grid, most_forming_blocks};
use super::pieces::{Division, InPieces, Launcher, Piece, PieceKernels, launch_piece};
use super::products_shapes::{MOST_WARPS, loses_digits};
use super::sums::Sums;
use super::whitened_mma::WhitenedMma;
use super::whitened_shapes::WhitenedShapes;
use crate::device::gpu::{Gpu, Limits, REGISTERS};
use crate::device::kernel::{Grid, Kernel};
use crate::device::memory::{Numbers, allocate};
use crate::device::stream::Running;
use crate::device::{mismatch, require};
use crate::plan::family::{CovarianceShapes, Facts, Family, Unit, Variant, at_most, no_room};
use crate::plan::task::{Multiplies, Operation, Shape as LaunchShape, Task};
use gmm_core::error::Result;
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::whitened_wgmma::{
    FeaturesArgs, MAX_FEATURES, NormaliseArgs, OUTER_BLOCK, OUTER_REGISTERS, OuterArgs, RESPOND_BLOCK, RespondArgs,
    SAMPLES, Shape, TILE, TrianglesArgs, WHITEN_BLOCKS, WhitenArgs,
};
use gmm_kernels::reduce::FINISH_SHARED_BYTES;
use gmm_kernels::simt::{WARP, WARPGROUP};

/// `whitened_mma`: the E-step of matrices on the tensor cores, for many features. Its split is the warps of a block of
/// `whiten` along the components, and its block that of `whiten`.
pub static WHITENED_MMA: WhitenedFamily = WhitenedFamily { unit: Unit::Mma };
/// `whitened_wgmma`: the same with the products of warpgroups. Its block is that of `warpgroup_whiten`.
pub static WHITENED_WGMMA: WhitenedFamily = WhitenedFamily { unit: Unit::Wgmma };
pub struct WhitenedFamily {
    unit: Unit,
}

impl Family for WhitenedFamily {
    fn facts(&self) -> Facts {
        let (name, about) = match self.unit {
            Unit::Wgmma => {
                ("whitened_wgmma", "the E-step and long totals of matrices by whitened features on the tensor cores")
            }
            _ => ("whitened_mma", "the E-step of matrices by whitened features on the tensor cores"),
        };
        let complete = Facts::complete(name, about, &[Operation::EStep]);
        Facts { unit: self.unit, covariances: CovarianceShapes::Matrices, large_memory: true, ..complete }
    }

    fn sizes(&self) -> String {
        if self.unit == Unit::Wgmma { format!("D ≤ {MAX_FEATURES}") } else { "D as shared memory allows".into() }
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let loses_digits = || loses_digits(task, self.on_tensor_cores(task.full()));
        if self.unit == Unit::Wgmma {
            return at_most("features", MAX_FEATURES, task.d).or_else(loses_digits);
        }
        loses_digits().or_else(|| no_room(task, |task| !self.shapes(task, limits).is_empty()))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<LaunchShape> {
        if self.unit == Unit::Wgmma {
            let [three, four] = WHITEN_BLOCKS;
            return vec![LaunchShape::new(1, if task.d <= 64 { four } else { three }, 1)];
        }
        // For `whiten`: three blocks, or three warps for each of four schedulers.
        let all = [(2, 128), (4, 128), (1, 128), (3, 384), (6, 384), (2, 64), (1, 32)];
        let fits = |shape: &LaunchShape| {
            shape.split as usize <= task.k && self.shared_bytes(task, *shape) <= limits.shared_per_block
        };
        all.map(|(split, block)| LaunchShape::new(split, block, 1)).into_iter().filter(fits).collect()
    }

    fn is_launchable(&self, shape: LaunchShape) -> bool {
        if self.unit == Unit::Wgmma {
            return shape.split == 1 && WHITEN_BLOCKS.contains(&shape.block);
        }
        let warps = shape.block / WARP;
        warps.is_multiple_of(shape.split) && (warps / shape.split).is_power_of_two() && warps <= MOST_WARPS
    }

    fn shared_bytes(&self, task: &Task, shape: LaunchShape) -> usize {
        let shapes = match self.unit {
            Unit::Wgmma => WhitenedShapes::of_warpgroups(task),
            _ => WhitenedShapes::of_warps(task, shape),
        };
        shapes.map_or(usize::MAX, |shapes| shapes.shared_bytes())
    }

    fn on_tensor_cores(&self, _full: bool) -> Option<Multiplies> {
        Some(Multiplies::Features)
    }

    fn e_step(&self, gpu: &Gpu, variant: Variant, task: &Task, same: bool) -> Result<Box<dyn EStepKernels>> {
        if self.unit == Unit::Wgmma {
            WhitenedWgmma::boxed(gpu, variant, task, same)
        } else {
            WhitenedMma::boxed(gpu, variant.shape, task)
        }
    }
}

#[derive(Debug)]
struct WhitenedWgmma {
    split: Kernel<TrianglesArgs>,
    forming: Kernel<FeaturesArgs>,
    whiten: Kernel<WhitenArgs>,
    normalise: Kernel<NormaliseArgs>,
    respond: Kernel<RespondArgs>,
    outer: Kernel<OuterArgs>,
    weighted: bool,
    /// Threads of a block of `whiten`.
    block: u32,
    shape: Shape,
    shapes: WhitenedShapes,
    multiprocessors: u32,
    /// The triangles in float16, two numbers to an element.
    triangles: DeviceBuffer<u32>,
    /// Written by `forming`.
    features: Operand,
    /// The responsibilities of a piece in float16.
    responsibilities: DeviceBuffer<u32>,
}

impl WhitenedWgmma {
    /// Prepares the kernels for up to `task.n` samples, or if `same`, for the same ones each time, in the current
    /// context.
    fn boxed(gpu: &Gpu, variant: Variant, task: &Task, same: bool) -> Result<Box<dyn EStepKernels>> {
        let Some(shapes @ WhitenedShapes::Warpgroups(shape)) = WhitenedShapes::of_warpgroups(task) else {
            return Err(mismatch("an E-step with matrices", vec![], vec![task.k, task.d]));
        };
        let (n, multiprocessors) = (task.n, gpu.limits.multiprocessors);
        let most = Division::most(gpu, shape.rows())?;
        let piece = Division::piece(n, most, multiprocessors as usize * TILE, TILE);
        let tile = Tile { samples: TILE, len: shape.features_len(1) };
        let features = Operand::new(gpu, tile, piece, same.then_some(n))?;
        let slices = (multiprocessors / shape.outer_blocks()) as usize;
        // Two blocks, one computing while the other waits, even if that spills a few registers: measured for D = 64, K
        // = 32 and D = 32, K = 64, 0.32 and 0.41 ms; one block of twice the registers, 0.37 and 0.51.
        let respond_blocks = gpu.limits.blocks_by_shared(shape.respond_bytes()).clamp(1, 2);
        let respond_registers = REGISTERS / RESPOND_BLOCK / respond_blocks;
        let other_slices = (multiprocessors * respond_blocks / shape.respond_groups()) as usize;
        let division = Division {
            n,
            piece,
            granularity: TILE,
            min_slice: 4,
            slices,
            blocks: most_forming_blocks(multiprocessors),
            rows: shape.rows(),
            sums: shape.outer_sums(),
            others: (other_slices.clamp(1, piece.div_ceil(TILE)), shape.respond_sums()),
        };
        let kernels = Self {
            split: gpu.kernel(&entries::warpgroup_triangles(), None)?,
            forming: gpu.kernel(&entries::warpgroup_features(), None)?,
            whiten: gpu.kernel(&entries::warpgroup_whiten(shape), Some(REGISTERS / variant.shape.block / 8 * 8))?,
            normalise: gpu.kernel(&entries::warpgroup_normalise(), None)?,
            respond: gpu.kernel(&entries::warpgroup_respond(shape), Some(respond_registers))?,
            outer: gpu.kernel(&entries::warpgroup_outer(shape), Some(OUTER_REGISTERS))?,
            weighted: task.weighted,
            block: variant.shape.block,
            shape,
            shapes,
            multiprocessors,
            triangles: allocate(shape.triangles_len())?,
            features,
            responsibilities: allocate(shape.responsibilities_len(piece))?,
        };
        InPieces::boxed(gpu, kernels, division)
    }
}

impl PieceKernels for WhitenedWgmma {
    fn len(&self) -> usize {
        self.shapes.len()
    }

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]) {
        layouts.tensor_cores(Multiplies::Features).write_whitened(&self.shapes, out);
    }

    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>> {
        at.launch(self.split, forming_grid(self.multiprocessors, self.triangles.len() / 8))
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, wanted: Wanted) -> Result<Running<'a, ()>> {
        let (shape, n) = (self.shape, at.piece.columns.n());
        let simple = |items| forming_grid(self.multiprocessors, items);
        let running = self.features.form(at.stream, &at.piece, || {
            at.launch(self.forming, simple(n.next_multiple_of(TILE) / 4 * shape.octets()))
        })?;
        let groups = shape.groups() as u32;
        let tiles = n.div_ceil(SAMPLES).div_ceil((self.block / WARPGROUP) as usize);
        let blocks = (self.multiprocessors / groups).clamp(1, tiles as u32);
        let grid = Grid::new(blocks, self.block, shape.whiten_bytes()).slices(groups as usize);
        let running = running.followed_by(at.launch(self.whiten, grid)?);
        let grid = Grid { shared: FINISH_SHARED_BYTES, ..simple(n) };
        let running = running.followed_by(at.launch(self.normalise, grid)?);
        if wanted == Wanted::Total {
            return Ok(running);
        }
        let grid = Grid::new(shape.respond_groups(), RESPOND_BLOCK, shape.respond_bytes()).slices(at.piece.others.0);
        let running = running.followed_by(at.launch(self.respond, grid)?);
        let grid = Grid::new(shape.outer_blocks(), OUTER_BLOCK, shape.outer_bytes()).slices(at.piece.slices);
        Ok(running.followed_by(at.launch(self.outer, grid)?))
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        layouts.tensor_cores(Multiplies::Features).whitened_statistics(&self.shapes, sums)
    }
}

launch_piece!(WhitenedWgmma, (), TrianglesArgs, "warpgroup_triangles", |launch, _grid, what| {
    let WhitenedWgmma { shape, shapes, triangles, .. } = launch.kernels;
    let ((k, d), [matrices, ..]) = (shapes.dim(), shapes.sections());
    Ok(TrianglesArgs {
        shape: *shape,
        matrices: launch.parameters.part(matrices)?.read(k * (d * (d + 1) / 2), what)?,
        triangles: Numbers::of(triangles).write(shape.triangles_len(), what)?,
    })
});

launch_piece!(WhitenedWgmma, Piece<'_>, FeaturesArgs, "warpgroup_features", |launch, _grid, what| {
    let (WhitenedWgmma { shape, features, .. }, piece) = (launch.kernels, &launch.piece);
    require(what, piece.columns.d() == shape.d as usize)?;
    Ok(FeaturesArgs {
        shape: *shape,
        columns: piece.columns.argument(0),
        features: features.of_piece(piece)?.write(shape.features_len(piece.columns.n()), what)?,
    })
});

launch_piece!(WhitenedWgmma, Piece<'_>, WhitenArgs, "warpgroup_whiten", |launch, grid, what| {
    let (WhitenedWgmma { shape, shapes, features, triangles, .. }, piece) = (launch.kernels, &launch.piece);
    let (n, (k, _), [_, shifts, constants, _]) = (piece.columns.n(), shapes.dim(), shapes.sections());
    require(what, WHITEN_BLOCKS.contains(&grid.threads) && grid.blocks.1 as usize >= shape.groups())?;
    grid.require_shared(what, shape.whiten_bytes())?;
    Ok(WhitenArgs {
        shape: *shape,
        n: n as u64,
        group_units: shape.group_units() as u32,
        features: features.of_piece(piece)?.read(shape.features_len(n), what)?,
        triangles: Numbers::of(triangles).read(shape.triangles_len(), what)?,
        shifts: launch.parameters.part(shifts)?.read(k * shape.width(), what)?,
        constants: launch.parameters.part(constants)?.read(2 * k, what)?,
        q: piece.exponents.argument(shape.rows(), n.next_multiple_of(TILE))?.q,
    })
});

launch_piece!(WhitenedWgmma, Piece<'_>, NormaliseArgs, "warpgroup_normalise", |launch, grid, what| {
    let (WhitenedWgmma { shape, shapes, weighted, .. }, piece) = (launch.kernels, &launch.piece);
    let (columns, [.., weights]) = (piece.columns, shapes.sections());
    grid.require_shared(what, FINISH_SHARED_BYTES)?;
    Ok(NormaliseArgs {
        shape: *shape,
        columns: columns.argument(0),
        weights: launch.parameters.part(weights)?.read(shape.k as usize, what)?,
        sample_weights: columns.weights_if(*weighted),
        exponents: piece.exponents.argument(shape.rows(), columns.n().next_multiple_of(TILE))?,
        output: piece.output.argument(grid.blocks.0)?,
    })
});

launch_piece!(WhitenedWgmma, Piece<'_>, RespondArgs, "warpgroup_respond", |launch, grid, what| {
    let (WhitenedWgmma { shape, shapes, features, responsibilities, .. }, piece) = (launch.kernels, &launch.piece);
    let (n, (slices, sums), [.., weights]) = (piece.columns.n(), piece.others, shapes.sections());
    require(what, piece.exponents.stride.is_multiple_of(TILE))?;
    require(what, grid.threads == RESPOND_BLOCK && grid.blocks == (shape.respond_groups(), slices as u32))?;
    grid.require_shared(what, shape.respond_bytes())?;
    Ok(RespondArgs {
        shape: *shape,
        n: n as u64,
        features: features.of_piece(piece)?.read(shape.features_len(n), what)?,
        exponents: piece.exponents.argument(shape.rows(), n.next_multiple_of(TILE))?,
        weights: launch.parameters.part(weights)?.read(shape.rows(), what)?,
        responsibilities: Numbers::of(responsibilities).write(shape.responsibilities_len(n), what)?,
        slices: slices as u32,
        add: piece.add.into(),
        sums: sums.write(slices * shape.respond_sums(), what)?,
    })
});

launch_piece!(WhitenedWgmma, Piece<'_>, OuterArgs, "warpgroup_outer", |launch, grid, what| {
    let (WhitenedWgmma { shape, features, responsibilities, .. }, piece) = (launch.kernels, &launch.piece);
    let (n, slices) = (piece.columns.n(), piece.slices);
    require(what, grid.threads == OUTER_BLOCK && grid.blocks == (shape.outer_blocks(), slices as u32))?;
    grid.require_shared(what, shape.outer_bytes())?;
    Ok(OuterArgs {
        shape: *shape,
        n: n as u64,
        features: features.of_piece(piece)?.read(shape.features_len(n), what)?,
        responsibilities: Numbers::of(responsibilities).read(shape.responsibilities_len(n), what)?,
        slices: slices as u32,
        add: piece.add.into(),
        sums: piece.sums.write(slices * shape.outer_sums(), what)?,
    })
});
