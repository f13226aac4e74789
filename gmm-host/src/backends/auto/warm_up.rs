//! The start of the GPU's driver and the compilation of kernels, beside the work of the CPU.
use super::{Kind, Op, Open};
use crate::{Error, Evaluator, Mixture, Result, Samples, View};
use ndarray::{Array1, Axis, Slice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

/// Elements of the samples that are copied for it.
const PROBE: usize = 1 << 14;

/// A thread that has the driver start and loads some samples, and then evaluates, once for each kind that it is asked
/// for, so that the kernels are compiled. Nobody waits for it: it ends by itself when this is dropped. The samples that it
/// uses are its own.
pub(super) struct WarmUp {
    ask: Sender<(Kind, Mixture)>,
    done: Receiver<Kind>,
    /// What was asked for, and whether it is done.
    kinds: HashMap<Kind, bool>,
    /// Whether the thread may be in the driver yet.
    alive: Arc<AtomicBool>,
}

/// How far the GPU is with a kind.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Busy,
    Warm,
    /// No GPU, or one that fails.
    Failed,
}

impl WarmUp {
    pub fn start(samples: &Samples<'_>, open: Open) -> Self {
        let (ask, asked) = channel::<(Kind, Mixture)>();
        let (report, done) = channel();
        let alive = Arc::new(AtomicBool::new(true));
        let (probe, flag) = (probe(samples), Arc::clone(&alive));
        let body = move || {
            // Why there is no GPU is told where one is asked for by name.
            let _ = work(probe, open, &asked, &report);
            flag.store(false, Ordering::SeqCst);
        };
        // Without a thread `report` is gone, which is as good as no GPU.
        if thread::Builder::new().name("gmm-gpu-start".into()).spawn(body).is_err() {
            alive.store(false, Ordering::SeqCst);
        }
        Self { ask, done, kinds: HashMap::new(), alive }
    }

    /// Where the GPU is with a kind, of which `mixture` is one; asked for the first time, it goes on to it.
    pub fn state(&mut self, kind: Kind, mixture: &Mixture) -> State {
        if let Entry::Vacant(new) = self.kinds.entry(kind) {
            new.insert(false);
            // Where the thread has ended, the answers below say so.
            let _ = self.ask.send((kind, mixture.clone()));
        }
        loop {
            match self.done.try_recv() {
                Ok(kind) => drop(self.kinds.insert(kind, true)),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return State::Failed,
            }
        }
        if self.kinds.get(&kind) == Some(&true) { State::Warm } else { State::Busy }
    }
}

impl Drop for WarmUp {
    fn drop(&mut self) {
        if self.alive.load(Ordering::SeqCst) {
            at_exit::leave_the_driver_alone(Arc::clone(&self.alive));
        }
    }
}

/// The thread.
fn work(
    probe: Result<Samples<'static>>,
    open: Open,
    asked: &Receiver<(Kind, Mixture)>,
    report: &Sender<Kind>,
) -> Result<()> {
    let mut gpu = open(probe?)?;
    for (kind, mixture) in asked {
        // What the mixture or the operation lacks is told where it is evaluated.
        if let Err(error @ Error::Cuda { .. }) = evaluate(gpu.as_mut(), kind.0, &mixture) {
            return Err(error);
        }
        if report.send(kind).is_err() {
            break;
        }
    }
    Ok(())
}

fn evaluate(gpu: &mut dyn Evaluator, op: Op, mixture: &Mixture) -> Result<()> {
    match op {
        Op::Total | Op::Walk => gpu.log_likelihood(mixture).map(drop),
        Op::Batch => gpu.log_likelihood_batch(&[mixture.clone(), mixture.clone()]).map(drop),
        Op::Scores => gpu.score_samples(mixture).map(drop),
        Op::Statistics => gpu.statistics(mixture).map(drop),
    }
}

/// A copy of the first samples; with weights, if the samples have some, of one each.
fn probe(samples: &Samples<'_>) -> Result<Samples<'static>> {
    let n = (PROBE / samples.n_features()).clamp(1, samples.n_samples());
    let rows = Slice::from(0..n);
    let probe = match samples.view() {
        View::F32(x) => Samples::from_shared_f32(x.slice_axis(Axis(0), rows).to_shared())?,
        View::F64(x) => Samples::from_shared_f64(x.slice_axis(Axis(0), rows).to_shared())?,
    };
    match samples.weights() {
        Some(_) => probe.with_shared_weights(Array1::ones(n).into_shared()),
        None => Ok(probe),
    }
}

/// What the process does when it ends while the thread may be in the driver.
///
/// The C library then runs what was registered for the end, the driver's own included, which takes apart what the thread is
/// still using. So where that is so, the process ends without: files of the C library are flushed first, and nothing else
/// is left to do.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod at_exit {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};

    /// The threads that may be in the driver yet.
    static LEFT: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());

    // SAFETY: as the C library declares them.
    unsafe extern "C" {
        safe fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        fn fflush(stream: *mut c_void) -> c_int;
        safe fn _exit(status: c_int) -> !;
    }

    pub fn leave_the_driver_alone(alive: Arc<AtomicBool>) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|alive| alive.load(Ordering::SeqCst));
        left.push(alive);
        // Registered late, so that it comes before what the driver has registered. If there is no room for it, the end is as
        // it would be without.
        on_exit(end, std::ptr::null_mut());
    }

    extern "C" fn end(status: c_int, _: *mut c_void) {
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        if left.iter().any(|alive| alive.load(Ordering::SeqCst)) {
            // SAFETY: null stands for all files.
            unsafe { fflush(std::ptr::null_mut()) };
            _exit(status);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod at_exit {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// Elsewhere the end of a process does not run under its threads, or there is no CUDA.
    pub fn leave_the_driver_alone(_: Arc<AtomicBool>) {}
}
