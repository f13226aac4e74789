//! The start of the GPU's driver and the compilation of kernels, while the CPU evaluates.
use super::choice::{Kind, Method};
use gmm_core::contract::evaluator::Evaluator;
use gmm_core::data::noise::Noise;
use gmm_core::data::samples::{Samples, View};
use gmm_core::error::{Error, Result};
use gmm_core::model::mixture::Mixture;
use ndarray::{Array1, Array2, Axis, Slice};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

pub(super) type OpenGpu = Arc<dyn for<'a> Fn(Samples<'a>) -> Result<Box<dyn Evaluator + 'a>> + Send + Sync>;

/// The approximate number of elements of the thread's own samples.
pub(super) const PROBE: usize = 1 << 14;

/// A thread that starts the driver, loads a copy of a few samples, and evaluates each requested kind once, so that the
/// driver compiles the kernels. It ends by itself after this value is dropped; nothing waits for it.
pub(super) struct WarmUp {
    ask: Sender<(Kind, Mixture)>,
    done: Receiver<Result<Kind>>,
    /// The requested kinds, and whether the thread has evaluated them.
    kinds: HashMap<Kind, bool>,
    /// Whether the thread runs, and so may be inside the driver.
    alive: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) enum State {
    Busy,
    Warm,
    /// There is no GPU, or it has failed.
    Failed(Error),
}

impl WarmUp {
    pub fn start(samples: &Samples<'_>, open_gpu: &OpenGpu) -> Self {
        let (ask, asked) = channel::<(Kind, Mixture)>();
        let (report, done) = channel();
        let alive = Arc::new(AtomicBool::new(true));
        let (probe, flag, open_gpu) = (probe(samples), Arc::clone(&alive), Arc::clone(open_gpu));
        let body = move || {
            if let Err(error) = work(probe, &open_gpu, &asked, &report) {
                // If the evaluator has been dropped, nobody listens.
                let _ = report.send(Err(error));
            }
            flag.store(false, Ordering::SeqCst);
        };
        // If the thread cannot be started, `report` is dropped, which `state` notices.
        if thread::Builder::new().name("gmm-gpu-start".into()).spawn(body).is_err() {
            alive.store(false, Ordering::SeqCst);
        }
        Self { ask, done, kinds: HashMap::new(), alive }
    }

    /// Returns whether the GPU is ready for a kind. The first call makes the thread evaluate `mixture`, of that kind.
    pub fn state(&mut self, kind: Kind, mixture: &Mixture) -> State {
        if let Entry::Vacant(new) = self.kinds.entry(kind) {
            new.insert(false);
            // If the thread has ended, the loop below finds `done` disconnected.
            let _ = self.ask.send((kind, mixture.clone()));
        }
        loop {
            match self.done.try_recv() {
                Ok(Ok(kind)) => drop(self.kinds.insert(kind, true)),
                Ok(Err(error)) => return State::Failed(error),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    let message = "the thread that starts the GPU has ended".into();
                    return State::Failed(Error::Threads { n_threads: 1, message });
                }
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

/// The body of the thread.
fn work(
    probe: Result<Samples<'static>>,
    open_gpu: &OpenGpu,
    asked: &Receiver<(Kind, Mixture)>,
    report: &Sender<Result<Kind>>,
) -> Result<()> {
    let mut gpu = open_gpu(probe?)?;
    for (kind, mixture) in asked {
        // Only a failure of the driver counts here: the caller's own evaluation reports other errors.
        if let Err(error @ Error::Cuda { .. }) = evaluate(gpu.as_mut(), kind.method, &mixture) {
            return Err(error);
        }
        if report.send(Ok(kind)).is_err() {
            break;
        }
    }
    Ok(())
}

fn evaluate(gpu: &mut dyn Evaluator, method: Method, mixture: &Mixture) -> Result<()> {
    match method {
        Method::LogLikelihood | Method::Metropolis => gpu.log_likelihood(mixture).map(drop),
        Method::LogLikelihoodBatch => gpu.log_likelihood_batch(&[mixture.clone(), mixture.clone()]).map(drop),
        Method::ScoreSamples => gpu.score_samples(mixture).map(drop),
        Method::Statistics => gpu.statistics(mixture).map(drop),
    }
}

/// Returns a copy of the first samples, with weights of one and noise of zero if the samples have weights and noise.
fn probe(samples: &Samples<'_>) -> Result<Samples<'static>> {
    let n = (PROBE / samples.n_features()).clamp(1, samples.n_samples());
    let rows = Slice::from(0..n);
    let probe = match samples.view() {
        View::F32(x) => Samples::with_shared_missing(x.slice_axis(Axis(0), rows).to_shared())?,
        View::F64(x) => Samples::with_shared_missing(x.slice_axis(Axis(0), rows).to_shared())?,
    };
    let probe = match samples.noise() {
        Some(_) => {
            probe.with_noise(Noise::variances(Array2::<f64>::zeros((n, samples.n_features())).into_shared())?)?
        }
        None => probe,
    };
    match samples.weights() {
        Some(_) => probe.with_shared_weights(Array1::ones(n).into_shared()),
        None => Ok(probe),
    }
}

/// Ends a process whose thread may be inside the driver.
///
/// At the end of a process the C library calls registered functions; one of the driver's frees memory that the thread
/// still uses. So a function that is called earlier flushes the C library's files and ends the process at once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod at_exit {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};

    /// For each thread, whether it may be inside the driver.
    static LEFT: Mutex<Vec<Arc<AtomicBool>>> = Mutex::new(Vec::new());

    // SAFETY: the declarations are those of the C library.
    unsafe extern "C" {
        safe fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
        fn fflush(stream: *mut c_void) -> c_int;
        safe fn _exit(status: c_int) -> !;
    }

    pub fn leave_the_driver_alone(alive: Arc<AtomicBool>) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.retain(|alive| alive.load(Ordering::SeqCst));
        left.push(alive);
        // The last registered function is called first, so this one precedes the driver's. Registration fails only for
        // lack of memory; the process then ends as without this module.
        on_exit(end, std::ptr::null_mut());
    }

    extern "C" fn end(status: c_int, _: *mut c_void) {
        let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        if left.iter().any(|alive| alive.load(Ordering::SeqCst)) {
            // SAFETY: a null pointer is allowed and stands for all open files.
            unsafe { fflush(std::ptr::null_mut()) };
            _exit(status);
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod at_exit {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// Does nothing: on other systems threads end before the process does, or there is no CUDA.
    pub fn leave_the_driver_alone(_: Arc<AtomicBool>) {}
}
