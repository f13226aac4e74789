//! `weighted_sums`: the E-step for any K and D. `tiled` writes the exponents of a piece of the samples, `weighted_sums`
//! adds up the samples weighted by responsibilities, slice by slice, and `reduce_slices` adds up the slices.
use super::launch::{EStepKernels, Wanted};
use super::layouts::Layouts;
use super::pieces::{Division, InPieces, Launcher, Piece, PieceKernels, launch_piece};
use super::sums::Sums;
use super::weighted_sums_layout::{pairs, parameters, shape};
use crate::device::gpu::{Gpu, Limits, REGISTERS};
use crate::device::kernel::{Grid, Kernel};
use crate::device::memory::{Numbers, copied};
use crate::device::require;
use crate::device::stream::Running;
use crate::likelihood::Tiled;
use crate::likelihood::layout::form;
use crate::plan::family::{Facts, Family, Variant, at_most, no_room};
use crate::plan::task::{Operation, Shape, Task};
use gmm_core::error::{Error, Result};
use gmm_core::statistics::Statistics;
use gmm_driver::DeviceBuffer;
use gmm_kernels::entries;
use gmm_kernels::estep::weighted_sums::{self, PatchShape, WeightedSumsArgs};
use gmm_kernels::likelihood::tiled::{self, TiledArgs};
use gmm_kernels::simt::WARP;

const TILED_BLOCK: u32 = 128;
/// Most bytes of the exponents of a piece, unless a piece that keeps the device busy has more: about half of a large
/// device's L2 cache, from which they are read again. In tests few samples make several pieces.
const EXPONENT_BYTES: usize = if cfg!(test) { 1 << 10 } else { 64 << 20 };
const WEIGHTED_SUMS_REGISTERS: u32 = 168;
/// Most features of matrices. With more, `general` is faster (measured on an H200, an iteration: N = 10⁵, D = 300, K = 4:
/// 30 ms, `general` 11; N = 50,000, D = 784, K = 2: 244 and 45; but D = 200, K = 32: 34 and 38).
const MAX_FEATURES_OF_MATRICES: usize = 200;
/// Least stages of a slice.
const MIN_SLICE: usize = 8;

/// `weighted_sums`: the E-step of any shape in float32. Its split is the rows of a tile of the kernel before it, and
/// its block the most threads of one.
pub static WEIGHTED_SUMS: WeightedSumsFamily = WeightedSumsFamily;
pub struct WeightedSumsFamily;

impl Family for WeightedSumsFamily {
    fn facts(&self) -> Facts {
        let about = "the E-step in float32, from the exponents of `tiled`";
        Facts { large_memory: true, ..Facts::complete("weighted_sums", about, &[Operation::EStep]) }
    }

    fn sizes(&self) -> String {
        format!("any, as shared memory allows; of matrices D ≤ {MAX_FEATURES_OF_MATRICES}")
    }

    fn limit(&self, task: &Task, limits: &Limits) -> Option<String> {
        let large = task.full().then(|| at_most("features", MAX_FEATURES_OF_MATRICES, task.d)).flatten();
        large.or_else(|| no_room(task, |task| shape(task, 128, 0).shared_bytes() <= limits.shared_per_block))
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        // Rows of a tile of `tiled`, which is launched before `weighted_sums`.
        let rows = if task.full() && task.d <= 32 || !task.full() && task.k <= 8 { 8 } else { 16 };
        // The fastest of 64, 128, 192 and 256 threads on an H200 comes first.
        let threads = if task.full() { [128, 192, 256] } else { [192, 128, 256] };
        let of = |threads: u32| {
            let block = shape(task, threads as usize, limits.shared_per_block).block();
            Shape::new(rows, threads, (REGISTERS / (WEIGHTED_SUMS_REGISTERS * block)).clamp(1, 64))
        };
        let few = if task.is_long() { 3 } else { 1 };
        threads[..few].iter().map(|threads| of(*threads)).collect()
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        matches!(shape.split, 8 | 16)
    }

    fn shared_bytes(&self, task: &Task, launch: Shape) -> usize {
        // With two stages, the fewest that the kernel can use.
        shape(task, launch.block as usize, 0).shared_bytes()
    }

    fn is_central(&self, layouts: &Layouts<'_>) -> bool {
        layouts.weighted_sums().central()
    }

    fn e_step(&self, gpu: &Gpu, variant: Variant, task: &Task, _same: bool) -> Result<Box<dyn EStepKernels>> {
        WeightedSums::boxed(gpu, variant, task)
    }
}

#[derive(Debug)]
struct WeightedSums {
    tiled: Kernel<TiledArgs>,
    weighted_sums: Kernel<WeightedSumsArgs>,
    task: Task,
    /// Rows of a tile of `tiled`.
    rows: usize,
    shape: PatchShape,
    /// Warps of a block of `tiled` along the components.
    across: u32,
    /// Pair and quad of features of each patch, if patches are pairs.
    pairs: DeviceBuffer<u32>,
}

impl WeightedSums {
    /// Prepares the kernels for up to `task.n` samples at once. The device's context is current. [`Error::Unsupported`]
    /// if a stage of samples does not fit into shared memory.
    fn boxed(gpu: &Gpu, variant: Variant, task: &Task) -> Result<Box<dyn EStepKernels>> {
        let (Task { n, k, d, central, .. }, full) = (*task, task.full());
        let rows = variant.shape.split as usize;
        let kernel = gpu.kernel(&entries::weighted_sums(full, central), Some(WEIGHTED_SUMS_REGISTERS))?;
        let shape = shape(task, variant.shape.block as usize, kernel.most_shared());
        let shared = shape.shared_bytes();
        if shared > kernel.most_shared() {
            return Err(Error::Unsupported {
                what: format!("an E-step with {d} features and covariance matrices"),
                backend: "the CUDA backend",
                remedy: "use the device `cpu`, or covariances of type `diag`",
            });
        }
        // As many blocks of `tiled` as their registers allow.
        let per_multiprocessor = if rows == 8 { 4 } else { 2 };
        let groups = if full { k } else { k.div_ceil(rows) };
        let across = (groups.min((TILED_BLOCK / WARP) as usize)).next_power_of_two() as u32;
        let across = if across as usize > groups { across / 2 } else { across };
        let per_block = Tiled::block_samples(TILED_BLOCK, across);
        let multiprocessors = gpu.limits.multiprocessors;
        let blocks = multiprocessors * per_multiprocessor;
        let components = k.next_multiple_of(16);
        let most = EXPONENT_BYTES / size_of::<f32>() / components;
        let resident = variant.shape.per_multiprocessor.min(gpu.limits.blocks_by_shared(shared)).max(1);
        let division = Division {
            n,
            piece: Division::piece(n, most, blocks as usize * per_block, per_block),
            granularity: weighted_sums::STAGE,
            min_slice: MIN_SLICE,
            slices: (multiprocessors * resident).div_ceil(shape.blocks()) as usize,
            blocks,
            rows: components,
            sums: shape.sums(),
            others: (0, 0),
        };
        let pairs = if full { pairs(d) } else { vec![[0; 2]] };
        let kernels = Self {
            tiled: gpu.kernel(&entries::tiled(rows, form(task)), None)?,
            weighted_sums: kernel,
            task: *task,
            rows,
            shape,
            across,
            pairs: copied(pairs.as_flattened())?,
        };
        InPieces::boxed(gpu, kernels, division)
    }
}

impl PieceKernels for WeightedSums {
    fn len(&self) -> usize {
        let [.., centres] = parameters(&self.task, self.rows);
        centres.end
    }

    fn write(&self, layouts: &Layouts<'_>, out: &mut [f32]) {
        layouts.weighted_sums().write(&self.task, self.rows, out);
    }

    fn start<'a>(&'a self, at: Launcher<'a, Self, ()>) -> Result<Running<'a, ()>> {
        Ok(at.stream.idle())
    }

    fn start_piece<'a>(&'a self, at: Launcher<'a, Self, Piece<'a>>, _: Wanted) -> Result<Running<'a, ()>> {
        let Piece { columns, exponents, blocks, output, slices, .. } = at.piece;
        let [likelihood, ..] = parameters(&self.task, self.rows);
        let likelihoods = Tiled {
            columns,
            cached_quads: u32::MAX,
            k: self.task.k,
            rows: self.rows,
            form: form(&self.task),
            across: self.across,
            parameters: at.parameters.part(likelihood)?,
            weighted: self.task.weighted,
            scores: None,
            exponents: Some(exponents),
            output,
        };
        let blocks = columns.n().div_ceil(Tiled::block_samples(TILED_BLOCK, self.across)).min(blocks as usize) as u32;
        let shared = tiled::shared_bytes(self.rows, form(&self.task), self.task.d, TILED_BLOCK, self.across);
        let running = at.stream.launch(self.tiled, Grid::new(blocks, TILED_BLOCK, shared), likelihoods)?.borrowed();
        let shape = &self.shape;
        let grid = Grid::new(shape.blocks(), shape.block(), shape.shared_bytes()).slices(slices);
        Ok(running.followed_by(at.launch(self.weighted_sums, grid)?))
    }

    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics> {
        Statistics::from_centred_sums(layouts.weighted_sums().centred_sums(&self.task, sums))
    }
}

// Columns and exponents extend to whole stages of samples, since their strides are multiples of these.
launch_piece!(WeightedSums, Piece<'_>, WeightedSumsArgs, "weighted_sums", |launch, grid, what| {
    let (WeightedSums { task, rows, shape, pairs, .. }, piece) = (launch.kernels, &launch.piece);
    let PatchShape { d, tiles, patches, full, central, .. } = *shape;
    let [_, weights, centres] = parameters(task, *rows);
    let components = tiles as usize * weighted_sums::COMPONENTS;
    let samples = piece.columns.n().next_multiple_of(weighted_sums::STAGE);
    require(what, piece.columns.d() == d as usize && piece.columns.stride() >= samples)?;
    require(what, grid.blocks == (shape.blocks(), piece.slices as u32))?;
    grid.require_shared(what, shape.shared_bytes())?;
    let centres = launch.parameters.part(centres)?;
    Ok(WeightedSumsArgs {
        shape: *shape,
        columns: piece.columns.argument(u32::MAX),
        exponents: piece.exponents.argument(components, samples)?,
        weights: launch.parameters.part(weights)?.read(components, what)?,
        centres: centres.read(if central { components * d as usize } else { 0 }, what)?,
        pairs: Numbers::of(pairs).read(if full { 2 * patches as usize } else { 0 }, what)?,
        slices: piece.slices as u32,
        add: piece.add.into(),
        sums: piece.sums.write(piece.slices * shape.sums(), what)?,
    })
});
