//! Log-likelihoods in float32 by the kernels of `gmm_kernels::likelihood`: totals, also of many sets, and scores.
pub(crate) mod batch;
pub(crate) mod batch_mma;
pub(crate) mod batch_mma_layout;
mod batch_parameters;
mod exp2_bias;
mod exponents;
pub(crate) mod launch;
pub(crate) mod layout;
pub(crate) mod pair;
mod reduce_sets;
pub(crate) mod small_k;
pub(crate) mod tiled;

use super::device::gpu::Gpu;
use super::device::memory::Numbers;
use super::device::mismatch;
use super::device::samples::{Columns, MAX_TOTALS};
use super::device::stream::{Running, Stream, seconds};
use super::device::workspace::Workspace;
use super::families;
use super::plan::family::Variant;
use super::plan::task::{Operation, Task};
use super::plan::timing::Trial;
pub use batch_parameters::NearSets;
pub use exp2_bias::exp2_bias;
pub use exponents::Exponents;
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::{Error, Result};
use launch::LikelihoodKernels;
pub use launch::{Sets, Work};
pub use reduce_sets::{ReduceSets, Totals};
use std::sync::Arc;
pub use tiled::Tiled;

/// A variant made ready for a device and a task.
#[derive(Debug, Clone)]
pub struct Plan {
    pub variant: Variant,
    task: Task,
    kernels: Arc<dyn LikelihoodKernels>,
}

impl Plan {
    /// Compiles the kernels. The device's context is current. [`Error::Kernel`] if the variant cannot do the task here.
    pub fn new(gpu: &Gpu, variant: Variant, task: &Task) -> Result<Self> {
        let shared = variant.shared_bytes(task);
        let too_much = || format!("needs {shared} bytes of shared memory here, more than the device has");
        let problem =
            variant.family.problem(task, &gpu.limits).or_else(|| (shared > gpu.limits.shared_per_block).then(too_much));
        if let Some(problem) = problem {
            return Err(families::error(variant.to_string(), problem, task, &gpu.limits));
        }
        Ok(Self { variant, task: *task, kernels: variant.family.likelihoods(gpu, variant, task)? })
    }

    /// Prepares a workspace for these parameter sets: parameters as the kernels read them, and room for sums.
    pub fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()> {
        self.check(sets)?;
        self.kernels.prepare(workspace, sets)
    }

    /// Evaluates the prepared parameter sets; totals go to the workspace's first slots, log₂-likelihoods to `scores`.
    pub fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>> {
        self.check(sets)?;
        if work.columns.d() != self.task.d {
            return Err(mismatch("the samples' columns", vec![self.task.d], vec![work.columns.d()]));
        }
        work.workspace.totals.clear(sets.len());
        self.kernels.start(work, sets)
    }

    /// Checks that one launch can evaluate these sets.
    fn check(&self, sets: Sets<'_>) -> Result<()> {
        let Task { k, d, .. } = self.task;
        let family = self.variant.family;
        let most = if family.has(Operation::Totals) { MAX_TOTALS } else { 1 };
        if sets.len() == 0 || sets.len() > most {
            return Err(mismatch("the parameter sets of a launch", vec![most], vec![sets.len()]));
        }
        if matches!(sets, Sets::Near(_)) != family.facts().compares_sets {
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

    fn wrong(&self) -> Error {
        Error::Kernel {
            name: self.variant.to_string(),
            problem: "takes other parameters".into(),
            available: String::new(),
        }
    }
}

/// The evaluation by which variants are timed.
pub struct LikelihoodTrial<'a> {
    pub gpu: &'a Gpu,
    pub task: Task,
    pub stream: &'a Stream,
    pub workspace: Workspace,
    pub columns: Columns<'a>,
    pub sets: &'a [DeviceParameters<f32>],
    /// The same sets, for the kernels that compare them to a reference, if there is one.
    pub near: Option<NearSets<'a>>,
    pub scores: Option<Numbers<'a, f32>>,
    /// The prepared plan, and its number of samples.
    pub plan: Option<(Plan, usize)>,
}

impl<'a> LikelihoodTrial<'a> {
    fn sets(&self, variant: Variant) -> Sets<'a> {
        self.near.filter(|_| variant.family.facts().compares_sets).map_or(Sets::Apart(self.sets), Sets::Near)
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
        let Some((plan, n)) = &self.plan else { return Ok(f64::INFINITY) };
        let columns = self.columns.part(0, *n)?;
        let sets = self.sets(plan.variant);
        seconds(self.stream, repeats, || {
            let (stream, workspace, scores) = (self.stream, &self.workspace, self.scores);
            plan.start(Work { stream, workspace, columns, scores }, sets)
        })
    }
}
