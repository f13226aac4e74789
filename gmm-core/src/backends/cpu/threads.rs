//! The threads of an evaluator.
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use rayon::{ThreadPool, ThreadPoolBuilder, current_num_threads};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

/// More threads than any machine has cores.
const MAX_THREADS: usize = 4096;

#[derive(Debug, Clone)]
pub(crate) enum Threads {
    /// The caller's pool, or rayon's global one.
    Shared,
    /// A pool of so many threads, and the process that it belongs to.
    Own(usize, Arc<Mutex<(u32, Arc<ThreadPool>)>>),
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
        pool.map(|pool| Self::Own(n_threads, Arc::new(Mutex::new((process::id(), Arc::new(pool))))))
            .map_err(|e| Error::Threads { n_threads, message: e.to_string() })
    }

    /// Returns the number of threads.
    pub fn count(&self) -> usize {
        match self {
            Self::Shared => current_num_threads(),
            Self::Own(n_threads, _) => *n_threads,
            Self::Calling => 1,
        }
    }

    /// Runs `work`, with its parallel iterators on these threads.
    pub fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self {
            Self::Own(n_threads, own) => {
                let interrupt = Interrupt::current();
                let work = || interrupt.install(work);
                match pool_of_process(*n_threads, own) {
                    Some(pool) => pool.install(work),
                    None => work(),
                }
            }
            Self::Shared | Self::Calling => work(),
        }
    }
}

/// Returns the pool. Its threads do not survive a fork, so the child makes its own, if it can.
fn pool_of_process(n_threads: usize, own: &Mutex<(u32, Arc<ThreadPool>)>) -> Option<Arc<ThreadPool>> {
    let mut own = own.lock().unwrap_or_else(PoisonError::into_inner);
    if own.0 != process::id() {
        let pool = ThreadPoolBuilder::new().num_threads(n_threads).build().ok()?;
        // Only the parent can end the parent's threads.
        std::mem::forget(std::mem::replace(&mut *own, (process::id(), Arc::new(pool))));
    }
    Some(own.1.clone())
}
