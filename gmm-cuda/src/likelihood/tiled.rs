//! `tiled`: any K and D, sample weights, scores, exponents for the E-step.
use super::exponents::Exponents;
use super::launch::{LikelihoodKernels, Sets, Work};
use super::layout::{self, form};
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::{Grid, Kernel};
use crate::device::launch::launch;
use crate::device::memory::Numbers;
use crate::device::require;
use crate::device::samples::Columns;
use crate::device::stream::Running;
use crate::device::workspace::{Output, Workspace};
use crate::plan::family::{Facts, Family, Variant, fitting};
use crate::plan::task::{Covariance, Operation, Shape, Task};
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::Result;
use gmm_kernels::entries;
use gmm_kernels::likelihood::tiled::{self, Form, TiledArgs, WARP_SAMPLES, shared_bytes};
use gmm_kernels::simt::WARP;
use std::ptr;
use std::sync::Arc;

/// `tiled`: totals and scores of any shape, in tiles of eight or sixteen components, or rows of a triangle. Its split is
/// the warps of a block along the components; with tiles of sixteen, sixteen times as much.
pub static TILED: TiledFamily = TiledFamily;
pub struct TiledFamily;

/// Returns the rows of a tile, and the warps of a block along the components.
fn tile(shape: Shape) -> (usize, u32) {
    if shape.split < 16 { (8, shape.split) } else { (16, shape.split / 16) }
}

impl Family for TiledFamily {
    fn facts(&self) -> Facts {
        let about = "totals and scores in tiles of components, or of rows of a triangle";
        let complete = Facts::complete("tiled", about, &[Operation::Total, Operation::Scores]);
        Facts { gaps: true, always_has_split: true, linear: true, ..complete }
    }

    fn sizes(&self) -> String {
        "any".into()
    }

    fn limit(&self, _: &Task, _: &Limits) -> Option<String> {
        None
    }

    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape> {
        let of_rows = |rows: usize| {
            let tiles = if form(task) == Form::Full { task.k } else { task.k.div_ceil(rows) } as u32;
            let across = move |block: u32| [1, 2, 4, 8].into_iter().filter(move |a| *a <= tiles && *a <= block / WARP);
            let split = move |across: u32| if rows == 8 { across } else { 16 * across };
            let all = [(64, 4), (128, 2), (128, 3), (128, 4), (128, 6), (256, 1), (256, 2)];
            let shapes = |(block, per)| across(block).map(move |a| Shape::new(split(a), block, per));
            fitting(self, all.into_iter().flat_map(shapes).collect(), task, limits)
        };
        if task.gaps { of_rows(8) } else { [of_rows(16), of_rows(8)].concat() }
    }

    fn is_launchable(&self, shape: Shape) -> bool {
        let (warps, (_, across)) = (shape.block / WARP, tile(shape));
        let whole = shape.split < 16 || shape.split.is_multiple_of(16);
        whole && warps.is_multiple_of(across) && (warps / across).is_power_of_two()
    }

    fn samples_of_block(&self, shape: Shape) -> usize {
        Tiled::block_samples(shape.block, tile(shape).1)
    }

    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize {
        let (rows, across) = tile(shape);
        shared_bytes(rows, form(task), task.d, shape.block, across)
    }

    fn likelihoods(&self, gpu: &Gpu, variant: Variant, task: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        let (rows, across) = tile(variant.shape);
        let part = |task: Task, across: u32| -> Result<Part> {
            let kernel = gpu.kernel(&entries::tiled(rows, form(&task)), None)?;
            let block = variant.shape.block;
            let most = variant.most_blocks(task.n, Tiled::block_samples(block, across), gpu.limits.multiprocessors);
            let grid = Grid::new(most, block, shared_bytes(rows, form(&task), task.d, block, across));
            Ok(Part { kernel, task, rows, across, grid })
        };
        // The quadratic terms of a score are that of one component without a constant.
        let one = Task { covariance: Covariance::Tied, k: 1, ..*task };
        let quadratic = task.is_linear() && task.operation == Operation::Scores;
        let quadratic = quadratic.then(|| part(one, 1)).transpose()?;
        Ok(Arc::new(Ready { quadratic, whole: part(*task, across)?, cached_quads: variant.cached_quads(task.d) }))
    }
}

#[derive(Debug)]
struct Ready {
    /// The launch that comes before, for the scores of linear terms.
    quadratic: Option<Part>,
    whole: Part,
    cached_quads: u32,
}

/// A launch, and its part of the parameters.
#[derive(Debug)]
struct Part {
    kernel: Kernel<TiledArgs>,
    task: Task,
    rows: usize,
    across: u32,
    grid: Grid,
}

impl Part {
    /// Returns the number of its parameters.
    fn len(&self) -> usize {
        let (numbers, constants) = layout::tiled_lengths(self.task.k, self.task.d, self.rows, form(&self.task));
        numbers + constants
    }

    fn write(&self, set: &DeviceParameters<f32>, to: &mut [f32]) {
        layout::write_tiled(set, self.rows, form(&self.task), to);
    }
}

impl Ready {
    /// Returns the number of parameters of the launch before.
    fn before(&self) -> usize {
        self.quadratic.as_ref().map_or(0, Part::len)
    }
}

impl LikelihoodKernels for Ready {
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        let blocks = |part: &Part| part.grid.blocks.0 as usize;
        workspace.blocks.enlarge(blocks(&self.whole).max(self.quadratic.as_ref().map_or(0, blocks)))?;
        let set = &sets.apart()[0];
        workspace.parameters.fill(self.before() + self.whole.len(), |to| {
            let (before, to) = to.split_at_mut(self.before());
            self.whole.write(set, to);
            if let Some(part) = &self.quadratic {
                let (shift, weight, seed) = (vec![0.0; set.n_features], vec![1.0], vec![0.0]);
                part.write(&DeviceParameters { n_components: 1, shift, weight, seed, ..set.clone() }, before);
            }
        })
    }

    fn start<'a>(&self, work: Work<'a>, _: Sets<'_>) -> Result<Running<'a, ()>> {
        let Work { stream, workspace, columns, scores } = work;
        let launch = |part: &Part, first: usize| -> Result<Running<'a, ()>> {
            let likelihood = Tiled {
                columns,
                cached_quads: self.cached_quads,
                k: part.task.k,
                rows: part.rows,
                form: form(&part.task),
                across: part.across,
                parameters: workspace.parameters.device().part(first..first + part.len())?,
                weighted: part.task.weighted,
                scores,
                exponents: None,
                output: workspace.output(),
            };
            Ok(stream.launch(part.kernel, part.grid, likelihood)?.borrowed())
        };
        let before = self.quadratic.as_ref().map_or_else(|| Ok(stream.idle()), |part| launch(part, 0))?;
        Ok(before.followed_by(launch(&self.whole, self.before())?))
    }
}

#[derive(Clone, Copy)]
pub struct Tiled<'a> {
    pub columns: Columns<'a>,
    pub cached_quads: u32,
    pub k: usize,
    /// Components of a tile, or rows of a triangle's tile.
    pub rows: usize,
    pub form: Form,
    /// Warps of a block along the components.
    pub across: u32,
    /// As [`layout::write_tiled`] writes them: scales or triangles, then constants.
    pub parameters: Numbers<'a, f32>,
    /// Whether the total counts samples by their weights.
    pub weighted: bool,
    /// The place of each sample's log₂-likelihood, if requested; that of the quadratic terms before linear ones.
    pub scores: Option<Numbers<'a, f32>>,
    pub exponents: Option<Exponents<'a>>,
    pub output: Output<'a>,
}

impl Tiled<'_> {
    /// Returns the samples that a block of this many threads takes at a time.
    pub fn block_samples(threads: u32, across: u32) -> usize {
        (threads / WARP / across) as usize * WARP_SAMPLES
    }
}

launch!(Tiled<'_>, TiledArgs, "tiled", |launch, grid, what| {
    let (n, d, k, across) = (launch.columns.n(), launch.columns.d(), launch.k, launch.across);
    let (scales, constants) = layout::tiled_lengths(k, d, launch.rows, launch.form);
    require(what, across.is_power_of_two() && (grid.threads / WARP).is_multiple_of(across))?;
    grid.require_shared(what, shared_bytes(launch.rows, launch.form, d, grid.threads, across))?;
    let (full, tiles) = (launch.form == Form::Full, k.div_ceil(launch.rows));
    let samples = n.next_multiple_of(Tiled::block_samples(grid.threads, across));
    let components = if full { k } else { tiles * launch.rows };
    let exponents = match launch.exponents {
        Some(exponents) => exponents.argument(components, samples)?,
        None => tiled::Exponents { q: ptr::null_mut(), normalisers: ptr::null_mut(), stride: 0 },
    };
    Ok(TiledArgs {
        columns: launch.columns.argument(launch.cached_quads),
        d: d as u32,
        features: launch.form.features(d) as u32,
        tiles: if full { k } else { tiles } as u32,
        component_warps: across,
        scales_and_shifts: launch.parameters.read(scales, what)?,
        weights_and_seeds: launch.parameters.read_part(scales..scales + constants)?,
        sample_weights: launch.columns.weights_if(launch.weighted),
        samples: Numbers::write_if(launch.scores, n, what)?,
        exponents,
        output: launch.output.argument(grid.blocks.0)?,
    })
});
