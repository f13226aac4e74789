//! Where the computation runs: without the GIL, and with threads that exist.
//!
//! rayon's global threads do not survive `fork`. Python tells of a fork ([`after_fork`]), and a
//! child computes with a pool of its own, which is made when it is first needed.
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many forks lie between this process and the one that imported the module.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// The pool of a process, by its number of forks. No lock is taken that another thread may have
/// held when the process forked.
static POOLS: [OnceLock<Option<ThreadPool>>; 16] = [const { OnceLock::new() }; 16];

/// To be called in the child after a fork.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Runs `work` without the GIL.
pub fn compute<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let forks = FORKS.load(Ordering::SeqCst);
    if forks == 0 {
        return Ok(py.detach(work));
    }
    let pool = POOLS.get(forks).and_then(|pool| pool.get_or_init(|| ThreadPoolBuilder::new().build().ok()).as_ref());
    match pool {
        Some(pool) => Ok(py.detach(|| pool.install(work))),
        None => Err(PyRuntimeError::new_err("threads cannot be started in this process, which is a fork of a fork …")),
    }
}
