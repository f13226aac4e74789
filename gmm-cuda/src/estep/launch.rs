//! The interface of a family's E-step kernels, once made ready for a task.
use super::layouts::Layouts;
use super::sums::Sums;
use crate::device::memory::Numbers;
use crate::device::samples::Columns;
use crate::device::stream::{Running, Stream};
use crate::device::workspace::Workspace;
use gmm_core::error::{Error, Result};
use gmm_core::statistics::Statistics;
use std::fmt::Debug;

/// The results wanted from the kernels of an E-step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Total,
    /// The log-likelihood and the sums over the samples.
    Statistics,
}

/// The place of an E-step over some samples, and the wanted part.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    pub stream: &'a Stream,
    /// Those of the prepared workspace.
    pub parameters: Numbers<'a, f32>,
    pub columns: Columns<'a>,
    pub wanted: Wanted,
}

/// Reads the sums of an E-step and its log₂-likelihood.
pub type Read<'a> = dyn FnMut(&[f64], f64) + 'a;

/// Kernels of the E-step, made ready for the mixtures of a task.
pub trait EStepKernels: Debug + Send {
    /// Writes the parameters of a mixture for the launches of a workspace, unless they are passed by value.
    fn prepare(&self, workspace: &mut Workspace, layouts: &Layouts<'_>) -> Result<()>;

    /// Starts the E-step, or at least the wanted part.
    fn start<'a>(&'a self, work: Work<'a>, layouts: &Layouts<'_>) -> Result<Running<'a, ()>>;

    /// Waits for the E-step over `n` samples started last, and makes `read` read its results.
    fn read(&self, running: Running<'_, ()>, stream: &Stream, n: usize, read: &mut Read<'_>) -> Result<()>;

    /// Waits for the log-likelihood of `n` samples started last, to base 2; for kernels that can compute it alone.
    fn read_total(&self, _: Running<'_, ()>, _: &Stream, _: usize) -> Result<f64> {
        Err(Error::Unsupported {
            what: "a log-likelihood without the other sums of an E-step".into(),
            backend: "this family of kernels",
            remedy: "ask for the statistics",
        })
    }

    /// Returns the statistics of a mixture, from the sums over all samples.
    fn statistics(&self, layouts: &Layouts<'_>, sums: &Sums<'_>) -> Result<Statistics>;
}
