//! The amount of messages on stderr.
use clap::Args;
use std::sync::OnceLock;
use std::time::Instant;

#[derive(Debug, Args)]
pub struct Verbosity {
    /// Say each step on stderr, with the seconds since the start
    #[arg(short, long, global = true)]
    verbose: bool,
    /// Show only errors on stderr, neither progress nor notes
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

/// The start of the program and its level, once known.
static STARTED: OnceLock<(Instant, Level)> = OnceLock::new();

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Quiet,
    Usual,
    Verbose,
}

impl Verbosity {
    /// Applies until the process ends.
    pub fn apply(&self) {
        let level = match self {
            Self { quiet: true, .. } => Level::Quiet,
            Self { verbose: true, .. } => Level::Verbose,
            _ => Level::Usual,
        };
        STARTED.get_or_init(|| (Instant::now(), level));
    }
}

pub fn is_quiet() -> bool {
    STARTED.get().is_some_and(|(_, level)| *level == Level::Quiet)
}

/// Returns the seconds since the start if every step is to be printed.
pub fn told_after() -> Option<f64> {
    STARTED.get().filter(|(_, level)| *level == Level::Verbose).map(|(start, _)| start.elapsed().as_secs_f64())
}
