//! Runs computations without the GIL, in threads that exist.
//!
//! rayon's global threads do not survive `fork`. Python reports a fork ([`after_fork`]), and a child computes with its
//! own pool, which is made when first needed.
use gaussmix::Interrupt;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Computations of fewer numbers end before anybody presses Ctrl-C.
const QUICK: usize = 1 << 20;
/// The time between two checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// The number of forks between the process that imported the module and this one.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// The pool of a process, by its number of forks. No lock is taken that another thread may have held when the process
/// forked.
static POOLS: [OnceLock<Option<ThreadPool>>; 16] = [const { OnceLock::new() }; 16];

/// Call it in the child after a fork.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Returns the threads of this process; `None` for rayon's global ones.
fn pool() -> PyResult<Option<&'static ThreadPool>> {
    let forks = FORKS.load(Ordering::SeqCst);
    if forks == 0 {
        return Ok(None);
    }
    let pool = POOLS.get(forks).and_then(|pool| pool.get_or_init(|| ThreadPoolBuilder::new().build().ok()).as_ref());
    match pool {
        Some(pool) => Ok(Some(pool)),
        None => Err(PyRuntimeError::new_err("threads cannot be started in this process, which is a fork of a fork …")),
    }
}

fn install<T: Send>(pool: Option<&ThreadPool>, work: impl FnOnce() -> T + Send) -> T {
    match pool {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

/// Runs `work` without the GIL, on this thread.
pub fn compute<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let pool = pool()?;
    Ok(py.detach(|| install(pool, work)))
}

/// Like [`compute`], for long work, which Ctrl-C ends. It runs on another thread while this one, which alone learns of
/// Ctrl-C, checks for it; but work on few `numbers`, which ends sooner, stays on this thread.
pub fn interruptible<T: Send>(py: Python<'_>, numbers: usize, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    interruptible_in(py, None, numbers, work)
}

/// Like [`interruptible`], with `n_threads` threads or those of the process.
pub fn interruptible_in<T: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    numbers: usize,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    if numbers < QUICK && n_threads.is_none() {
        return compute(py, work);
    }
    let interrupt = Interrupt::default();
    let flag = interrupt.clone();
    let (done, ended) = channel::<()>();
    let watched = move || {
        // Ends with the work, even if it panics.
        let _done = done;
        interrupt.install(work)
    };
    let watch = move || {
        while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            Python::attach(|py| py.check_signals()).inspect_err(|_| flag.raise())?;
        }
        Ok(())
    };
    let (result, watched) = compute_beside(py, n_threads, watched, watch)?;
    watched.map(|()| result)
}

/// Runs `work` on another thread, with `n_threads` threads or those of the process, and `beside` on this one, which
/// alone learns of Ctrl-C. Both run without the GIL.
pub fn compute_beside<T: Send, B: Send>(
    py: Python<'_>,
    n_threads: Option<usize>,
    work: impl FnOnce() -> T + Send,
    beside: impl FnOnce() -> B + Send,
) -> PyResult<(T, B)> {
    let own = n_threads.map(|n| ThreadPoolBuilder::new().num_threads(n).build()).transpose();
    let own = own.map_err(|error| PyRuntimeError::new_err(format!("the threads cannot be started: {error}")))?;
    let pool = if own.is_some() { own.as_ref() } else { pool()? };
    let run = || {
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| install(pool, work));
            let beside = beside();
            worker.join().map(|result| (result, beside))
        })
    };
    py.detach(run).or_else(|panic| std::panic::resume_unwind(panic))
}
