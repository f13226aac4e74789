//! The CPU backend: several threads, and SIMD instructions that are chosen at run time; float32 and
//! float64.
mod buffer;
mod engine;
mod estep;
mod exponents;
pub(crate) mod isa;
mod kernel;
mod leading;
mod missing;
mod moments;
mod posterior;
pub(crate) mod real;
mod resident;

use crate::backends::chunked::ChunkedEvaluator;
use crate::backends::device_parameters::Deviations;
use crate::backends::enough_digits::EnoughDigits;
use crate::data::samples::{Samples, View};
use crate::error::{Error, Result};
use crate::evaluator::Evaluator;
use engine::Engine;
use isa::Isa;
use missing::MissingEngine;
use rayon::ThreadPool;
use std::sync::{Arc, Mutex, PoisonError};

/// If float32 samples with more elements than this are to be evaluated in float64, they are
/// converted in pieces of this size, again for each evaluation, so that they do not take three
/// times their memory.
const MAX_FLOAT64: usize = 1 << 27;

/// The CPU backend: lays out the samples for the machine's SIMD registers once, in the type they
/// came in, and evaluates them with all its threads, or with the calling thread alone if there is
/// little to do.
///
/// float32 samples are evaluated in float32 around the centre of the data, with the constants and
/// the sum over the samples in float64. Where float32's digits do not suffice, everything is
/// computed in float64 ([`Evaluator::precision`]). The results do not depend on the number of
/// threads.
///
/// Samples with [missing values](Samples::with_missing) are grouped by the columns in which they
/// have values. Each group is evaluated as complete samples of these columns. With a `full` or
/// `tied` covariance, an evaluation takes one factorisation for each group and component (one for
/// each group where it is `tied`), so that groups of very few samples take most of the time where
/// there are many.
#[derive(Debug)]
pub struct CpuEvaluator<'a> {
    engine: AnyEngine<'a>,
}

#[derive(Debug)]
enum AnyEngine<'a> {
    Complete(Complete<'a>),
    Missing(MissingEngine<'a>),
}

/// The engine of samples without missing values.
#[derive(Debug)]
enum Complete<'a> {
    F32(EnoughDigits<'a, Engine<'a, f32>>),
    F64(EnoughDigits<'a, Engine<'a, f64>>),
}

/// Which copy of the samples in float64 the evaluators have that are made of the same samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// All of them have the same one.
    One,
    /// Each has its own.
    Each,
}

impl<'a> Complete<'a> {
    fn new(samples: Samples<'a>, pool: Option<Arc<ThreadPool>>, isa: Isa) -> Self {
        Self::with_copies(samples, Copies::One, pool, isa)
    }

    /// As [`new`](Self::new), for an engine that threads of rayon evaluate. Evaluators that share
    /// it ([`Evaluator::share`]) make each its own copy of the samples with more digits: one copy
    /// for all takes a lock, under which such a thread could begin another evaluation that waits
    /// for the same lock.
    fn of_part(samples: Samples<'a>, pool: Option<Arc<ThreadPool>>, isa: Isa) -> Self {
        Self::with_copies(samples, Copies::Each, pool, isa)
    }

    fn with_copies(samples: Samples<'a>, copies: Copies, pool: Option<Arc<ThreadPool>>, isa: Isa) -> Self {
        match samples.view() {
            View::F32(_) => {
                let float32 = Engine::new(samples.clone(), Deviations::InFrame, pool.clone(), isa);
                let around_means = open_float64(samples.clone(), Deviations::AroundMeans, copies, pool.clone(), isa);
                let in_frame = open_float64(samples, Deviations::InFrame, copies, pool, isa);
                let around_means: Arc<dyn Fn() -> _ + Send + Sync + 'a> = Arc::new(around_means);
                Self::F32(EnoughDigits::new(float32, move || {
                    let around_means = Arc::clone(&around_means);
                    Ok(match in_frame()? {
                        Float64::Whole(engine) => {
                            Box::new(EnoughDigits::new(*engine, move || around_means().map(Float64::boxed)))
                        }
                        Float64::Chunks(evaluator) => evaluator,
                    })
                }))
            }
            View::F64(_) => {
                let float64 = Engine::new(samples.clone(), Deviations::InFrame, pool.clone(), isa);
                let around_means = open_float64(samples, Deviations::AroundMeans, copies, pool, isa);
                Self::F64(EnoughDigits::new(float64, move || around_means().map(Float64::boxed)))
            }
        }
    }

    fn inner(&self) -> &(dyn Evaluator + 'a) {
        match self {
            Self::F32(engine) => engine,
            Self::F64(engine) => engine,
        }
    }

    fn inner_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match self {
            Self::F32(engine) => engine,
            Self::F64(engine) => engine,
        }
    }
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
    /// [`kernels`](Self::kernels).
    ///
    /// # Errors
    /// [`Error::Kernel`] for a name that is none of them.
    pub fn with_kernel(samples: Samples<'a>, kernel: &str) -> Result<Self> {
        Self::with(samples, None, Some(kernel))
    }

    /// As [`with_threads`](Self::with_threads) and [`with_kernel`](Self::with_kernel), each where
    /// it is given.
    pub(crate) fn with(samples: Samples<'a>, n_threads: Option<usize>, kernel: Option<&str>) -> Result<Self> {
        let isa = kernel.map_or_else(|| Ok(Isa::best()), find_isa)?;
        let pool = n_threads.map(start_threads).transpose()?;
        let engine = match samples.missing() {
            None => AnyEngine::Complete(Complete::new(samples, pool, isa)),
            Some(_) => AnyEngine::Missing(MissingEngine::new(samples, pool, isa)),
        };
        Ok(Self { engine })
    }

    /// The kernels that this machine can run, named by their instruction sets, the best first.
    pub fn kernels() -> Vec<&'static str> {
        Isa::available().into_iter().rev().map(Isa::name).collect()
    }

    fn inner(&self) -> &(dyn Evaluator + 'a) {
        match &self.engine {
            AnyEngine::Complete(engine) => engine,
            AnyEngine::Missing(engine) => engine,
        }
    }

    fn inner_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match &mut self.engine {
            AnyEngine::Complete(engine) => engine,
            AnyEngine::Missing(engine) => engine,
        }
    }
}

fn find_isa(kernel: &str) -> Result<Isa> {
    Isa::available().into_iter().find(|isa| isa.name() == kernel).ok_or_else(|| Error::Kernel {
        name: kernel.into(),
        problem: "is not one that this machine's CPU can run".into(),
        available: CpuEvaluator::kernels().join(", "),
    })
}

/// More threads than any machine has cores.
const MAX_THREADS: usize = 4096;

fn start_threads(n_threads: usize) -> Result<Arc<ThreadPool>> {
    if n_threads == 0 {
        return Err(Error::Threads { n_threads, message: "at least one is needed".into() });
    }
    // The system may begin to start any number of threads, and end the process on the way.
    if n_threads > MAX_THREADS {
        return Err(Error::Threads { n_threads, message: format!("at most {MAX_THREADS} are started") });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
    pool.map(Arc::new).map_err(|e| Error::Threads { n_threads, message: e.to_string() })
}

/// An evaluator in float64.
enum Float64<'a> {
    Whole(Box<Engine<'a, f64>>),
    /// Of chunks, each of which has its own evaluators.
    Chunks(Box<dyn Evaluator + 'a>),
}

impl<'a> Float64<'a> {
    fn boxed(self) -> Box<dyn Evaluator + 'a> {
        match self {
            Self::Whole(engine) => engine,
            Self::Chunks(evaluator) => evaluator,
        }
    }
}

/// Makes evaluators of samples in float64. With [`Copies::One`] all that it makes of the same
/// samples share one copy of these; more than [`MAX_FLOAT64`] elements are converted in chunks, by
/// each evaluator for itself.
fn open_float64<'a>(
    samples: Samples<'a>,
    deviations: Deviations,
    copies: Copies,
    pool: Option<Arc<ThreadPool>>,
    isa: Isa,
) -> impl Fn() -> Result<Float64<'a>> + Send + Sync + 'a {
    let whole: Mutex<Option<Engine<'a, f64>>> = Mutex::new(None);
    move || {
        let engine = || Engine::new(samples.clone(), deviations, pool.clone(), isa);
        if copies == Copies::Each {
            return Ok(Float64::Whole(Box::new(engine())));
        }
        let rows = MAX_FLOAT64 / samples.n_features();
        if samples.n_samples() <= rows {
            let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(Float64::Whole(Box::new(whole.get_or_insert_with(engine).clone())));
        }
        let pool = pool.clone();
        let load = move |chunk: Samples<'a>| -> Result<Box<dyn Evaluator + 'a>> {
            let engine = Engine::<f64>::new(chunk.clone(), deviations, pool.clone(), isa);
            if deviations == Deviations::AroundMeans {
                return Ok(Box::new(engine));
            }
            let around_means = open_float64(chunk, Deviations::AroundMeans, Copies::Each, pool.clone(), isa);
            Ok(Box::new(EnoughDigits::new(engine, move || around_means().map(Float64::boxed))))
        };
        Ok(Float64::Chunks(Box::new(ChunkedEvaluator::of_samples(samples.clone(), rows.max(1), load)?)))
    }
}

crate::evaluator::pass_on!(CpuEvaluator);
crate::evaluator::pass_on!(Complete);
