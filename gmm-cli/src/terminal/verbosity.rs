//! How much is said on stderr.
use clap::Args;
use std::sync::OnceLock;
use std::time::Instant;

/// Options of every command.
#[derive(Debug, Args)]
pub struct Verbosity {
    /// Say on stderr what is done, with the seconds since the start
    #[arg(short, long, global = true)]
    verbose: bool,
    /// Show no progress and no notes on stderr, only errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

/// How the program was started, if it was.
static STARTED: OnceLock<(Instant, Level)> = OnceLock::new();

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Quiet,
    Usual,
    Verbose,
}

impl Verbosity {
    /// Holds from now on, until the process ends.
    pub fn apply(&self) {
        let level = match self {
            Self { quiet: true, .. } => Level::Quiet,
            Self { verbose: true, .. } => Level::Verbose,
            _ => Level::Usual,
        };
        STARTED.get_or_init(|| (Instant::now(), level));
    }
}

/// Whether nothing but errors is to be said.
pub fn is_quiet() -> bool {
    STARTED.get().is_some_and(|(_, level)| *level == Level::Quiet)
}

/// The seconds since the start, if every step is to be told.
pub fn told_after() -> Option<f64> {
    STARTED.get().filter(|(_, level)| *level == Level::Verbose).map(|(start, _)| start.elapsed().as_secs_f64())
}
