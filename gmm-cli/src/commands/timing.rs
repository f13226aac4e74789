//! Measures the time of an evaluation.
use std::time::{Duration, Instant};

const MAX_REPETITIONS: usize = 10_000;

/// The most budgets that warming up may take if each call takes longer than one.
const MAX_WARMUP_BUDGETS: u32 = 10;

/// The time of one call, from repeated calls.
pub struct Timing {
    /// The median in seconds.
    pub median: f64,
    /// The number of measured calls.
    pub repetitions: usize,
}

/// Calls `f` to warm up until a call takes less than `budget`, then repeats it until the budget is spent. `f` gets the
/// number of the call, counted from 0. If calls are still slower than `budget` after `MAX_WARMUP_BUDGETS` budgets, the
/// last call is the measurement.
pub fn time<E>(budget: Duration, mut f: impl FnMut(usize) -> Result<(), E>) -> Result<Timing, E> {
    let mut calls = 0;
    let mut call = || {
        let begin = Instant::now();
        f(calls)?;
        calls += 1;
        Ok(begin.elapsed())
    };
    let start = Instant::now();
    let mut times = vec![call()?];
    // The first calls may move the data or compile kernels.
    while times[0] >= budget && start.elapsed() < budget * MAX_WARMUP_BUDGETS {
        times[0] = call()?;
    }
    if times[0] < budget {
        times.clear();
        let start = Instant::now();
        while times.is_empty() || start.elapsed() < budget && times.len() < MAX_REPETITIONS {
            times.push(call()?);
        }
    }
    times.sort_unstable();
    let middle = times.len() / 2;
    let upper = times[middle].as_secs_f64();
    let median = if times.len() % 2 == 1 { upper } else { (times[middle - 1].as_secs_f64() + upper) / 2.0 };
    Ok(Timing { median, repetitions: times.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Warm-up and slow first calls do not count; a call much longer than the budget is made once.
    #[test]
    fn the_first_calls_do_not_count() {
        for (budget, slow_calls, slow, usual) in [(20, 1, 10, 1), (40, 2, 50, 1), (1, 0, 0, 20)] {
            let mut calls = 0;
            let timing = time(Duration::from_millis(budget), |i| {
                assert_eq!(i, calls);
                calls += 1;
                std::thread::sleep(Duration::from_millis(if i < slow_calls { slow } else { usual }));
                Ok::<_, ()>(())
            })
            .unwrap();
            let (budget, usual) = (budget as f64 * 1e-3, usual as f64 * 1e-3);
            assert!(timing.repetitions >= 1 && timing.median >= usual && timing.median < budget.max(10.0 * usual));
            match slow_calls {
                0 => assert_eq!((calls, timing.repetitions), (1, 1)),
                1 => assert_eq!(calls, timing.repetitions + 1),
                _ => {}
            }
        }
    }

    #[test]
    fn an_error_ends_it() {
        assert_eq!(time(Duration::from_secs(1), |i| if i < 2 { Ok(()) } else { Err("third") }).err(), Some("third"));
    }
}
