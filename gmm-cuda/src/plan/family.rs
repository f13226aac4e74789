//! The interface of a family of kernels: name, limits with reasons, shapes worth timing, and launches. A family is a
//! type in its own file that implements [`Family`]; [`families`](crate::families) lists them.
use super::task::{Multiplies, Operation, Shape, Task};
use crate::device::gpu::{Gpu, Limits};
use crate::device::kernel::Grid;
use crate::estep::launch::EStepKernels;
use crate::estep::layouts::Layouts;
use crate::likelihood::launch::LikelihoodKernels;
use gmm_core::error::{Error, Result};
use gmm_kernels::data::QUAD;
use gmm_kernels::simt::WARP;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CovarianceShapes {
    All,
    /// Types `diag` and `spherical`.
    Diagonals,
    /// Types `full` and `tied`.
    Matrices,
}

impl CovarianceShapes {
    /// Returns whether the family takes matrices, or diagonals.
    pub fn contain(self, matrices: bool) -> bool {
        self == Self::All || (self == Self::Matrices) == matrices
    }
}

/// The unit of a multiprocessor that multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The ordinary instructions, in float32 or float64.
    Cores,
    /// The tensor cores, by products of one warp: `mma`.
    Mma,
    /// The tensor cores of compute capability 9.0, by products of four warps: `wgmma`.
    Wgmma,
}

impl Unit {
    /// Returns why a device lacks it, if it does.
    fn problem(self, limits: &Limits) -> Option<String> {
        (self == Self::Wgmma && !limits.warpgroups).then(|| "needs a device of compute capability 9.0".into())
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cores => "cores",
            Self::Mma => "mma",
            Self::Wgmma => "wgmma",
        })
    }
}

/// The facts that do not depend on the task.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The name that a user requests: what it computes, and its unit unless that is [`Unit::Cores`].
    pub name: &'static str,
    pub unit: Unit,
    pub about: &'static str,
    pub operations: &'static [Operation],
    /// Whether it takes samples with missing values (under diagonal covariances).
    pub gaps: bool,
    pub covariances: CovarianceShapes,
    pub weights: bool,
    /// Whether its text form shows the split even if it is one.
    pub always_has_split: bool,
    /// Whether it computes the [linear](Task::is_linear) terms of `tied` mixtures.
    pub linear: bool,
    /// Whether it evaluates parameter sets by their differences from a reference.
    pub compares_sets: bool,
    /// Whether it sums some Σₖ wₖ·2^qₖ without taking out the maximum, so that the bias of the device's 2^x enters every
    /// sample's likelihood. (With the maximum taken out, the largest term is 2⁰, which is exact.)
    pub exp2_bias: bool,
    /// Whether memory rather than arithmetic bounds its time, so that it must be timed with all samples.
    pub timed_with_all_samples: bool,
    /// Whether its E-step holds so much memory that it is kept ready for one task only.
    pub large_memory: bool,
}

impl Facts {
    /// Returns the facts of a family of ordinary instructions for complete samples and all covariances and weights.
    pub const fn complete(name: &'static str, about: &'static str, operations: &'static [Operation]) -> Self {
        Self {
            name,
            unit: Unit::Cores,
            about,
            operations,
            gaps: false,
            covariances: CovarianceShapes::All,
            weights: true,
            always_has_split: false,
            linear: false,
            compares_sets: false,
            exp2_bias: false,
            timed_with_all_samples: false,
            large_memory: false,
        }
    }

    /// Returns the facts of a family for complete samples without weights, and diagonal covariances.
    pub const fn plain(name: &'static str, about: &'static str, operations: &'static [Operation]) -> Self {
        let complete = Self::complete(name, about, operations);
        Self { covariances: CovarianceShapes::Diagonals, weights: false, ..complete }
    }
}

/// A kernel, or several that work together. To add one, see CONTRIBUTING.md, "Kernels".
pub trait Family: Sync {
    fn facts(&self) -> Facts;

    /// Returns the numbers of components K and features D that it takes, in words.
    fn sizes(&self) -> String;

    /// Returns why it cannot do a task that its [`Facts`] allow, if it cannot.
    fn limit(&self, task: &Task, limits: &Limits) -> Option<String>;

    /// Returns the shapes worth timing, the likely best first.
    fn shapes(&self, task: &Task, limits: &Limits) -> Vec<Shape>;

    /// Returns the amounts of data to keep in the L2 cache (see [`Variant::cached`]), the likely best first.
    fn cached(&self, _: &Task, _: &Limits) -> Vec<Option<u32>> {
        vec![None]
    }

    /// Returns whether a shape of whole warps meets the kernels' requirements.
    fn is_launchable(&self, shape: Shape) -> bool {
        shape.split == 1
    }

    /// Returns the samples that a block takes at a time.
    fn samples_of_block(&self, shape: Shape) -> usize {
        shape.block as usize
    }

    /// Returns the bytes of dynamic shared memory of a launch.
    fn shared_bytes(&self, task: &Task, shape: Shape) -> usize;

    /// Returns what it multiplies on the tensor cores in an E-step of matrices (`full`) or diagonals, if anything.
    fn on_tensor_cores(&self, _full: bool) -> Option<Multiplies> {
        None
    }

    /// Prepares its kernels for log-likelihoods of a task. The context is current. [`Error::Kernel`] if it has none.
    fn likelihoods(&self, _: &Gpu, variant: Variant, _: &Task) -> Result<Arc<dyn LikelihoodKernels>> {
        let problem = "is not a kernel for log-likelihoods alone".into();
        Err(Error::Kernel { name: variant.to_string(), problem, available: String::new() })
    }

    /// Returns whether its E-step takes each component's moments around the component's centre for this mixture.
    fn is_central(&self, _: &Layouts<'_>) -> bool {
        false
    }

    /// Prepares its kernels of the E-step for up to `task.n` samples at once, or if `same`, for the same samples each
    /// time. The device's context is current. [`Error::Kernel`] if it has none.
    fn e_step(&self, _: &Gpu, variant: Variant, _: &Task, _same: bool) -> Result<Box<dyn EStepKernels>> {
        let problem = "has no E-step".into();
        Err(Error::Kernel { name: variant.to_string(), problem, available: String::new() })
    }
}

impl<'a> dyn Family + 'a {
    /// Returns why this family cannot do a task, if it cannot.
    pub fn problem(&self, task: &Task, limits: &Limits) -> Option<String> {
        let takes = self.facts();
        let refusal = if !takes.operations.contains(&task.operation) {
            "has no such operation"
        } else if task.gaps && !takes.gaps {
            "takes only samples without missing values"
        } else if task.is_linear() && !takes.linear {
            "does not compute linear terms alone"
        } else if !takes.covariances.contain(task.full()) {
            match takes.covariances {
                CovarianceShapes::Matrices => "takes only covariances of type full or tied",
                _ => "takes only covariances of type diag or spherical",
            }
        } else if task.weighted && !takes.weights {
            "takes only samples without weights"
        } else {
            return takes.unit.problem(limits).or_else(|| self.limit(task, limits));
        };
        Some(refusal.into())
    }

    pub fn name(&self) -> &'static str {
        self.facts().name
    }

    pub fn has(&self, operation: Operation) -> bool {
        self.facts().operations.contains(&operation)
    }
}

impl PartialEq for dyn Family + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Family + '_ {}

impl Hash for dyn Family + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for dyn Family + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns the text of an exceeded limit of features or components.
pub fn at_most(what: &str, most: usize, got: usize) -> Option<String> {
    (got > most).then(|| format!("takes at most {most} {what}, not {got}"))
}

/// Returns why a task has no room in shared memory, if it has none: its components if one would fit, or its features.
pub fn no_room(task: &Task, fits: impl Fn(&Task) -> bool) -> Option<String> {
    let Task { k, d, .. } = *task;
    let what = match fits(&Task { k: 1, ..*task }) {
        true => format!("as many as {k} components of {d} features"),
        false => format!("samples of {d} features"),
    };
    (!fits(task)).then(|| format!("cannot hold {what} in shared memory"))
}

/// Returns the shapes whose blocks all fit on a multiprocessor, or else the smallest block alone.
pub fn fitting(family: &dyn Family, all: Vec<Shape>, task: &Task, limits: &Limits) -> Vec<Shape> {
    let fits = |shape: &Shape| {
        let shared = family.shared_bytes(task, *shape);
        shared <= limits.shared_per_block && shape.per_multiprocessor <= limits.blocks_by_shared(shared)
    };
    let found: Vec<_> = all.iter().copied().filter(fits).collect();
    if !found.is_empty() {
        return found;
    }
    let smallest = all.into_iter().min_by_key(|shape| shape.block);
    smallest.map(|shape| Shape { per_multiprocessor: 1, ..shape }).into_iter().collect()
}

/// A family and the shape of its launch: two runs with the same variant give the same bits.
///
/// Its text form is `FAMILY[/SPLIT]:BLOCKxBLOCKS:CACHED`, for example `small_k:128x4:28` or `tiled/32:128x3:all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    pub family: &'static dyn Family,
    pub shape: Shape,
    /// Megabytes (10⁶) of the data that the L2 cache should hold from launch to launch; `None` for all.
    pub cached: Option<u32>,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { split, block, per_multiprocessor } = self.shape;
        f.write_str(self.family.name())?;
        if split != 1 || self.family.facts().always_has_split {
            write!(f, "/{split}")?;
        }
        write!(f, ":{block}x{per_multiprocessor}:")?;
        match self.cached {
            Some(megabytes) => write!(f, "{megabytes}"),
            None => f.write_str("all"),
        }
    }
}

impl Variant {
    pub fn is_launchable(&self) -> bool {
        let Shape { split, block, per_multiprocessor } = self.shape;
        let whole = (WARP..=1024).contains(&block) && block.is_multiple_of(WARP);
        let counts = (1..=64).contains(&per_multiprocessor) && split > 0;
        whole && counts && self.family.is_launchable(self.shape)
    }

    /// Returns the blocks of a grid over `n` samples, no more than have work.
    pub fn blocks(&self, n: usize, multiprocessors: u32) -> u32 {
        self.most_blocks(n, self.family.samples_of_block(self.shape), multiprocessors)
    }

    /// Returns the grid of a launch over `task.n` samples, with its shared memory.
    pub fn grid(&self, task: &Task, multiprocessors: u32) -> Grid {
        Grid::new(self.blocks(task.n, multiprocessors), self.shape.block, self.shared_bytes(task))
    }

    /// Returns the blocks of a launch over `n` samples, `per_block` in a round: no more than have work or run at once.
    pub fn most_blocks(&self, n: usize, per_block: usize, multiprocessors: u32) -> u32 {
        let most = multiprocessors * self.shape.per_multiprocessor;
        n.div_ceil(per_block).clamp(1, most as usize) as u32
    }

    pub fn shared_bytes(&self, task: &Task) -> usize {
        self.family.shared_bytes(task, self.shape)
    }

    pub fn cached_quads(&self, d: usize) -> u32 {
        let quads = |megabytes: u32| megabytes as usize * 1_000_000 / (d * QUAD * size_of::<f32>());
        self.cached.map_or(u32::MAX, |megabytes| quads(megabytes).min(u32::MAX as usize) as u32)
    }
}
