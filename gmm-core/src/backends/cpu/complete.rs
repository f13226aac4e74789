//! Complete samples: evaluated in their own type, or with more digits if needed.
use super::engine::Engine;
use super::threads::Threads;
use crate::backends::chunked::ChunkedEvaluator;
use crate::backends::device_parameters::Deviations;
use crate::backends::enough_digits::EnoughDigits;
use crate::contract::evaluator::Evaluator;
use crate::data::samples::{Samples, View};
use crate::error::Result;
use crate::simd::isa::Isa;
use std::sync::{Arc, Mutex, PoisonError};

/// float32 samples with more elements than this are converted to float64 in pieces of this size for each evaluation, so
/// that they do not take three times their memory.
const MAX_FLOAT64: usize = 1 << 27;

/// Sharing of the float64 copy among evaluators of the same samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    One,
    Each,
}

pub(super) fn engine<'a>(samples: Samples<'a>, threads: &Threads, isa: Isa) -> Box<dyn Evaluator + 'a> {
    with_copies(samples, Copies::One, threads, isa)
}

/// As [`engine`], for evaluation by threads of rayon. Evaluators that share it ([`Evaluator::share`]) each make their
/// own float64 copy of the samples: a common copy needs a lock, under which such a thread could begin another
/// evaluation that waits for the same lock.
pub(super) fn engine_of_part<'a>(samples: Samples<'a>, threads: &Threads, isa: Isa) -> Box<dyn Evaluator + 'a> {
    with_copies(samples, Copies::Each, threads, isa)
}

fn with_copies<'a>(samples: Samples<'a>, copies: Copies, threads: &Threads, isa: Isa) -> Box<dyn Evaluator + 'a> {
    let around_means = open_float64(samples.clone(), Deviations::AroundMeans, copies, threads, isa);
    if let View::F64(_) = samples.view() {
        let float64 = Engine::<f64>::new(samples, Deviations::InFrame, threads.clone(), isa);
        return Box::new(EnoughDigits::new(float64, move || around_means().map(Float64::boxed)));
    }
    let float32 = Engine::<f32>::new(samples.clone(), Deviations::InFrame, threads.clone(), isa);
    let in_frame = open_float64(samples, Deviations::InFrame, copies, threads, isa);
    let around_means = Arc::new(around_means);
    Box::new(EnoughDigits::new(float32, move || {
        let around_means = Arc::clone(&around_means);
        Ok(match in_frame()? {
            Float64::Whole(engine) => Box::new(EnoughDigits::new(*engine, move || around_means().map(Float64::boxed))),
            Float64::Chunks(evaluator) => evaluator,
        })
    }))
}

enum Float64<'a> {
    Whole(Box<Engine<'a, f64>>),
    /// Chunks, each with its own evaluators.
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

/// Opens evaluators of samples in float64. With [`Copies::One`], all evaluators of the same samples share one copy;
/// more than [`MAX_FLOAT64`] elements are converted in chunks, by each evaluator separately.
fn open_float64<'a>(
    samples: Samples<'a>,
    deviations: Deviations,
    copies: Copies,
    threads: &Threads,
    isa: Isa,
) -> impl Fn() -> Result<Float64<'a>> + Send + Sync + use<'a> {
    let whole: Mutex<Option<Engine<'a, f64>>> = Mutex::new(None);
    let threads = threads.clone();
    move || {
        let engine = || Engine::new(samples.clone(), deviations, threads.clone(), isa);
        if copies == Copies::Each {
            return Ok(Float64::Whole(Box::new(engine())));
        }
        let rows = MAX_FLOAT64 / samples.n_features();
        if samples.n_samples() <= rows {
            let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(Float64::Whole(Box::new(whole.get_or_insert_with(engine).clone())));
        }
        let threads = threads.clone();
        let load = move |chunk: Samples<'a>| -> Result<Box<dyn Evaluator + 'a>> {
            let engine = Engine::<f64>::new(chunk.clone(), deviations, threads.clone(), isa);
            if deviations == Deviations::AroundMeans {
                return Ok(Box::new(engine));
            }
            let around_means = open_float64(chunk, Deviations::AroundMeans, Copies::Each, &threads, isa);
            Ok(Box::new(EnoughDigits::new(engine, move || around_means().map(Float64::boxed))))
        };
        Ok(Float64::Chunks(Box::new(ChunkedEvaluator::of_samples(samples.clone(), rows.max(1), load)?)))
    }
}
