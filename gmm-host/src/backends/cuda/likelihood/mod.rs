//! Log-likelihoods in float32: totals, totals of many parameter sets, and scores, by the kernels of
//! `gmm_kernels::likelihood`.
mod batch;
mod batch_parameters;
mod batch_tensor_cores;
pub(crate) mod batch_tensor_cores_layout;
mod exp2_bias;
pub(crate) mod layout;
mod pair;
pub(crate) mod small_k;
mod tiled;

use super::device::gpu::Gpu;
use super::device::kernel::{Grid, Kernel};
use super::device::memory::{Numbers, Workspace, enlarge};
use super::device::mismatch;
use super::device::samples::{Columns, MAX_TOTALS};
use super::device::stream::{Running, Stream};
use super::plan::timing::Trial;
use super::plan::{Family, Operation, Task, Variant};
use crate::backends::device_parameters::DeviceParameters;
use crate::{Error, Result};
use gmm_kernels::entries;
use gmm_kernels::likelihood::batch::BatchArgs;
use gmm_kernels::likelihood::batch_parameters::BatchParametersArgs;
use gmm_kernels::likelihood::batch_tensor_cores::{BatchTensorCoresArgs, SETS, steps};
use gmm_kernels::likelihood::pair::PairArgs;
use gmm_kernels::likelihood::tiled::TiledArgs;
use gmm_kernels::reduce::sets::ReduceSetsArgs;

/// The parameter sets of a launch.
#[derive(Debug, Clone, Copy)]
pub enum Sets<'a> {
    /// Each with all of its parameters.
    Apart(&'a [DeviceParameters<f32>]),
    /// For `batch_tensor_cores` and `batch_warpgroup`.
    Near(NearSets<'a>),
}

impl Sets<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Apart(sets) => sets.len(),
            Self::Near(near) => near.sets.len(),
        }
    }
}

/// A variant made ready for a device and a task: its kernels compiled, its grid computed.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub variant: Variant,
    task: Task,
    kernels: Kernels,
    blocks: u32,
    shared: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kernels {
    SmallK(small_k::Kernels),
    /// The kernel that gives each block's sums, and the one that adds them up.
    Batch(Kernel<BatchArgs>, Kernel<ReduceSetsArgs>),
    /// As `Batch`, behind the kernel that makes the parameters.
    BatchTensorCores(Kernel<BatchParametersArgs>, Kernel<BatchTensorCoresArgs>, Kernel<ReduceSetsArgs>),
    Tiled(Kernel<TiledArgs>),
    Pair(Kernel<PairArgs>),
}

impl Plan {
    /// Compiles the kernels if need be. The device's context is current.
    ///
    /// # Errors
    /// [`Error::Kernel`] for a variant that cannot do the task on this device.
    pub fn new(gpu: &Gpu, variant: Variant, task: &Task) -> Result<Self> {
        let Variant { family, .. } = variant;
        let shared = variant.shared_bytes(task);
        let too_much = || format!("needs {shared} bytes of shared memory here, more than the device has");
        let problem =
            family.problem(task, &gpu.limits).or_else(|| (shared > gpu.limits.shared_per_block).then(too_much));
        if let Some(problem) = problem {
            return Err(Family::error(variant.to_string(), problem, task, &gpu.limits));
        }
        let (d, registers) = (task.d, family.max_registers(task));
        let kernels = match family {
            Family::SmallK => Kernels::SmallK(small_k::Kernels::new(gpu, d, small_k::kind(task), registers)?),
            Family::Batch => {
                Kernels::Batch(gpu.kernel(&entries::batch(d), registers)?, gpu.kernel(&entries::reduce_sets(), None)?)
            }
            Family::BatchTensorCores | Family::BatchWarpgroup => {
                let entry = match family {
                    Family::BatchWarpgroup => entries::batch_warpgroup(steps(d), task.k),
                    _ => entries::batch_tensor_cores(steps(d)),
                };
                let (parameters, reduce) =
                    (gpu.kernel(&entries::batch_parameters(), None)?, gpu.kernel(&entries::reduce_sets(), None)?);
                Kernels::BatchTensorCores(parameters, gpu.kernel(&entry, registers)?, reduce)
            }
            Family::Tiled8 | Family::Tiled16 => {
                Kernels::Tiled(gpu.kernel(&entries::tiled(family.rows(), task.full, task.gaps), registers)?)
            }
            Family::Pair => Kernels::Pair(gpu.kernel(&entries::pair(), registers)?),
            Family::Fused
            | Family::FusedTensorCores
            | Family::TensorCores
            | Family::Warpgroup
            | Family::WarpgroupWhitened
            | Family::Whitened
            | Family::WeightedSums
            | Family::General => {
                let problem = "is not a kernel for log-likelihoods alone".into();
                return Err(Error::Kernel { name: variant.to_string(), problem, available: String::new() });
            }
        };
        let blocks = variant.blocks(task.n, gpu.limits.multiprocessors);
        Ok(Self { variant, task: *task, kernels, blocks, shared })
    }

    /// Makes a workspace ready for these parameter sets: parameters as the kernel reads them, and
    /// room for its sums.
    pub fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        self.check(sets)?;
        let Task { k, d, full, gaps, .. } = self.task;
        let blocks = self.blocks as usize;
        match self.variant.family {
            Family::Batch | Family::BatchTensorCores | Family::BatchWarpgroup => {
                enlarge(&mut workspace.partials, blocks * sets.len().next_multiple_of(SETS))?;
            }
            _ => workspace.blocks.enlarge(blocks)?,
        }
        let sets = match sets {
            Sets::Near(near) => return near.prepare(workspace),
            Sets::Apart(sets) => sets,
        };
        match self.variant.family {
            // The other parameters are part of the kernel's argument.
            Family::SmallK => {
                let len = small_k::kind(&self.task).triangles(d, k);
                workspace.parameters.fill(len, |to| layout::small_k_triangles(&sets[0], to))
            }
            Family::Batch => workspace.parameters.fill(batch::parameters(k, d, sets.len()), |to| {
                batch::write(sets, to);
            }),
            Family::Pair => {
                let width = layout::pair_row(d);
                workspace.parameters.fill(k * width, |to| layout::component_rows(&sets[0], width, to))
            }
            family => {
                let (scales, constants) = layout::tiled_lengths(k, d, family.rows(), full, gaps);
                workspace.parameters.fill(scales + constants, |to| {
                    let (scales, constants) = to.split_at_mut(scales);
                    layout::write_tiles(&sets[0], family.rows(), scales, constants);
                })
            }
        }
    }

    /// Starts the evaluation of the parameter sets that the workspace was made ready for; their
    /// totals are written to its first slots, and with `scores` each sample's log₂-likelihood to
    /// those.
    pub fn start<'a>(
        &self,
        stream: &'a Stream,
        workspace: &'a Workspace,
        columns: Columns<'a>,
        sets: Sets<'_>,
        scores: Option<Numbers<'a, f32>>,
    ) -> Result<Running<'a, ()>> {
        self.check(sets)?;
        let Task { k, d, .. } = self.task;
        if columns.d() != d {
            return Err(mismatch("the samples' columns", vec![d], vec![columns.d()]));
        }
        workspace.totals.clear(sets.len());
        let (output, parameters) = (workspace.output(), workspace.parameters.device());
        let grid = Grid::new(self.blocks, self.variant.block, self.shared);
        let cached_quads = self.variant.cached_quads(d);
        match (self.kernels, sets) {
            (Kernels::SmallK(kernels), Sets::Apart(sets)) => {
                let memory = small_k::Memory { columns, cached_quads, triangles: parameters, output };
                kernels.start(stream, grid, small_k::kind(&self.task), &sets[0], memory)
            }
            (Kernels::Batch(kernel, reduce), _) => {
                let group = self.variant.group(k, d).min(sets.len());
                let sums = batch::Batch {
                    columns,
                    cached_quads,
                    parameters,
                    sets: sets.len(),
                    group,
                    k,
                    partials: Numbers::of(&workspace.partials),
                };
                let running = stream.launch(kernel, sums.grid(self.blocks, self.variant.block), sums)?;
                Ok(running.followed_by(self.reduce(stream, reduce, workspace, sets.len())?).borrowed())
            }
            (Kernels::BatchTensorCores(of_parameters, kernel, reduce), Sets::Near(near)) => {
                let started = near.start(of_parameters, stream, workspace)?;
                let sums = batch_tensor_cores::BatchTensorCores {
                    columns,
                    cached_quads,
                    parameters: Numbers::of(&workspace.batch_parameters),
                    sets: near.sets.len(),
                    part: self.variant.split as usize,
                    k,
                    warpgroups: self.variant.family == Family::BatchWarpgroup,
                    partials: Numbers::of(&workspace.partials),
                };
                let running =
                    started.followed_by(stream.launch(kernel, sums.grid(self.blocks, self.variant.block), sums)?);
                Ok(running.followed_by(self.reduce(stream, reduce, workspace, near.sets.len())?).borrowed())
            }
            (Kernels::Tiled(kernel), _) => {
                let likelihood = tiled::Tiled {
                    columns,
                    cached_quads,
                    k,
                    rows: self.variant.family.rows(),
                    full: self.task.full,
                    gaps: self.task.gaps,
                    across: self.variant.split,
                    parameters,
                    weighted: self.task.weighted,
                    scores,
                    exponents: None,
                    output,
                };
                Ok(stream.launch(kernel, grid, likelihood)?.borrowed())
            }
            (Kernels::Pair(kernel), _) => {
                let pair = pair::Pair { columns, k, parameters, scores, output };
                Ok(stream.launch(kernel, grid, pair)?.borrowed())
            }
            // `check` has found that they belong together.
            (Kernels::SmallK(_), Sets::Near(_)) | (Kernels::BatchTensorCores(..), Sets::Apart(_)) => Err(self.wrong()),
        }
    }

    /// Starts to add up the blocks' sums of so many sets.
    fn reduce<'a>(
        &self,
        stream: &'a Stream,
        kernel: Kernel<ReduceSetsArgs>,
        workspace: &'a Workspace,
        sets: usize,
    ) -> Result<Running<'a, ReduceSets<'a>>> {
        let reduction = ReduceSets {
            partials: Numbers::of(&workspace.partials),
            count: self.blocks as usize,
            totals: Totals::Slots(&workspace.totals, sets),
        };
        stream.launch(kernel, reduction.grid(sets), reduction)
    }

    /// Checks that one launch can evaluate these sets.
    fn check(&self, sets: Sets<'_>) -> Result<()> {
        let Task { k, d, .. } = self.task;
        let family = self.variant.family;
        let most = if family.operations().contains(&Operation::Totals) { MAX_TOTALS } else { 1 };
        if sets.len() == 0 || sets.len() > most {
            return Err(mismatch("the parameter sets of a launch", vec![most], vec![sets.len()]));
        }
        if matches!(sets, Sets::Near(_)) != family.compares_sets() {
            return Err(self.wrong());
        }
        let other = match sets {
            Sets::Apart(sets) => sets.iter().map(|p| (p.n_components, p.n_features)).find(|shape| *shape != (k, d)),
            Sets::Near(NearSets { reference, sets, .. }) => {
                std::iter::once(reference).chain(sets).map(|m| m.means().dim()).find(|shape| *shape != (k, d))
            }
        };
        match other {
            Some((of_k, of_d)) => Err(mismatch("a mixture", vec![k, d], vec![of_k, of_d])),
            None => Ok(()),
        }
    }

    /// The error for sets that are not as this variant takes them.
    fn wrong(&self) -> Error {
        Error::Kernel {
            name: self.variant.to_string(),
            problem: "takes other parameters".into(),
            available: String::new(),
        }
    }
}

pub use batch::{ReduceSets, Totals};
pub use batch_parameters::NearSets;
pub use exp2_bias::exp2_bias;
pub use tiled::{Exponents, Tiled};

/// The evaluation by which variants are timed.
pub struct LikelihoodTrial<'a> {
    pub gpu: &'a Gpu,
    pub task: Task,
    pub stream: &'a Stream,
    pub workspace: Workspace,
    pub columns: Columns<'a>,
    pub sets: &'a [DeviceParameters<f32>],
    /// The same sets, for the kernels that compare them to a reference; None where none is asked
    /// for.
    pub near: Option<NearSets<'a>>,
    pub scores: Option<Numbers<'a, f32>>,
    /// The plan that was made ready, and for how many samples.
    pub plan: Option<(Plan, usize)>,
}

impl<'a> LikelihoodTrial<'a> {
    /// The sets as a variant takes them.
    fn sets(&self, variant: Variant) -> Sets<'a> {
        self.near.filter(|_| variant.family.compares_sets()).map_or(Sets::Apart(self.sets), Sets::Near)
    }
}

impl Trial for LikelihoodTrial<'_> {
    fn prepare(&mut self, variant: Variant, n: usize) -> Result<()> {
        let plan = Plan::new(self.gpu, variant, &Task { n, ..self.task })?;
        let sets = self.sets(variant);
        plan.prepare(&mut self.workspace, sets)?;
        self.workspace.parameters.send(self.stream)?.wait()?;
        self.plan = Some((plan, n));
        Ok(())
    }

    fn seconds(&mut self, repeats: u32) -> Result<f64> {
        let Some((plan, n)) = self.plan else { return Ok(f64::INFINITY) };
        let columns = self.columns.part(0, n)?;
        let sets = self.sets(plan.variant);
        seconds(self.stream, repeats, || plan.start(self.stream, &self.workspace, columns, sets, self.scores))
    }
}

/// Seconds of what `start` puts into the stream, the mean over `repeats` times of it back to back.
pub fn seconds<'s>(
    stream: &'s Stream,
    repeats: u32,
    mut start: impl FnMut() -> Result<Running<'s, ()>>,
) -> Result<f64> {
    let all = stream.seconds(|| {
        let mut running = stream.idle();
        for _ in 0..repeats {
            running = running.followed_by(start()?);
        }
        Ok(running)
    })?;
    Ok(all / f64::from(repeats))
}
