//! The interface of a family's likelihood kernels, once made ready for a task.
use super::batch_parameters::NearSets;
use crate::device::memory::Numbers;
use crate::device::samples::Columns;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Workspace;
use gmm_core::backends::device_parameters::DeviceParameters;
use gmm_core::error::Result;
use std::fmt::Debug;

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

    /// Returns the sets with all of their parameters; empty for families that compare sets.
    pub fn apart(self) -> &'a [DeviceParameters<f32>] {
        match self {
            Self::Apart(sets) => sets,
            Self::Near(_) => &[],
        }
    }
}

/// The place of a launch, and its memory.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub stream: &'a Stream,
    /// Prepared by [`LikelihoodKernels::prepare`], with cleared totals.
    pub workspace: &'a Workspace,
    pub columns: Columns<'a>,
    /// The place of each sample's log₂-likelihood, if requested.
    pub scores: Option<Numbers<'a, f32>>,
}

/// Kernels for log-likelihoods, made ready for a task. Their sets have the task's shape, and the family takes them.
pub trait LikelihoodKernels: Debug + Send + Sync {
    /// Prepares a workspace for these parameter sets: parameters as the kernels read them, and room for sums.
    fn prepare(&self, workspace: &mut Workspace, sets: Sets<'_>) -> Result<()>;

    /// Starts the evaluation of the parameter sets of the prepared workspace, whose first slots get their totals.
    fn start<'a>(&self, work: Work<'a>, sets: Sets<'_>) -> Result<Running<'a, ()>>;
}
