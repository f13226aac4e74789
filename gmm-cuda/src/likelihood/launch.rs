//! What the kernels of a family for log-likelihoods do once they are made ready for a task.
use super::batch_parameters::NearSets;
use crate::device::memory::Numbers;
use crate::device::samples::Columns;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Workspace;
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::Result;
use std::fmt::Debug;

/// The parameter sets of a launch.
#[derive(Debug, Clone, Copy)]
pub enum Sets<'a> {
    /// Each with all of its parameters.
    Apart(&'a [DeviceParameters<f32>]),
    /// For families that compare sets with a reference.
    Near(NearSets<'a>),
}

impl<'a> Sets<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Apart(sets) => sets.len(),
            Self::Near(near) => near.sets.len(),
        }
    }

    /// The sets with all of their parameters; none of those for families that compare sets.
    pub fn apart(self) -> &'a [DeviceParameters<f32>] {
        match self {
            Self::Apart(sets) => sets,
            Self::Near(_) => &[],
        }
    }
}

/// Where a launch is put, and what it reads and writes.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub stream: &'a Stream,
    /// It was made ready by [`LikelihoodKernels::prepare`], and its totals are cleared.
    pub workspace: &'a Workspace,
    pub columns: Columns<'a>,
    /// Where to write each sample's log₂-likelihood, if it is asked for.
    pub scores: Option<Numbers<'a, f32>>,
}

/// Kernels for log-likelihoods, made ready for a task. The sets that they are given have been
/// checked: they are of the task's shape, and such as the family takes.
pub trait LikelihoodKernels: Debug + Send + Sync {
    /// Makes a workspace ready for these parameter sets: parameters as the kernels read them, and
    /// room for their sums.
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()>;

    /// Starts the evaluation of the parameter sets that the workspace was made ready for; their
    /// totals are written to its first slots.
    fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>>;
}
