//! After each iteration of a fit, updates the progress line and stops the fit if a signal has come.
use super::text;
use super::{Interrupt, ProgressLine};
use gaussmix::fit::{Iteration, Standardizable, Standardization};
use std::ops::ControlFlow;
use std::time::Instant;

/// The progress line of a fit, which also checks for Ctrl-C.
pub struct FitProgress<'a> {
    pub line: ProgressLine,
    interrupt: &'a Interrupt,
    n_samples: f64,
    /// The units of the fit, if they differ from those of the data.
    standardization: Option<&'a Standardization>,
    /// The iteration from which the speed is measured.
    start: SpeedStart,
}

/// The first iteration of a run whose end was seen, and its time.
struct SpeedStart {
    time: Instant,
    iteration: usize,
    /// The run and its model, in words.
    run: (usize, String),
}

impl<'a> FitProgress<'a> {
    pub fn start(interrupt: &'a Interrupt, n_samples: usize, standardization: Option<&'a Standardization>) -> Self {
        let start = SpeedStart { time: Instant::now(), iteration: 0, run: (0, String::new()) };
        let line = ProgressLine::start("looking for a start");
        Self { line, interrupt, n_samples: n_samples as f64, standardization, start }
    }

    /// Shows the iteration after its model. Stops the fit if a signal has come.
    pub fn after_iteration<M: Standardizable>(
        &mut self,
        i: &Iteration<'_, M>,
        model: impl Fn() -> String,
    ) -> ControlFlow<()> {
        let now = Instant::now();
        let run = (i.run, model());
        if self.start.run != run || i.iteration <= self.start.iteration {
            self.start = SpeedStart { time: now, iteration: i.iteration, run };
        }
        let (start, n_samples) = (&self.start, self.n_samples);
        let shift = self.standardization.map_or(0.0, |standard| i.fit.mixture.lower_bound_shift(standard));
        let describe = || {
            let mut line = model();
            line += &format!("iteration {}: lower bound {:.6}", i.iteration, i.lower_bound - shift);
            if i.change.is_finite() {
                line += &format!(", change {:.1e}", i.change);
            }
            line
        };
        self.line.hide_while(|| text::tell(describe));
        self.line.update(|| {
            let mut line = describe();
            if i.iteration > start.iteration {
                let samples = (i.iteration - start.iteration) as f64 * n_samples;
                line += &format!(", {} samples/s", text::count(samples / (now - start.time).as_secs_f64()));
            }
            line
        });
        if self.interrupt.noted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
