//! The CPU backend: SIMD chosen at run time, threads, float32 and float64.
mod engine;
mod estep;
mod isa;
mod kernel;
mod moments;
mod posterior;
mod real;
mod resident;

use crate::backends::either_precision::{EitherPrecision, OpenFloat64};
use crate::{ChunkedEvaluator, Error, Evaluator, Result, Samples, View};
use engine::Engine;
use isa::Isa;
use rayon::ThreadPool;
use std::sync::Arc;

/// float32 samples of more elements than this are made float64 in pieces of this size, again for each evaluation that
/// needs it, so that they do not take three times their memory.
const MAX_FLOAT64: usize = 1 << 27;

/// The CPU backend: the data is laid out for the machine's SIMD registers once, in the precision it came in, and
/// evaluated by as many threads as pay.
///
/// float32 data is evaluated in float32 around its own centre, with the constants and the sum over the samples in
/// float64, and all in float64 where float32's digits do not suffice ([`Evaluator::precision`]). The result depends on
/// neither the number of threads nor on what else runs.
#[derive(Debug)]
pub struct CpuEvaluator<'a> {
    engine: AnyEngine<'a>,
}

#[derive(Debug)]
enum AnyEngine<'a> {
    F32(EitherPrecision<'a, Engine<'a, f32>>),
    F64(Engine<'a, f64>),
}

impl<'a> CpuEvaluator<'a> {
    /// Lays out a copy of the samples; evaluates with rayon's threads (as many as the machine has, or as
    /// `RAYON_NUM_THREADS` says).
    ///
    /// # Errors
    /// None at present.
    pub fn new(samples: Samples<'a>) -> Result<Self> {
        Ok(Self::with_isa(samples, None, Isa::best()))
    }

    /// As [`new`](Self::new), with `n_threads` threads of its own; 1 is the calling thread itself.
    ///
    /// # Errors
    /// [`Error::Threads`] if `n_threads` is zero or the threads cannot be started.
    pub fn with_threads(samples: Samples<'a>, n_threads: usize) -> Result<Self> {
        if n_threads == 0 {
            return Err(Error::Threads { n_threads, message: "at least one is needed".into() });
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .build()
            .map_err(|e| Error::Threads { n_threads, message: e.to_string() })?;
        Ok(Self::with_isa(samples, Some(Arc::new(pool)), Isa::best()))
    }

    /// As [`new`](Self::new), with the code for the instruction set `kernel`, one of [`kernels`](Self::kernels).
    ///
    /// # Errors
    /// [`Error::Kernel`] for a name that is none of them.
    pub fn with_kernel(samples: Samples<'a>, kernel: &str) -> Result<Self> {
        match Isa::available().into_iter().find(|isa| isa.name() == kernel) {
            Some(isa) => Ok(Self::with_isa(samples, None, isa)),
            None => Err(Error::Kernel {
                name: kernel.into(),
                problem: "is none of this machine's CPU".into(),
                available: Self::kernels().join(", "),
            }),
        }
    }

    /// The kernels that this machine can run, named by their instruction sets, the best first.
    pub fn kernels() -> Vec<&'static str> {
        Isa::available().into_iter().rev().map(Isa::name).collect()
    }

    fn with_isa(samples: Samples<'a>, pool: Option<Arc<ThreadPool>>, isa: Isa) -> Self {
        let engine = match samples.view() {
            View::F32(_) => {
                let float32 = Engine::new(samples.clone(), pool.clone(), isa);
                AnyEngine::F32(EitherPrecision::new(float32, samples, open_float64(pool, isa)))
            }
            View::F64(_) => AnyEngine::F64(Engine::new(samples, pool, isa)),
        };
        Self { engine }
    }

    fn inner(&self) -> &(dyn Evaluator + 'a) {
        match &self.engine {
            AnyEngine::F32(engine) => engine,
            AnyEngine::F64(engine) => engine,
        }
    }

    fn inner_mut(&mut self) -> &mut (dyn Evaluator + 'a) {
        match &mut self.engine {
            AnyEngine::F32(engine) => engine,
            AnyEngine::F64(engine) => engine,
        }
    }
}

/// float32 samples in float64, whole or in chunks.
fn open_float64<'a>(pool: Option<Arc<ThreadPool>>, isa: Isa) -> OpenFloat64<'a> {
    Box::new(move |samples| {
        let rows = MAX_FLOAT64 / samples.n_features();
        if samples.n_samples() <= rows {
            return Ok(Box::new(Engine::<f64>::new(samples.clone(), pool.clone(), isa)));
        }
        let pool = pool.clone();
        let load = move |chunk| Ok(Box::new(Engine::<f64>::new(chunk, pool.clone(), isa)) as _);
        Ok(Box::new(ChunkedEvaluator::of_samples(samples.clone(), rows.max(1), load)?))
    })
}

crate::evaluator::pass_on!(CpuEvaluator);
