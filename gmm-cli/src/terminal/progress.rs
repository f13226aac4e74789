//! A line on stderr that changes while a command works.
use super::text;
use super::verbosity::is_quiet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::time::{Duration, Instant};

const REFRESH: Duration = Duration::from_millis(100);

/// A line on stderr that shows the progress of work while it lasts. Hidden if stderr is not a terminal, or with
/// --quiet.
pub struct ProgressLine {
    bar: ProgressBar,
    changed: Instant,
}

impl ProgressLine {
    /// Starts a line with this message.
    pub fn start(message: impl Into<Cow<'static, str>>) -> Self {
        // A spinner of `indicatif` writes to stderr, and only to a terminal.
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            bar.set_style(style);
        }
        if is_quiet() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_message(message);
        bar.enable_steady_tick(REFRESH);
        Self { bar, changed: Instant::now() }
    }

    /// Replaces the line.
    pub fn show(&mut self, message: String) {
        self.changed = Instant::now();
        self.bar.set_message(message);
    }

    /// Replaces the line, unless it was replaced a moment ago.
    pub fn update(&mut self, message: impl FnOnce() -> String) {
        if self.changed.elapsed() >= REFRESH {
            self.show(message());
        }
    }

    /// Shows how many rows of the data were read, and of how many, if known.
    pub fn rows(&mut self, what: &str, rows: usize, of: Option<usize>) {
        self.update(|| match of {
            Some(n) if n > 0 => {
                let (percent, n) = (100.0 * rows as f64 / n as f64, text::grouped(n as u64));
                format!("{what}: {} of {n} rows, {percent:.0} %", text::grouped(rows as u64))
            }
            _ => format!("{what}: {} rows", text::grouped(rows as u64)),
        });
    }

    /// Hides the line while `write` writes to stderr.
    pub fn hide_while(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
