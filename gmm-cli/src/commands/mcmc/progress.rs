//! The progress line of a run of a sampler.
use crate::terminal::{ProgressLine, text};
use gaussmix::mcmc::{self, Settings};
use std::time::Instant;

/// Turns the sampler's progress into a line with the remaining time.
pub struct RunProgress {
    pub line: ProgressLine,
    begin: Instant,
    evaluations_before: u64,
    /// Iterations of warm-up, of each draw, and of the whole run.
    warmup: f64,
    thin: f64,
    total: f64,
    /// Iterations before this process began; known at the first call for a resumed warm-up.
    iterations_before: Option<f64>,
}

impl RunProgress {
    /// `drawn` and `evaluations` are those of the run before this process began.
    pub fn new(line: ProgressLine, settings: &Settings, evaluations: u64, drawn: usize) -> Self {
        let (warmup, thin) = (settings.warmup as f64, settings.thin as f64);
        Self {
            line,
            begin: Instant::now(),
            evaluations_before: evaluations,
            warmup,
            thin,
            total: warmup + settings.draws as f64 * thin,
            iterations_before: (drawn > 0).then_some(warmup + drawn as f64 * thin),
        }
    }

    pub fn show(&mut self, p: &mcmc::Progress<'_>) {
        let done = if p.warming_up {
            self.warmup * p.done as f64 / p.of as f64
        } else {
            self.warmup + p.done as f64 * self.thin
        };
        let before = *self.iterations_before.get_or_insert(done);
        let (elapsed, total, evaluations_before) = (self.begin.elapsed(), self.total, self.evaluations_before);
        self.line.update(|| {
            let elapsed = elapsed.as_secs_f64();
            let mut line = format!(
                "{} {} of {}, {} evaluations/s",
                if p.warming_up { "warm-up" } else { "draw" },
                text::grouped(p.done as u64),
                text::grouped(p.of as u64),
                text::count((p.evaluations - evaluations_before) as f64 / elapsed),
            );
            if p.acceptance.is_finite() {
                line += &format!(", acceptance {:.2}", p.acceptance);
            }
            if p.divergences > 0 {
                line += &format!(", {} divergences", p.divergences);
            }
            if done > before {
                line += &format!(", {} left", text::seconds(elapsed * (total - done) / (done - before)));
            }
            line
        });
    }
}
