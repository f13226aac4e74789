//! The CPU backend: SIMD chosen at run time, threads, float32 and float64.
mod engine;
mod estep;
mod isa;
mod kernel;
mod moments;
mod posterior;
mod real;
mod resident;

use crate::{Error, Evaluator, Result, Samples, View};
use engine::Engine;
use isa::Isa;
use rayon::ThreadPool;

/// The CPU backend: the data is laid out for the machine's SIMD registers once, in the precision it came in, and
/// evaluated by as many threads as pay.
///
/// float32 data is evaluated in float32 around its own centre, with the constants and the sum over the samples in
/// float64. The result depends on neither the number of threads nor on what else runs.
#[derive(Debug)]
pub struct CpuEvaluator {
    engine: AnyEngine,
}

#[derive(Debug)]
enum AnyEngine {
    F32(Engine<f32>),
    F64(Engine<f64>),
}

impl CpuEvaluator {
    /// Takes a copy of the samples and their weights; evaluates with rayon's threads (as many as the machine has,
    /// or as `RAYON_NUM_THREADS` says).
    ///
    /// # Errors
    /// None at present.
    pub fn new(samples: Samples<'_>) -> Result<Self> {
        Ok(Self::with_isa(samples, None, Isa::best()))
    }

    /// As [`new`](Self::new), with `n_threads` threads of its own; 1 is the calling thread itself.
    ///
    /// # Errors
    /// [`Error::Threads`] if `n_threads` is zero or the threads cannot be started.
    pub fn with_threads(samples: Samples<'_>, n_threads: usize) -> Result<Self> {
        if n_threads == 0 {
            return Err(Error::Threads { n_threads, message: "at least one is needed".into() });
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .build()
            .map_err(|e| Error::Threads { n_threads, message: e.to_string() })?;
        Ok(Self::with_isa(samples, Some(pool), Isa::best()))
    }

    /// As [`new`](Self::new), with the code for the instruction set `kernel`, one of [`kernels`](Self::kernels).
    ///
    /// # Errors
    /// [`Error::Kernel`] for a name that is none of them.
    pub fn with_kernel(samples: Samples<'_>, kernel: &str) -> Result<Self> {
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

    fn with_isa(samples: Samples<'_>, pool: Option<ThreadPool>, isa: Isa) -> Self {
        let engine = match samples.view() {
            View::F32(x) => AnyEngine::F32(Engine::new(x, &samples, pool, isa)),
            View::F64(x) => AnyEngine::F64(Engine::new(x, &samples, pool, isa)),
        };
        Self { engine }
    }

    fn inner(&self) -> &dyn Evaluator {
        match &self.engine {
            AnyEngine::F32(engine) => engine,
            AnyEngine::F64(engine) => engine,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Evaluator {
        match &mut self.engine {
            AnyEngine::F32(engine) => engine,
            AnyEngine::F64(engine) => engine,
        }
    }
}

crate::evaluator::pass_on!(CpuEvaluator);
