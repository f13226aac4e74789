//! The CPU backend: threads, and SIMD instructions chosen at run time; float32 and float64.
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
mod noisy;
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
use noisy::OwnNoise;
use threads::Threads;

/// The CPU backend: lays out the samples once for the machine's SIMD registers, in their own type, and evaluates them
/// on all threads, or on the calling thread if there is little to do.
///
/// float32 samples are evaluated in float32 around the centre of the data, with constants and sums over samples in
/// float64. If float32's digits do not suffice, all is computed in float64 ([`Evaluator::precision`]), as are, except
/// in an E-step, up to 16 samples under large matrices. The results do not depend on the number of threads.
///
/// Samples with [missing values](Samples::with_missing) are grouped by their observed columns, and each group is
/// evaluated as complete samples of these. With a `full` or `tied` covariance, an evaluation takes a factorisation per
/// group (for `full`, per group and component), so many small groups take most of the time.
pub struct CpuEvaluator<'a> {
    engine: Box<dyn Evaluator + 'a>,
}

impl<'a> CpuEvaluator<'a> {
    /// Lays out a copy of the samples for rayon's threads (one per core, or `RAYON_NUM_THREADS`).
    ///
    /// # Errors
    /// None at present.
    pub fn new(samples: Samples<'a>) -> Result<Self> {
        Self::with(samples, None, None)
    }

    /// As [`new`](Self::new), with `n_threads` threads of its own; 1 is the calling thread.
    ///
    /// # Errors
    /// [`Error::Threads`] if `n_threads` is zero or the threads cannot be started.
    pub fn with_threads(samples: Samples<'a>, n_threads: usize) -> Result<Self> {
        Self::with(samples, Some(n_threads), None)
    }

    /// As [`new`](Self::new), with the code for the instruction set `kernel`, one of [`kernels`](Self::kernels), or with
    /// `reproducible-` before it, which computes as under [`Reproducible`](crate::reproducible::Reproducible).
    ///
    /// # Errors
    /// [`Error::Kernel`] for any other name.
    pub fn with_kernel(samples: Samples<'a>, kernel: &str) -> Result<Self> {
        Self::with(samples, None, Some(kernel))
    }

    /// As [`with_threads`](Self::with_threads) and [`with_kernel`](Self::with_kernel), each optional.
    pub fn with(samples: Samples<'a>, n_threads: Option<usize>, kernel: Option<&str>) -> Result<Self> {
        let isa = kernel.map_or_else(|| Ok(Isa::best()), find_isa)?;
        let threads = n_threads.map_or(Ok(Threads::Shared), Threads::start)?;
        Ok(Self::on(samples, threads, isa))
    }

    /// Evaluates on the calling thread alone, one of several rayon threads with their own evaluations.
    pub fn of_this_thread(samples: Samples<'a>) -> Self {
        Self::on(samples, Threads::Calling, Isa::best())
    }

    fn on(samples: Samples<'a>, threads: Threads, isa: Isa) -> Self {
        if samples.noise().is_some() {
            return Self { engine: Box::new(OwnNoise::new(samples, threads, isa)) };
        }
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

    /// Returns the kernels this machine can run, named by instruction set, the best first.
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
