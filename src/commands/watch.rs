//! What happens after each iteration of a fit: the live line, and the look for Ctrl-C.
use super::interrupt::Interrupt;
use super::progress::Progress;
use super::text;
use gmm::Iteration;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The least time between two changes of the live line.
const TICK: Duration = Duration::from_millis(100);

pub struct Watch<'a> {
    pub progress: Progress,
    interrupt: &'a Interrupt,
    n_samples: f64,
    /// Taken from the lower bounds to bring them into the data's units.
    log_scale: f64,
    shown: Instant,
    /// When which iteration of the present run was first seen to end, and of which model.
    first: (Instant, usize, (usize, usize)),
}

impl<'a> Watch<'a> {
    pub fn start(interrupt: &'a Interrupt, n_samples: usize, log_scale: f64) -> Self {
        let now = Instant::now();
        let progress = Progress::start("looking for a start");
        Self { progress, interrupt, n_samples: n_samples as f64, log_scale, shown: now, first: (now, 0, (0, 0)) }
    }

    /// Shows the iteration behind `what` is being fitted.
    pub fn see(&mut self, i: &Iteration<'_>, what: impl FnOnce() -> String) -> ControlFlow<()> {
        let now = Instant::now();
        let model = (i.run, i.fit.mixture.n_components());
        if self.first.2 != model || i.iteration <= self.first.1 {
            self.first = (now, i.iteration, model);
        }
        if now - self.shown >= TICK {
            self.shown = now;
            self.progress.say(self.line(i, now, what()));
        }
        if self.interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn line(&self, i: &Iteration<'_>, now: Instant, what: String) -> String {
        let mut line = format!("{what}iteration {}: lower bound {:.6}", i.iteration, i.lower_bound - self.log_scale);
        if i.change.is_finite() {
            line += &format!(", change {:.1e}", i.change);
        }
        let (since, iteration, _) = self.first;
        if i.iteration > iteration {
            let points = (i.iteration - iteration) as f64 * self.n_samples;
            line += &format!(", {} points/s", text::count(points / (now - since).as_secs_f64()));
        }
        line
    }
}
