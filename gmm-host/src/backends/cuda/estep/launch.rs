//! What the kernels of a family for the E-step do once they are made ready for a task, and the
//! layouts of a mixture that they read.
use super::fused_layout::FusedLayout;
use super::sums::Sums;
use super::tensor_cores_layout::TensorCoresLayout;
use super::weighted_sums_layout::WeightedSumsLayout;
use crate::backends::cuda::device::memory::Numbers;
use crate::backends::cuda::device::mismatch;
use crate::backends::cuda::device::samples::Columns;
use crate::backends::cuda::device::stream::{Running, Stream};
use crate::backends::cuda::device::workspace::Workspace;
use crate::error::{Error, Result};
use crate::statistics::Statistics;
use gmm_kernels::estep::fused::Moments;
use std::fmt::Debug;

/// A mixture as the kernels of an E-step read it.
pub enum Layout {
    Fused(FusedLayout),
    /// Of the families on the tensor cores.
    TensorCores(TensorCoresLayout),
    WeightedSums(WeightedSumsLayout),
}

impl Layout {
    /// Whether moments are taken around each component's centre.
    pub fn central(&self) -> bool {
        match self {
            Self::Fused(layout) => layout.moments() != Moments::Raw,
            Self::TensorCores(_) => false,
            Self::WeightedSums(layout) => layout.central(),
        }
    }

    pub fn fused(&self) -> Result<&FusedLayout> {
        if let Self::Fused(layout) = self { Ok(layout) } else { Err(wrong()) }
    }

    pub fn tensor_cores(&self) -> Result<&TensorCoresLayout> {
        if let Self::TensorCores(layout) = self { Ok(layout) } else { Err(wrong()) }
    }

    pub fn weighted_sums(&self) -> Result<&WeightedSumsLayout> {
        if let Self::WeightedSums(layout) = self { Ok(layout) } else { Err(wrong()) }
    }
}

/// The error for a layout of another family.
fn wrong() -> Error {
    mismatch("a mixture for this E-step", vec![], vec![])
}

/// What the kernels of an E-step are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The log-likelihood alone.
    Total,
    /// The log-likelihood and the sums over the samples.
    Statistics,
}

/// Kernels of the E-step, made ready for the mixtures of a task.
pub trait EStepKernels: Debug + Send {
    /// Writes the parameters of a mixture for the launches of a workspace, unless they are passed
    /// by value.
    fn prepare(&self, workspace: &mut Workspace, layout: &Layout) -> Result<()>;

    /// Starts the E-step over some samples, or at least what is wanted of it. `parameters` are
    /// those of the workspace that was made ready for the mixture of `layout`.
    fn start<'a>(
        &'a self,
        stream: &'a Stream,
        layout: &Layout,
        parameters: Numbers<'a, f32>,
        columns: Columns<'a>,
        wanted: Wanted,
    ) -> Result<Running<'a, ()>>;

    /// Waits for the E-step over `n` samples that was started last, and has `read` read its sums
    /// and the log₂-likelihood beside them.
    fn read(
        &self,
        running: Running<'_, ()>,
        stream: &Stream,
        n: usize,
        read: &mut dyn FnMut(&[f64], f64),
    ) -> Result<()>;

    /// Waits for the log-likelihood of `n` samples that was started last, to base 2: of kernels that
    /// can give it alone.
    fn read_total(&self, _: Running<'_, ()>, _: &Stream, _: usize) -> Result<f64> {
        Err(wrong())
    }

    /// Whether the statistics take the bias of the device's 2^x into account.
    fn needs_exp2_bias(&self) -> bool {
        false
    }

    /// The statistics of a mixture, from the sums over all samples.
    fn statistics(&self, layout: &Layout, sums: &Sums<'_>) -> Result<Statistics>;
}
