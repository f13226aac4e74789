//! A live line on stderr; nothing where that is no terminal.
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

pub struct Progress(ProgressBar);

impl Progress {
    pub fn start(message: &'static str) -> Self {
        // ProgressBar writes to stderr, and only to a terminal.
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_message(message);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    pub fn say(&self, message: String) {
        self.0.set_message(message);
    }

    /// Writes something else to stderr, without the line in between.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
