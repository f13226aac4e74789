//! The CPU backend: several threads, and SIMD instructions that are chosen at run time; float32 and
//! float64.
mod buffer;
mod complete;
mod engine;
mod estep;
mod exponents;
mod few;
mod kernel;
mod leading;
mod missing;
mod moments;
mod posterior;
pub mod real;
mod resident;
mod threads;

use super::missing::MissingEngine;
use crate::contract::evaluator::{Description, Evaluator};
use crate::data::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::precision::Precision;
use crate::simd::isa::Isa;
use missing::ByPattern;
use threads::Threads;

/// The CPU backend: lays out the samples for the machine's SIMD registers once, in the type they
/// came in, and evaluates them with all its threads, or with the calling thread alone if there is
/// little to do.
///
/// float32 samples are evaluated in float32 around the centre of the data, with the constants and
/// the sum over the samples in float64. Where float32's digits do not suffice, everything is
/// computed in float64 ([`Evaluator::precision`]), and so are up to 16 samples under large
/// matrices, but for an E-step. The results do not depend on the number of threads.
///
/// Samples with [missing values](Samples::with_missing) are grouped by the columns in which they
/// have values. Each group is evaluated as complete samples of these columns. With a `full` or
/// `tied` covariance, an evaluation takes one factorisation for each group and component (one for
/// each group where it is `tied`), so that groups of very few samples take most of the time where
/// there are many.
pub struct CpuEvaluator<'a> {
    engine: Box<dyn Evaluator + 'a>,
}

impl<'a> CpuEvaluator<'a> {
    /// Lays out a copy of the samples; evaluates with rayon's threads (as many as the machine has,
    /// or as `RAYON_NUM_THREADS` says).
    ///
    /// # Errors
    /// None at present.
    pub fn new(samples: Samples<'a>) -> Result<Self> {
        Self::with(samples, None, None)
    }

    /// As [`new`](Self::new), with `n_threads` threads of its own; 1 is the calling thread itself.
    ///
    /// # Errors
    /// [`Error::Threads`] if `n_threads` is zero or the threads cannot be started.
    pub fn with_threads(samples: Samples<'a>, n_threads: usize) -> Result<Self> {
        Self::with(samples, Some(n_threads), None)
    }

    /// As [`new`](Self::new), with the code for the instruction set `kernel`, one of
    /// [`kernels`](Self::kernels); or `reproducible-` before one of them, which computes as the CPU
    /// does under [`Reproducible`](crate::reproducible::Reproducible).
    ///
    /// # Errors
    /// [`Error::Kernel`] for a name that is none of them.
    pub fn with_kernel(samples: Samples<'a>, kernel: &str) -> Result<Self> {
        Self::with(samples, None, Some(kernel))
    }

    /// As [`with_threads`](Self::with_threads) and [`with_kernel`](Self::with_kernel), each where
    /// it is given.
    pub fn with(samples: Samples<'a>, n_threads: Option<usize>, kernel: Option<&str>) -> Result<Self> {
        let isa = kernel.map_or_else(|| Ok(Isa::best()), find_isa)?;
        let threads = n_threads.map_or(Ok(Threads::Shared), Threads::start)?;
        Ok(Self::on(samples, threads, isa))
    }

    /// Evaluates with the calling thread alone, which is one of rayon's that each evaluate
    /// something.
    pub fn of_this_thread(samples: Samples<'a>) -> Self {
        Self::on(samples, Threads::Calling, Isa::best())
    }

    fn on(samples: Samples<'a>, threads: Threads, isa: Isa) -> Self {
        if samples.missing().is_none() {
            return Self { engine: complete::engine(samples, &threads, isa) };
        }
        let precision = match samples.view() {
            View::F32(_) => Precision::Float32,
            View::F64(_) => Precision::Float64,
        };
        let unmade = (Description::new("cpu (missing values, no evaluation yet)", isa.name()), precision);
        let (columns, rows, of_rows) = (samples.clone(), samples.clone(), threads.clone());
        let by_column = move || Ok(complete::engine(columns.clone(), &threads, isa));
        let by_pattern = move || Ok(Box::new(ByPattern::new(rows.clone(), of_rows.clone(), isa)) as _);
        Self { engine: Box::new(MissingEngine::new(samples, unmade, by_column, by_pattern)) }
    }

    /// The kernels that this machine can run, named by their instruction sets, the best first.
    pub fn kernels() -> Vec<&'static str> {
        Isa::available().into_iter().rev().map(Isa::name).collect()
    }
}

fn find_isa(kernel: &str) -> Result<Isa> {
    Isa::available().into_iter().chain(Isa::reproducible()).find(|isa| isa.name() == kernel).ok_or_else(|| {
        Error::Kernel {
            name: kernel.into(),
            problem: "is not one that this machine's CPU can run".into(),
            available: CpuEvaluator::kernels().join(", "),
        }
    })
}

crate::contract::evaluator::pass_on!([] CpuEvaluator<'_>, self, self.engine);

impl std::fmt::Debug for CpuEvaluator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuEvaluator").field("device", &self.describe().device).finish()
    }
}
