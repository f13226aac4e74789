//! Timing of evaluations.
use std::time::{Duration, Instant};

/// The most repetitions of one measurement.
const MAX_REPETITIONS: usize = 10_000;

/// The time of one call, from repeated calls.
pub struct Timing {
    /// Median, in seconds.
    pub median: f64,
    /// How many calls it is the median of.
    pub repetitions: usize,
}

/// Calls `f` once to warm up, then again and again until `budget` is spent; `f` gets the number of the call. When the first
/// call alone takes longer than the budget it is the measurement.
pub fn time<E>(budget: Duration, mut f: impl FnMut(usize) -> Result<(), E>) -> Result<Timing, E> {
    let start = Instant::now();
    f(0)?;
    let mut times = vec![start.elapsed()];
    if times[0] < budget {
        times.clear();
        let start = Instant::now();
        while times.is_empty() || start.elapsed() < budget && times.len() < MAX_REPETITIONS {
            let begin = Instant::now();
            f(times.len() + 1)?;
            times.push(begin.elapsed());
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

    #[test]
    fn warm_up_does_not_count() {
        let mut calls = 0;
        let timing = time(Duration::from_millis(20), |i| {
            assert_eq!(i, calls);
            calls += 1;
            std::thread::sleep(Duration::from_millis(if i == 0 { 10 } else { 1 }));
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(calls, timing.repetitions + 1);
        assert!(timing.repetitions >= 1 && (0.001..0.02).contains(&timing.median));
    }

    #[test]
    fn a_call_longer_than_the_budget_is_made_once() {
        let mut calls = 0;
        let timing = time(Duration::from_millis(1), |_| {
            calls += 1;
            std::thread::sleep(Duration::from_millis(5));
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!((calls, timing.repetitions), (1, 1));
        assert!(timing.median >= 0.005);
    }

    #[test]
    fn an_error_ends_it() {
        assert_eq!(time(Duration::from_secs(1), |i| if i < 2 { Ok(()) } else { Err("third") }).err(), Some("third"));
    }
}
