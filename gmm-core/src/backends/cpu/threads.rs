//! The threads of an evaluator.
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use rayon::{ThreadPool, ThreadPoolBuilder, current_num_threads};
use std::sync::Arc;

/// More threads than any machine has cores.
const MAX_THREADS: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) enum Threads {
    /// The caller's pool, or rayon's global one.
    Shared,
    Own(Arc<ThreadPool>),
    /// The calling thread alone, one of many with their own evaluations.
    Calling,
}

impl Threads {
    /// Starts a pool of `n_threads` threads.
    pub fn start(n_threads: usize) -> Result<Self> {
        if n_threads == 0 {
            return Err(Error::Threads { n_threads, message: "at least one is needed".into() });
        }
        // The system might start any number of threads, or end the process on the way.
        if n_threads > MAX_THREADS {
            return Err(Error::Threads { n_threads, message: format!("at most {MAX_THREADS} are started") });
        }
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).build();
        pool.map(|pool| Self::Own(Arc::new(pool))).map_err(|e| Error::Threads { n_threads, message: e.to_string() })
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        match self {
            Self::Shared => current_num_threads(),
            Self::Own(pool) => pool.current_num_threads(),
            Self::Calling => 1,
        }
    }

    /// Runs `work`, with its parallel iterators on these threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Own(pool) => {
                let interrupt = Interrupt::current();
                pool.install(|| interrupt.install(work))
            }
            Self::Shared | Self::Calling => work(),
        }
    }
}
